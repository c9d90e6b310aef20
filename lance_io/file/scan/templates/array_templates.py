"""Templates for decoding pages of file version 2.0. Small files often have pages with equal messages.

A template describes a page to the kernels. They decode every page whose message equals that of the template. These
pages are supported:

    values of fixed width
    strings without a symbol table, and dictionaries of such strings
    lists whose items are one of these
    nulls only, in a column that has neither structs nor lists
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

    # A list page for the kernels: message, count of buffers, number of the offsets' buffer, whether offsets are wide
    ListsForKernel = tuple[bytes, int, int, bool]

_FIXED, _STRINGS, _WIDE_STRINGS, _DICTIONARY = range(4)  # numbers of the encodings in the kernels


def template_of(page: PageLayout, infos: Sequence[PageInfo]) -> PageTemplate | None:
    """The template of a page, None if the page is not supported.

    infos  metadata of the page; a list page has two: its own, then the metadata of the page of its items
    """
    if isinstance(page, ArrayPage):
        return _array_template(page, infos, None)
    return _list_template(page, infos) if isinstance(page, ListPage) else None


def _list_template(page: ListPage, infos: Sequence[PageInfo]) -> PageTemplate | None:
    if page.items is None or len(infos) != 2 or page.node.kind is not NodeKind.LIST or page.ends.buffer.scheme:
        return None
    offset_buffers, items = _buffer_numbers(page.source.message.list.offsets), page.items.pages[0]
    if offset_buffers is None or len(offset_buffers) != 1 or not isinstance(items, ArrayPage):
        return None
    lists = infos[0].encoding, len(infos[0].buffer_sizes), offset_buffers[0], page.ends.wide
    return _array_template(items, infos, lists)


def _array_template(page: ArrayPage, infos: Sequence[PageInfo], lists: ListsForKernel | None) -> PageTemplate | None:
    """The template of a page of values, which are the items of `lists`, if given."""
    path, info = page.path, infos[-1]
    if page.kind is None:  # the kernels do not decode the values
        is_plain = lists is None and isinstance(page.values, AllNull)
        return null_template(path, info.encoding, "array ") if is_plain else None
    encoding, buffers = _kernel_encoding(page.values), _buffer_numbers(page.source.message)
    if encoding is None or buffers is None:
        return None
    has_bitmap = page.kind.present_at is not None
    value_layout = page.kind.row_bits, has_bitmap, page.kind.num_bitmaps
    nodes = around_leaf(path.nodes[:-1])
    for_kernel = info.encoding, len(info.buffer_sizes), buffers, value_layout, encoding, nodes, lists
    return PageTemplate(for_kernel, f"array {path.array_kind} {page.kind.shape!r}", partial(_build_array, path, page))


def _build_array(path: LeafPath, page: ArrayPage, leaf: Leaf) -> pa.Array:
    return nest(path, page.leaf_array(leaf), leaf[2])


def _kernel_encoding(values: ArrayEncoding) -> int | None:
    """Number of the encoding in the kernels; None if unsupported, such as strings with a symbol table (`Coded`)."""
    if isinstance(values, Variable):
        return None if isinstance(values, Coded) else _WIDE_STRINGS if values.ends.wide else _STRINGS
    if not isinstance(values, DictionaryValues):
        return _FIXED
    items = values.items
    if not isinstance(items, Variable) or isinstance(items, Coded) or items.ends.buffer.scheme or items.data.scheme:
        return None
    return _DICTIONARY


def _buffer_numbers(message: pb.ArrayEncoding) -> list[int] | None:
    """Numbers of the page's buffers, in the order in which the message has them; None for an unsupported message."""
    kind = message.WhichOneof("array_encoding")
    if kind == "nullable":
        nullable = message.nullable
        match nullable.WhichOneof("nullability"):
            case "no_nulls":
                return _buffer_numbers(nullable.no_nulls.values)
            case "some_nulls":
                return _join_buffer_numbers(nullable.some_nulls.validity, nullable.some_nulls.values)
        return None
    if kind == "fixed_size_list":
        return _buffer_numbers(message.fixed_size_list.items)
    if kind == "binary":
        return _join_buffer_numbers(message.binary.indices, message.binary.bytes)
    if kind == "dictionary":
        return _join_buffer_numbers(message.dictionary.indices, message.dictionary.items)
    if kind != "flat" or message.flat.buffer.buffer_type != pb.BUFFER_TYPE_PAGE:
        return None
    return [message.flat.buffer.buffer_index]


def _join_buffer_numbers(first: pb.ArrayEncoding, second: pb.ArrayEncoding) -> list[int] | None:
    first_buffers, second_buffers = _buffer_numbers(first), _buffer_numbers(second)
    return None if first_buffers is None or second_buffers is None else first_buffers + second_buffers
