"""`explain`: the requests of a scan or a take, without sending those for data."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from lance_io.cli.option_texts import column_names, row_numbers, storage_options
from lance_io.cli.output import progress, show
from lance_io.cli.tables import Table
from lance_io.cli.uri_target import open_table
from lance_io.dataset.cli_imports import (
    COST_OPTIONS,
    Cost,
    cost_report,
    cost_text,
    costs_of,
    count_of,
    explain_scan,
    explain_take,
    format_bytes,
    load_live_counts,
    planning,
    run_on,
    scan_options,
)
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from lance_io.cli.tables import Shown
    from lance_io.dataset.cli_imports import DatasetState, IoPlan, RequestCosts, StatsSnapshot

REQUESTS_SHOWN_MAX = 20


def explain(
    uri: str,
    take: str | None,
    take_random: int | None,
    seed: int,
    limit: int | None,
    offset: int | None,
    all_requests: bool,
    store: str | None,
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
    costs = None
    if store is not None:  # options override the known costs of the store
        costs = costs_of(store).with_options(_only_costs(planning(storage_options(storage_option))))
    names = column_names(columns)
    with progress("reading metadata"):
        if not is_take:
            plan = _scan(state, names, limit, offset, costs)
        else:
            rows = row_numbers(take) if take is not None else _random_rows(state, take_random or 0, seed)
            plan = _take(state, names, rows, costs)
    report = {
        "operation": "take" if is_take else "scan",
        "columns": names,
        "opening": {
            "num_requests": opening.requests,
            "num_bytes": opening.bytes_read,
            "cost": None if plan.costs is None else cost_report(_opening_cost(opening, plan.costs), plan.costs),
        },
        **plan.to_dict(),
    }
    show(report, as_json, lambda explained: _show(explained, all_requests))


def _only_costs(options: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name in COST_OPTIONS}


def _opening_cost(opening: StatsSnapshot, costs: RequestCosts) -> Cost:
    """Cost of sequential requests: the listing, the manifest."""
    seconds = opening.requests * costs.latency_s + opening.bytes_read / costs.connection_bytes_per_s
    gets, lists = opening["get"].requests + opening["head"].requests, opening["list"].requests
    return Cost(seconds, costs.prices.usd(gets=gets, lists=lists, bytes_read=opening.bytes_read))


def _scan(
    state: DatasetState, columns: list[str] | None, limit: int | None, offset: int | None, costs: RequestCosts | None
) -> IoPlan:
    options = scan_options(columns=columns, limit=limit, offset=offset)
    return run_on(state.location.store, explain_scan(state, options, store=costs))


def _take(state: DatasetState, columns: list[str] | None, rows: list[int], costs: RequestCosts | None) -> IoPlan:
    return run_on(state.location.store, explain_take(state, rows, columns, store=costs))


def _random_rows(state: DatasetState, num_rows: int, seed: int) -> list[int]:
    total = sum(run_on(state.location.store, load_live_counts(state, state.all_fragment_indexes)))
    if num_rows > total:
        raise UsageError(f"--take-random {num_rows}: the table has {total} rows")
    return random.Random(seed).sample(range(total), num_rows)


def _show(report: dict[str, Any], all_requests: bool) -> Shown:
    opening = report["opening"]
    parts: list[Shown] = [
        f"opening: {count_of(opening['num_requests'], 'request')}, {format_bytes(opening['num_bytes'])}"
    ]
    for entry in report["rounds"]:
        title = (
            f"round {entry['number']}, {entry['purpose']}: {count_of(entry['num_requests'], 'request')}, "
            f"{format_bytes(entry['request_bytes'])} for {format_bytes(entry['wanted_bytes'])}"
        )
        shown = entry["requests"] if all_requests else entry["requests"][:REQUESTS_SHOWN_MAX]
        rows: list[tuple[object, ...]] = [
            (request["key"], request["start"], request["end"], request["end"] - request["start"]) for request in shown
        ]
        if len(shown) < entry["num_requests"]:
            rows.append((f"... and {entry['num_requests'] - len(shown):,} more (--all shows them)", "", "", ""))
        parts.append(Table(["object", ">from", ">to", ">bytes"], rows, title=title))
    parts.append(
        f"{report['operation']}: {count_of(report['num_rounds'], 'round')}, "
        f"{count_of(report['num_requests'], 'request')}, "
        f"{format_bytes(report['num_bytes'])} for {format_bytes(report['wanted_bytes'])}"
    )
    if report["cost"] is not None:
        parts.append(f"opening: {cost_text(opening['cost'])}")
        parts.append(f"{report['operation']}: {cost_text(report['cost'])}")
    parts += [f"note: {note}" for note in report["notes"]]
    return parts
