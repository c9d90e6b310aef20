"""A leaf column of a file of version 0.1: all of its batches, as one page (spec: legacy 0.1, sections 5 and 6).

Batches are small and numerous, so the state of a column is held as arrays over batches, and one kernel call decodes all
of them. For a leaf inside lists, the offsets of the lists are read first, then the items that they refer to:

    fixed width   1 round
    strings       2: positions, then bytes
    each list     1 more

Whole batches take one round: the page table has the number of items, and writers put the bytes of strings directly
before their positions. If positions point elsewhere, another round reads those bytes. The format stores no nulls: an
empty string or blob of a nullable field reads as null. Structs have no page of their own.

Blobs of the first kind are stored like strings. They are read as descriptors, as in later versions.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

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


SHARED_BYTES_MAX: Final = 4  # times the file's size: more bytes of strings mean damage, even if values share bytes


class BatchedLeaf:
    """See the module docstring.

    path        the leaf, as the table declares it
    row_starts  i64[batches + 1], rows before each batch
    levels      the pages of the enclosing lists, outermost first
    leaf        the pages of the leaf
    before      i64[batches], lower bound of the file offset of the string bytes; None if unknown
    file_bytes  size of the file in bytes
    """

    def __init__(
        self,
        path: LeafPath,
        row_starts: IntArray,
        levels: list[FieldPages],
        leaf: FieldPages,
        before: IntArray | None,
        file_bytes: int,
    ) -> None:
        self.path = path
        self.row_starts = row_starts
        self.levels = levels
        self.leaf = leaf
        self.before = before
        self.file_bytes = file_bytes
        self.num_rows = int(row_starts[-1])
        self._check_counts()

    def _check_counts(self) -> None:
        """Raises FormatError unless the outermost page of each batch has as many values as the batch has rows."""
        first = self.levels[0] if self.levels else self.leaf
        rows = np.diff(self.row_starts)
        wrong = np.flatnonzero(first.counts != rows)
        if len(wrong):
            batch = int(wrong[0])
            text = f"{int(first.counts[batch])} values in a page; the batch has {int(rows[batch])} rows"
            raise FormatError(text, where=f"batch {batch}")

    # -- the interface of every page -----------------------------------------------------------------------------------

    def index_ranges(self) -> Ranges | None:
        """None: the page table locates rows."""
        return None

    def load_index(self, fetched: Fetched) -> PageIndex:
        """Never called, because `index_ranges` returns None."""
        return NoIndex()

    def read(self, index: PageIndex | None, selection: RowSelection) -> Steps[pa.Array]:
        """The selected rows."""
        return self._read(self._runs(selection))

    def scan(self) -> Steps[pa.Array]:
        """All rows."""
        rows = np.diff(self.row_starts)
        batches = np.flatnonzero(rows)
        return self._read(Runs(batches, np.zeros(len(batches), np.int64), rows[batches]))

    def describe(self) -> PageDescription:
        """A readable description of the pages."""
        return PageDescription(
            "batches",
            self.leaf.kind,
            self.num_rows,
            int(self.batch_bytes.sum()),
            {"batches": len(self.row_starts) - 1, "lists": len(self.levels)},
        )

    @cached_property
    def batch_bytes(self) -> IntArray:
        """i64[batches], approximate bytes that are read of each batch."""
        sizes = sum(
            (pages.ends - pages.positions for pages in self.levels), np.zeros(len(self.row_starts) - 1, np.int64)
        )
        sizes = sizes + self.leaf.ends - self.leaf.positions
        if self.leaf.kind == "binary":
            before = np.maximum.accumulate(np.append(0, self.leaf.ends))[:-1] if self.before is None else self.before
            sizes = sizes + (self.leaf.positions - before).clip(0)
        batch_bytes: IntArray = sizes
        return batch_bytes

    # -- rows to runs ----------------------------------------------------------------------------------------------

    def _runs(self, selection: RowSelection) -> Runs:
        """Map rows of the file to runs in the outermost pages; neighbouring single rows become one run."""
        starts = selection.starts
        first = self._batches_of(starts)
        if selection.ends is None:
            batches, low, last = first, starts, starts
            if len(starts) > 1:
                follows = (starts[1:] == starts[:-1] + 1) & (first[1:] == first[:-1])
                if follows.any():
                    begins = np.append(True, ~follows)
                    batches, low, last = first[begins], starts[begins], starts[np.append(~follows, True)]
            base = self.row_starts[batches]
            return Runs(batches, low - base, last - base + 1)
        ends = selection.ends
        spans = self._batches_of(np.maximum(ends - 1, starts)) - first + 1
        batches = np.repeat(first - np.cumsum(spans) + spans, spans) + np.arange(int(spans.sum()))
        base = self.row_starts[batches]
        low = np.maximum(np.repeat(starts, spans), base) - base
        high = np.minimum(np.repeat(ends, spans), self.row_starts[batches + 1]) - base
        runs = Runs(batches, low, high)
        return runs.where(low < high)

    def _batches_of(self, rows: IntArray) -> IntArray:
        batches: IntArray = self.row_starts.searchsorted(rows, side="right") - 1
        return batches

    # -- runs to arrays ----------------------------------------------------------------------------------------------

    def _read(self, runs: Runs) -> Steps[pa.Array]:
        if not len(runs.batches):
            return pa.array([], self.path.nodes[0].arrow_type)
        ahead = (yield from self._fetch_whole(runs)) if self._is_whole(runs) else None
        layers: list[tuple[Any, int]] = []  # offsets and number of lists, outermost first
        for depth, pages in enumerate(self.levels):
            if ahead is not None and ahead[depth][0] != runs:  # not the items of the page table: read again
                ahead = None
            fetched = (yield pages.ranges(runs)) if ahead is None else ahead[depth][1]
            num_lists = runs.num_values
            offsets, runs = self._decode_lists(depth, runs, fetched)
            layers.append((offsets, num_lists))
        known = ahead[-1][1:] if ahead is not None and ahead[-1][0] == runs else None
        array = yield from self._read_leaf(runs, known)
        return self._nest(array, layers)

    def _is_whole(self, runs: Runs) -> bool:
        if runs.starts[0]:
            return False
        first = self.levels[0] if self.levels else self.leaf
        return bool((runs.starts == 0).all() and (runs.ends == first.counts[runs.batches]).all())

    def _fetch_whole(self, runs: Runs) -> Steps[list[tuple[Any, ...]]]:
        """Read whole batches in one round: `(runs, fetched)` per list, `(runs, fetched, bytes)` for the leaf."""
        wanted: list[tuple[Runs, Ranges]] = []
        for pages in self.levels:
            wanted.append((runs, pages.ranges(runs)))
            runs = self._items_of(runs.batches, len(wanted))
        wanted.append((runs, self.leaf.ranges(runs)))
        bytes_ranges = self._bytes_before(runs)
        ranges = [requested for _, requested in wanted] + ([] if bytes_ranges is None else [bytes_ranges])
        starts = np.concatenate([each.starts for each in ranges])
        ends = np.concatenate([each.ends for each in ranges])
        is_kept = self.leaf.kind == "binary" and bytes_ranges is None
        fetched = yield Ranges(starts, ends, keep=is_kept)
        bounds = np.cumsum([0, *(len(each) for each in ranges)]).tolist()
        parts = [Fetched(fetched.buffer, fetched.offsets[low:high]) for low, high in pairwise(bounds)]
        levels: list[tuple[Any, ...]] = [
            (level_runs, part) for (level_runs, _), part in zip(wanted, parts, strict=False)
        ]
        levels[-1] = (*levels[-1], None if bytes_ranges is None else (bytes_ranges, parts[-1]))
        return levels

    def _items_of(self, batches: IntArray, depth: int) -> Runs:
        """All values below the lists of these batches."""
        counts = self._pages_below(depth - 1).counts[batches]
        return Runs(batches, np.zeros(len(batches), np.int64), counts).where(counts > 0)

    def _pages_below(self, depth: int) -> FieldPages:
        return self.levels[depth + 1] if depth + 1 < len(self.levels) else self.leaf

    def _bytes_before(self, runs: Runs) -> Ranges | None:
        """Ranges of the string bytes, if the file has the layout that writers produce."""
        if self.before is None or self.leaf.kind != "binary":
            return None
        starts, ends = self.before[runs.batches], self.leaf.positions[runs.batches]
        is_plausible = (starts <= ends).all() and int((ends - starts).sum()) <= self.file_bytes
        return Ranges(starts, ends) if is_plausible else None

    def _decode_lists(self, depth: int, runs: Runs, fetched: Fetched) -> tuple[Any, Runs]:
        """Join the offsets of the lists into one array; also the runs of their items."""
        pages = self.levels[depth]
        items = self._pages_below(depth).counts[runs.batches]
        try:
            offsets, firsts, ends = join_lists(fetched.buffer, fetched.offsets, runs.counts, items, pages.bits == 64)
        except DamagedError as error:
            raise _locate(error, runs) from None
        below = Runs(runs.batches, int64s(firsts), int64s(ends))
        return offsets, below.where(below.starts < below.ends)

    def _read_leaf(self, runs: Runs, known: tuple[Any, ...] | None) -> Steps[pa.Array]:
        pages, dtype = self.leaf, self.path.leaf_type
        if pages.kind == "none":
            return pa.nulls(runs.num_values)
        if not len(runs.batches):
            return self._without_values(dtype)
        if known is None:
            known = (yield pages.ranges(runs)), None
        fetched, string_bytes = known
        if pages.kind == "blob":
            return self._describe_blobs(runs, fetched)
        if pages.kind == "binary":
            return (yield from self._read_strings(runs, fetched, string_bytes))
        return self._plain(dtype, runs, fetched)

    def _without_values(self, dtype: pa.DataType) -> pa.Array:
        return (
            self._with_dictionary(dtype, pa.array([], dtype.index_type))
            if pa.types.is_dictionary(dtype)
            else pa.array([], dtype)
        )

    def _plain(self, dtype: pa.DataType, runs: Runs, fetched: Fetched) -> pa.Array:
        bits, counts = self.leaf.bits, runs.counts
        if bits % 8:
            starts = fetched.offsets * 8 + runs.starts * bits % 8
            data = join_bits(fetched.buffer, starts, counts * bits)
        else:
            lengths = counts * (bits // 8)
            is_even = len(lengths) == 1 or (lengths == lengths[0]).all()
            data = gather_ranges(fetched.buffer, fetched.offsets, lengths[:1] if is_even else lengths)
        if pa.types.is_dictionary(dtype):
            keys = build_values(dtype.index_type, FixedShape(bits), [data], runs.num_values, None, 0)
            return self._with_dictionary(dtype, keys)
        shape, num_bitmaps = fixed_shape(dtype)
        return build_values(dtype, shape, [*[None] * num_bitmaps, data], runs.num_values, None, 0)

    def _with_dictionary(self, dtype: pa.DataType, keys: pa.Array) -> pa.Array:
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

    def _read_strings(
        self, runs: Runs, fetched: Fetched, string_bytes: tuple[Ranges, Fetched] | None
    ) -> Steps[pa.Array]:
        counts = runs.counts
        firsts = int64s(gather_ranges(fetched.buffer, fetched.offsets, np.array([8])))
        ends = int64s(gather_ranges(fetched.buffer, fetched.offsets + POSITION_BYTES * counts, np.array([8])))
        wanted, data = string_bytes if string_bytes is not None else (None, None)
        if wanted is None or (firsts < wanted.starts).any() or (ends > wanted.ends).any():
            self._check_bytes(runs, firsts, ends)
            tables = fetched.buffer if wanted is None else bytes(fetched.buffer)  # a copy outlives the round
            wanted = Ranges(firsts, ends)
            data = yield wanted
        else:
            tables = fetched.buffer
        assert data is not None, "read ahead or just now"
        dtype, nullable = self.path.leaf_type, self.path.leaf.nullable
        is_wide = OFFSET_BYTES[dtype.id] == 8
        byte_ranges = (data.buffer, data.offsets, wanted.starts, wanted.ends)
        try:
            offsets, values, bitmap, nulls = join_strings(
                tables, fetched.offsets, counts, *byte_ranges, is_wide, nullable
            )
        except DamagedError as error:
            raise _locate(error, runs) from None
        buffers = [None if bitmap is None else pa.py_buffer(bitmap), pa.py_buffer(offsets), pa.py_buffer(values)]
        array = pa.Array.from_buffers(dtype, runs.num_values, buffers, nulls)
        return array

    def _describe_blobs(self, runs: Runs, fetched: Fetched) -> pa.Array:
        """Build blob descriptors: the positions in the page of a blob are file offsets, as in descriptors."""
        counts = runs.counts
        data = int64s(gather_ranges(fetched.buffer, fetched.offsets, POSITION_BYTES * (counts + 1)))
        lasts = np.cumsum(counts + 1) - 1
        starts, ends = np.delete(data, lasts), np.delete(data, lasts - counts)
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

    def _check_bytes(self, runs: Runs, firsts: IntArray, ends: IntArray) -> None:
        is_bad = (firsts < 0) | (firsts > ends) | (ends > self.file_bytes)
        if is_bad.any() or int((ends - firsts).astype(np.float64).sum()) > SHARED_BYTES_MAX * self.file_bytes:
            at = int(np.flatnonzero(is_bad)[0]) if is_bad.any() else 0
            text = f"values from {int(firsts[at])} to {int(ends[at])} in a file of {self.file_bytes} bytes"
            raise FormatError(text, where=f"batch {int(runs.batches[at])}")

    def _nest(self, leaf: pa.Array, lists: list[tuple[Any, int]]) -> pa.Array:
        """Wrap the leaf in its structs and lists."""
        layers: list[Layer] = []
        length, remaining = len(leaf), list(lists)
        for node in reversed(self.path.nodes):
            offsets = None
            if node.kind is NodeKind.LIST:
                offsets, length = remaining.pop()
            layers.append((length, None, 0, offsets))
        return nest(self.path, leaf, layers)


def fixed_shape(dtype: pa.DataType) -> tuple[Shape, int]:
    """The shape of fixed-width values in memory, and the number of absent item bitmaps that precede them."""
    if pa.types.is_fixed_size_list(dtype):
        inner, num_bitmaps = fixed_shape(dtype.value_type)
        return ListShape(dtype.list_size, False, inner), num_bitmaps + 1
    return FixedShape(plain_bits(dtype)), 0


def _locate(error: DamagedError, runs: Runs) -> FormatError:
    text, run = error.args if len(error.args) > 1 else (str(error), 0)
    return FormatError(text, where=f"batch {int(runs.batches[run])}")
