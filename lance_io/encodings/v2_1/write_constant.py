"""Pages without values on the writing side: every item null, or no items at all. The reverse of `constant.py`.

Levels are stored raw in file version 2.1, compressed from 2.2 on. Specification: structural encodings 2.1, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

from lance_io.encodings.v2_1.write_levels import encode_level_block
from lance_io.encodings.written import EncodedPage, PageBuffer, Role
from lance_io.errors import UnsupportedError
from lance_io.proto import encodings21_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.encodings.v2_1.page import VersionRules
    from lance_io.levels.leafpage import LeafPage, Levels
    from lance_io.levels.path import LeafPath

NULLABLE_ITEM: Final = pb.REPDEF_NULLABLE_ITEM


def has_no_values(page: LeafPage) -> bool:
    """Whether a page is to be written without values: all items null, no items, or of a type without values."""
    dtype = page.values.type
    if pa.types.is_null(dtype) or (pa.types.is_struct(dtype) and dtype.num_fields == 0):
        return True
    return page.definition is not None and bool(page.definition.all())


def encode_null_page(path: LeafPath, page: LeafPage, rules: VersionRules) -> EncodedPage:
    """Encode a page for which `has_no_values` holds.

    Raises UnsupportedError for empty structs that are null or in lists: nothing would tell their rows apart.
    """
    dtype = page.values.type
    if pa.types.is_struct(dtype) and dtype.num_fields == 0:
        if page.definition is not None or page.repetition is not None:
            raise UnsupportedError(
                "Empty structs with rep/def information are not yet supported.  "
                f"The field {path.leaf.name} is an empty struct that either has nulls or is in a list."
            )
        return _page(page, pb.ConstantLayout(layers=[NULLABLE_ITEM]), [])  # one layer, however deep it is nested
    if page.layers == (NULLABLE_ITEM,):
        return _page(page, pb.ConstantLayout(layers=[NULLABLE_ITEM]), [])
    message = constant_message(page)
    return _page(page, message, level_buffers(page, message, rules))


def constant_message(page: LeafPage) -> pb.ConstantLayout:
    """The message of a page, as far as its layers say."""
    return pb.ConstantLayout(layers=cast("Sequence[pb.RepDefLayer.ValueType]", page.layers))


def level_buffers(page: LeafPage, message: pb.ConstantLayout, rules: VersionRules) -> list[PageBuffer]:
    """Both vectors of levels as buffers; how they are compressed is told in `message` (10.3)."""
    buffers = []
    for levels, codec, count in (
        (page.repetition, message.rep_compression, "num_rep_values"),
        (page.definition, message.def_compression, "num_def_values"),
    ):
        if levels is None or not rules.constant_values:
            buffers.append(_raw(levels))
            continue
        block = encode_level_block(levels, rules)
        codec.CopyFrom(block.codec)
        setattr(message, count, len(levels))
        buffers.append(PageBuffer(Role.DATA, [block.data]))
    return buffers


def _raw(levels: Levels | None) -> PageBuffer:
    return PageBuffer(Role.DATA, [] if levels is None else [levels.data.cast("B")])


def _page(page: LeafPage, message: pb.ConstantLayout, buffers: list[PageBuffer]) -> EncodedPage:
    layout = pb.PageLayout(constant_layout=message).SerializeToString(deterministic=True)
    return EncodedPage(page.num_rows, layout, tuple(buffers))
