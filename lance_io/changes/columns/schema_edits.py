"""Schemas after changes of columns (spec: table, section 7). Pure.

Fields keep their ids when they are renamed. New fields get ids that no field ever had, above all ids in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Required, TypedDict

import pyarrow as pa

from lance_io.caller_text import utf8
from lance_io.changes.operations.schema_fit import of_version, schema_of
from lance_io.errors import BindError, OperationError, SchemaError, UsageError
from lance_io.format.schema import Schema, split_path
from lance_io.format.writable import check_shape
from lance_io.reads.version.column_lists import fields_along
from lance_io.reads.version.system_columns import SYSTEM_COLUMNS
from lance_io.table.transaction.sibling_names import check_sibling_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.format.schema import Field
    from lance_io.format.version import FileVersion

_KEYS: Final = ("path", "name", "nullable", "data_type")


class AlterColumn(TypedDict, total=False):
    """An alteration of a column, for `alter_columns`. Missing keys and None leave a property unchanged.

    path       the column, or a member: "a.b"
    name       new name
    nullable   whether it may have nulls
    data_type  new type; the values are cast
    """

    path: Required[str]
    name: str | None
    nullable: bool | None
    data_type: pa.DataType | None


# -- without columns --------------------------------------------------------------------------------------------------


def drop_fields(schema: Schema, paths: Sequence[str]) -> Schema:
    """The schema without some fields; a struct or list that loses its last member is removed, too.

    Raises `UsageError` for an unknown path, and if no field would be left; `TypeError` for a string instead of a list.
    """
    if isinstance(paths, (str, bytes)) or not isinstance(paths, Iterable):
        raise TypeError(f"columns: expected a list of names, found {paths!r}")
    ids = set()
    for path in paths:
        try:
            ids.add(_find(schema, path).id)
        except BindError as error:
            raise UsageError(f"Column {path} does not exist in the dataset") from error
    kept = tuple(left for field in schema.fields if (left := _without(field, ids)) is not None)
    if not kept and ids:
        raise UsageError("Cannot drop all columns from a dataset")
    return replace(schema, fields=kept)


def _find(schema: Schema, path: str) -> Field:
    if not isinstance(path, str):
        raise TypeError(f"expected the path of a column, found {path!r}")
    return fields_along(schema, tuple(split_path(path)), through_lists=True)[-1]


def _without(field: Field, ids: set[int]) -> Field | None:
    if field.id in ids:
        return None
    if ids.isdisjoint(each.id for each in field.walk()):
        return field
    children = tuple(left for child in field.children if (left := _without(child, ids)) is not None)
    return replace(field, children=children) if children else None


# -- with other names and nullability ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alteration:
    """A checked alteration of a column; None leaves a property unchanged.

    field      the field before the change
    path       path as the caller gave it
    data_type  new type; the values are cast
    """

    field: Field
    path: str
    name: str | None
    nullable: bool | None
    data_type: pa.DataType | None

    @property
    def forbids_nulls(self) -> bool:
        """Whether a nullable column becomes non-nullable."""
        return self.nullable is False and self.field.nullable

    @property
    def is_cast(self) -> bool:
        """Whether the type changes."""
        return self.data_type is not None and self.data_type != self.field.arrow_type


def parse_alterations(schema: Schema, given: Iterable[Any]) -> list[Alteration]:
    """Check the dicts passed to `alter_columns`.

    Raises `UsageError` for a dict without `path` or without a change and for an unknown key, `TypeError` for a value of
    a wrong type, `OperationError` for an unknown path and an invalid name.
    """
    return [_parse_alteration(schema, alteration) for alteration in given]


def _parse_alteration(schema: Schema, given: Any) -> Alteration:
    if not isinstance(given, Mapping):
        raise TypeError(f"expected a dict with `path` and `name`, `nullable` or `data_type`, found {given!r}")
    if "path" not in given:
        raise UsageError("path is required")
    for key in given:
        if key not in _KEYS:
            raise UsageError(f"Unknown key: {key}. Valid keys are name, nullable, and data_type.")
    if len(given) == 1:
        raise UsageError("At least one of name, nullable, or data_type must be specified")
    path: Any = given["path"]
    name, nullable, data_type = (given.get(key) for key in _KEYS[1:])
    for value, kind, what in ((name, str, "name"), (nullable, bool, "nullable"), (data_type, pa.DataType, "data_type")):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{what}: expected {kind.__name__}, found {value!r}")
    try:
        field = _find(schema, path)
    except BindError as error:
        raise OperationError(f'Column "{path}" does not exist in the dataset') from error
    return Alteration(field, path, name, nullable, data_type)


def alter_fields(schema: Schema, alterations: Iterable[Alteration]) -> Schema:
    """The schema with other names and nullability. Raises `OperationError` if the result is invalid."""
    by_id: dict[int, Alteration] = {}
    for alteration in alterations:
        before = by_id.get(alteration.field.id)
        by_id[alteration.field.id] = alteration if before is None else _combine(before, alteration)
    altered = replace(schema, fields=tuple(_altered(field, by_id) for field in schema.fields))
    check_sibling_names(schema, altered)
    _check_new_schema(altered)
    return altered


def _combine(first: Alteration, second: Alteration) -> Alteration:
    values = {key: getattr(first, key) if getattr(second, key) is None else getattr(second, key) for key in _KEYS[1:]}
    return replace(second, **values)


def _altered(field: Field, by_id: Mapping[int, Alteration]) -> Field:
    children = tuple(_altered(child, by_id) for child in field.children)
    alteration = by_id.get(field.id)
    if alteration is None:
        return replace(field, children=children)
    return replace(
        field,
        children=children,
        name=field.name if alteration.name is None else alteration.name,
        nullable=field.nullable if alteration.nullable is None else alteration.nullable,
    )


def _check_new_schema(schema: Schema) -> None:
    for field in schema.fields:
        check_name(field.name)
    for field in schema.walk():
        if not field.name:
            raise OperationError("a column needs a name, found ''")
    try:
        check_shape(schema)
    except SchemaError as error:
        raise OperationError(error.message) from error


def check_name(name: str) -> None:
    """Raise `OperationError` for an invalid name of a top-level column."""
    if name in SYSTEM_COLUMNS:
        raise OperationError(f"The column {name} is a reserved name and cannot be used in a Lance dataset")
    if "." in name:
        raise OperationError(f"Top level field {name} cannot contain `.`. Maybe you meant to create a struct field?")
    utf8(name, "the name of a column", OperationError)


def replace_types(schema: Schema, casts: Iterable[Alteration], first_id: int) -> tuple[Schema, frozenset[int]]:
    """The schema with other types of some fields, which get new ids and no metadata; and the new ids.

    schema    may have the new names already
    first_id  above all ids that any field ever had
    """
    ids, replaced = count(first_id), set[int]()
    by_id = {alteration.field.id: alteration for alteration in casts}

    def changed(field: Field) -> Field:
        alteration = by_id.get(field.id)
        if alteration is None:
            return replace(field, children=tuple(changed(child) for child in field.children))
        assert alteration.data_type is not None
        arrow = pa.field(field.name, alteration.data_type, field.nullable)
        cast = _number(schema_of(pa.schema([arrow])).fields[0], ids)
        replaced.update(each.id for each in cast.walk())
        return cast

    return replace(schema, fields=tuple(changed(field) for field in schema.fields)), frozenset(replaced)


# -- with new columns -------------------------------------------------------------------------------------------------


def add_fields(schema: Schema, given: pa.Schema, version: FileVersion, first_id: int) -> tuple[Schema, frozenset[int]]:
    """The schema with new columns, and new members of existing structs; and the ids of the new fields.

    given     the new columns, and structs with only the new members
    first_id  above all ids that any field ever had

    Raises `OperationError` for existing columns, and for invalid names; `SchemaError` for types that files of `version`
    cannot hold.
    """
    new = of_version(schema_of(given), version)
    ids = count(first_id)
    fields, added = list(schema.fields), set[int]()
    for field in new.fields:
        check_name(field.name)
        at = next((i for i, known in enumerate(fields) if known.name == field.name), None)
        if at is None:
            fields.append(_number(field, ids))
            added.update(each.id for each in fields[-1].walk())
        else:
            fields[at] = _with_members(fields[at], field, ids, added)
    changed = replace(schema, fields=tuple(fields), metadata={**schema.metadata, **new.metadata})
    _check_new_schema(changed)
    return changed, frozenset(added)


def _number(field: Field, ids: Iterator[int]) -> Field:
    field_id = next(ids)
    return replace(field, id=field_id, children=tuple(_number(child, ids) for child in field.children))


def _with_members(known: Field, given: Field, ids: Iterator[int], added: set[int]) -> Field:
    """A field with additional members."""
    if known.logical_type != given.logical_type:
        raise OperationError(
            f"Type conflicts between {known.name}({known.logical_type}) and {given.name}({given.logical_type})"
        )
    if not known.children or known.is_packed or known.holds_blobs:
        raise OperationError(f"Column {known.name} already exists in the dataset")
    children = list(known.children)
    for member in given.children:
        at = next((i for i, child in enumerate(children) if child.name == member.name), None)
        if at is None and known.logical_type == "struct":
            children.append(_number(member, ids))
            added.update(each.id for each in children[-1].walk())
        elif at is None:
            raise OperationError(f"Type conflicts between {known.name} and {given.name}: their items differ")
        else:
            children[at] = _with_members(children[at], member, ids, added)
    return replace(known, children=tuple(children))
