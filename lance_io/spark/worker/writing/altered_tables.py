"""ALTER TABLE: columns added, dropped, renamed, widened, described; properties set and removed.

Changes of a kind are made together. They come as JSON: `{"kind": "add", "path": ["point", "z"], "type": "int", ...}`.
A path goes through lists by `element`, through maps by `key` and `value`, as in Spark.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as spark

from lance_io.dataset import distributed
from lance_io.errors import UnsupportedError, UsageError
from lance_io.spark.engine import table_place
from lance_io.spark.options import parse_options
from lance_io.spark.types import CHAR_TYPE, COMMENT, is_variable_list
from lance_io.spark.worker.writing.created_schemas import created_schema
from lance_io.spark.worker.writing.table_properties import check_removable, columns_of_schema, kept_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.dataset.distributed import TableVersion
    from lance_io.spark.worker.writing.table_properties import Columns

Change = dict[str, Any]

_ELEMENT, _KEY, _VALUE = "element", "key", "value"


def alter(request: dict[str, Any]) -> dict[str, Any]:
    """Change a table. Raises `UsageError` and `UnsupportedError` for a change that it cannot have."""
    dataset = distributed.open_dataset(table_place(parse_options(request["options"], "read")))
    by_kind: dict[str, list[Change]] = {}
    for change in request["changes"]:
        by_kind.setdefault(change["kind"], []).append(change)
    unknown = sorted(by_kind.keys() - _KINDS)
    if unknown:
        raise UnsupportedError(f"ALTER TABLE: a table has no {unknown[0]}")
    schema = dataset.schema
    updates = _property_updates(by_kind, columns_of_schema(schema))
    added = _added(schema, by_kind.get("add", ()))
    alterations, metadata = _alterations(schema, by_kind)
    dropped = _dropped(schema, by_kind.get("drop", ()))
    if added:
        dataset.add_columns(added)
    if dropped:
        dataset.drop_columns(dropped)
    if alterations:
        dataset.alter_columns(*alterations)
    if metadata:
        dataset.update_field_metadata(metadata)
    if updates:
        dataset.update_config(updates)
    return {"version": dataset.version}


def with_added_columns(version: TableVersion, changes: Sequence[Change]) -> TableVersion:
    """The version with the columns and members that a statement WITH SCHEMA EVOLUTION adds; nothing is committed.

    Raises `UnsupportedError` for another change, which would write all rows again.
    """
    for change in changes:
        if change["kind"] != "add":
            where = ".".join(change.get("path") or ())
            raise UnsupportedError(
                f"WITH SCHEMA EVOLUTION adds columns and members of structs, and changes no type: column {where} of "
                f"the source is {_shown_type(change)}. Cast it in the source, or change the table by ALTER TABLE first"
            )
        for field in _added(version.arrow_schema, [change]):
            version = version.with_columns([field])
    return version


def _shown_type(change: Change) -> str:
    if change["kind"] != "type":
        return "of another kind"
    return (
        spark.StructType.fromJson(
            {"fields": [{"name": "x", "type": json.loads(change["type"]), "nullable": True, "metadata": {}}]}
        )
        .fields[0]
        .dataType.simpleString()
    )


_KINDS: Final = frozenset({"set", "remove", "add", "drop", "rename", "type", "nullability", "comment"})


def _property_updates(by_kind: Mapping[str, Sequence[Change]], columns: Columns) -> dict[str, str | None]:
    given = {change["key"]: change["value"] for change in by_kind.get("set", ())}
    updates: dict[str, str | None] = dict(kept_properties(given, columns))
    for change in by_kind.get("remove", ()):
        check_removable(change["key"])
        updates[change["key"]] = None
    return updates


# -- columns -----------------------------------------------------------------------------------------------------------


def _added(schema: pa.Schema, changes: Sequence[Change]) -> list[pa.Field[Any]]:
    """The new columns as fields; a new member comes inside of the column that it belongs to."""
    fields = []
    for change in changes:
        *parents, name = change["path"]
        where = ".".join(change["path"])
        if not change["nullable"]:
            raise UsageError(f"column {where}: a new column is null in the rows that are there, and cannot be NOT NULL")
        if change.get("position"):
            raise UnsupportedError(f"column {where}: a new column stands at the end, not {change['position']}")
        field = _stored_field(name, change)
        fields.append(_inside(_field_at(schema, parents[:1]), parents[1:], field) if parents else field)
    return fields


def _stored_field(name: str, change: Change) -> pa.Field[Any]:
    dtype = spark.StructType.fromJson(
        {"fields": [{"name": name, "type": json.loads(change["type"]), "nullable": True, "metadata": {}}]}
    )
    dtype.fields[0].metadata = {COMMENT: change["comment"]} if change.get("comment") else {}
    return created_schema(dtype, {}).field(0)


def _inside(parent: pa.Field[Any], path: Sequence[str], new: pa.Field[Any]) -> pa.Field[Any]:
    """The parent with nothing but a new member, at a path below it."""
    dtype = parent.type
    if pa.types.is_struct(dtype):
        member = _inside(dtype.field(path[0]), path[1:], new) if path else new
        return parent.with_type(pa.struct([member]))
    if is_variable_list(dtype) and path and path[0] == _ELEMENT:
        kind = pa.large_list if pa.types.is_large_list(dtype) else pa.list_
        return parent.with_type(kind(_inside(dtype.value_field, path[1:], new)))
    if pa.types.is_map(dtype) and path and path[0] == _VALUE:
        return parent.with_type(pa.map_(dtype.key_field, _inside(dtype.item_field, path[1:], new)))
    raise UsageError(f"column {parent.name}: {dtype} has no members to which {new.name} could be added")


def _dropped(schema: pa.Schema, changes: Sequence[Change]) -> list[str]:
    paths = []
    for change in changes:
        try:
            paths.append(_stored_path(schema, change["path"]))
        except UsageError:
            if not change.get("if_exists"):
                raise
    return paths


def _alterations(
    schema: pa.Schema, by_kind: Mapping[str, Sequence[Change]]
) -> tuple[list[dict[str, Any]], dict[str | int, dict[str, str | None]]]:
    """Renames, types and NOT NULL by path, and the metadata that goes with them."""
    by_path: dict[str, dict[str, Any]] = {}
    metadata: dict[str | int, dict[str, str | None]] = {}
    for kind in ("rename", "nullability", "type", "comment"):
        for change in by_kind.get(kind, ()):
            path = _stored_path(schema, change["path"])
            if kind == "comment":
                metadata.setdefault(path, {})[COMMENT] = change["comment"]
                continue
            alteration = by_path.setdefault(path, {"path": path})
            if kind == "rename":
                alteration["name"] = change["name"]
            elif kind == "nullability":
                alteration["nullable"] = change["nullable"]
            else:
                field = _stored_field(change["path"][-1], change)
                length = (field.metadata or {}).get(CHAR_TYPE.encode())
                if length is not None:
                    metadata.setdefault(path, {})[CHAR_TYPE] = length.decode()
                if _field_at(schema, change["path"]).type != field.type:
                    alteration["data_type"] = field.type
    return [alteration for alteration in by_path.values() if len(alteration) > 1], metadata


def _field_at(schema: pa.Schema, path: Sequence[str]) -> pa.Field[Any]:
    return _fields_along(schema, path)[-1]


def _stored_path(schema: pa.Schema, path: Sequence[str]) -> str:
    """A path as the table has it: items of lists have names of their own."""
    return ".".join(_quoted(field.name) for field in _fields_along(schema, path))


def _quoted(name: str) -> str:
    return name if name.replace("_", "a").isalnum() else "`" + name.replace("`", "``") + "`"


def _fields_along(schema: pa.Schema, path: Sequence[str]) -> list[pa.Field[Any]]:
    """The fields of a path. Raises `UsageError` for one that is not there."""
    if path[0] not in schema.names:
        raise UsageError(f"the table has no column {path[0]}; its columns are {', '.join(schema.names)}")
    fields = [schema.field(path[0])]
    for name in path[1:]:
        dtype = fields[-1].type
        if pa.types.is_struct(dtype) and dtype.get_field_index(name) >= 0:
            fields.append(dtype.field(name))
        elif (is_variable_list(dtype) or pa.types.is_fixed_size_list(dtype)) and name == _ELEMENT:
            fields.append(dtype.value_field)
        elif pa.types.is_map(dtype) and name in (_KEY, _VALUE):
            fields.append(dtype.key_field if name == _KEY else dtype.item_field)
        else:
            raise UsageError(f"column {'.'.join(path)}: {dtype} has no member {name}")
    return fields
