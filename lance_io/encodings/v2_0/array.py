"""Opens an `ArrayEncoding` message as a reader of its values (spec: encodings 2.0, sections 3 to 5).

Messages nest: `nullable` around `fixed_size_list` around `nullable` around `flat`. Each becomes an object that reads
ranges of its values in one or two rounds. It is checked against the Arrow type that the values must have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from lance_io.codecs.tree import check_symbols
from lance_io.encodings.rounds import together
from lance_io.encodings.v2_0.buffers import PageBuffers, Runs, StoredBuffer
from lance_io.encodings.v2_0.dictionary import DictionaryValues
from lance_io.encodings.v2_0.fixed import (
    GROUP,
    AllNull,
    BitPacked,
    EmptyStructs,
    FixedSizeLists,
    Flat,
    FlatBits,
    GroupPacked,
    PackedRows,
    member_widths,
)
from lance_io.encodings.v2_0.variable import (
    END_BYTES,
    WIDE_TYPES,
    Coded,
    Ends,
    FixedSizeStrings,
    Variable,
)
from lance_io.errors import FormatError, UnsupportedError
from lance_io.levels.lists import validity

if TYPE_CHECKING:
    from lance_io.proto import encodings_pb2 as pb
    from lance_io.spans import Fetched, Ranges, Steps

STRING_CODES_BITS: Final = 8
STRING_ITEMS_MAX: Final = 255
_VARIABLE_TYPES: Final = (pa.string(), pa.binary(), *WIDE_TYPES)


class ArrayEncoding(Protocol):
    """Values of one type, stored in some buffers of a page.

    row_bits  bits of each value if parts can be read separately, else None
    """

    num_values: int
    row_bits: int | None

    def index_ranges(self) -> Ranges | None:
        """Ranges of an index that makes reads faster, if it is worth caching."""
        ...

    def load_index(self, fetched: Fetched) -> Any:
        """Parse the index from its bytes."""
        ...

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some of the values."""
        ...

    def read_indexed(self, runs: Runs, was_read: bool) -> Steps[tuple[pa.Array, Any]]:
        """Some of the values in as few rounds as possible, and the index if these rounds contain it.

        was_read  some values were read before, so a larger index pays off now
        """
        ...

    def scan(self) -> Steps[pa.Array]:
        """All values, in one round."""
        ...


class WithNulls:
    """Values and a validity bitmap.

    Around strings, which have nulls of their own, only the bitmap counts; around dictionaries both count. That is how
    pylance reads them; no writer produces them.
    """

    def __init__(self, present: FlatBits, values: ArrayEncoding) -> None:
        self.present = present
        self.values = values
        self.num_values = values.num_values
        bits = values.row_bits
        self.row_bits = None if bits is None or present.row_bits is None else bits + 1

    def index_ranges(self) -> Ranges | None:
        """The index of the values."""
        return self.values.index_ranges()

    def load_index(self, fetched: Fetched) -> Any:
        """The index of the values."""
        return self.values.load_index(fetched)

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some values, in the rounds of `values`; the first of them includes the bitmap."""
        parts: list[Steps[Any]] = [self.present.read_bits(runs), self.values.read(runs, index)]
        (bits, num_set), array = yield from together(parts)
        return self._mask(array, bits, runs.num_values - num_set)

    def read_indexed(self, runs: Runs, was_read: bool) -> Steps[tuple[pa.Array, Any]]:
        """Some values, and the index that their rounds contain."""
        parts: list[Steps[Any]] = [self.present.read_bits(runs), self.values.read_indexed(runs, was_read)]
        (bits, num_set), (array, index) = yield from together(parts)
        return self._mask(array, bits, runs.num_values - num_set), index

    def scan(self) -> Steps[pa.Array]:
        """All values: one round."""
        parts: list[Steps[Any]] = [self.present.read_bits(Runs.all(self.num_values)), self.values.scan()]
        (bits, num_set), array = yield from together(parts)
        return self._mask(array, bits, self.num_values - num_set)

    def _mask(self, array: pa.Array, bits: Any, null_count: int) -> pa.Array:
        if isinstance(self.values, Variable) and array.null_count:
            array = pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0)
        return _mask(array, bits, null_count)

    def __str__(self) -> str:
        return f"nullable({self.values})"


def _mask(array: pa.Array, bits: Any, null_count: int) -> pa.Array:
    """Add the nulls of a bitmap to an array."""
    if not null_count:
        return array
    if isinstance(array, pa.DictionaryArray):
        indices = _mask(array.indices, bits, null_count)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary, ordered=array.type.ordered)
    own = validity(array)
    if own is not None:
        num_bytes = (len(array) + 7) // 8
        both = np.frombuffer(own, np.uint8)[:num_bytes] & np.frombuffer(bits, np.uint8)[:num_bytes]
        bits, null_count = both.tobytes(), -1
    children = []
    if pa.types.is_fixed_size_list(array.type):
        children = [array.values]
    elif pa.types.is_struct(array.type):
        children = [array.field(index) for index in range(array.type.num_fields)]
    elif pa.types.is_null(array.type):
        return array
    buffers = [pa.py_buffer(bits), *([] if children else array.buffers()[1:])]
    return pa.Array.from_buffers(array.type, len(array), buffers, null_count, children=children)


def open_array(message: pb.ArrayEncoding, dtype: pa.DataType, num_values: int, buffers: PageBuffers) -> ArrayEncoding:
    """Open `num_values` values of an Arrow type.

    Raises FormatError for messages that contradict themselves, their buffers or the type. Raises UnsupportedError for
    encodings that are not part of file version 2.0, naming the encoding.
    """
    kind = message.WhichOneof("array_encoding")
    match kind:
        case "nullable":
            return _open_nullable(message.nullable, dtype, num_values, buffers)
        case "flat":
            return _open_flat(message.flat, dtype, num_values, buffers)
        case "fixed_size_list":
            return _open_fixed_size_list(message.fixed_size_list, dtype, num_values, buffers)
        case "binary":
            return open_binary(message.binary, dtype, num_values, buffers)
        case "fsst":
            return _open_fsst(message.fsst, dtype, num_values, buffers)
        case "dictionary":
            return _open_dictionary(message.dictionary, dtype, num_values, buffers)
        case "packed_struct":
            return _open_packed(message.packed_struct, dtype, num_values, buffers)
        case "bitpacked":
            return _open_bitpacked(message.bitpacked, dtype, num_values, buffers)
        case "bitpacked_for_non_neg":
            return _open_groups(message.bitpacked_for_non_neg, dtype, num_values, buffers)
        case "fixed_size_binary":
            return _open_fixed_size_binary(message.fixed_size_binary, dtype, num_values, buffers)
        case "struct":
            return EmptyStructs(dtype, num_values)
        case "list":
            raise FormatError(f"a page of lists where values of {dtype} are expected")
        case None:
            raise FormatError("unknown array encoding (or an empty message)")
        case _:
            raise UnsupportedError(f"array encoding {kind!r} is not part of file version 2.0")


def _open_nullable(message: pb.Nullable, dtype: pa.DataType, num_values: int, buffers: PageBuffers) -> ArrayEncoding:
    match message.WhichOneof("nullability"):
        case "no_nulls":
            return open_array(message.no_nulls.values, dtype, num_values, buffers)
        case "some_nulls":
            present = open_array(message.some_nulls.validity, pa.bool_(), num_values, buffers)
            if not isinstance(present, FlatBits):
                raise UnsupportedError(f"validity stored as {present}; expected flat bits")
            return WithNulls(present, open_array(message.some_nulls.values, dtype, num_values, buffers))
        case "all_nulls":
            return AllNull(dtype, num_values)
        case _:
            raise FormatError("a nullable encoding without a kind of nullability")


def _bits_of(dtype: pa.DataType) -> int:
    """Bits of a value of fixed width; 0 for other types."""
    try:
        return 0 if pa.types.is_nested(dtype) or pa.types.is_dictionary(dtype) else int(dtype.bit_width)
    except ValueError:
        return 0


def _open_flat(message: pb.Flat, dtype: pa.DataType, num_values: int, buffers: PageBuffers) -> ArrayEncoding:
    bits = message.bits_per_value
    if bits != _bits_of(dtype) or not (bits or pa.types.is_fixed_size_binary(dtype)):
        raise FormatError(f"flat values of {bits} bits, which is not how a column of {dtype} is stored")
    stored = buffers.resolve(message.buffer, (num_values * bits + 7) // 8, message.compression)
    return FlatBits(num_values, stored) if bits == 1 else Flat(dtype, num_values, bits // 8, stored)


def _open_fixed_size_list(
    message: pb.FixedSizeList, dtype: pa.DataType, num_values: int, buffers: PageBuffers
) -> ArrayEncoding:
    if not pa.types.is_fixed_size_list(dtype) or dtype.list_size != message.dimension:
        raise FormatError(f"lists of {message.dimension}, which is not how a column of {dtype} is stored")
    items = open_array(message.items, dtype.value_type, num_values * message.dimension, buffers)
    return FixedSizeLists(dtype, num_values, items)


def open_ends(message: pb.ArrayEncoding, num_values: int, buffers: PageBuffers) -> StoredBuffer:
    """The buffer with the ends of values or lists."""
    if message.WhichOneof("array_encoding") == "nullable" and message.nullable.HasField("no_nulls"):
        message = message.nullable.no_nulls.values
    if message.WhichOneof("array_encoding") != "flat":
        raise UnsupportedError(f"ends of values stored as {message.WhichOneof('array_encoding')!r}; expected 'flat'")
    bits = message.flat.bits_per_value
    if bits != 8 * END_BYTES:
        raise UnsupportedError(f"ends of values of {bits} bits; expected 64")
    return buffers.resolve(message.flat.buffer, num_values * END_BYTES, message.flat.compression)


def open_binary(message: pb.Binary, dtype: pa.DataType, num_values: int, buffers: PageBuffers) -> Variable:
    """Open strings or bytes."""
    if dtype not in _VARIABLE_TYPES:
        raise FormatError(f"values of variable width, which is not how a column of {dtype} is stored")
    if num_values and not message.null_adjustment:
        raise FormatError("values of variable width without a null adjustment")
    ends = open_ends(message.indices, num_values, buffers)
    num_bytes = max(message.null_adjustment - 1, 0)
    data = message.bytes
    if data.WhichOneof("array_encoding") == "nullable" and data.nullable.HasField("no_nulls"):
        data = data.nullable.no_nulls.values
    if data.WhichOneof("array_encoding") != "flat" or data.flat.bits_per_value != 8:
        raise UnsupportedError("bytes of strings stored as anything but flat values of 8 bits")
    stored = buffers.resolve(data.flat.buffer, num_bytes, data.flat.compression)
    spans = Ends(num_values, ends, message.null_adjustment, num_bytes, wide=dtype in WIDE_TYPES)
    return Variable(dtype, spans, stored)


def _open_fsst(message: pb.Fsst, dtype: pa.DataType, num_values: int, buffers: PageBuffers) -> ArrayEncoding:
    if message.binary.WhichOneof("array_encoding") != "binary":
        raise FormatError("symbols of anything but values of variable width")
    plain = open_binary(message.binary.binary, dtype, num_values, buffers)
    return Coded(plain, check_symbols(message.symbol_table))


def _open_dictionary(
    message: pb.Dictionary, dtype: pa.DataType, num_values: int, buffers: PageBuffers
) -> ArrayEncoding:
    num_items = message.num_dictionary_items
    if pa.types.is_dictionary(dtype):
        codes = open_array(message.indices, dtype.index_type, num_values, buffers)
        return DictionaryValues(dtype, codes, open_array(message.items, dtype.value_type, num_items, buffers))
    if dtype != pa.string():
        raise UnsupportedError(f"a dictionary page in a column of {dtype}: only those of strings have them")
    bits = _code_bits(message.indices)
    if bits != STRING_CODES_BITS or num_items > STRING_ITEMS_MAX:
        raise UnsupportedError(
            f"a dictionary of strings with codes of {bits} bits and {num_items} items; expected {STRING_CODES_BITS} "
            f"bits and at most {STRING_ITEMS_MAX} items"
        )
    codes = open_array(message.indices, pa.uint8(), num_values, buffers)
    return DictionaryValues(dtype, codes, open_array(message.items, dtype, num_items, buffers))


def _code_bits(message: pb.ArrayEncoding) -> int:
    nullable = message.nullable
    match nullable.WhichOneof("nullability"):
        case "no_nulls":
            return _code_bits(nullable.no_nulls.values)
        case "some_nulls":
            return _code_bits(nullable.some_nulls.values)
    return int(message.flat.bits_per_value)


def _open_packed(message: pb.PackedStruct, dtype: pa.DataType, num_values: int, buffers: PageBuffers) -> ArrayEncoding:
    if not pa.types.is_struct(dtype) or not dtype.num_fields:
        raise FormatError(f"packed structs, which is not how a column of {dtype} is stored")
    widths = member_widths(dtype)
    bits = [_shape_bits(inner) for inner in message.inner]
    if bits != [8 * width for width in widths]:
        raise FormatError(f"packed structs with members of {bits} bits, in a column of {dtype}")
    return PackedRows(dtype, num_values, buffers.resolve(message.buffer, num_values * sum(widths)))


def _shape_bits(message: pb.ArrayEncoding) -> int:
    """Bits of a member of a packed struct; its message only describes the shape."""
    match message.WhichOneof("array_encoding"):
        case "flat":
            return int(message.flat.bits_per_value)
        case "fixed_size_list":
            return message.fixed_size_list.dimension * _shape_bits(message.fixed_size_list.items)
        case "nullable" if message.nullable.HasField("no_nulls"):
            return _shape_bits(message.nullable.no_nulls.values)
        case other:
            raise UnsupportedError(f"packed structs with members stored as {other!r}")


def _open_bitpacked(message: pb.Bitpacked, dtype: pa.DataType, num_values: int, buffers: PageBuffers) -> ArrayEncoding:
    packed = _check_packed(
        message.compressed_bits_per_value, message.uncompressed_bits_per_value, dtype, "bit-packed values"
    )
    stored = buffers.resolve(message.buffer, (num_values * packed + 7) // 8)
    return BitPacked(dtype, num_values, packed, stored, signed=message.signed)


def _open_groups(
    message: pb.BitpackedForNonNeg, dtype: pa.DataType, num_values: int, buffers: PageBuffers
) -> ArrayEncoding:
    packed = _check_packed(
        message.compressed_bits_per_value, message.uncompressed_bits_per_value, dtype, "bit-packed groups"
    )
    num_groups = -(-num_values // GROUP)
    stored = buffers.resolve(message.buffer, num_groups * GROUP // 8 * packed)
    return GroupPacked(dtype, num_values, packed, stored)


def _check_packed(packed_bits: int, bits: int, dtype: pa.DataType, what: str) -> int:
    if bits not in (8, 16, 32, 64) or bits != _bits_of(dtype):
        raise FormatError(f"{what} of {bits} bits, which is not how a column of {dtype} is stored")
    if not 1 <= packed_bits <= bits:
        raise FormatError(f"{what} of {bits} bits packed to {packed_bits}")
    return packed_bits


def _open_fixed_size_binary(
    message: pb.FixedSizeBinary, dtype: pa.DataType, num_values: int, buffers: PageBuffers
) -> ArrayEncoding:
    if dtype not in _VARIABLE_TYPES:
        raise FormatError(f"strings of one width, which is not how a column of {dtype} is stored")
    data, width = message.bytes, message.byte_width
    if data.WhichOneof("array_encoding") == "nullable" and data.nullable.HasField("no_nulls"):
        data = data.nullable.no_nulls.values
    flat = data.flat
    if data.WhichOneof("array_encoding") != "flat" or flat.bits_per_value not in (8, 8 * width) or not width:
        raise FormatError(f"strings of {width} bytes, whose bytes are not stored flat")
    stored = buffers.resolve(flat.buffer, num_values * width, flat.compression)
    return FixedSizeStrings(dtype, num_values, width, stored)
