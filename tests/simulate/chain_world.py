"""One call that loses races in a row, to changes that others make at its requests; a plain model says what is left.

    world = ChainWorld(start)
    outcome = world.run(mine, stale=[...], strikes=[Strike("deciding", [...]), ...])
    world.check(outcome)

All parties are synchronous and nested: where the store of the first one is asked for something that a strike waits for,
the changes of the strike are made from beginning to end, and then the request is passed on. Before a deciding write
that means that it is lost. So the order is known, and the model is each change applied to what was there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import lance_io
from lance_io.commit.commit_queue import COMMIT_QUEUES
from lance_io.commit.external import ExternalHandler
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.errors import CommitConflictError, LanceError, NotFound
from lance_io.plans.plan import drive_sync
from lance_io.reads.version.session import Session
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from lance_io.table.manifest.index_section import decode_indices
from lance_io.table.manifest.manifest import decode_manifest
from lance_io.testing.manifest_rows import MemoryManifestStore
from lance_io.testing.record import RecordingSyncStore
from tests.simulate.world import URI, referenced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.commit.external import Row
    from lance_io.plans.plan import Plan
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.testing.wrap import Request

PATH: Final = "t"
POINTS: Final = ("deciding", "transaction", "deletions", "data", "listing")


@dataclass(frozen=True)
class Content:
    """What a version must hold.

    fields  names of the columns by field id
    rows    by the value of `a`: values by field id, also of columns that are gone; absent ones are null
    """

    fields: dict[int, str]
    rows: dict[int, dict[int, Any]]

    def named(self) -> dict[int, dict[str, Any]]:
        """The rows as a scan gives them."""
        return {
            key: {name: values.get(number) for number, name in self.fields.items()} for key, values in self.rows.items()
        }


Effect = Callable[[Content, Any], Content]
"""Takes what the version before holds, and the version that was made, open; gives what that must hold."""


@dataclass(frozen=True)
class Change:
    """A call, and which rows it is about.

    name      of the call
    fragment  0 to 2, and slot, 0 to 7: the row 10 * fragment + slot
    is_same   whether the process is that of the call that loses, where it can be
    """

    name: str
    fragment: int = 0
    slot: int = 0
    is_same: bool = False

    @property
    def key(self) -> int:
        """The row."""
        return 10 * self.fragment + self.slot


@dataclass(frozen=True)
class Strike:
    """What others do before a request of the call that loses.

    point    the kind of request; see `point_of`
    changes  one after the other
    """

    point: str
    changes: tuple[Change, ...]


def point_of(request: Request) -> str | None:
    """What a request is to a commit; the deciding write of a database is told apart by `StruckRows`."""
    if request.operation == "put_create" and "/_versions/" in request.key:
        return "deciding"
    if request.operation == "list":
        return "listing"
    if request.operation == "put":
        return next((one for one in ("transaction", "deletions", "data") if f"/{_FOLDERS[one]}/" in request.key), None)
    return None


_FOLDERS: Final = {"transaction": "_transactions", "deletions": "_deletions", "data": "data"}


class SeenStore(RecordingSyncStore):
    """A store as one process sees it: others know nothing of its commits. `before` is called with each request."""

    def __init__(self, inner: Any, process: int, before: Callable[[Request], None] | None = None) -> None:
        super().__init__(inner)
        self._process, self._before = process, before

    @property
    def identity(self) -> str:
        """Another one in each process."""
        return f"{self.inner.identity}#{self._process}"

    def _record_request(self, request: Request) -> None:
        if self._before is not None:
            self._before(request)


class StruckRows(MemoryManifestStore):
    """Rows of a database; `before` is called with the write that decides."""

    def __init__(self, rows: dict[tuple[str, int], Row], before: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.rows, self._before = rows, before

    def put_if_absent(self, base: str, row: Row) -> Plan[None]:
        """See `ExternalManifestStore`."""
        if self._before is not None:
            self._before()
        yield from super().put_if_absent(base, row)


@dataclass
class Outcome:
    """What came of the call that loses.

    error   what it raised
    before  number of the newest version when it ended, and after: with its own
    others  names of the changes that others made meanwhile
    """

    name: str
    error: LanceError | None = None
    before: int = 0
    after: int = 0
    lost: int = 0
    others: list[str] = field(default_factory=list)


class Party:
    """One who makes one change; calls see it.

    table   the open version
    number  of its own, for new rows and columns
    """

    def __init__(self, world: ChainWorld, change: Change, store: SeenStore, session: Session) -> None:
        self.world, self.change, self.session = world, change, session
        self.number = world.next_number()
        self.store = store
        self.table: Any = lance_io.dataset(URI, session=session)

    @property
    def key(self) -> int:
        """The row that the change is about."""
        return self.change.key

    @property
    def fields(self) -> dict[str, int]:
        """Field ids of the open version."""
        return ids_of(self.table)

    def new_keys(self, count: int) -> list[int]:
        """Keys of rows that nobody else has."""
        return [*range(1000 + 10 * self.number, 1000 + 10 * self.number + count)]

    @contextmanager
    def giving(self) -> Iterator[None]:
        """Files that are made inside are the caller's: no failing commit removes them. No strike comes in between."""
        world = self.world
        before, held = world.keys(), world.is_quiet
        world.is_quiet = True
        try:
            yield
        finally:
            world.is_quiet = held
            world.given |= world.keys() - before


def ids_of(table: Any) -> dict[str, int]:
    """Field ids by the names of the columns."""
    return {one.name: one.id for one in table._state.schema.fields}


Call = Callable[[Party], "Effect | None"]
"""Makes a change; gives its effect, None where there is nothing to be done."""


class ChainWorld:
    """A table in memory, and what each of its versions must hold.

    contents  by version
    given     files that callers have made themselves
    detached  manifests outside of the sequence
    cleaned   whether versions may be gone
    """

    def __init__(self, calls: dict[str, Call], start: ChainWorld | None = None, *, database: bool = False) -> None:
        self.calls = calls
        self.store = MemoryStore()
        self.rows: dict[tuple[str, int], Row] | None = {} if database else None
        self.contents: dict[int, Content] = {}
        self.given: set[str] = set()
        self.detached: list[Manifest] = []
        self.cleaned = False
        self.is_quiet = False
        self._begun = 0
        self._number = 0
        self._pending: list[Strike] = []
        self._outcome = Outcome("")
        if start is not None:
            self.store._objects = dict(start.store._objects)
            self.rows = None if start.rows is None else dict(start.rows)
            self.contents, self._number = dict(start.contents), start._number
            self._begun = max(self.contents)

    # -- parties -----------------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        """One that nobody has."""
        self._number += 1
        return self._number

    def keys(self) -> set[str]:
        """Everything in the store."""
        return set(self.store._objects)

    def party(self, change: Change, process: int, *, struck: bool = False) -> Party:
        """One who begins now."""
        store = SeenStore(self.store, process, self._before if struck else None)
        return Party(self, change, store, self.session(store, struck=struck))

    def session(self, store: Any = None, *, struck: bool = False) -> Session:
        """What a process knows when it begins."""
        session, seen = Session(), store or self.store
        handler: Any = PutAbsentHandler()
        if self.rows is not None:
            handler = ExternalHandler(StruckRows(self.rows, self._before_row if struck else None))
        session._handlers[seen] = handler
        session.locate = lambda uri, options: Location(seen, PATH, uri)
        return session

    def open(self, version: int | None = None) -> Any:
        """A version as a fresh process sees it."""
        return lance_io.dataset(URI, version, session=self.session())

    # -- running -----------------------------------------------------------------------------------------------------

    def make(self, change: Change, process: int) -> None:
        """A change from beginning to end, that nobody is in the way of: it must succeed."""
        party = self.party(change, process)
        effect = self.calls[change.name](party)
        if effect is not None:
            self.cleaned = self.cleaned or change.name == "clean"
            self.note(effect)

    def content_of(self, version: int) -> Content:
        """What a version holds; the first of two that one call makes, and is not done with, holds what was there."""
        return self.contents[max(known for known in self.contents if known <= version)]

    def note(self, effect: Effect) -> None:
        """The newest version has come to be by a change."""
        newest, last = self.open(), max(self.contents)
        for version in range(last + 1, newest.version):
            self.contents[version] = self.contents[last]
        self.contents[newest.version] = effect(self.contents[last], newest)

    def run(self, mine: Change, stale: Sequence[Change], strikes: Sequence[Strike]) -> Outcome:
        """A call by a handle that missed some changes, and that is struck; gives what came of it."""
        victim = self.party(mine, 0, struck=True)
        self._outcome = outcome = Outcome(mine.name)
        for change in stale:
            self._make_other(change)
        self._pending = [*strikes]
        try:
            effect = self.calls[mine.name](victim)
        except LanceError as error:
            outcome.error, effect = error, None
        finally:
            self._pending = []
        outcome.before = max(self.contents)
        if effect is not None:
            self.cleaned = self.cleaned or mine.name == "clean"
            self.note(effect)
        outcome.after = self.open().version
        return outcome

    def _before(self, request: Request) -> None:
        point = point_of(request)
        if point is not None and not (point == "deciding" and self.rows is not None):
            self._strike(point)

    def _before_row(self) -> None:
        self._strike("deciding")

    def _strike(self, point: str) -> None:
        at = next((place for place, one in enumerate(self._pending) if one.point == point), None)
        if at is None or self.is_quiet:
            return
        strike = self._pending.pop(at)
        waiting, self._pending = self._pending, []  # those who strike are not struck
        before = max(self.contents)
        for change in strike.changes:
            self._make_other(change)
        self._pending = waiting
        self._outcome.lost += point == "deciding" and self.open().version > before

    def _make_other(self, change: Change) -> None:
        """Of the same process only where that could go on beside the call: behind its turn it would wait for ever."""
        place = SeenStore(self.store, 0).identity, PATH
        known = COMMIT_QUEUES._tables.get(place)
        has_turn = known is not None and any(turn.admitted.done() for turn in known.queue)
        self._outcome.others.append(change.name)
        self.make(change, 0 if change.is_same and not has_turn else 1 + self.next_number())

    # -- looking -----------------------------------------------------------------------------------------------------

    def manifests(self) -> list[Manifest]:
        """All versions that there are, oldest first."""
        session = self.session()
        place = session.locate(URI, None)
        files = drive_sync(session.handler(place).list_after(place, 0))
        return [decode_manifest(self.store.get_sync(file.key)) for file in files]

    def check(self, outcome: Outcome, *, in_place: bool | None) -> None:
        """Every version is whole and holds what it must, and nothing is left that no version names.

        in_place  whether the call gives other data files to fragments that stay; None where it does not go on from
                  those of the version before
        """
        manifests = self.manifests()
        versions = [one.version for one in manifests]
        last = max(self.contents)
        for version in range(last + 1, versions[-1] + 1):  # of a call that failed between two commits
            self.contents[version] = self.contents[last]
        if not self.cleaned:
            assert versions == sorted(self.contents)
        needed: set[str] = set()
        for manifest in [*manifests, *self.detached]:
            needed |= self._check_files(manifest)
        for manifest in manifests:
            if manifest.version > self._begun:
                self._check_content(manifest.version)
        by_version = dict(zip(versions, manifests, strict=True))
        is_made = outcome.error is None and outcome.after > outcome.before
        if in_place is not None and is_made and outcome.after - 1 in by_version:
            _check_fragments(by_version[outcome.after - 1], by_version[outcome.after], in_place=in_place)
        kept = {key for key in self.keys() if not key.startswith((f"{PATH}/_versions/", f"{PATH}/_refs/"))}
        left = kept - needed - self.given
        assert not left, f"no version names {sorted(left)}"

    def _check_files(self, manifest: Manifest) -> set[str]:
        """Everything that a version names is there; gives the keys."""
        named = {f"{PATH}/{path}" for path in referenced(manifest)}
        there = self.keys()
        for entry in decode_indices(manifest.index_section) if manifest.index_section else ():
            files = {key for key in there if key.startswith(f"{PATH}/_indices/{entry.uuid}/")}
            assert files or entry.name.startswith("__"), f"version {manifest.version}: no files of index {entry.name}"
            named |= files
        gone = named - there
        assert not gone, f"version {manifest.version} names {sorted(gone)}"
        ids = {one.id for one in manifest.schema.walk()}
        for fragment in manifest.fragments:
            for file in fragment.files:
                assert ids & set(file.fields), f"version {manifest.version}: no column is read from {file.path}"
        return named

    def _check_content(self, version: int) -> None:
        rows = self.open(version).to_table().to_pylist()
        found = {row["a"]: row for row in rows}
        assert len(found) == len(rows), f"version {version}: rows are there twice"
        expected = self.contents[version].named()
        assert found == expected, f"version {version}: {_difference(found, expected)}"


def _difference(found: dict[int, Any], expected: dict[int, Any]) -> str:
    keys = sorted(key for key in {*found, *expected} if found.get(key) != expected.get(key))
    return "; ".join(f"row {key} is {found.get(key)}, not {expected.get(key)}" for key in keys[:3])


def _check_fragments(before: Manifest, after: Manifest, *, in_place: bool) -> None:
    """A fragment that stays has the files that it had, but those whose columns were all given anew or dropped."""
    ids = {one.id for one in after.schema.walk()}
    old = {fragment.id: fragment for fragment in before.fragments}
    for fragment in after.fragments:
        if fragment.id not in old:
            continue
        had = {file.path: file for file in old[fragment.id].files}
        has = {file.path: file for file in fragment.files}
        if not in_place:
            assert has == had, f"fragment {fragment.id} has other files"
        new_ids = {one for path, file in has.items() if path not in had for one in file.fields}
        for path in had.keys() - has.keys():
            lost = (set(had[path].fields) & ids) - new_ids
            assert not lost, f"fragment {fragment.id} has lost fields {lost} of {path}"


def with_rows(content: Content, rows: dict[int, dict[int, Any]]) -> Content:
    """The same columns, other rows."""
    return replace(content, rows=rows)


def is_legal(outcome: Outcome, schema_changes: frozenset[str]) -> bool:
    """Whether a call may fail so: by a conflict, or, if others changed what it relies on, since it no longer fits."""
    error, others = outcome.error, set(outcome.others)
    if error is None or isinstance(error, CommitConflictError):
        return True
    if isinstance(error, NotFound):
        return bool(others & {"clean", "drop-index", "overwrite", "restore"})
    return isinstance(error, (TypeError, ValueError, OSError)) and bool(others & schema_changes)
