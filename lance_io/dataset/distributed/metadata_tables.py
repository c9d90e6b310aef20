"""Tables about a version: the history of the table, its fragments, files and indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.errors import UsageError
from lance_io.reads.metadata.index_descriptions import describe_indices
from lance_io.reads.run_plan import run_on
from lance_io.reads.version.versions import all_summaries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_io.reads.version.state import DatasetState

_MOMENT: Final = pa.timestamp("us", "UTC")
_Row = dict[str, Any]

HISTORY: Final = pa.schema(
    [("version", pa.int64()), ("timestamp", _MOMENT), ("metadata", pa.map_(pa.string(), pa.string()))]
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
    location = state.location
    for version, moment, totals in run_on(location.store, all_summaries(location, state.session)):
        yield {"version": version, "timestamp": moment, "metadata": totals}


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
