"""Writes dictionaries: for pages with few distinct values, and for Arrow dictionary columns.

The chunks of such a page hold indices of 32 bits (or of the width of the Arrow keys), which are compressed like any
other integers; the distinct values are one block. Specification: structural encodings 2.1, 3.5, 8.0 and 9.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io import _kernels
from lance_io.codecs import tree
from lance_io.codecs.encode import SCHEMES, encode_codec
from lance_io.codecs.tree import FixedShape, VariableShape
from lance_io.encodings.leafvalues import LeafValues, leaf_values
from lance_io.encodings.statistics import WordStatistics, word_statistics
from lance_io.encodings.v2_1.write_miniblock import Dictionary
from lance_io.errors import UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.encodings.options import ColumnOptions
    from lance_io.encodings.v2_1.page import VersionRules

VALUES_MIN: Final = 100
ITEMS_MAX: Final = 100_000
INDEX_BITS: Final = 32
# Smaller blocks stay uncompressed: the frame overhead would exceed most of the savings.
COMPRESSED_BYTES_MIN: Final = 64
PACKED_BITS: Final = (32, 64)
PACKED_INLINE_MAX: Final = 1024  # one group stores its width inline; for more groups the message has it


def has_word_dictionaries(rules: VersionRules) -> bool:
    """Whether 64-bit values may have dictionaries and dictionaries may be compressed: from file version 2.2 on."""
    return rules.wide_chunks


def split_dictionary(
    values: LeafValues, options: ColumnOptions, rules: VersionRules
) -> tuple[LeafValues, Dictionary] | None:
    """Indices and dictionary of a page; None if a dictionary does not pay off."""
    num_values, shape = values.num_values, values.shape
    if num_values < VALUES_MIN or not _is_candidate(shape, rules):
        return None
    items_max = min(num_values // options.dictionary_divisor, ITEMS_MAX)
    bytes_max = _bytes_max(values, options)
    # Words compress well without a dictionary, so it has to compete, unless options choose.
    competes = isinstance(shape, FixedShape) and options.compression is None and options.layout != "fullzip"
    stats = word_statistics(values) if competes else None
    if stats is not None:
        items_max = min(items_max, _word_items_max(stats))
        bytes_max = min(bytes_max, _direct_bytes(stats) - min(_index_run_bytes(stats), num_values // 8))
    if items_max < 1 or bytes_max < 1:
        return None
    distinct = _distinct(values, items_max, bytes_max)
    if distinct is None:
        return None
    indices, items = distinct
    if stats is not None and not _pays(stats, items):
        return None
    if options.dictionary_max_bytes is not None and items.sources[-1][0].nbytes > options.dictionary_max_bytes:
        return None
    return LeafValues(FixedShape(INDEX_BITS), num_values, [(indices, 0)]), encode_dictionary(items, options, rules)


def _is_candidate(shape: tree.Shape, rules: VersionRules) -> bool:
    match shape:
        case VariableShape():
            return True
        case FixedShape(bits):
            return bits == 128 or (bits == 64 and has_word_dictionaries(rules))
        case _:
            return False


def _bytes_max(values: LeafValues, options: ColumnOptions) -> int:
    """Size limit of a dictionary, so that dictionary and unpacked indices save their share of the page."""
    indices_bytes = values.num_values * INDEX_BITS // 8
    return int(values.num_bytes * options.dictionary_size_ratio) - indices_bytes


def _direct_bytes(stats: WordStatistics) -> int:
    """Size of words without a dictionary."""
    return min(stats.plain_bytes, stats.packed_bytes, stats.run_bytes)


def _index_run_bytes(stats: WordStatistics) -> int:
    """Size of run-length encoded indices: they have the same runs as their values."""
    return stats.num_runs * (INDEX_BITS // 8 + 1)


def _word_items_max(stats: WordStatistics) -> int:
    """Number of items above which items and indices are no smaller than the words: each item takes at least a byte."""
    direct_bytes = _direct_bytes(stats)
    if _index_run_bytes(stats) < direct_bytes:
        return ITEMS_MAX
    index_bits = min((direct_bytes * 8 - 1) // stats.num_values, INDEX_BITS)
    left_bytes = direct_bytes - stats.num_values * index_bits // 8
    return min(1 << index_bits, max(1 << index_bits >> 1, left_bytes))


def _pays(stats: WordStatistics, items: LeafValues) -> bool:
    """Whether indices and dictionary are smaller than the best encoding without a dictionary."""
    index_bits = max(items.num_values - 1, 1).bit_length()
    indices_bytes = min(_index_run_bytes(stats), stats.num_values * index_bits // 8)
    item_stats = word_statistics(items)
    items_bytes = items.num_bytes if item_stats is None else min(item_stats.packed_bytes, item_stats.plain_bytes)
    return indices_bytes + items_bytes < _direct_bytes(stats)


def _distinct(values: LeafValues, items_max: int, bytes_max: int) -> tuple[Any, LeafValues] | None:
    count = values.num_values
    match values.shape:
        case VariableShape(offset_bits) as shape:
            (offsets, _), (data, _) = values.sources
            strings = _kernels.distinct_variable(offsets, data, offset_bits == 64, count, items_max, bytes_max)
            if strings is None:
                return None
            indices, ends, texts = strings
            return indices, LeafValues(shape, ends.nbytes * 8 // offset_bits - 1, [(ends, 0), (texts, 0)])
        case FixedShape(bits) as fixed:
            words = _kernels.distinct_fixed(values.data, bits, count, items_max, bytes_max)
            return (
                None if words is None else (words[0], LeafValues(fixed, words[1].nbytes * 8 // bits, [(words[1], 0)]))
            )
        case _:
            return None


def split_arrow_dictionary(
    array: pa.DictionaryArray[Any, Any], options: ColumnOptions, rules: VersionRules
) -> tuple[LeafValues, Dictionary]:
    """Keys and dictionary of an Arrow dictionary array whose dictionary has no nulls."""
    items = leaf_values(array.dictionary)
    if not isinstance(items.shape, VariableShape | FixedShape):
        raise UnsupportedError(f"dictionaries of {array.dictionary.type}")
    return leaf_values(array.indices), encode_dictionary(items, options, rules)


def encode_dictionary(items: LeafValues, options: ColumnOptions, rules: VersionRules) -> Dictionary:
    """Encode the items of a dictionary as one block, in the smallest form."""
    forms = [_plain_block(items)]
    scheme = _scheme(options, rules)
    if scheme is not None and items.num_bytes >= COMPRESSED_BYTES_MIN:
        codec, block = forms[0]
        level = options.dictionary_compression_level
        forms.append((tree.General(scheme, codec), _kernels.compress_block(block, SCHEMES[scheme], level)))
        if isinstance(items.shape, FixedShape) and items.shape.bits in PACKED_BITS:
            forms.append(_packed_block(items, items.shape.bits))
    codec, block = min(forms, key=lambda form: memoryview(form[1]).nbytes)
    message = encode_codec(codec, level=options.dictionary_compression_level)
    return Dictionary(message, items.num_values, block)


def _plain_block(items: LeafValues) -> tuple[tree.Codec, Any]:
    match items.shape:
        case VariableShape(offset_bits):
            return tree.Variable(offset_bits), _variable_block(items, offset_bits)
        case FixedShape(bits) if bits % 8:
            return tree.Flat(bits), _bitmap_block(items)
        case FixedShape(bits):
            return tree.Flat(bits), bytes(items.data)
        case shape:
            raise UnsupportedError(f"dictionaries of {shape}")


def _packed_block(items: LeafValues, bits: int) -> tuple[tree.Codec, Any]:
    width, block = _kernels.pack_block(items.data, bits, items.num_values)
    if items.num_values <= PACKED_INLINE_MAX:
        return tree.InlineBitpacking(bits), block
    return tree.OutOfLineBitpacking(bits, width), block


def _scheme(options: ColumnOptions, rules: VersionRules) -> str | None:
    """Compression of dictionary values, which file version 2.2 introduced."""
    if not has_word_dictionaries(rules) or options.dictionary_compression == "none":
        return None
    return options.dictionary_compression or "lz4"


def _bitmap_block(items: LeafValues) -> bytes:
    """Booleans, realigned to a byte border; padding bits are 0."""
    ((bitmap, first),) = items.sources
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")[first : first + items.num_values]
    return np.packbits(bits, bitorder="little").tobytes()


def _variable_block(items: LeafValues, offset_bits: int) -> bytes:
    """Width of the offsets, start of the bytes, offsets from 0 on, bytes (spec: 8.0)."""
    (raw, _), (data, _) = items.sources
    offsets = np.frombuffer(raw, dtype=f"<i{offset_bits // 8}")
    first, last = int(offsets[0]), int(offsets[-1])
    start = 2 * offset_bits // 8 + offsets.nbytes
    head = struct.pack("<II" if offset_bits == 32 else "<QQ", offset_bits, start)
    return head + (offsets - first).tobytes() + bytes(memoryview(data)[first:last])
