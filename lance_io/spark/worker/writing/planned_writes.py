"""Writes of the driver: decided once, sent to the tasks, committed as one version.

append       rows are added
replace      rows are replaced, and with `new_schema` the schema and properties, too; creates a missing table
where        rows that a predicate selects leave
dynamic      rows whose values of some columns occur in the new data leave
change       rows leave by address, others move, others are new: DELETE, UPDATE, MERGE
"""

from __future__ import annotations

import pickle
import time
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.dataset import distributed
from lance_io.errors import CommitConflictError, LanceError, UsageError
from lance_io.redaction import get_logger, hide_secrets
from lance_io.spark.engine import table_place
from lance_io.spark.types import spark_to_arrow
from lance_io.spark.worker.jvm_connections import MissingTable
from lance_io.spark.worker.writing.dynamic_keys import Keys, replaced_rows
from lance_io.spark.worker.writing.table_properties import STREAM_MARKS, TableProperties, meets_new_rows
from lance_io.spark.write.writer import plan_job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

    from lance_io.dataset.distributed import TablePlace, TableVersion, WriteJob, WrittenFiles
    from lance_io.spark.options import WriteOptions

_logger = get_logger(__name__)

DELETE_ATTEMPTS: Final = 10
REPLACE: Final = "REPLACE"  # the statement that gives a table new properties
RESULT: Final = "lance_io.result."  # properties of a transaction: the rows and bytes of a write


@dataclass(frozen=True)
class TaskFiles:
    """The files of one stream of rows of a task.

    files    they
    row_ids  stable ids of rows that moved, as bytes of int64; None for rows that are new
    keys     distinct values of the columns of a dynamic overwrite, as an Arrow stream; None for other writes
    primary  declared primary keys of rows that are new; None for none
    """

    files: WrittenFiles
    row_ids: bytes | None = None
    keys: bytes | None = None
    primary: bytes | None = None


@dataclass(frozen=True)
class PlannedWrite:
    """A write that all tasks share. It travels with them.

    kind        as in the text of this module
    options     of the write
    given       Spark's schema of the rows
    job         of the files
    statement   the word of SQL, for the table's history
    pinned      the version that the statement read; None for one that reads none
    where       predicate of the rows that leave
    keys        columns of a dynamic overwrite
    properties  of a new table
    adds_columns  whether the pinned version has columns that no version has yet
    """

    kind: str
    options: WriteOptions
    given: StructType
    job: WriteJob
    statement: str
    pinned: bytes | None = None
    where: str | None = None
    keys: tuple[str, ...] = ()
    properties: TableProperties = field(default_factory=TableProperties)
    started: float = field(default_factory=time.time)
    adds_columns: bool = False

    @classmethod
    def from_text(cls, text: str) -> PlannedWrite:
        """A write that `to_text` has packed."""
        write = pickle.loads(b64decode(text))
        assert isinstance(write, cls)
        return write

    def to_text(self) -> str:
        """The write as text of a message."""
        return b64encode(pickle.dumps(self)).decode()

    @property
    def table(self) -> TablePlace:
        """The table in this process."""
        return table_place(self.options)

    def version(self) -> TableVersion:
        """The version that the statement read, else that of the job."""
        if self.pinned is not None:
            return distributed.TableVersion.from_bytes(self.table, self.pinned)
        return distributed.TableVersion.open(self.table, self.job.read_version)


def plan_rows(
    kind: str, options: WriteOptions, given: StructType, where: str | None = None, keys: Sequence[str] = ()
) -> PlannedWrite:
    """Plan a write of rows to an existing table. Raises as `plan_job`."""
    job = plan_job(options, given, kind == "replace")
    return PlannedWrite(kind, options, given, job, "INSERT", where=where, keys=tuple(keys))


def plan_change(
    options: WriteOptions, given: StructType, version: TableVersion, statement: str, kind: str = "change"
) -> PlannedWrite:
    """Plan DELETE, UPDATE or MERGE of a version, or an INSERT of another kind into it.

    Raises `SchemaError` for rows that do not fit it.
    """
    job = distributed.plan_row_job(version)
    if given.fields:
        spark_to_arrow(given, version.arrow_schema, narrow_floats=True)  # values that stay fit; tasks check others
    return PlannedWrite(kind, options, given, job, statement, pinned=version.to_bytes())


# -- commits -----------------------------------------------------------------------------------------------------------


def commit_write(
    write: PlannedWrite,
    results: Sequence[Mapping[str, Any]],
    merge: Mapping[str, Any] | None = None,
    summary: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Commit the results of all tasks; the answer says what that did.

    results  a message of each task, as the JVM got it; of two of one task the first counts
    merge    of a MERGE: `on`, the columns of the table that ON compares, None where it does more; `inserts`, whether it
             has a WHEN NOT MATCHED clause. One that only inserts was planned as an append
    summary  Spark's own counts
    """
    tasks = _each_once(write, results)
    if merge is not None:
        write = replace(write, kind="change", statement="MERGE")
    change = [_row_change(task) for task in tasks]
    files = [files for task in change for files in task.written]
    counts = {
        "rows_written": sum(each.num_rows for each in files),
        "rows_inserted": sum(files.num_rows for task in change for files in task.inserted),
        "rows_updated": sum(task.num_updated for task in change),
        "bytes_written": sum(each.num_bytes for each in files),
        **(summary or {}),
    }
    properties = _properties(write, counts)
    num_deleted = 0
    if write.kind == "replace" or (write.kind == "append" and not write.adds_columns):
        version = _commit_files(write, files, properties)
    else:
        changed = _commit_rows(write, tasks, change, properties, merge or {})
        version, num_deleted = changed.version, changed.num_deleted
    result = {**counts, "rows_deleted": num_deleted}
    answer = {**result, "version": version, "rows": counts["rows_written"], "bytes": counts["bytes_written"]}
    return {**answer, "log": _result_text(write.table, write.statement, version, write.started, result)}


def _result_text(
    table: TablePlace, statement: str, version: int | None, started: float, counts: Mapping[str, int]
) -> str:
    """What a statement did, for the log of the driver."""
    where = f"{statement}, {hide_secrets(table.uri)}"
    if version is None:
        return f"{where}: nothing to commit"
    shown = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    return f"{where}: version {version} in {max(0.0, time.time() - started):.3f} s: {shown or 'no rows'}"


def _commit_files(write: PlannedWrite, files: Sequence[WrittenFiles], properties: Mapping[str, str]) -> int | None:
    options, table = write.options, write.properties
    return distributed.commit_write(
        write.table,
        write.job,
        files,
        merge_schema=options.merge_schema,
        data_storage_version=options.data_storage_version or table.data_storage_version,
        retries=options.commit_retries,
        message=options.commit_message,
        properties=properties,
        config=table.config,
        stable_row_ids=bool(table.stable_row_ids),
        keeps_config=STREAM_MARKS if write.statement == REPLACE else None,  # the properties are those of the new table
    )


def _commit_rows(
    write: PlannedWrite,
    tasks: Sequence[Mapping[str, Any]],
    changes: Sequence[distributed.RowChange],
    properties: Mapping[str, str],
    merge: Mapping[str, Any],
) -> distributed.ChangedRows:
    version, options = write.version(), write.options
    inserts = bool(merge.get("inserts")) or any(change.inserted for change in changes)
    return distributed.commit_rows(
        version,
        write.job,
        changes,
        deletes_where=write.where if write.kind == "where" else None,
        deleted=replaced_rows(version, write.keys, _keys(tasks)) if write.kind == "dynamic" else None,
        # A MERGE with a WHEN NOT MATCHED clause looked for keys, and the others for all rows
        meets_new_rows=write.kind in ("where", "dynamic") or (inserts and meets_new_rows(version.config)),
        key_columns=merge.get("on"),
        adds_columns=write.adds_columns,
        retries=options.commit_retries,
        message=options.commit_message,
        properties=properties,
        deleted_property=f"{RESULT}rows_deleted",
    )


def delete_where(table: TablePlace, where: str, statement: str = "DELETE") -> dict[str, Any]:
    """Delete the rows that a predicate selects, after a conflict those of the newest version; says what that did."""
    started = time.time()
    for attempt in range(DELETE_ATTEMPTS):
        version = distributed.TableVersion.newest(table)
        if version is None:
            raise MissingTable(f"there is no table at {table.uri}")
        try:
            changed = distributed.commit_rows(
                version,
                distributed.plan_row_job(version),
                [],
                deletes_where=where,
                properties=_result_properties(statement, started, {}),
                deleted_property=f"{RESULT}rows_deleted",
            )
        except CommitConflictError as error:
            if not error.retryable or attempt == DELETE_ATTEMPTS - 1:
                raise
        else:
            text = _result_text(table, statement, changed.version, started, {"rows_deleted": changed.num_deleted})
            return {"version": changed.version, "rows": changed.num_deleted, "log": text}
    raise AssertionError("the last attempt returns or raises")


def _properties(write: PlannedWrite, counts: Mapping[str, int]) -> dict[str, str]:
    """Properties of the transaction: what the table's history shows of the write."""
    return {**write.options.properties, **_result_properties(write.statement, write.started, counts)}


def _result_properties(statement: str, started: float, counts: Mapping[str, int]) -> dict[str, str]:
    seconds = f"{max(0.0, time.time() - started):.3f}"
    shown = {**counts, "seconds": seconds, "statement": statement}
    return {f"{RESULT}{key}": str(value) for key, value in shown.items()}


def _each_once(write: PlannedWrite, results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One result of each task, in the order of the tasks; the files of another one are removed."""
    first: dict[int, Mapping[str, Any]] = {}
    others: list[Mapping[str, Any]] = []
    for result in results:
        partition = int(result["partition"])
        if result != first.setdefault(partition, result):  # the same one again has the same files, which stay
            others.append(result)
    if others:
        abort_write(write, others)
    return [first[partition] for partition in sorted(first)]


def _row_change(result: Mapping[str, Any]) -> distributed.RowChange:
    deleted = {int(key): b64decode(text) for key, text in (result.get("deleted") or {}).items()}
    inserted, moved = _files(result, "inserted"), _files(result, "moved")
    return distributed.RowChange(
        deleted,
        moved=() if moved is None else (distributed.MovedFiles(moved.files, moved.row_ids),),
        inserted=() if inserted is None or not inserted.files.num_rows else (inserted.files,),
        num_updated=int(result.get("updated") or 0),
        keys=None if inserted is None else inserted.primary,
    )


def _files(result: Mapping[str, Any], name: str) -> TaskFiles | None:
    text = result.get(name)
    if not text:
        return None
    files = pickle.loads(b64decode(text))
    if not isinstance(files, TaskFiles):
        raise UsageError("a task sent no files")
    return files


def _keys(tasks: Sequence[Mapping[str, Any]]) -> Keys:
    keys = Keys()
    for task in tasks:
        files = _files(task, "inserted")
        if files is not None and files.keys is not None:
            keys.add_stream(files.keys)
    return keys


def abort_write(write: PlannedWrite, results: Sequence[Mapping[str, Any]]) -> str:
    """Remove the files of tasks unless a version refers to them. Failures are logged: they must not hide the reason."""
    files = [files for result in results for files in _row_change(result).written]
    try:
        outcome = distributed.abort_write(write.table, write.job, files)
    except (LanceError, OSError) as error:
        outcome = f"its files were not removed: the table could not be read: {error}"
    _logger.warning("job %s: %s", write.job.job_id, outcome)
    return outcome
