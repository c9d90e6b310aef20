"""Chooses the layout and codec of a page from statistics and options. Pure.

The rules are those of the format's reference writer, first match wins (spec: structural encodings 2.1, section 9).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from lance_io.codecs import tree
from lance_io.codecs.tree import ChildrenShape, FixedShape, ListShape, Shape, VariableShape, shape_bits
from lance_io.encodings.statistics import byte_entropy, count_runs, longest_value, word_statistics

if TYPE_CHECKING:
    from lance_io.encodings.leafvalues import LeafValues
    from lance_io.encodings.options import ColumnOptions

# Values of this size are worth a read of their own: they go to full-zip pages.
LARGE_VALUE_BYTES: Final = 256


def is_narrow(values: LeafValues) -> bool:
    """Whether every value is small enough to share a chunk with others."""
    if isinstance(values.shape, VariableShape):
        return longest_value(values) < LARGE_VALUE_BYTES
    return value_bits(values.shape) < LARGE_VALUE_BYTES * 8


def value_bits(shape: Shape) -> int:
    """Bits of a fixed-width value, without the bitmaps of list items."""
    match shape:
        case ListShape(items, _, inner):
            return items * value_bits(inner)
        case _:
            return shape_bits(shape)


def choose_codec(values: LeafValues, options: ColumnOptions) -> tree.Codec:
    """The codec of mini-block values; the writer later drops general compression if it does not pay off."""
    codec = _choose_plain(values, options)
    if options.compression in ("lz4", "zstd"):
        return tree.General(options.compression, codec)
    return codec


def _choose_plain(values: LeafValues, options: ColumnOptions) -> tree.Codec:
    match values.shape:
        case VariableShape(offset_bits):
            return tree.Variable(offset_bits)
        case ChildrenShape(children):
            return tree.PackedStruct(tuple(map(shape_bits, children)))
        case ListShape() as shape:
            return _list_codec(shape)
        case FixedShape(bits):
            return _choose_fixed(values, bits, options)


def _list_codec(shape: Shape) -> tree.Codec:
    match shape:
        case ListShape(items, has_validity, inner):
            return tree.FixedSizeList(items, has_validity, _list_codec(inner))
        case _:
            return tree.Flat(shape_bits(shape))


def _choose_fixed(values: LeafValues, bits: int, options: ColumnOptions) -> tree.Codec:
    flat = tree.Flat(bits)
    if options.compression == "none":
        return flat
    if options.compression in ("lz4", "zstd") and _splits(values, bits, options):
        return tree.ByteStreamSplit(flat)
    stats = word_statistics(values)
    if stats is None:
        return flat
    packed_bytes = min(stats.packed_bytes, stats.plain_bytes)
    share_max = options.rle_threshold
    if share_max is None or count_runs(values) < share_max * stats.num_values:
        if stats.run_bytes < stats.plain_bytes and stats.run_bytes <= packed_bytes:
            return tree.Rle(flat, tree.Flat(8))
    if stats.packed_bytes < stats.plain_bytes:
        return tree.InlineBitpacking(bits)
    return flat


def _splits(values: LeafValues, bits: int, options: ColumnOptions) -> bool:
    if bits not in (32, 64) or not options.split_entropy_max:
        return False
    return options.split_entropy_max == inf or byte_entropy(values) < options.split_entropy_max
