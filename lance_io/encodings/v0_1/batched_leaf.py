"""A leaf column of a file of version 0.1, which stores one small page per batch (spec: legacy 0.1, sections 5 and 6).

`BatchedLeaf` presents all of these pages as one page to the readers of files. Batches are small and numerous, so
`BatchedLeaf` holds numpy arrays with one value per batch, and one kernel call decodes all batches.

A string page has the positions of the strings, which are file offsets; the bytes of the strings are elsewhere in the
file. A list page has offsets into the item page of the same batch. So reading some rows takes these rounds of I/O:

    fixed width   1
    strings       2: positions, then bytes
    each list     1 more, before its items

Reading whole batches takes one round: the page table has the number of items, and writers put the bytes of strings
directly before their positions. If the positions point elsewhere, another round reads the bytes from there.

The format stores no nulls: an empty string or blob of a nullable field reads as null. Structs have no pages. Blobs are
stored like strings, and are read as descriptors (position and size), as in later versions.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lance_io._kernels import DamagedError, gather_ranges, join_bits, join_lists, join_strings
from lance_io.codecs.tree import FixedShape, ListShape, Shape
from lance_io.encodings.api import NoIndex, PageDescription
from lance_io.encodings.v0_1.field_pages import POSITION_BYTES, FieldPages, Runs, plain_bits
from lance_io.encodings.v2_1.blob import DESCRIPTOR_TYPE
from lance_io.encodings.values import build_values
from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.v0_1.dictionaries import dictionary_values, is_readable
from lance_io.levels.assemble import nest
from lance_io.levels.chunks import OFFSET_BYTES
from lance_io.levels.path import NodeKind
from lance_io.spans import Fetched, Ranges, int64s

if TYPE_CHECKING:
    from lance_io._kernels import Layer
    from lance_io.encodings.api import PageIndex, RowSelection
    from lance_io.levels.path import LeafPath
    from lance_io.spans import IntArray, Steps


# Values may share bytes of a file, but if the sizes of all strings sum up to more than this many times the file's size,
# the file is damaged.
STRING_BYTES_RATIO_MAX: Final = 4


class _Prefetched(NamedTuple):
    """Bytes of whole batches that one round has read, for each enclosing list (outermost first) and then for the leaf.

    runs     the values that were read: as many as the page table counts. If the offsets of a list yield other runs of
             items, the prefetched bytes are dropped, and the items are read in another round
    values   the bytes of these values
    strings  file ranges of the bytes of strings, one per run of the leaf, and these bytes; None if not prefetched
    """

    runs: list[Runs]
    values: list[Fetched]
    strings: tuple[Ranges, Fetched] | None


class BatchedLeaf:
    """All pages of one leaf column of one file, presented as one page; see the module docstring.

    path               the leaf column, as the table's schema declares it
    row_starts         i64[batches + 1], number of rows before each batch
    list_pages         the pages of each enclosing list, outermost list first
    leaf_pages         the pages of the leaf
    min_string_starts  i64[batches], file offset from which on the bytes of each batch's strings can begin, namely
                       the end of the page that precedes them in the file; None if unknown
    file_bytes         size of the file in bytes
    """

    def __init__(
        self,
        path: LeafPath,
        row_starts: IntArray,
        list_pages: list[FieldPages],
        leaf_pages: FieldPages,
        min_string_starts: IntArray | None,
        file_bytes: int,
    ) -> None:
        self.path = path
        self.row_starts = row_starts
        self.list_pages = list_pages
        self.leaf_pages = leaf_pages
        self.min_string_starts = min_string_starts
        self.file_bytes = file_bytes
        self.num_rows = int(row_starts[-1])
        self._check_counts()

    def _check_counts(self) -> None:
        """Raises FormatError unless the outermost page of each batch has as many values as the batch has rows."""
        outermost, batch_rows = self._outermost_pages, np.diff(self.row_starts)
        wrong_batches = np.flatnonzero(outermost.counts != batch_rows)
        if len(wrong_batches):
            batch = int(wrong_batches[0])
            text = f"{int(outermost.counts[batch])} values in a page; the batch has {int(batch_rows[batch])} rows"
            raise FormatError(text, where=f"batch {batch}")

    @property
    def _outermost_pages(self) -> FieldPages:
        """The pages with one value per row."""
        return self.list_pages[0] if self.list_pages else self.leaf_pages

    # -- the interface of every page -----------------------------------------------------------------------------------

    def index_ranges(self) -> Ranges | None:
        """None: the page table locates rows."""
        return None

    def load_index(self, fetched: Fetched) -> PageIndex:
        """Never called, because `index_ranges` returns None."""
        return NoIndex()

    def read(self, index: PageIndex | None, selection: RowSelection) -> Steps[pa.Array]:
        """Read and decode the selected rows."""
        return self._read(self._runs(selection))

    def scan(self) -> Steps[pa.Array]:
        """Read and decode all rows."""
        batch_rows = np.diff(self.row_starts)
        batches = np.flatnonzero(batch_rows)
        return self._read(Runs(batches, np.zeros(len(batches), np.int64), batch_rows[batches]))

    def describe(self) -> PageDescription:
        """A readable description of the pages."""
        return PageDescription(
            "batches",
            self.leaf_pages.kind,
            self.num_rows,
            int(self.batch_bytes.sum()),
            {"batches": len(self.row_starts) - 1, "lists": len(self.list_pages)},
        )

    @cached_property
    def batch_bytes(self) -> IntArray:
        """i64[batches], approximate number of bytes that reading each batch takes."""
        sizes = sum(
            (pages.ends - pages.positions for pages in self.list_pages), np.zeros(len(self.row_starts) - 1, np.int64)
        )
        sizes = sizes + self.leaf_pages.ends - self.leaf_pages.positions
        if self.leaf_pages.kind == "binary":
            string_starts = self.min_string_starts
            if string_starts is None:  # strings of a batch begin after the pages of earlier batches
                string_starts = np.maximum.accumulate(np.append(0, self.leaf_pages.ends))[:-1]
            sizes = sizes + (self.leaf_pages.positions - string_starts).clip(0)
        batch_bytes: IntArray = sizes
        return batch_bytes

    # -- rows to runs ----------------------------------------------------------------------------------------------

    def _runs(self, selection: RowSelection) -> Runs:
        """Map rows of the file to runs of values in the outermost pages; neighbouring single rows become one run."""
        starts = selection.starts
        first_batches = self._batches_of(starts)
        if selection.ends is None:  # single rows
            batches, first_rows, last_rows = first_batches, starts, starts
            if len(starts) > 1:
                continues = (starts[1:] == starts[:-1] + 1) & (first_batches[1:] == first_batches[:-1])
                if continues.any():
                    is_first = np.append(True, ~continues)
                    batches, first_rows = first_batches[is_first], starts[is_first]
                    last_rows = starts[np.append(~continues, True)]
            batch_starts = self.row_starts[batches]
            return Runs(batches, first_rows - batch_starts, last_rows - batch_starts + 1)
        ends = selection.ends
        num_batches = self._batches_of(np.maximum(ends - 1, starts)) - first_batches + 1  # of each range of rows
        batches = np.repeat(first_batches - np.cumsum(num_batches) + num_batches, num_batches)
        batches = batches + np.arange(int(num_batches.sum()))
        batch_starts = self.row_starts[batches]
        run_starts = np.maximum(np.repeat(starts, num_batches), batch_starts) - batch_starts
        run_ends = np.minimum(np.repeat(ends, num_batches), self.row_starts[batches + 1]) - batch_starts
        return Runs(batches, run_starts, run_ends).where(run_starts < run_ends)

    def _batches_of(self, rows: IntArray) -> IntArray:
        """The batch that has each row."""
        batches: IntArray = self.row_starts.searchsorted(rows, side="right") - 1
        return batches

    # -- runs to arrays ----------------------------------------------------------------------------------------------

    def _read(self, runs: Runs) -> Steps[pa.Array]:
        """Read and decode rows of the file, given as runs of values in the outermost pages."""
        if not len(runs.batches):
            return pa.array([], self.path.nodes[0].arrow_type)
        prefetched = (yield from self._prefetch_whole_batches(runs)) if self._selects_whole_batches(runs) else None
        layers: list[tuple[Any, int]] = []  # offsets of the lists and number of lists, outermost lists first
        for depth, pages in enumerate(self.list_pages):
            if prefetched is not None and prefetched.runs[depth] != runs:
                prefetched = None  # the lists do not have exactly the items that the page table counts
            fetched = (yield pages.ranges(runs)) if prefetched is None else prefetched.values[depth]
            num_lists = runs.num_values
            offsets, runs = self._decode_lists(depth, runs, fetched)
            layers.append((offsets, num_lists))
        if prefetched is not None and prefetched.runs[-1] != runs:
            prefetched = None
        array = yield from self._read_leaf(runs, prefetched)
        return self._nest(array, layers)

    def _selects_whole_batches(self, runs: Runs) -> bool:
        if runs.starts[0]:
            return False
        counts = self._outermost_pages.counts[runs.batches]
        return bool((runs.starts == 0).all() and (runs.ends == counts).all())

    def _prefetch_whole_batches(self, runs: Runs) -> Steps[_Prefetched]:
        """Read all pages of whole batches in one round, with the bytes of strings where writers put them."""
        all_runs, ranges = [], []
        for depth, pages in enumerate(self.list_pages):
            all_runs.append(runs)
            ranges.append(pages.ranges(runs))
            runs = self._all_values(self._pages_below(depth), runs.batches)
        all_runs.append(runs)
        ranges.append(self.leaf_pages.ranges(runs))
        string_ranges = self._string_byte_ranges(runs)
        if string_ranges is not None:
            ranges.append(string_ranges)
        starts = np.concatenate([each.starts for each in ranges])
        ends = np.concatenate([each.ends for each in ranges])
        # If the next round reads the bytes of strings, it still needs the positions in the buffer of this round.
        needs_string_round = self.leaf_pages.kind == "binary" and string_ranges is None
        fetched = yield Ranges(starts, ends, keep=needs_string_round)
        bounds = np.cumsum([0, *(len(each) for each in ranges)]).tolist()
        parts = [Fetched(fetched.buffer, fetched.offsets[start:end]) for start, end in pairwise(bounds)]
        strings = None if string_ranges is None else (string_ranges, parts.pop())
        return _Prefetched(all_runs, parts, strings)

    def _all_values(self, pages: FieldPages, batches: IntArray) -> Runs:
        """All values of the pages of these batches, one run per page that is not empty."""
        counts = pages.counts[batches]
        return Runs(batches, np.zeros(len(batches), np.int64), counts).where(counts > 0)

    def _pages_below(self, depth: int) -> FieldPages:
        """The pages with the items of the lists at a depth, where 0 is the outermost list."""
        return self.list_pages[depth + 1] if depth + 1 < len(self.list_pages) else self.leaf_pages

    def _string_byte_ranges(self, runs: Runs) -> Ranges | None:
        """Ranges with the bytes of all strings of these batches, if the file has the layout that writers produce.

        Returns None if the leaf has no strings, or if the file has another layout.
        """
        if self.min_string_starts is None or self.leaf_pages.kind != "binary":
            return None
        starts, ends = self.min_string_starts[runs.batches], self.leaf_pages.positions[runs.batches]
        is_plausible = (starts <= ends).all() and int((ends - starts).sum()) <= self.file_bytes
        return Ranges(starts, ends) if is_plausible else None

    def _decode_lists(self, depth: int, runs: Runs, fetched: Fetched) -> tuple[Any, Runs]:
        """Decode the lists of all runs as one list array; returns the array's offsets, and the runs of the items."""
        pages = self.list_pages[depth]
        num_items = self._pages_below(depth).counts[runs.batches]
        try:
            offsets, starts, ends = join_lists(
                fetched.buffer, fetched.offsets, runs.counts, num_items, pages.bits == 64
            )
        except DamagedError as error:
            raise _to_format_error(error, runs) from None
        items = Runs(runs.batches, int64s(starts), int64s(ends))
        return offsets, items.where(items.starts < items.ends)

    def _read_leaf(self, runs: Runs, prefetched: _Prefetched | None) -> Steps[pa.Array]:
        """Read and decode the values of the leaf; `prefetched` has their bytes if they have been read already."""
        pages, dtype = self.leaf_pages, self.path.leaf_type
        if pages.kind == "none":
            return pa.nulls(runs.num_values)
        if not len(runs.batches):
            return self._empty_array(dtype)
        if prefetched is None:
            fetched, strings = (yield pages.ranges(runs)), None
        else:
            fetched, strings = prefetched.values[-1], prefetched.strings
        if pages.kind == "blob":
            return self._build_blob_descriptors(runs, fetched)
        if pages.kind == "binary":
            return (yield from self._read_strings(runs, fetched, strings))
        return self._decode_plain(dtype, runs, fetched)

    def _empty_array(self, dtype: pa.DataType) -> pa.Array:
        return (
            self._add_dictionary_values(dtype, pa.array([], dtype.index_type))
            if pa.types.is_dictionary(dtype)
            else pa.array([], dtype)
        )

    def _decode_plain(self, dtype: pa.DataType, runs: Runs, fetched: Fetched) -> pa.Array:
        bits, counts = self.leaf_pages.bits, runs.counts
        if bits % 8:
            first_bits = fetched.offsets * 8 + runs.starts * bits % 8
            data = join_bits(fetched.buffer, first_bits, counts * bits)
        else:
            lengths = counts * (bits // 8)
            is_uniform = len(lengths) == 1 or (lengths == lengths[0]).all()
            data = gather_ranges(fetched.buffer, fetched.offsets, lengths[:1] if is_uniform else lengths)
        if pa.types.is_dictionary(dtype):
            keys = build_values(dtype.index_type, FixedShape(bits), [data], runs.num_values, None, 0)
            return self._add_dictionary_values(dtype, keys)
        shape, num_bitmaps = fixed_shape(dtype)
        return build_values(dtype, shape, [*[None] * num_bitmaps, data], runs.num_values, None, 0)

    def _add_dictionary_values(self, dtype: pa.DataType, keys: pa.Array) -> pa.Array:
        stored = self.path.leaf.dictionary
        if stored is None and not is_readable(dtype.value_type):
            raise UnsupportedError(f"v1 dictionary values do not support data type {dtype.value_type}")
        if stored is None:
            raise FormatError("a dictionary column whose values are not in the manifest")
        values = dictionary_values(stored)
        if values.type != dtype.value_type:
            raise FormatError(f"dictionary of {values.type} in a column of {dtype}")
        try:
            return pa.DictionaryArray.from_arrays(keys, values, ordered=dtype.ordered)
        except MemoryError:  # pyarrow's memory error is an ArrowException, too
            raise
        except (pa.ArrowException, IndexError) as error:
            raise FormatError(f"keys of a dictionary of {len(values)} values: {error}") from None

    def _read_strings(self, runs: Runs, fetched: Fetched, strings: tuple[Ranges, Fetched] | None) -> Steps[pa.Array]:
        """Decode strings, and read their bytes unless `strings` has them.

        fetched  positions of the strings
        strings  file ranges that were prefetched, one per run, and the bytes of these ranges
        """
        counts = runs.counts
        starts = int64s(gather_ranges(fetched.buffer, fetched.offsets, np.array([8])))
        ends = int64s(gather_ranges(fetched.buffer, fetched.offsets + POSITION_BYTES * counts, np.array([8])))
        positions = fetched.buffer
        if strings is None or (starts < strings[0].starts).any() or (ends > strings[0].ends).any():
            self._check_string_ranges(runs, starts, ends)
            if strings is not None:
                positions = bytes(positions)  # a prefetch with strings is not kept beyond the next `yield`
            ranges = Ranges(starts, ends)
            data = yield ranges
        else:
            ranges, data = strings
        dtype, nullable = self.path.leaf_type, self.path.leaf.nullable
        is_wide = OFFSET_BYTES[dtype.id] == 8
        byte_ranges = (data.buffer, data.offsets, ranges.starts, ranges.ends)
        try:
            offsets, values, bitmap, nulls = join_strings(
                positions, fetched.offsets, counts, *byte_ranges, is_wide, nullable
            )
        except DamagedError as error:
            raise _to_format_error(error, runs) from None
        buffers = [None if bitmap is None else pa.py_buffer(bitmap), pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.Array.from_buffers(dtype, runs.num_values, buffers, nulls)

    def _build_blob_descriptors(self, runs: Runs, fetched: Fetched) -> pa.Array:
        """Build blob descriptors from stored positions, which are file offsets already. Empty blobs may mean null."""
        counts = runs.counts
        positions = int64s(gather_ranges(fetched.buffer, fetched.offsets, POSITION_BYTES * (counts + 1)))
        last_positions = np.cumsum(counts + 1) - 1  # a run has one position more than blobs: the end of its last blob
        starts, ends = np.delete(positions, last_positions), np.delete(positions, last_positions - counts)
        is_bad = (starts < 0) | (starts > ends) | (ends > self.file_bytes)
        if is_bad.any():
            at = int(np.flatnonzero(is_bad)[0])
            text = f"a blob from {int(starts[at])} to {int(ends[at])} in a file of {self.file_bytes} bytes"
            raise FormatError(text, where=f"batch {int(np.repeat(runs.batches, counts)[at])}")
        is_empty = starts == ends
        children = [pa.array(np.where(is_empty, 0, starts).astype(np.uint64)), pa.array((ends - starts).astype("u8"))]
        nulls = int(is_empty.sum()) if self.path.leaf.nullable else 0
        validity = pa.py_buffer(np.packbits(~is_empty, bitorder="little")) if nulls else None
        return pa.Array.from_buffers(DESCRIPTOR_TYPE, runs.num_values, [validity], nulls, children=children)

    def _check_string_ranges(self, runs: Runs, starts: IntArray, ends: IntArray) -> None:
        """Raises FormatError unless the bytes of each run are in the file, and are not too many in total."""
        is_bad = (starts < 0) | (starts > ends) | (ends > self.file_bytes)
        if is_bad.any() or int((ends - starts).astype(np.float64).sum()) > STRING_BYTES_RATIO_MAX * self.file_bytes:
            at = int(np.flatnonzero(is_bad)[0]) if is_bad.any() else 0
            text = f"values from {int(starts[at])} to {int(ends[at])} in a file of {self.file_bytes} bytes"
            raise FormatError(text, where=f"batch {int(runs.batches[at])}")

    def _nest(self, leaf: pa.Array, lists: list[tuple[Any, int]]) -> pa.Array:
        """Wrap the leaf in its structs and lists.

        lists  offsets of the lists and number of lists, outermost lists first
        """
        layers: list[Layer] = []
        length, lists_left = len(leaf), list(lists)
        for node in reversed(self.path.nodes):
            offsets = None
            if node.kind is NodeKind.LIST:
                offsets, length = lists_left.pop()
            layers.append((length, None, 0, offsets))
        return nest(self.path, leaf, layers)


def fixed_shape(dtype: pa.DataType) -> tuple[Shape, int]:
    """The shape of fixed-width values in memory, and the number of fixed-size lists around the innermost values.

    For each of these lists, `build_values` expects a bitmap of its items; the format has none, so the bitmaps are None.
    """
    if pa.types.is_fixed_size_list(dtype):
        inner, num_bitmaps = fixed_shape(dtype.value_type)
        return ListShape(dtype.list_size, False, inner), num_bitmaps + 1
    return FixedShape(plain_bits(dtype)), 0


def _to_format_error(error: DamagedError, runs: Runs) -> FormatError:
    """Convert a kernel's error, whose second argument is the index of the damaged run, and add the run's batch."""
    text, run = error.args if len(error.args) > 1 else (str(error), 0)
    return FormatError(text, where=f"batch {int(runs.batches[run])}")
