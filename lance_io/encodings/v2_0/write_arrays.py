"""Writes arrays as pages of 2.0: the reverse of `array.py`, `list_page.py`, `array_page.py` (encodings 2.0, section 7).

    numbers, bits, times     flat, with a bitmap if there are nulls
    fixed-size lists         the same for rows and for items
    strings                  a dictionary if few are distinct (`write_array_strings.py`), else ends and bytes
    dictionaries             indices, and the items, plus a null item for null rows
    packed structs, blobs    rows
    lists                    their ends; the items are pages of other columns
    structs                  an empty header

Bytes under nulls are stored as Arrow has them. Kernels and numpy do the heavy work, and pages share no state: several
threads may encode pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.empty_pb2 import Empty

from lance_io import _kernels
from lance_io.encodings.v2_0.fixed import width_of
from lance_io.encodings.v2_0.variable import END_BYTES
from lance_io.encodings.v2_0.write_array_strings import PageParts, encode_binary, encode_few_distinct
from lance_io.encodings.written import EncodedPage
from lance_io.errors import UnsupportedDataError, UnsupportedError
from lance_io.proto import encodings_pb2 as pb
from lance_io.spans import distinct

if TYPE_CHECKING:
    from lance_io.encodings.options import ColumnOptions
    from lance_io.levels.path import LeafPath

_VARIABLE: Final = frozenset({pa.string().id, pa.binary().id, pa.large_string().id, pa.large_binary().id})
HEADER: Final = pb.ArrayEncoding(struct=pb.SimpleStruct())
_ALL_NULLS: Final = pb.ArrayEncoding(nullable=pb.Nullable(all_nulls=Empty()))


def encode_header(num_rows: int) -> EncodedPage:
    """The one page of the header of structs."""
    return EncodedPage(num_rows, HEADER.SerializeToString(), ())


def encode_ends(lengths: pa.Array) -> EncodedPage:
    """Encode the ends of lists.

    lengths  int64, number of items of each list; 0 for null lists
    """
    parts = PageParts()
    ends = np.frombuffer(lengths.buffers()[1], np.int64)[lengths.offset : lengths.offset + len(lengths)]
    ends = np.cumsum(ends).astype(np.uint64)
    num_items = int(ends[-1]) if len(ends) else 0
    adjustment = num_items + 1
    if lengths.null_count:
        ends[lengths.is_null().to_numpy(zero_copy_only=False)] += np.uint64(adjustment)
    offsets = without_nulls(flat(8 * END_BYTES, parts.add(ends)))
    message = pb.List(offsets=offsets, null_offset_adjustment=adjustment if len(ends) else 0, num_items=num_items)
    return parts.page(len(lengths), pb.ArrayEncoding(list=message))


def encode_array(path: LeafPath, array: pa.Array, options: ColumnOptions) -> EncodedPage:
    """Encode values of a leaf column; for blobs, their descriptors.

    Raises UnsupportedDataError for values that this file version cannot store.
    """
    parts = PageParts()
    if path.leaf.is_blob:
        message = _encode_packed(_mark_nulls(array), parts)
    elif pa.types.is_struct(array.type) and array.type.num_fields:
        message = _encode_packed(array, parts)
    elif pa.types.is_string(array.type) and (coded := encode_few_distinct(array)) is not None:
        message = _dictionary(*coded, pa.uint8(), parts)
    elif pa.types.is_dictionary(array.type):
        message = _dictionary(*_split_dictionary(array, path), array.type.index_type, parts)
    else:
        message = _values(array, parts, options)
    return parts.page(len(array), message)


def _values(array: pa.Array, parts: PageParts, options: ColumnOptions | None = None) -> pb.ArrayEncoding:
    dtype = array.type
    if dtype.id in _VARIABLE:
        return encode_binary(array, parts, options)
    if pa.types.is_null(dtype) or array.null_count == len(array):
        return _ALL_NULLS
    present = None
    if array.null_count:
        present = flat(1, parts.add(_bits(array.buffers()[0], array.offset, len(array))))
    values = _encode_fixed(array, parts)
    if present is None:
        return without_nulls(values)
    return pb.ArrayEncoding(nullable=pb.Nullable(some_nulls=pb.Nullable.SomeNulls(validity=present, values=values)))


def _encode_fixed(array: pa.Array, parts: PageParts) -> pb.ArrayEncoding:
    dtype = array.type
    if pa.types.is_fixed_size_list(dtype):
        size = dtype.list_size
        items = _values(array.values.slice(array.offset * size, len(array) * size), parts)
        return pb.ArrayEncoding(fixed_size_list=pb.FixedSizeList(dimension=size, items=items))
    try:
        bits = int(dtype.bit_width)
    except ValueError:
        raise UnsupportedError(f"values of type {dtype} are not stored in files of version 2.0") from None
    if bits == 1:
        return flat(1, parts.add(_bits(array.buffers()[1], array.offset, len(array))))
    return flat(bits, parts.add(_bytes_of(array, bits // 8)))


def _bytes_of(array: pa.Array, width: int) -> memoryview:
    data = memoryview(array.buffers()[1] or b"").cast("B")
    return data[array.offset * width : (array.offset + len(array)) * width]


def _bits(buffer: pa.Buffer, first: int, count: int) -> Any:
    """Realign bits of a bitmap to a byte border."""
    zero = np.zeros(1, np.int64)
    return _kernels.gather_bits(buffer, zero, zero + first, zero + count)[0]


def flat(bits: int, buffer: pb.Buffer) -> pb.ArrayEncoding:
    """Values of fixed width."""
    return pb.ArrayEncoding(flat=pb.Flat(bits_per_value=bits, buffer=buffer))


def without_nulls(values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    """Values without nulls."""
    return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNulls(values=values)))


# -- dictionaries ------------------------------------------------------------------------------------------------------


def _dictionary(codes: Any, items: pa.Array, key: pa.DataType, parts: PageParts) -> pb.ArrayEncoding:
    indices = without_nulls(flat(key.bit_width, parts.add(codes)))
    message = pb.Dictionary(indices=indices, items=_values(items, parts), num_dictionary_items=len(items))
    return pb.ArrayEncoding(dictionary=message)


def _split_dictionary(array: pa.DictionaryArray, path: LeafPath) -> tuple[Any, pa.Array]:
    """Indices, and the items that they refer to; null rows refer to a null item after all others."""
    items, key = array.dictionary, array.type.index_type
    kind = key.to_pandas_dtype()
    if not array.null_count:
        return array.indices.to_numpy().astype(kind, copy=False), items
    if len(items) > np.iinfo(kind).max:  # no key is left for the null item: drop unused items
        array = pa.DictionaryArray.from_arrays(array.indices, items, ordered=array.type.ordered)
        used = distinct(array.indices.drop_null().to_numpy())
        positions = np.zeros(len(items), np.int64)
        positions[used] = np.arange(len(used))
        items = items.take(pa.array(used))
        if len(items) > np.iinfo(kind).max:
            raise UnsupportedDataError(
                f"{path.name}: dictionary indices use {8 * np.dtype(kind).itemsize} bits; the normalized dictionary of "
                f"a page with nulls has {len(items) + 1} values, which the declared key type {key} cannot tell apart"
            )
        numbers = positions[array.indices.fill_null(0).to_numpy()]
    else:
        numbers = array.indices.fill_null(0).to_numpy()
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    codes = np.where(is_null, len(items), numbers).astype(kind)
    return codes, pa.concat_arrays([items, pa.nulls(1, items.type)])


# -- rows --------------------------------------------------------------------------------------------------------------


def _encode_packed(array: pa.StructArray, parts: PageParts) -> pb.ArrayEncoding:
    members, inner = [], []
    for index in range(array.type.num_fields):
        member = array.field(index)
        width = width_of(member.type)
        members.append((_rows_of(member), width))
        inner.append(_shape(member.type))
    buffer = parts.add(_kernels.pack_rows(members, len(array)))
    return pb.ArrayEncoding(packed_struct=pb.PackedStruct(inner=inner, buffer=buffer))


def _rows_of(member: pa.Array) -> memoryview:
    if member.null_count:
        raise UnsupportedDataError("Packed struct encoder currently only implemented for fixed-width data blocks")
    while pa.types.is_fixed_size_list(member.type):
        size = member.type.list_size
        member = member.values.slice(member.offset * size, len(member) * size)
        if member.null_count:
            raise UnsupportedDataError("Packed struct encoder currently only implemented for fixed-width data blocks")
    return _bytes_of(member, member.type.bit_width // 8)


def _shape(dtype: pa.DataType) -> pb.ArrayEncoding:
    """The encoding of a packed row's member; readers only use its number of bytes."""
    first = pb.Buffer()
    if pa.types.is_fixed_size_list(dtype):
        items = pb.FixedSizeList(dimension=dtype.list_size, items=_shape(dtype.value_type))
        return without_nulls(pb.ArrayEncoding(fixed_size_list=items))
    return without_nulls(flat(dtype.bit_width, first))


def _mark_nulls(descriptions: pa.StructArray) -> pa.StructArray:
    """Mark null blobs in descriptors by position 1 and size 0 (spec: 5.11)."""
    members = descriptions.field(0), descriptions.field(1)
    if descriptions.null_count:
        nulls = descriptions.is_null().to_numpy(zero_copy_only=False)
        position, size = (member.fill_null(0).to_numpy() for member in members)
        members = pa.array(np.where(nulls, np.uint64(1), position)), pa.array(np.where(nulls, np.uint64(0), size))
    return pa.StructArray.from_arrays(members, ["position", "size"])
