"""Columns that a merge writes for fragments with matches: one more data file each (operations, 2.3).

    matched rows of the source, by fragment -> the fragment's columns, with the new values at the matched rows

Rows keep their addresses. Columns that the source lacks are neither read nor written. Inserted rows go to new
fragments, whose files have only the source's columns.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.changes.columns.left_join import put_rows
from lance_io.changes.columns.rewrite_columns import file_losing_start, write_fragment_columns
from lance_io.changes.columns.sorted_values import rows_at_once
from lance_io.changes.join.placed_rows import POSITION_BYTES, PlacedRows, RowPositions
from lance_io.changes.merge.match_rows import ROW
from lance_io.changes.merge.source_fit import arranged
from lance_io.format.schema import Schema
from lance_io.format.version import V2_0
from lance_io.levels.arrays import numbers, values_of
from lance_io.levels.row_sizes import cut_by_size, row_sizes
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.memory_limit import batch_bytes, batch_rows, scan_memory_options
from lance_io.reads.scan.execute import projected_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.column_lists import OutputColumn, Projection, prune
from lance_io.reads.version.system_columns import ROW_ADDRESS
from lance_io.table.transaction.draft import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.changes.edits.row_progress import RowProgress
    from lance_io.changes.join.source_rows import SourceRows
    from lance_io.changes.merge.match_rows import RowMatches
    from lance_io.changes.merge.merge_clauses import MergeClauses
    from lance_io.changes.merge.source_fit import SourceFit
    from lance_io.changes.write.data_files import NewFiles
    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray
    from lance_io.table.manifest.fragment import Fragment


def reasons_not_to_patch(state: DatasetState, fit: SourceFit, clauses: MergeClauses) -> list[str]:
    """Reasons why the merge cannot write columns instead of rows; empty if it can."""
    reasons = []
    if not fit.is_partial:
        reasons.append("the source covers every dataset column, so there is nothing to skip")
    others = [field for field in fit.schema.fields if field.name not in clauses.on]
    if any(field.describe_blobs() is not field for field in fit.schema.fields):
        reasons.append("the source carries a blob column")
    if clauses.deletes:
        reasons.append("rows are deleted, which patching cannot do")
    if any(field.is_packed for column in others for field in column.walk()):
        reasons.append("these columns of the table are stored together with others")
    if fit.partial_structs and (clauses.version or state.manifest.data_version) == V2_0:
        reasons.append("files of version 2.0 have all members of a struct or none, and pylance could not read them")
    written = frozenset(field.id for column in others for field in column.walk())
    if file_losing_start(state.manifest.fragments, written, state.schema) is not None:
        reasons.append("data files of version 0.1 cannot be read without their first column")
    return reasons


class ColumnPatcher:
    """Writes the source's columns, without the key, for all rows of the fragments that have matches.

    limit_bytes  memory limit of the whole change
    """

    def __init__(
        self, state: DatasetState, source: SourceRows, fit: SourceFit, clauses: MergeClauses, limit_bytes: int
    ) -> None:
        self._state = state
        self._source = source
        self._fit = fit
        self._limit_bytes = limit_bytes
        given = [field for field in fit.schema.fields if field.name not in clauses.on]
        paths = [path for field in given for path in _paths(field, (field.name,))]
        self._given = {field.name: field for field in given}
        self._fields = prune(state.schema, paths)
        shown = [(field.name, field.to_arrow()) for field in self._fields]
        outputs = [OutputColumn(name, (name,), arrow, parts=self._parts(name, paths)) for name, arrow in shown]
        self._projection = Projection(tuple(outputs), None).with_system(ROW_ADDRESS)

    def _parts(self, name: str, paths: list[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
        """Paths of the members of a column that are read; empty for the whole column."""
        parts = tuple(path for path in paths if path[0] == name)
        return () if parts == ((name,),) else parts

    @property
    def schema(self) -> Schema:
        """Schema of the files."""
        return Schema(tuple(self._fields), dict(self._state.schema.metadata))

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Ids of all fields that get new values."""
        return tuple(field.id for column in self._fields for field in column.walk())

    def write(self, matches: RowMatches, files: NewFiles, progress: RowProgress) -> Plan[list[Fragment]]:
        """Write the columns; returns the fragments, with tombstones for the old columns.

        files     data files with `schema`
        progress  counts the rows with new values
        """
        state, source = self._state, self._source
        row_bytes = source.num_bytes / max(1, source.num_rows) + POSITION_BYTES
        num_bytes = int(row_bytes * max(source.num_rows, matches.num_updated))  # a source row may match many rows
        positions = RowPositions(state, state.all_fragment_indexes)
        rows = PlacedRows(self._rows_schema(), positions.num_rows, num_bytes, self._limit_bytes // 8)
        num_matched = np.zeros(len(state.all_fragment_indexes), np.int64)
        then = partial(self._patch, rows, positions)
        changed: list[Fragment] = []
        try:
            yield from self._route_values(matches, rows, positions, num_matched)
            for index in np.flatnonzero(num_matched).tolist():
                written = yield from write_fragment_columns(state, index, files, self._scan, then)
                changed.append(self._without_old(written))
                progress.add(int(num_matched[index]))
        finally:
            rows.close()
        return changed

    def _rows_schema(self) -> pa.Schema:
        """Schema of the new values of a row."""
        outputs = zip(self._fields, self._projection.outputs, strict=False)
        return pa.schema([pa.field(field.name, output.field.type) for field, output in outputs])

    def _route_values(
        self, matches: RowMatches, rows: PlacedRows, positions: RowPositions, num_matched: IntArray
    ) -> Plan[None]:
        """Add the new values to `rows` at the positions of their rows. num_matched: counts them by fragment."""
        ranges = iter(matches.updated())
        while (matched := (yield Compute(partial(next, ranges, None), lambda: 1 << 20))) is not None:
            start, end, pairs = matched
            numbers_here = values_of(pairs.column(ROW))
            for first, chosen, load in self._source.pieces_of(numbers_here, start, end):
                piece, part = (yield from load), pairs[chosen]
                addresses = values_of(part.column(ROW_ADDRESS))
                indexes = self._state.find_fragment_indexes((addresses >> np.uint64(32)).astype(np.int64))
                num_matched += np.bincount(indexes, minlength=len(num_matched))
                put = partial(self._put, piece, first, part, rows, positions.of(addresses))
                yield Compute(put, partial(getattr, piece, "nbytes"))

    def _put(
        self, piece: pa.RecordBatch, first: int, pairs: pa.RecordBatch, rows: PlacedRows, positions: IntArray
    ) -> None:
        chosen = values_of(pairs.column(ROW)) - first
        sizes = row_sizes(piece.columns, piece.num_rows)[chosen]
        for start, end in cut_by_size(sizes, batch_bytes(self._limit_bytes)):
            given = self._fit.rows(piece, numbers(chosen[start:end]))
            columns = dict(zip(self._fit.names, given, strict=True))
            arrays = [
                arranged(columns[field.name], self._given[field.name], field, output.field.type)
                for field, output in zip(self._fields, self._projection.outputs, strict=False)
            ]
            placed = pa.RecordBatch.from_arrays(arrays, [field.name for field in self._fields])
            rows.add(placed, positions[start:end])

    def _patch(self, rows: PlacedRows, positions: RowPositions, batch: pa.RecordBatch) -> Compute[pa.RecordBatch]:
        return Compute(partial(_patched, rows, positions, batch), lambda: self._limit_bytes)

    def _scan(self, fragment_id: int) -> Stream:
        options = scan_options(
            fragments=(fragment_id,),
            with_row_address=True,
            batch_size=min(
                batch_rows(self._projection.arrow_schema.types, self._limit_bytes),
                rows_at_once(self._source, self._limit_bytes),
            ),
            **scan_memory_options(self._limit_bytes),
        )
        return projected_batches(self._state, options, self._projection)

    def _without_old(self, fragment: Fragment) -> Fragment:
        dead = set(self.field_ids)
        files = tuple(
            replace(file, fields=tuple(TOMBSTONE if field_id in dead else field_id for field_id in file.fields))
            for file in fragment.files[:-1]
        )
        return replace(fragment, files=(*files, fragment.files[-1]))


def _patched(rows: PlacedRows, positions: RowPositions, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of the table with the values of `rows` at their positions."""
    addresses = batch.column(ROW_ADDRESS)
    updated, new = rows.find(positions.of(values_of(addresses)))
    if not len(updated):
        return batch
    names = new.schema.names
    known = [batch.column(name) for name in names]
    values = [
        value if value.type == old.type else value.cast(old.type) for value, old in zip(new.columns, known, strict=True)
    ]
    return pa.RecordBatch.from_arrays([*put_rows(known, updated, values, names), addresses], [*names, ROW_ADDRESS])


def _paths(field: Field, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Paths of the members of a column that a source has: its leaves within structs."""
    if field.logical_type != "struct" or field.holds_blobs or not field.children:
        yield path
        return
    for child in field.children:
        yield from _paths(child, (*path, child.name))
