"""Opens a page's encoding message as a layout, by file version.

A page carries a `PageLayout` message in an `Any`. `open_page` parses it, checks it against the column's schema path and
returns the layout that reads it. Specification: file container, section 3; structural encodings, section 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from lance_io.encodings.v2_1.fullzip import FullZipPage
from lance_io.encodings.v2_1.miniblock import MiniBlockPage
from lance_io.encodings.v2_1.page import RULES_2_1, RULES_2_2, PageSource, VersionRules
from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.version import V2_1, V2_2, FileVersion
from lance_io.lazy_names import lazy_module
from lance_io.levels.path import LeafPath, NodeKind, PathNode
from lance_io.proto import encodings21_pb2 as pb

if TYPE_CHECKING:
    from lance_io.encodings.api import PageLayout
    from lance_io.encodings.v2_1 import blob as blob_pages
    from lance_io.encodings.v2_1 import constant as null_pages
    from lance_io.encodings.v2_2 import constant as constant_pages
    from lance_io.format.columns import PageInfo
else:
    blob_pages = lazy_module("lance_io.encodings.v2_1.blob")
    null_pages = lazy_module("lance_io.encodings.v2_1.constant")
    constant_pages = lazy_module("lance_io.encodings.v2_2.constant")

LAYOUT_TYPE: Final = "lance.encodings21.PageLayout"
RULES: Final[dict[FileVersion, VersionRules]] = {V2_1: RULES_2_1, V2_2: RULES_2_2}


def rules_for(version: FileVersion) -> VersionRules:
    """The rules of a file version. Raises UnsupportedError for versions that these layouts do not read."""
    rules = RULES.get(version)
    if rules is None:
        raise UnsupportedError(f"pages of file version {version} are not read by this release")
    return rules


def open_page(version: FileVersion, page: PageInfo, path: LeafPath) -> PageLayout:
    """The layout of one page.

    version  of the file
    path     the column's path in the schema
    Raises FormatError for messages that contradict themselves or the schema, UnsupportedError for unknown ones.
    """
    if page.type_name != LAYOUT_TYPE:
        raise UnsupportedError(f"page encoding {page.type_name!r}; file version {version} uses {LAYOUT_TYPE!r}")
    layout = pb.PageLayout()
    try:
        layout.ParseFromString(page.encoding)
    except DecodeError as error:
        raise FormatError(f"page encoding message does not parse: {error}") from None
    source = PageSource(page.buffer_offsets, page.buffer_sizes, page.num_rows, path, rules_for(version))
    return _open(layout, source)


def _open(layout: pb.PageLayout, source: PageSource) -> PageLayout:
    match layout.WhichOneof("layout"):
        case "mini_block_layout":
            return MiniBlockPage(source, layout.mini_block_layout)
        case "full_zip_layout":
            return FullZipPage(source, layout.full_zip_layout)
        case "constant_layout":
            if source.rules.constant_values:
                return constant_pages.ConstantPage(source, layout.constant_layout)
            return null_pages.NullPage(source, layout.constant_layout)
        case "blob_layout":
            return _open_blob(layout.blob_layout, source)
        case None:
            raise FormatError("unknown page layout (or an empty message)")
        case other:
            raise UnsupportedError(f"page layout {other!r} is not part of file versions 2.1 and 2.2")


def _open_blob(blob: pb.BlobLayout, source: PageSource) -> PageLayout:
    if not source.path.leaf.is_blob:
        raise FormatError("a blob page in a column that the schema does not declare as blob")
    if blob.inner_layout.WhichOneof("layout") == "blob_layout":
        raise FormatError("a blob page inside a blob page")
    leaf = PathNode(NodeKind.LEAF, source.path.leaf, blob_pages.DESCRIPTOR_TYPE)
    descriptors = PageSource(
        source.buffer_offsets, source.buffer_sizes, source.num_rows, LeafPath((leaf,)), source.rules
    )
    return blob_pages.BlobPage(source, tuple(blob.layers), _open(blob.inner_layout, descriptors))
