"""Statistics of the batches of a file of version 0.1, as bounds for filters (spec: legacy 0.1, section 8).

They are a table with a row per batch and a struct per field, named after the field's id:

    null_count             int64: nulls that were written, which pages do not store
    min_value, max_value   of the type of the field; null if unknown

The table is one batch with its own page table. It lies after the file's page table, where everything is small: usually
one read fetches it.

Unsafe bounds are left out: if a batch was written with nulls, the bounds miss the values that its pages store instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.encodings.rounds import fetch, together
from lance_io.encodings.v0_1.batched_leaf import BatchedLeaf
from lance_io.encodings.v0_1.field_pages import FieldPages
from lance_io.errors import FormatError
from lance_io.file.file_steps import Tail, serve_from_tail
from lance_io.file.open.batched_file import BatchedFile
from lance_io.file.open.open_file import open_cached
from lance_io.filters.zones import ColumnZones
from lance_io.format.error_context import FILE_ERRORS, add_location
from lance_io.format.schema_messages import decode_schema
from lance_io.format.v0_1.batch_table import PageTable, page_table_range
from lance_io.levels.path import leaf_paths
from lance_io.limits import MIB
from lance_io.records import dataclass
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.file_source import ReadContext
    from lance_io.file.open.leaf_projection import FileColumns
    from lance_io.format.schema import Field
    from lance_io.levels.path import LeafPath
    from lance_io.spans import IntArray

READ_AT_ONCE_BYTES_MAX: Final = 1 * MIB  # after the page table; of more bytes, only the needed ranges are read
_MEMBERS: Final = ["null_count", "min_value", "max_value"]


@dataclass(frozen=True, slots=True, eq=False)
class BatchZones:
    """Bounds of the batches of a file.

    row_starts  i64[batches + 1], rows before each batch
    columns     bounds by field id, for fields that have some
    """

    row_starts: IntArray
    columns: dict[int, ColumnZones]

    @property
    def nbytes(self) -> int:
        """Approximate memory held, in bytes."""
        return 256 + sum(int(zones.least.nbytes + zones.greatest.nbytes) for zones in self.columns.values())


def batch_zones(context: ReadContext, file_columns: FileColumns) -> FileSteps[BatchZones | None]:
    """Bounds of the projected columns of a file. None if the file has another version, or no statistics.

    Takes at most two rounds if the file is open already (three with strings), none on a cache hit.
    Raises FormatError for damaged statistics.
    """
    file, tail = yield from open_cached(context, file_columns.ref, file_columns.columns)
    if type(file) is not BatchedFile or not file.metadata.has_statistics:
        return None
    key = (file.identity, "statistics", tuple(file_columns.leaf_ids))
    known: BatchZones | None = context.cache.get(key)
    if known is None:
        try:
            known = yield from _read(file, file_columns, tail)
        except FILE_ERRORS as error:
            raise add_location(error, "statistics", file.key) from error.__cause__
        context.cache.put(key, known, known.nbytes)
    return known


def _read(file: BatchedFile, file_columns: FileColumns, tail: Tail | None) -> FileSteps[BatchZones]:
    statistics = file.metadata.statistics
    assert statistics is not None, "checked before"
    end, size = file.page_table_at[1], file.size_bytes
    if (tail is None or tail.start > end) and size - end <= READ_AT_ONCE_BYTES_MAX:
        fetched = yield Ranges.of((end, size), purpose="metadata", keep=True)
        tail = Tail(end, fetched.piece(0, size - end))
    ids = list(statistics.fields)
    if not ids or min(ids) < 0:
        raise FormatError(f"{len(ids)} fields in their table")
    start, end = page_table_range(statistics.page_table_position, 0, max(ids), 1, size)
    fetched = yield from serve_from_tail(tail, fetch(Ranges.of((start, end), purpose="metadata")))
    table = PageTable(bytes(fetched.piece(0, end - start)), 0, max(ids), 1)
    row_starts = np.array([0, file.metadata.num_batches], dtype=np.int64)
    by_name = {field.name: field for field in decode_schema(statistics.schema, {}).fields}
    wanted: dict[int, list[BatchedLeaf]] = {}
    for leaf_id, path in zip(file_columns.leaf_ids, file_columns.leaf_columns.paths, strict=True):
        field = by_name.get(str(leaf_id))
        if field is not None and _has_members(field, path.leaf_type):
            wanted[leaf_id] = [_leaf(member, table, row_starts, size) for member in leaf_paths(field)]
    steps = [leaf.scan() for leaves in wanted.values() for leaf in leaves]
    arrays: list[pa.Array] = yield from serve_from_tail(tail, together(steps))
    columns = {
        leaf_id: _zones(*[array.field(0) for array in arrays[3 * at : 3 * at + 3]]) for at, leaf_id in enumerate(wanted)
    }
    return BatchZones(file.metadata.row_starts, columns)


def _has_members(field: Field, dtype: pa.DataType) -> bool:
    """Whether a field of the statistics has the members and types for a column of this type."""
    types = [child.arrow_type for child in field.children]
    return [child.name for child in field.children] == _MEMBERS and types == [pa.int64(), dtype, dtype]


def _leaf(path: LeafPath, table: PageTable, row_starts: IntArray, file_bytes: int) -> BatchedLeaf:
    node = path.nodes[-1]
    if not table.has(node.field.id):
        raise FormatError(f"no pages of field {node.field.id}")
    return BatchedLeaf(path, row_starts, [], FieldPages.of(node, table, file_bytes), None, file_bytes)


def _zones(null_count: pa.Array, least: pa.Array, greatest: pa.Array) -> ColumnZones:
    has_none = pc.equal(null_count, pa.array([0], pa.int64())[0])
    nothing = pa.nulls(len(least), least.type)
    return ColumnZones(pc.if_else(has_none, least, nothing), pc.if_else(has_none, greatest, nothing))
