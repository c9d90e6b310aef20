"""Opens a page of a file of version 2.1 or 2.2: creates the object that reads the page.

The column metadata describes each page by a protobuf message `PageLayout` in an `Any`. `open_page` parses the message,
checks it against the column's path in the schema, and returns an object that reads and decodes the page's values. The
interface of this object is also named `PageLayout` (`encodings/api.py`).
Specification: file container, section 3; structural encodings, section 1.
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

PAGE_LAYOUT_MESSAGE: Final = "lance.encodings21.PageLayout"
RULES: Final[dict[FileVersion, VersionRules]] = {V2_1: RULES_2_1, V2_2: RULES_2_2}


def rules_for(version: FileVersion) -> VersionRules:
    """The rules by which page layouts differ between file versions.

    Raises UnsupportedError for any version except 2.1 and 2.2.
    """
    rules = RULES.get(version)
    if rules is None:
        raise UnsupportedError(f"pages of file version {version} are not read by this release")
    return rules


def open_page(version: FileVersion, page: PageInfo, path: LeafPath) -> PageLayout:
    """Create the object that reads one page. Does no I/O.

    version  version of the file
    page     the page, as the column metadata describes it
    path     the column's path in the schema
    Raises FormatError if the message does not parse, or contradicts itself or the schema; UnsupportedError for a
    message or a layout of an unknown type.
    """
    if page.type_name != PAGE_LAYOUT_MESSAGE:
        raise UnsupportedError(f"page encoding {page.type_name!r}; file version {version} uses {PAGE_LAYOUT_MESSAGE!r}")
    message = pb.PageLayout()
    try:
        message.ParseFromString(page.encoding)
    except DecodeError as error:
        raise FormatError(f"page encoding message does not parse: {error}") from None
    source = PageSource(page.buffer_offsets, page.buffer_sizes, page.num_rows, path, rules_for(version))
    return _open_layout(message, source)


def _open_layout(message: pb.PageLayout, source: PageSource) -> PageLayout:
    """Create the object that reads pages of this layout.

    In file version 2.1, a constant layout stores only nulls and empty lists. Version 2.2 adds repeated values.
    """
    match message.WhichOneof("layout"):
        case "mini_block_layout":
            return MiniBlockPage(source, message.mini_block_layout)
        case "full_zip_layout":
            return FullZipPage(source, message.full_zip_layout)
        case "constant_layout":
            if source.rules.constant_values:
                return constant_pages.ConstantPage(source, message.constant_layout)
            return null_pages.NullPage(source, message.constant_layout)
        case "blob_layout":
            return _open_blob(message.blob_layout, source)
        case None:
            raise FormatError("unknown page layout (or an empty message)")
        case layout_name:
            raise UnsupportedError(f"page layout {layout_name!r} is not part of file versions 2.1 and 2.2")


def _open_blob(blob: pb.BlobLayout, source: PageSource) -> PageLayout:
    """Open a blob page. Its inner layout stores the descriptors, which locate the blobs in the file."""
    if not source.path.leaf.is_blob:
        raise FormatError("a blob page in a column that the schema does not declare as blob")
    if blob.inner_layout.WhichOneof("layout") == "blob_layout":
        raise FormatError("a blob page inside a blob page")
    descriptor_leaf = PathNode(NodeKind.LEAF, source.path.leaf, blob_pages.DESCRIPTOR_TYPE)
    descriptor_source = source._replace(path=LeafPath((descriptor_leaf,)))
    return blob_pages.BlobPage(source, tuple(blob.layers), _open_layout(blob.inner_layout, descriptor_source))
