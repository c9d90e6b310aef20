"""Dictionaries on the writing side: pages with few distinct values, and Arrow dictionary columns.

The chunks of such a page hold indices, 32 bits each (or as wide as the keys of the Arrow type), which are compressed
like any other integers; the distinct values are one block. Specification: structural encodings 2.1, 3.5, 8.0 and 9.
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
# Blocks below this are left alone: the frame of the compression is most of what it could save.
COMPRESSED_BYTES_MIN: Final = 64
PACKED_BITS: Final = (32, 64)
PACKED_INLINE_MAX: Final = 1024  # one group carries its width, more have one that the message tells


def has_word_dictionaries(rules: VersionRules) -> bool:
    """Whether 64-bit values may have dictionaries, and dictionaries be compressed: from file version 2.2 on."""
    return rules.wide_chunks


def split_dictionary(
    values: LeafValues, options: ColumnOptions, rules: VersionRules
) -> tuple[LeafValues, Dictionary] | None:
    """Indices and dictionary of a page; None where a dictionary is not worth having."""
    num_values, shape = values.num_values, values.shape
    if num_values < VALUES_MIN or not _is_candidate(shape, rules):
        return None
    items_max = min(num_values // options.dictionary_divisor, ITEMS_MAX)
    bytes_max = _bytes_max(values, options)
    # Words have other ways to become small, unless options say which way to go.
    competes = isinstance(shape, FixedShape) and options.compression is None and options.layout != "fullzip"
    facts = word_statistics(values) if competes else None
    if facts is not None:
        items_max = min(items_max, _word_items_max(facts))
        bytes_max = min(bytes_max, _direct_bytes(facts) - min(_index_run_bytes(facts), num_values // 8))
    if items_max < 1 or bytes_max < 1:
        return None
    found = _distinct(values, items_max, bytes_max)
    if found is None:
        return None
    indices, items = found
    if facts is not None and not _pays(facts, items):
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
    """What a dictionary may weigh, so that it and its indices, taken as they are, save their share of the page."""
    indices_bytes = values.num_values * INDEX_BITS // 8
    return int(values.num_bytes * options.dictionary_size_ratio) - indices_bytes


def _direct_bytes(facts: WordStatistics) -> int:
    """What words take without a dictionary."""
    return min(facts.plain_bytes, facts.packed_bytes, facts.run_bytes)


def _index_run_bytes(facts: WordStatistics) -> int:
    """What indices take as runs: they come in the same runs as their values."""
    return facts.num_runs * (INDEX_BITS // 8 + 1)


def _word_items_max(facts: WordStatistics) -> int:
    """With more items than this, items and indices take as much as the words: each item takes a byte at least."""
    direct_bytes = _direct_bytes(facts)
    if _index_run_bytes(facts) < direct_bytes:
        return ITEMS_MAX
    index_bits = min((direct_bytes * 8 - 1) // facts.num_values, INDEX_BITS)
    left_bytes = direct_bytes - facts.num_values * index_bits // 8
    return min(1 << index_bits, max(1 << index_bits >> 1, left_bytes))


def _pays(facts: WordStatistics, items: LeafValues) -> bool:
    """Whether indices and dictionary are smaller than the words written in another way."""
    index_bits = max(items.num_values - 1, 1).bit_length()
    indices_bytes = min(_index_run_bytes(facts), facts.num_values * index_bits // 8)
    item_facts = word_statistics(items)
    items_bytes = items.num_bytes if item_facts is None else min(item_facts.packed_bytes, item_facts.plain_bytes)
    return indices_bytes + items_bytes < _direct_bytes(facts)


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
    """Keys and dictionary of an Arrow dictionary array, whose dictionary holds no nulls."""
    items = leaf_values(array.dictionary)
    if not isinstance(items.shape, VariableShape | FixedShape):
        raise UnsupportedError(f"dictionaries of {array.dictionary.type}")
    return leaf_values(array.indices), encode_dictionary(items, options, rules)


def encode_dictionary(items: LeafValues, options: ColumnOptions, rules: VersionRules) -> Dictionary:
    """The items of a dictionary as one block."""
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
    """Compression of dictionary values: a matter of file version 2.2."""
    if not has_word_dictionaries(rules) or options.dictionary_compression == "none":
        return None
    return options.dictionary_compression or "lz4"


def _bitmap_block(items: LeafValues) -> bytes:
    """Booleans from the first bit of a byte on; the bits behind them are 0."""
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
