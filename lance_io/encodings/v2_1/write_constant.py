"""Writes pages without values: every item null, or no items at all. The reverse of `constant.py`.

Levels are stored raw in file version 2.1, compressed from 2.2 on. Specification: structural encodings 2.1, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

from lance_io.encodings.v2_1.constant import is_empty_struct
from lance_io.encodings.v2_1.write_levels import encode_level_block
from lance_io.encodings.written import EncodedPage, PageBuffer, Role
from lance_io.errors import UnsupportedDataError
from lance_io.proto import encodings21_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.encodings.v2_1.page import VersionRules
    from lance_io.levels.leafpage import LeafPage
    from lance_io.levels.path import LeafPath

NULLABLE_ITEM: Final = pb.REPDEF_NULLABLE_ITEM


def has_no_values(page: LeafPage) -> bool:
    """Whether a page needs no values: all items null, no items, or a type without values."""
    dtype = page.values.type
    if pa.types.is_null(dtype) or is_empty_struct(dtype):
        return True
    return page.definition is not None and bool(page.definition.all())


def encode_null_page(path: LeafPath, page: LeafPage, rules: VersionRules) -> EncodedPage:
    """Encode a page for which `has_no_values` holds.

    Raises UnsupportedDataError for empty structs that are null or in lists: their rows could not be distinguished.
    """
    if is_empty_struct(page.values.type):
        if page.definition is not None or page.repetition is not None:
            raise UnsupportedDataError(
                "Empty structs with rep/def information are not yet supported.  "
                f"The field {path.leaf.name} is an empty struct that either has nulls or is in a list."
            )
        return constant_page(page, constant_layout((NULLABLE_ITEM,)), [])  # one layer, independent of the nesting
    layout = constant_layout(page.layers)
    if page.layers == (NULLABLE_ITEM,):
        return constant_page(page, layout, [])
    compressed = rules.constant_values
    buffers = _compressed_levels(page, layout.constant_layout, rules) if compressed else raw_levels(page)
    return constant_page(page, layout, buffers)


def constant_layout(layers: Sequence[int]) -> pb.PageLayout:
    """The message of a page with its layers."""
    layout = pb.PageLayout()
    layout.constant_layout.layers.extend(cast("Sequence[pb.RepDefLayer.ValueType]", layers))
    return layout


def constant_page(page: LeafPage, layout: pb.PageLayout, buffers: Sequence[PageBuffer]) -> EncodedPage:
    """Assemble the page and its message."""
    return EncodedPage(page.num_rows, layout.SerializeToString(deterministic=True), tuple(buffers))


def raw_levels(page: LeafPage) -> list[PageBuffer]:
    """Repetition and definition levels as buffers; absent levels make an empty buffer."""
    vectors = (page.repetition, page.definition)
    return [PageBuffer(Role.DATA, [] if levels is None else [levels.data.cast("B")]) for levels in vectors]


def _compressed_levels(page: LeafPage, message: pb.ConstantLayout, rules: VersionRules) -> list[PageBuffer]:
    """Repetition and definition levels compressed; `message` receives the codecs (10.3)."""
    buffers = raw_levels(page)
    if page.repetition is not None:
        block = encode_level_block(page.repetition, rules)
        message.rep_compression.CopyFrom(block.codec)
        message.num_rep_values = len(page.repetition)
        buffers[0] = PageBuffer(Role.DATA, [block.data])
    if page.definition is not None:
        block = encode_level_block(page.definition, rules)
        message.def_compression.CopyFrom(block.codec)
        message.num_def_values = len(page.definition)
        buffers[1] = PageBuffer(Role.DATA, [block.data])
    return buffers
