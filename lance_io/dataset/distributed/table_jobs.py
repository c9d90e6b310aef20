"""Operations on a whole table as jobs of many tasks: planned once, run anywhere, committed once.

    job, parts = plan_index(table_place, ...)  planner: decides everything; the job and its parts are pickled
    job.run(table_place, part)                 each task, its part; the result is pickled
    job.commit(table_place, results)           planner: one version, from one result of each part
    job.abort(table_place)                     planner, instead of it: removes the files of all tasks

The name of each file that a task writes ends in the digits of the job, as the files of writes do. So the planner finds
the files of attempts whose results it never saw: of a task that ran twice, and of a process that was killed. An attempt
that is stopped, or fails, removes its own files.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

import numpy as np

from lance_io.dataset.distributed.table_version import TableVersion
from lance_io.dataset.distributed.task_files import EXTENSION, is_of_job, task_file_name
from lance_io.dataset.distributed.write_job import JOB_DIGITS
from lance_io.errors import LanceError, OperationError, UsageError
from lance_io.file.write.uploads import remove_files
from lance_io.format.schema import BLOB_FOLDER
from lance_io.plans.plan import Stopped
from lance_io.plans.store_requests import List, OwnFiles, Remove, RemoveEmptyFolders
from lance_io.reads.run_plan import begin_plan, run, run_on
from lance_io.redaction import get_logger
from lance_io.store.api import NAMES_DIRECTLY_BELOW
from lance_io.store.offers import HoldsFolders
from lance_io.table.manifest.paths import DATA, INDICES
from lance_io.table.transaction.garbage import data_file_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import ObjectMeta
    from lance_io.store.url import Location

    OfferStop = Callable[[Callable[[], None]], object]

T = TypeVar("T")
Outcome = dict[str, int | str]
"""What a job did, by name: its version, and counts."""

_logger = get_logger(__name__)


@dataclass(frozen=True)
class JobPart:
    """The share of one task. It holds plain values, so it can be pickled.

    Attributes:
        number: Its number, from 0.
    """

    number: int


@dataclass(frozen=True)
class TaskResult:
    """The result of one attempt of one task. It holds plain values, so it can be pickled.

    Attributes:
        number: Number of the part.
        value: What the commit needs.
    """

    number: int
    value: Any


@dataclass(frozen=True)
class TableJob:
    """An operation on a table. It holds plain values, so it can be pickled.

    Attributes:
        digits: Its 16 hex digits, at the end of the names of its files.
        read_version: The version that it was planned on, and that its tasks read.
        num_parts: Parts that it has.
    """

    digits: str
    read_version: int
    num_parts: int

    def run(
        self,
        table_place: TablePlace,
        part: JobPart,
        offer_stop: OfferStop | None = None,
    ) -> TaskResult:
        """Run one task. The table does not change.

        Args:
            table_place: The table.
            part: One of the parts that were planned.
            offer_stop: Called with a function that stops the task, from any thread; it then removes its files.

        Returns:
            The result, for `commit`.

        Raises:
            OSError: The table cannot be read or written.
        """
        state = self._state(table_place)
        return TaskResult(part.number, run_stoppable(state, self._task(state, part), offer_stop))

    def commit(self, table_place: TablePlace, results: Sequence[TaskResult]) -> Outcome:
        """Commit one version with the results of all parts, and remove the files of all other attempts.

        Args:
            table_place: The table.
            results: A result of each part. Of two results of one part the first counts.

        Returns:
            What was done: `version`, and counts.

        Raises:
            CommitConflictError: Another writer changed the table in a way that excludes this; the files are removed.
            OperationError: A part has no result.
        """
        state = self._state(table_place)
        return run(state, self._commit(state, self._one_of_each(results)))

    def discard(self, table_place: TablePlace, result: TaskResult) -> None:
        """Remove the files of a result that never reaches the planner.

        Args:
            table_place: The table.
            result: The result.
        """
        state = self._state(table_place)
        run(state, self._discard(state, result.value))

    def abort(self, table_place: TablePlace) -> int:
        """Remove the files of all tasks of a job that was not committed.

        Args:
            table_place: The table.

        Returns:
            The number of removed files.
        """
        location = table_place.location
        return run_on(location.store, self._remove_files(location, ()))

    @property
    def repeats(self) -> bool:
        """Whether the job may be planned again, on the newest version, after a conflict that this can solve."""
        return False

    def _task(self, state: DatasetState, part: Any) -> Plan[Any]:
        raise NotImplementedError

    def _commit(self, state: DatasetState, results: Sequence[Any]) -> Plan[Outcome]:
        raise NotImplementedError

    def _discard(self, state: DatasetState, value: Any) -> Plan[None]:
        """Remove the files of what a task returned."""
        raise NotImplementedError

    def _remove_files(self, location: Location, kept: Collection[str]) -> Plan[int]:
        """Remove files of the job that are not `kept`; returns their number."""
        raise NotImplementedError

    def _state(self, table_place: TablePlace) -> DatasetState:
        return TableVersion.open(table_place, self.read_version).state

    def _one_of_each(self, results: Sequence[TaskResult]) -> list[Any]:
        """What the tasks returned, in the order of the parts."""
        first: dict[int, Any] = {}
        for result in results:
            first.setdefault(result.number, result.value)
        if sorted(first) != [*range(self.num_parts)]:
            raise OperationError(f"expected the results of {self.num_parts} tasks, found those of {len(first)}")
        return [first[number] for number in range(self.num_parts)]

    def _tidy(self, location: Location, kept: Collection[str]) -> Plan[None]:
        """Remove the files of other attempts after a commit, which no failure to do so undoes."""
        try:
            yield from self._remove_files(location, kept)
        except LanceError as error:
            _logger.warning("files of other attempts stay behind for a cleanup: %s", error)

    def _new_file_name(self) -> str:
        return task_file_name(self.digits)

    def _new_uuid(self) -> str:
        """A random UUID that ends in the digits of the job."""
        return str(UUID(uuid4().hex[: -len(self.digits)] + self.digits))


def new_digits() -> str:
    """The digits of a new job."""
    return uuid4().hex[:JOB_DIGITS]


def run_stoppable(state: DatasetState, plan: Plan[T], offer_stop: OfferStop | None) -> T:
    """Run a plan and wait for it.

    offer_stop  called with a function that stops it, from any thread

    Raises `Stopped` once the plan has ended after a stop.
    """
    if offer_stop is None:
        return run(state, plan)
    ended = threading.Event()
    results: list[T] = []
    failures: list[BaseException | None] = []

    def work() -> Plan[None]:
        results.append((yield from plan))

    def end(failure: BaseException | None) -> None:
        failures.append(failure)
        ended.set()

    offer_stop(begin_plan(work(), end, answers_sync=state.answers_sync))
    ended.wait()
    (failure,) = failures
    if failure is None:
        return results[0]
    if isinstance(failure, Exception):
        raise failure
    raise Stopped from failure


# -- parts -------------------------------------------------------------------------------------------------------------


def cut_fragments(state: DatasetState, fragment_ids: Sequence[int], num_parts: int) -> list[tuple[int, ...]]:
    """Cut a list of fragments into at most `num_parts` runs with about as many rows each, none of them empty."""
    rows = np.array([int(state.physical_rows[index]) for index in state.fragment_indexes_of(list(fragment_ids))])
    if not len(rows):
        return []
    middles = np.cumsum(rows) - rows / 2
    numbers = np.floor(middles * num_parts / max(1, int(rows.sum()))).astype(int)
    ids = np.array(fragment_ids)
    return [tuple(ids[numbers == number].tolist()) for number in np.unique(numbers).tolist()]


def num_parts_of(
    state: DatasetState, fragment_ids: Sequence[int], cores: int, part_rows: int, given: int | None
) -> int:
    """Into how many parts the work on fragments is cut: as many as asked for, else one for each core with enough rows.

    Raises `UsageError` for fewer than one.
    """
    if given is not None:
        if given < 1:
            raise UsageError(f"num_segments must be at least 1, got {given}")
        return given
    return max(1, min(cores, num_rows_of(state, fragment_ids) // part_rows))


def num_rows_of(state: DatasetState, fragment_ids: Iterable[int]) -> int:
    """Rows of fragments, deleted ones included."""
    return sum(int(state.physical_rows[index]) for index in state.fragment_indexes_of(list(fragment_ids)))


# -- files of attempts -------------------------------------------------------------------------------------------------


def discard_data_files(state: DatasetState, names: Sequence[str]) -> Plan[None]:
    """Remove data files, and the blobs beside them."""
    location = state.location
    keys = [location.key(DATA, name) for name in names]
    if state.schema.has_blobs:
        for name in names:
            beside: list[ObjectMeta] = yield List(location.store, location.key(DATA, name.removesuffix(EXTENSION), ""))
            keys += [meta.key for meta in beside]
    yield from remove_files(location.store, keys)


def remove_data_files(location: Location, digits: str, kept: Collection[str]) -> Plan[int]:
    """Remove the data files of a job, but for those of these names in the folder `data`. Returns their number."""
    listed: list[ObjectMeta] = []
    for folder in (DATA, BLOB_FOLDER):
        listed += yield List(location.store, location.key(folder, ""))
    depth = len(location.key("x")) - 1
    paths = [path for meta in listed if is_of_job(path := meta.key[depth:], digits)]
    left = [path for path in paths if data_file_of(path) not in {f"{DATA}/{name}" for name in kept}]
    yield from remove_files(location.store, [location.key(path) for path in left])
    return len(left)


def remove_segments(location: Location, digits: str, kept: Collection[str]) -> Plan[int]:
    """Remove the index segments of a job, but for those of these UUIDs. Returns the number of removed files."""
    store, num_files = location.store, 0
    listed: list[ObjectMeta] = yield List(store, location.key(INDICES, ""), NAMES_DIRECTLY_BELOW)
    for entry in listed:
        name = entry.name
        if not entry.is_folder or name in kept or not name.replace("-", "").endswith(digits):
            continue
        folder = location.below(INDICES, name)
        if isinstance(store, HoldsFolders):
            keys = [*(yield OwnFiles(store, folder.path))]  # temporary files of killed processes, too
        else:
            keys = [meta.key for meta in (yield List(store, folder.key("")))]
        if keys:
            yield Remove(store, tuple(keys))
        if isinstance(store, HoldsFolders):
            yield RemoveEmptyFolders(store, folder.path)
        num_files += len(keys)
    return num_files
