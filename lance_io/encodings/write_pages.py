"""Encodes a leaf's levels and values as pages: the single entry point of the writing side.

    blobs                       descriptors of blobs  `write_blob.py`
    no items, or all null       page without values   `write_constant.py`
    one value only, from 2.2    constant page         `../v2_2/write_constant.py`
    Arrow dictionary, few distinct values             mini-block with a dictionary
    small values                mini-block            `write_miniblock.py`
    large values                full-zip              `write_fullzip.py`; mini-block, if bits would end within a byte

For small pages of columns without options, `kernels/src/miniblock/small_pages.rs` makes the same choices in bulk
(`write_small.py`), by the same thresholds; a test compares the files.

The kernels do the heavy work without the GIL, and pages share no state: several threads may encode pages.
Specification: structural encodings 2.1, section 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.codecs.tree import ListShape, VariableShape
from lance_io.encodings.leafvalues import has_plain_rows, leaf_values
from lance_io.encodings.open_page import rules_for
from lance_io.encodings.v2_1.choose import choose_codec, is_narrow, value_bits
from lance_io.encodings.v2_1.write_blob import encode_blob_page
from lance_io.encodings.v2_1.write_constant import encode_null_page, has_no_values
from lance_io.encodings.v2_1.write_dictionary import split_arrow_dictionary, split_dictionary
from lance_io.encodings.v2_1.write_fullzip import encode_fullzip, fits_fullzip
from lance_io.encodings.v2_1.write_miniblock import MiniBlock, encode_miniblock, max_visible
from lance_io.encodings.v2_1.write_strings import code_strings
from lance_io.encodings.v2_2.write_constant import encode_constant_page
from lance_io.levels.leafpage import LeafPage
from lance_io.levels.path import LIST_LAYERS

if TYPE_CHECKING:
    from lance_io.encodings.options import ColumnOptions
    from lance_io.encodings.v2_1.page import VersionRules
    from lance_io.encodings.written import EncodedPage
    from lance_io.format.version import FileVersion
    from lance_io.levels.leafpage import Levels
    from lance_io.levels.path import LeafPath


def encode_pages(path: LeafPath, page: LeafPage, options: ColumnOptions, version: FileVersion) -> list[EncodedPage]:
    """Encode some rows of a leaf column, as one page where possible.

    path     the column's path in the schema
    page     its levels and values
    options  from the field's metadata (`options.column_options`)
    version  of the file, 2.1 or 2.2

    Returns several pages, in row order, if more nulls and empty lists lie between two values than a chunk can count.
    Raises UnsupportedError for values that this file version cannot store.
    """
    rules = rules_for(version)
    encoded = _encode_whole(path, page, options, rules)
    if encoded is not None:
        return [encoded]
    halves = split_page(page)
    if halves is None:
        return [encode_fullzip(path, page, options, rules)]
    return [each for half in halves for each in encode_pages(path, half, options, version)]


def _encode_whole(path: LeafPath, page: LeafPage, options: ColumnOptions, rules: VersionRules) -> EncodedPage | None:
    """The page as a whole; None if it should be mini-block but its chunks cannot count its levels."""
    if path.leaf.is_blob:
        return encode_blob_page(path, page, options, rules)
    if has_no_values(page):
        return encode_null_page(path, page, rules)
    constant = encode_constant_page(page, options, rules) if rules.constant_values else None
    if constant is not None:
        return constant
    plan = _plan_miniblock(page, options, rules)
    if plan is None:
        return encode_fullzip(path, page, options, rules)
    return encode_miniblock(page, plan, options, rules)


def _plan_miniblock(page: LeafPage, options: ColumnOptions, rules: VersionRules) -> MiniBlock | None:
    """The mini-block plan of a page; None for values that are better stored in a full-zip page."""
    if pa.types.is_dictionary(page.values.type):
        keys, dictionary = split_arrow_dictionary(page.values, options, rules)
        return MiniBlock(keys, choose_codec(keys, options), dictionary)
    if pa.types.is_struct(page.values.type) and not has_plain_rows(page.values.type):
        return None
    values = leaf_values(page.values)
    split = split_dictionary(values, options, rules)
    if split is not None:
        indices, dictionary = split
        return MiniBlock(indices, choose_codec(indices, options), dictionary)
    wants_fullzip = options.layout == "fullzip" or not (options.layout == "miniblock" or is_narrow(values))
    if isinstance(values.shape, ListShape) and not value_bits(values.shape):  # lists of nulls: no codec of chunks
        return None
    if wants_fullzip and fits_fullzip(values.shape):
        return None
    is_text = pa.types.is_string(page.values.type) or pa.types.is_large_string(page.values.type)
    if is_text or (options.compression == "fsst" and isinstance(values.shape, VariableShape)):
        coded = code_strings(values, options)
        if coded is not None:
            codec, codes = coded
            return MiniBlock(codes, codec)
    return MiniBlock(values, choose_codec(values, options))


ALL_VALID_ITEM = 1
ALL_VALID_LIST = 2


# -- rows with more nulls and empty lists than the chunks of one page can count ----------------------------------------


def split_page(page: LeafPage) -> tuple[LeafPage, LeafPage] | None:
    """Cut the page at the row nearest to the middle of its levels; None for a page of one row.

    Also None without repetition: then rows are items, which chunks can always count.
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
    if definition is not None and not definition.any():  # nothing is null in this part: the layers say so, too
        definition = None
        layers = tuple(ALL_VALID_LIST if layer in LIST_LAYERS else ALL_VALID_ITEM for layer in layers)
    return LeafPage(num_rows, layers, page.repetition[levels], definition, values)
