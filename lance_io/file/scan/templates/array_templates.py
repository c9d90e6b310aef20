"""Templates of pages of version 2.0 for `FileTemplates`: see `page_templates.py`.

Supported pages: those that `v2_0/whole.py` decodes, lists of strings, and plain leaves that are all null.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lance_io.encodings.v2_0.array_page import ArrayPage
from lance_io.encodings.v2_0.dictionary import DictionaryValues
from lance_io.encodings.v2_0.fixed import AllNull
from lance_io.encodings.v2_0.list_page import ListPage
from lance_io.encodings.v2_0.located import around_leaf
from lance_io.encodings.v2_0.variable import Coded, Variable
from lance_io.file.scan.templates.page_templates import PageTemplate, null_template
from lance_io.levels.assemble import nest
from lance_io.levels.path import NodeKind
from lance_io.proto import encodings_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io._kernels import Leaf
    from lance_io.encodings.api import PageLayout
    from lance_io.encodings.v2_0.array import ArrayEncoding
    from lance_io.format.columns import PageInfo
    from lance_io.levels.path import LeafPath

    DescribedLists = tuple[bytes, int, int, bool]

_FIXED, _STRINGS, _WIDE_STRINGS, _CODES = range(4)


def template_of(page: PageLayout, infos: Sequence[PageInfo]) -> PageTemplate | None:
    """See `PageTemplates`."""
    if isinstance(page, ArrayPage):
        return _array_template(page, infos, None)
    return _list_template(page, infos) if isinstance(page, ListPage) else None


def _list_template(page: ListPage, infos: Sequence[PageInfo]) -> PageTemplate | None:
    if page.items is None or len(infos) != 2 or page.node.kind is not NodeKind.LIST or page.ends.buffer.scheme:
        return None
    buffers, values = _buffers(page.source.message.list.offsets), page.items.pages[0]
    if buffers is None or len(buffers) != 1 or not isinstance(values, ArrayPage):
        return None
    return _array_template(values, infos, (infos[0].encoding, len(infos[0].buffer_sizes), buffers[0], page.ends.wide))


def _array_template(page: ArrayPage, infos: Sequence[PageInfo], lists: DescribedLists | None) -> PageTemplate | None:
    path, info = page.path, infos[-1]
    if page.kind is None:
        is_plain = lists is None and isinstance(page.values, AllNull)
        return null_template(path, info.encoding, "array ") if is_plain else None
    kind, buffers = _kind(page.values), _buffers(page.source.message)
    if kind is None or buffers is None:
        return None
    has_bitmap = page.kind.present_at is not None
    value_layout = page.kind.row_bits, has_bitmap, page.kind.num_bitmaps
    described = info.encoding, len(info.buffer_sizes), buffers, value_layout, kind, around_leaf(path.nodes[:-1]), lists
    return PageTemplate(described, f"array {path.array_kind} {page.kind.shape!r}", partial(_build, path, page))


def _build(path: LeafPath, page: ArrayPage, leaf: Leaf) -> pa.Array:
    return nest(path, page.leaf_array(leaf), leaf[2])


def _kind(values: ArrayEncoding) -> int | None:
    """Number of the encoding in the kernels; None for an unsupported encoding."""
    if isinstance(values, Variable):
        return None if isinstance(values, Coded) else _WIDE_STRINGS if values.ends.wide else _STRINGS
    if not isinstance(values, DictionaryValues):
        return _FIXED
    items = values.items
    if not isinstance(items, Variable) or isinstance(items, Coded) or items.ends.buffer.scheme or items.data.scheme:
        return None
    return _CODES


def _buffers(message: pb.ArrayEncoding) -> list[int] | None:
    """Numbers of the page's buffers that a message refers to, in order; None for an unsupported message."""
    kind = message.WhichOneof("array_encoding")
    if kind == "nullable":
        nullable = message.nullable
        match nullable.WhichOneof("nullability"):
            case "no_nulls":
                return _buffers(nullable.no_nulls.values)
            case "some_nulls":
                return _joined(nullable.some_nulls.validity, nullable.some_nulls.values)
        return None
    if kind == "fixed_size_list":
        return _buffers(message.fixed_size_list.items)
    if kind == "binary":
        return _joined(message.binary.indices, message.binary.bytes)
    if kind == "dictionary":
        return _joined(message.dictionary.indices, message.dictionary.items)
    if kind != "flat" or message.flat.buffer.buffer_type != pb.BUFFER_TYPE_PAGE:
        return None
    return [message.flat.buffer.buffer_index]


def _joined(first: pb.ArrayEncoding, second: pb.ArrayEncoding) -> list[int] | None:
    of_first, of_second = _buffers(first), _buffers(second)
    return None if of_first is None or of_second is None else of_first + of_second
