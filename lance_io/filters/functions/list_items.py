"""List functions of text filters. Lists of any Arrow layout; a null list gives null, null items equal nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.filters.elementwise import broadcast
from lance_io.filters.evaluate import compare
from lance_io.filters.expressions.casts import positional, sql_cast
from lance_io.filters.expressions.sql_types import is_list
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.functions.list_columns import in_same_layout, lists_of_rows, map_entries
from lance_io.filters.functions.list_pool import Pool, ends_of
from lance_io.filters.kernel_calls import flags
from lance_io.filters.value_order import codes
from lance_io.levels.arrays import booleans, numbers
from lance_io.levels.portable import kept, taken

if TYPE_CHECKING:
    from lance_io.filters.elementwise import Value


def _parents(lists: pa.Array) -> np.ndarray:
    """The row of each item of `pc.list_flatten(lists)`."""
    parents: np.ndarray = pc.list_parent_indices(lists).to_numpy()
    return parents


def _rows_where(lists: pa.Array, items: pa.Array) -> np.ndarray:
    """Whether an item of each row is true, bool[len(lists)]."""
    hit = np.zeros(len(lists), dtype=np.bool_)
    hit[_parents(lists)[pc.fill_null(items, False).to_numpy(zero_copy_only=False)]] = True
    return hit


def _null_where(values: np.ndarray, *sources: pa.Array) -> pa.Array:
    """The booleans with nulls where a source is null."""
    mask = np.zeros(len(values), dtype=np.bool_)
    for source in sources:
        mask |= source.is_null().to_numpy(zero_copy_only=False)
    return pa.array(values, pa.bool_(), mask=mask)


def has(lists: Value, item: Value) -> pa.Array:
    """Whether a list contains an item; null if the item is null."""
    lists, items = broadcast(lists, item)
    flat = pc.list_flatten(lists)
    beside = item if isinstance(item, pa.Scalar) else taken(items, pa.array(_parents(lists)))
    contains = _rows_where(lists, compare("=", flat, beside))
    return _null_where(contains, lists, items)


def _keys(left: pa.Array, right: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """A key for each item of two columns of lists. Equal items (nulls included) of the same row share a key."""
    flat = [pc.list_flatten(left), pc.list_flatten(right)]
    numbers = codes(pa.concat_arrays(flat))
    width = int(numbers.max(initial=0)) + 1
    cut = len(flat[0])
    return _parents(left) * width + numbers[:cut], _parents(right) * width + numbers[cut:]


def has_any(left: Value, right: Value) -> pa.Array:
    """Whether two lists have an item in common."""
    left, right = broadcast(left, right)
    ours, theirs = _keys(left, right)
    overlaps = np.zeros(len(left), dtype=np.bool_)
    overlaps[_parents(left)[np.isin(ours, theirs)]] = True
    return _null_where(overlaps, left, right)


def has_all(left: Value, right: Value) -> pa.Array:
    """Whether the first list contains all items of the second; always true for an empty literal."""
    if isinstance(right, pa.Scalar) and right.is_valid and len(right) == 0:
        return pa.array(np.ones(len(left), dtype=np.bool_))
    left, right = broadcast(left, right)
    ours, theirs = _keys(left, right)
    contains = np.ones(len(left), dtype=np.bool_)
    contains[_parents(right)[~np.isin(theirs, ours)]] = False
    return _null_where(contains, left, right)


def length(lists: Value, dimension: Value | None = None) -> pa.Array:
    """The number of items, u64; null for other dimensions than the first."""
    counted = cardinality(lists)
    if dimension is None:
        return counted
    return pc.if_else(pc.equal(dimension, 1), counted, pa.scalar(None, pa.uint64()))


def cardinality(lists: Value) -> pa.Array:
    """The number of items, u64."""
    return pc.list_value_length(lists).cast(pa.uint64())


def num_dimensions(lists: Value) -> pa.Array:
    """The number of list levels of the type, u64; null for a null list."""
    (lists,) = broadcast(lists)
    depth, inner = 0, lists.type
    while is_list(inner):
        depth, inner = depth + 1, inner.value_type
    return pc.if_else(lists.is_valid(), pa.scalar(depth, pa.uint64()), pa.scalar(None, pa.uint64()))


def dimensions(lists: Value) -> pa.Array:
    """The number of items on each level, along the first items, list of u64; null for an empty list.

    If the first item is null or absent, the level has 0 items; for lists of a fixed size it has that many.
    """
    (level,) = broadcast(lists)
    ends = ends_of(level)
    sizes, firsts = [np.diff(ends)], ends[:-1]
    has_first = sizes[0] > 0
    present = (flags(level) & has_first) if level.null_count else has_first
    while is_list(level.type.value_type):
        level = pc.list_flatten(level)
        size_of_null = level.type.list_size if pt.is_fixed_size_list(level.type) else 0
        ends = ends_of(level)
        at = np.where(has_first, firsts, 0)
        if not len(level):
            sizes.append(np.full(len(at), size_of_null))
            continue
        is_there = has_first & flags(level)[at]
        level_sizes = np.diff(ends)[at]
        sizes.append(np.where(is_there, level_sizes, size_of_null))
        has_first, firsts = is_there & (level_sizes > 0), ends[at]
    items = numbers(np.stack(sizes, axis=1).reshape(-1).astype(np.uint64))
    offsets = np.arange(0, len(items) + 1, len(sizes), dtype=np.int32)
    result = pa.ListArray.from_arrays(pa.array(offsets), items)
    return pc.if_else(booleans(present), result, pa.scalar(None, result.type))


def num_entries(value: Value) -> pa.Array:
    """The number of entries of a map or items of a list, u64; for a list of lists the product of its dimensions."""
    if is_list(value.type) and is_list(value.type.value_type):
        sizes = [None if row is None else math.prod(row) for row in dimensions(value).to_pylist()]
        return pc.if_else(
            pc.is_valid(value), pc.fill_null(pa.array(sizes, pa.uint64()), 0), pa.scalar(None, pa.uint64())
        )
    return pc.list_value_length(map_entries(value) if pt.is_map(value.type) else value).cast(pa.uint64())


def is_empty(lists: Value) -> pa.Array:
    """Whether the list has no items."""
    return pc.equal(pc.list_value_length(lists), 0)


def element(lists: Value, index: Value) -> pa.Array:
    """The item at a position: 1 is the first, -1 the last; null if there is none."""
    lists, indices = broadcast(lists, index)
    if not pa.types.is_large_list(lists.type):
        lists = lists.cast(pa.large_list(lists.type.value_type))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    wanted = pc.fill_null(indices, 0).to_numpy()
    offsets = np.where(wanted > 0, wanted - 1, wanted + lengths)
    inside = (wanted != 0) & (offsets >= 0) & (offsets < lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(lengths) else lengths
    return taken(pc.list_flatten(lists), pa.array(starts + offsets, mask=~inside))


def make(*values: Value) -> Value:
    """A list of the arguments for each row."""
    return lists_of_rows(*values) if values else pa.array([[]], pa.list_(pa.null()))[0]


def to_text(lists: Value, separator: pa.Scalar, null: pa.Scalar | None = None) -> pa.Array:
    """The items joined by a separator; null items are left out, or replaced by the third argument."""
    (lists,) = broadcast(lists)
    items = pc.list_flatten(lists)
    items = positional(items) if pt.is_floating(items.type) else sql_cast(items, pa.string(), lenient=False)
    if null is not None and null.is_valid:
        items = pc.fill_null(items, null)
    present = items.is_valid()
    counts = np.bincount(_parents(lists)[present.to_numpy(zero_copy_only=False)], minlength=len(lists))
    texts = _from_counts(counts, kept(items, present))
    return pc.if_else(lists.is_valid(), pc.binary_join(texts, separator.as_py() or ""), pa.scalar(None, pa.string()))


def _from_counts(counts: np.ndarray, items: pa.Array) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def distinct(lists: Value) -> pa.Array:
    """The items without repetitions, in the order of their first occurrences."""
    return Pool(*broadcast(lists)).edited("distinct", coded=True)


def in_order(lists: Value, order: pa.Scalar | None = None, nulls: pa.Scalar | None = None) -> pa.Array:
    """The items sorted, `asc` or `desc`, with `nulls first` (the default) or `nulls last`."""
    down = order is not None and (order.as_py() or "").lower() == "desc"
    last = nulls is not None and (nulls.as_py() or "").lower() == "nulls last"
    return Pool(*broadcast(lists)).sorted(down=down, nulls_first=not last)


def _extreme(lists: Value, *, largest: bool) -> pa.Array:
    pool = Pool(*broadcast(lists))
    if pt.is_struct(pool.items.type):  # in pylance structs with an inner null compare with none: row order decides
        raise pa.ArrowNotImplementedError("the least or greatest of structs")
    return pool.extremes(largest=largest)


def smallest(lists: Value) -> pa.Array:
    """The smallest item; null if there is none."""
    return _extreme(lists, largest=False)


def largest(lists: Value) -> pa.Array:
    """The largest item; null if there is none."""
    return _extreme(lists, largest=True)


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("array_has array_contains list_has list_contains", "list item", has)
FUNCTIONS.define("array_has_any list_has_any arrays_overlap", "lists lists", has_any)
FUNCTIONS.define("array_has_all list_has_all", "lists lists", has_all)
FUNCTIONS.define("array_length list_length", "list int?", length)
FUNCTIONS.define("cardinality", "any", num_entries)
FUNCTIONS.define("empty array_empty list_empty", "list", is_empty)
FUNCTIONS.define("array_element array_extract list_element list_extract", "list int", element)
FUNCTIONS.define("make_array make_list", "same*", make)
FUNCTIONS.define("array_ndims list_ndims", "list", num_dimensions)
FUNCTIONS.define("array_dims list_dims", "list", dimensions)
FUNCTIONS.define("array_to_string array_join list_to_string list_join", "list word word?", to_text)
FUNCTIONS.define("array_distinct list_distinct", "list", in_same_layout(distinct))
FUNCTIONS.define("array_sort list_sort", "list word? word?", in_same_layout(in_order))
FUNCTIONS.define("array_min list_min", "list", smallest)
FUNCTIONS.define("array_max list_max", "list", largest)
