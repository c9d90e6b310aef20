"""Parameters of a write, decided once before its tasks start and sent to all of them.

    existing table  the version it is based on; the rows take its field ids, file version and types
    no table yet    field ids from 0 on; all columns nullable

A job is small and holds no options, because an engine that recreates the committer in another process sends the job
back with every task's message.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID, uuid4, uuid5

import pyarrow as pa

from lance_io.changes.columns.schema_edits import add_fields
from lance_io.changes.operations.schema_fit import check_mixture, check_version, schema_of
from lance_io.changes.write.write_rows import WriteTarget
from lance_io.dataset.distributed.job_history import find_job, newest_manifest
from lance_io.errors import NotFound, OperationError, SchemaError
from lance_io.file.write.writers import version_for_tables
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V0_1, V2_2
from lance_io.reads.run_plan import run_sync
from lance_io.table.transaction.field_ids import first_free_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.format.schema import Field, Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.table.manifest.manifest import Manifest

T = TypeVar("T")

JOB_DIGITS: Final = 16  # of a job, in hex, in the names of its files
JOB_ID_SEARCH: Final = 1_000  # newest versions searched for a caller's `job_id`


@dataclass(frozen=True)
class WriteJob:
    """One write job. It holds plain values and pickles.

    Attributes:
        uuid: Identity of its transaction, known before the tasks start so that an abort can look for it.
        job_id: Property of the transaction; in hex it ends the names of the files.
        job_id_search: Number of newest versions to search for the caller's id; None for a random id.
        is_overwrite: Whether it replaces the rows of the table.
        read_version: Version that it is based on; 0 without a table.
        schema: Schema of the table after the write, with field ids.
        columns: Names of the input's columns, in the order of the schema.
        data_version: Version of the files.
        is_done: Whether an earlier run with the same `job_id` was committed.
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
        place: TablePlace,  # plain: public parameter
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
        """Plan a write job.

        Args:
            place: The table.
            schema: Function from the table's schema to the schema to store: the table's columns, then new ones. It gets
                None if there is no table, or if the write keeps nothing of its schema.
            columns: Names of the columns in the data; the others must be nullable.
            overwrite: True replaces the rows of the table.
            overwrite_schema: True also replaces the schema; with `overwrite`.
            create: True allows that there is no table yet.
            data_storage_version: Version of the files; None for the table's.
            job_id: The caller's idempotency key.
            job_id_search: Number of newest versions to search for `job_id`.

        Returns:
            The job.

        Raises:
            SchemaError: The data has no column of the schema, or tasks cannot write a column in files of version 0.1.
            OperationError: The table cannot mix files of version 0.1 with others.
            NotFound: There is no table, and `create` is False.
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
        """Schema of the rows that tasks write."""
        return self.file_schema.to_arrow()

    @property
    def file_suffix(self) -> str:
        """End of the names of the job's files, before the extension."""
        return job_digits(self.job_id)

    @property
    def file_schema(self) -> Schema:
        """Schema of the data files: the schema without columns that the input lacks."""
        kept = set(self.columns)
        return replace(self.schema, fields=tuple(field for field in self.schema.fields if field.name in kept))

    def of_batch(self, batch_id: int) -> WriteJob:
        """The job of one batch of a stream, with a transaction of its own.

        Args:
            batch_id: Number of the batch.
        """
        return replace(self, uuid=str(uuid5(UUID(self.uuid), str(batch_id))))


def job_digits(job_id: str) -> str:
    """The 16 hex digits of a job in file names: the id itself if it has that form, else its digest."""
    if len(job_id) == JOB_DIGITS and not set(job_id) - set("0123456789abcdef"):
        return job_id
    return hashlib.sha256(job_id.encode()).hexdigest()[:JOB_DIGITS]


# -- this process ----------------------------------------------------------------------------------------------------


def write_target(table: TablePlace) -> WriteTarget:
    """The target of a job's writes; stores and caches are shared in this process."""
    location = table.location
    return WriteTarget(
        location=location,
        root=location,
        session=table.session,
        handler=table.session.handler(location),
        given_uri=table.uri,
        storage_options=table.storage_options or None,
    )


def run_writes(target: WriteTarget, plan: Plan[T]) -> T:
    """Run a plan that writes and wait for it: in this thread if the store allows, else on the engine."""
    return run_sync(plan, answers_sync=target.answers_sync)


def _check_columns_of_batches(stored: Schema, written: tuple[str, ...], base: Manifest | None) -> None:
    """Raise `SchemaError` for columns that tasks cannot write independently in files of version 0.1.

    base  version that the rows are appended to; None for other writes
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
                f"v1 dictionary field '{field.name}' is missing dictionary metadata: all files share one list of "
                f"values, which independent tasks do not have. Append with write_dataset"
            )


# -- schemas ---------------------------------------------------------------------------------------------------------


def _schema_after(schema: Callable[[pa.Schema | None], pa.Schema], base: Manifest | None) -> Schema:
    """The table's schema after the write; `base` is the version whose fields it keeps."""
    if base is None:
        return schema_of(schema(None))
    return extend_schema(base, schema(base.schema.to_arrow()))


def extend_schema(base: Manifest, stored: pa.Schema) -> Schema:
    """The schema of a version plus the columns, and members of structs, that it lacks, with ids never used before."""
    known = set(base.schema.names)
    new = [field for field in stored if field.name not in known]
    first = first_free_id(base.message)
    fresh = schema_from_arrow(schema_of(pa.schema(new)).to_arrow(), first)
    schema = replace(base.schema, fields=(*base.schema.fields, *fresh.fields))
    own = base.schema.to_arrow()
    members = [
        field for given in stored if given.name in known and (field := _new_members(own.field(given.name), given))
    ]
    if not members:
        return schema
    try:
        schema, _ = add_fields(schema, pa.schema(members), base.data_version, max(first, fresh.max_field_id + 1))
    except OperationError as error:
        raise SchemaError(error.message) from error
    return schema


def _new_members(known: pa.Field[Any], given: pa.Field[Any]) -> pa.Field[Any] | None:
    """A struct with nothing but the members that the known one lacks; None if it lacks none."""
    if not (pa.types.is_struct(known.type) and pa.types.is_struct(given.type)):
        return None
    own = {member.name: member for member in known.type}
    members = [
        member if member.name not in own else below
        for member in given.type
        if member.name not in own or (below := _new_members(own[member.name], member)) is not None
    ]
    return known.with_type(pa.struct(members)) if members else None


def lacking_path(known: Sequence[Field], given: Sequence[Field], above: str = "") -> str | None:
    """The path of the first column, or member of a struct, that a schema lacks; None if it lacks none."""
    own = {field.name: field for field in known}
    for field in given:
        mine = own.get(field.name)
        if mine is None:
            return f"{above}{field.name}"
        if field.logical_type == mine.logical_type == "struct" and not field.holds_blobs:
            below = lacking_path(mine.children, field.children, f"{above}{field.name}.")
            if below is not None:
                return below
    return None
