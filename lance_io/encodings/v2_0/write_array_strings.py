"""Writes strings and bytes of version 2.0 (spec: encodings 2.0, 5.5 to 5.7 and 7).

few distinct    `string` pages of 100 rows or more with fewer than 100 distinct values: a dictionary
otherwise       ends and bytes; the field's options compress the bytes all together or (fsst) value by value
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.encodings.v2_0.buffers import SCHEMES
from lance_io.encodings.v2_0.variable import END_BYTES
from lance_io.encodings.written import EncodedPage, PageBuffer, Role
from lance_io.limits import KIB
from lance_io.proto import encodings_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.encodings.options import ColumnOptions

DICTIONARY_ROWS_MIN: Final = 100
DICTIONARY_ITEMS_MAX: Final = 99
CODED_BYTES_MIN: Final = 32 * KIB  # below, a symbol table does not pay off: stored raw
RAW_SYMBOLS: Final = (bytes(4) + b"TSSF").ljust(2312, b"\0")


class PageParts:
    """The buffers of a page, numbered in the order of `add`, as messages refer to them."""

    def __init__(self) -> None:
        self._buffers: list[PageBuffer] = []

    def add(self, data: Any) -> pb.Buffer:
        """Add a buffer."""
        self._buffers.append(PageBuffer(Role.DATA, [data]))
        return pb.Buffer(buffer_index=len(self._buffers) - 1)

    def replace_last(self, change: Callable[[Any], Any]) -> None:
        """Replace the last buffer by `change(buffer)`."""
        [data] = self._buffers[-1].parts
        self._buffers[-1] = PageBuffer(Role.DATA, [change(data)])

    def page(self, num_rows: int, message: pb.ArrayEncoding) -> EncodedPage:
        """The page of these buffers."""
        return EncodedPage(num_rows, message.SerializeToString(deterministic=True), tuple(self._buffers))


def encode_binary(array: pa.Array, parts: PageParts, options: ColumnOptions | None) -> pb.ArrayEncoding:
    """Encode values of variable width: ends, which include the nulls, and bytes.

    options  of the field; None for the items of a dictionary
    """
    array = _without_hidden(array)
    offsets, data = _buffers(array)
    compression = None if options is None else options.compression
    if compression == "fsst" and offsets.dtype == np.int32:
        return _encode_coded(array, offsets, data, parts)
    plain = _binary(array, offsets, data, parts)
    if options is not None and compression in (*SCHEMES, "none"):
        _compress(plain, parts, options)
    return plain


def _encode_coded(array: pa.Array, offsets: Any, data: memoryview, parts: PageParts) -> pb.ArrayEncoding:
    symbols: Any = RAW_SYMBOLS
    if len(data) >= CODED_BYTES_MIN:
        symbols, coded, codes = _kernels.encode_fsst(offsets - offsets[0], data, False, len(array))
        offsets, data = np.frombuffer(memoryview(coded), np.int32), memoryview(codes).cast("B")
    message = pb.Fsst(binary=_binary(array, offsets, data, parts), symbol_table=bytes(symbols))
    return pb.ArrayEncoding(fsst=message)


def _binary(array: pa.Array, offsets: Any, data: memoryview, parts: PageParts) -> pb.ArrayEncoding:
    ends = (offsets[1:] - offsets[0]).astype(np.uint64)
    adjustment = len(data) + 1 if len(array) else 0
    if array.null_count:
        ends[array.is_null().to_numpy(zero_copy_only=False)] += np.uint64(adjustment)
    indices = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=8 * END_BYTES, buffer=parts.add(ends)))
    wrapped = pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNulls(values=indices)))
    values = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=8, buffer=parts.add(data)))
    return pb.ArrayEncoding(binary=pb.Binary(indices=wrapped, bytes=values, null_adjustment=adjustment))


def _compress(message: pb.ArrayEncoding, parts: PageParts, options: ColumnOptions) -> None:
    """Compress the bytes of strings, which are the last buffer."""
    name = options.compression
    assert name is not None, "the field names a codec"
    compression = message.binary.bytes.flat.compression
    compression.scheme = name
    if options.compression_level is not None:
        compression.level = options.compression_level
    if name in SCHEMES:
        parts.replace_last(lambda data: _kernels.compress_block(data, SCHEMES[name], options.compression_level))


def _without_hidden(array: pa.Array) -> pa.Array:
    """Remove the bytes under nulls if they are not valid text, because they are stored and pylance reads them."""
    if not array.null_count or array.type not in (pa.string(), pa.large_string()):
        return array
    offsets, data = _buffers(array)
    is_wide = offsets.dtype == np.int64
    if not np.diff(offsets)[array.is_null().to_numpy(zero_copy_only=False)].any():
        return array
    if _kernels.find_invalid_text(data, offsets - offsets[0], is_wide, None, 0) is None:
        return array
    return array.take(pa.array(np.arange(len(array))))


def _buffers(array: pa.Array) -> tuple[Any, memoryview]:
    """Offsets, from any start, and the bytes that they refer to."""
    kind = np.int64 if array.type in (pa.large_string(), pa.large_binary()) else np.int32
    _, offsets, data = array.buffers()
    if not len(array) or offsets is None:
        return np.zeros(1, kind), memoryview(b"")
    bounds = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
    return bounds, memoryview(data or b"").cast("B")[int(bounds[0]) : int(bounds[-1])]


def distinct_strings(array: pa.Array) -> tuple[Any, pa.Array] | None:
    """Codes, u8, 0 for null, and the distinct strings by first appearance; None if a dictionary does not pay off."""
    if len(array) < DICTIONARY_ROWS_MIN:
        return None
    valid = array.drop_null() if array.null_count else array
    offsets, data = _buffers(valid)
    bytes_max = len(data) + offsets.nbytes
    distinct = _kernels.distinct_variable(
        offsets - offsets[0], data, False, len(valid), DICTIONARY_ITEMS_MAX, bytes_max
    )
    if distinct is None:
        return None
    positions, item_offsets, item_bytes = distinct
    num_items = len(memoryview(item_offsets).cast("B")) // 4 - 1
    buffers = [None, pa.py_buffer(item_offsets), pa.py_buffer(item_bytes)]
    items = pa.Array.from_buffers(pa.string(), num_items, buffers, 0) if num_items else pa.nulls(1, pa.string())
    codes = np.zeros(len(array), np.uint8)
    numbers = np.frombuffer(memoryview(positions), np.int32).astype(np.uint8) + np.uint8(1)
    if array.null_count:
        codes[array.is_valid().to_numpy(zero_copy_only=False)] = numbers
    else:
        codes = numbers
    return codes, items
