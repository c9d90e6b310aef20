"""B-tree index: all values of a column, sorted, in pages, and a lookup of the pages (spec: indices, 3.1).

page_lookup.lance   one row for each page: its least and greatest value, and its number of nulls; kept in memory
page_data.lance     pages of `batch_size` rows: values with nulls first, and the rows that they belong to
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError, UnsupportedError
from lance_io.index.questions import Blocks, FileUse, IsNull, OneOf, Prefix, Within
from lance_io.index.rows.row_set import Answer, RowSet, U64Array
from lance_io.index.scalar.files import check_type, column, whole_number
from lance_io.index.scalar.key_order import KeySpan, SortedKeys, keys_of
from lance_io.levels.arrays import values_of
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from lance_io.index.details import IndexDetails, Space
    from lance_io.index.questions import Question, Search, TableFile
    from lance_io.spans import IntArray

LOOKUP: Final = "page_lookup.lance"
DATA: Final = "page_data.lance"
USES: Final = (FileUse(LOOKUP, ("min", "max", "null_count", "page_idx")), FileUse(DATA, searched=("values", "ids")))
PAGE_ROWS: Final = 4096
_IDS: Final = pa.uint64()


def answers(question: Question) -> bool | None:
    """See `Segment`."""
    match question:
        case Within() | OneOf() | IsNull():
            return True
        case Prefix(is_exact=is_exact):
            return is_exact
        case _:
            return None


class PageValues(NamedTuple):
    """The values of a page that are not null, ascending, and the row of each, u64."""

    values: pa.Array
    rows: U64Array


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A page that was read.

    num_nulls  rows with nulls, which come first
    keys       of the other rows
    rows       of the table, u64
    """

    num_nulls: int
    keys: SortedKeys
    rows: U64Array

    @property
    def nbytes(self) -> int:
        """See `Prepared`."""
        return self.keys.nbytes + self.rows.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class BTree:
    """A segment of a B-tree index.

    space       of the row numbers
    page_rows   rows of a page; the last page may have fewer
    num_rows    rows of all pages
    null_counts i64[pages]
    first_page  the first page that does not begin with nulls
    least       the least value of each page from `first_page` on
    greatest    the greatest value of each page that has one, from `first_value_page` on
    first_value_page  the first page with a value
    """

    space: Space
    page_rows: int
    num_rows: int
    null_counts: IntArray
    first_page: int
    least: SortedKeys
    first_value_page: int
    greatest: SortedKeys

    @property
    def nbytes(self) -> int:
        """See `Segment`."""
        return 512 + self.null_counts.nbytes + self.least.nbytes + self.greatest.nbytes

    def answers(self, question: Question) -> bool | None:
        """See `Segment`."""
        return answers(question)

    def search(self, question: Question, *, needs_null: bool) -> Search:
        """See `Segment`."""
        is_null_test = isinstance(question, IsNull)
        spans = [] if is_null_test else _spans(question)
        keys = keys_of(question.values) if isinstance(question, OneOf) else None
        keys_by_page = {} if keys is None else self._keys_by_page(keys)
        wanted = {page for span in spans for page in self._pages_of(span)} if keys is None else {*keys_by_page}
        if is_null_test or needs_null:
            wanted.update(np.flatnonzero(self.null_counts).tolist())
        numbers = sorted(wanted)
        pages: list[Page] = yield self._blocks(numbers)
        true: list[np.ndarray[Any, Any]] = []
        null: list[np.ndarray[Any, Any]] = []
        for number, page in zip(numbers, pages, strict=True):
            if page.num_nulls:
                null.append(page.rows[: page.num_nulls])
            if is_null_test:
                continue
            rows = page.rows[page.num_nulls :]
            if keys is not None:
                its_keys = keys_by_page.get(number, keys[:0])  # none in a page of nulls
                true += [rows[low:high] for low, high in _pairs(*page.keys.equal_to(its_keys))]
            else:
                for span in spans:
                    low, high = span.within(page.keys)
                    true.append(rows[low:high])
        nulls = RowSet.of_rows(self.space, _joined(null))
        if is_null_test:
            return Answer(nulls, RowSet.none(self.space))
        is_exact = self.answers(question) is True
        rows_true = RowSet.of_rows(self.space, _joined(true))
        return Answer(rows_true, nulls) if is_exact else Answer.at_most(rows_true)

    @property
    def ends(self) -> tuple[pa.Scalar | None, pa.Scalar | None]:
        """The least and the greatest value; None where the lookup does not say."""
        if not len(self.greatest):
            return None, None
        least = self.least.value(0) if self.first_value_page == self.first_page else None
        return least, self.greatest.value(len(self.greatest) - 1)

    def blocks(self) -> Blocks | None:
        """See `Segment`."""
        return self._blocks(range(len(self.null_counts)))

    def read_pages(self, pages: Sequence[int]) -> Generator[Blocks, list[Page], list[PageValues]]:
        """The values of pages with their rows. pages: ascending. Raises `FormatError` as a search does."""
        read = yield self._blocks(pages)
        return [PageValues(page.keys.values, page.rows[page.num_nulls :]) for page in read]

    def _blocks(self, pages: Sequence[int]) -> Blocks:
        firsts = [page * self.page_rows for page in pages]
        ranges = [(first, min(first + self.page_rows, self.num_rows)) for first in firsts]
        return Blocks(DATA, ("values", "ids"), ranges, self._page)

    def _page(self, first_row: int, columns: list[pa.Array]) -> Page:
        """A page that was read, checked."""
        number = first_row // self.page_rows
        values, ids = columns
        num_nulls = self._check(number, values)
        return Page(num_nulls, self._keys_of_page(number, values.slice(num_nulls)), values_of(ids))

    def _pages_of(self, span: KeySpan) -> range:
        """The pages that may have values of a span."""
        first = self.first_value_page + span.num_below(self.greatest)
        end = self.first_page + len(self.least) - span.num_above(self.least)
        return range(first, max(first, end))

    def _keys_by_page(self, keys: np.ndarray[Any, Any] | list[Any]) -> dict[int, np.ndarray[Any, Any] | list[Any]]:
        """The keys that pages may have, by page: comparing every page with every key would take most of a search."""
        firsts, ends = self.first_value_page + self.greatest.lefts(keys), self.first_page + self.least.rights(keys)
        positions: dict[int, list[int]] = {}
        for at, (low, high) in enumerate(zip(firsts.tolist(), ends.tolist(), strict=True)):
            for page in range(low, high):
                positions.setdefault(page, []).append(at)
        if isinstance(keys, list):
            return {page: [keys[at] for at in its] for page, its in positions.items()}
        return {page: keys[its] for page, its in positions.items()}

    def _keys_of_page(self, page: int, values: pa.Array) -> SortedKeys:
        """The values of a page, compared with the lookup."""
        keys = SortedKeys(values, f"page {page} of {DATA}")
        if len(keys):
            is_least = page < self.first_page or keys.first == self.least.at(page - self.first_page)
            if not is_least or keys.last != self.greatest.at(page - self.first_value_page):
                raise FormatError(f"page {page} of {DATA}: {LOOKUP} names other values as its least and greatest")
        return keys

    def _check(self, page: int, values: pa.Array) -> int:
        """The number of nulls of a page, which come first."""
        num_nulls: int = values.null_count
        if num_nulls != self.null_counts[page] or values.slice(0, num_nulls).null_count != num_nulls:
            raise FormatError(
                f"page {page} of {DATA}: {num_nulls} nulls; expected {int(self.null_counts[page])} at its beginning"
            )
        return num_nulls


def _pairs(first: IntArray, end: IntArray) -> list[tuple[int, int]]:
    """The ranges that are not empty."""
    return [(low, high) for low, high in zip(first.tolist(), end.tolist(), strict=True) if low < high]


def _joined(parts: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _spans(question: Question) -> list[KeySpan]:
    match question:
        case Within(interval):
            return [KeySpan.of(interval)]
        case Prefix(prefix):
            return [KeySpan.of_prefix(prefix)]
        case _:
            return []


def open_btree(files: Mapping[str, TableFile], dtype: pa.DataType | None, details: IndexDetails, space: Space) -> BTree:
    """See `OpenSegment`. dtype: None for values of the type that the files have."""
    lookup, data = files[LOOKUP], files[DATA]
    if lookup.metadata.get("range_partitioned", "false") != "false":
        raise UnsupportedError("a B-tree of several page files, which this release does not read")
    dtype = dtype or data.types.get("values")
    page_rows = whole_number(lookup, "batch_size", PAGE_ROWS)
    for name in ("min", "max"):
        check_type(lookup, LOOKUP, name, dtype)
    check_type(data, DATA, "values", dtype)
    check_type(data, DATA, "ids", _IDS)
    least, greatest = column(lookup, "min"), column(lookup, "max")
    num_pages = lookup.num_rows
    if num_pages != -(-data.num_rows // page_rows):
        raise FormatError(f"{num_pages} pages in {LOOKUP}; {DATA} has {data.num_rows} rows, {page_rows} in a page")
    check_type(lookup, LOOKUP, "page_idx", pa.uint32())
    check_type(lookup, LOOKUP, "null_count", pa.uint32())
    if (values_of(column(lookup, "page_idx")) != np.arange(num_pages)).any():
        raise FormatError(f"{LOOKUP}: page_idx does not count the pages from 0 on")
    null_counts = values_of(column(lookup, "null_count")).astype(np.int64)
    first_page, first_value_page = least.null_count, greatest.null_count
    begins_null = null_counts > 0
    sizes = np.minimum(page_rows, data.num_rows - page_rows * np.arange(num_pages))
    if (
        begins_null.sum() != first_page
        or not begins_null[:first_page].all()
        or (null_counts == sizes).sum() != first_value_page
        or (null_counts > sizes).any()
    ):
        raise FormatError(f"{LOOKUP}: its numbers of nulls do not fit its least and greatest values")
    low = SortedKeys(least.slice(first_page), f"min of {LOOKUP}")
    high = SortedKeys(greatest.slice(first_value_page), f"max of {LOOKUP}")
    _check_order(low, high, first_page, first_value_page, num_pages)
    return BTree(space, page_rows, data.num_rows, null_counts, first_page, low, first_value_page, high)


def _check_order(least: SortedKeys, greatest: SortedKeys, first: int, first_value: int, num_pages: int) -> None:
    """Raise `FormatError` unless the values of each page lie between its bounds, and pages follow each other.

    first        the first page with a least value
    first_value  the first page with a greatest value, the same or an earlier one
    """
    ends = greatest.slice(first - first_value, num_pages - first_value)
    before = max(first - 1, first_value)
    previous = greatest.slice(before - first_value, num_pages - 1 - first_value)
    following = least.slice(before + 1 - first, num_pages - first)
    if not (least.is_at_most(ends) and previous.is_at_most(following)):
        raise FormatError(f"{LOOKUP}: the least and greatest values of its pages do not ascend")
