"""`compact`: merges small fragments, or estimates the cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lance_io.cli.option_texts import storage_options
from lance_io.cli.output import progress, show
from lance_io.cli.tables import Table
from lance_io.cli.uri_target import open_table
from lance_io.dataset.cli_imports import (
    COST_OPTIONS,
    compact_files,
    cost_text,
    costs_of,
    count_of,
    explain_compaction,
    format_bytes,
    planning,
    run,
)

if TYPE_CHECKING:
    from lance_io.cli.tables import Shown

TASKS_SHOWN_MAX = 20
IDS_SHOWN_MAX = 6


def compact(
    uri: str,
    target_rows: int | None,
    mode: str | None,
    max_fragments: int | None,
    max_bytes: int | None,
    memory_limit: int | None,
    verify: bool,
    dry_run: bool,
    store: str | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io compact`."""
    given = {
        "target_rows_per_fragment": target_rows,
        "compaction_mode": mode,
        "max_source_fragments": max_fragments,
        "max_source_bytes": max_bytes,
        "memory_limit": memory_limit,
        "verify": "read" if verify else None,
    }
    state = open_table(uri, options=storage_option)
    if dry_run:
        costs = None
        if store is not None:
            options = planning(storage_options(storage_option))
            costs = costs_of(store).with_options({name: options[name] for name in options if name in COST_OPTIONS})
        with progress("reading metadata"):
            explained = run(state, explain_compaction(state, given, costs))
        show({"done": False, **explained.to_dict()}, as_json, _show_plan)
        return
    with progress("compacting"):
        after, metrics = run(state, compact_files(state, given))
    show({"done": True, "version": after.manifest.version, **asdict(metrics)}, as_json, _show_done)


def _show_plan(report: dict[str, Any]) -> Shown:
    tasks = report["tasks"]
    if not tasks:
        return "nothing to compact"
    rows: list[tuple[object, ...]] = [
        (
            _ids(task["fragment_ids"]),
            task["num_rows"],
            task["num_new_fragments"],
            format_bytes(task["bytes_read"]),
            format_bytes(task["bytes_written"]),
        )
        for task in tasks[:TASKS_SHOWN_MAX]
    ]
    if len(tasks) > TASKS_SHOWN_MAX:
        rows.append((f"... and {len(tasks) - TASKS_SHOWN_MAX:,} more (--json shows them)", "", "", "", ""))
    num_old = sum(len(task["fragment_ids"]) for task in tasks)
    num_new = sum(task["num_new_fragments"] for task in tasks)
    parts: list[Shown] = [
        Table(["fragments", ">rows", ">become", ">read", ">written, about"], rows),
        f"{count_of(num_old, 'fragment')} would become {num_new:,}: {format_bytes(report['bytes_read'])} in "
        f"{count_of(report['requests_read'], 'request')} read, about {format_bytes(report['bytes_written'])} in "
        f"{count_of(report['requests_written'], 'request')} written",
    ]
    if report["cost"] is not None:
        parts.append(cost_text(report["cost"]))
    return parts


def _ids(ids: list[int]) -> str:
    if len(ids) <= IDS_SHOWN_MAX:
        return ", ".join(map(str, ids))
    return f"{ids[0]} to {ids[-1]}: {len(ids):,}"


def _show_done(report: dict[str, Any]) -> Shown:
    if not report["fragments_removed"]:
        return "nothing to compact"
    return (
        f"version {report['version']}: {count_of(report['fragments_removed'], 'fragment')} became "
        f"{report['fragments_added']:,}, {count_of(report['files_removed'], 'file')} became {report['files_added']:,}"
    )
