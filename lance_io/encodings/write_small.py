"""Small pages of plain columns, many at once: one kernel call instead of a way through Python for each.

The kernel decides as `write_pages.py` does for a column without options and makes the same bytes. What it leaves out is
for that way: dictionaries, coded or long strings, constants of variable width or beside nulls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io import _kernels
from lance_io.encodings.options import DEFAULT_OPTIONS
from lance_io.encodings.registry import rules_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io._kernels import SmallPages
    from lance_io.encodings.options import ColumnOptions
    from lance_io.format.version import FileVersion
    from lance_io.levels.path import LeafPath

SMALL_PAGE_BYTES_MAX: Final = 64 << 10
"""Leaf data of a page from which on encoding is the work, not what is around it."""

_KINDS: Final = {
    pa.bool_().id: 0,
    pa.string().id: 16,
    pa.large_string().id: 17,
    pa.binary().id: 18,
    pa.large_binary().id: 19,
}
_WORD_BITS: Final = (8, 16, 32, 64)


def small_kind(path: LeafPath, options: ColumnOptions) -> int | None:
    """How the kernel names the type of a column; None for a column that is not for it."""
    if len(path.nodes) > 1 or path.leaf.is_blob or options != DEFAULT_OPTIONS:
        return None
    dtype = path.leaf_type
    if pa.types.is_primitive(dtype) and dtype.bit_width in _WORD_BITS:
        return int(dtype.bit_width) // 8
    return _KINDS.get(dtype.id)


def encode_small_pages(columns: Sequence[tuple[int, pa.Array]], version: FileVersion) -> list[tuple[int, SmallPages]]:
    """Pages of neighbouring columns: `(number of the first, pages)` for each run of those that the kernel makes.

    columns  kind (`small_kind`) and all rows of each
    """
    given = [(kind, array.offset, len(array), array.null_count > 0, array.buffers()) for kind, array in columns]
    return _kernels.encode_small_pages(given, rules_for(version).wide_chunks)
