"""What is in the store after every write operation failed at every one of its requests: nothing missing, nothing lost.

Rows have blobs, so that each data file has others beside it. After an error that says that nothing was committed there
is what was there before, and after success what the versions name; besides at most, in `_versions/`, what a request to
remove it did not reach. After anything, a cleanup a week later leaves what the newest version needs
and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.changes.write.write_fragments import write_fragments_async
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import CommitUnknownError
from lance_io.file.write.blob_pages import sidecar_name
from lance_io.testing.faults import Crashed, Fault, FaultyStore
from tests.simulate.test_crashes import REQUESTS_MAX, any_request, run
from tests.simulate.world import URI, World, clean, delete, overwrite, referenced, restore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lance_io.reads.version.session import Session
    from lance_io.testing.wrap import Request

    Change = Callable[[Session], Awaitable[Any]]

FIELD: Final = lance_io.blob_field("b", inline_size_threshold=2, dedicated_size_threshold=20)
SCHEMA: Final = pa.schema([("a", pa.int64()), FIELD])
PER_FILE: Final = 3  # rows, one blob inside the file, one in a shared file beside it, one in a file of its own there
SIDECARS: Final = [sidecar_name(1), sidecar_name(2)]
REMNANT: Final = re.compile(r"t/_versions/(\.cleanup-pin-1|\d{20}\.manifest)-[0-9a-f-]{36}")  # pins, staging objects
FAULTS: Final = (Fault.REFUSED, Fault.LOST_ANSWER, Fault.CRASH)


def blob(number: int) -> bytes:
    """The blob of a row."""
    return bytes([number]) * (1, 10, 30)[number % 3]


async def rows(start: int) -> AsyncIterator[pa.RecordBatch]:
    """Six rows, one in a batch."""
    for number in range(start, start + 2 * PER_FILE):
        yield pa.record_batch([pa.array([number]), lance_io.blob_array([blob(number)])], schema=SCHEMA)


async def write(mode: str, start: int, session: Session) -> None:
    """Two files."""
    await AsyncDataset.write(rows(start), URI, SCHEMA, mode, session=session, max_rows_per_file=PER_FILE)


async def insert(session: Session) -> None:
    """The same by an open table."""
    table = await AsyncDataset.open(URI, session=session)
    await table.insert(rows(10), schema=SCHEMA, max_rows_per_file=PER_FILE)


async def write_fragments(session: Session) -> Any:
    """Two files that no version names."""
    made = {"session": session, "max_rows_per_file": PER_FILE, "return_transaction": True}
    return await write_fragments_async(rows(10), URI, SCHEMA, mode="append", **made)


async def configure(session: Session) -> None:
    """A version without files."""
    await (await AsyncDataset.open(URI, session=session)).update_config({"k": "v"})


async def update(session: Session) -> None:
    """Three rows move, of two files."""
    await (await AsyncDataset.open(URI, session=session)).update({"a": "a + 0"}, "a IN (1, 2, 4)")


async def merge(session: Session) -> None:
    """One row moves, one is new."""
    builder = (await AsyncDataset.open(URI, session=session)).merge_insert("a")
    given = pa.record_batch([pa.array([4, 50]), lance_io.blob_array([blob(4), blob(50)])], schema=SCHEMA)
    await builder.when_matched_update_all().when_not_matched_insert_all().execute(given)


async def truncate(session: Session) -> None:
    """No rows."""
    await (await AsyncDataset.open(URI, session=session)).truncate_table()


create, append = partial(write, "create", 0), partial(write, "append", 10)
CHANGES: Final[dict[str, tuple[Change, tuple[Change, ...]]]] = {
    "create": (create, ()),
    "append": (append, (create,)),
    "insert": (insert, (create,)),
    "overwrite": (partial(write, "overwrite", 20), (create,)),
    "other columns": (overwrite, (create, append)),
    "delete": (delete, (create, append)),
    "update": (update, (create, append)),
    "merge": (merge, (create, append)),
    "truncate": (truncate, (create, append)),
    "restore": (restore, (create, append)),
    "configure": (configure, (create,)),
}


def keys(world: World) -> set[str]:
    """Everything in the store."""
    store: Any = world.place.store
    return {each.key for each in store.list_sync("")}


def needed(world: World) -> set[str]:
    """What the versions name; each data file that has blobs has two files beside it."""
    found = set()
    for manifest in world.manifests():
        found.add(f"t/_versions/{2**64 - 1 - manifest.version:020}.manifest")
        paths = referenced(manifest)
        for fragment in manifest.fragments:
            for file in fragment.files:
                if len(file.fields) > 1:
                    paths |= {f"data/{file.path.removesuffix('.lance')}/{name}" for name in SIDECARS}
        found |= {world.place.key(path) for path in paths}
    return found


def lost(found: set[str]) -> set[str]:
    """Keys that no failure may leave, of those that nobody needs."""
    return {key for key in found if REMNANT.fullmatch(key) is None}


def check(world: World) -> None:
    """Everything that the versions name is there, and the newest one can be read with its blobs."""
    assert needed(world) <= keys(world)
    if world.newest()[0]:
        for row in world.open().to_table(blob_handling="all_binary").to_pylist():
            assert row.get("b", blob(row["a"])) == blob(row["a"])


def check_cleaned(world: World) -> None:
    """A cleanup by somebody else, after more than a week, leaves what the newest version needs.

    A staging object is kept while a row may point at it; after the next commit it is garbage.
    """
    if world.rows is not None:
        assert run(world.session(), configure) is None
    newest, objects = world.newest(), world.place.store._objects  # type: ignore[attr-defined]
    for key, (data, meta) in objects.items():
        objects[key] = data, replace(meta, last_modified=meta.last_modified - timedelta(days=8))
    assert run(world.session(), clean) is None
    assert world.newest() == newest
    assert keys(world) == needed(world)


def made(before: tuple[Change, ...], *, database: bool) -> World:
    """The world after some changes."""
    world = World(rows={} if database else None)
    for change in before:
        assert run(world.session(), change) is None
    assert keys(world) == needed(world)
    return world


def left(world: World, faults: dict[int, Fault], change: Change, counts: Any = any_request) -> tuple[Any, FaultyStore]:
    """What a change raised in a world, whose versions are whole then."""
    store = FaultyStore(world.place.store, faults, counts)
    outcome = run(world.session(store), change)
    check(world)
    return outcome, store


@pytest.mark.parametrize(
    ("name", "database"),
    [(name, False) for name in CHANGES] + [(name, True) for name in ("create", "append", "delete", "restore")],
)
def test_what_a_failure_leaves(name: str, database: bool) -> None:
    change, earlier = CHANGES[name]
    start = made(earlier, database=database)
    before, version = keys(start), start.newest()[0]
    for fault in FAULTS:
        for number in range(REQUESTS_MAX):
            world = start.copy()
            outcome, store = left(world, {number: fault}, change)
            if len(store.seen) <= number:
                break
            if outcome is None:
                assert world.newest()[0] == version + 1
                assert lost(keys(world) ^ needed(world)) == set()
            elif not isinstance(outcome, Crashed):
                assert world.newest()[0] == version
                assert lost(keys(world) ^ before) == set()
            if world.newest()[0] and (keys(world) != needed(world) or fault is Fault.REFUSED):
                check_cleaned(world)
        assert 0 < number < REQUESTS_MAX


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
@pytest.mark.parametrize("name", CHANGES)
def test_what_stays_while_nobody_knows_the_outcome(name: str, fault: Fault) -> None:
    """From the deciding write on everything fails: the version may be there, so all that it names is."""
    change, earlier = CHANGES[name]
    world = made(earlier, database=False)
    version, are_failing = world.newest()[0], []

    def counts(request: Request) -> bool:
        are_failing.extend([True] if request.operation == "put_create" else [])
        return bool(are_failing)

    outcome, _ = left(world, {0: fault, **dict.fromkeys(range(1, REQUESTS_MAX), Fault.REFUSED)}, change, counts)
    assert isinstance(outcome, CommitUnknownError)
    assert world.newest()[0] == version + (fault is Fault.LOST_ANSWER)
    transaction = outcome.transaction
    assert run(world.session(), lambda session: AsyncDataset.commit(URI, transaction, session=session)) is None
    assert world.newest()[0] == version + 1
    check(world)
    check_cleaned(world)


def test_what_failed_fragments_leave() -> None:
    start = made((create,), database=False)
    before = keys(start)
    for fault in FAULTS:
        for number in range(REQUESTS_MAX):
            world = start.copy()
            outcome, store = left(world, {number: fault}, write_fragments)
            if len(store.seen) <= number:
                break
            assert outcome is not None
            if isinstance(outcome, Crashed):
                check_cleaned(world)
            else:
                assert keys(world) == before
        assert 0 < number < REQUESTS_MAX


def test_a_commit_that_fails_keeps_what_others_have_written() -> None:
    start = made((create,), database=False)
    transaction = runtime.run(write_fragments(start.session()))
    before = keys(start)

    async def commit(session: Session) -> None:
        await AsyncDataset.commit(URI, transaction, session=session)

    for fault in FAULTS:
        for number in range(REQUESTS_MAX):
            world = start.copy()
            outcome, store = left(world, {number: fault}, commit)
            if len(store.seen) <= number:
                break
            assert before <= keys(world)
            if outcome is not None and not isinstance(outcome, Crashed):  # the transaction may be another's, too
                assert keys(world) - before <= {f"t/_transactions/1-{transaction.uuid}.txn"}
            assert run(world.session(), commit) is None
            assert world.newest() == (2, [*range(6), *range(10, 16)])
            check(world)
        assert 0 < number < REQUESTS_MAX
