"""Checks of data against schemas: types of columns, and whether rows fit a table (spec: table, section 2.5).

Rows may have their columns in any order and lack nullable ones. A data file keeps their order, with the table's field
ids. Types, names (also of list items) and extension types must be the table's; nullability and other metadata may
differ. One message lists all differences, in pylance's wording.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

from lance_io.errors import OperationError, SchemaError, UnsupportedDataError, UnsupportedError
from lance_io.format.keys import check_primary_key
from lance_io.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME
from lance_io.format.per_schema import PerSchema
from lance_io.format.schema import BLOB_KEY, BLOB_V2_EXTENSION, Field, Schema, number_names
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V0_1, V2_2
from lance_io.format.writable import check_shape, check_writable, with_read_marks
from lance_io.reads.version.system_columns import SYSTEM_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from lance_io.format.version import FileVersion

DEFAULT_VERSION: Final = V2_2  # of the files of a new table
# by schema of rows: table schema, file version and result of the last call of `fit_schema`
_FITTED: Final[PerSchema[tuple[Schema, FileVersion | None, Schema]]] = PerSchema("fit to a table")
_BLOB_MEMBERS: Final = (Field(-1, "data", "large_binary"), Field(-1, "uri", "string"))
_BY_POSITION: Final = ("map", "fixed_size_list")  # Arrow schemas lack the name of their only member
_EXTENSION_METADATA: Final = EXTENSION_METADATA.decode()


def schema_of(arrow: pa.Schema) -> Schema:
    """The schema of rows, with fresh field ids.

    Raises `UnsupportedDataError` for a type that cannot be stored, `SchemaError` for a reserved name, for an invalid
    primary key, and for metadata that is no UTF-8, which pylance would damage.
    """
    for name in arrow.names:
        if name in SYSTEM_COLUMNS:
            raise SchemaError(f"The column {name} is a reserved name and cannot be used in a Lance dataset")
    try:
        schema = with_read_marks(schema_from_arrow(arrow))
        for metadata in (schema.metadata, *[field.metadata for field in [*schema.walk()]]):
            for value in metadata.values():
                value.decode()
    except UnsupportedError as error:
        raise UnsupportedDataError(f"Unsupported data type: {error.message}") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"metadata of schemas and fields is text in UTF-8, found {error.object[:100]!r}") from error
    return schema


def of_version(schema: Schema, version: FileVersion, *, keeps_ids: bool = False) -> Schema:
    """The schema of a new table with files of `version`: from 2.2 on blobs are of the second kind.

    keeps_ids  fields keep their ids, and members of blobs get the next ones; else all are numbered in pre-order

    Raises `SchemaError` for equal names of siblings, for blobs with another layout, and for blobs with members that are
    part of the primary key.
    """
    check_shape(schema)
    if version < V2_2 or not any(map(_is_marked_blob, schema.walk())):
        return schema
    ids = count(schema.max_field_id + 1 if keeps_ids else 0)
    fields = tuple(_with_second_kind(field, ids, keeps_ids) for field in schema.fields)
    stored = Schema(fields, dict(schema.metadata))
    check_primary_key(stored)
    return stored


def _is_marked_blob(field: Field) -> bool:
    return BLOB_KEY in field.metadata and field.holds_blobs


def _with_second_kind(field: Field, ids: Iterator[int], keeps_ids: bool) -> Field:
    is_marked = _is_marked_blob(field)
    field_id = field.id if keeps_ids and field.id >= 0 else next(ids)
    children = _BLOB_MEMBERS if is_marked else field.children
    members = tuple(_with_second_kind(child, ids, keeps_ids) for child in children)
    field = replace(field, id=field_id, children=members)
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


def check_mixture(version: FileVersion, of_table: FileVersion) -> None:
    """Raise `OperationError` for mixing files of 0.1 and 2.x: no table has both."""
    if (version == V0_1) != (of_table == V0_1):
        raise OperationError(
            f"Cannot append data files in version {version.name} to a dataset with default version {of_table.name}: V1 "
            "and V2 storage versions cannot be mixed. Leave data_storage_version out, or overwrite the table"
        )


def fit_schema(given: Schema, table: Schema, version: FileVersion | None = None) -> Schema:
    """The schema of a data file with the columns of `given`, for a table with schema `table`.

    version  version of the file if `given` is the schema of rows: it determines the kind of blobs. None if `given` is
             the schema of written files, whose extension types do not matter, as in pylance

    Field ids, nullability and metadata are the table's, the order is that of `given`. Raises `SchemaError` with all
    differences that matter.
    """
    known = _FITTED.get(given)  # repeated appends to one table
    if known is not None and known[0] is table and known[1] == version:
        return known[2]
    fit = fit_part(given, table, version)
    if version == V0_1:
        there = {field.id for field in fit.walk()}
        for field in table.walk():
            if field.id not in there:
                raise SchemaError(
                    f"Fragment 0 does not contain field {field.name!r} ({field.id}): rows for a table of file version "
                    f"{V0_1.name} need all of its columns"
                )
    _FITTED.keep(given, (table, version, fit))
    return fit


def fit_part(given: Schema, table: Schema, version: FileVersion | None = None) -> Schema:
    """`fit_schema` for some of the written columns: others may be absent, also in 0.1."""
    check_shape(given)
    stored = given if version is None else of_version(given, version)
    problems: list[str] = []
    fields = _fit_members(stored.fields, table.fields, "", problems)
    if problems:
        raise SchemaError(f"Append with different schema: {', '.join(problems)}")
    if version is not None and (marks := list(_other_extensions(stored.fields, fields, ""))):
        raise SchemaError(f"{', '.join(marks)}. Use the types of the table's schema for these columns")
    return Schema(fields, dict(table.metadata))


def _fit_members(given: Sequence[Field], wanted: Sequence[Field], path: str, problems: list[str]) -> tuple[Field, ...]:
    by_key, known = number_names(given), number_names(wanted)
    missing = [path + key[0] for key, field in known.items() if key not in by_key and not field.nullable]
    unexpected = sorted(path + key[0] for key in by_key if key not in known)
    if missing or unexpected:
        problems.append(f"fields did not match, missing=[{_join(missing)}], unexpected=[{_join(unexpected)}]")
    done = {key: _fit(by_key[key], field, path, problems) for key, field in known.items() if key in by_key}
    return tuple(done[key] for key in by_key if key in done)


def _fit(given: Field, wanted: Field, path: str, problems: list[str], *, by_position: bool = False) -> Field:
    """by_position: match members by position, for entries of a map: a key and its value, independent of their names."""
    name = path + wanted.name
    if wanted.is_blob_v2 and given.holds_blobs:
        return wanted
    if wanted.is_json_text and given.logical_type == "json":
        return wanted
    if given.logical_type != wanted.logical_type:
        problems.append(f"`{name}` should have type {wanted.logical_type} but type was {given.logical_type}")
        return wanted
    if not wanted.children and not given.children:
        return wanted
    if problem := _fixed_members(given, wanted, name):
        problems.append(problem)
        return wanted
    below: list[str] = []
    if by_position or wanted.logical_type.startswith(_BY_POSITION):
        pairs, is_map = zip(given.children, wanted.children, strict=True), wanted.logical_type == "map"
        children = tuple(
            _fit(mine, theirs, f"{name}.", below, by_position=is_map and _has_usual_names(mine))
            for mine, theirs in pairs
        )
    else:
        children = _fit_members(given.children, wanted.children, f"{name}.", below)
        if not children and not below:  # a struct is a column only if it has no members
            missing = _join(f"{name}.{child.name}" for child in wanted.children)
            below.append(f"fields did not match, missing=[{missing}], unexpected=[]")
    if below:
        problems.append(f"`{name}` had mismatched children: {', '.join(below)}")
    return replace(wanted, children=children)


def _fixed_members(given: Field, wanted: Field, name: str) -> str | None:
    """The problem with members of a column that stores them together and so needs exactly the table's; else None."""
    if wanted.is_packed:
        names, expected = ([child.name for child in field.children] for field in (given, wanted))
        if names != expected:
            return (
                f"`{name}` is a packed struct and needs all members of the table, in its order: "
                f"expected=[{_join(expected)}], found=[{_join(names)}]"
            )
    elif wanted.logical_type.startswith("fixed_size_list"):
        pairs = zip(given.children, wanted.children, strict=True)
        if not all(_alike(mine.children, theirs.children) for mine, theirs in pairs):
            return (
                f"`{name}` is a fixed-size list of structs and needs the members of the table, in its order and with "
                "the same types, nullability and metadata"
            )
    return None


def _has_usual_names(entries: Field) -> bool:
    """Whether the entries of a map have Arrow's default names, which fit any other names."""
    return [member.name for member in entries.children] == ["key", "value"]


def stores_alike(given: Field, wanted: Field) -> bool:
    """Whether arrays of two fields have the same storage and meaning, although their types may have other names."""
    if given.logical_type != wanted.logical_type or _extension(given) != _extension(wanted):
        return False
    if wanted.logical_type == "struct":
        names, expected = ([child.name for child in field.children] for field in (given, wanted))
        if names != expected:
            return False
    pairs = zip(given.children, wanted.children, strict=False)
    return len(given.children) == len(wanted.children) and all(stores_alike(*pair) for pair in pairs)


def _alike(given: Sequence[Field], wanted: Sequence[Field]) -> bool:
    """Whether fields are equal except for their ids."""
    return len(given) == len(wanted) and all(
        (mine.name, mine.logical_type, mine.nullable) == (theirs.name, theirs.logical_type, theirs.nullable)
        and dict(mine.metadata) == dict(theirs.metadata)
        and _alike(mine.children, theirs.children)
        for mine, theirs in zip(given, wanted, strict=True)
    )


def _other_extensions(given: Sequence[Field], fit: Sequence[Field], path: str) -> Iterator[str]:
    """Problems of fields whose extension type differs from that of the table's field.

    fit  the table's fields, in the order of `given`
    """
    for mine, theirs in zip(given, fit, strict=True):
        name = path + theirs.name
        if theirs.is_blob_v2:  # rows may have several forms of blobs
            continue
        if _extension(mine) != _extension(theirs):
            yield (
                f"field `{name}` does not match the file schema: expected {_describe(theirs)}, got {_describe(mine)}"
            )
        yield from _other_extensions(mine.children, theirs.children, f"{name}.")


def _extension(field: Field) -> tuple[str | None, bytes]:
    """Name and parameters of a field's extension type; missing parameters equal empty ones, as in Arrow."""
    name = "lance.json" if field.is_json_text else field.extension_name
    return name, field.metadata.get(_EXTENSION_METADATA, b"")


def _describe(field: Field) -> str:
    name, parameters = _extension(field)
    known = f"extension {name}" if name is not None else "no extension"
    known += f", metadata {parameters.decode('utf-8', 'replace')}" if parameters else ""
    return f"{field.logical_type} ({known})"


def _join(names: Iterable[str]) -> str:
    return ", ".join(names)
