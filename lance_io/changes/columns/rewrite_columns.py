"""Writing columns: one more data file for each fragment, with only these columns (spec: table, 7).

    scan of one fragment, with row addresses --batch by batch--> values of the new columns
        --spread over the fragment's positions--> one data file with all rows of the fragment

Deleted rows keep their positions. They get the value of the row before them (at the start, of the first live row), so
that a column without nulls has none there either. A large value is replaced by an empty one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lance_io.changes.edits.row_progress import RowProgress
from lance_io.changes.write.data_files import FileLimits, NewFiles, data_file_name
from lance_io.errors import OperationError
from lance_io.format.schema import LINEAGE_NAMES
from lance_io.format.version import V0_1
from lance_io.levels.arrays import numbers, values_of
from lance_io.levels.portable import compact_batch
from lance_io.levels.row_sizes import cut_by_size, row_sizes
from lance_io.limits import KIB, MIB
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.streams import EachInPlan
from lance_io.reads.version.system_columns import ROW_ADDRESS
from lance_io.table.manifest.fragment import FRAGMENT_ROWS_MAX
from lance_io.table.transaction.draft import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan, Request
    from lance_io.plans.streams import Stream
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray
    from lance_io.table.manifest.fragment import DataFile, Fragment

_FILL_ROWS: Final = 1 << 13  # deleted rows that are written at once
_FILL_VALUE_BYTES: Final = 64 * KIB  # a larger value is not repeated for deleted rows
_FILL_BYTES: Final = 8 * MIB  # repeated values that are written at once
_EMPTY: Final[Mapping[Callable[[pa.DataType], bool], Any]] = {
    pa.types.is_string: "",
    pa.types.is_large_string: "",
    pa.types.is_binary: b"",
    pa.types.is_large_binary: b"",
    pa.types.is_list: [],
    pa.types.is_large_list: [],
}


def column_files(
    state: DatasetState,
    schema: Schema,
    version: FileVersion | None = None,
    omitted_struct_ids: frozenset[int] = frozenset(),
    new_name: Callable[[], str] = data_file_name,
) -> NewFiles:
    """A writer of data files that end only at the end of a fragment.

    schema              schema of the new columns, with their ids
    version             version of the files, None for the table's
    omitted_struct_ids  structs that the records of files of 0.1 omit, see `structs_at_start`
    new_name            returns the name of a file
    """
    limits = FileLimits(rows=FRAGMENT_ROWS_MAX, num_bytes=1 << 62, omitted_struct_ids=omitted_struct_ids)
    version = version or state.manifest.data_version
    return NewFiles(state.location, schema, version, limits, ends_before_overflow=False, new_name=new_name)


ComputeColumns: TypeAlias = "Callable[[pa.RecordBatch], Request[pa.RecordBatch]]"
"""Requests the new columns of a batch, and `_rowaddr`."""


class FinishedFragments(Protocol):
    """A store of fragments whose new columns are written, in case the process ends before the commit."""

    def find(self, fragment: Fragment) -> Plan[Fragment | None]:
        """A fragment with its new file, if it is in the store. Raises `OperationError` if the fragment has changed."""

    def add(self, before: Fragment, after: Fragment) -> Plan[None]:
        """Store a fragment."""

    def forget(self) -> Plan[None]:
        """Remove the store after the commit."""

    def close(self) -> None:
        """Close the store and keep it."""


def write_columns(
    state: DatasetState,
    files: NewFiles,
    values_of_fragment: Callable[[int], Stream],
    then: ComputeColumns | None = None,
    finished: FinishedFragments | None = None,
    progress: Progress | None = None,
) -> Plan[tuple[Fragment, ...]]:
    """Write new columns for all rows; returns the fragments of the table with one more file each.

    files               writer of the new columns; the caller removes its files on failure
    values_of_fragment  record batches of a fragment, given its id, in the order of its rows: the new columns (or the
                        input of `then`) and `_rowaddr`
    then                computes the new columns of a batch; None if the batches have them
    finished            store of finished fragments; their files are kept on failure
    progress            called with the number of written rows
    Raises `OperationError` for a fragment without any given row.
    """
    changed = []
    row_progress = RowProgress(progress, int(state.physical_rows.sum()))
    for index, fragment in enumerate(state.manifest.fragments):
        done = None if finished is None else (yield from finished.find(fragment))
        if done is not None:
            row_progress.add(int(state.physical_rows[index]))
        else:
            done = yield from write_fragment_columns(state, index, files, values_of_fragment, then, row_progress)
            if finished is not None:
                yield from finished.add(fragment, done)
                files.keep_written_files()
        changed.append(done)
    return tuple(changed)


def write_fragment_columns(
    state: DatasetState,
    fragment_index: int,
    files: NewFiles,
    values_of_fragment: Callable[[int], Stream],
    then: ComputeColumns | None = None,
    progress: RowProgress | None = None,
) -> Plan[Fragment]:
    """Write new columns for the rows of one fragment; returns it with one more file. Parameters as `write_columns`.

    In older files, the same columns become tombstones.
    """
    fragment = state.manifest.fragments[fragment_index]
    num_rows = int(state.physical_rows[fragment_index])
    has_gaps = fragment.deletion_file is not None
    writer = _PositionWriter(files, num_rows, then, progress or RowProgress(None, num_rows), has_gaps)
    yield EachInPlan(values_of_fragment(fragment.id), writer.add)
    yield from writer.finish(fragment.id)
    yield from files.complete_and_publish_file()
    return with_dead_columns(replace(fragment, files=(*fragment.files, files.fragments[-1].files[0])))


def compute_here(make: Callable[[pa.RecordBatch], pa.RecordBatch]) -> ComputeColumns:
    """Columns computed from a batch by a fast function, or by kernels."""
    return lambda batch: Compute(partial(make, batch), lambda: batch.nbytes)


def without_dead_files(fragment: Fragment, schema: Schema) -> Fragment:
    """The fragment without files that have neither columns of the schema nor lineage columns."""
    known = {field.id for field in schema.walk()} | LINEAGE_NAMES.keys()
    return replace(fragment, files=tuple(file for file in fragment.files if not known.isdisjoint(file.fields)))


def with_dead_columns(fragment: Fragment) -> Fragment:
    """Set tombstones in older files for the columns of the newest file; removes files that have only tombstones.

    A column must never be in two files, not even a struct, which has no values: pylance's next commit, of any kind,
    gives it another id in one of them, and in files of 2.0 and 0.1 its members are then lost.
    """
    newest = fragment.files[-1]
    written = frozenset(newest.fields)
    older = []
    for file in fragment.files[:-1]:
        fields = tuple(TOMBSTONE if field_id in written else field_id for field_id in file.fields)
        older.append(replace(file, fields=fields))
    return replace(fragment, files=(*(file for file in older if set(file.fields) != {TOMBSTONE}), newest))


def file_losing_start(fragments: Iterable[Fragment], written: frozenset[int], schema: Schema) -> DataFile | None:
    """A file of version 0.1 that becomes unreadable if some of its columns become tombstones, if there is one.

    The page table of such a file is indexed by field id, from the smallest id that the manifest names for the file.
    written  ids of the columns
    schema   schema of the table after the change: a file without any other column in it is removed
    """
    known = {field.id for field in schema.walk()} - written
    for fragment in fragments:
        for file in fragment.files:
            is_old = file.version == V0_1
            if is_old and _start(file) in written and not known.isdisjoint(file.fields):
                return file
    return None


def structs_at_start(fragments: Iterable[Fragment], written: frozenset[int], schema: Schema) -> frozenset[int]:
    """Structs that must stay in files of version 0.1 that start with them, although members are rewritten.

    Structs have no pages, and readers find members without them: so the record of the new file omits these structs.
    This applies while the older file has other members of them.
    """
    structs = {field.id: field for field in schema.walk() if field.id in written and field.logical_type == "struct"}
    struct_ids = set[int]()
    for fragment in fragments:
        for file in fragment.files:
            struct = structs.get(_start(file)) if file.version == V0_1 else None
            if struct is not None and any(each.id in file.fields and each.id not in written for each in struct.walk()):
                struct_ids.add(struct.id)
    return frozenset(struct_ids)


def _start(file: DataFile) -> int:
    return min((field_id for field_id in file.fields if field_id >= 0), default=TOMBSTONE)


class _PositionWriter:
    """Writes a row for each position of one fragment, also for deleted ones.

    has_gaps  whether rows of the fragment are deleted
    """

    def __init__(
        self, files: NewFiles, num_rows: int, then: ComputeColumns | None, progress: RowProgress, has_gaps: bool
    ) -> None:
        self._files = files
        self._has_gaps = has_gaps
        self._then = then
        self._progress = progress
        self._num_rows = num_rows
        self._end = 0  # number of written positions
        self._last: pa.RecordBatch | None = None  # the value for deleted rows after a live one; kept once without gaps

    def add(self, batch: pa.RecordBatch) -> Plan[None]:
        """Write rows, and all positions up to the last of them."""
        if not batch.num_rows:
            return
        if self._then is not None:
            batch = yield self._then(batch)
        offsets = (values_of(batch.column(ROW_ADDRESS)) & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        values = batch.drop_columns([ROW_ADDRESS])
        for start, end in pairwise((0, *_large_before_gaps(values, offsets), len(offsets))):
            yield from self._add_run(values.slice(start, end - start), offsets[start:end])

    def _add_run(self, values: pa.RecordBatch, offsets: IntArray) -> Plan[None]:
        """Write rows; only the last one may be both large and followed by deleted rows."""
        first, last = int(offsets[0]), int(offsets[-1])
        if first > self._end:
            yield from self._fill(_filling(values, 0) if self._last is None else self._last, first - self._end)
        if last - first + 1 == len(offsets):
            yield from self._files.add(values)
        else:
            positions = np.arange(first, last + 1)
            yield from self._add_some(values, np.searchsorted(offsets, positions, side="right") - 1)
        self._progress.add(last + 1 - self._end)
        self._end = last + 1
        if self._has_gaps or self._last is None:
            self._last = _filling(values, values.num_rows - 1)

    def finish(self, fragment_id: int) -> Plan[None]:
        """Write the positions after the last row."""
        if self._last is None:
            raise OperationError(f"fragment {fragment_id} has no live row: a new column needs at least one value")
        yield from self._fill(self._last, self._num_rows - self._end)
        self._progress.add(self._num_rows - self._end)

    def _fill(self, row: pa.RecordBatch, num_rows: int) -> Plan[None]:
        """Write a row `num_rows` times."""
        while num_rows > 0:
            part = min(num_rows, _FILL_ROWS)
            yield from self._add_some(row, np.zeros(part, np.int64))
            num_rows -= part

    def _add_some(self, values: pa.RecordBatch, rows: IntArray) -> Plan[None]:
        """Write rows of a batch, in any order and with repetitions."""
        values = compact_batch(values)
        for start, end in cut_by_size(row_sizes(values.columns, values.num_rows)[rows], _FILL_BYTES):
            yield from self._files.add(values.take(numbers(rows[start:end])))


def _large_before_gaps(values: pa.RecordBatch, offsets: IntArray) -> list[int]:
    """Indices of rows that follow a large row after a gap."""
    if offsets[-1] - offsets[0] < len(offsets):
        return []
    is_gap = np.diff(offsets) > 1
    is_large = row_sizes(values.columns, values.num_rows)[:-1] > _FILL_VALUE_BYTES
    starts: list[int] = (np.flatnonzero(is_gap & is_large) + 1).tolist()
    return starts


def _filling(values: pa.RecordBatch, row: int) -> pa.RecordBatch:
    """The values for deleted rows next to a row: a copy of its values, with large ones replaced."""
    columns = [_without_large(array.slice(row, 1)) for array in values.columns]
    return compact_batch(pa.RecordBatch.from_arrays(columns, schema=values.schema))


def _without_large(value: pa.Array) -> pa.Array:
    """An array of one value; a large value is replaced by an empty one, as it is never read."""
    if value.nbytes > _FILL_VALUE_BYTES:
        for is_such, empty in _EMPTY.items():
            if is_such(value.type):
                return pa.array([empty], value.type)
    return value
