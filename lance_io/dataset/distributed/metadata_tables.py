"""Tables about a version: the history of the table, its fragments, files and indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.commit.latest import list_versions
from lance_io.errors import UsageError
from lance_io.reads.metadata.index_descriptions import describe_indices
from lance_io.reads.run_plan import run_on
from lance_io.reads.version.manifest_reads import read_each
from lance_io.reads.version.versions import time_of
from lance_io.table.manifest.manifest import decode_origin, decode_summary, read_section
from lance_io.table.transaction.transaction import decode_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import Buffer

_MOMENT: Final = pa.timestamp("us", "UTC")
_Row = dict[str, Any]

_TEXTS: Final = pa.map_(pa.string(), pa.string())

HISTORY: Final = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", _MOMENT),
        ("metadata", _TEXTS),
        ("operation", pa.string()),
        ("properties", _TEXTS),
    ]
)
FRAGMENTS: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("num_rows", pa.int64()),
        ("physical_rows", pa.int64()),
        ("num_deleted_rows", pa.int64()),
        ("num_files", pa.int32()),
        ("size_bytes", pa.int64()),
    ]
)
FILES: Final = pa.schema(
    [
        ("fragment_id", pa.int64()),
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("file_version", pa.string()),
        ("field_ids", pa.list_(pa.int32())),
    ]
)
INDICES: Final = pa.schema(
    [
        ("name", pa.string()),
        ("type", pa.string()),
        ("columns", pa.list_(pa.string())),
        ("num_rows_indexed", pa.int64()),
        ("num_segments", pa.int32()),
        ("size_bytes", pa.int64()),
    ]
)


def metadata_table(state: DatasetState, name: str) -> pa.Table:
    """A table about a version; see `TableVersion.metadata`."""
    if name not in _TABLES:
        raise UsageError(f"there is no metadata table {name!r}; there are {', '.join(_TABLES)}")
    schema, rows = _TABLES[name]
    return pa.Table.from_pylist([*rows(state)], schema)


def _history(state: DatasetState) -> Iterator[_Row]:
    """All versions, with the operation that made each, if its manifest file says it."""
    location = state.location

    def read() -> Plan[list[_Row]]:
        files = yield from list_versions(location.store, location.path)
        rows: list[_Row] = yield from read_each(location, state.session, files, _version_row)
        return rows

    yield from run_on(location.store, read())


def _version_row(data: Buffer, *, data_start: int = 0) -> _Row:
    assert not data_start, "the whole file is read"
    version, timestamp_ns, totals = decode_summary(data)
    offset = decode_origin(data).transaction_offset
    transaction = None if offset is None else decode_transaction(read_section(data, offset, what="transaction"))
    return {
        "version": version,
        "timestamp": time_of(timestamp_ns),
        "metadata": totals,
        "operation": None if transaction is None else transaction.name,
        "properties": {} if transaction is None else dict(transaction.properties),
    }


def _fragments(state: DatasetState) -> Iterator[_Row]:
    for fragment in state.manifest.fragments:
        sizes = [file.size_bytes for file in fragment.files]
        yield {
            "id": fragment.id,
            "num_rows": fragment.num_rows,
            "physical_rows": fragment.physical_rows,
            "num_deleted_rows": fragment.num_deleted_rows,
            "num_files": len(sizes),
            "size_bytes": None if None in sizes else sum(size or 0 for size in sizes),
        }


def _files(state: DatasetState) -> Iterator[_Row]:
    for fragment in state.manifest.fragments:
        for file in fragment.files:
            yield {
                "fragment_id": fragment.id,
                "path": file.path,
                "size_bytes": file.size_bytes,
                "file_version": file.version.name,
                "field_ids": list(file.fields),
            }


def _indices(state: DatasetState) -> Iterator[_Row]:
    for index in run_on(state.location.store, describe_indices(state)):
        yield {
            "name": index.name,
            "type": index.index_type,
            "columns": index.field_names,
            "num_rows_indexed": index.num_rows_indexed,
            "num_segments": len(index.segments),
            "size_bytes": index.total_size_bytes,
        }


_TABLES: Final[dict[str, tuple[pa.Schema, Callable[[DatasetState], Iterator[_Row]]]]] = {
    "history": (HISTORY, _history),
    "fragments": (FRAGMENTS, _fragments),
    "files": (FILES, _files),
    "indices": (INDICES, _indices),
}
