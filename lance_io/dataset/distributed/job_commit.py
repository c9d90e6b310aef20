"""Commit the files of all tasks as one version of the table.

    append      to an existing table; the first one creates it. No rows: no version
    overwrite   replaces rows and, if requested, the schema
    new columns, and new members of structs, come in the version of the rows, whose files take the ids of the new fields

Commits are rebased on concurrent commits, as the table's rules allow. After a lost answer the commit loop looks for the
transaction in the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lance_io.changes.operations.schema_fit import fit_schema
from lance_io.changes.upkeep.remove_versions import after_commit
from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.first_version import create_table
from lance_io.dataset.distributed.added_columns import next_fragment_id
from lance_io.dataset.distributed.job_files import abort_steps
from lance_io.dataset.distributed.job_history import JOB_PROPERTY, find_job, newest_manifest, transactions_after
from lance_io.dataset.distributed.write_job import extend_schema, lacking_path, run_writes, write_target
from lance_io.errors import AlreadyExists, CommitConflictError, NotFound, SchemaError
from lance_io.file.write.writers import version_for_tables
from lance_io.reads.metadata.describe import stored_fragment
from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
from lance_io.table.transaction.apply import ConfigMark, Creation
from lance_io.table.transaction.conflicts import check_conflict
from lance_io.table.transaction.duplicate_names import added_files
from lance_io.table.transaction.operations import Append, Merge, Overwrite
from lance_io.table.transaction.transaction import COMMIT_MESSAGE_KEY, Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.changes.write.write_rows import WriteTarget
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.dataset.distributed.task_files import WrittenFiles
    from lance_io.dataset.distributed.write_job import WriteJob
    from lance_io.format.schema import Field, Schema
    from lance_io.plans.plan import Plan
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.operations import Operation

COMMIT_RETRIES: Final = 20
MERGE_ATTEMPTS: Final = 20  # of adding rows with new columns under concurrent commits
_AS_IT_IS: Final = Creation()


@dataclass(frozen=True)
class CommitOptions:
    """Options of a commit; see `commit_write`."""

    merge_schema: bool = False
    data_storage_version: str | None = None
    retries: int = COMMIT_RETRIES
    properties: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[ConfigMark, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    stable_row_ids: bool = False
    keeps_config: str | None = None


def commit_write(
    place: TablePlace,  # plain: public parameter
    job: WriteJob,
    written: Sequence[WrittenFiles],
    *,
    merge_schema: bool = False,
    data_storage_version: str | None = None,
    retries: int = COMMIT_RETRIES,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    mark: tuple[str, str, str | None] | None = None,
    config: Mapping[str, str] | None = None,
    stable_row_ids: bool = False,
    keeps_config: str | None = None,
) -> int | None:
    """Commit the files of all tasks as one version.

    Args:
        place: The table.
        job: The job of the tasks.
        written: Files of all tasks, in the order of the rows.
        merge_schema: True adds columns, and members of structs, that the table lacks, in the same version.
        data_storage_version: File version of the table after an overwrite; None leaves it.
        retries: Maximum number of retries after conflicts with concurrent commits.
        message: Message stored with the transaction.
        properties: Properties of the transaction.
        mark: `(key, text, previous text)`: an entry of the table's config that the version sets, unless it has changed
            since the previous text was read. A previous text of None stands for no entry.
        config: Entries of the table's config that a new table or an overwrite sets.
        stable_row_ids: True gives the rows of a new table ids that they keep.
        keeps_config: An overwrite removes the entries of the table's config that do not begin with this text; None
            keeps all.

    Returns:
        Number of the version; None if nothing was committed, because there are no rows or the job is done already.

    Raises:
        CommitConflictError: A change of another writer conflicts with this one.
        CommitUnknownError: Reading the table does not tell whether the version exists.
        SchemaError: The table's schema has changed since the job was planned.
        OperationError: `written` contains the files of a task twice.
    """
    target = write_target(place)
    options = CommitOptions(
        merge_schema=merge_schema,
        data_storage_version=data_storage_version,
        retries=retries,
        properties={**(properties or {}), **({} if message is None else {COMMIT_MESSAGE_KEY: message})},
        marks=() if mark is None else (ConfigMark(*mark),),
        config=config or {},
        stable_row_ids=stable_row_ids,
        keeps_config=keeps_config,
    )
    return run_writes(target, commit_steps(target, job, written, options))


def commit_steps(
    target: WriteTarget, job: WriteJob, written: Sequence[WrittenFiles], options: CommitOptions
) -> Plan[int | None]:
    """Plan of `commit_write`."""
    if job.is_done:
        return None
    if job.job_id_search is not None:
        done = yield from find_job(target, job.job_id, job.job_id_search, job.read_version)
        if done is not None:  # a concurrent run was faster
            yield from abort_steps(target, job, written)
            return None
    fragments = tuple(
        stored_fragment(FragmentMetadata.from_json(text)) for task_files in written for text in task_files.fragments
    )
    added_files(None, Append(fragments))  # raises for files named twice, before columns are added
    return (yield from _Change(target, options, job, fragments).commit())


class _Change:
    """One job while it is committed."""

    def __init__(
        self, target: WriteTarget, options: CommitOptions, job: WriteJob, fragments: tuple[Fragment, ...]
    ) -> None:
        self.target = target
        self.options = options
        self.job = job
        self.fragments = fragments
        self.properties = {**options.properties, JOB_PROPERTY: job.job_id}

    def commit(self) -> Plan[int | None]:
        """Create the table, append to it or overwrite it."""
        base = yield from self._newest()
        if base is None:
            try:
                return (yield from self._create())
            except AlreadyExists:  # another writer created it meanwhile
                base = yield from self._newest()
        if base is None:
            raise NotFound("the table was dropped while it was created", path=self.target.location.uri)
        if self.job.is_overwrite:
            return (yield from self._overwrite(base))
        return (yield from self._append(base))

    def _create(self) -> Plan[int]:
        if self.job.read_version:
            raise CommitConflictError(
                f"the table was dropped; the rows were written for its version {self.job.read_version}",
                path=self.target.location.uri,
            )
        operation = Overwrite(self.fragments, self.job.schema, self.options.config)
        creation = Creation(self.job.data_version, self.options.stable_row_ids)
        request = CommitRequest(self._transaction(0, operation), creation=creation, marks=self.options.marks)
        committed = yield from create_table(self.target.commit_target(), request)
        return int(committed.file.version)

    def _overwrite(self, base: Manifest) -> Plan[int]:
        if not self.job.read_version:
            raise CommitConflictError(
                "the table was created while its rows were written; run the job again to overwrite it",
                path=self.target.location.uri,
                retryable=True,
            )
        given = self.options.data_storage_version
        creation = Creation(None if given is None else version_for_tables(given))
        operation = Overwrite(self.fragments, self.job.schema, self.options.config)
        transaction = self._transaction(self.job.read_version, operation)
        return (yield from self._publish(base, transaction, creation, self._removed_config(base)))

    def _removed_config(self, base: Manifest) -> tuple[ConfigMark, ...]:
        """The entries that an overwrite removes."""
        options = self.options
        if options.keeps_config is None:
            return ()
        return tuple(
            ConfigMark(key, None, text)
            for key, text in base.message.config.items()
            if key not in options.config and not key.startswith(options.keeps_config)
        )

    def _append(self, base: Manifest) -> Plan[int | None]:
        if not self.fragments:
            return None
        read_version = self.job.read_version or base.version
        append = Append(self.fragments)
        for attempt in range(MERGE_ATTEMPTS):
            yield from self._check_since(base, self._transaction(read_version, append))
            schema = self._schema_with_new_columns(base)
            if schema is None:
                break
            try:
                return (yield from self._append_with_columns(base, schema))
            except CommitConflictError as error:
                if not error.retryable or attempt == MERGE_ATTEMPTS - 1:
                    raise
                base = yield from self._newest_of_table()
                if any(base.message.config.get(mark.key) != mark.seen for mark in self.options.marks):
                    raise  # another writer has set the entry: the caller looks at it
        append = Append(renumber(self.fragments, field_ids(self.job.file_schema, base.schema)))
        return (yield from self._publish(base, self._transaction(read_version, append)))

    # -- columns -----------------------------------------------------------------------------------------------------

    def _check_since(self, base: Manifest, append: Transaction) -> Plan[None]:
        """Raise `CommitConflictError` if the table was replaced since, before an append adds columns."""
        if append.read_version == base.version or self._schema_with_new_columns(base) is None:
            return
        for version, other in (yield from transactions_after(self.target, append.read_version)):
            if other is not None:
                check_conflict(append, other, version=version, knows_rows=False)

    def _schema_with_new_columns(self, base: Manifest) -> Schema | None:
        """The table's schema plus the columns and members that only this job has; None if there are none."""
        missing = lacking_path(base.schema.fields, self.job.file_schema.fields)
        if missing is None:
            return None
        if not self.options.merge_schema:
            raise SchemaError(f"the table no longer has the column {missing}", path=self.target.location.uri)
        return extend_schema(base, self.job.file_schema.to_arrow())

    def _append_with_columns(self, base: Manifest, schema: Schema) -> Plan[int]:
        """Commit the rows with the new columns: a `Merge`, which lists all fragments of the table."""
        new = renumber(self.fragments, field_ids(self.job.file_schema, schema))
        first = next_fragment_id(base)
        fragments = [*base.fragments, *(replace(each, id=first + index) for index, each in enumerate(new))]
        operation = Merge(tuple(fragments), schema, preserves_nullability=True)
        request = CommitRequest(
            self._transaction(base.version, operation), base=base, max_retries=1, marks=self.options.marks
        )
        state = self.target.state((yield from commit(self.target.commit_target(), request)))
        yield from after_commit(state)
        return int(state.manifest.version)

    def _newest(self) -> Plan[Manifest | None]:
        return (yield from newest_manifest(self.target.location, self.target.session))

    def _newest_of_table(self) -> Plan[Manifest]:
        base = yield from self._newest()
        if base is None:
            raise NotFound("the table was dropped meanwhile", path=self.target.location.uri)
        return base

    # -- the version -------------------------------------------------------------------------------------------------

    def _transaction(self, read_version: int, operation: Operation) -> Transaction:
        return Transaction(read_version, operation, uuid=self.job.uuid, properties=self.properties)

    def _publish(
        self,
        base: Manifest,
        transaction: Transaction,
        creation: Creation = _AS_IT_IS,
        removed: tuple[ConfigMark, ...] = (),
    ) -> Plan[int]:
        request = CommitRequest(
            transaction,
            base=base,
            creation=creation,
            max_retries=self.options.retries + 1,
            marks=(*self.options.marks, *removed),
        )
        state = self.target.state((yield from commit(self.target.commit_target(), request)))
        yield from after_commit(state)
        return int(state.manifest.version)


def field_ids(written: Schema, table: Schema) -> dict[int, int]:
    """Map the field ids of the written files to the table's ids of the same fields.

    Raises `SchemaError` for a column that the table lacks, or has with another type.
    """
    wanted = {field.name: field for field in fit_schema(written, table).fields}
    return {
        mine.id: theirs.id
        for field in written.fields
        for mine, theirs in zip(field.walk(), _in_order_of(field, wanted[field.name]), strict=True)
    }


def _in_order_of(mine: Field, theirs: Field) -> list[Field]:
    """`theirs` and all below it, in the order in which `mine` walks."""
    if [child.name for child in mine.children] == [child.name for child in theirs.children]:
        children = list(theirs.children)
    elif len(mine.children) == 1 == len(theirs.children):  # the item of a list; its name does not matter
        children = list(theirs.children)
    else:
        by_name = {child.name: child for child in theirs.children}
        children = [by_name[child.name] for child in mine.children]
    below = [_in_order_of(child, other) for child, other in zip(mine.children, children, strict=True)]
    return [theirs, *(field for fields in below for field in fields)]


def renumber(fragments: Sequence[Fragment], ids: Mapping[int, int]) -> tuple[Fragment, ...]:
    """Change the field ids in the files of new fragments."""
    if all(written == other for written, other in ids.items()):
        return tuple(fragments)
    return tuple(
        replace(
            fragment,
            files=tuple(
                replace(file, fields=tuple(ids.get(field_id, field_id) for field_id in file.fields))
                for file in fragment.files
            ),
        )
        for fragment in fragments
    )
