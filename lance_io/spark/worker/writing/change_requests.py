"""Requests of the JVM that change tables, by name.

    create, drop, rename, alter          tables of a catalog
    namespaces, *namespace                folders of tables
    plan_create                          a write that creates or replaces a table
    plan_write                           a write to a table
    stored_names                         names of its rows' columns that differ from the table's in case only
    plan_change                          DELETE, UPDATE, MERGE of a version
    delete, truncate                     rows that a predicate selects, all rows
    commit, abort                        of a planned write
    call, call_end, call_abort           procedures

`write_rows` is in `task_rows`, `call_task` in `procedures`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from lance_io.dataset import distributed
from lance_io.errors import AlreadyExists, UnsupportedError, UsageError
from lance_io.spark.engine import named_version, open_version, table_place
from lance_io.spark.options import parse_options
from lance_io.spark.worker.jvm_connections import MissingTable
from lance_io.spark.worker.pushed_filters import PushedFilters
from lance_io.spark.worker.writing import namespaces, procedures
from lance_io.spark.worker.writing.altered_tables import alter
from lance_io.spark.worker.writing.created_schemas import created_schema, plain_struct
from lance_io.spark.worker.writing.planned_writes import (
    REPLACE,
    PlannedWrite,
    abort_write,
    commit_write,
    delete_where,
    plan_change,
    plan_rows,
)
from lance_io.spark.worker.writing.stored_names import stored_names
from lance_io.spark.worker.writing.table_properties import (
    STABLE_ROW_IDS,
    columns_of_schema,
    columns_of_struct,
    created_properties,
    overwrite_columns,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.dataset.distributed import TableVersion
    from lance_io.spark.options import ReadOptions, WriteOptions

Request = dict[str, Any]


def _struct(request: Request) -> StructType:
    return StructType.fromJson(json.loads(request["schema"]))


def _options(request: Request) -> WriteOptions:
    """The options of a write: those of the catalog, then those of the statement."""
    return parse_options({**request["options"], **request.get("write_options", {})}, "write")


# -- tables ------------------------------------------------------------------------------------------------------------


def create_table(request: Request) -> Request:
    """Create an empty table. Raises `AlreadyExists`."""
    write = _plan_created(request, "create")
    return commit_write(write, [])


def plan_create(request: Request) -> Request:
    """A write that creates a table (`create`), replaces one (`replace`), or either (`create_or_replace`)."""
    return {"write": _plan_created(request, request["mode"]).to_text()}


def _plan_created(request: Request, mode: str) -> PlannedWrite:
    options, struct = _options(request), _struct(request)
    table = table_place(options)
    properties = created_properties(request["properties"], columns_of_struct(struct), options.path)
    schema = created_schema(struct, properties.vector_sizes)
    newest = distributed.TableVersion.newest(table)
    if newest is not None and mode == "create":
        raise AlreadyExists(f"there is a table at {options.path}")
    if newest is None and mode == "replace":
        raise MissingTable(f"there is no table at {options.path}")
    if newest is not None and properties.stable_row_ids not in (None, newest.has_stable_row_ids):
        raise UsageError(
            f"property {STABLE_ROW_IDS}: it is {str(newest.has_stable_row_ids).lower()} for the table at "
            f"{options.path}, and stays so when the table is replaced: drop the table first"
        )
    job = distributed.WriteJob.plan(
        table,
        lambda _: schema,
        struct.names,
        overwrite=True,
        overwrite_schema=True,
        data_storage_version=properties.data_storage_version or options.data_storage_version,
    )
    statement = "CREATE" if newest is None else REPLACE
    return PlannedWrite("replace", options, plain_struct(struct), job, statement, properties=properties)


def drop_table(request: Request) -> Request:
    """Drop a table; says whether there was one."""
    table = table_place(parse_options(request["options"], "read"))
    if distributed.TableVersion.newest(table) is None:
        return {"done": False}
    return {"done": distributed.drop_table(table)}


def rename_table(request: Request) -> Request:
    """Rename a table."""
    table = table_place(parse_options(request["options"], "read"))
    if distributed.TableVersion.newest(table) is None:
        raise MissingTable(f"there is no table at {table.uri}")
    distributed.rename_table(table, request["to"])
    return {}


# -- rows --------------------------------------------------------------------------------------------------------------


def plan_write(request: Request) -> Request:
    """A write to a table: `append`, `replace`, `where` a predicate selects rows, `dynamic`."""
    options, kind, given = _options(request), request["kind"], _struct(request)
    pinned = b64decode(request["pinned"])
    adds_columns = bool(request.get("adds_columns"))
    read = parse_options(request["options"], "read")
    version = named_version(read, pinned) if adds_columns or kind not in ("where", "dynamic") else open_version(read)
    where = _exact_filter(version, request["predicates"]) if kind == "where" else None
    keys = overwrite_columns(version.config, columns_of_schema(version.arrow_schema)) if kind == "dynamic" else []
    if not adds_columns:
        write = plan_rows(kind, options, given, where, keys)
        write = replace(write, pinned=pinned) if kind == "append" else write  # which a MERGE may turn out to be
        return _planned(write)
    if options.job_id is not None:
        raise UnsupportedError("a job_id, with columns that the statement adds")
    write = plan_change(options, given, version, "INSERT", kind)
    job = replace(write.job, is_overwrite=True) if kind == "replace" else write.job
    return _planned(replace(write, job=job, pinned=pinned, where=where, keys=tuple(keys), adds_columns=True))


def _planned(write: PlannedWrite) -> Request:
    """The write for the commit, and for tasks, which need no version."""
    return {"write": write.to_text(), "task": replace(write, pinned=None).to_text()}


def _exact_filter(version: TableVersion, predicates: list[Any]) -> str:
    """The predicates as a filter. Raises `UsageError` if one is not computed exactly as Spark does."""
    pushed = PushedFilters(version.schema_of(version.scan()), None).push(predicates)
    if any(use != "exact" for use in pushed.uses) or pushed.text is None:
        raise UsageError("the condition of the rows to be replaced is not one that the table computes as Spark does")
    return pushed.text


def plan_row_change(request: Request) -> Request:
    """DELETE, UPDATE or MERGE of a version. Raises `UsageError` where the catalog hides rows or columns."""
    read = parse_options(request["options"], "read")
    if read.columns is not None or read.filter is not None or read.limit is not None:
        raise UsageError(
            f"{request['statement']} needs whole rows: the catalog has one of the options columns, filter and limit"
        )
    pinned = b64decode(request["pinned"])
    version = named_version(read, pinned)
    if version.branch is not None:
        raise UsageError(f"{request['statement']} changes the table, not its branch {version.branch}")
    given = _struct(request)
    if given.fields:
        check_reads_are_whole(version, read, request["statement"])
    write = plan_change(_options(request), given, version, request["statement"])
    write = replace(write, pinned=pinned, adds_columns=bool(request.get("adds_columns")))
    return {**_planned(write), "moves": version.has_stable_row_ids}


def check_reads_are_whole(version: TableVersion, read: ReadOptions, statement: str) -> None:
    """Raise `UsageError` if reads of the catalog cut values, which rows that move would lose."""
    cut = [
        field.name for field in version.arrow_schema if read.timestamp_ns == "truncate" and _has_nanoseconds(field.type)
    ]
    if cut:
        raise UsageError(
            f"{statement} writes whole rows again, and the catalog's option timestamp_ns=truncate has cut the "
            f"nanoseconds of column {cut[0]}: use a catalog with error_on_loss or long"
        )


def _has_nanoseconds(dtype: pa.DataType) -> bool:
    if pa.types.is_dictionary(dtype):
        return _has_nanoseconds(dtype.value_type)
    if pa.types.is_nested(dtype):
        return any(_has_nanoseconds(dtype.field(index).type) for index in range(dtype.num_fields))
    return bool(pa.types.is_timestamp(dtype) and dtype.unit == "ns")


def delete(request: Request) -> Request:
    """Delete the rows that predicates select; all of them are computed exactly."""
    options = parse_options(request["options"], "read")
    text = _exact_filter(named_version(options, b64decode(request["pinned"])), request["predicates"])
    return delete_where(table_place(options), text)


def truncate(request: Request) -> Request:
    """Delete all rows."""
    return delete_where(table_place(parse_options(request["options"], "read")), "true", "TRUNCATE")


def commit(request: Request) -> Request:
    """Commit a planned write."""
    write = PlannedWrite.from_text(request["write"])
    return commit_write(write, request["results"], request.get("merge"), request.get("summary"))


def abort(request: Request) -> Request:
    """Remove the files of a planned write."""
    return {"outcome": abort_write(PlannedWrite.from_text(request["write"]), request["results"])}


ANSWERS: Final[dict[str, Callable[[Request], Request]]] = {
    "create": create_table,
    "plan_create": plan_create,
    "drop": drop_table,
    "rename": rename_table,
    "alter": alter,
    "namespaces": namespaces.list_namespaces,
    "namespace": namespaces.describe_namespace,
    "create_namespace": namespaces.create_namespace,
    "alter_namespace": namespaces.alter_namespace,
    "drop_namespace": namespaces.drop_namespace,
    "plan_write": plan_write,
    "stored_names": stored_names,
    "plan_change": plan_row_change,
    "delete": delete,
    "truncate": truncate,
    "commit": commit,
    "abort": abort,
    "call": procedures.plan,
    "call_end": procedures.finish,
    "call_abort": procedures.abort,
}
