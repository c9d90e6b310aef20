"""Bitmap index: the rows of each value of a column, or of each item of its lists (spec: indices, 3.2 and 3.3).

bitmap_page_lookup.lance   one row for each value: `keys`, which are kept in memory, and `bitmaps`, read on demand
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError
from lance_io.index.questions import Blocks, FileUse, IsNull, Labels, OneOf, Within
from lance_io.index.rows.row_set import Answer, RowSet
from lance_io.index.rows.tree_maps import decode_nulls, decode_tree_map, tree_map_runs_max
from lance_io.index.scalar.files import check_type
from lance_io.index.scalar.key_order import KeySpan, SortedKeys, has_keys, keys_of
from lance_io.levels.arrays import numbers
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_io.index.details import IndexDetails, Space
    from lance_io.index.questions import Question, Search, TableFile
    from lance_io.spans import IntArray

LOOKUP: Final = "bitmap_page_lookup.lance"
NULL_LISTS: Final = "lance:label_list_nulls"
USES: Final = (FileUse(LOOKUP, ("keys",), ("bitmaps",)),)
LABEL_USES: Final = (FileUse(LOOKUP, ("keys",), ("bitmaps",), (NULL_LISTS,)),)


def answers(question: Question) -> bool | None:
    """See `Segment`; of a bitmap index."""
    return True if isinstance(question, Within | OneOf | IsNull) else None


def answers_labels(question: Question) -> bool | None:
    """See `Segment`; of an index of labels."""
    return True if isinstance(question, Labels) else None


@dataclass(frozen=True, slots=True, eq=False)
class Bitmap:
    """A segment of a bitmap index.

    space     of the row numbers
    keys      the values, ascending
    rows      i64[keys], the row of the file of each value
    null_row  the row of the file of nulls, or None
    """

    space: Space
    keys: SortedKeys
    rows: IntArray
    null_row: int | None

    @property
    def nbytes(self) -> int:
        """See `Segment`."""
        return 512 + self.keys.nbytes + self.rows.nbytes

    @property
    def num_rows(self) -> int | None:
        """See `Segment`."""
        return None

    def answers(self, question: Question) -> bool | None:
        """See `Segment`."""
        return answers(question)

    def blocks(self) -> Blocks | None:
        """See `Segment`."""
        num_rows = len(self.rows) + (self.null_row is not None)
        return Blocks(LOOKUP, ("bitmaps",), [(row, row + 1) for row in range(num_rows)])

    def search(self, question: Question, *, needs_null: bool) -> Search:
        """See `Segment`."""
        wanted = self._rows_of(question)
        nulls = [] if self.null_row is None or not (needs_null or isinstance(question, IsNull)) else [self.null_row]
        sets = yield from _read(self.space, {*wanted, *nulls})
        null = RowSet.none(self.space).union(*[sets[row] for row in nulls])
        if isinstance(question, IsNull):
            return Answer(null, RowSet.none(self.space))
        return Answer(RowSet.none(self.space).union(*[sets[row] for row in wanted]), null)

    def _rows_of(self, question: Question) -> list[int]:
        match question:
            case Within(interval):
                first, end = KeySpan.of(interval).within(self.keys)
                return self.rows[first:end].tolist()  # type: ignore[no-any-return]
            case OneOf(values):
                firsts, ends = self.keys.equal_to(keys_of(values))
                pairs = zip(firsts.tolist(), ends.tolist(), strict=True)
                return [row for first, end in pairs for row in self.rows[first:end].tolist()]
            case _:
                return []


@dataclass(frozen=True, slots=True, eq=False)
class LabelList:
    """A segment of an index of labels.

    bitmap      the rows of each item
    null_lists  rows whose list is null; None if the segment does not say, as in version 0, or lists too many
    """

    bitmap: Bitmap
    null_lists: RowSet | None

    @property
    def nbytes(self) -> int:
        """See `Segment`."""
        return self.bitmap.nbytes + (0 if self.null_lists is None else self.null_lists.nbytes)

    @property
    def num_rows(self) -> int | None:
        """See `Segment`."""
        return None

    def answers(self, question: Question) -> bool | None:
        """See `Segment`. Without null lists, a list that lacks an item cannot be told from a null list."""
        return None if answers_labels(question) is None else self.null_lists is not None

    def blocks(self) -> Blocks | None:
        """See `Segment`."""
        return self.bitmap.blocks()

    def search(self, question: Question, *, needs_null: bool) -> Search:
        """See `Segment`."""
        assert isinstance(question, Labels), "it answers no other question"
        space, bitmap, items = self.bitmap.space, self.bitmap, question.items
        valid = items.drop_null()
        firsts, ends = bitmap.keys.equal_to(keys_of(valid))
        wanted = [bitmap.rows[first:end].tolist() for first, end in zip(firsts.tolist(), ends.tolist(), strict=True)]
        if items.null_count:
            wanted.append([] if bitmap.null_row is None else [bitmap.null_row])
        if question.needs_all and not all(wanted):
            wanted = []
        sets = yield from _read(space, {row for rows in wanted for row in rows})
        parts = [RowSet.none(space).union(*[sets[row] for row in rows]) for rows in wanted]
        true = RowSet.none(space)
        if parts and question.needs_all:
            true = parts[0]
            for part in parts[1:]:
                true = true.intersect(part)
        elif parts:
            true = true.union(*parts)
        null = RowSet.none(space) if self.null_lists is None else self.null_lists
        return Answer(true, null) if self.null_lists is not None else Answer.at_most(true)


def _read(space: Space, rows: Iterable[int]) -> Any:
    """The row sets of some rows of the file."""
    wanted = sorted(rows)
    if not wanted:
        return {}
    blocks = yield Blocks(LOOKUP, ("bitmaps",), [(row, row + 1) for row in wanted], weigh=_runs_of)
    sets = {}
    for row, (bitmaps,) in zip(wanted, blocks, strict=True):
        if bitmaps.null_count:
            raise FormatError(f"row {row} of {LOOKUP} has no bitmap")
        try:
            sets[row] = decode_tree_map(bitmaps[0].as_buffer(), space)
        except FormatError as error:
            raise error.within(f"bitmaps, row {row}") from error.__cause__
    return sets


def _runs_of(columns: list[pa.Array]) -> int:
    """The runs that a row of the file decodes to, at most."""
    (bitmaps,) = columns
    return 0 if bitmaps.null_count else tree_map_runs_max(bitmaps[0].as_buffer())


def open_bitmap(
    files: Mapping[str, TableFile], dtype: pa.DataType | None, details: IndexDetails, space: Space
) -> Bitmap:
    """See `OpenSegment`. Keys need not be sorted in the file (spec: indices, 5)."""
    lookup = files[LOOKUP]
    dtype = dtype or lookup.types.get("keys")
    check_type(lookup, LOOKUP, "keys", dtype)
    check_type(lookup, LOOKUP, "bitmaps", pa.binary())
    keys = lookup.columns["keys"]
    if keys.null_count > 1:
        raise FormatError(f"{LOOKUP}: {keys.null_count} keys are null")
    rows = np.arange(len(keys), dtype=np.int64)
    null_row = None
    if keys.null_count:
        is_null = keys.is_null().to_numpy(zero_copy_only=False)
        null_row, rows = int(np.flatnonzero(is_null)[0]), rows[~is_null]
        keys = keys.drop_null()
    if not has_keys(keys.type):
        raise FormatError(f"{LOOKUP}: keys of type {keys.type} have no order in an index")
    order = _order(keys)
    sorted_keys = SortedKeys(keys.take(numbers(order)), f"keys of {LOOKUP}")
    if sorted_keys.has_repeats:
        raise FormatError(f"{LOOKUP}: a key occurs twice")
    return Bitmap(space, sorted_keys, rows[order], null_row)


def open_label_list(
    files: Mapping[str, TableFile], dtype: pa.DataType | None, details: IndexDetails, space: Space
) -> LabelList:
    """See `OpenSegment`."""
    if dtype is None or not (pa.types.is_list(dtype) or pa.types.is_large_list(dtype)):
        raise FormatError(f"an index of labels over a column of type {dtype}, expected lists")
    bitmap = open_bitmap(files, dtype.value_type, details, space)
    buffer = files[LOOKUP].buffers.get(NULL_LISTS)
    if buffer is None and details.version:
        raise FormatError(f"{LOOKUP}: {NULL_LISTS} is not in its metadata, which version {details.version} requires")
    return LabelList(bitmap, None if buffer is None else decode_nulls(buffer, space))


def _order(keys: pa.Array) -> IntArray:
    """The positions of keys in ascending order."""
    sortable = keys_of(keys)
    if isinstance(sortable, list):
        return np.array(sorted(range(len(sortable)), key=sortable.__getitem__), dtype=np.int64)
    order: IntArray = np.argsort(sortable, kind="stable").astype(np.int64)
    return order
