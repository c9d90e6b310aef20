"""Procedures: `CALL lance.system.compact(table => 't')`.

    driver     plan      reads the table; says which tasks there are, maybe none
    executors  run_task  one task each, in a Spark job; the table does not change
    driver     finish    commits once, and returns the row that the caller sees

A task that runs twice writes files twice, of which the results name one set.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from lance_io.dataset import distributed
from lance_io.errors import UsageError
from lance_io.spark.engine import table_place
from lance_io.spark.options import parse_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Arguments = dict[str, Any]
Row = dict[str, Any]  # tables are of `LanceDataset`, which no engine imports


def plan(request: dict[str, Any]) -> dict[str, Any]:
    """The tasks of a call."""
    dataset = _open(request)
    tasks = distributed.compaction_tasks(dataset, _given(request)) if request["procedure"] == "compact" else []
    return {"tasks": [b64encode(pickle.dumps(task)).decode() for task in tasks]}


def run_task(request: dict[str, Any]) -> dict[str, Any]:
    """Run a task; the answer goes to `finish`."""
    result = pickle.loads(b64decode(request["task"])).execute(_open(request))
    return {"result": b64encode(pickle.dumps(result)).decode()}


def finish(request: dict[str, Any]) -> dict[str, Any]:
    """Commit, and return a row: names and values of its columns, whole numbers or texts."""
    procedure = _FINISH.get(request["procedure"])
    if procedure is None:
        raise UsageError(f"there is no procedure {request['procedure']!r}")
    results = [pickle.loads(b64decode(text)) for text in request["results"]]
    row = procedure(_open(request), _given(request), results)
    return {"names": list(row), "values": list(row.values())}


def _open(request: dict[str, Any]) -> Any:
    return distributed.open_dataset(table_place(parse_options(request["options"], "read")))


def _given(request: dict[str, Any]) -> Arguments:
    """The arguments that are not null."""
    return {name: value for name, value in request["arguments"].items() if value is not None}


# -- procedures --------------------------------------------------------------------------------------------------------


def _compact(dataset: Any, _: Arguments, results: Sequence[Any]) -> Row:
    metrics = distributed.commit_compaction(dataset, results)
    counts = ("fragments_removed", "fragments_added", "files_removed", "files_added")
    return {"version": dataset.version, **{name: getattr(metrics, name) for name in counts}}


def _cleanup(dataset: Any, given: Arguments, _: Sequence[Any]) -> Row:
    days, versions = given.get("older_than_days"), given.get("retain_versions")
    stats = dataset.cleanup_old_versions(
        None if days is None else timedelta(days=days),
        versions,
        delete_unverified=bool(given.get("delete_unverified")),
        error_if_tagged_old_versions=False,
    )
    return {"versions_removed": stats.old_versions, "bytes_removed": stats.bytes_removed}


def _create_index(dataset: Any, given: Arguments, _: Sequence[Any]) -> Row:
    options = {key: _number(text) for key, text in given.get("options", {}).items()}
    kind, replace = given["index_type"].upper(), bool(given.get("replace", True))
    if kind.startswith("IVF_"):
        dataset.create_index(given["column"], kind, given.get("name"), replace=replace, **options)
    else:
        dataset.create_scalar_index(given["column"], kind, given.get("name"), replace=replace, **options)
    names = [index.name for index in dataset.describe_indices() if index.field_names == [given["column"]]]
    return {"version": dataset.version, "name": given.get("name") or (names[-1] if names else "")}


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


def _drop_index(dataset: Any, given: Arguments, _: Sequence[Any]) -> Row:
    dataset.drop_index(given["name"])
    return {"version": dataset.version}


def _optimize_indices(dataset: Any, _: Arguments, __: Sequence[Any]) -> Row:
    dataset.optimize.optimize_indices()
    return {"version": dataset.version}


def _add_columns(dataset: Any, given: Arguments, _: Sequence[Any]) -> Row:
    dataset.add_columns(dict(given["columns"]))
    return {"version": dataset.version}


def _rollback(dataset: Any, given: Arguments, _: Sequence[Any]) -> Row:
    old = dataset.checkout_version(given["version"])
    old.restore()
    return {"version": old.version}


def _create_tag(dataset: Any, given: Arguments, _: Sequence[Any]) -> Row:
    version = given.get("version", dataset.version)
    dataset.tags.create(given["tag"], version)
    return {"tag": given["tag"], "version": version}


def _drop_tag(dataset: Any, given: Arguments, _: Sequence[Any]) -> Row:
    dataset.tags.delete(given["tag"])
    return {"tag": given["tag"]}


def _create_branch(dataset: Any, given: Arguments, _: Sequence[Any]) -> Row:
    version = given.get("version", dataset.version)
    dataset.create_branch(given["branch"], version)
    return {"branch": given["branch"], "version": version}


def _drop_branch(dataset: Any, given: Arguments, _: Sequence[Any]) -> Row:
    dataset.branches.delete(given["branch"])
    return {"branch": given["branch"]}


_FINISH: Final[dict[str, Callable[[Any, Arguments, Sequence[Any]], Row]]] = {
    "compact": _compact,
    "cleanup": _cleanup,
    "create_index": _create_index,
    "drop_index": _drop_index,
    "optimize_indices": _optimize_indices,
    "add_columns": _add_columns,
    "rollback": _rollback,
    "create_tag": _create_tag,
    "drop_tag": _drop_tag,
    "create_branch": _create_branch,
    "drop_branch": _drop_branch,
}
