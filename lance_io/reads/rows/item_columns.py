"""Columns of a take of which only items of lists are read.

    {"x": "l[18]"}        item 17 of each row, wherever no other output needs more of `l`
    take_items("l", ...)  other items of each row (`take_items.py`)

Then the list of each row holds just these items, null where it has no such item, and expressions count among them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lance_io.levels.path import leaf_paths
from lance_io.reads.version.column_lists import fields_along

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.format.schema import Field, Schema
    from lance_io.reads.version.column_lists import Projection
    from lance_io.spans import IntArray

    Items = Mapping[int, IntArray]
    """By field id of a leaf: i64[k], ascending, counted from 0 on."""


def is_plain_list(field: Field) -> bool:
    """Whether a field is a list of any length; maps and vectors are none."""
    return field.logical_type.startswith(("list", "large_list"))


def split_items(schema: Schema, projection: Projection) -> tuple[Projection, Items]:
    """The projection over lists of just the items that it reads, and which these are."""
    if all([one.computed is None for one in projection.outputs]):
        return projection, {}
    wanted = _elements(projection)
    places, items = {}, {}
    for path, numbers in wanted.items():
        if numbers is None:
            continue
        field = fields_along(schema, path)[-1]
        if not is_plain_list(field):
            continue
        ordered = sorted(numbers)
        places[path] = {number: place if number else 0 for place, number in enumerate(ordered, 1)}
        of_list = np.array(ordered, dtype=np.int64) - 1
        items.update({leaf.leaf.id: of_list for leaf in leaf_paths(field.describe_blobs())})
    if not places:
        return projection, items
    outputs = [
        one if one.computed is None else replace(one, computed=one.computed.over_places(places))
        for one in projection.outputs
    ]
    return replace(projection, outputs=tuple(outputs)), items


def _elements(projection: Projection) -> dict[tuple[str, ...], set[int] | None]:
    """Elements read of each column that only expressions read; None where one of them, or another output, reads more,
    a struct around it among them.
    """
    found: dict[tuple[str, ...], set[int] | None] = {}
    for output in projection.outputs:
        read = dict.fromkeys(output.sources) if output.computed is None else output.computed.elements
        for path, numbers in read.items():
            known = found.setdefault(path, set())
            found[path] = None if known is None or numbers is None else known | numbers
    if all(numbers is None for numbers in found.values()):
        return {}
    whole = [path for path, numbers in found.items() if numbers is None]
    is_within = {path: any(_overlap(path, other) for other in whole) for path in found}
    return {path: None if is_within[path] else numbers for path, numbers in found.items()}


def _overlap(path: Sequence[str], other: Sequence[str]) -> bool:
    """Whether one of two columns is part of the other."""
    return all(one == another for one, another in zip(path, other, strict=False))


def items_of_rows(items: Items, row_counts: Sequence[int]) -> list[Items]:
    """The same items for each row of some fragments, as reading takes them."""
    return [
        {leaf_id: np.broadcast_to(of_list, (count, len(of_list))) for leaf_id, of_list in items.items()}
        for count in row_counts
    ]
