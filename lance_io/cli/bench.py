"""`bench`: throughput of reads of a dataset or a bucket from here, with their requests and bytes."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from lance_io.cli.bucket_bench import measure_bucket, show_bucket
from lance_io.cli.option_texts import column_names, storage_options, take_sizes
from lance_io.cli.output import progress, show
from lance_io.cli.tables import Table
from lance_io.cli.uri_target import locate, open_table
from lance_io.dataset.cli_imports import (
    Session,
    collect,
    format_bytes,
    load_live_counts,
    run_on,
    scan_options,
    scan_projection,
    stream,
    take_positions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.cli.tables import Shown
    from lance_io.dataset.cli_imports import DatasetState

_BUCKET: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]+/?")  # without a path
TAKE_SECONDS: Final = 0.5  # a take is repeated for about this long,
TAKE_REPEATS_MAX: Final = 200  # and at most this often


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean of the repetitions of one operation.

    num_rows            rows of one repetition
    seconds             of one
    num_requests, num_bytes  of one, as counted by the store
    """

    num_rows: int
    repeats: int
    seconds: float
    num_requests: float
    num_bytes: float

    def report(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "num_rows": self.num_rows,
            "repeats": self.repeats,
            "seconds": self.seconds,
            "rows_per_second": self.num_rows / self.seconds if self.seconds else 0.0,
            "num_requests": self.num_requests,
            "num_bytes": self.num_bytes,
        }


def bench(
    uri: str,
    columns: list[str] | None,
    take_rows: str,
    scans: bool,
    seed: int,
    bucket: bool,
    version: int | None,
    tag: str | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io bench`."""
    sizes = take_sizes(take_rows)
    if bucket or _BUCKET.fullmatch(uri):
        location, has_dataset = locate(uri, storage_options(storage_option))
        if bucket or not has_dataset:
            with progress("measuring"):
                report = measure_bucket(location, seed)
            show(report, as_json, show_bucket)
            return
    state = open_table(uri, version, tag, storage_option)
    names = column_names(columns)
    num_rows = _count(state)
    sizes = [size for size in sizes if size <= num_rows]
    single = [[name] for name in names or state.schema.names] if scans else []
    groups = [*single, names] if scans and len(single) > 1 else single
    scanned, taken = [], []
    with progress("measuring", len(groups) + 2 * len(sizes)) as step:
        _load_code(state, names)
        for group_columns in groups:
            label = group_columns[0] if group_columns in single and group_columns else "all columns"
            scanned.append({"columns": label, **_scan(state, group_columns).report()})
            step()
        chance = random.Random(seed)
        for size in sizes:
            for cold in (True, False):
                measured = _take(state, names, lambda size=size: chance.sample(range(num_rows), size), cold=cold)  # type: ignore[misc]
                taken.append({"num_rows": size, "cold": cold, **measured.report()})
                step()
    report = {"version": state.manifest.version, "num_rows": num_rows, "scans": scanned, "takes": taken}
    show(report, as_json, _show)


def _count(state: DatasetState) -> int:
    return sum(run_on(state.location.store, load_live_counts(state, state.all_fragment_indexes)))


def _fresh(state: DatasetState) -> DatasetState:
    """The same version with empty caches."""
    return replace(state, session=Session())


def _load_code(state: DatasetState, columns: list[str] | None) -> None:
    """Scan and take one row, so that imports are not measured."""
    fresh = _fresh(state)
    options = scan_options(columns=columns, limit=1)
    collect(fresh, options, scan_projection(fresh, options).arrow_schema)


def _measure(state: DatasetState, operation: Callable[[], int], repeats_max: int) -> Measured:
    """Repeat an operation, which returns its number of rows."""
    stats = state.location.store.stats
    before, started = stats.snapshot(), perf_counter()
    repeats, num_rows, seconds = 0, 0, 0.0
    while repeats == 0 or (repeats < repeats_max and seconds < TAKE_SECONDS):
        num_rows = operation()
        repeats += 1
        seconds = perf_counter() - started
    spent = stats.snapshot() - before
    return Measured(num_rows, repeats, seconds / repeats, spent.requests / repeats, spent.bytes_read / repeats)


def _scan(state: DatasetState, columns: list[str] | None) -> Measured:
    fresh = _fresh(state)
    options = scan_options(columns=columns)
    schema = scan_projection(fresh, options).arrow_schema
    return _measure(fresh, lambda: sum(batch.num_rows for batch in stream(fresh, options, schema)), 1)


def _take(state: DatasetState, columns: list[str] | None, choose: Callable[[], list[int]], *, cold: bool) -> Measured:
    used = _fresh(state) if cold else state

    def once() -> int:
        table = run_on(used.location.store, take_positions(used, choose(), columns))
        return int(table.num_rows)

    if not cold:
        once()  # one-time loads of a first take belong to the cold line
    return _measure(used, once, 1 if cold else TAKE_REPEATS_MAX)


def _show(report: dict[str, Any]) -> Shown:
    def line(label: str, measured: dict[str, Any]) -> tuple[object, ...]:
        return (
            label,
            f"{1000 * measured['seconds']:,.2f} ms",
            round(measured["rows_per_second"]),
            f"{measured['num_requests']:,.4g}",
            format_bytes(measured["num_bytes"]),
        )

    headers = ["", ">time", ">rows/s", ">requests", ">bytes"]
    parts: list[Shown] = []
    if report["scans"]:
        scans = [line(scan["columns"], scan) for scan in report["scans"]]
        parts.append(Table(headers, scans, title=f"scan of {report['num_rows']:,} rows"))
    takes = [line(f"{take['num_rows']:,} rows, {'cold' if take['cold'] else 'warm'}", take) for take in report["takes"]]
    parts.append(Table(headers, takes, title="take of random rows (mean of one take)"))
    return parts
