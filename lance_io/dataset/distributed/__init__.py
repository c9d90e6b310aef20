"""WHAT A DISTRIBUTED ENGINE NEEDS: reading and writing one table by many processes, none of which may be the user's.

Engines (Spark is one, in `lance_io/spark/`) import these names and nothing else of `dataset/`, nothing of `table/`,
`commit/` and `proto/`. All calls block; they run in the caller's thread where the store answers at once.

    TablePlace       where the table is, as this process reaches it; every process makes its own
    TableVersion     who plans: one version, opened once. Named by bytes to others who plan; its history, for streams
    TableScan        travels: what is read. Tasks read its parts
    ScanPart         travels: what one task reads, with the manifest's entries of its fragments
    WriteJob         travels: what a write is, decided once, for all tasks and for the commit
    write_files      a task: its rows to data files that no version refers to
    WrittenFiles     travels: what one task has written
    commit_write     who plans: one version of what all tasks have written, whichever others committed meanwhile
    abort_write      who plans: removes the files of a job that failed, if it has failed
    remove_job_files  anybody, later: files of tasks that were lost

    reading          version = TableVersion.open(TablePlace.of_process(uri, options))        who plans
                     scan = version.scan(columns=[("id",)], filter="id > 7")
                     parts = version.parts(scan, part_bytes=128 << 20)
                     scan.read(TablePlace.of_process(uri, options), part, batch_bytes=16 << 20)   each task, its part

    writing          job = WriteJob.plan(place, lambda table: schema, schema.names)           who plans
                     written = write_files(place, job, job.arrow_schema, batches, ...)        each task, its rows
                     commit_write(place, job, [written, ...])                                 who plans
                     abort_write(place, job, [written, ...])                                  where that failed

What travels is pickled. Unpickling reads nothing, opens nothing and starts nothing. No process remembers anything for
another one, so each may die at any point and be replaced: a commit whose outcome nobody has seen is looked up in the
table. A caller's `job_id` counts once; a `mark` is an entry of the table's config that is set in the very version that
holds the rows, so that a batch which comes twice is recognised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.lazy_names import lazy_names

if TYPE_CHECKING:
    from lance_io.dataset.distributed.job_commit import commit_write
    from lance_io.dataset.distributed.job_files import abort_write, remove_job_files
    from lance_io.dataset.distributed.scan_request import ScanPart
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.dataset.distributed.table_scan import TableScan
    from lance_io.dataset.distributed.table_version import TableVersion
    from lance_io.dataset.distributed.task_files import WrittenFiles, write_files
    from lance_io.dataset.distributed.write_job import WriteJob

_HOMES = {  # loaded when first used: a task that reads loads nothing that plans or writes
    "ScanPart": "lance_io.dataset.distributed.scan_request",
    "TablePlace": "lance_io.dataset.distributed.table_place",
    "TableScan": "lance_io.dataset.distributed.table_scan",
    "TableVersion": "lance_io.dataset.distributed.table_version",
    "WriteJob": "lance_io.dataset.distributed.write_job",
    "WrittenFiles": "lance_io.dataset.distributed.task_files",
    "abort_write": "lance_io.dataset.distributed.job_files",
    "commit_write": "lance_io.dataset.distributed.job_commit",
    "remove_job_files": "lance_io.dataset.distributed.job_files",
    "write_files": "lance_io.dataset.distributed.task_files",
}

__all__ = [
    "ScanPart",
    "TablePlace",
    "TableScan",
    "TableVersion",
    "WriteJob",
    "WrittenFiles",
    "abort_write",
    "commit_write",
    "remove_job_files",
    "write_files",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
