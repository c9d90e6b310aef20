"""API FOR DISTRIBUTED ENGINES: many processes read and write one table.

Engines (Spark is one, in `lance_io/spark/`) import these names and nothing else of `dataset/`, nothing of `table/`,
`commit/` and `proto/`. All calls block. They run in the caller's thread if the store answers at once.

The planner is the process that plans (a driver); tasks run in other processes. "Pickled" marks objects that move
between processes.

    TablePlace       the table's location and session in this process; each process creates its own
    TableVersion     planner: one version, opened once; bytes name it to other planners; its history, for streams
    TableScan        pickled: a scan; tasks read its parts
    ScanPart         pickled: the share of one task, with the manifest's entries of its fragments
    WriteJob         pickled: the parameters of a write, decided once, for all tasks and for the commit
    write_files      task: writes its rows to data files that no version refers to
    WrittenFiles     pickled: the files of one task
    discard_files    task: removes its files, because its result does not reach the planner
    commit_write     planner: commits one version with the files of all tasks, after any concurrent commits
    abort_write      planner: removes the files of a failed job
    remove_job_files anywhere, later: removes files of lost tasks
    plan_row_job     planner: the job of a change of rows, of the version that its tasks read
    RowChange        pickled: the rows that one task deleted, and its files
    PrimaryKeys      task: the declared primary keys of its new rows
    MovedFiles       pickled: the files of a task's moved rows
    commit_rows      planner: commits one version with the changes of all tasks
    ChangedRows      the counts of rows of that version
    open_dataset     planner: the table as `LanceDataset`, for changes that one process makes
    drop_table rename_table            planner: the table as a whole
    TableFolder      planner: a folder of tables, with properties; SQL calls it a namespace
    plan_index plan_optimized_indices plan_columns plan_compacted
                     planner: a `TableJob` and its parts; then its `commit`, or `abort`
    TableJob JobPart pickled: an operation, decided once; the share of one task, which `run` takes
    TaskResult       pickled: the result of one task

    reading          version = TableVersion.open(TablePlace.of_process(uri, options))        planner
                     scan = version.scan(columns=[("id",)], filter="id > 7")
                     parts = version.parts(scan, part_bytes=128 << 20)
                     scan.read(TablePlace.of_process(uri, options), part, batch_bytes=16 << 20)   each task, its part

    writing          job = WriteJob.plan(place, lambda table: schema, schema.names)           planner
                     written = write_files(place, job, job.arrow_schema, batches, ...)        each task, its rows
                     commit_write(place, job, [written, ...])                                 planner
                     abort_write(place, job, [written, ...])                                  after a failure

Unpickling reads nothing, opens nothing and starts nothing. No process keeps state for another one, so each may die at
any point and be replaced: a commit with an unknown outcome is looked up in the table. A caller's `job_id` is an
idempotency key. A `mark` is an entry of the table's config, set in the version that holds the rows, so that a repeated
batch is recognised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.lazy_names import lazy_names

if TYPE_CHECKING:
    from lance_io.dataset.distributed.changed_rows import (
        ChangedRows,
        MovedFiles,
        PrimaryKeys,
        RowChange,
        commit_rows,
        plan_row_job,
    )
    from lance_io.dataset.distributed.column_job import plan_columns
    from lance_io.dataset.distributed.compaction_job import plan_compacted
    from lance_io.dataset.distributed.index_job import plan_index, plan_optimized_indices
    from lance_io.dataset.distributed.job_commit import commit_write
    from lance_io.dataset.distributed.job_files import abort_write, discard_files, remove_job_files
    from lance_io.dataset.distributed.scan_request import ScanPart
    from lance_io.dataset.distributed.table_jobs import JobPart, TableJob, TaskResult
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.dataset.distributed.table_scan import TableScan
    from lance_io.dataset.distributed.table_version import TableVersion
    from lance_io.dataset.distributed.task_files import WrittenFiles, write_files
    from lance_io.dataset.distributed.whole_tables import (
        TableFolder,
        drop_table,
        open_dataset,
        rename_table,
    )
    from lance_io.dataset.distributed.write_job import WriteJob

_HOMES = {  # loaded on first use: a reading task loads no modules for planning or writing
    "ChangedRows": "lance_io.dataset.distributed.changed_rows",
    "JobPart": "lance_io.dataset.distributed.table_jobs",
    "MovedFiles": "lance_io.dataset.distributed.changed_rows",
    "PrimaryKeys": "lance_io.dataset.distributed.changed_rows",
    "RowChange": "lance_io.dataset.distributed.changed_rows",
    "ScanPart": "lance_io.dataset.distributed.scan_request",
    "TableFolder": "lance_io.dataset.distributed.whole_tables",
    "TableJob": "lance_io.dataset.distributed.table_jobs",
    "TablePlace": "lance_io.dataset.distributed.table_place",
    "TableScan": "lance_io.dataset.distributed.table_scan",
    "TableVersion": "lance_io.dataset.distributed.table_version",
    "TaskResult": "lance_io.dataset.distributed.table_jobs",
    "WriteJob": "lance_io.dataset.distributed.write_job",
    "WrittenFiles": "lance_io.dataset.distributed.task_files",
    "abort_write": "lance_io.dataset.distributed.job_files",
    "commit_rows": "lance_io.dataset.distributed.changed_rows",
    "commit_write": "lance_io.dataset.distributed.job_commit",
    "discard_files": "lance_io.dataset.distributed.job_files",
    "drop_table": "lance_io.dataset.distributed.whole_tables",
    "open_dataset": "lance_io.dataset.distributed.whole_tables",
    "plan_columns": "lance_io.dataset.distributed.column_job",
    "plan_compacted": "lance_io.dataset.distributed.compaction_job",
    "plan_index": "lance_io.dataset.distributed.index_job",
    "plan_optimized_indices": "lance_io.dataset.distributed.index_job",
    "plan_row_job": "lance_io.dataset.distributed.changed_rows",
    "remove_job_files": "lance_io.dataset.distributed.job_files",
    "rename_table": "lance_io.dataset.distributed.whole_tables",
    "write_files": "lance_io.dataset.distributed.task_files",
}

__all__ = [
    "ChangedRows",
    "JobPart",
    "MovedFiles",
    "PrimaryKeys",
    "RowChange",
    "ScanPart",
    "TableFolder",
    "TableJob",
    "TablePlace",
    "TableScan",
    "TableVersion",
    "TaskResult",
    "WriteJob",
    "WrittenFiles",
    "abort_write",
    "commit_rows",
    "commit_write",
    "discard_files",
    "drop_table",
    "open_dataset",
    "plan_columns",
    "plan_compacted",
    "plan_index",
    "plan_optimized_indices",
    "plan_row_job",
    "remove_job_files",
    "rename_table",
    "write_files",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
