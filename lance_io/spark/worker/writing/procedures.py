"""Procedures: `CALL lance.system.compact(table => 't')`.

    driver     plan      reads the table; says which tasks there are, maybe none
    executors  run_task  one task each, in a Spark job; the table does not change
    driver     finish    commits once, and returns the row that the caller sees
    driver     abort     instead of it: removes the files of the tasks

A task that runs twice gives two results, of which Spark takes one. The files of the other go with the commit.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from lance_io.dataset import distributed
from lance_io.errors import CommitConflictError, UsageError
from lance_io.plans.plan import Stopped
from lance_io.redaction import get_logger, hide_secrets
from lance_io.spark.engine import table_place
from lance_io.spark.options import parse_options
from lance_io.spark.worker.writing.carried_functions import CarriedFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.dataset.distributed import JobPart, TableJob, TablePlace
    from lance_io.spark.worker.jvm_connections import Connection

Arguments = dict[str, Any]
Row = dict[str, Any]  # tables are of `LanceDataset`, which no engine imports
Planned = tuple["TableJob", "Sequence[JobPart]"]

REPEATS: Final = 2  # plans after the first one, each on the newest version

_logger = get_logger(__name__)


def plan(request: dict[str, Any]) -> dict[str, Any]:
    """The tasks of a call, and what they share."""
    planned = _PLAN.get(request["procedure"])
    if planned is None:
        return {"tasks": []}
    job, parts = planned(_table(request), _given(request), request["cores"])
    return {"job": _pack(job), "tasks": [_pack(part) for part in parts]}


def run_task(connection: Connection, request: dict[str, Any]) -> None:
    """Run a task, and send its result, which goes to `finish`. It stops when the JVM closes the connection."""
    job, table = _unpack(request["job"]), _table(request)
    with suppress(Stopped):
        result = job.run(table, _unpack(request["task"]), connection.watch)
        try:
            connection.send({"result": _pack(result)})
        except OSError:  # the JVM has gone, or wants it no more
            job.discard(table, result)


def finish(request: dict[str, Any]) -> dict[str, Any]:
    """Commit, and return a row: names and values of its columns, whole numbers or texts.

    Says `again` after a conflict that another plan may solve.
    """
    table, given = _table(request), _given(request)
    if request.get("job"):
        job = _unpack(request["job"])
        try:
            row = job.commit(table, [_unpack(text) for text in request["results"]])
        except CommitConflictError as error:
            if not (error.retryable and job.repeats and request["attempt"] < REPEATS):
                raise
            _logger.warning("%s is planned again: %s", request["procedure"], error)
            return {"again": True}
    else:
        procedure = _FINISH.get(request["procedure"])
        if procedure is None:
            raise UsageError(f"there is no procedure {request['procedure']!r}")
        row = procedure(distributed.open_dataset(table), given)
    counts = ", ".join(f"{name} {value}" for name, value in row.items())
    text = f"{request['procedure']}, {hide_secrets(table.uri)}: {counts}"
    return {"names": list(row), "values": list(row.values()), "log": text}


def abort(request: dict[str, Any]) -> dict[str, Any]:
    """Remove the files of the tasks of a call that failed."""
    return {"files": _unpack(request["job"]).abort(_table(request))}


def _pack(value: Any) -> str:
    return b64encode(pickle.dumps(value)).decode()


def _unpack(text: str) -> Any:
    return pickle.loads(b64decode(text))


def _table(request: dict[str, Any]) -> TablePlace:
    return table_place(parse_options(request["options"], "read"))


def _given(request: dict[str, Any]) -> Arguments:
    """The arguments that are not null."""
    return {name: value for name, value in request["arguments"].items() if value is not None}


# -- procedures with tasks ---------------------------------------------------------------------------------------------


def _compact(table: TablePlace, given: Arguments, _: int) -> Planned:
    return distributed.plan_compacted(table, given)


def _create_index(table: TablePlace, given: Arguments, cores: int) -> Planned:
    return distributed.plan_index(
        table,
        given["column"],
        given["index_type"],
        given.get("name"),
        replace=bool(given.get("replace", True)),
        options={key: _number(text) for key, text in given.get("options", {}).items()},
        num_segments=given.get("num_segments"),
        cores=cores,
    )


def _number(text: str) -> Any:
    """An option as a number, a switch or a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _optimize_indices(table: TablePlace, given: Arguments, cores: int) -> Planned:
    return distributed.plan_optimized_indices(
        table,
        index_names=None if "name" not in given else [given["name"]],
        num_indices_to_merge=given.get("num_indices_to_merge"),
        retrain=bool(given.get("retrain")),
        memory_limit=given.get("memory_limit"),
        num_segments=given.get("num_segments"),
        cores=cores,
    )


def _add_columns(table: TablePlace, given: Arguments, cores: int) -> Planned:
    columns, function = given.get("columns"), given.get("function")
    if (columns is None) == (function is None):
        raise UsageError("add_columns: expected columns, a map of SQL expressions by name")
    if function is None:
        return distributed.plan_columns(table, dict(columns or {}), cores=cores)
    carried = CarriedFunction.of_text(function)
    return distributed.plan_columns(
        table,
        carried,
        read_columns=carried.read_columns,
        output_schema=carried.output_schema,
        batch_size=carried.batch_size,
        cores=cores,
    )


# -- procedures of the driver ------------------------------------------------------------------------------------------


def _cleanup(dataset: Any, given: Arguments) -> Row:
    days, versions = given.get("older_than_days"), given.get("retain_versions")
    stats = dataset.cleanup_old_versions(
        None if days is None else timedelta(days=days),
        versions,
        delete_unverified=bool(given.get("delete_unverified")),
        error_if_tagged_old_versions=False,
    )
    return {"versions_removed": stats.old_versions, "bytes_removed": stats.bytes_removed}


def _drop_index(dataset: Any, given: Arguments) -> Row:
    dataset.drop_index(given["name"])
    return {"version": dataset.version}


def _rollback(dataset: Any, given: Arguments) -> Row:
    old = dataset.checkout_version(given["version"])
    old.restore()
    return {"version": old.version}


def _create_tag(dataset: Any, given: Arguments) -> Row:
    version = given.get("version", dataset.version)
    dataset.tags.create(given["tag"], version)
    return {"tag": given["tag"], "version": version}


def _drop_tag(dataset: Any, given: Arguments) -> Row:
    dataset.tags.delete(given["tag"])
    return {"tag": given["tag"]}


def _create_branch(dataset: Any, given: Arguments) -> Row:
    version = given.get("version", dataset.version)
    dataset.create_branch(given["branch"], version)
    return {"branch": given["branch"], "version": version}


def _drop_branch(dataset: Any, given: Arguments) -> Row:
    dataset.branches.delete(given["branch"])
    return {"branch": given["branch"]}


_PLAN: Final[dict[str, Callable[[Any, Arguments, int], Planned]]] = {
    "compact": _compact,
    "create_index": _create_index,
    "optimize_indices": _optimize_indices,
    "add_columns": _add_columns,
}
_FINISH: Final[dict[str, Callable[[Any, Arguments], Row]]] = {
    "cleanup": _cleanup,
    "drop_index": _drop_index,
    "rollback": _rollback,
    "create_tag": _create_tag,
    "drop_tag": _drop_tag,
    "create_branch": _create_branch,
    "drop_branch": _drop_branch,
}
