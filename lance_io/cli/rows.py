"""`head`, `search`, `count`: rows of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_io.cli.option_texts import column_names
from lance_io.cli.output import plain, progress, show
from lance_io.cli.tables import Table
from lance_io.cli.uri_target import open_table
from lance_io.dataset.cli_imports import (
    ScanOptions,
    execute,
    scan_options,
    scan_projection,
    with_inner,
    words_query,
)

if TYPE_CHECKING:
    from lance_io.cli.tables import Shown

CELL_CHARACTERS_MAX = 60


def head(
    uri: str,
    num_rows: int,
    columns: list[str] | None,
    filter: str | None,
    version: int | None,
    tag: str | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io head`."""
    state = open_table(uri, version, tag, storage_option)
    options = scan_options(columns=column_names(columns), filter=filter, limit=num_rows)
    with progress("reading"):
        table = execute.collect(state, options, scan_projection(state, options).arrow_schema)
    report = {
        "columns": [{"name": field.name, "type": str(field.type)} for field in table.schema],
        "num_rows": table.num_rows,
        "rows": _rows(table),
    }
    show(report, as_json, _show_rows)


def search(
    uri: str,
    words: str,
    num_rows: int,
    in_columns: list[str] | None,
    all_words: bool,
    phrase: bool,
    columns: list[str] | None,
    filter: str | None,
    version: int | None,
    tag: str | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io search`."""
    state = open_table(uri, version, tag, storage_option)
    options = scan_options(
        columns=column_names(columns),
        filter=filter,
        prefilter=True,
        limit=num_rows,
        full_text_query=words_query(words, column_names(in_columns), all_words=all_words, is_phrase=phrase),
    )
    with progress("searching"):
        table = execute.collect(state, options, scan_projection(state, options).arrow_schema)
    report = {
        "columns": [{"name": field.name, "type": str(field.type)} for field in table.schema],
        "num_rows": table.num_rows,
        "rows": _rows(table),
    }
    show(report, as_json, _show_rows)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts of plain values."""
    columns = [_values(column) for column in table.columns]
    return [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _readable(dtype: pa.DataType, *, all_times: bool = False) -> pa.DataType:
    """A type with nanoseconds as text (durations: as a number), at any depth: Python's times lack nanoseconds.

    all_times  dates and times of every unit
    """

    def readable(inner: pa.DataType) -> pa.DataType:
        return _readable(inner, all_times=all_times)

    if getattr(dtype, "unit", None) == "ns" or (all_times and pa.types.is_temporal(dtype)):
        return pa.int64() if pa.types.is_duration(dtype) else pa.string()
    return with_inner(dtype, readable)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values."""
    dtype = _readable(column.type)
    try:
        values: list[Any] = (column if dtype == column.type else column.cast(dtype)).to_pylist()
    except OverflowError:  # Python's dates end with the year 9999
        values = column.cast(_readable(column.type, all_times=True)).to_pylist()
    return values


def _show_rows(report: dict[str, Any]) -> Shown:
    names = [column["name"] for column in report["columns"]]
    rows = [[_cell(row[name]) for name in names] for row in report["rows"]]
    return Table([f"{column['name'].replace(chr(10), ' ')}\n{column['type']}" for column in report["columns"]], rows)


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    shown = str(plain(value) if not isinstance(value, bytes) else f"{len(value)} bytes")
    shown = shown[: CELL_CHARACTERS_MAX + 1].replace("\n", "\\n")  # each row is one line
    return shown if len(shown) <= CELL_CHARACTERS_MAX else shown[: CELL_CHARACTERS_MAX - 1] + "…"


def count(
    uri: str, filter: str | None, version: int | None, tag: str | None, storage_option: list[str] | None, as_json: bool
) -> None:
    """Run `lance-io count`."""
    state = open_table(uri, version, tag, storage_option)
    with progress("counting"):
        num_rows = execute.count(state, ScanOptions(filter=filter))
    show({"version": state.manifest.version, "num_rows": num_rows}, as_json, _show_count)


def _show_count(report: dict[str, Any]) -> Shown:
    return str(report["num_rows"])
