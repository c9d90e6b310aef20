"""New columns by many tasks: each computes them for its fragments, the planner commits all as one version.

Others may write meanwhile. If a commit meets new or rewritten fragments, the planner computes the columns of these
itself, as long as they are few, and commits on the newest version. So columns can be added beside a stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.changes.columns.batch_udf import BatchUDF
from lance_io.changes.columns.evolve_schema import add_columns, make_columns
from lance_io.changes.columns.new_columns import fragment_with_columns, with_fields
from lance_io.changes.columns.rewrite_columns import with_dead_columns
from lance_io.changes.edits.change_plans import change
from lance_io.commit.commit_files import CommitFiles
from lance_io.dataset.distributed.table_jobs import (
    JobPart,
    TableJob,
    cut_fragments,
    discard_data_files,
    new_digits,
    num_rows_of,
    remove_data_files,
)
from lance_io.dataset.distributed.table_version import TableVersion
from lance_io.errors import CommitConflictError, LanceError, UsageError
from lance_io.format.version import V0_1
from lance_io.plans.plan import RollBackOnError
from lance_io.reads.memory_limit import ScanBounds, limit_of
from lance_io.reads.open_version import check_out
from lance_io.reads.run_plan import run
from lance_io.table.manifest.paths import DATA
from lance_io.table.transaction.operations import Merge

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from lance_io.changes.columns.new_columns import NewColumns
    from lance_io.dataset.distributed.table_jobs import Outcome
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.url import Location
    from lance_io.table.manifest.fragment import DataFile, Fragment

TASKS_OF_CORE: Final = 4  # so that a slow one does not hold up the others
COMMITS_MAX: Final = 20
MISSING_ROWS_MAX: Final = 1 << 20  # that the planner computes itself, before each commit

_FilesOf = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class ColumnPart(JobPart):
    """Fragments that get the columns. It holds plain values, so it can be pickled.

    Attributes:
        fragment_ids: Their ids.
    """

    fragment_ids: tuple[int, ...]


@dataclass(frozen=True)
class WrittenColumns:
    """The new file of a fragment. It holds plain values, so it can be pickled.

    Attributes:
        fragment_id: Id of the fragment.
        before: The files that it had, with their fields.
        file: The new one.
    """

    fragment_id: int
    before: _FilesOf
    file: DataFile


@dataclass(frozen=True)
class ColumnJob(TableJob):
    """New columns. It holds plain values, so it can be pickled, if the function can.

    Attributes:
        transforms: SQL expressions by name, or a function of record batches.
        fields: The columns; an existing struct has only its new members.
        added: Ids of their fields.
        read_columns: Columns for a function; None for all.
        batch_size: Rows computed at once; None for the default.
        memory_limit: Bytes that a task may hold; None for the table's limit.
    """

    transforms: Any
    fields: pa.Schema
    added: frozenset[int]
    read_columns: tuple[str, ...] | None = None
    batch_size: int | None = None
    memory_limit: int | None = None

    def _task(self, state: DatasetState, part: ColumnPart) -> Plan[list[WrittenColumns]]:
        new = yield from self._columns(state)
        return (yield from self._write(state, new, part.fragment_ids))

    def _columns(self, state: DatasetState) -> Plan[NewColumns]:
        transforms = self.transforms if isinstance(self.transforms, dict) else BatchUDF(self.transforms, self.fields)
        columns = None if self.read_columns is None else [*self.read_columns]
        return make_columns(state, transforms, columns, _bounds(state, self.batch_size, self.memory_limit))

    def _write(self, state: DatasetState, new: NewColumns, fragment_ids: Sequence[int]) -> Plan[list[WrittenColumns]]:
        """Write the columns of some fragments. If it fails, the new files go."""
        written: list[WrittenColumns] = []

        def write() -> Plan[None]:
            for fragment_id, index in zip(fragment_ids, state.fragment_indexes_of(fragment_ids), strict=True):
                before = state.manifest.fragments[index]
                after, _ = yield from fragment_with_columns(state, index, new, None, self._new_file_name)
                written.append(WrittenColumns(fragment_id, _files_of(before), after.files[-1]))

        def roll_back(cause: BaseException) -> Plan[None]:
            try:
                yield from discard_data_files(state, sorted(_names(written)))
            except LanceError as error:
                cause.add_note(f"also: the written files could not be removed: {error}")

        yield RollBackOnError(write(), roll_back)
        return written

    def _commit(self, state: DatasetState, results: Sequence[list[WrittenColumns]]) -> Plan[Outcome]:
        if not self.num_parts:
            return (yield from self._without_tasks(state))
        done = {each.fragment_id: each for written in results for each in written}
        last = CommitFiles()

        def commit() -> Plan[DatasetState]:
            nonlocal last
            base, schema = state, with_fields(state, self.fields)[0]
            for attempt in range(COMMITS_MAX):
                fragments = [_with_file(fragment, done[fragment.id].file) for fragment in base.manifest.fragments]
                keeps = all(field.nullable for field in self.fields)
                last = CommitFiles()
                last.add_data(base.location.key(DATA, each.file.path) for each in done.values())
                try:
                    operation = Merge(tuple(fragments), schema, preserves_nullability=keeps)
                    return (yield from change(base, operation, files=last))
                except CommitConflictError as error:
                    if not error.retryable or not last.may_remove or attempt == COMMITS_MAX - 1:
                        raise
                    base = yield from check_out(base, None)
                    schema, added = with_fields(base, self.fields)
                    if added != self.added:  # the files name fields that another writer has used since
                        raise
                    yield from self._complete(base, done, error)
            raise AssertionError("the last attempt raises")

        def remove(_: BaseException) -> Plan[None]:
            return self._tidy(state.location, () if last.may_remove else _names(done.values()))

        after: DatasetState = yield RollBackOnError(commit(), remove)
        live = {fragment.id for fragment in after.manifest.fragments}
        yield from self._tidy(state.location, _names(done.values()))
        num_bytes = sum(each.file.size_bytes or 0 for each in done.values() if each.fragment_id in live)
        return {"version": after.manifest.version, "fragments": len(live), "bytes": num_bytes}

    def _complete(
        self, base: DatasetState, done: dict[int, WrittenColumns], conflict: CommitConflictError
    ) -> Plan[None]:
        """Write the columns of the fragments that are new or have other files, and forget those that are gone.

        Raises the conflict if they have too many rows.
        """
        there = {fragment.id: _files_of(fragment) for fragment in base.manifest.fragments}
        for fragment_id in [*done]:
            if there.get(fragment_id) != done[fragment_id].before:
                del done[fragment_id]
        missing = [fragment_id for fragment_id in there if fragment_id not in done]
        if num_rows_of(base, missing) > MISSING_ROWS_MAX:
            raise conflict
        new = yield from self._columns(base)
        for each in (yield from self._write(base, new, missing)):
            done[each.fragment_id] = each

    def _without_tasks(self, state: DatasetState) -> Plan[Outcome]:
        """Columns that no file has to be written for, on the newest version."""
        newest = yield from check_out(state, None)
        transforms = self.transforms if isinstance(self.transforms, dict) else BatchUDF(self.transforms, self.fields)
        bounds = _bounds(newest, self.batch_size, self.memory_limit)
        columns = None if self.read_columns is None else [*self.read_columns]
        after = yield from add_columns(newest, transforms, columns, bounds)
        return {"version": after.manifest.version, "fragments": 0, "bytes": 0}

    def _discard(self, state: DatasetState, value: list[WrittenColumns]) -> Plan[None]:
        return discard_data_files(state, sorted(_names(value)))

    def _remove_files(self, location: Location, kept: Collection[str]) -> Plan[int]:
        return remove_data_files(location, self.digits, kept)


def _bounds(state: DatasetState, batch_size: int | None, memory_limit: int | None) -> ScanBounds:
    return ScanBounds(batch_size, limit_of(state, memory_limit))


def _files_of(fragment: Fragment) -> _FilesOf:
    return tuple((file.path, tuple(file.fields)) for file in fragment.files)


def _names(written: Collection[WrittenColumns]) -> set[str]:
    return {each.file.path for each in written}


def _with_file(fragment: Fragment, file: DataFile) -> Fragment:
    return with_dead_columns(replace(fragment, files=(*fragment.files, file)))


def plan_columns(
    table_place: TablePlace,
    transforms: Any,
    *,
    read_columns: Sequence[str] | None = None,
    output_schema: pa.Schema | None = None,
    batch_size: int | None = None,
    memory_limit: int | None = None,
    cores: int = 1,
) -> tuple[ColumnJob, list[ColumnPart]]:
    """Plan new columns.

    Args:
        table_place: The table.
        transforms: A dict of SQL expressions by name, or a function of record batches that can be pickled.
        read_columns: Columns for a function, also `_rowid` and `_rowaddr`; None for all.
        output_schema: Schema of the result of a function; None to infer it from that for one row.
        batch_size: Rows computed at once; None for the default.
        memory_limit: Bytes that a task may hold; None for the table's limit.
        cores: Tasks that run at once.

    Returns:
        The job, and its parts; none if no file has to be written.

    Raises:
        UsageError: An expression does not fit the table, or there is none.
        OperationError: A column exists.
    """
    if isinstance(transforms, dict) and not transforms:
        raise UsageError("columns: expected at least one expression, found none")
    state = TableVersion.open(table_place).state
    given = transforms if isinstance(transforms, dict) else BatchUDF(transforms, output_schema)
    columns = None if read_columns is None else [*read_columns]
    making = make_columns(state, given, columns, _bounds(state, batch_size, memory_limit))
    return run(state, _plan(state, making, transforms, (read_columns, batch_size, memory_limit), cores))


def _plan(
    state: DatasetState, making: Plan[NewColumns], transforms: Any, how: tuple[Any, Any, Any], cores: int
) -> Plan[tuple[ColumnJob, list[ColumnPart]]]:
    state.check_commits()
    new = yield from making
    _, added = with_fields(state, new.fields)
    needs_no_file = new.are_null and state.manifest.data_version != V0_1
    runs = [] if needs_no_file else cut_fragments(state, [*state.fragment_ids], TASKS_OF_CORE * cores)
    parts = [ColumnPart(number, fragment_ids) for number, fragment_ids in enumerate(runs)]
    read_columns, batch_size, memory_limit = how
    job = ColumnJob(
        new_digits(),
        state.manifest.version,
        len(parts),
        transforms,
        new.fields,
        added,
        None if read_columns is None else tuple(read_columns),
        batch_size,
        memory_limit,
    )
    return job, parts
