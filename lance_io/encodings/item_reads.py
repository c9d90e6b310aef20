"""Takes of list items: they read single items instead of whole lists if the page's layout allows it.

    mini-block, one level of lists               reads the item's chunk, located by the repetition index
    full-zip of fixed width, one level of lists  reads the item: entry i of a row is at i * stride
    lists of version 2.0                         reads the list's end offset, then the item
    all others                                   read the whole list

Specification: structural encodings 2.1, sections 3.4 and 5; encodings 2.0, section 5.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.encodings.api import ArrayLayout
from lance_io.encodings.v2_1.chunk_items import read_chunk_items
from lance_io.encodings.v2_1.entry_items import read_entry_items
from lance_io.encodings.v2_1.fullzip import FullZipPage
from lance_io.encodings.v2_1.miniblock import MiniBlockIndex, MiniBlockPage
from lance_io.errors import UnsupportedError
from lance_io.records import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.encodings.api import PageIndex, PageLayout
    from lance_io.levels.path import LeafPath
    from lance_io.spans import IntArray, Steps


@dataclass(slots=True, eq=False)
class ItemSelection:
    """Items of the outermost lists of some rows of one page: ascending by row, then item, each once.

    rows   i64[n], page-relative
    items  i64[n], position in the list, from 0; no list has an item at a negative position
    """

    rows: IntArray
    items: IntArray


def reads_items(page: PageLayout) -> bool:
    """Whether `read_items` reads this page."""
    if isinstance(page, ArrayLayout):
        return page.reads_items
    if isinstance(page, FullZipPage):
        is_supported = page.has_lists and not page.is_variable
    else:
        is_supported = isinstance(page, MiniBlockPage) and page.has_lists
    if not is_supported:
        return False
    path: LeafPath = page.source.path  # type: ignore[attr-defined]  # both classes have it
    return path.num_lists == 1 and path.slots_per_row == 1


def read_items(page: PageLayout, index: PageIndex | None, wanted: ItemSelection) -> Steps[pa.Array]:
    """The items, null if the row's list has no such item. They keep the nesting below the outermost list.

    index  as for `PageLayout.read`
    Takes one round, plus the rounds that `PageLayout.read` needs to locate rows. Raises FormatError.
    """
    if isinstance(page, MiniBlockPage):
        assert isinstance(index, MiniBlockIndex), "mini-block pages are read with their index"
        return read_chunk_items(page, index, wanted)
    if isinstance(page, FullZipPage):
        return read_entry_items(page, index, wanted)
    if isinstance(page, ArrayLayout):
        return page.read_items(index, wanted)
    raise UnsupportedError(f"items of a page of {type(page).__name__}")
