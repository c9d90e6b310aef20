"""A page in two halves: for rows whose nulls and empty lists are too many for the chunks of one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_io.encodings.v2_1.write_miniblock import max_visible
from lance_io.levels.leafpage import LeafPage
from lance_io.levels.path import LIST_LAYERS

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.levels.leafpage import Levels

ALL_VALID_ITEM = 1
ALL_VALID_LIST = 2


def split_page(page: LeafPage) -> tuple[LeafPage, LeafPage] | None:
    """The page cut at the row that begins nearest to the middle of its levels; None for a page of one row.

    Without repetition rows are items, which chunks always can count: None, too.
    """
    if page.repetition is None or page.num_rows < 2:
        return None
    max_rep = sum(layer in LIST_LAYERS for layer in page.layers)
    starts = np.flatnonzero(page.repetition == max_rep)
    middle = int(np.abs(starts[1:] - page.num_levels // 2).argmin()) + 1
    cut = int(starts[middle])
    num_items = cut
    if page.definition is not None:
        num_items = int((page.definition[:cut] <= max_visible(page.layers)).sum())
    values = page.values
    return (
        _part(page, middle, slice(None, cut), values.slice(0, num_items)),
        _part(page, page.num_rows - middle, slice(cut, None), values.slice(num_items)),
    )


def _part(page: LeafPage, num_rows: int, levels: slice, values: pa.Array) -> LeafPage:
    assert page.repetition is not None, "only pages with lists are cut"
    definition: Levels | None = None if page.definition is None else page.definition[levels]
    layers = page.layers
    if definition is not None and not definition.any():  # nothing is null here: levels and layers say so, too
        definition = None
        layers = tuple(ALL_VALID_LIST if layer in LIST_LAYERS else ALL_VALID_ITEM for layer in layers)
    return LeafPage(num_rows, layers, page.repetition[levels], definition, values)
