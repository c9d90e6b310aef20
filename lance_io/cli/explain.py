"""`explain`: the requests that a scan or a take would make, without making those for data."""

import random
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lance_io.cli.options import (
    Columns,
    DatasetUri,
    Json,
    StorageOptions,
    Tag,
    Version,
    column_names,
    row_numbers,
)
from lance_io.cli.output import group, progress, show, table
from lance_io.cli.target import open_table, run_on
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lance_io.dataset.scan.io_plan import IoPlan
    from lance_io.dataset.version.state import DatasetState

REQUESTS_SHOWN_MAX = 20


def explain(
    uri: DatasetUri,
    take: Annotated[
        str | None, typer.Option("--take", metavar="ROWS", help="Explain a take of these rows, such as 0,5,100-104.")
    ] = None,
    take_random: Annotated[
        int | None, typer.Option("--take-random", metavar="N", min=0, help="Explain a take of N random rows.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Which random rows.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="Of a scan: so many rows.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Of a scan: behind so many rows.")] = None,
    all_requests: Annotated[bool, typer.Option("--all", help="Show every request.")] = False,
    columns: Columns = None,
    version: Version = None,
    tag: Tag = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Which byte ranges a scan (or a take) would ask for, round by round.

    Reads the metadata that this needs, as the scan would; never data.
    """
    if take is not None and take_random is not None:
        raise UsageError("--take and --take-random both say which rows: give one of them")
    is_take = take is not None or take_random is not None
    if is_take and (limit is not None or offset is not None):
        raise UsageError("--limit and --offset belong to a scan, not to a take")
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


def _scan(state: "DatasetState", columns: list[str] | None, limit: int | None, offset: int | None) -> "IoPlan":
    from lance_io.dataset.scan.explain import explain_scan
    from lance_io.dataset.scan.scan_options import scan_options

    options = scan_options(columns=columns, limit=limit, offset=offset)
    return run_on(state.location.store, explain_scan(state, options))


def _take(state: "DatasetState", columns: list[str] | None, rows: list[int]) -> "IoPlan":
    from lance_io.dataset.scan.explain import explain_take

    return run_on(state.location.store, explain_take(state, rows, columns))


def _random_rows(state: "DatasetState", num_rows: int, seed: int) -> list[int]:
    from lance_io.dataset.rows.deletions_and_ids import load_live_counts

    total = sum(run_on(state.location.store, load_live_counts(state, state.all_places)))
    if num_rows > total:
        raise UsageError(f"--take-random {num_rows}: the table has {total} rows")
    return random.Random(seed).sample(range(total), num_rows)


def _show(report: dict[str, Any], all_requests: bool) -> "RenderableType":
    from lance_io.dataset.scan.io_plan import counted, format_bytes

    opening = report["opening"]
    parts: list[RenderableType | str] = [
        f"opening: {counted(opening['num_requests'], 'request')}, {format_bytes(opening['num_bytes'])}"
    ]
    for one in report["rounds"]:
        title = (
            f"round {one['number']}, {one['purpose']}: {counted(one['num_requests'], 'request')}, "
            f"{format_bytes(one['request_bytes'])} for {format_bytes(one['wanted_bytes'])}"
        )
        shown = one["requests"] if all_requests else one["requests"][:REQUESTS_SHOWN_MAX]
        rows: list[tuple[object, ...]] = [
            (request["key"], request["start"], request["end"], request["end"] - request["start"]) for request in shown
        ]
        if len(shown) < one["num_requests"]:
            rows.append((f"... and {one['num_requests'] - len(shown):,} more (--all shows them)", "", "", ""))
        parts.append(table(["object", ">from", ">to", ">bytes"], rows, title=title))
    parts.append(
        f"{report['operation']}: {counted(report['num_rounds'], 'round')}, "
        f"{counted(report['num_requests'], 'request')}, "
        f"{format_bytes(report['num_bytes'])} for {format_bytes(report['wanted_bytes'])}"
    )
    parts += [f"note: {note}" for note in report["notes"]]
    return group(*parts)
