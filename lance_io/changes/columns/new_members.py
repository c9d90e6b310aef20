"""New members of structs, and of the items of lists, that are there already. Pure.

2.1 and later   a column of its own for each, in a new file
2.0             in a new file with the whole top-level column: structs and lists have columns, too, and pylance reads no
                file that has members without them. Nor may a column be in two files: pylance's next commit, of whatever
                kind, gives it another id in one of them

Below a list the whole list is written: leaves of one list must have as many items in every row, also in deleted ones,
for which there are no new values. A packed struct is one column in files of all versions from 2.0 on; the whole
top-level column around it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import OperationError
from lance_io.format.logical_types import LISTS
from lance_io.format.version import V0_1, V2_0
from lance_io.levels.arrays import numbers
from lance_io.levels.lists import validity, visible_items, with_items

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lance_io.format.schema import Field, Schema
    from lance_io.format.version import FileVersion
    from lance_io.spans import IntArray


_LISTS: Final = LISTS | {"map"}


def written_together(schema: Schema, ids: Collection[int], version: FileVersion) -> frozenset[int]:
    """The ids of all fields that a new file has, if it is to have these.

    schema   of the table then
    version  of the file
    """
    found = set(ids)
    for top in schema.fields:
        for one in _inseparable(top, version):
            below = {each.id for each in one.walk()}
            if not below.isdisjoint(found):
                found |= below
    return frozenset(found)


def _inseparable(field: Field, version: FileVersion) -> Iterator[Field]:
    """The largest fields that a file has wholly or not at all."""
    is_packed = version != V0_1 and any(one.is_packed for one in field.walk())
    if version == V2_0 or is_packed or field.logical_type in _LISTS:
        yield field
        return
    for child in field.children:
        yield from _inseparable(child, version)


def packed_with_gaps(before: Schema, after: Schema, version: FileVersion) -> list[str]:
    """Paths of packed structs that lose members which files go on having before others, in 2.0 also behind them.

    Members are found by the ids that files note; pylance goes by their places.
    """
    nested = [one for top in before.fields if top.children and version != V0_1 for one in top.walk()]
    packed = [one.id for one in nested if one.is_packed]
    if not packed:
        return []
    known = {field.id for field in after.walk()}
    packed = [one for one in packed if one in known]
    found = []
    for steps in paths_to(before, packed):
        is_kept = [member.id in known for member in steps[-1].children]
        if not all(is_kept) and (version == V2_0 or is_kept != sorted(is_kept, reverse=True)):
            found.append(quoted(steps))
    return found


def paths_to(schema: Schema, ids: Collection[int]) -> list[list[Field]]:
    """The fields from the top down to each of these, but for those that are below another."""
    return [steps for top in schema.fields for steps in _paths_below([], top, ids)] if ids else []


def _paths_below(above: list[Field], field: Field, ids: Collection[int]) -> Iterator[list[Field]]:
    steps = [*above, field]
    if field.id in ids:
        yield steps
        return
    for child in field.children:
        yield from _paths_below(steps, child, ids)


def quoted(steps: Sequence[Field]) -> str:
    """Fields from the top down as a path that column lists and filters take."""
    return ".".join("`" + step.name.replace("`", "``") + "`" for step in steps)


def check_no_blobs(schema: Schema, ids: Collection[int], what: Sequence[str]) -> None:
    """Raise `OperationError` where a column that would have to be written again holds blobs.

    ids   of the fields that would be written
    what  is added or changed, for the message
    """
    blobs = [
        steps for steps in paths_to(schema, [one.id for one in schema.walk() if one.holds_blobs and one.id in ids])
    ]
    if blobs:
        raise OperationError(
            f"Columns {', '.join(what)}: in files of version 2.0, below lists and beside packed structs all members "
            f"are written again, and {quoted(blobs[0])} has blobs, which are not. Add another column instead"
        )


# -- values ------------------------------------------------------------------------------------------------------------


def with_members(known: pa.Array, given: pa.Array, path: str) -> pa.Array:
    """A struct or list with new members.

    known  what is there
    given  the same column with the new members only
    path   of the column, for messages

    Where the column is given as null its new members are. Raises `OperationError` where a list is given with another
    number of items than it has.
    """
    known, given = _storage(known), _storage(given)
    if pt.is_struct(given.type):
        return _struct_with_members(known, given, path)
    if pt.is_fixed_size_list(given.type):
        return _fixed_size_with_members(known, given, path)
    items, offsets = visible_items(known)
    return with_items(known, offsets, with_members(items, _items_for(known, offsets, given, path), f"{path}.item"))


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _struct_with_members(known: pa.Array, given: pa.Array, path: str) -> pa.Array:
    fields, arrays = list(known.type), known.flatten()
    places = {member.name: place for place, member in enumerate(fields)}
    for member, values in zip(given.type, given.flatten(), strict=True):
        place = places.get(member.name)
        if place is None:
            fields.append(member)
            arrays.append(values)
        else:
            arrays[place] = with_members(arrays[place], values, f"{path}.{member.name}")
            fields[place] = fields[place].with_type(arrays[place].type)
    is_null = None
    if known.null_count and given.null_count:
        is_null = pc.and_(known.is_null(), given.is_null())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=is_null)


def _fixed_size_with_members(known: pa.Array, given: pa.Array, path: str) -> pa.Array:
    size = given.type.list_size
    old, new = (one.values.slice(one.offset * size, len(one) * size) for one in (known, given))
    if given.null_count:
        new = new.take(numbers(np.arange(len(new)), np.repeat(given.is_null().to_numpy(zero_copy_only=False), size)))
    items = with_members(old, new, f"{path}.item")
    dtype = pa.list_(known.type.value_field.with_type(items.type), size)
    return pa.Array.from_buffers(dtype, len(known), [validity(known)], known.null_count, children=[items])


def _items_for(known: pa.Array, offsets: IntArray, given: pa.Array, path: str) -> pa.Array:
    """The items that are given for those that are there: null where the whole list is."""
    items, given_offsets = visible_items(given)
    is_null = given.is_null().to_numpy(zero_copy_only=False)
    lengths, given_lengths = np.diff(offsets), np.diff(given_offsets)
    wrong = np.flatnonzero((lengths != given_lengths) & ~is_null)
    if len(wrong):
        row = int(wrong[0])
        raise OperationError(
            f"Column {path}: a list of {lengths[row]} items is given {given_lengths[row]} values of the new members. "
            "Give as many as each list has, or null for the whole list"
        )
    if not (is_null & (lengths > 0)).any():
        return items
    is_missing = np.repeat(is_null, lengths)
    places = np.cumsum(~is_missing) - 1
    return items.take(numbers(np.where(is_missing, 0, places), is_missing))
