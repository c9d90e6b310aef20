"""Names of columns and members that differ from the table's in case only, for writes that merge schemas.

Spark tells a source in Python nothing of `spark.sql.caseSensitive`. The JAR asks here before it plans a write: the rows
get the names of the table, and Python finds their columns by these.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from lance_io.dataset import distributed
from lance_io.errors import SchemaError
from lance_io.spark.engine import table_place
from lance_io.spark.options import parse_write_options
from lance_io.spark.types import is_variable_list

Json = Any  # of a type: a text, or an object


def stored_names(request: dict[str, Any]) -> dict[str, Any]:
    """Spark's schema of the rows of a write, with the names that the table has; new ones stay as they are."""
    options = parse_write_options(request["options"])
    if not options.merge_schema or options.case_sensitive:
        return {"schema": request["schema"]}
    version = distributed.TableVersion.newest(table_place(options))
    if version is None:
        return {"schema": request["schema"]}
    return {"schema": json.dumps(_renamed(json.loads(request["schema"]), pa.struct(list(version.arrow_schema)), ""))}


def _renamed(given: Json, stored: pa.DataType, where: str) -> Json:
    """A type of Spark, as JSON, with the names of members that the stored type has."""
    if not isinstance(given, dict):
        return given
    kind = given.get("type")
    if kind == "struct" and pa.types.is_struct(stored):
        fields = [_renamed_field(field, stored, where) for field in given["fields"]]
        names = [field["name"] for field in fields]
        for name in names:
            if names.count(name) > 1:
                raise SchemaError(f"column {where}{name}: the rows have it twice, in upper and in lower case")
        return {**given, "fields": fields}
    if kind == "array" and is_variable_list(stored):
        return {**given, "elementType": _renamed(given["elementType"], stored.value_type, f"{where}element.")}
    if kind == "map" and pa.types.is_map(stored):
        return {**given, "valueType": _renamed(given["valueType"], stored.item_type, f"{where}value.")}
    return given


def _renamed_field(field: dict[str, Any], stored: pa.DataType, where: str) -> dict[str, Any]:
    name = field["name"]
    names = [member.name for member in stored if member.name.lower() == name.lower()]
    if not names:
        return field
    if name not in names and len(names) > 1:
        raise SchemaError(f"column {where}{name}: the table has {' and '.join(names)}, which differ in case only")
    own = name if name in names else names[0]
    return {**field, "name": own, "type": _renamed(field["type"], stored.field(own).type, f"{where}{own}.")}
