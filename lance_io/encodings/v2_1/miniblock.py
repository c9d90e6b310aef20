"""Mini-block pages: chunks of a few KiB, located by a table of chunk sizes.

    buffer 0   chunk metadata, one u16 (2.2: u32) per chunk: (bytes / 8 - 1) << 4 | log2(values)
    buffer 1   the chunks, back to back
    buffer 2   dictionary, if the page has one
    last       repetition index, two u64 per chunk, if the column has lists

The index of a page is everything but buffer 1. A read requests exactly the chunks that hold its rows: one round.

A kernel decodes the chunks. It follows the page's program: bytes that name the levels, layers and codecs of its chunks.
Specification: structural encodings 2.1, sections 3 and 4.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.codecs import tree
from lance_io.codecs.tree import Codec, FixedShape, Shape, VariableShape, decode_codec, symbols_of, with_symbols
from lance_io.encodings.api import PageDescription, PageIndex, RowSelection
from lance_io.encodings.v2_1.page import PageSource, damage_error, has_definition, has_repetition
from lance_io.encodings.values import build_values, check_shape
from lance_io.errors import FormatError, UnsupportedError
from lance_io.levels.assemble import nest
from lance_io.levels.path import ALL_VALID_ITEM
from lance_io.limits import PAGE_ROWS_MAX
from lance_io.proto import encodings21_pb2 as pb
from lance_io.records import dataclass
from lance_io.spans import Fetched, Ranges, int64s

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_io._kernels import Leaf
    from lance_io.spans import IntArray, Purpose, Steps

WIDE, REP, DEF = 1, 2, 4  # program flags: u32 chunk metadata, repetition levels, definition levels
PAGE_BYTES: Final = 512  # memory of an indexed page without its tables
CHUNK_UNIT_BYTES: Final = 8  # chunk metadata count these
_INVERTED_BYTES: Final = bytes(255 - byte for byte in range(256))


@dataclass(slots=True, eq=False)
class MiniBlockIndex:
    """Positions and contents of the chunks of a page.

    byte_offsets  i64[n+1], chunk borders in buffer 1
    item_starts   i64[n+1], visible items before each chunk
    row_starts    i64[n+1], rows that begin before each chunk; None without lists (rows are items)
    preamble      u8[n], 1 where a chunk begins with the end of an earlier row
    unfinished    u16[n], levels at the end of a chunk whose row continues in the next chunk; None without lists
    dictionary    `(offsets or None, data)` of the decoded dictionary
    page          the index for the kernels, with the page's program and file offset
    parsed_bytes  approximate memory of `page` itself
    """

    byte_offsets: Any
    item_starts: Any
    row_starts: Any | None
    preamble: Any | None
    unfinished: npt.NDArray[np.uint16] | None
    dictionary: tuple[Any | None, Any] | None
    page: _kernels.IndexedPage
    parsed_bytes: int

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        parts = [self.byte_offsets, self.item_starts, self.row_starts, self.preamble, self.unfinished]
        parts += self.dictionary or ()
        num_bytes: int = sum([part.nbytes for part in parts if part is not None])
        return num_bytes + self.parsed_bytes


class MiniBlockPage:
    """One mini-block page. `message` is its `MiniBlockLayout`.

    codec, dictionary  of the values, and of the dictionary items if the page has a dictionary
    value_shape        shape of the values after the dictionary lookup
    program            tells the kernels how to decode a chunk
    join_key           equal for pages whose rows can be decoded into one array; None for pages that are decoded alone
    """

    def __init__(self, source: PageSource, message: pb.MiniBlockLayout) -> None:
        self.source = source
        self.num_rows = source.num_rows
        self.num_items = message.num_items
        self.codec = decode_codec(message.value_compression)
        self.dictionary = decode_codec(message.dictionary) if message.HasField("dictionary") else None
        self.num_dictionary_items = message.num_dictionary_items
        self.has_lists = message.HasField("rep_compression")
        self.layers: tuple[int, ...] = tuple(message.layers)
        self.value_shape: Shape = (self.codec if self.dictionary is None else self.dictionary).shape
        self.keeps_indices = pa.types.is_dictionary(source.path.leaf_type)
        self._check(message)
        self.level_codecs = self._level_codecs(message)
        self.program = self._compile()
        self.join_key = self._join_key()
        self._dictionary_codec = None if self.dictionary is None else self._program(self.dictionary)

    def may_have(self, num_items: int, num_rows: int) -> bool:
        """Whether a page of this layout may have these numbers of items and rows."""
        return num_items <= PAGE_ROWS_MAX and (self.has_lists or num_items == num_rows)

    def relocated(
        self, buffer_offsets: tuple[int, ...], buffer_sizes: tuple[int, ...], num_items: int, num_rows: int
    ) -> MiniBlockPage:
        """This layout over other buffers of the same number, with other numbers of items and rows (`may_have`)."""
        page = MiniBlockPage.__new__(MiniBlockPage)
        _, _, _, path, rules = self.source
        page.source = PageSource(buffer_offsets, buffer_sizes, num_rows, path, rules)
        # attribute by attribute: copying `__dict__` would add one object per page for the garbage collector
        page.num_rows = num_rows
        page.num_items = num_items
        page.codec = self.codec
        page.dictionary = self.dictionary
        page.num_dictionary_items = self.num_dictionary_items
        page.has_lists = self.has_lists
        page.layers = self.layers
        page.value_shape = self.value_shape
        page.keeps_indices = self.keeps_indices
        page.level_codecs = self.level_codecs
        page._around_codec = self._around_codec
        page.program = self.program
        page.join_key = self.join_key
        page._dictionary_codec = self._dictionary_codec
        return page

    def of_items(self) -> MiniBlockPage:
        """The layout of the same values without lists and levels, one row per item.

        `chunk_items.py` produces such chunks, files never contain them. Only for pages with one level of lists.
        """
        source = self.source
        page = self.relocated(source.buffer_offsets, source.buffer_sizes, self.num_items, self.num_items)
        page.source = source._replace(path=source.path.below_list(), num_rows=self.num_items)
        page.has_lists = False
        page.layers = (ALL_VALID_ITEM,) * source.path.num_below_list
        page.level_codecs = {}
        page.program = page._compile()
        page.join_key = None
        return page

    def set_symbols(self, symbols: bytes) -> bool:
        """Replace the FSST symbols of this layout; False if `symbols` is not a valid table."""
        try:
            self.codec = with_symbols(self.codec, symbols)
        except FormatError:
            return False
        before, behind = self._around_codec
        self.program = before + self._program(self.codec) + behind
        return True

    def _program(self, codec: Codec) -> bytes:
        return tree.program_of(codec, self.source.path.value_bytes_max)

    # -- the page's messages ---------------------------------------------------------------------------------------

    def _check(self, message: pb.MiniBlockLayout) -> None:
        source, rules = self.source, self.source.rules
        if message.has_large_chunk != rules.wide_chunks:
            raise FormatError(f"has_large_chunk is {message.has_large_chunk}, which file version {rules.name} forbids")
        if has_repetition(self.layers) != self.has_lists:
            raise FormatError("repetition levels and list layers contradict each other in this page")
        if message.HasField("def_compression") != has_definition(self.layers):
            raise FormatError(f"definition levels and layers {list(self.layers)} contradict each other in this page")
        if message.num_dictionary_items and self.dictionary is None:
            raise FormatError(f"{message.num_dictionary_items} dictionary items in a page without a dictionary")
        depth = message.repetition_index_depth
        if self.has_lists and depth > 1:  # indexes nested items; no known writer produces it
            raise UnsupportedError(f"a repetition index of depth {depth}: this release reads those of depth 1")
        if depth != self.has_lists:
            raise FormatError(f"repetition index of depth {depth}")
        if not self.may_have(self.num_items, self.num_rows):
            raise FormatError(f"{self.num_items} items in a page of {self.num_rows} rows")
        source.expect_buffers(2 + (self.dictionary is not None) + self.has_lists)
        expected = chunk_buffers(self.codec)
        if message.num_buffers != expected:
            raise FormatError(f"{message.num_buffers} value buffers per chunk; {self.codec} has {expected}")
        check_shape(source.path.leaf_type if self.dictionary is None else self._value_type(), self.value_shape)

    def _value_type(self) -> pa.DataType:
        dtype = self.source.path.leaf_type
        index = self.codec.shape
        if not isinstance(index, FixedShape) or index.bits not in tree.LANE_BITS:
            raise FormatError(f"dictionary indices stored as {self.codec}")
        if self.num_dictionary_items > PAGE_ROWS_MAX:
            raise FormatError(f"dictionary of {self.num_dictionary_items} items")
        return dtype.value_type if pa.types.is_dictionary(dtype) else dtype

    def _level_codecs(self, message: pb.MiniBlockLayout) -> dict[str, Codec]:
        codecs = {}
        if self.has_lists:
            codecs["repetition"] = decode_levels_codec(message.rep_compression)
        if message.HasField("def_compression"):
            codecs["definition"] = decode_levels_codec(message.def_compression)
        return codecs

    def _compile(self) -> bytes:
        flags = WIDE if self.source.rules.wide_chunks else 0
        flags |= REP if "repetition" in self.level_codecs else 0
        flags |= DEF if "definition" in self.level_codecs else 0
        levels = b"".join(codec.program() for codec in self.level_codecs.values())
        layers = self.source.path.compile_layers(self.layers)
        head = struct.pack("<BB", flags, chunk_buffers(self.codec))
        before, behind = self._around_codec = head + layers + levels, self._dictionary_program()
        return before + self._program(self.codec) + behind

    def _dictionary_program(self) -> bytes:
        match None if self.dictionary is None else self.dictionary.shape:
            case None:
                return b"\x00"
            case _ if self.keeps_indices:
                return b"\x00"  # no lookup
            case FixedShape(bits) if bits % 8 == 0:
                return struct.pack("<BI", 1, bits)
            case VariableShape(offset_bits):
                return b"\x02" if offset_bits == 32 else b"\x03"
            case _:
                raise FormatError(f"dictionary of {self.dictionary}")

    def _join_key(self) -> str | None:
        path = self.source.path
        if self.keeps_indices or path.slots_per_row != 1:
            return None
        return f"{path.array_kind} {self.value_shape!r}"

    # -- reading -----------------------------------------------------------------------------------------------------

    def index_ranges(self) -> Ranges | None:
        """Ranges of chunk metadata, dictionary and repetition index."""
        return index_ranges([self])

    def load_index(self, fetched: Fetched) -> MiniBlockIndex:
        """Check and decode the index."""
        try:
            (index,) = decode_indexes([self], fetched)
        except DamagedError as error:
            raise damage_error(error) from None
        return index

    def longest_item(self, block: memoryview) -> int:
        """Bytes of the longest item of its dictionary of variable-width values. block: the stored dictionary"""
        assert self._dictionary_codec is not None, "a page with a dictionary"
        try:
            parts = _kernels.decode_dictionary(self._dictionary_codec, block, self.num_dictionary_items)
        except DamagedError as error:
            raise damage_error(error) from None
        return longest(self.value_shape, parts[0])

    @property
    def kernel_form(self) -> tuple[Any, ...]:
        """The page as the kernels for whole pages take it."""
        source = self.source
        return (
            self.program,
            source.buffer_offsets[1],
            source.rules.wide_chunks,
            self.num_items,
            self.num_rows if self.has_lists else None,
            self._dictionary_codec,
            self.num_dictionary_items,
            list(source.buffer_sizes),
        )

    def index(
        self,
        byte_offsets: Any,
        item_starts: Any,
        row_starts: Any,
        preamble: Any,
        dictionary: Any,
        unfinished: npt.NDArray[np.uint16] | None = None,
    ) -> MiniBlockIndex:
        """The index from the buffers that a kernel decoded."""
        looked_up = None if self.keeps_indices else dictionary
        base = self.source.buffer_offsets[1]
        page = _kernels.IndexedPage(self.program, base, byte_offsets, item_starts, row_starts, preamble, looked_up)
        parsed_bytes = PAGE_BYTES + 2 * len(self.program)  # a symbol table is widened when it is parsed
        return MiniBlockIndex(
            byte_offsets, item_starts, row_starts, preamble, unfinished, dictionary, page, parsed_bytes
        )

    def chunk_ranges(self, index: MiniBlockIndex, selection: RowSelection) -> Ranges:
        """File ranges of the chunks of the selected rows."""
        starts = index.row_starts if self.has_lists else index.item_starts
        base = self.source.buffer_offsets[1]
        planned = _kernels.plan_chunks(
            selection.starts, selection.ends, index.byte_offsets, starts, index.preamble, base
        )
        return Ranges(int64s(planned[2]), int64s(planned[3]))

    def estimated_ranges(self, selection: RowSelection) -> tuple[IntArray, IntArray] | None:
        """Where the chunks of the selected rows probably are, without the index: starts and ends, ascending.

        Estimates that chunks have the same number of bytes, and adds a chunk on each side. None for a page with lists,
        and for one whose chunks cannot have the same number of values.
        """
        word_bytes = 4 if self.source.rules.wide_chunks else 2
        num_chunks, num_bytes = self.source.buffer_sizes[0] // word_bytes, self.source.buffer_sizes[1]
        if self.has_lists or not num_chunks or not self.num_items:
            return None
        num_values = 1 << max(0, math.ceil(math.log2(self.num_items / num_chunks)))
        if -(-self.num_items // num_values) != num_chunks:
            return None
        chunk_bytes = num_bytes * num_values / self.num_items
        last = selection.starts if selection.ends is None else selection.ends - 1
        borders = (selection.starts // num_values - 1) * chunk_bytes, (last // num_values + 2) * chunk_bytes
        starts, ends = (each.clip(0, num_bytes).astype(np.int64) for each in borders)
        return self.source.buffer_offsets[1] + starts, self.source.buffer_offsets[1] + ends

    def read(self, index: PageIndex | None, selection: RowSelection) -> Steps[pa.Array]:
        """The selected rows, in one round: the chunks that hold them."""
        assert isinstance(index, MiniBlockIndex), "mini-block pages are read with their index"
        starts = index.row_starts if self.has_lists else index.item_starts
        base = self.source.buffer_offsets[1]
        chunk_ids, range_firsts, range_starts, range_ends = _kernels.plan_chunks(
            selection.starts, selection.ends, index.byte_offsets, starts, index.preamble, base
        )
        fetched = yield Ranges(int64s(range_starts), int64s(range_ends))
        leaf = self._decode(index, selection, fetched.buffer, fetched.offsets, range_firsts, chunk_ids)
        return self.build(leaf, index)

    def scan(self) -> Steps[pa.Array]:
        """All rows and all buffers in one round."""
        return self.decode_scan((yield whole_ranges([self])))

    def decode_scan(self, fetched: Fetched) -> pa.Array:
        """All rows, from the fetched bytes of `scan`."""
        try:
            if not self.keeps_indices:
                (leaf,) = _kernels.scan_pages([([self.kernel_form], fetched.buffer, fetched.offsets)])
                return self.build(leaf)
        except DamagedError as error:
            raise damage_error(error) from None
        index = self.load_index(Fetched(fetched.buffer, np.delete(fetched.offsets, 1)))
        num_chunks = index.byte_offsets.nbytes // 8 - 1
        zero = np.zeros(1 if num_chunks else 0, dtype=np.int64)
        chunk_ids = np.arange(num_chunks, dtype=np.int64)
        chunks = fetched.piece(1, self.source.buffer_sizes[1])
        leaf = self._decode(index, RowSelection.span(0, self.num_rows), chunks, zero, zero, chunk_ids)
        return self.build(leaf, index)

    def _decode(
        self, index: MiniBlockIndex, rows: RowSelection, buffer: Any, offsets: IntArray, firsts: Any, chunk_ids: Any
    ) -> Leaf:
        try:
            return _kernels.decode_miniblock(index.page, buffer, offsets, firsts, chunk_ids, rows.starts, rows.ends)
        except DamagedError as error:
            raise damage_error(error) from None

    def build(self, leaf: Leaf, index: MiniBlockIndex | None = None) -> pa.Array:
        """Nest decoded rows of this page, or of pages with the same `join_key`.

        index  needed only for Arrow dictionary columns
        """
        num_items, values, layers = leaf
        _, validity, null_count, _ = layers[0]
        dtype = self.source.path.leaf_type
        if self.keeps_indices:
            array = self._dictionary_array(index, values[0], num_items, validity, null_count)
        else:
            array = build_values(dtype, self.value_shape, values, num_items, validity, null_count)
        return nest(self.source.path, array, layers)

    def _dictionary_array(
        self, index: MiniBlockIndex | None, indices: Any, num_items: int, validity: Any | None, null_count: int
    ) -> pa.Array:
        """An Arrow dictionary column keeps its indices; values of a page without a dictionary are encoded here."""
        dtype = self.source.path.leaf_type
        if self.dictionary is None or index is None or index.dictionary is None:
            plain = build_values(dtype.value_type, self.value_shape, [indices], num_items, validity, null_count)
            return plain.dictionary_encode().cast(dtype)
        bits = self.codec.shape.bits  # type: ignore[union-attr]  # checked in _value_type
        unsigned = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[bits]
        keys = build_values(unsigned, FixedShape(bits), [indices], num_items, validity, null_count)
        buffers = [b for b in index.dictionary if b is not None]
        items = build_values(dtype.value_type, self.value_shape, buffers, self.num_dictionary_items, None, 0)
        largest = np.frombuffer(indices, dtype=f"u{bits // 8}").max(initial=0)
        if num_items and largest >= max(len(items), 1):
            raise FormatError(f"dictionary index {largest}; the dictionary has {len(items)} items")
        try:
            keys = keys.cast(dtype.index_type)
        except pa.ArrowInvalid as error:
            raise FormatError(f"dictionary index does not fit {dtype.index_type}: {error}") from None
        return pa.DictionaryArray.from_arrays(keys, items, safe=False)

    def describe(self) -> PageDescription:
        """A readable description: layout, codec chain, sizes."""
        codec = str(self.codec)
        details: dict[str, str | int] = {
            "chunks": self.source.buffer_sizes[0] // (4 if self.source.rules.wide_chunks else 2)
        }
        if self.dictionary is not None:
            codec = f"dictionary({self.num_dictionary_items} x {self.dictionary}, {codec})"
            details["dictionary_items"] = self.num_dictionary_items
        if self.has_lists:
            details["items"] = self.num_items
        levels = {name: str(level_codec) for name, level_codec in self.level_codecs.items()}
        return PageDescription("mini-block", codec, self.num_rows, self.source.num_bytes, details, levels)


def symbols_at(encoding: bytes, page: MiniBlockPage) -> int | None:
    """Position of the FSST symbol table in the message of a page of strings; None without one, or if it is ambiguous.

    To verify the position, this function replaces the bytes there: then the parsed message must have another symbol
    table, and no other change.
    """
    if page.dictionary is not None:
        return None
    message = pb.PageLayout.FromString(encoding)
    coded = symbols_of(message.mini_block_layout.value_compression)
    if coded is None:
        return None
    symbols = coded.symbol_table
    others = symbols.translate(_INVERTED_BYTES)
    at = encoding.find(symbols)
    try:
        changed = pb.PageLayout.FromString(encoding[:at] + others + encoding[at + len(symbols) :])
    except DecodeError:
        return None
    coded = symbols_of(changed.mini_block_layout.value_compression)
    if coded is None or coded.symbol_table != others:
        return None
    coded.symbol_table = symbols
    return at if changed == message else None


# -- many pages ------------------------------------------------------------------------------------------------------


def index_ranges(pages: Sequence[MiniBlockPage]) -> Ranges:
    """Ranges that `decode_indexes` needs for these pages: all buffers but the chunks."""
    starts, sizes = [], []
    for page in pages:
        source = page.source
        starts += [source.buffer_offsets[0], *source.buffer_offsets[2:]]
        sizes += [source.buffer_sizes[0], *source.buffer_sizes[2:]]
    return _ranges(starts, sizes, "index")


def decode_indexes(pages: Sequence[MiniBlockPage], fetched: Fetched) -> list[MiniBlockIndex]:
    """Check and decode the indexes of pages. A `DamagedError` carries the index of the page."""
    decoded = _kernels.index_pages([page.kernel_form for page in pages], fetched.buffer, fetched.offsets)
    indexes, at = [], 0
    for page, parts in zip(pages, decoded, strict=True):
        at += len(page.source.buffer_sizes) - 1
        unfinished = None
        if page.has_lists:  # the kernel has checked that the numbers fit
            numbers = np.frombuffer(fetched.piece(at - 1, page.source.buffer_sizes[-1]), np.uint64)
            unfinished = numbers[1::2].astype(np.uint16)
        indexes.append(page.index(*parts, unfinished))
    return indexes


def whole_ranges(pages: Sequence[MiniBlockPage]) -> Ranges:
    """Ranges of all buffers of the pages."""
    starts = [offset for page in pages for offset in page.source.buffer_offsets]
    return _ranges(starts, [size for page in pages for size in page.source.buffer_sizes], "data")


def decode_whole(files: Sequence[tuple[Sequence[MiniBlockPage], Fetched]]) -> list[pa.Array]:
    """All rows of pages with a `join_key`, one array each. A `DamagedError` carries the page's index among all pages.

    files  per file: pages, and the fetched `whole_ranges`
    """
    leaves = _kernels.scan_pages(
        [([page.kernel_form for page in pages], fetched.buffer, fetched.offsets) for pages, fetched in files]
    )
    all_pages = [page for pages, _ in files for page in pages]
    return [page.build(leaf) for page, leaf in zip(all_pages, leaves, strict=True)]


def _ranges(starts: list[int], sizes: list[int], purpose: Purpose) -> Ranges:
    first = np.array(starts, dtype=np.int64)
    return Ranges(first, first + np.array(sizes, dtype=np.int64), purpose)


def chunk_borders(words: memoryview, *, wide: bool) -> IntArray:
    """Chunk borders in buffer 1, i64[n + 1], from the chunk metadata; of damaged metadata, any numbers."""
    width = 4 if wide else 2
    sizes = np.frombuffer(words, f"<u{width}", len(words) // width).astype(np.int64) >> 4
    borders = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(CHUNK_UNIT_BYTES * (sizes + 1), out=borders[1:])
    return borders


def longest(shape: Shape, offsets: Any | None) -> int:
    """Bytes of the longest value of variable width, from the offsets of all of them."""
    if offsets is None:
        return 0
    ends = np.frombuffer(offsets, np.int32 if shape == VariableShape(32) else np.int64)
    return int(np.diff(ends).max(initial=0))


def decode_levels_codec(message: pb.CompressiveEncoding) -> tree.Codec:
    """The codec of a level vector: 16-bit values, flat, bit-packed or run-length encoded."""
    codec = decode_codec(message)
    if codec.shape != FixedShape(16):
        raise FormatError(f"levels stored as {codec}; expected 16-bit values")
    return codec


def chunk_buffers(codec: tree.Codec) -> int:
    """Value buffers per chunk (spec: section 4)."""
    match codec:
        case tree.Rle():
            return 2
        case tree.General(_, values):
            return chunk_buffers(values)
        case tree.FixedSizeList(_, has_validity, values):
            return has_validity + chunk_buffers(values)
        case tree.Constant() | tree.NoValue() | tree.VariablePackedStruct() | tree.OutOfLineBitpacking():
            raise UnsupportedError(f"mini-block chunks of {codec}")
        case _:
            return 1
