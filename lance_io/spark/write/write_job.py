"""What a write is, decided once before its tasks start and sent to all of them.

    table there    the version it is based on; the rows take its field ids, file version and types
    no table yet   field ids from 0 on; all columns nullable

A job is small and holds no options: it also travels back with every task's message, because Spark makes the writer that
commits a streaming batch anew and so only the messages say what the tasks were told.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID, uuid4, uuid5

import pyarrow as pa

from lance_io import runtime
from lance_io.dataset.version.versions import manifest_in
from lance_io.dataset.write.schema_fit import check_version, schema_of
from lance_io.dataset.write.write_arguments import write_target
from lance_io.errors import NotFound, SchemaError
from lance_io.file.write.writers import version_for_files
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_2
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.spark.engine import storage_options, table_place
from lance_io.spark.types import spark_to_arrow
from lance_io.spark.write.job_history import find_job
from lance_io.table.transaction.field_ids import first_free_id

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_io.dataset.write.write_rows import WriteTarget
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.spark.options import TargetOptions, WriteOptions
    from lance_io.table.manifest.manifest import Manifest

T = TypeVar("T")

JOB_DIGITS: Final = 16  # hex digits of a job in the names of its files


@dataclass(frozen=True)
class WriteJob:
    """One write job.

    uuid          of its transaction, known before the tasks start so that an abort can look for it
    job_id        property of the transaction; in hex at the end of the files' names
    is_overwrite  whether it replaces the rows of the table
    read_version  version that it is based on, 0 where there is no table
    schema        of the table after the write, with field ids
    columns       names of the columns that the input has, in the order of the schema
    data_version  of the files
    is_done       an earlier run under the same `job_id` was committed
    """

    uuid: str
    job_id: str
    is_overwrite: bool
    read_version: int
    schema: Schema
    columns: tuple[str, ...]
    data_version: FileVersion
    is_done: bool = False

    @property
    def file_suffix(self) -> str:
        """How the names of its files end, before the extension."""
        return job_digits(self.job_id)

    @property
    def file_schema(self) -> Schema:
        """The schema of its data files: nullable columns that the input lacks are not in them."""
        kept = set(self.columns)
        return replace(self.schema, fields=tuple(field for field in self.schema.fields if field.name in kept))

    def of_batch(self, batch_id: int) -> WriteJob:
        """The job of one batch of a stream: never the same transaction as that of another batch."""
        return replace(self, uuid=str(uuid5(UUID(self.uuid), str(batch_id))))


def job_digits(job_id: str) -> str:
    """The 16 hex digits that stand for a job in file names: the id itself where it is such, else its digest."""
    if len(job_id) == JOB_DIGITS and not set(job_id) - set("0123456789abcdef"):
        return job_id
    return hashlib.sha256(job_id.encode()).hexdigest()[:JOB_DIGITS]


# -- this process ----------------------------------------------------------------------------------------------------


def open_target(options: TargetOptions) -> WriteTarget:
    """Where a job writes; stores and caches are shared by all that this process does."""
    return write_target(options.path, storage_options(options) or None, table_place(options).session)


def run_plan(target: WriteTarget, plan: Plan[T]) -> T:
    """Run a plan and wait for it."""
    return drive_sync(plan) if target.answers_sync else runtime.run(drive_async(plan))


# -- planning --------------------------------------------------------------------------------------------------------


def newest_manifest(target: WriteTarget) -> Plan[Manifest | None]:
    """The newest version, None where there is no table."""
    try:
        newest = yield from target.handler.find_latest(target.location)
    except NotFound:
        return None
    return (yield from manifest_in(target.location, newest, target.session.cache))


def plan_job(target: WriteTarget, options: WriteOptions, given: StructType, is_overwrite: bool) -> Plan[WriteJob]:
    """Decide what a job is.

    Raises `SchemaError` for a Spark schema that does not fit the table, `NotFound` for a table that is to be there.
    """
    uuid = uuid4()
    base = yield from newest_manifest(target)
    if base is None and not options.create and not is_overwrite:
        raise NotFound(f"there is no table at {target.given_uri}, and the option create is false")
    schema = _schema(options, given, base, is_overwrite=is_overwrite)
    columns = tuple(name for name in schema.names if name in given.names)
    if not columns:
        raise SchemaError("the data has no column to be written")
    version = V2_2 if base is None else base.data_version
    if options.data_storage_version is not None:
        version = version_for_files(options.data_storage_version)
    check_version(schema, version)
    known = options.job_id is not None and base is not None
    done = (yield from find_job(target, options.job_id or "", options.job_id_search)) if known else None
    return WriteJob(
        uuid=str(uuid),
        job_id=uuid.hex[:JOB_DIGITS] if options.job_id is None else options.job_id,
        is_overwrite=is_overwrite,
        read_version=0 if base is None else base.version,
        schema=schema,
        columns=columns,
        data_version=version,
        is_done=done is not None,
    )


def _schema(options: WriteOptions, given: StructType, base: Manifest | None, *, is_overwrite: bool) -> Schema:
    """The table's schema after the write; of a table that is replaced, nothing is kept."""
    table = None if base is None else base.schema.to_arrow()
    replaces = table is None or (is_overwrite and options.overwrite_schema)
    stored = spark_to_arrow(
        given,
        None if replaces else table,
        vector_sizes=options.vector_sizes,
        merge_schema=options.merge_schema,
        narrow_floats=options.narrow_floats,
    )
    return schema_of(stored) if replaces or base is None else extended(base, stored)


def extended(base: Manifest, stored: pa.Schema) -> Schema:
    """The schema of a version, and behind it the columns of `stored` that it lacks, under ids never used before."""
    known = set(base.schema.names)
    new = [field for field in stored if field.name not in known]
    fresh = schema_from_arrow(schema_of(pa.schema(new)).to_arrow(), first_free_id(base.message))
    return replace(base.schema, fields=(*base.schema.fields, *fresh.fields))
