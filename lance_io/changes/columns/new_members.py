"""New members of existing structs, and of items of existing lists. Pure.

2.1 and later   each new member is a column of a new file
2.0             a new file has the whole top-level column: structs and lists are columns, too, and pylance cannot read
                members in a file without them. A column must not be in two files either: pylance's next commit, of any
                kind, gives it another id in one of them

Below a list the whole list is written: all leaves of a list need the same number of items in each row, also in deleted
rows, which have no new values. A packed struct is one column in files of versions 2.0 and later; the whole top-level
column around it is written.
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
    """The ids of all fields that a new file must have in order to have `ids`.

    schema   schema of the table after the change
    version  version of the file
    """
    written = set(ids)
    for top in schema.fields:
        for field in _inseparable(top, version):
            below = {each.id for each in field.walk()}
            if not below.isdisjoint(written):
                written |= below
    return frozenset(written)


def _inseparable(field: Field, version: FileVersion) -> Iterator[Field]:
    """The largest fields that a file has as a whole or not at all."""
    is_packed = version != V0_1 and any(each.is_packed for each in field.walk())
    if version == V2_0 or is_packed or field.logical_type in _LISTS:
        yield field
        return
    for child in field.children:
        yield from _inseparable(child, version)


def packed_with_gaps(before: Schema, after: Schema, version: FileVersion) -> list[str]:
    """Paths of packed structs that lose members which the files still have before others, in 2.0 also after others.

    This package finds members by the ids in the files; pylance finds them by position.
    """
    nested = [field for top in before.fields if top.children and version != V0_1 for field in top.walk()]
    packed = [field.id for field in nested if field.is_packed]
    if not packed:
        return []
    known = {field.id for field in after.walk()}
    packed = [field_id for field_id in packed if field_id in known]
    paths = []
    for steps in paths_to(before, packed):
        is_kept = [member.id in known for member in steps[-1].children]
        if not all(is_kept) and (version == V2_0 or is_kept != sorted(is_kept, reverse=True)):
            paths.append(quoted(steps))
    return paths


def paths_to(schema: Schema, ids: Collection[int]) -> list[list[Field]]:
    """The fields from the top down to each of `ids`, except those below another of them."""
    return [steps for top in schema.fields for steps in _paths_below([], top, ids)] if ids else []


def _paths_below(above: list[Field], field: Field, ids: Collection[int]) -> Iterator[list[Field]]:
    steps = [*above, field]
    if field.id in ids:
        yield steps
        return
    for child in field.children:
        yield from _paths_below(steps, child, ids)


def quoted(steps: Sequence[Field]) -> str:
    """Fields from the top down as a quoted path, for column lists and filters."""
    return ".".join("`" + step.name.replace("`", "``") + "`" for step in steps)


def check_no_blobs(schema: Schema, ids: Collection[int], what: Sequence[str]) -> None:
    """Raise `OperationError` if a column that the change must rewrite holds blobs.

    ids   ids of the rewritten fields
    what  paths of the new or changed columns, for the message
    """
    blob_ids = [field.id for field in schema.walk() if field.holds_blobs and field.id in ids]
    blobs = paths_to(schema, blob_ids)
    if blobs:
        raise OperationError(
            f"Columns {', '.join(what)}: in files of version 2.0, below lists and beside packed structs all members "
            f"are rewritten, and {quoted(blobs[0])} has blobs, which cannot be. Add another column instead"
        )


# -- values ------------------------------------------------------------------------------------------------------------


def with_members(known: pa.Array, given: pa.Array, path: str) -> pa.Array:
    """A struct or list with new members.

    known  the existing column
    given  the column with only the new members
    path   path of the column, for messages

    New members are null if `given` is null. Raises `OperationError` if the lists of both have different numbers of
    items.
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
    indexes = {member.name: index for index, member in enumerate(fields)}
    for member, values in zip(given.type, given.flatten(), strict=True):
        index = indexes.get(member.name)
        if index is None:
            fields.append(member)
            arrays.append(values)
        else:
            arrays[index] = with_members(arrays[index], values, f"{path}.{member.name}")
            fields[index] = fields[index].with_type(arrays[index].type)
    is_null = None
    if known.null_count and given.null_count:
        is_null = pc.and_(known.is_null(), given.is_null())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=is_null)


def _fixed_size_with_members(known: pa.Array, given: pa.Array, path: str) -> pa.Array:
    size = given.type.list_size
    old, new = (array.values.slice(array.offset * size, len(array) * size) for array in (known, given))
    if given.null_count:
        new = new.take(numbers(np.arange(len(new)), np.repeat(given.is_null().to_numpy(zero_copy_only=False), size)))
    items = with_members(old, new, f"{path}.item")
    dtype = pa.list_(known.type.value_field.with_type(items.type), size)
    return pa.Array.from_buffers(dtype, len(known), [validity(known)], known.null_count, children=[items])


def _items_for(known: pa.Array, offsets: IntArray, given: pa.Array, path: str) -> pa.Array:
    """The given items, one for each existing item; null if the whole given list is null."""
    items, given_offsets = visible_items(given)
    is_null = given.is_null().to_numpy(zero_copy_only=False)
    lengths, given_lengths = np.diff(offsets), np.diff(given_offsets)
    wrong = np.flatnonzero((lengths != given_lengths) & ~is_null)
    if len(wrong):
        row = int(wrong[0])
        raise OperationError(
            f"Column {path}: expected {lengths[row]} values of the new members for a list of {lengths[row]} items, "
            f"found {given_lengths[row]}. Give as many as each list has items, or null for the whole list"
        )
    if not (is_null & (lengths > 0)).any():
        return items
    is_missing = np.repeat(is_null, lengths)
    indices = np.cumsum(~is_missing) - 1
    return items.take(numbers(np.where(is_missing, 0, indices), is_missing))
