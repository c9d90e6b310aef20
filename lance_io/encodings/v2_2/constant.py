"""Constant pages of file version 2.2: one value for every visible item, or null for all.

    inline_value  buffers  meaning
    set           0        fixed-width value of at most 32 bytes, no levels
    set           2        the same with levels: buffer 0 repetition, buffer 1 definition
    absent        1        buffer 0 is a scalar: u32 number of Arrow buffers, u32 length of each, their bytes
    absent        3        scalar, repetition, definition
    absent        0, 2     all null, as in 2.1; levels may be compressed (fields 7 to 10)

Specification: structural encodings 2.1, section 10.3.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.codecs.tree import FixedShape, ListShape, Shape, VariableShape
from lance_io.encodings.api import PageDescription
from lance_io.encodings.v2_1.constant import ConstantIndex, NullPage
from lance_io.encodings.v2_1.miniblock import decode_levels_codec
from lance_io.encodings.v2_1.page import PageSource, damage_error
from lance_io.encodings.values import build_values
from lance_io.errors import FormatError, ResourceLimitError, UnsupportedError
from lance_io.limits import PAGE_ROWS_MAX, VALUE_BYTES_MAX
from lance_io.proto import encodings21_pb2 as pb
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_io._kernels import Layer
    from lance_io.codecs.tree import Codec

INLINE_VALUE_BYTES_MAX = 32
LEVEL_BYTES: Final = 2


class ConstantPage(NullPage):
    """One constant or all-null page of file version 2.2."""

    def __init__(self, source: PageSource, message: pb.ConstantLayout) -> None:
        self.inline_value = message.inline_value if message.HasField("inline_value") else None
        self.message = message
        has_rep, has_def = message.HasField("rep_compression"), message.HasField("def_compression")
        self.rep_codec = decode_levels_codec(message.rep_compression) if has_rep else None
        self.def_codec = decode_levels_codec(message.def_compression) if has_def else None
        super().__init__(source, message)

    @cached_property
    def is_plain(self) -> bool:
        """Whether it has one value per row, no levels, and belongs to a top-level leaf: see `whole`."""
        dtype = self.source.path.leaf_type
        is_leaf = len(self.source.path.nodes) == 1 and self.source.path.members is None and tuple(self.layers) == (1,)
        return is_leaf and self.is_constant and len(self.source.buffer_sizes) < 2 and not pa.types.is_dictionary(dtype)

    def relocated(self, source: PageSource, inline_value: bytes | None) -> ConstantPage:
        """The layout of a page that `is_plain`, with another source of as many buffers, or with another value."""
        page = ConstantPage.__new__(ConstantPage)
        page.source = source
        page.num_rows = source.num_rows
        page.layers = self.layers
        page.program = self.program
        page.inline_value = inline_value
        page.message = self.message
        page.rep_codec = self.rep_codec
        page.def_codec = self.def_codec
        page.is_plain = True
        return page

    def whole(self, part: memoryview | None) -> pa.Array:
        """All rows of a page that `is_plain`; `part` is its buffer, if any."""
        dtype, count, value = self.source.path.leaf_type, self.num_rows, self.inline_value
        if value is not None and _is_of_width(dtype, len(value)):
            return pa.Array.from_buffers(dtype, count, [None, pa.py_buffer(value * count)], 0)
        stored = (value,) if value is not None else _scalar_buffers(memoryview(b"") if part is None else part)
        shape, buffers = _repeat(dtype, stored, count)
        return build_values(dtype, shape, buffers, count, None, 0)

    def _check(self, message: pb.ConstantLayout) -> None:
        count = len(self.source.buffer_sizes)
        if count not in ((0, 2) if self.inline_value is not None else (0, 1, 2, 3)):
            raise FormatError(f"a constant page with {count} buffers")
        if self.inline_value is not None and len(self.inline_value) > INLINE_VALUE_BYTES_MAX:
            raise FormatError(f"inline value of {len(self.inline_value)} bytes; at most {INLINE_VALUE_BYTES_MAX}")
        if max(message.num_rep_values, message.num_def_values) > PAGE_ROWS_MAX:
            raise FormatError(f"{message.num_rep_values} and {message.num_def_values} levels in one page")
        for name, codec, num_levels in (
            ("rep_compression", self.rep_codec, message.num_rep_values),
            ("def_compression", self.def_codec, message.num_def_values),
        ):
            if num_levels and codec is None:
                raise FormatError(f"{num_levels} levels announced without their {name}")
        if count == 0 and self.inline_value is None and tuple(message.layers) != (3,):
            raise FormatError(f"an all-null page with layers {list(self.layers)} needs its levels")

    @property
    def is_constant(self) -> bool:
        """True when the page holds a value, False when all is null."""
        return self.inline_value is not None or len(self.source.buffer_sizes) in (1, 3)

    def _level_buffers(self) -> tuple[int, int]:
        return (1, 2) if len(self.source.buffer_sizes) == 3 else (0, 1)

    def _load(self, parts: list[memoryview]) -> ConstantIndex:
        message = self.message
        rep = definition = None
        if len(parts) >= 2:
            first, second = self._level_buffers()
            rep = self._levels(parts[first], self.rep_codec, message.num_rep_values)
            definition = self._levels(parts[second], self.def_codec, message.num_def_values)
        value: tuple[bytes, ...] = ()
        if len(parts) in (1, 3):
            value = _scalar_buffers(parts[0])
        return ConstantIndex(rep, definition, value)

    def _levels(self, part: memoryview, codec: Codec | None, num_values: int) -> npt.NDArray[np.uint16] | None:
        if codec is None:
            return self._raw_levels(part)
        self._check_bytes(LEVEL_BYTES * num_values, "levels")
        try:
            levels = _kernels.decode_levels(codec.program(), part, num_values)
        except DamagedError as error:
            raise damage_error(error) from None
        return np.frombuffer(memoryview(levels), dtype=np.uint16)

    def _leaf(self, index: ConstantIndex | None, layer: Layer, num_items: int, *, known: bool) -> pa.Array:
        if not self.is_constant:
            return super()._leaf(index, layer, num_items, known=known)
        value = (self.inline_value,) if self.inline_value is not None else (index.value if index else ())
        dtype = self.source.path.leaf_type
        plain = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
        if index is not None and index.rep is not None:
            self._check_bytes(sum(map(len, value)) * num_items, "values")
        shape, buffers = _repeat(plain, value, num_items)
        array = build_values(plain, shape, buffers, num_items, layer[1], layer[2])
        return array.dictionary_encode().cast(dtype) if plain is not dtype else array

    def _check_bytes(self, num_bytes: int, what: str) -> None:
        """Raise ResourceLimitError if levels expand to more than one value may take: a page with levels is decoded
        whole, so a few bytes could expand to any size.
        """
        bytes_max = max(VALUE_BYTES_MAX, self.source.path.value_bytes_max)
        if num_bytes > bytes_max:
            raise ResourceLimitError(
                f"{num_bytes} bytes of {what} in a page of lists; max_decoded_bytes is {bytes_max}: open the table "
                "with a larger one to read it"
            )

    def describe(self) -> PageDescription:
        """A readable description: layout and sizes."""
        name = "constant" if self.is_constant else "all-null"
        return PageDescription(name, "none", self.num_rows, self.source.num_bytes, levels=self._levels_shown())

    def _level_codecs(self) -> tuple[Codec, Codec]:
        plain = super()._level_codecs()
        return self.rep_codec or plain[0], self.def_codec or plain[1]


def value_at(encoding: bytes, page: ConstantPage) -> tuple[bytes, bytes] | None:
    """The bytes before and after the value in a page's message: a template for other values of the same length.

    Without an inline value, all bytes are before it. None if the value cannot be located with certainty.
    """
    value = page.inline_value
    if value is None:
        return encoding, b""
    at = encoding.find(value) if value else -1
    while at >= 0:  # other bytes may equal a short value
        before, behind = encoding[:at], encoding[at + len(value) :]
        if _is_value(encoding, value, before, behind):
            return before, behind
        at = encoding.find(value, at + 1)
    return None


def _is_value(encoding: bytes, value: bytes, before: bytes, behind: bytes) -> bool:
    """Whether replacing these bytes in the message changes the inline value and nothing else."""
    others = bytes(255 - byte for byte in value)
    try:
        message, changed = pb.PageLayout.FromString(encoding), pb.PageLayout.FromString(before + others + behind)
    except DecodeError:
        return False
    if changed.constant_layout.inline_value != others:
        return False
    changed.constant_layout.inline_value = value
    return bool(changed == message)


def whole_ranges(pages: Sequence[ConstantPage]) -> Ranges:
    """All buffers of pages."""
    starts = np.array([at for page in pages for at in page.source.buffer_offsets], dtype=np.int64)
    return Ranges(starts, starts + np.array([size for page in pages for size in page.source.buffer_sizes], np.int64))


def _is_of_width(dtype: pa.DataType, num_bytes: int) -> bool:
    """Whether values of a type take `num_bytes` each in memory."""
    if pa.types.is_nested(dtype) or pa.types.is_boolean(dtype):
        return False
    return _byte_width(dtype) == num_bytes > 0


def _scalar_buffers(part: memoryview) -> tuple[bytes, ...]:
    """Split a scalar buffer into its Arrow buffers."""
    if len(part) < 4:
        raise FormatError(f"scalar of {len(part)} bytes")
    (count,) = struct.unpack_from("<I", part)
    if not 1 <= count <= 3 or len(part) < 4 + 4 * count:
        raise FormatError(f"scalar of {len(part)} bytes that announces {count} buffers")
    lengths = struct.unpack_from(f"<{count}I", part, 4)
    start = 4 + 4 * count
    if start + sum(lengths) != len(part):
        raise FormatError(f"scalar of {len(part)} bytes; its {count} buffers need {start + sum(lengths)}")
    buffers = []
    for length in lengths:
        buffers.append(bytes(part[start : start + length]))
        start += length
    return tuple(buffers)


def _repeat(dtype: pa.DataType, value: tuple[bytes, ...], count: int) -> tuple[Shape, list[Any]]:
    """Buffers of `count` copies of a value, and their shape."""
    if pa.types.is_boolean(dtype) and len(value) == 1 and len(value[0]) == 1:
        fill = b"\xff" if value[0] != b"\x00" else b"\x00"
        return FixedShape(1), [fill * ((count + 7) // 8)]
    if pa.types.is_fixed_size_list(dtype) and len(value) == 1:
        return _repeat_list(dtype, value[0], count)
    if len(value) == 1 and not pa.types.is_nested(dtype) and _byte_width(dtype) == len(value[0]):
        data = np.tile(np.frombuffer(value[0], dtype=np.uint8), count)
        return FixedShape(len(value[0]) * 8), [data]
    if len(value) == 2:
        return _repeat_variable(dtype, value[0], value[1], count)
    raise UnsupportedError(
        f"a constant page of {dtype} stored as {len(value)} buffers of {list(map(len, value))} bytes"
    )


def _repeat_list(dtype: pa.DataType, value: bytes, count: int) -> tuple[Shape, list[Any]]:
    item, size = dtype.value_type, dtype.list_size
    if pa.types.is_nested(item) or pa.types.is_boolean(item) or _byte_width(item) * size != len(value):
        raise UnsupportedError(f"a constant page of {dtype} with a value of {len(value)} bytes")
    data = np.tile(np.frombuffer(value, dtype=np.uint8), count)
    return ListShape(size, False, FixedShape(_byte_width(item) * 8)), [None, data]


def _repeat_variable(dtype: pa.DataType, offsets: bytes, data: bytes, count: int) -> tuple[Shape, list[Any]]:
    wide = pa.types.is_large_string(dtype) or pa.types.is_large_binary(dtype)
    if not wide and not pa.types.is_string(dtype) and not pa.types.is_binary(dtype):
        raise FormatError(f"a constant page of {dtype} that stores offsets")
    kind = np.int64 if wide else np.int32
    if len(offsets) != 2 * np.dtype(kind).itemsize:
        raise FormatError(f"offsets of {len(offsets)} bytes in the scalar of a constant page of {dtype}")
    first, last = (int(x) for x in np.frombuffer(offsets, dtype=kind))
    if not 0 <= first <= last <= len(data):
        raise FormatError(f"scalar bytes {first} to {last} of {len(data)}")
    size = last - first
    if not wide and size * count > np.iinfo(np.int32).max:
        raise UnsupportedError(f"{count} copies of {size} bytes exceed the 2 GiB of one {dtype} array; read fewer rows")
    repeated = np.tile(np.frombuffer(data[first:last], dtype=np.uint8), count)
    return VariableShape(64 if wide else 32), [(np.arange(count + 1, dtype=np.int64) * size).astype(kind), repeated]


def _byte_width(dtype: pa.DataType) -> int:
    try:
        return int(dtype.bit_width) // 8
    except ValueError:
        return 0
