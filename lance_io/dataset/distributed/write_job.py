"""What a write is, decided once before its tasks start and sent to all of them.

    table there    the version it is based on; the rows take its field ids, file version and types
    no table yet   field ids from 0 on; all columns nullable

A job is small and holds no options: engines that make what commits anew, in another process, send it back with every
task's message.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID, uuid4, uuid5

import pyarrow as pa

from lance_io.changes.operations.schema_fit import check_mixture, check_version, schema_of
from lance_io.changes.write.write_rows import WriteTarget
from lance_io.dataset.distributed.job_history import find_job, newest_manifest
from lance_io.errors import NotFound, SchemaError
from lance_io.file.write.writers import version_for_tables
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V0_1, V2_2
from lance_io.reads.run_plan import run_sync
from lance_io.table.transaction.field_ids import first_free_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.table.manifest.manifest import Manifest

T = TypeVar("T")

JOB_DIGITS: Final = 16  # hex digits of a job in the names of its files
JOB_ID_SEARCH: Final = 1_000  # kept versions that are searched for a caller's `job_id`


@dataclass(frozen=True)
class WriteJob:
    """One write job. Values only, to be pickled.

    uuid           of its transaction, known before the tasks start so that an abort can look for it
    job_id         property of the transaction; in hex at the end of the files' names
    job_id_search  how many of the newest versions are searched for its id, the caller's; None for a random one
    is_overwrite   whether it replaces the rows of the table
    read_version   version that it is based on, 0 where there is no table
    schema         of the table after the write, with field ids
    columns        names of the columns that the input has, in the order of the schema
    data_version   of the files
    is_done        an earlier run under the same `job_id` was committed
    """

    uuid: str
    job_id: str
    job_id_search: int | None
    is_overwrite: bool
    read_version: int
    schema: Schema
    columns: tuple[str, ...]
    data_version: FileVersion
    is_done: bool = False

    @classmethod
    def plan(
        cls,
        place: TablePlace,
        schema: Callable[[pa.Schema | None], pa.Schema],
        columns: Collection[str],
        *,
        overwrite: bool = False,
        overwrite_schema: bool = False,
        create: bool = True,
        data_storage_version: str | None = None,
        job_id: str | None = None,
        job_id_search: int = JOB_ID_SEARCH,
    ) -> WriteJob:
        """Decide what a job is.

        schema   gives the schema in which the rows are stored, from that of the table: its columns, and new ones behind
                 them. From None where there is no table, or nothing of its schema is kept
        columns  names of those that the data has; the others of the schema must be nullable
        overwrite, overwrite_schema  the rows replace those of the table, and its schema too
        create   whether there may be no table yet
        data_storage_version  of the files; None takes the table's
        job_id, job_id_search  the caller's idempotence key, and how many of the newest versions are searched for it

        Raises what `schema` raises, `SchemaError` for data without a column of it and for columns that tasks cannot
        write in files of version 0.1, `OperationError` for these beside others, `NotFound` for a table that is to be
        there.
        """
        target, uuid = write_target(place), uuid4()
        target.handler.check(target.location)
        base = run_writes(target, newest_manifest(target.location, target.session))
        if base is None and not create and not overwrite:
            raise NotFound(f"there is no table at {place.uri}, and the option create is false")
        stored = _schema_after(schema, None if overwrite and overwrite_schema else base)
        written = tuple(name for name in stored.names if name in columns)
        if not written:
            raise SchemaError("the data has no column to be written")
        version = V2_2 if base is None else base.data_version
        if data_storage_version is not None:
            version = version_for_tables(data_storage_version)
        if base is not None and not overwrite:
            check_mixture(version, base.data_version)
        check_version(stored, version)
        if version == V0_1:
            _check_columns_of_batches(stored, written, base if base is not None and not overwrite else None)
        known = job_id is not None and base is not None
        done = run_writes(target, find_job(target, job_id or "", job_id_search)) if known else None
        return cls(
            uuid=str(uuid),
            job_id=uuid.hex[:JOB_DIGITS] if job_id is None else job_id,
            job_id_search=None if job_id is None else job_id_search,
            is_overwrite=overwrite,
            read_version=0 if base is None else base.version,
            schema=stored,
            columns=written,
            data_version=version,
            is_done=done is not None,
        )

    @property
    def arrow_schema(self) -> pa.Schema:
        """Of the rows that tasks write."""
        return self.file_schema.to_arrow()

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


def write_target(place: TablePlace) -> WriteTarget:
    """Where a job writes; stores and caches are shared by all that this process does."""
    location = place.location
    return WriteTarget(
        location=location,
        root=location,
        session=place.session,
        handler=place.session.handler(location),
        given_uri=place.uri,
        storage_options=place.storage_options or None,
    )


def run_writes(target: WriteTarget, plan: Plan[T]) -> T:
    """Run a plan that writes, and wait for it: in this thread where that is possible, else on the engine."""
    return run_sync(plan, answers_sync=target.answers_sync)


def _check_columns_of_batches(stored: Schema, written: tuple[str, ...], base: Manifest | None) -> None:
    """Raise `SchemaError` for what needs more than files of 0.1 that tasks write by themselves.

    base  version to which rows are appended, None for other writes
    """
    for field in stored.fields:
        if field.name not in written or (base is not None and field.name not in base.schema.names):
            raise SchemaError(
                f"column {field.name!r}: no column of a table of file version {V0_1.name} can be absent from some "
                f"of its files. Write rows with all columns, or into a table of another data_storage_version"
            )
    for field in stored.walk():
        if field.logical_type.startswith("dict:"):
            raise SchemaError(
                f"v1 dictionary field '{field.name}' is missing dictionary metadata: its values are one list for all "
                f"files, which tasks that know nothing of each other do not have. Append with write_dataset"
            )


# -- schemas ---------------------------------------------------------------------------------------------------------


def _schema_after(schema: Callable[[pa.Schema | None], pa.Schema], base: Manifest | None) -> Schema:
    """The table's schema after the write; `base` is the version of which it keeps what it has."""
    if base is None:
        return schema_of(schema(None))
    return extend_schema(base, schema(base.schema.to_arrow()))


def extend_schema(base: Manifest, stored: pa.Schema) -> Schema:
    """The schema of a version, and behind it the columns of `stored` that it lacks, under ids never used before."""
    known = set(base.schema.names)
    new = [field for field in stored if field.name not in known]
    fresh = schema_from_arrow(schema_of(pa.schema(new)).to_arrow(), first_free_id(base.message))
    return replace(base.schema, fields=(*base.schema.fields, *fresh.fields))
