"""Whole rows that a merge writes: updated rows in the order of the source, then inserted rows (operations, 2.3).

Updated rows with stable ids are written in the order of the table, as in pylance: then the ids take few bytes. If the
source is on local disk, they keep its order.

Columns that the source lacks come from the table for updated rows, and are null for inserted rows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.changes.edits.blob_payloads import BlobPayloads
from lance_io.changes.edits.rewrite_rows import with_row_ids
from lance_io.changes.merge.match_rows import ROW
from lance_io.changes.merge.source_fit import joined_struct, padded_struct
from lance_io.format.schema import Schema
from lance_io.levels.arrays import numbers, values_of
from lance_io.levels.join import join_arrays
from lance_io.levels.row_sizes import cut_by_size, row_sizes
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.memory_limit import RowsAtOnce, batch_bytes, has_fixed_width, row_bytes
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS, OFFSET_MASK, group_rows
from lance_io.reads.takes.take_rows import PreparedTake, prepare, take_grouped
from lance_io.reads.version.blob_fields import with_binaries
from lance_io.reads.version.column_lists import project
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from lance_io.changes.edits.row_progress import RowProgress
    from lance_io.changes.join.source_rows import SourceRows
    from lance_io.changes.merge.inserted_keys import InsertedKeys
    from lance_io.changes.merge.match_rows import RowMatches
    from lance_io.changes.merge.source_fit import SourceFit
    from lance_io.changes.write.data_files import NewFiles
    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.row_ids import U64Array


def whole_schema(fit: SourceFit) -> Schema:
    """Schema of files of whole rows: fields of the source as the source has them, the others as in the table."""
    given = {field.id: field for field in fit.schema.fields}
    cut = {field.id for field in fit.partial_structs}
    fields = (given[field.id] if field.id in given and field.id not in cut else field for field in fit.table.fields)
    return Schema(tuple(fields), dict(fit.table.metadata))


class RowWriter:
    """Writes whole rows.

    files        new data files of `whole_schema`; without `pads` they have the source's columns
    limit_bytes  memory limit of the whole change
    progress     counts the written rows
    pads         whether inserted rows have all columns of the table
    """

    def __init__(
        self,
        state: DatasetState,
        source: SourceRows,
        fit: SourceFit,
        files: NewFiles,
        limit_bytes: int,
        progress: RowProgress,
        *,
        pads: bool = True,
    ) -> None:
        self.num_inserted = 0
        self._state = state
        self._progress = progress
        self._source = source
        self._pads = pads and fit.is_partial
        cut = {field.id for field in fit.partial_structs} if pads else set()
        indexed = zip(fit.schema.fields, fit.column_indexes, strict=True)
        self._whole = {field.id: index for field, index in indexed if field.id not in cut}
        self._fields = [self._written_field(field) for field in (fit.table if pads else fit.schema).fields]
        self._fit = fit
        self._files = files
        self._ids: list[U64Array] = []
        self._batch_bytes = batch_bytes(limit_bytes)
        self._target = _TargetColumns(state, fit, limit_bytes) if self._pads else None

    def write_updated(self, matches: RowMatches) -> Plan[None]:
        """Write the updated rows."""
        if matches.positions is not None:
            yield from self._write_in_table_order(matches)
            return
        ranges = iter(matches.updated())
        while (matched := (yield Compute(partial(next, ranges, None), lambda: 1 << 20))) is not None:
            start, end, pairs = matched
            rows = values_of(pairs.column(ROW))
            for first, chosen, load in self._source.pieces_of(rows, start, end):
                piece = yield from load
                yield from self._write_pairs(piece, first, pairs[chosen])
            if ROW_ID in pairs.schema.names:
                self._ids.append(values_of(pairs.column(ROW_ID)))

    def _write_in_table_order(self, matches: RowMatches) -> Plan[None]:
        if not matches.num_updated:
            return
        sizes = yield Compute(self._source.sizes, lambda: 1 << 20)
        ranges = iter(matches.updated_in_table())
        while (pairs := (yield Compute(partial(next, ranges, None), lambda: 1 << 20))) is not None:
            rows = values_of(pairs.column(ROW))
            for start, end in self._parts(sizes[rows]):
                given = yield Compute(partial(self._gathered, rows[start:end]), lambda: self._batch_bytes)
                yield from self._add_updated(given, pairs.slice(start, end - start))
            if ROW_ID in pairs.schema.names:
                self._ids.append(values_of(pairs.column(ROW_ID)))

    def _gathered(self, rows: IntArray) -> list[pa.Array]:
        """The columns of source rows, gathered from any pieces."""
        parts, chosen = [], []
        for piece, positions, indices in self._source.rows_of(rows):
            parts.append(self._given(piece, positions))
            chosen.append(indices)
        if len(parts) == 1:
            return parts[0]
        order = numbers(np.argsort(np.concatenate(chosen)))
        return [join_arrays([*arrays]).take(order) for arrays in zip(*parts, strict=True)]

    def _write_pairs(self, piece: pa.RecordBatch, first: int, pairs: pa.RecordBatch) -> Plan[None]:
        positions_of_all = values_of(pairs.column(ROW)) - first
        sizes = row_sizes(piece.columns, piece.num_rows)[positions_of_all]
        for start, end in self._parts(sizes):
            part, positions = pairs.slice(start, end - start), positions_of_all[start:end]
            given = yield Compute(partial(self._given, piece, positions), lambda: piece.nbytes)
            yield from self._add_updated(given, part)

    def _add_updated(self, given: list[pa.Array], pairs: pa.RecordBatch) -> Plan[None]:
        if self._target is None:
            yield from self._add(given)
        else:
            yield from self._add_with_target(given, pairs.column(ROW_ADDRESS))

    def _parts(self, sizes: IntArray) -> Iterator[tuple[int, int]]:
        """Ranges of rows that are written at once, limited by the bytes of source rows and expected target rows."""
        for first, last in cut_by_size(sizes, self._batch_bytes):
            start = first
            while start < last:
                end = last if self._target is None else min(last, start + self._target.at_once.num_rows)
                yield start, end
                start = end

    def _given(self, piece: pa.RecordBatch, positions: IntArray) -> list[pa.Array]:
        """The columns of some rows of a piece of the source."""
        is_all = len(positions) == piece.num_rows and (positions == np.arange(piece.num_rows)).all()
        return self._fit.rows(piece, None if is_all else numbers(positions))

    def _add_with_target(self, given: list[pa.Array], addresses: pa.Array) -> Plan[None]:
        assert self._target is not None
        taken = yield from self._target.take(values_of(addresses))
        start = 0
        for batch in taken.to_batches():
            for load in self._target.payloads.batches(batch):
                others = yield from load
                part = [array.slice(start, others.num_rows) for array in given]
                yield from self._add(self._joined(part, others))
                start += others.num_rows

    def _joined(self, given: Sequence[pa.Array], others: pa.RecordBatch) -> list[pa.Array]:
        fit = self._fit
        by_id = {field.id: (field, array) for field, array in zip(fit.schema.fields, given, strict=True)}
        cut = {field.id for field in fit.partial_structs}
        columns = []
        for field in fit.table.fields:
            if field.id not in by_id:
                columns.append(others.column(field.name))
            elif field.id in cut:
                given_field, array = by_id[field.id]
                columns.append(joined_struct(array, others.column(field.name), given_field, field))
            else:
                columns.append(by_id[field.id][1])
        return columns

    def write_inserted(self, matches: RowMatches, keys: InsertedKeys | None) -> Plan[None]:
        """Write the source rows without a match.

        keys  receives their keys
        """
        for first, last, load in self._source.pieces():
            positions = np.flatnonzero(~matches.is_matched[first:last])
            if not len(positions):
                continue
            piece = yield from load
            given = yield Compute(partial(self._given, piece, positions), partial(getattr, piece, "nbytes"))
            self.num_inserted += len(positions)
            if keys is not None:
                keys.add(dict(zip(self._fit.names, given, strict=True)))
            yield from self._add(self._padded(given, len(positions)))

    def _padded(self, given: Sequence[pa.Array], num_rows: int) -> list[pa.Array]:
        fit = self._fit
        if not self._pads:
            return list(given)
        by_id = {field.id: (field, array) for field, array in zip(fit.schema.fields, given, strict=True)}
        cut = {field.id for field in fit.partial_structs}
        columns = []
        for field in fit.table.fields:
            if field.id not in by_id:
                columns.append(pa.nulls(num_rows, _written_type(field)))
            elif field.id in cut:
                given_field, array = by_id[field.id]
                columns.append(padded_struct(array, given_field, field))
            else:
                columns.append(by_id[field.id][1])
        return columns

    def _add(self, arrays: list[pa.Array]) -> Plan[None]:
        fields = [field.with_type(array.type) for field, array in zip(self._fields, arrays, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        yield from self._files.add(batch)
        self._progress.add(batch.num_rows)

    def _written_field(self, field: Field) -> pa.Field:
        """Arrow field of a column: the source's, with its metadata, or the table's, with blobs as bytes."""
        if field.id in self._whole:
            return self._source.schema.field(self._whole[field.id]).with_name(field.name)
        return with_binaries(field, marked=True).to_arrow()

    def fragments(self) -> Plan[tuple[Fragment, ...]]:
        """The new fragments, with the stable ids of their updated rows."""
        ids = np.concatenate(self._ids) if self._ids else None
        return with_row_ids(self._state, self._files.fragments, ids)


def _written_type(field: Field) -> pa.DataType:
    return with_binaries(field, marked=True).arrow_type


class _TargetColumns:
    """Reads columns that the source lacks from the table, for rows given by address."""

    def __init__(self, state: DatasetState, fit: SourceFit, limit_bytes: int) -> None:
        wanted = {field.id for field in (*fit.missing, *fit.partial_structs)}
        names = [field.name for field in state.schema.fields if field.id in wanted]
        projection = project(state.schema, names).with_system(ROW_ADDRESS)
        self._state = state
        self._take: PreparedTake = prepare(state, projection)
        self.payloads = BlobPayloads(state, projection, limit_bytes // 8)
        types = projection.arrow_schema.types
        fitting = int(limit_bytes / 16 / row_bytes(state, types))
        # On a local disk, where requests are quick, the size of rows is measured by reading a single row first.
        is_unknown = state.is_local and not all(map(has_fixed_width, types))
        self.at_once = RowsAtOnce(limit_bytes // 16, 1 if is_unknown else fitting)

    def take(self, addresses: npt.NDArray[np.uint64]) -> Plan[pa.Table]:
        """Rows with their addresses; blobs are descriptions, which `payloads` replaces by bytes."""
        signed = addresses.astype(np.int64)
        indexes = self._state.find_fragment_indexes(signed >> OFFSET_BITS)
        taken = yield from take_grouped(self._state, group_rows(indexes, signed & OFFSET_MASK), self._take)
        self.at_once.record(taken.num_rows, taken.nbytes)
        return taken
