"""Writes full-zip pages: the reverse of `fullzip.py`.

Values of fixed width are stored unchanged. Text is coded with FSST, very long values are compressed with zstd, each by
itself, so that it can be read alone. The repetition index goes to the page's initialisation data.
Specification: structural encodings 2.1, sections 5 and 9; packed structs of variable width, 10.5.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.codecs import tree
from lance_io.codecs.encode import encode_codec
from lance_io.codecs.tree import FixedShape, ListShape, VariableShape, shape_bits
from lance_io.encodings.leafvalues import LeafValues, leaf_values
from lance_io.encodings.options import ColumnOptions
from lance_io.encodings.statistics import longest_value
from lance_io.encodings.v2_1.write_strings import code_strings
from lance_io.encodings.written import EncodedPage, PageBuffer, Role
from lance_io.errors import UnsupportedError
from lance_io.levels.path import LIST_LAYERS
from lance_io.proto import encodings21_pb2 as pb
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.codecs.tree import Codec
    from lance_io.encodings.leafvalues import Source
    from lance_io.encodings.v2_1.page import VersionRules
    from lance_io.levels.leafpage import LeafPage, Levels
    from lance_io.levels.path import LeafPath

COMPRESSED_VALUE_BYTES_MIN: Final = 32 << 10  # above, a value is worth its own zstd frame
COMPRESSED_PAGE_BYTES_MIN: Final = 32 << 10


@dataclass(frozen=True, slots=True, eq=False)
class _Zipped:
    """Values of a page in the form of full-zip entries.

    length_bits  of the length before each value; 0 for values of fixed width
    """

    codec: Codec
    sources: list[Source]
    num_values: int
    length_bits: int

    @property
    def is_plain(self) -> bool:
        """True when the only buffer equals that of a page without control words."""
        return not self.length_bits and len(self.sources) == 1 and not self.sources[0][1]


def encode_fullzip(path: LeafPath, page: LeafPage, options: ColumnOptions, rules: VersionRules) -> EncodedPage:
    """Encode some rows of a leaf column as a full-zip page.

    path     the column's path in the schema
    page     its levels and values
    options  from the field's metadata
    rules    of the file version
    Raises UnsupportedError for Arrow dictionaries, for packed structs that this file version cannot store, and for
    shapes that `fits_fullzip` rejects.
    """
    values = _zip_values(path, page.values, options, rules)
    bits_rep, bits_def = _bits(page.repetition), _bits(page.definition)
    has_index = values.length_bits > 0 or any(layer in LIST_LAYERS for layer in page.layers)
    message = pb.FullZipLayout(
        bits_rep=bits_rep,
        bits_def=bits_def,
        num_items=page.num_levels,
        num_visible_items=values.num_values,
        value_compression=encode_codec(values.codec, level=options.compression_level or 0),
        layers=cast("Sequence[pb.RepDefLayer.ValueType]", page.layers),
    )
    bits = values.length_bits or shape_bits(values.codec.shape)
    if values.length_bits:
        message.bits_per_offset = bits
    else:
        message.bits_per_value = bits
    layout = pb.PageLayout(full_zip_layout=message).SerializeToString(deterministic=True)
    if not has_index and not bits_def and values.is_plain:
        size = values.num_values * bits // 8
        data = memoryview(values.sources[0][0]).cast("B")[:size]
        return EncodedPage(page.num_rows, layout, (PageBuffer(Role.DATA, [data]),))
    head = struct.pack("<BBBI", bits_rep, bits_def, values.length_bits > 0, bits)
    entries, index = _kernels.encode_fullzip(
        head + path.compile_layers(page.layers) + values.codec.program(),
        values.sources,
        values.num_values,
        page.repetition if bits_rep else None,
        page.definition if bits_def else None,
        options.compression_level,
    )
    buffers = [PageBuffer(Role.DATA, [entries])]
    if has_index:
        buffers.append(PageBuffer(Role.INDEX, [index]))
    return EncodedPage(page.num_rows, layout, tuple(buffers))


def fits_fullzip(shape: tree.Shape) -> bool:
    """Whether every reader accepts values of this shape in full-zip pages.

    pylance rejects files with fixed-size lists of booleans that do not end at a byte border or have a bitmap.
    """
    if not isinstance(shape, ListShape):
        return True
    items, has_validity = 1, False
    while isinstance(shape, ListShape):
        items, has_validity, shape = items * shape.items, has_validity or shape.has_validity, shape.inner
    bits = shape_bits(shape)
    return bits % 8 == 0 or (items * bits % 8 == 0 and not has_validity)


def _bits(levels: Levels | None) -> int:
    """Bits that these levels take in a control word: those of the highest level present, and at least one."""
    return 0 if levels is None else max(1, int(levels.max(initial=0)).bit_length())


# -- values ---------------------------------------------------------------------------------------------------------


def _zip_values(path: LeafPath, array: pa.Array, options: ColumnOptions, rules: VersionRules) -> _Zipped:
    dtype = array.type
    if pa.types.is_dictionary(dtype):  # pylance reads them from mini-block pages only
        raise UnsupportedError(f"column {path.name}: {dtype} in a full-zip page")
    if pa.types.is_boolean(dtype):  # booleans take a byte each (5.1)
        bits = array.to_numpy(zero_copy_only=False)
        return _Zipped(tree.Flat(8), [(bits.astype(np.uint8), 0)], len(array), 0)
    if pa.types.is_struct(dtype) and not all(_is_plain(dtype.field(i).type) for i in range(dtype.num_fields)):
        if not rules.packed_variable:
            raise UnsupportedError(
                f"column {path.name}: packed struct with members of variable width or fixed-size lists, which files of "
                f"version {rules.name} cannot store"
            )
        return _zip_members(path, array)
    values = leaf_values(array)
    if isinstance(values.shape, VariableShape):
        return _zip_strings(values, options, is_text=_is_text(dtype))
    if not fits_fullzip(values.shape):
        raise UnsupportedError(f"column {path.name}: {dtype} in a full-zip page, where items take whole bytes")
    return _Zipped(_fixed_codec(values.shape), values.sources, values.num_values, 0)


def _is_plain(dtype: pa.DataType) -> bool:
    """Whether members of this type make rows of fixed width without bitmaps."""
    try:
        return not pa.types.is_nested(dtype) and dtype.bit_width % 8 == 0
    except ValueError:
        return False


def _fixed_codec(shape: tree.Shape) -> Codec:
    match shape:
        case FixedShape(0):
            return tree.NoValue()
        case FixedShape(bits):
            return tree.Flat(bits)
        case ListShape(items, has_validity, inner):
            return tree.FixedSizeList(items, has_validity, _fixed_codec(inner))
        case tree.ChildrenShape(children):
            return tree.PackedStruct(tuple(map(shape_bits, children)))
        case VariableShape(offset_bits):
            return tree.Variable(offset_bits)


def _zip_strings(values: LeafValues, options: ColumnOptions, *, is_text: bool) -> _Zipped:
    assert isinstance(values.shape, VariableShape), "checked by the caller"
    offset_bits = values.shape.offset_bits
    codec: Codec = tree.Variable(offset_bits)
    if _wants_zstd(values, options):
        codec = tree.General("zstd", codec)
    elif is_text or options.compression == "fsst":
        codec, values = code_strings(values, options) or (codec, values)
    return _Zipped(codec, values.sources, values.num_values, offset_bits)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))


def _wants_zstd(values: LeafValues, options: ColumnOptions) -> bool:
    """Whether to compress each value: if requested (LZ4 fails on nulls in pylance), or if a value is very long (9)."""
    if options.compression == "none" or values.num_bytes < COMPRESSED_PAGE_BYTES_MIN:
        return False
    return options.compression in ("lz4", "zstd") or longest_value(values) > COMPRESSED_VALUE_BYTES_MIN


def _zip_members(path: LeafPath, array: pa.Array) -> _Zipped:
    """A packed struct of file version 2.2: members of fixed width unchanged, the others after their lengths."""
    members, sources = [], []
    for i in range(array.type.num_fields):
        member = _widen(array.field(i))
        if member.null_count:
            raise UnsupportedError(
                f"column {path.name}: nulls in member {array.type.field(i).name!r} of a packed struct"
            )
        values = leaf_values(member)
        codec, length_bits = _fixed_codec(values.shape), 0
        if isinstance(values.shape, VariableShape):
            length_bits = values.shape.offset_bits
            if _is_text(member.type):
                codec, values = code_strings(values, ColumnOptions()) or (codec, values)
        members.append(tree.PackedMember(codec, length_bits or shape_bits(values.shape), length_bits > 0))
        sources += values.sources
    return _Zipped(tree.VariablePackedStruct(tuple(members)), sources, len(array), 32)


def _widen(member: pa.Array) -> pa.Array:
    """Convert booleans to bytes; other members stay unchanged."""
    return member.cast(pa.uint8()) if pa.types.is_boolean(member.type) else member
