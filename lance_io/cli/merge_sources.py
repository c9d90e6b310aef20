"""`merge`: merges rows of files into a table by a key: updates, inserts or deletes them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import typer

from lance_io.cli.change import is_interactive
from lance_io.cli.option_texts import column_names
from lance_io.cli.output import progress, show
from lance_io.cli.sources import csv_types, open_named_sources, read_rows
from lance_io.cli.uri_target import open_table
from lance_io.dataset.cli_imports import (
    MergeClauses,
    count_merge,
    key_columns,
    limit_of,
    merge_rows,
    rows_of,
    run_change_with_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_io.cli.sources import Source
    from lance_io.cli.tables import Shown
    from lance_io.dataset.cli_imports import DatasetState, Matched, Plan

T = TypeVar("T")
MATCHED: Final[Mapping[str, Matched]] = {"update": "update", "nothing": "keep", "delete": "delete", "fail": "fail"}


def merge(
    uri: str,
    sources: list[str],
    on: list[str] | None,
    when_matched: str,
    update_if: str | None,
    when_not_matched: str,
    when_not_matched_by_source: str,
    delete_if: str | None,
    format: str | None,
    csv_type: list[str] | None,
    csv_delimiter: str | None,
    memory_limit: int | None,
    dry_run: bool,
    yes: bool,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io merge`."""
    state = open_table(uri, options=storage_option)
    clauses = MergeClauses(
        key_columns(column_names(on), state.schema),
        matched=MATCHED[when_matched],
        condition=update_if,
        inserts=when_not_matched == "insert",
        deletes_rest=when_not_matched_by_source == "delete",
        rest_filter=delete_if,
    )
    opened = open_named_sources(sources, format, csv_type, csv_delimiter, csv_types(state.arrow_schema))
    limit_bytes = limit_of(state, memory_limit)
    if dry_run or (not yes and is_interactive()):
        with progress("comparing keys"):
            counted = _run(count_merge, state, clauses, limit_bytes, opened)
        if dry_run:
            show({"done": False, "version": state.manifest.version, **counted}, as_json, _show)
            return
        inserted, updated, deleted = _counts(counted)
        typer.confirm(f"Insert {inserted}, update {updated}, delete {deleted} rows of {uri}?", abort=True, err=True)
    with progress("merging"):
        after, done = _run(merge_rows, state, clauses, limit_bytes, opened)
    show({"done": True, "version": after.manifest.version, **done}, as_json, _show)


def _run(
    make: Callable[..., Plan[T]], state: DatasetState, clauses: MergeClauses, limit_bytes: int, opened: Sequence[Source]
) -> T:
    """Run a plan that merges the rows of files; reads them from the beginning."""
    rows = rows_of(pa.RecordBatchReader.from_batches(opened[0].schema, read_rows(opened)))
    return run_change_with_rows(rows, partial(make, state, clauses, limit_bytes), answers_sync=state.answers_sync)


def _counts(report: Mapping[str, Any]) -> list[str]:
    return [f"{report[f'num_{done}_rows']:,}" for done in ("inserted", "updated", "deleted")]


def _show(report: dict[str, Any]) -> Shown:
    inserted, updated, deleted = _counts(report)
    if not report["done"]:
        return f"{inserted} rows would be inserted, {updated} updated, {deleted} deleted"
    return f"version {report['version']}: {inserted} rows inserted, {updated} updated, {deleted} deleted"
