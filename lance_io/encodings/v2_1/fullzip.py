"""Full-zip pages: each value next to its control word, for values too large for mini-block chunks.

    buffer 0   entries: [control word][length prefix][value]
    buffer 1   repetition index: `num_rows + 1` offsets into buffer 0, in bytes, stored in 1, 2, 4 or 8 bytes each;
               present if the values have variable width or the column has lists

Fixed-width values without lists need no index: row i is at i * (control + value bytes). With an index, a read takes one
round on a cache hit and two on a miss. An index above `REPETITION_INDEX_KEPT_BYTES_MAX` is never cached: the entries of
the selected rows are read from it. Specification: structural encodings 2.1, section 5.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.codecs import tree
from lance_io.codecs.tree import ListShape, Shape, VariableShape, decode_codec, shape_bits
from lance_io.encodings.api import PageDescription, PageIndex, RowSelection
from lance_io.encodings.v2_1.page import PageSource, damage_error, has_repetition
from lance_io.encodings.values import build_values, check_shape
from lance_io.errors import FormatError
from lance_io.levels.assemble import nest
from lance_io.levels.path import DEFINITION_LEVELS, LIST_LAYERS
from lance_io.limits import REPETITION_INDEX_KEPT_BYTES_MAX
from lance_io.records import dataclass
from lance_io.spans import Ranges, int64s

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io._kernels import Leaf
    from lance_io.levels.path import LeafPath
    from lance_io.proto import encodings21_pb2 as pb
    from lance_io.spans import Fetched, IntArray, Steps


@dataclass(slots=True, eq=False)
class FullZipIndex:
    """The repetition index of a page as stored in the file."""

    entries: bytes
    width_bytes: int

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return len(self.entries) + 128


@dataclass(slots=True, eq=False)
class PlainIndex:
    """Locates the rows of a plain page for the kernels; it is computed, not read."""

    page: _kernels.PlainPage

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return 128


class FullZipPage:
    """One full-zip page. `message` is its `FullZipLayout`.

    stride_bytes  bytes per row, if all rows have the same size
    is_plain      whether the data buffer is the array itself: no control words, no zipped validity
    join_key      equal for plain pages whose rows can be decoded into one array; None for all others
    """

    def __init__(self, source: PageSource, message: pb.FullZipLayout) -> None:
        self.source = source
        self.num_rows = source.num_rows
        self.codec = decode_codec(message.value_compression)
        self.layers = tuple(message.layers)
        self.has_lists = has_repetition(self.layers)
        self.is_variable = message.WhichOneof("details") == "bits_per_offset"
        self.bits = message.bits_per_offset if self.is_variable else message.bits_per_value
        self.has_index = self.is_variable or self.has_lists
        self.level_bits = {"repetition": message.bits_rep, "definition": message.bits_def}
        self.control_bytes = control_bytes_of(message.bits_rep, message.bits_def)
        self.num_visible_items = message.num_visible_items
        self.value_shape: Shape = self.codec.shape
        self._check(message)
        self.stride_bytes = self.control_bytes + self.bits // 8
        self.is_plain = not self.has_index and not self.control_bytes and not _has_item_validity(self.value_shape)
        self.join_key = self._join_key()
        head = struct.pack("<BBBI", message.bits_rep, message.bits_def, self.is_variable, self.bits)
        values = tree.program_of(self.codec, source.path.value_bytes_max)
        self.program = head + source.path.compile_layers(self.layers) + values
        _check_level_bits(self.layers, message.bits_rep, message.bits_def)

    def _check(self, message: pb.FullZipLayout) -> None:
        source = self.source
        if message.WhichOneof("details") is None:
            raise FormatError("full-zip page with neither bits_per_value nor bits_per_offset")
        if self.has_lists != bool(message.bits_rep):
            raise FormatError(f"{message.bits_rep} bits of repetition for layers {list(self.layers)}")
        check_shape(_plain_type(source.path.leaf_type), self.value_shape)
        if isinstance(self.codec, tree.VariablePackedStruct) and not source.rules.packed_variable:
            raise FormatError(f"packed struct of variable width in a file of version {source.rules.name}")
        if not tree.zips(self.codec, with_lengths=self.is_variable):
            how = "behind their lengths" if self.is_variable else "all of one width"
            raise FormatError(f"full-zip values {how} cannot be of codec {self.codec}")
        source.expect_buffers(2 if self.has_index else 1)
        if self.is_variable:
            if self.bits not in (32, 64):
                raise FormatError(f"length prefixes of {self.bits} bits; expected 32 or 64")
        elif self.bits % 8 or self.bits != shape_bits(self.value_shape):
            raise FormatError(f"values of {self.bits} bits announced; {self.codec} has {shape_bits(self.value_shape)}")
        self._check_items(message.num_items, message.num_visible_items)
        if self.has_index:
            _ = self.index_width_bytes  # raises for an invalid size

    def _check_items(self, num_items: int, num_visible: int) -> None:
        """Raise FormatError unless entries, items, rows and bytes of data fit together (spec: 5.1)."""
        fits = (
            self.num_rows <= num_items >= num_visible if self.has_lists else self.num_rows == num_items == num_visible
        )
        if not fits:
            raise FormatError(f"{num_items} entries with {num_visible} items in a page of {self.num_rows} rows")
        size, min_bytes = self.source.buffer_sizes[0], num_items * self.control_bytes
        if self.is_variable:
            if size < min_bytes:
                raise FormatError(f"{size} bytes of data; the control words of {num_items} entries need {min_bytes}")
        elif size != min_bytes + num_visible * self.bits // 8:
            raise FormatError(
                f"{size} bytes of data; {num_items} entries with {num_visible} items of {self.bits // 8} bytes need "
                f"{min_bytes + num_visible * self.bits // 8}"
            )

    @property
    def index_width_bytes(self) -> int:
        """Bytes per entry of the repetition index."""
        size, entries = self.source.buffer_sizes[1], self.num_rows + 1
        width = size // entries
        if width not in (1, 2, 4, 8) or width * entries != size:
            raise FormatError(f"repetition index of {size} bytes for {self.num_rows} rows")
        return width

    # -- reading -----------------------------------------------------------------------------------------------------

    def index_ranges(self) -> Ranges | None:
        """The range of the repetition index. None if the page has no such index, or one too large to cache."""
        if not self.has_index or self.source.buffer_sizes[1] > REPETITION_INDEX_KEPT_BYTES_MAX:
            return None
        return self.source.ranges([1], "index")

    def _join_key(self) -> str | None:
        path = self.source.path
        if not self.is_plain or path.slots_per_row != 1 or pa.types.is_dictionary(path.leaf_type):
            return None
        return f"plain {path.array_kind} {self.value_shape!r}"

    def plain_index(self) -> PlainIndex:
        """The index of pages with a `join_key`."""
        base, depth = self.source.buffer_offsets[0], _list_depth(self.value_shape)
        return PlainIndex(_kernels.PlainPage(base, self.stride_bytes, self.num_rows, len(self.layers), depth))

    def load_index(self, fetched: Fetched) -> FullZipIndex:
        """Keep the index as stored; bounds are checked when they are used."""
        return FullZipIndex(bytes(fetched.piece(0, self.source.buffer_sizes[1])), self.index_width_bytes)

    def read(
        self,
        index: PageIndex | None,
        selection: RowSelection,
        inspect: Callable[[Fetched, IntArray], None] | None = None,
    ) -> Steps[pa.Array]:
        """The selected rows: one round, or two if the index is read by entry.

        inspect  called before decoding, with the fetched entries and the bytes of each fetched range
        """
        ends = selection.starts + 1 if selection.ends is None else selection.ends
        bounds = yield from self.bounds(index, selection)
        base = self.source.buffer_offsets[0]
        fetched = yield Ranges(bounds[0] + base, bounds[1] + base, keep=self.is_plain)
        if inspect is not None:
            inspect(fetched, bounds[1] - bounds[0])
        return self._decode(fetched, bounds[1] - bounds[0], ends - selection.starts, selection.num_rows)

    def bounds(self, index: PageIndex | None, rows: RowSelection) -> Steps[tuple[IntArray, IntArray]]:
        """Start and end of each range of rows in the data; takes a round if the index is read by entry."""
        ends = rows.starts + 1 if rows.ends is None else rows.ends
        if not self.has_index:
            return rows.starts * self.stride_bytes, ends * self.stride_bytes
        if isinstance(index, FullZipIndex):
            return self._bounds(index, rows)
        return (yield from self._bounds_by_entry(rows.starts, ends))

    def data_bounds(self, index: FullZipIndex, rows: RowSelection) -> tuple[int, int]:
        """Start and end of the entries of a run of rows in the data."""
        low, high = self._bounds(index, rows)
        return int(low[0]), int(high[-1])

    def _bounds(self, index: FullZipIndex, rows: RowSelection) -> tuple[IntArray, IntArray]:
        size = self.source.buffer_sizes[0]
        try:
            starts, ends = _kernels.fullzip_bounds(index.entries, index.width_bytes, rows.starts, rows.ends, size)
        except DamagedError as error:
            raise damage_error(error) from None
        return int64s(starts), int64s(ends)

    def _bounds_by_entry(self, starts: IntArray, ends: IntArray) -> Steps[tuple[IntArray, IntArray]]:
        """Read two entries of the index per row range, at its start and its end: the first of two rounds."""
        base, width = self.source.buffer_offsets[1], self.index_width_bytes
        first = Ranges(starts * width, (starts + 1) * width, "index")
        last = Ranges(ends * width, (ends + 1) * width, "index")
        both = np.stack([first.starts, last.starts], axis=1).ravel() + base
        fetched = yield Ranges(both, both + width, "index")
        lengths = np.full(len(starts), 2 * width, dtype=np.int64)
        pairs = _kernels.gather_ranges(fetched.buffer, fetched.offsets, np.array([width], dtype=np.int64))
        offsets = np.arange(len(starts), dtype=np.int64) * (2 * width)
        try:
            low, high = _kernels.fullzip_pairs(pairs, offsets, lengths, width, self.source.buffer_sizes[0])
        except DamagedError as error:
            raise damage_error(error) from None
        return int64s(low), int64s(high)

    def scan(self) -> Steps[pa.Array]:
        """All entries in one round; entries delimit themselves, so the index is not needed."""
        fetched = yield self.source.ranges([0], "data", keep=self.is_plain)
        sizes = np.array([self.source.buffer_sizes[0]], dtype=np.int64)
        return self._decode(fetched, sizes, np.array([self.num_rows], dtype=np.int64), self.num_rows, is_whole=True)

    def _decode(
        self, fetched: Fetched, lengths: IntArray, rows: IntArray, num_rows: int, *, is_whole: bool = False
    ) -> pa.Array:
        if self.is_plain:
            leaf = self._plain_leaf(fetched, lengths, num_rows)
        else:
            try:
                leaf = _kernels.decode_fullzip(self.program, fetched.buffer, fetched.offsets, lengths, rows)
            except DamagedError as error:
                raise damage_error(error) from None
        if is_whole and leaf[0] != self.num_visible_items:
            raise FormatError(f"{leaf[0]} items found; the page announces {self.num_visible_items}")
        return self.build(leaf)

    def build(self, leaf: Leaf) -> pa.Array:
        """Nest decoded rows of this page, or of pages with the same `join_key`."""
        return self.nested(self.source.path, leaf)

    def nested(self, path: LeafPath, leaf: Leaf) -> pa.Array:
        """As `build`, for another path to the same leaf."""
        num_items, values, layers = leaf
        _, validity, null_count, _ = layers[0]
        dtype = path.leaf_type
        array = build_values(_plain_type(dtype), self.value_shape, values, num_items, validity, null_count)
        if pa.types.is_dictionary(dtype):
            array = array.dictionary_encode().cast(dtype)
        return nest(path, array, layers)

    def _plain_leaf(self, fetched: Fetched, lengths: IntArray, num_rows: int) -> Leaf:
        """The fetched bytes are the array, zero-copy; only ranges that are not contiguous are gathered."""
        offsets = fetched.offsets
        data: Any
        if len(offsets) == 0:
            data = b""
        elif len(offsets) == 1 or bool((offsets[1:] == offsets[:-1] + lengths[:-1]).all()):
            start = int(offsets[0])
            data = memoryview(fetched.buffer).cast("B")[start : start + int(lengths.sum())]
        else:
            data = _kernels.gather_ranges(fetched.buffer, offsets, lengths)
        values = [None] * _list_depth(self.value_shape) + [data]
        return num_rows, values, [(num_rows, None, 0, None)] * len(self.layers)

    def describe(self) -> PageDescription:
        """A readable description: layout, codec chain, sizes."""
        details: dict[str, str | int] = {"control_bytes": self.control_bytes}
        if self.has_index:
            details["repetition_index_bytes"] = self.source.buffer_sizes[1]
        levels = {name: f"control_word({bits})" for name, bits in self.level_bits.items() if bits}
        return PageDescription("full-zip", str(self.codec), self.num_rows, self.source.num_bytes, details, levels)


def control_bytes_of(bits_rep: int, bits_def: int) -> int:
    """Bytes of control words for levels of these bits. Raises FormatError for more than 16 bits of a kind."""
    bits = bits_rep + bits_def
    if bits_rep > 16 or bits_def > 16:
        raise FormatError(f"control words of {bits_rep} + {bits_def} bits; levels have at most 16")
    return 0 if bits == 0 else 1 if bits <= 8 else 2 if bits <= 16 else 4


def _check_level_bits(layers: Sequence[int], bits_rep: int, bits_def: int) -> None:
    """Raise FormatError if control words have more bits than the levels of these layers need."""
    most_rep = sum(layer in LIST_LAYERS for layer in layers).bit_length()
    most_def = sum(DEFINITION_LEVELS[layer] for layer in layers).bit_length()
    if bits_rep > most_rep or bits_def > most_def:
        raise FormatError(
            f"control words of {bits_rep} + {bits_def} bits; the levels of layers {list(layers)} have at most "
            f"{most_rep} + {most_def}"
        )


def _plain_type(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _has_item_validity(shape: Shape) -> bool:
    """Whether values contain validity bits or partial bytes, so that their buffer is not an Arrow buffer."""
    if isinstance(shape, ListShape):
        return shape.has_validity or _has_item_validity(shape.inner) or bool(shape_bits(shape.inner) % 8)
    return not isinstance(shape, VariableShape) and shape_bits(shape) % 8 != 0


def _list_depth(shape: Shape) -> int:
    return 1 + _list_depth(shape.inner) if isinstance(shape, ListShape) else 0
