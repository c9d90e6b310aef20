"""`write`: rows from Parquet, CSV and Arrow files into a dataset."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lance_io.cli.option_texts import storage_options
from lance_io.cli.output import show, transfer
from lance_io.cli.sources import csv_types, open_named_sources, read_rows
from lance_io.cli.uri_target import open_table
from lance_io.dataset.cli_imports import ROWS_PER_FILE, FragmentWriteProgress, count_of, format_bytes, write_dataset
from lance_io.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_io.dataset.cli_imports import FragmentMetadata


def write(
    sources: list[str],
    uri: str,
    mode: Literal["create", "append", "overwrite"],
    format: str | None,
    csv_type: list[str] | None,
    csv_delimiter: str | None,
    max_rows_per_file: int | None,
    data_storage_version: str | None,
    commit_message: str | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io write`."""
    started = perf_counter()
    types = _table_types(uri, storage_option) if mode == "append" else {}
    opened = open_named_sources(sources, format, csv_type, csv_delimiter, types)
    known = [source.num_rows for source in opened]
    total = None if None in known else sum(number or 0 for number in known)
    completed = Collector()
    with transfer(f"writing {uri}", total) as advance:
        batches = _count_rows(read_rows(opened), advance)
        dataset = write_dataset(
            pa.RecordBatchReader.from_batches(opened[0].schema, batches),
            uri,
            mode=mode,
            max_rows_per_file=max_rows_per_file or ROWS_PER_FILE,
            data_storage_version=data_storage_version,
            commit_message=commit_message,
            storage_options=storage_options(storage_option) or None,
            progress=completed,
        )
    fragments = completed.fragments
    files = [file for fragment in fragments for file in fragment.files]
    report = {
        "uri": dataset.uri,
        "mode": mode,
        "version": dataset.version,
        "num_rows": sum(fragment.physical_rows for fragment in fragments),
        "num_fragments": len(fragments),
        "num_data_files": len(files),
        "data_bytes": sum(file.file_size_bytes or 0 for file in files),
        "seconds": perf_counter() - started,
    }
    show(report, as_json, _show)


def _count_rows(batches: Iterator[pa.RecordBatch], advance: Callable[[int, int], None]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        advance(batch.num_rows, batch.nbytes)


class Collector(FragmentWriteProgress):
    """Collects the fragments that a write completes."""

    def __init__(self) -> None:
        self.fragments: list[FragmentMetadata] = []

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """See `FragmentWriteProgress.begin`; nothing to do."""

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """See `FragmentWriteProgress.complete`."""
        self.fragments.append(fragment)


def _table_types(uri: str, options: list[str] | None) -> dict[str, pa.DataType]:
    """Column types of the table that rows are appended to; none if there is no table yet."""
    try:
        state = open_table(uri, options=options)
    except NotFound:
        return {}
    return csv_types(state.arrow_schema)


# -- for people ------------------------------------------------------------------------------------------------------


def _show(report: dict[str, Any]) -> str:
    seconds = report["seconds"]
    rate = f", {report['num_rows'] / seconds:,.0f} rows/s" if seconds else ""
    return (
        f"{report['uri']}: version {report['version']}\n"
        f"{count_of(report['num_rows'], 'row')} in {count_of(report['num_fragments'], 'fragment')}, "
        f"{count_of(report['num_data_files'], 'data file')}, {format_bytes(report['data_bytes'])}; "
        f"{seconds:,.1f} s{rate}"
    )
