"""For the driver program: writing a data frame, and removing what a job that failed has left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import NotFound, UsageError
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import List, Read, Remove
from lance_io.spark.helpers import option_texts
from lance_io.spark.options import parse_options
from lance_io.spark.write.write_job import job_digits, open_target, run_plan
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.table.manifest.paths import BRANCHES, DATA, VERSIONS, parse_manifest_name
from lance_io.table.transaction.garbage import data_file_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_io.dataset.write.write_rows import WriteTarget
    from lance_io.plans.plan import Plan
    from lance_io.store.api import ObjectMeta

_MODES = ("append", "overwrite")
_VERSIONS_AT_ONCE = 64


def write_table(df: DataFrame, uri: str, mode: str = "append", *, files: int | None = None, **options: Any) -> None:
    """`df.write.format("lance_io")` with options of any type: numbers, switches and dicts become their text.

    uri      of the table
    mode     "append" or "overwrite"
    files    how many tasks write at most, and so how many files there are at least; None leaves it to Spark
    options  as in docs/spark.md
    Raises `UsageError` for options that make no sense, before Spark starts anything.
    """
    if mode not in _MODES:
        raise UsageError(f"mode must be append or overwrite, got {mode!r}")
    if files is not None and files < 1:
        raise UsageError(f"files must be at least 1, got {files}")
    texts = option_texts(options)
    parse_options({**texts, "path": uri}, "write")
    rows = df if files is None else df.coalesce(files)
    rows.write.format("lance_io").mode(mode).options(**texts).save(uri)


def cleanup_job(uri: str, job_id: str, **options: Any) -> list[str]:
    """Remove the data files of a job that no version refers to, and those of blobs beside them; gives their paths.

    To be called when no task of the job runs any more. Lost attempts and killed tasks leave files; a file of the job
    is known by its name, and one that counts by the manifests, all of which are read.

    job_id   as it was given to the write, or as the transaction's property `lance_io.job` says
    options  `storage` and others of where the table is
    Raises what reading the table raises: nothing is removed on a guess. `UsageError` for a table with branches.
    """
    checked = parse_options({**option_texts(options), "path": uri}, "write")
    target = open_target(checked)
    return run_plan(target, _cleanup(target, f"{job_digits(job_id)}.lance"))


def _cleanup(target: WriteTarget, ending: str) -> Plan[list[str]]:
    place = target.location
    listed: list[ObjectMeta] = yield List(place.store, place.key(DATA, ""))
    depth = len(place.key("x")) - 1
    paths = sorted(path for meta in listed if data_file_of(path := meta.key[depth:]).endswith(ending))
    if not paths:
        return []
    branches: list[ObjectMeta] = yield List(place.store, place.key(BRANCHES, ""))
    if branches:
        raise UsageError("the table has branches, which may refer to these files; clean_up_old_versions looks at all")
    try:
        yield from target.handler.find_latest(place)  # finishes what a writer left half done
    except NotFound:
        pass  # files of a table that never came to be
    manifests: list[ObjectMeta] = yield List(place.store, place.key(VERSIONS, ""))
    keys = [meta.key for meta in manifests if parse_manifest_name(meta.name) is not None]  # detached versions as well
    kept: set[str] = set()
    for start in range(0, len(keys), _VERSIONS_AT_ONCE):
        some = keys[start : start + _VERSIONS_AT_ONCE]
        kept = kept.union(*(yield Together([_files_of(target, key) for key in some])))
    paths = [path for path in paths if data_file_of(path) not in kept]
    if paths:
        yield Remove(place.store, tuple(place.key(path) for path in paths))
    return paths


def _files_of(target: WriteTarget, key: str) -> Plan[set[str]]:
    """The data files that a version refers to; none of one that was cleaned up meanwhile."""
    try:
        manifest = decode_manifest((yield Read(target.location.store, key)))
    except NotFound:
        return set()
    return {f"{DATA}/{one.path}" for fragment in manifest.fragments for one in fragment.files}
