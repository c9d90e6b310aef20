"""The requests of the JVM by name.

    load    the schema of a read, and its version, pinned
    evolve  the same with columns that a statement adds, which it alone sees until it commits
    list    the tables of a folder
    filter  which of Spark's predicates are computed exactly, and the filter that stands for them
    about   a metadata table of a version, whole: its schema, and a task that gives its rows
    query   whether the options of one query go together with those of the table
    aggregate  counts and extremes that the manifest and indices say
    order   whether tasks give the first rows of an order
    plan    the tasks of a scan, its bytes and rows
    read    the batches of a task
    write_rows, call_task, and the requests of `writing.change_requests`   writes

The others carry the version that `load` has pinned.
"""

from __future__ import annotations

import json
import pickle
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from lance_io.errors import UsageError
from lance_io.lazy_names import lazy_module
from lance_io.redaction import hide_secrets
from lance_io.spark.engine import named_version, table_place
from lance_io.spark.options import ROW_VERSIONS, SYSTEM_COLUMNS, ReadOptions, parse_options, parse_schema_options
from lance_io.spark.read.read_plan import check_declared, plan_read, read_scan, read_schema, shown_schema
from lance_io.spark.read.reader import ReadJob
from lance_io.spark.task_context import warn_of_shown
from lance_io.spark.types import arrow_to_spark, carried_schema
from lance_io.spark.worker.named_versions import open_named
from lance_io.spark.worker.narrowed_structs import narrowable_columns, narrowed_members
from lance_io.spark.worker.pushed_answers import exact_values, sampled_fragments, sort_keys
from lance_io.spark.worker.pushed_filters import PushedFilters
from lance_io.spark.worker.writing.table_properties import shown_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lance_io.dataset.distributed import TableScan, TableVersion
    from lance_io.spark.worker import part_batches
    from lance_io.spark.worker.jvm_connections import Connection
    from lance_io.spark.worker.pushed_answers import SortKey
    from lance_io.spark.worker.writing import altered_tables, change_requests, procedures, task_rows
else:
    altered_tables = lazy_module("lance_io.spark.worker.writing.altered_tables")
    part_batches = lazy_module("lance_io.spark.worker.part_batches")
    change_requests = lazy_module("lance_io.spark.worker.writing.change_requests")  # a JVM that reads needs no writers
    procedures = lazy_module("lance_io.spark.worker.writing.procedures")
    task_rows = lazy_module("lance_io.spark.worker.writing.task_rows")

Request = dict[str, Any]

_OF_LOADS: Final = (
    *("version", "timestamp_as_of", "tag", "columns", "with_row_id", "with_row_address", "with_fragment_id"),
    *("uint64", "timestamp_ns", "blobs"),
)


def run(connection: Connection, request: Request) -> None:
    """Run a request and send its answer. Raises `UsageError` for an unknown operation."""
    name = request.get("op")
    if name == "read":
        part_batches.send_part(connection, _unpack(request["job"]), _unpack(request["part"]))
        return
    if name == "write_rows":
        task_rows.receive_rows(connection, request)
        return
    if name == "call_task":
        procedures.run_task(connection, request)
        return
    operation = _ANSWERS.get(str(name)) or change_requests.ANSWERS.get(str(name))
    if operation is None:
        raise UsageError(f"the worker knows no request {name!r}")
    connection.send(operation(request))


def _pack(value: Any) -> str:
    return b64encode(pickle.dumps(value)).decode()


def _unpack(text: str) -> Any:
    return pickle.loads(b64decode(text))


def _pinned(request: Request) -> tuple[ReadOptions, TableVersion]:
    options = parse_options(request["options"], "read")
    return options, named_version(options, b64decode(request["pinned"]))


# -- tables ------------------------------------------------------------------------------------------------------------


def load(request: Request) -> Request:
    """The schema and version of a read."""
    options = parse_schema_options(request["options"])
    warn_of_shown(options, request.get("redaction") or ())
    return _loaded(open_named(options, request.get("ref"), request.get("micros")), options)


def evolve(request: Request) -> Request:
    """The newest version with the columns that a statement adds, for its own use: no version has them yet."""
    options = parse_schema_options(request["options"])
    version = altered_tables.with_added_columns(open_named(options, None, None), request["changes"])
    return {**_loaded(version, options), "adds_columns": True}


def _loaded(version: TableVersion, options: ReadOptions) -> Request:
    pinned = version.to_bytes()
    schema = read_schema(version, options)
    return {
        "name": hide_secrets(options.path),
        "schema": schema.json(),
        "version": version.version,
        "pinned": b64encode(pinned).decode(),
        "id": blake2b(pinned, digest_size=16).hexdigest(),
        "config": shown_properties(version.config),
        "stable_row_ids": version.has_stable_row_ids,
        "is_counted": options.filter is None,
        "has_indices": version.has_indices,
        "narrowable": [] if options.columns is not None else narrowable_columns(_whole_schema(version, options)),
        "metadata_columns": [name for name in SYSTEM_COLUMNS if name not in schema.names],
    }


def list_tables(request: Request) -> Request:
    """The names of the tables in a folder."""
    return {"names": table_place(parse_options(request["options"], "read")).tables_below()}


def describe(request: Request) -> Request:
    """A metadata table. The driver's worker has its rows at once, and sends them along with the task."""
    version = open_named(parse_options(request["options"], "read"), request.get("ref"), request.get("micros"))
    table = version.metadata(request["table"])
    schema = arrow_to_spark(table.schema)
    batches = table.cast(carried_schema(schema)).combine_chunks().to_batches()
    return {"schema": schema.json(), "job": _pack(None), "part": _pack(batches)}


def check_query(request: Request) -> Request:
    """Whether a query may have options of its own. Raises `UsageError` for one that would change the columns."""
    options = parse_options(request["options"], "read")
    own = parse_options({"path": options.path, **request["own"]}, "read")
    plain = ReadOptions(path=options.path)
    for name in _OF_LOADS:
        if getattr(own, name) != getattr(plain, name):
            raise UsageError(
                f"option {name} is one of a load or a catalog: its columns are known before a query's options"
            )
    return {"is_counted": options.filter is None}


def aggregate(request: Request) -> Request:
    """The values of aggregates, or null."""
    options, version = _pinned(request)
    schema = _whole_schema(version, options)
    return {"values": exact_values(version, options, schema, request["filter"], request["aggregates"])}


def push_order(request: Request) -> Request:
    """Whether tasks give the first rows of an order."""
    options, version = _pinned(request)
    keys = sort_keys(_whole_schema(version, options), options, request["keys"], request["limit"])
    return {"is_pushed": keys is not None}


def push_filter(request: Request) -> Request:
    """What becomes of Spark's predicates.

    Beside an option `filter` or `limit` they are left to Spark: a limit counts rows before them. By `recheck_filters`
    Spark keeps all, and so knows that a side of a join is selective.
    """
    options, version = _pinned(request)
    predicates: Sequence[Any] = request["predicates"]
    if options.filter is not None or options.limit is not None:
        return {"uses": ["left"] * len(predicates), "filter": None}
    pushed = _filters(version, options).push(predicates)
    uses = ["superset" if use == "exact" else use for use in pushed.uses] if options.recheck_filters else pushed.uses
    return {"uses": uses, "filter": pushed.text}


def _whole_schema(version: TableVersion, options: ReadOptions) -> pa.Schema:
    """The schema of all columns of a read."""
    return version.schema_of(version.scan(columns=options.columns, blobs_as_bytes=options.blobs == "binary"))


def _filters(version: TableVersion, options: ReadOptions) -> PushedFilters:
    return PushedFilters(_whole_schema(version, options), options.columns)


# -- scans -------------------------------------------------------------------------------------------------------------


def plan(request: Request) -> Request:
    """The tasks of a scan, each serialized; what they share; estimates."""
    options, version = _pinned(request)
    declared = StructType.fromJson(json.loads(request["schema"]))
    counts = bool(request["counts"])
    options = _with_system_columns(options, version, declared)
    filter = _all_of(request["filter"], _filters(version, options).push(request["runtime"]).text)
    limit = request["limit"] if request["limit"] >= 0 else None
    schema = _whole_schema(version, options)
    order = sort_keys(schema, options, request["order"], limit or 0) if request["order"] else None
    names = [] if counts else declared.names
    members = [] if counts else narrowed_members(declared, schema)
    is_cut_by_tasks = bool(filter or order)
    scan = _scan(version, options, names, members, filter, None if is_cut_by_tasks else limit, request["offset"])
    check_declared(StructType() if counts else declared, shown_schema(version, scan, options))
    sampled = request.get("sample") and sampled_fragments(version.fragment_ids, request["sample"])
    planned = plan_read(version, options, scan, sampled)
    if is_cut_by_tasks and limit is not None:  # of each task: Spark cuts the rows of all
        scan = _scan(version, options, names, members, filter, limit, order=order or ())
    num_rows = planned.num_rows
    if not scan.request.filter:
        num_rows = version.count(scan) if sampled is None else sum(part.physical_rows for part in planned.parts)
    return {
        "job": _pack((ReadJob(options, declared, scan).packed(), counts)),
        "parts": [_pack(part) for part in planned.parts],
        "bytes": max(1, planned.bytes),
        "rows": num_rows,
        "index": planned.index,
    }


def _scan(
    version: TableVersion,
    options: ReadOptions,
    names: Sequence[str],
    members: Sequence[tuple[str, ...]],
    filter: str | None,
    limit: int | None,
    offset: int = 0,
    order: Sequence[SortKey] = (),
) -> TableScan:
    """The scan of a plan; `limit` counts the rows that `offset` leaves out, as in Spark."""
    given = [max(0, number - offset) for number in (options.limit, limit) if number is not None]
    narrowed = replace(options, filter=_all_of(options.filter, filter), limit=min(given, default=None))
    return read_scan(version, narrowed, names, members, offset=offset, order=order)


def _all_of(*filters: str | None) -> str | None:
    """Filters of which at most one is the user's: that one stands alone, because it may end in a comment."""
    given = [text for text in filters if text]
    return " AND ".join(f"({text})" for text in given) if len(given) > 1 else "".join(given) or None


def _with_system_columns(options: ReadOptions, version: TableVersion, declared: StructType) -> ReadOptions:
    """The options with the metadata columns that the query names."""
    wanted = {name for name in declared.names if name in SYSTEM_COLUMNS and name not in version.column_names}
    return replace(
        options,
        with_row_id=options.with_row_id or "_rowid" in wanted,
        with_row_address=options.with_row_address or "_rowaddr" in wanted,
        with_fragment_id=options.with_fragment_id or "_fragid" in wanted,
        row_versions=tuple(name for name in ROW_VERSIONS if name in wanted),
    )


_ANSWERS: Final[dict[str, Callable[[Request], Request]]] = {
    "load": load,
    "evolve": evolve,
    "list": list_tables,
    "about": describe,
    "query": check_query,
    "aggregate": aggregate,
    "order": push_order,
    "filter": push_filter,
    "plan": plan,
}
