"""Columns that are written anew: one more data file for each fragment, with these columns only (spec: table, 7).

    scan of one fragment, with row addresses --batch by batch--> values of the new columns
        --spread over the fragment's positions--> one data file of as many rows as the fragment has

Rows that are deleted keep their positions: they get the value of the row before them (the first one that is there, at
the start), so that a column without nulls has none there either; in place of a large one an empty one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lance_io.changes.edits.row_progress import RowProgress
from lance_io.changes.write.data_files import FileLimits, NewFiles
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

_FILL_ROWS: Final = 1 << 13  # of deleted rows that are written at once,
_FILL_VALUE_BYTES: Final = 64 * KIB  # of a value, which are not written for deleted rows
_FILL_BYTES: Final = 8 * MIB  # and of values that are for them
_EMPTY: Final[Mapping[Callable[[pa.DataType], bool], Any]] = {
    pa.types.is_string: "",
    pa.types.is_large_string: "",
    pa.types.is_binary: b"",
    pa.types.is_large_binary: b"",
    pa.types.is_list: [],
    pa.types.is_large_list: [],
}


def column_files(
    state: DatasetState, schema: Schema, version: FileVersion | None = None, unnamed: frozenset[int] = frozenset()
) -> NewFiles:
    """Data files that end only where a fragment does.

    schema   of the new columns, with their ids
    version  of the files, None for the table's
    unnamed  structs that files of 0.1 are not said to have, see `structs_at_start`
    """
    limits = FileLimits(rows=FRAGMENT_ROWS_MAX, num_bytes=1 << 62, unnamed=unnamed)
    return NewFiles(state.location, schema, version or state.manifest.data_version, limits, splits=False)


Made: TypeAlias = "Callable[[pa.RecordBatch], Request[pa.RecordBatch]]"
"""Asks for the new columns of a batch, and `_rowaddr`."""


class Finished(Protocol):
    """Remembers fragments whose new columns are written, should the process end before the commit."""

    def find(self, fragment: Fragment) -> Plan[Fragment | None]:
        """A fragment with its new file, if that is written already. Raises `OperationError` if it has changed."""

    def add(self, before: Fragment, after: Fragment) -> Plan[None]:
        """Remember one."""

    def forget(self) -> Plan[None]:
        """They are committed."""

    def close(self) -> None:
        """Nothing more is asked."""


def write_columns(
    state: DatasetState,
    files: NewFiles,
    values_of_fragment: Callable[[int], Stream],
    then: Made | None = None,
    finished: Finished | None = None,
    progress: Progress | None = None,
) -> Plan[tuple[Fragment, ...]]:
    """Write new columns for all rows; gives the fragments of the table with one more file each.

    files               of the new columns; removes what it has written, if this fails
    values_of_fragment  by id, record batches of the fragment's rows in their order: the new columns and `_rowaddr`
    then                what makes the new columns of a batch, where that is not done yet
    finished            remembers fragments that are finished; their files are not removed if this fails
    progress            is told how many rows are written
    Raises `OperationError` for a fragment of which no row is given.
    """
    changed = []
    told = RowProgress(progress, int(state.physical_rows.sum()))
    for place, fragment in enumerate(state.manifest.fragments):
        done = None if finished is None else (yield from finished.find(fragment))
        if done is not None:
            told.add(int(state.physical_rows[place]))
        else:
            done = yield from write_fragment_columns(state, place, files, values_of_fragment, then, told)
            if finished is not None:
                yield from finished.add(fragment, done)
                files.keep()
        changed.append(done)
    return tuple(changed)


def write_fragment_columns(
    state: DatasetState,
    place: int,
    files: NewFiles,
    values_of_fragment: Callable[[int], Stream],
    then: Made | None = None,
    told: RowProgress | None = None,
) -> Plan[Fragment]:
    """Write new columns for the rows of one fragment; gives it with one more file. Parameters as `write_columns`.

    Columns that older files have, too, are dead there.
    """
    fragment = state.manifest.fragments[place]
    num_rows = int(state.physical_rows[place])
    spread = _Spread(files, num_rows, then, told or RowProgress(None, num_rows))
    yield EachInPlan(values_of_fragment(fragment.id), spread.add)
    yield from spread.finish(fragment.id)
    yield from files.end_file()
    return with_dead_columns(replace(fragment, files=(*fragment.files, files.fragments[-1].files[0])))


def compute_here(make: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Made:
    """Columns that are made of a batch quickly, or by kernels."""
    return lambda batch: Compute(partial(make, batch), lambda: batch.nbytes)


def without_dead_files(fragment: Fragment, schema: Schema) -> Fragment:
    """A fragment without the files of which no column is in a schema any more, nor says who its rows are."""
    known = {field.id for field in schema.walk()} | LINEAGE_NAMES.keys()
    return replace(fragment, files=tuple(file for file in fragment.files if not known.isdisjoint(file.fields)))


def with_dead_columns(fragment: Fragment) -> Fragment:
    """A fragment whose newest file has columns of older ones, which are dead there; files of dead ones only go.

    Never is a column in two files, be it that of a struct, which has no values: pylance gives it another id in one of
    them with its next commit of whatever kind, and members of files of 2.0 and 0.1 are lost without it.
    """
    newest = fragment.files[-1]
    written = frozenset(newest.fields)
    older = []
    for file in fragment.files[:-1]:
        fields = tuple(TOMBSTONE if one in written else one for one in file.fields)
        older.append(replace(file, fields=fields))
    return replace(fragment, files=(*(file for file in older if set(file.fields) != {TOMBSTONE}), newest))


def file_losing_start(fragments: Iterable[Fragment], written: frozenset[int], schema: Schema) -> DataFile | None:
    """A file of version 0.1 that nobody could read any more once columns of it are dead, if there is one.

    Where the pages of such a file are is a table by field id, from the smallest id that the manifest names for it.
    written  ids of the columns
    schema   of the table then: a file of which nothing else is left in it may go
    """
    known = {field.id for field in schema.walk()} - written
    for fragment in fragments:
        for file in fragment.files:
            is_old = file.version == V0_1
            if is_old and _start(file) in written and not known.isdisjoint(file.fields):
                return file
    return None


def structs_at_start(fragments: Iterable[Fragment], written: frozenset[int], schema: Schema) -> frozenset[int]:
    """Structs that must stay in files of version 0.1, which begin with them, when members of them are written anew.

    They have no pages, and readers find members without them: the new file is not said to have them. That holds while
    the older file has other members of theirs.
    """
    structs = {field.id: field for field in schema.walk() if field.id in written and field.logical_type == "struct"}
    found = set[int]()
    for fragment in fragments:
        for file in fragment.files:
            struct = structs.get(_start(file)) if file.version == V0_1 else None
            if struct is not None and any(one.id in file.fields and one.id not in written for one in struct.walk()):
                found.add(struct.id)
    return frozenset(found)


def _start(file: DataFile) -> int:
    return min((one for one in file.fields if one >= 0), default=TOMBSTONE)


class _Spread:
    """The rows of one fragment, written with all its positions."""

    def __init__(self, files: NewFiles, num_rows: int, then: Made | None, told: RowProgress) -> None:
        self._files = files
        self._then = then
        self._told = told
        self._num_rows = num_rows
        self._end = 0  # positions that are written
        self._last: pa.RecordBatch | None = None  # what deleted rows behind the last one get

    def add(self, batch: pa.RecordBatch) -> Plan[None]:
        """Write some rows, and the positions between the last ones and the last of these."""
        if not batch.num_rows:
            return
        if self._then is not None:
            batch = yield self._then(batch)
        offsets = (values_of(batch.column(ROW_ADDRESS)) & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        values = batch.drop_columns([ROW_ADDRESS])
        for start, end in pairwise((0, *_large_before_gaps(values, offsets), len(offsets))):
            yield from self._add_run(values.slice(start, end - start), offsets[start:end])

    def _add_run(self, values: pa.RecordBatch, offsets: IntArray) -> Plan[None]:
        """Write some rows, of which none but the last is large and has deleted ones behind it."""
        first, last = int(offsets[0]), int(offsets[-1])
        if first > self._end:
            yield from self._fill(_filling(values, 0) if self._last is None else self._last, first - self._end)
        if last - first + 1 == len(offsets):
            yield from self._files.add(values)
        else:
            positions = np.arange(first, last + 1)
            yield from self._add_some(values, np.searchsorted(offsets, positions, side="right") - 1)
        self._told.add(last + 1 - self._end)
        self._end = last + 1
        self._last = _filling(values, values.num_rows - 1)

    def finish(self, fragment_id: int) -> Plan[None]:
        """Write the positions behind the last row."""
        if self._last is None:
            raise OperationError(f"fragment {fragment_id} has no row that a new column could have a value for")
        yield from self._fill(self._last, self._num_rows - self._end)
        self._told.add(self._num_rows - self._end)

    def _fill(self, row: pa.RecordBatch, num_rows: int) -> Plan[None]:
        """A row, as often as this."""
        while num_rows > 0:
            part = min(num_rows, _FILL_ROWS)
            yield from self._add_some(row, np.zeros(part, np.int64))
            num_rows -= part

    def _add_some(self, values: pa.RecordBatch, rows: IntArray) -> Plan[None]:
        """Rows of a batch, in any order and as often as they are named."""
        values = compact_batch(values)
        for start, end in cut_by_size(row_sizes(values.columns, values.num_rows)[rows], _FILL_BYTES):
            yield from self._files.add(values.take(numbers(rows[start:end])))


def _large_before_gaps(values: pa.RecordBatch, offsets: IntArray) -> list[int]:
    """Where rows begin that follow a large one at some distance."""
    is_gap = np.diff(offsets) > 1
    if not is_gap.any():
        return []
    is_large = row_sizes(values.columns, values.num_rows)[:-1] > _FILL_VALUE_BYTES
    found: list[int] = (np.flatnonzero(is_gap & is_large) + 1).tolist()
    return found


def _filling(values: pa.RecordBatch, row: int) -> pa.RecordBatch:
    """What deleted rows beside a row get: its values, but for large ones; in memory of its own."""
    columns = [_without_much(array.slice(row, 1)) for array in values.columns]
    return compact_batch(pa.RecordBatch.from_arrays(columns, schema=values.schema))


def _without_much(value: pa.Array) -> pa.Array:
    """An array of one value; of an empty one in place of many bytes, which nobody is to read."""
    if value.nbytes > _FILL_VALUE_BYTES:
        for is_such, empty in _EMPTY.items():
            if is_such(value.type):
                return pa.array([empty], value.type)
    return value
