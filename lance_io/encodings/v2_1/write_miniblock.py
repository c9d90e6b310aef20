"""Writes mini-block pages: the reverse of `miniblock.py`.

`choose.py` chooses the codec. This module cuts the page into chunks, compresses its levels chunk by chunk, and
assembles the chunks. Specification: structural encodings 2.1, sections 3 and 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from lance_io import _kernels
from lance_io.codecs.encode import encode_codec
from lance_io.codecs.tree import General
from lance_io.encodings.options import MINICHUNK_BYTES
from lance_io.encodings.v2_1.write_levels import encode_level_blocks
from lance_io.encodings.written import EncodedPage, PageBuffer, Role
from lance_io.levels.path import DEFINITION_LEVELS, LIST_LAYERS
from lance_io.proto import encodings21_pb2 as pb
from lance_io.records import dataclass
from lance_io.spans import int64s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.codecs.tree import Codec
    from lance_io.encodings.leafvalues import LeafValues
    from lance_io.encodings.options import ColumnOptions
    from lance_io.encodings.v2_1.page import VersionRules
    from lance_io.encodings.v2_1.write_levels import LevelBlocks
    from lance_io.format.wire import Buffer
    from lance_io.levels.leafpage import LeafPage
    from lance_io.spans import IntArray

# A chunk counts its levels in a u16.
CHUNK_LEVELS_MAX: Final = 65535
# Below file version 2.2 a chunk ends at 32 KiB, header included.
NARROW_CHUNK_BYTES_MAX: Final = (32 << 10) - 64
# Codecs of fixed-width values make chunks of at most this size; those of variable width follow their option.
VALUE_BYTES_MAX: Final = 8192
NARROW_TARGET_BYTES_MAX: Final = 16 << 10
LEVEL_GROUP_BYTES: Final = 128  # a group of 1024 levels, per bit of their width
# Compression must make the page smaller; smaller pages stay uncompressed (4.9).
GENERAL_BYTES_MIN: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Dictionary:
    """The dictionary of a page, compressed.

    codec      of the block
    num_items  distinct values
    """

    codec: pb.CompressiveEncoding
    num_items: int
    block: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class MiniBlock:
    """The plan of a mini-block page.

    values      contents of the chunks: the values, or indices into the dictionary
    codec       of the values
    """

    values: LeafValues
    codec: Codec
    dictionary: Dictionary | None = None


def encode_miniblock(
    page: LeafPage, plan: MiniBlock, options: ColumnOptions, rules: VersionRules
) -> EncodedPage | None:
    """Write a page; None if few values have too many levels for a chunk, or if values are too large for a chunk.

    page  supplies the levels; the values are those of `plan`
    """
    chunks = _encode_chunks(page, plan, options, rules)
    if chunks is None:
        return None
    buffers = [PageBuffer(Role.INDEX, [chunks.words]), PageBuffer(Role.DATA, [chunks.data])]
    layout = pb.PageLayout()
    message = layout.mini_block_layout
    message.value_compression.CopyFrom(encode_codec(chunks.codec, level=options.compression_level))
    message.layers.extend(cast("Sequence[pb.RepDefLayer.ValueType]", page.layers))
    message.num_buffers = chunks.num_buffers
    message.num_items = plan.values.num_values
    message.has_large_chunk = rules.wide_chunks
    if plan.dictionary is not None:
        message.dictionary.CopyFrom(plan.dictionary.codec)
        message.num_dictionary_items = plan.dictionary.num_items
        buffers.append(PageBuffer(Role.INDEX, [plan.dictionary.block]))
    if chunks.definition is not None:
        message.def_compression.CopyFrom(chunks.definition.codec)
    if chunks.repetition is not None:
        message.rep_compression.CopyFrom(chunks.repetition.codec)
        message.repetition_index_depth = 1
        max_rep = sum(layer in LIST_LAYERS for layer in page.layers)
        index = _kernels.repetition_index(page.repetition, chunks.level_bounds, max_rep)
        buffers.append(PageBuffer(Role.INDEX, [index]))
    return EncodedPage(page.num_rows, layout.SerializeToString(deterministic=True), tuple(buffers))


@dataclass(frozen=True, slots=True, eq=False)
class _Chunks:
    words: Buffer
    data: Buffer
    codec: Codec
    num_buffers: int
    repetition: LevelBlocks | None
    definition: LevelBlocks | None
    level_bounds: IntArray


def _encode_chunks(page: LeafPage, plan: MiniBlock, options: ColumnOptions, rules: VersionRules) -> _Chunks | None:
    values, codec = plan.values, plan.codec
    program = codec.program()
    bounds = _kernels.plan_miniblock(
        program,
        values.sources,
        values.num_values,
        _target_bytes(options, rules),
        page.definition,
        max_visible(page.layers),
        page.num_levels,
        _levels_max(page, options, rules),
    )
    if bounds is None:
        return None
    item_bounds, level_bounds = int64s(bounds[0]), int64s(bounds[1])
    repetition, definition = (
        None if levels is None else encode_level_blocks(levels, level_bounds, rules)
        for levels in (page.repetition, page.definition)
    )
    blocks = [(each.data, each.offsets) for each in (repetition, definition) if each is not None]

    def encode(codec: Codec) -> tuple[Any, Any, int, int, int] | None:
        return _kernels.encode_miniblock(
            codec.program(),
            rules.wide_chunks,
            values.sources,
            item_bounds,
            _target_bytes(options, rules),
            options.compression_level,
            blocks,
            level_bounds,
        )

    encoded = encode(codec)
    if isinstance(codec, General) and encoded is not None and not _pays(encoded):
        codec = codec.values
        encoded = encode(codec)
    if encoded is None:
        return None
    return _Chunks(encoded[0], encoded[1], codec, encoded[2], repetition, definition, level_bounds)


def _pays(encoded: tuple[Any, Any, int, int, int]) -> bool:
    """Whether general compression made the first value buffers smaller."""
    _, _, _, plain_bytes, coded_bytes = encoded
    return plain_bytes >= GENERAL_BYTES_MIN and coded_bytes < plain_bytes


def _target_bytes(options: ColumnOptions, rules: VersionRules) -> int:
    fits = rules.wide_chunks or options.minichunk_bytes <= NARROW_TARGET_BYTES_MAX
    return options.minichunk_bytes if fits else MINICHUNK_BYTES


def _levels_max(page: LeafPage, options: ColumnOptions, rules: VersionRules) -> int:
    """Maximum number of levels of a chunk, so that it keeps within its size.

    Packing works on groups of 1024 levels, all of the page's width. Another codec is only chosen if it makes the page
    smaller, and with it any chunk with many levels.
    """
    widths = [int(each.max(initial=0)).bit_length() for each in (page.repetition, page.definition) if each is not None]
    if rules.wide_chunks or not sum(widths):
        return CHUNK_LEVELS_MAX
    value_bytes = max(VALUE_BYTES_MAX, _target_bytes(options, rules))
    level_bytes = NARROW_CHUNK_BYTES_MAX - value_bytes - LEVEL_GROUP_BYTES * sum(widths)
    return min(CHUNK_LEVELS_MAX, level_bytes * 8 // sum(widths))


def max_visible(layers: Sequence[int]) -> int:
    """The last definition level that owns an item (spec: 2.2)."""
    level = 0
    for layer in layers:
        if layer in LIST_LAYERS:
            break
        level += DEFINITION_LEVELS[layer]
    return level
