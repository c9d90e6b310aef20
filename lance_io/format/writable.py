"""Checks whether a file version can hold a schema (spec: file container, section 2.1, and pylance's restrictions)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lance_io.errors import SchemaError, UnsupportedError
from lance_io.format.logical_types import fixed_size_list_dimension, is_nested
from lance_io.format.per_schema import PerSchema
from lance_io.format.schema import BLOB_KEY, BLOB_V2_EXTENSION, PACKED_KEYS, PACKED_MARKS, Field, Schema
from lance_io.format.version import V0_1, V2_0, V2_1, V2_2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.format.version import FileVersion

WRITABLE: Final = frozenset({V0_1, V2_0, V2_1, V2_2})
_CHECKED: Final[PerSchema[frozenset[FileVersion]]] = PerSchema("file versions that can hold it")
_EMPTY_BINARY: Final = "fixed_size_binary:0"
_DICTIONARY: Final = "dict:"
_ITEMS: Final = frozenset(  # types of the items of fixed-size lists
    {"null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    | {"halffloat", "float", "double", "lance.bfloat16", "decimal", "fixed_size_binary"}
    | {"date32", "date64", "time32", "time64", "timestamp", "duration"}
)
_PLAIN: Final = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "halffloat", "float", "double"}
    | {"string", "binary", "large_string", "large_binary"}
)
"""Types that every version supports without conditions."""
_FIXED_SIZE_LIST: Final = "fixed_size_list:"
_BLOB_MEMBERS: Final = (("data", "large_binary"), ("uri", "string"), ("position", "uint64"), ("size", "uint64"))
_VARIABLE: Final = frozenset({"string", "large_string", "binary", "large_binary", "json"})


def check_writable(schema: Schema, version: FileVersion) -> None:
    """Raise unless files of this version can hold columns of this schema.

    Raises `UnsupportedError` for versions that cannot be written and types that the version does not support,
    `SchemaError` for names and shapes that no version supports.
    """
    checked = _CHECKED.get(schema) or frozenset()
    if version in checked:
        return
    if version not in WRITABLE:
        writable = " and ".join(sorted(each.name for each in WRITABLE))
        raise UnsupportedError(f"data files of version {version.name} are not written; this release writes {writable}")
    for field in schema.fields:
        if "." in field.name:
            raise SchemaError(
                f"Top level field {field.name} cannot contain `.`. Maybe you meant to create a struct field?"
            )
    check_shape(schema)
    for field in schema.fields:
        if version == V0_1:
            _check_batched(field, prefix="")
        else:
            _check_field(field, version, in_list=False, prefix="")
    _CHECKED.keep(schema, checked | {version})


def check_shape(schema: Schema) -> None:
    """Raise `SchemaError` for an invalid schema: duplicate column names, blobs with another layout."""
    _check_names(schema.fields)
    for field in schema.walk():
        if field.metadata and (field.is_blob_v2 or field.extension_name == BLOB_V2_EXTENSION):
            _check_blob(field)


def _check_names(siblings: Sequence[Field]) -> None:
    names: set[str] = set()
    for field in siblings:
        if field.name in names:
            raise SchemaError(f'Duplicate field name "{field.name}" in schema: every column needs its own')
        names.add(field.name)


def _check_blob(field: Field) -> None:
    members = tuple((child.name, child.logical_type) for child in field.children)
    if members not in (_BLOB_MEMBERS[:2], _BLOB_MEMBERS) or not all(child.nullable for child in field.children):
        raise SchemaError(
            f"Blob v2 field '{field.name}' has unrecognized layout: expected nullable members data (large_binary) and "
            "uri (string), both or with position and size (uint64)"
        )


def _check_field(field: Field, version: FileVersion, *, in_list: bool, prefix: str) -> None:
    name = f"{prefix}{field.name}"
    logical = field.logical_type
    if logical in _PLAIN and not (field.metadata or field.children):
        return
    if logical.endswith("fixed_size_binary:0") or ":fixed_size_binary:0:" in logical:
        _check_empty_values(name, logical, version)
    if logical.startswith(_DICTIONARY):
        _check_dictionary(name, logical)
    if logical == "map" and version == V2_0:
        raise UnsupportedError(f"Lance v2.0 has no field encoding for '{name}' with data type Map")
    if logical == "map" and version < V2_2:
        raise UnsupportedError(f"{name}: Map data type is not enabled by the selected file format ({version.name})")
    if logical.startswith(_FIXED_SIZE_LIST):
        _check_fixed_size_list(name, logical, version, in_list=in_list)
        if any(each.holds_blobs for each in field.walk()):
            raise UnsupportedError(
                f"{name}: blobs inside of fixed-size lists cannot be stored, those inside of lists can"
            )
    if field.is_blob_v2:
        if version < V2_2:
            raise UnsupportedError(f"{name}: Blob encoding of the second kind is not available in {version.name}")
    else:
        _check_blob_values(name, field)
    if field.is_blob and in_list:
        raise UnsupportedError(
            f"{name}: blobs of the first kind lose their rows inside of lists; those of the second, which tables of "
            f"version {V2_2.name} have, keep them"
        )
    if logical == "struct" and not field.children and in_list and version > V2_0:
        raise UnsupportedError(f"{name}: Empty structs with rep/def information are not yet supported")
    if field.is_marked_packed and not field.is_blob_v2 and (field.children or logical == "struct"):
        _check_packed(name, field, version)
    in_list = in_list or logical == "map" or logical.startswith(("list", "large_list"))
    for child in field.children:
        _check_field(child, version, in_list=in_list, prefix=f"{name}.")


def _check_blob_values(name: str, field: Field) -> None:
    if BLOB_KEY in field.metadata and field.logical_type != "large_binary":
        raise SchemaError(
            f"Blob encoding is not available for field '{name}' with data type {field.logical_type}; it needs "
            "large_binary"
        )


def _check_batched(field: Field, prefix: str, *, in_list: bool = False) -> None:
    """Raise unless files of version 0.1 can hold a field (spec: legacy 0.1, section 3).

    Blobs of the first kind are plain values in these files.
    """
    name, logical = f"{prefix}{field.name}", field.logical_type
    if field.is_blob_v2:
        raise UnsupportedError(f"{name}: Blob v2 requires file version >= {V2_2.name} (got V1)")
    _check_blob_values(name, field)
    if field.is_blob and in_list:
        raise UnsupportedError(f"{name}: no reader supports blobs inside of lists in version {V0_1.name}")
    if logical == "map":
        raise UnsupportedError(f"{name}: files of version {V0_1.name} hold no maps")
    if logical == "struct" and not field.children:
        raise UnsupportedError(f"{name}: empty page table, as a struct without members has no page")
    if logical.endswith("fixed_size_binary:0") or ":fixed_size_binary:0:" in logical:
        raise UnsupportedError(f"{name}: {logical} cannot be stored: its values have no bytes")
    if logical.startswith(_DICTIONARY):
        _check_dictionary(name, logical)
        values = logical.removeprefix(_DICTIONARY).rsplit(":", 2)[0]
        if not values.startswith(("int", "uint")) and values not in _VARIABLE:
            raise UnsupportedError(f"{name}: v1 dictionary values do not support data type {values}")
    if logical.startswith(_FIXED_SIZE_LIST):
        _check_fixed_size_list(name, logical, V0_1, in_list=False)
    for child in field.children:
        _check_batched(child, f"{name}.", in_list=in_list or logical != "struct")


def _check_empty_values(name: str, logical: str, version: FileVersion) -> None:
    if logical != _EMPTY_BINARY:
        raise UnsupportedError(f"{name}: {logical} cannot be stored: its values have no bytes")
    if version < V2_2:
        raise UnsupportedError(f"{name}: values of no bytes ({logical}) need files of version {V2_2.name}")


def _check_dictionary(name: str, logical: str) -> None:
    values = logical.removeprefix(_DICTIONARY).rsplit(":", 2)[0]
    if ":" in values or is_nested(values):  # readers split the text at its colons
        raise UnsupportedError(f"{name}: Cannot encode dictionary type {logical}: a dictionary of {values} has no name")


def with_read_marks(schema: Schema) -> Schema:
    """Set the mark of each packed struct to `true`: pylance reads no other mark, though it writes some."""
    nested = [field for field in schema.fields if field.children]  # fast path: most columns of wide tables are plain
    if all(_has_read_mark(each) for field in nested for each in field.walk()):
        return schema
    return Schema(tuple(map(_marked_as_read, schema.fields)), dict(schema.metadata))


def _has_read_mark(field: Field) -> bool:
    return not field.is_packed or any(field.metadata.get(key, b"").lower() == b"true" for key in PACKED_KEYS)


def _marked_as_read(field: Field) -> Field:
    metadata = dict(field.metadata)
    if not _has_read_mark(field):
        metadata |= {key: b"true" for key in PACKED_KEYS if metadata.get(key, b"").lower() in PACKED_MARKS}
    return replace(field, metadata=metadata, children=tuple(map(_marked_as_read, field.children)))


def _check_packed(name: str, field: Field, version: FileVersion) -> None:
    if field.logical_type != "struct" or not field.children:  # pylance would read these as nulls
        raise UnsupportedError(f"{name}: only structs with members are packed, not {field.logical_type}")
    for child in field.children:
        logical = child.logical_type
        if logical == _EMPTY_BINARY:
            raise UnsupportedError(f"{name}: a packed struct holds values of a byte at least (`{child.name}`)")
        if is_nested(logical):
            raise UnsupportedError(f"{name}: a packed struct holds no member of type {logical} (`{child.name}`)")
        if logical == "bool" or _num_bools(logical) % 8:
            raise UnsupportedError(f"{name}: a packed struct holds whole bytes only, not {logical} (`{child.name}`)")
        is_plain_list = version == V2_0 and logical.startswith(_FIXED_SIZE_LIST)
        if version < V2_2 and not is_plain_list and (logical in _VARIABLE or logical.startswith(_FIXED_SIZE_LIST)):
            raise UnsupportedError(
                f"{name}: Variable packed struct encoding is not enabled by the selected file format (`{child.name}`)"
            )


def _num_bools(logical: str) -> int:
    """Number of items of a fixed-size list of bool; 0 for all other types."""
    items = 1
    while logical.startswith(_FIXED_SIZE_LIST):
        logical, _, dimension = logical[len(_FIXED_SIZE_LIST) :].rpartition(":")
        items *= int(dimension)
    return items if logical == "bool" else 0


def _check_fixed_size_list(name: str, logical: str, version: FileVersion, *, in_list: bool) -> None:
    fixed_size_list_dimension(logical)  # raises for a dimension of zero
    item = logical
    while item.startswith(_FIXED_SIZE_LIST):
        item = item[len(_FIXED_SIZE_LIST) :].rpartition(":")[0]
    if item == "struct":
        if version < V2_2:
            raise UnsupportedError(f"{name}: FixedSizeList<Struct> is not enabled by the selected file format")
        if in_list:
            raise UnsupportedError(f"{name}: fixed-size lists of structs inside lists lose their row borders")
    elif item.partition(":")[0] not in _ITEMS:
        raise UnsupportedError(f"{name}: Unsupported data type: {logical} (fixed-size lists hold numbers or structs)")
