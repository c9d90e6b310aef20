"""Data against schemas: what may be a column, and whether rows may join a table (spec: table, section 2.5).

Rows may come with their columns in any order and without nullable ones; a data file keeps the order that they came
in, under the table's field ids. Everything else that differs is told in one message, as pylance tells it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

from lance_io.dataset.system import SYSTEM_COLUMNS
from lance_io.errors import SchemaError, UnsupportedDataError, UnsupportedError
from lance_io.format.logical_types import EXTENSION_NAME
from lance_io.format.schema import BLOB_KEY, BLOB_V2_EXTENSION, Field, Schema
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_2
from lance_io.format.writable import check_shape, check_writable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from lance_io.format.version import FileVersion

_FITTED: Final = "fitted"  # in `Schema.derived`: the table's schema, and this one fitted to it
_BLOB_MEMBERS: Final = (Field(-1, "data", "large_binary"), Field(-1, "uri", "string"))
_BY_PLACE: Final = ("list", "large_list", "map", "fixed_size_list")  # the name of their only member means nothing


def schema_of(arrow: pa.Schema) -> Schema:
    """The schema of rows, with fresh field ids.

    Raises `UnsupportedDataError` for a type that cannot be stored, `SchemaError` for a name that is reserved or that
    pylance would not read, and for metadata that is no text, which pylance would damage.
    """
    for name in arrow.names:
        if name in SYSTEM_COLUMNS:
            raise SchemaError(f"The column {name} is a reserved name and cannot be used in a Lance dataset")
        if not name or "`" in name:
            raise SchemaError(f"a column needs a name without backticks to be found by it, not {name!r}")
    try:
        schema = schema_from_arrow(arrow)
        for metadata in (schema.metadata, *(field.metadata for field in schema.walk())):
            for value in metadata.values():
                value.decode()
    except UnsupportedError as error:
        raise UnsupportedDataError(f"Unsupported data type: {error.message}") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"metadata of schemas and fields is text in UTF-8, found {error.object[:100]!r}") from error
    return schema


def of_version(schema: Schema, version: FileVersion) -> Schema:
    """The schema of a new table whose files are of `version`: from 2.2 on blobs are of the second kind.

    Raises `SchemaError` for names that siblings share, and for blobs that are not laid out as such.
    """
    check_shape(schema)
    if version < V2_2 or not any(map(_is_marked_blob, schema.walk())):
        return schema
    ids = count()
    return Schema(tuple(_with_second_kind(field, ids) for field in schema.fields), dict(schema.metadata))


def _is_marked_blob(field: Field) -> bool:
    return BLOB_KEY in field.metadata and (field.is_blob or field.is_blob_v2)


def _with_second_kind(field: Field, ids: Iterator[int]) -> Field:
    field_id, is_marked = next(ids), _is_marked_blob(field)
    children = _BLOB_MEMBERS if is_marked else field.children
    field = replace(field, id=field_id, children=tuple(_with_second_kind(child, ids) for child in children))
    if not is_marked:
        return field
    metadata = {key: value for key, value in field.metadata.items() if key != BLOB_KEY}
    metadata[EXTENSION_NAME.decode()] = BLOB_V2_EXTENSION.encode()
    return replace(field, logical_type="struct", metadata=metadata)


def check_version(schema: Schema, version: FileVersion) -> None:
    """Raise `SchemaError` unless files of this version can hold columns of this schema."""
    try:
        check_writable(schema, version)
    except UnsupportedError as error:
        raise UnsupportedDataError(error.message) from error


def fitted(given: Schema, table: Schema) -> Schema:
    """The schema of a data file with columns as in `given`, which joins a table of schema `table`.

    Field ids, nullability and metadata are the table's, the order is that of `given`. Raises `SchemaError` naming
    every difference that matters.
    """
    known = given.derived.get(_FITTED)  # rows that join one table mostly do so again
    if known is not None and known[0] is table:
        fit: Schema = known[1]
        return fit
    check_shape(given)
    problems: list[str] = []
    fields = _fit_members(given.fields, table.fields, "", problems)
    if problems:
        raise SchemaError(f"Append with different schema: {', '.join(problems)}")
    fit = Schema(fields, dict(table.metadata))
    given.derived[_FITTED] = table, fit
    return fit


def _fit_members(given: Sequence[Field], wanted: Sequence[Field], path: str, problems: list[str]) -> tuple[Field, ...]:
    by_name = {field.name: field for field in given}
    known = {field.name for field in wanted}
    missing = [path + field.name for field in wanted if field.name not in by_name and not field.nullable]
    unexpected = sorted(path + name for name in by_name if name not in known)
    if missing or unexpected:
        problems.append(f"fields did not match, missing=[{_listed(missing)}], unexpected=[{_listed(unexpected)}]")
    place = {field.name: number for number, field in enumerate(given)}
    pairs = sorted(
        ((by_name[field.name], field) for field in wanted if field.name in by_name),
        key=lambda pair: place[pair[0].name],
    )
    in_table_order = sorted(pairs, key=lambda pair: wanted.index(pair[1]))
    done = {one.id: _fit(each, one, path, problems) for each, one in in_table_order}
    return tuple(done[one.id] for _, one in pairs)


def _fit(given: Field, wanted: Field, path: str, problems: list[str]) -> Field:
    name = path + wanted.name
    if wanted.is_blob_v2 and (given.is_blob or given.is_blob_v2):
        return wanted
    if given.logical_type != wanted.logical_type:
        problems.append(f"`{name}` should have type {wanted.logical_type} but type was {given.logical_type}")
        return wanted
    if not wanted.children:
        return wanted
    below: list[str] = []
    if wanted.logical_type.startswith(_BY_PLACE):
        pairs = zip(given.children, wanted.children, strict=True)
        children = tuple(_fit(each, one, f"{name}.", below) for each, one in pairs)
    else:
        children = _fit_members(given.children, wanted.children, f"{name}.", below)
    if below:
        problems.append(f"`{name}` had mismatched children: {', '.join(below)}")
    return replace(wanted, children=children)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
