"""From a leaf's levels and values to a page: the one entry of the writing side.

    no items, or all null       constant page         `write_constant.py`
    Arrow dictionary, few distinct values             mini-block with a dictionary
    small values                mini-block            `write_miniblock.py`
    large values                full-zip              `write_fullzip.py`

Everything heavy is a kernel that lets go of the GIL, and nothing is shared: pages may be encoded on several threads.
Specification: structural encodings 2.1, section 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.encodings.leafvalues import leaf_values
from lance_io.encodings.registry import rules_for
from lance_io.encodings.v2_1.choose import choose_codec, is_narrow
from lance_io.encodings.v2_1.write_miniblock import MiniBlock, encode_miniblock
from lance_io.errors import UnsupportedError

if TYPE_CHECKING:
    from lance_io.encodings.options import ColumnOptions
    from lance_io.encodings.written import EncodedPage
    from lance_io.format.version import FileVersion
    from lance_io.levels.leafpage import LeafPage
    from lance_io.levels.path import LeafPath


def encode_page(path: LeafPath, page: LeafPage, options: ColumnOptions, version: FileVersion) -> EncodedPage:
    """Encode some rows of a leaf column as one page.

    path     the column's way through the schema
    page     its levels and values
    options  what the field's metadata asks for (`options.column_options`)
    version  of the file, 2.1 or 2.2
    Raises UnsupportedError for what this file version cannot store.
    """
    rules = rules_for(version)
    values = leaf_values(page.values)
    if is_narrow(values):
        encoded = encode_miniblock(page, MiniBlock(values, choose_codec(values, options)), options, rules)
        if encoded is not None:
            return encoded
    raise UnsupportedError(f"column {path.name}: full-zip pages are not written yet")
