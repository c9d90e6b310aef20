"""Takes that read only single items of lists.

    {"x": "l[18]"}        item 17 of each row, if no other output needs more of `l`
    take_items("l", ...)  other items of each row (`take_items.py`)

The list of each row then holds just these items, null where it has no such item, and expressions count among them.
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
    """Whether a field is a list of any length, no map or vector."""
    return field.logical_type.startswith(("list", "large_list"))


def split_items(schema: Schema, projection: Projection) -> tuple[Projection, Items]:
    """The projection over lists of just the items that it reads, and these items."""
    wanted = _elements(projection)
    slots, items = {}, {}
    for path, numbers in wanted.items():
        if numbers is None:
            continue
        field = fields_along(schema, path)[-1]
        if not is_plain_list(field):
            continue
        ordered = sorted(numbers)
        slots[path] = {number: slot if number else 0 for slot, number in enumerate(ordered, 1)}
        of_list = np.array(ordered, dtype=np.int64) - 1
        items.update({leaf.leaf.id: of_list for leaf in leaf_paths(field.describe_blobs())})
    if not slots:
        return projection, items
    outputs = [
        output if output.computed is None else replace(output, computed=output.computed.with_item_numbers(slots))
        for output in projection.outputs
    ]
    return replace(projection, outputs=tuple(outputs)), items


def _elements(projection: Projection) -> dict[tuple[str, ...], set[int] | None]:
    """Elements of lists that are read, by column, for columns that expressions read.

    None for a column of which more than elements is read: by an output, by an expression, or with a struct around it.
    """
    elements: dict[tuple[str, ...], set[int] | None] = {}
    for output in projection.outputs:
        read = dict.fromkeys(output.sources) if output.computed is None else output.computed.elements
        for path, numbers in read.items():
            known = elements.setdefault(path, set())
            elements[path] = None if known is None or numbers is None else known | numbers
    if all(numbers is None for numbers in elements.values()):
        return {}
    whole = [path for path, numbers in elements.items() if numbers is None]
    is_within = {path: any(_overlap(path, other) for other in whole) for path in elements}
    return {path: None if is_within[path] else numbers for path, numbers in elements.items()}


def _overlap(path: Sequence[str], other: Sequence[str]) -> bool:
    """Whether one of two columns is part of the other."""
    return all(name == another for name, another in zip(path, other, strict=False))


def items_of_rows(items: Items, row_counts: Sequence[int]) -> list[Items]:
    """The same items for each row of some fragments, in the form that reads take."""
    return [
        {leaf_id: np.broadcast_to(of_list, (count, len(of_list))) for leaf_id, of_list in items.items()}
        for count in row_counts
    ]
