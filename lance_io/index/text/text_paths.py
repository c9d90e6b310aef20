"""Where the texts of a column are: members of structs, and members of the structs in lists.

A path names members, and no items: `docs.content` stands for the contents of a list of structs, which are a list of
texts. Rows are read with the list, which holds no other member then, and its members become the items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_io import compute as pc
from lance_io.format.logical_types import LISTS
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.format.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class TextPath:
    """A column of texts.

    names   from the top-level column down to the texts, without items
    field   of the last name
    column  names down to the column that is read
    below   names of members below its lists; empty if the column holds the texts
    stored  names of all fields down to the texts, items included
    """

    names: tuple[str, ...]
    field: Field
    column: tuple[str, ...]
    below: tuple[str, ...]
    stored: tuple[str, ...]

    @property
    def num_lists(self) -> int:
        """Lists around the field."""
        return len(self.stored) - len(self.names)


def text_path(schema: Schema, names: Sequence[str]) -> TextPath | None:
    """The path of names; None if a name is missing."""
    path: TextPath | None = None
    level: Sequence[Field] = ()
    for name in names:
        match = schema.top(name) if path is None else next((field for field in level if field.name == name), None)
        if match is None:
            return None
        path = _step(path, match)
        level = match.members or (_items(match)[-1].members if _items(match) else ())
    return path


def _step(above: TextPath | None, field: Field) -> TextPath:
    """The path of a field. above: of its struct, or of the list whose items are that struct; None at the top"""
    if above is None:
        return TextPath((field.name,), field, (field.name,), (), (field.name,))
    items = _items(above.field)
    is_below = bool(above.below or items)
    return TextPath(
        (*above.names, field.name),
        field,
        above.column if is_below else (*above.column, field.name),
        (*above.below, field.name) if is_below else (),
        (*above.stored, *(item.name for item in items), field.name),
    )


def _items(field: Field) -> list[Field]:
    """The items of a list, of its lists, and so on."""
    items: list[Field] = []
    while field.logical_type in LISTS and field.children:
        field = field.children[0]
        items.append(field)
    return items


def text_paths(fields: Sequence[Field]) -> Iterator[tuple[int, TextPath]]:
    """Every field by its id, and the path by which its texts are asked for; an item has that of its list."""
    for field in fields:
        yield from _below(_step(None, field))


def _below(path: TextPath) -> Iterator[tuple[int, TextPath]]:
    yield path.field.id, path
    members, items = path.field.members, _items(path.field)
    for item in items:
        yield item.id, path
    if not members and not items:
        yield from ((inner.id, path) for inner in path.field.walk() if inner is not path.field)
    for member in members or (items[-1].members if items else ()):
        yield from _below(_step(path, member))


# -- values ----------------------------------------------------------------------------------------------------------


def member_lists(values: pa.Array, names: Sequence[str]) -> pa.Array:
    """Members of the structs in lists, as lists of the same lengths. names: of the members, outermost first"""
    if not names:
        return values
    if pa.types.is_struct(values.type):
        return member_lists(pc.struct_field(values, [values.type.get_field_index(names[0])]), names[1:])
    items = member_lists(values.values, names)
    dtype = list_of(values.type, items.type)
    return pa.Array.from_buffers(dtype, len(values), values.buffers()[:2], values.null_count, values.offset, [items])


def list_of(dtype: Any, items: pa.DataType) -> pa.DataType:
    """A type of lists of the same kind, with other items; these may be null, since a struct around them may be."""
    field = pa.field(dtype.value_field.name, items)
    return pa.large_list(field) if pa.types.is_large_list(dtype) else pa.list_(field)
