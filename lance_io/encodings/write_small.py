"""Encodes many small pages of plain columns in one kernel call, which saves the per-page overhead of Python.

The kernel makes the same choices as `write_pages.py` does for a column without options, by the same thresholds, and
produces the same bytes. It leaves these pages to `write_pages.py`: dictionaries, coded or long strings, constants of
variable width or next to nulls.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io import _kernels
from lance_io.encodings.open_page import rules_for
from lance_io.encodings.options import DEFAULT_OPTIONS
from lance_io.encodings.v2_1.choose import LARGE_VALUE_BYTES
from lance_io.encodings.v2_1.write_dictionary import INDEX_BITS, ITEMS_MAX, VALUES_MIN
from lance_io.encodings.v2_1.write_miniblock import CHUNK_LEVELS_MAX
from lance_io.encodings.v2_1.write_strings import LONGEST_BYTES_MIN, PAGE_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io._kernels import PageRules, SmallPages
    from lance_io.encodings.options import ColumnOptions
    from lance_io.format.version import FileVersion
    from lance_io.levels.path import LeafPath

SMALL_PAGE_BYTES_MAX: Final = 64 << 10
"""Leaf data of a page above which encoding dominates the cost, not the overhead per page."""

_KINDS: Final = {
    pa.bool_().id: 0,
    pa.string().id: 16,
    pa.large_string().id: 17,
    pa.binary().id: 18,
    pa.large_binary().id: 19,
}
_WORD_BITS: Final = (8, 16, 32, 64)


def small_kind(path: LeafPath, options: ColumnOptions) -> int | None:
    """The kernel's code for the type of a column; None for a column that the kernel does not encode."""
    if len(path.nodes) > 1 or path.leaf.is_blob or options != DEFAULT_OPTIONS:
        return None
    dtype = path.leaf_type
    if pa.types.is_primitive(dtype) and dtype.bit_width in _WORD_BITS:
        return int(dtype.bit_width) // 8
    return _KINDS.get(dtype.id)


def encode_small_pages(columns: Sequence[tuple[int, pa.Array]], version: FileVersion) -> list[tuple[int, SmallPages]]:
    """Encode neighbouring columns: `(index of the first column, pages)` for each run that the kernel accepts.

    columns  kind (`small_kind`) and all rows of each column
    """
    described = [(kind, array.offset, len(array), array.null_count > 0, array.buffers()) for kind, array in columns]
    return _kernels.encode_small_pages(described, page_rules(rules_for(version).wide_chunks))


@cache
def page_rules(wide_chunks: bool) -> PageRules:
    """The thresholds of the general writer, for the kernel."""
    return _kernels.PageRules(
        wide_chunks=wide_chunks,
        chunk_target_bytes=DEFAULT_OPTIONS.minichunk_bytes,
        chunk_levels_max=CHUNK_LEVELS_MAX,
        large_value_bytes=LARGE_VALUE_BYTES,
        coded_value_bytes_min=LONGEST_BYTES_MIN,
        coded_page_bytes_min=PAGE_BYTES_MIN,
        dictionary_values_min=VALUES_MIN,
        dictionary_items_max=ITEMS_MAX,
        dictionary_divisor=DEFAULT_OPTIONS.dictionary_divisor,
        dictionary_size_ratio=DEFAULT_OPTIONS.dictionary_size_ratio,
        index_bits=INDEX_BITS,
    )
