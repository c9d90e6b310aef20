"""Encodes strings and binary values for files of version 2.0 (spec: encodings 2.0, 5.5 to 5.7 and 7).

A page of type `string` with at least 100 rows and fewer than 100 distinct values is stored as a dictionary: codes, and
the distinct values. All other pages are stored as ends and bytes: the bytes are those of all values of the page, and an
end is the offset behind the last byte of a value. If the field's options ask for compression, FSST compresses each
value by itself; other codecs compress the bytes of a page as one block.
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
DICTIONARY_VALUES_MAX: Final = 99
FSST_BYTES_MIN: Final = 32 * KIB  # shorter data is stored raw in a page of FSST: a symbol table does not pay off
# The symbol table that marks raw bytes. Every symbol table has 2312 bytes; the header, bytes 0 to 7, ends in "TSSF".
RAW_SYMBOL_TABLE: Final = (bytes(4) + b"TSSF").ljust(2312, b"\0")


class PageParts:
    """The buffers of a page that is being encoded. Encoding messages refer to a buffer by its index."""

    def __init__(self) -> None:
        self._buffers: list[PageBuffer] = []

    def add(self, data: Any) -> pb.Buffer:
        """Add a buffer; returns the reference to it for an encoding message."""
        self._buffers.append(PageBuffer(Role.DATA, [data]))
        return pb.Buffer(buffer_index=len(self._buffers) - 1)

    def transform_last(self, transform: Callable[[Any], Any]) -> None:
        """Replace the last buffer by `transform(buffer)`."""
        [data] = self._buffers[-1].parts
        self._buffers[-1] = PageBuffer(Role.DATA, [transform(data)])

    def page(self, num_rows: int, message: pb.ArrayEncoding) -> EncodedPage:
        """Build the page from all buffers and the encoding message that refers to them."""
        return EncodedPage(num_rows, message.SerializeToString(deterministic=True), tuple(self._buffers))


def encode_binary(array: pa.Array, parts: PageParts, options: ColumnOptions | None) -> pb.ArrayEncoding:
    """Encode strings or binary values: add their ends and bytes to `parts`, and return the encoding message.

    options  options of the field; None for the distinct values of a dictionary
    """
    array = _drop_invalid_text_under_nulls(array)
    offsets, data = _offsets_and_bytes(array)
    compression = None if options is None else options.compression
    if compression == "fsst" and offsets.dtype == np.int32:
        return _encode_fsst(array, offsets, data, parts)
    message = _encode_ends_and_bytes(array, offsets, data, parts)
    if options is not None and compression in (*SCHEMES, "none"):
        _apply_codec(message, parts, options)
    return message


def _encode_fsst(array: pa.Array, offsets: Any, data: memoryview, parts: PageParts) -> pb.ArrayEncoding:
    """Encode values with FSST, each by itself, so that a reader can decode single values."""
    symbol_table: Any = RAW_SYMBOL_TABLE
    if len(data) >= FSST_BYTES_MIN:
        symbol_table, coded_offsets, codes = _kernels.encode_fsst(offsets - offsets[0], data, False, len(array))
        offsets, data = np.frombuffer(memoryview(coded_offsets), np.int32), memoryview(codes).cast("B")
    message = pb.Fsst(binary=_encode_ends_and_bytes(array, offsets, data, parts), symbol_table=bytes(symbol_table))
    return pb.ArrayEncoding(fsst=message)


def _encode_ends_and_bytes(array: pa.Array, offsets: Any, data: memoryview, parts: PageParts) -> pb.ArrayEncoding:
    """Add ends and bytes to `parts`. To mark a value as null, `null_adjustment` is added to the end of the value.

    array  gives the number of values and the nulls
    """
    ends = (offsets[1:] - offsets[0]).astype(np.uint64)
    adjustment = len(data) + 1 if len(array) else 0
    if array.null_count:
        ends[array.is_null().to_numpy(zero_copy_only=False)] += np.uint64(adjustment)
    flat_ends = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=8 * END_BYTES, buffer=parts.add(ends)))
    indices = pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNulls(values=flat_ends)))
    values = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=8, buffer=parts.add(data)))
    return pb.ArrayEncoding(binary=pb.Binary(indices=indices, bytes=values, null_adjustment=adjustment))


def _apply_codec(message: pb.ArrayEncoding, parts: PageParts, options: ColumnOptions) -> None:
    """Name the codec in the message, and compress the last buffer of `parts`, the bytes of all values, as one block.

    The codec `none` leaves the bytes as they are.
    """
    name = options.compression
    assert name is not None, "the caller has checked that the options contain a codec"
    compression = message.binary.bytes.flat.compression
    compression.scheme = name
    if options.compression_level is not None:
        compression.level = options.compression_level
    if name in SCHEMES:
        parts.transform_last(lambda data: _kernels.compress_block(data, SCHEMES[name], options.compression_level))


def _drop_invalid_text_under_nulls(array: pa.Array) -> pa.Array:
    """Remove the bytes that Arrow has under nulls, if these bytes are not valid UTF-8.

    A page contains the bytes under nulls, and pylance reads these bytes as text, too.
    """
    if not array.null_count or array.type not in (pa.string(), pa.large_string()):
        return array
    offsets, data = _offsets_and_bytes(array)
    is_wide = offsets.dtype == np.int64
    if not np.diff(offsets)[array.is_null().to_numpy(zero_copy_only=False)].any():
        return array
    if _kernels.find_invalid_text(data, offsets - offsets[0], is_wide, None, 0) is None:
        return array
    return array.take(pa.array(np.arange(len(array))))  # a taken null has no bytes


def _offsets_and_bytes(array: pa.Array) -> tuple[Any, memoryview]:
    """The offsets of an array and the bytes between the first and the last of them.

    The first offset need not be 0, while the bytes begin at the first value.
    """
    dtype = np.int64 if array.type in (pa.large_string(), pa.large_binary()) else np.int32
    _, offsets, data = array.buffers()
    if not len(array) or offsets is None:
        return np.zeros(1, dtype), memoryview(b"")
    own_offsets = np.frombuffer(offsets, dtype)[array.offset : array.offset + len(array) + 1]
    return own_offsets, memoryview(data or b"").cast("B")[int(own_offsets[0]) : int(own_offsets[-1])]


def encode_few_distinct(array: pa.Array) -> tuple[Any, pa.Array] | None:
    """Encode an array as a dictionary, if it has at least 100 rows and fewer than 100 distinct strings.

    Returns codes and distinct strings; None without these, and if they take more bytes than the strings. A code is u8:
    0 for null, otherwise 1 plus the index of the distinct string. Distinct strings are in the order of their first
    appearance.
    """
    if len(array) < DICTIONARY_ROWS_MIN:
        return None
    valid = array.drop_null() if array.null_count else array
    offsets, data = _offsets_and_bytes(valid)
    plain_bytes = len(data) + offsets.nbytes  # a dictionary must not take more
    distinct = _kernels.distinct_variable(
        offsets - offsets[0], data, False, len(valid), DICTIONARY_VALUES_MAX, plain_bytes
    )
    if distinct is None:
        return None
    indices, distinct_offsets, distinct_bytes = distinct
    num_distinct = len(memoryview(distinct_offsets).cast("B")) // 4 - 1
    buffers = [None, pa.py_buffer(distinct_offsets), pa.py_buffer(distinct_bytes)]
    # if all strings are null, the dictionary is one null, to which no code refers
    values = pa.Array.from_buffers(pa.string(), num_distinct, buffers, 0) if num_distinct else pa.nulls(1, pa.string())
    valid_codes = np.frombuffer(memoryview(indices), np.int32).astype(np.uint8) + np.uint8(1)
    if not array.null_count:
        return valid_codes, values
    codes = np.zeros(len(array), np.uint8)
    codes[array.is_valid().to_numpy(zero_copy_only=False)] = valid_codes
    return codes, values
