"""`explain`: the requests that a scan or a take would make, without making those for data."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from lance_io.cli.option_texts import column_names, row_numbers
from lance_io.cli.output import progress, show
from lance_io.cli.tables import Table
from lance_io.cli.uri_target import open_table
from lance_io.dataset.rows.deletions_and_ids import load_live_counts
from lance_io.dataset.run_plan import run_on
from lance_io.dataset.scan.explain import explain_scan, explain_take
from lance_io.dataset.scan.io_plan import count_of, format_bytes
from lance_io.dataset.scan.scan_options import scan_options
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from lance_io.cli.tables import Shown
    from lance_io.dataset.scan.io_plan import IoPlan
    from lance_io.dataset.version.state import DatasetState

REQUESTS_SHOWN_MAX = 20


def explain(
    uri: str,
    take: str | None,
    take_random: int | None,
    seed: int,
    limit: int | None,
    offset: int | None,
    all_requests: bool,
    columns: list[str] | None,
    version: int | None,
    tag: str | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io explain`."""
    is_take = take is not None or take_random is not None
    state = open_table(uri, version, tag, storage_option)
    opening = state.location.store.stats.snapshot()
    names = column_names(columns)
    with progress("reading metadata"):
        if not is_take:
            plan = _scan(state, names, limit, offset)
        else:
            rows = row_numbers(take) if take is not None else _random_rows(state, take_random or 0, seed)
            plan = _take(state, names, rows)
    report = {
        "operation": "take" if is_take else "scan",
        "columns": names,
        "opening": {"num_requests": opening.requests, "num_bytes": opening.bytes_read},
        **plan.to_dict(),
    }
    show(report, as_json, lambda one: _show(one, all_requests))


def _scan(state: DatasetState, columns: list[str] | None, limit: int | None, offset: int | None) -> IoPlan:
    options = scan_options(columns=columns, limit=limit, offset=offset)
    return run_on(state.location.store, explain_scan(state, options))


def _take(state: DatasetState, columns: list[str] | None, rows: list[int]) -> IoPlan:
    return run_on(state.location.store, explain_take(state, rows, columns))


def _random_rows(state: DatasetState, num_rows: int, seed: int) -> list[int]:
    total = sum(run_on(state.location.store, load_live_counts(state, state.all_places)))
    if num_rows > total:
        raise UsageError(f"--take-random {num_rows}: the table has {total} rows")
    return random.Random(seed).sample(range(total), num_rows)


def _show(report: dict[str, Any], all_requests: bool) -> Shown:
    opening = report["opening"]
    parts: list[Shown] = [
        f"opening: {count_of(opening['num_requests'], 'request')}, {format_bytes(opening['num_bytes'])}"
    ]
    for one in report["rounds"]:
        title = (
            f"round {one['number']}, {one['purpose']}: {count_of(one['num_requests'], 'request')}, "
            f"{format_bytes(one['request_bytes'])} for {format_bytes(one['wanted_bytes'])}"
        )
        shown = one["requests"] if all_requests else one["requests"][:REQUESTS_SHOWN_MAX]
        rows: list[tuple[object, ...]] = [
            (request["key"], request["start"], request["end"], request["end"] - request["start"]) for request in shown
        ]
        if len(shown) < one["num_requests"]:
            rows.append((f"... and {one['num_requests'] - len(shown):,} more (--all shows them)", "", "", ""))
        parts.append(Table(["object", ">from", ">to", ">bytes"], rows, title=title))
    parts.append(
        f"{report['operation']}: {count_of(report['num_rounds'], 'round')}, "
        f"{count_of(report['num_requests'], 'request')}, "
        f"{format_bytes(report['num_bytes'])} for {format_bytes(report['wanted_bytes'])}"
    )
    parts += [f"note: {note}" for note in report["notes"]]
    return parts
