"""Templates of pages of small files for `FileTemplates`: pages with equal messages are decoded without a layout.

Supported pages: mini-blocks with a `join_key`, pages of one value for all rows of a leaf, and all-null pages.
Specification: structural encodings 2.1, sections 3, 6 and 10.3.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.codecs.tree import FSST_TABLE_BYTES, FixedShape, Shape, VariableShape, fsst_of, program_of
from lance_io.encodings.v2_1.constant import NullPage, is_empty_struct
from lance_io.encodings.v2_1.miniblock import MiniBlockPage, symbols_at
from lance_io.encodings.v2_2.constant import ConstantPage, value_at
from lance_io.encodings.values import build_values
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_io._kernels import Leaf
    from lance_io.encodings.api import PageLayout
    from lance_io.format.columns import PageInfo
    from lance_io.levels.path import LeafPath

    Described = (
        tuple[
            bytes,
            tuple[int, int] | None,
            int,
            tuple[bytes, bytes, bool, bool, bytes | None] | None,
            tuple[int, bool] | None,
        ]
        | tuple[
            bytes, int, list[int], tuple[int, bool, int], int, bytes, tuple[bytes, int, int, bool] | None
        ]  # of version 2.0
    )


@dataclass(frozen=True, slots=True, eq=False)
class PageTemplate:
    """Template for decoding pages with an equal message.

    described  description for the kernel
    join_key   rows of pages with equal keys decode into one array
    build      builds this array from a decoded leaf
    """

    described: Described
    join_key: str
    build: Callable[[Leaf], pa.Array]


def template_of(page: PageLayout, infos: Sequence[PageInfo]) -> PageTemplate | None:
    """See `PageTemplates`."""
    create = _FACTORIES.get(type(page))
    return None if create is None else create(page, infos[0].encoding)


def _mini_block(page: MiniBlockPage, message: bytes) -> PageTemplate | None:
    if page.join_key is None:
        return None
    program, hole = (page.program, b""), None
    coded = fsst_of(page.codec)
    if coded is not None:
        at = symbols_at(message, page)
        if at is None:
            return None
        hole = at, at + FSST_TABLE_BYTES
        before, symbols, behind = page.program.partition(coded.symbol_table)
        if not symbols or coded.symbol_table in behind:
            return None
        program = before, behind
    codec = None if page.dictionary is None else program_of(page.dictionary, page.source.path.value_bytes_max)
    decoded_by = (*program, page.source.rules.wide_chunks, page.has_lists, codec)
    return PageTemplate((message, hole, len(page.source.buffer_sizes), decoded_by, None), page.join_key, page.build)


def _constant(page: NullPage, message: bytes) -> PageTemplate | None:
    path, num_buffers = page.source.path, len(page.source.buffer_sizes)
    if len(path.nodes) > 1 or path.members is not None:
        return None
    dtype = path.leaf_type
    kind = None if is_empty_struct(dtype) else _kind(dtype)
    is_null = tuple(page.layers) == (3,) and not num_buffers
    if kind is None or not (is_null or (isinstance(page, ConstantPage) and page.is_plain)):
        return None
    hole = None
    if isinstance(page, ConstantPage) and page.inline_value is not None:
        if is_null:
            return None
        around = value_at(message, page)
        if around is None:
            return None
        hole = len(around[0]), len(message) - len(around[1])
    shape = _shape(kind)
    described = message, hole, num_buffers, None, (kind, is_null)
    return PageTemplate(described, f"{path.array_kind} {shape!r}", partial(_build, dtype, shape))


def null_template(path: LeafPath, message: bytes, version_key: str) -> PageTemplate | None:
    """Template of a page without buffers, whose leaf is all null; None for leaves that are not plain.

    version_key  prefix of the `join_key`s of pages of the version
    """
    kind = None if len(path.nodes) > 1 or path.members is not None else _kind(path.leaf_type)
    if kind is None:
        return None
    shape = _shape(kind)
    described = message, None, 0, None, (kind, True)
    return PageTemplate(described, f"{version_key}{path.array_kind} {shape!r}", partial(_build, path.leaf_type, shape))


def _kind(dtype: pa.DataType) -> int | None:
    """Kind of the repeated value: its bits; 0 or -1 for strings with narrow or wide offsets; None if unsupported."""
    if pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        return 0
    if pa.types.is_large_string(dtype) or pa.types.is_large_binary(dtype):
        return -1
    if pa.types.is_nested(dtype) or pa.types.is_dictionary(dtype):
        return None
    try:
        bits = int(dtype.bit_width)
    except ValueError:
        return None
    return bits if bits == 1 or (bits > 0 and bits % 8 == 0) else None


def _shape(kind: int) -> Shape:
    return VariableShape(64 if kind < 0 else 32) if kind < 1 else FixedShape(kind)


def _build(dtype: pa.DataType, shape: Shape, leaf: Leaf) -> pa.Array:
    num_items, values, layers = leaf
    _, validity, null_count, _ = layers[0]
    buffers: list[Any] = values
    return build_values(dtype, shape, buffers, num_items, validity, null_count)


# By page class: creates the template of a page from the page and its serialized layout.
_FACTORIES: Final[Mapping[type, Callable[[Any, bytes], PageTemplate | None]]] = {
    MiniBlockPage: _mini_block,
    NullPage: _constant,
    ConstantPage: _constant,
}
