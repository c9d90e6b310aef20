"""Schemas with field ids, and Arrow schemas as JSON. Module and names are those of pylance."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lance_io.errors import UsageError
from lance_io.format.logical_types import logical_type, primitive_type
from lance_io.reads.metadata.lance_schema import LanceField, LanceSchema

__all__ = ["LanceField", "LanceSchema", "json_to_schema", "schema_to_json"]

_LISTS = {"list": pa.list_, "large_list": pa.large_list}


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """Convert an Arrow schema to JSON.

    Args:
        schema: The schema.

    Returns:
        A dict that `json.dumps` accepts.

    Raises:
        NotImplementedError: The JSON form has no name for a type.
    """
    json: dict[str, Any] = {"fields": [_field_to_json(field) for field in schema]}
    if schema.metadata:
        json["metadata"] = _texts(schema.metadata)
    return json


def _texts(metadata: dict[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in metadata.items()}


def _field_to_json(field: pa.Field) -> dict[str, Any]:
    json: dict[str, Any] = {"name": field.name, "type": _type_to_json(field.type), "nullable": field.nullable}
    if field.metadata:
        json["metadata"] = _texts(field.metadata)
    return json


def _type_to_json(dtype: pa.DataType) -> dict[str, Any]:
    if isinstance(dtype, pa.StructType):
        return {"type": "struct", "fields": [_field_to_json(field) for field in dtype]}
    if isinstance(dtype, pa.FixedSizeListType):
        fields = [_field_to_json(dtype.value_field)]
        return {"type": "fixed_size_list", "fields": fields, "length": dtype.list_size}
    if isinstance(dtype, (pa.ListType, pa.LargeListType)):
        name = "list" if isinstance(dtype, pa.ListType) else "large_list"
        return {"type": name, "fields": [_field_to_json(dtype.value_field)]}
    if pa.types.is_fixed_size_binary(dtype):
        return {"type": "fixed_size_binary", "length": dtype.byte_width}
    if isinstance(dtype, pa.DictionaryType):
        return {"type": f"dict:{logical_type(dtype.value_type)}:{logical_type(dtype.index_type)}:false"}
    return {"type": logical_type(dtype)}


def json_to_schema(schema_json: dict[str, Any]) -> pa.Schema:
    """Convert the JSON of `schema_to_json` back to an Arrow schema.

    Args:
        schema_json: The dict.

    Returns:
        The schema.

    Raises:
        ValueError: `schema_json` is not the JSON of a schema.
    """
    try:
        fields = [_field_from_json(field) for field in schema_json["fields"]]
        return pa.schema(fields, metadata=schema_json.get("metadata"))
    except (KeyError, TypeError) as error:
        raise UsageError(f"not the JSON of a schema: {error}") from error


def _field_from_json(json: dict[str, Any]) -> pa.Field:
    return pa.field(json["name"], _type_from_json(json["type"]), json["nullable"], json.get("metadata"))


def _type_from_json(json: dict[str, Any]) -> pa.DataType:
    name = json["type"]
    if name == "struct":
        return pa.struct([_field_from_json(field) for field in json["fields"]])
    if name == "fixed_size_list":
        return pa.list_(_field_from_json(json["fields"][0]), int(json["length"]))
    if name in _LISTS:
        return _LISTS[name](_field_from_json(json["fields"][0]))
    if name == "fixed_size_binary":
        return pa.binary(int(json["length"]))
    return primitive_type(name)
