"""Appends that share a version: which do, what each caller gets, and that none harms another."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_io
from lance_io import runtime
from lance_io.changes.write import append_queues, group_append
from lance_io.changes.write.append_queues import GROUPS
from lance_io.commit.external import ExternalHandler
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import CommitConflictError, CommitUnknownError, LanceError, SchemaError, UsageError
from lance_io.reads.version.session import Session
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.store.url import Location
from lance_io.testing.faults import Fault, FaultyStore
from lance_io.testing.latency import LatencyStore, run_virtual
from lance_io.testing.manifest_rows import MemoryManifestStore
from lance_io.testing.record import RecordingStore
from lance_io.testing.wrap import Request, WrappedStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

GROUPED: dict[str, Any] = {"mode": "append", "group_commit": True}
CALLERS = 8


@pytest.fixture(autouse=True)
def long_lease(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However slow the machine is; and whatever happened, nothing is left."""
    monkeypatch.setattr(append_queues, "LEASE_S", 100.0)
    yield
    assert not GROUPS._queues
    assert not GROUPS._pulled_bytes


def rows(*values: int | None) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


# -- in coroutines ---------------------------------------------------------------------------------------------------


class Held(WrappedStore):
    """Requests of one kind wait, once they are told to, before they go out."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.holds: Callable[[Request], bool] = lambda _: False
        self.held, self.go = asyncio.Event(), asyncio.Event()
        self.num_held = 0
        self.seen: list[Request] = []

    async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        self.seen.append(request)
        if self.holds(request):
            self.held.set()
            self.num_held += 1
            await self.go.wait()
        return await send()

    def written(self, folder: str) -> int:
        """Objects that were made in a folder."""
        return sum(one.operation in ("put", "put_create") and f"/{folder}/" in one.key for one in self.seen)


def session_of(store: Any, handler: Any = None) -> Session:
    """A session in which everything lies in this store, and versions are made visible by a handler."""
    session = Session()
    if handler is not None:
        session._handlers[store] = handler
    session.locate = lambda uri, options: Location(store, "t", "memory://t")
    return session


async def write(store: Any, table: Any, handler: Any = None, **how: Any) -> AsyncDataset:
    return await AsyncDataset.write(table, "memory://t", session=session_of(store, handler), **{**GROUPED, **how})


async def values_in(store: Any, version: int | None = None, handler: Any = None) -> list[int]:
    dataset = await AsyncDataset.open("memory://t", session=session_of(store, handler))
    if version is not None:
        dataset = await dataset.checkout_version(version)
    return (await dataset.to_table())["a"].to_pylist()


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110  what is waited for takes turns of this loop only
        await asyncio.sleep(0)


@pytest.fixture
async def store() -> AsyncIterator[Held]:
    """A table of one row, in a store that answers on a loop: this one, which is the engine's."""
    held = Held(MemoryStore())
    with runtime.use_loop(asyncio.get_running_loop()):
        await AsyncDataset.write(rows(0), "memory://t", session=session_of(held))
        await AsyncDataset.write(rows(1), "memory://t", session=session_of(held), mode="append")
        held.seen.clear()
        yield held
        held.go.set()


async def holding(store: Held, *appends: Awaitable[Any], first: Awaitable[Any] | None = None) -> list[Any]:
    """A first append whose data is held up, and meanwhile others begin, which therefore wait; what became of all."""
    store.holds = lambda request: "/data/" in request.key and not store.go.is_set()
    leading = asyncio.ensure_future(first if first is not None else write(store, rows(100)))
    await store.held.wait()
    waiting = []
    for append in appends:
        before = GROUPS.num_waiting() + store.num_held
        waiting.append(one := asyncio.ensure_future(append))
        await until(lambda before=before, one=one: GROUPS.num_waiting() + store.num_held > before or one.done())
    store.go.set()
    return await asyncio.gather(leading, *waiting, return_exceptions=True)


async def test_what_waits_becomes_one_version(store: Held) -> None:
    done = await holding(store, *(write(store, rows(10 * n, 10 * n + 1)) for n in range(1, CALLERS + 1)))
    assert [one.version for one in done] == [3] + [4] * CALLERS
    assert (store.written("_versions"), store.written("data"), store.written("_transactions")) == (2, 2, 2)
    assert await values_in(store, 3) == [0, 1, 100]
    assert await values_in(store) == [0, 1, 100, *(10 * n + k for n in range(1, CALLERS + 1) for k in (0, 1))]
    assert [len(one.get_fragments()) for one in done] == [3] + [4] * CALLERS
    assert await done[-1].count_rows() == 3 + 2 * CALLERS


async def test_open_datasets_move_on_to_the_version_of_their_rows(store: Held) -> None:
    opened = [await AsyncDataset.open("memory://t", session=session_of(store)) for _ in range(3)]
    await holding(store, *(one.insert(rows(n), group_commit=True) for n, one in enumerate(opened)))
    assert [one.version for one in opened] == [4, 4, 4]
    store.seen.clear()
    for n in range(2):  # on its own, an append makes what any append makes
        await opened[0].insert(rows(n), group_commit=True)
    assert (opened[0].version, store.written("_versions"), store.written("data")) == (6, 2, 2)


async def test_a_group_reads_nothing_that_the_one_before_has_made(store: Held) -> None:
    """Its callers have opened the version before that, or none; rivals are read as ever."""
    opened = [await AsyncDataset.open("memory://t", session=session_of(store)) for _ in range(3)]
    store.seen.clear()
    inserts = [one.insert(rows(n), group_commit=True) for n, one in enumerate(opened)]
    done = await holding(store, *inserts[1:], write(store, rows(5)), first=inserts[0])
    assert done[3].version == 4
    assert [one.version for one in opened] == [3, 4, 4]
    assert not [one for one in store.seen if one.operation == "get" and "/_versions/" in one.key]
    assert await values_in(store) == [0, 1, 0, 1, 2, 5]


async def test_versions_of_others_between_groups_are_looked_at(store: Held) -> None:
    opened = [await AsyncDataset.open("memory://t", session=session_of(store)) for _ in range(2)]

    async def overwrite() -> None:
        await AsyncDataset.write(rows(7), "memory://t", session=session_of(store.inner), mode="overwrite")

    inserts = [one.insert(rows(n), group_commit=True) for n, one in enumerate(opened)]
    done = await holding(store, overwrite(), inserts[1], write(store, rows(5)), first=inserts[0])
    assert isinstance(done[0], CommitConflictError)
    assert isinstance(done[2], CommitConflictError)
    assert await values_in(store) == [7, 5]


async def test_rows_of_each_schema_have_a_file(store: Held) -> None:
    wide = pa.table({"a": [5], "b": ["x"]})
    await AsyncDataset.write(wide, "memory://t", session=session_of(store), mode="overwrite")
    store.seen.clear()
    done = await holding(
        store,
        *(write(store, pa.table({"a": [n], "b": [str(n)]})) for n in range(3)),
        *(write(store, pa.table({"b": [str(n)], "a": [n]})) for n in range(3, 6)),
        *(write(store, rows(n)) for n in range(6, 9)),
        first=write(store, wide),
    )
    assert [one.version for one in done] == [4] + [5] * 9
    assert (store.written("_versions"), store.written("data")) == (2, 4)
    table = await done[-1].to_table()
    assert table["a"].to_pylist() == [5, 5, *range(9)]
    assert table["b"].to_pylist() == ["x", "x", *map(str, range(6)), None, None, None]


async def test_what_does_not_go_together_is_in_different_versions(store: Held) -> None:
    by = [{"writer": "a"}, {"writer": "b"}]
    done = await holding(
        store,
        *(write(store, rows(n), transaction_properties=by[n % 2]) for n in range(6)),
        *(write(store, rows(n), data_storage_version="2.1") for n in range(6, 8)),
        *(write(store, rows(n), max_rows_per_file=3) for n in range(8, 15)),
        first=write(store, rows(100)),
    )
    versions = [one.version for one in done]
    assert versions[3] == versions[5] != versions[4] == versions[6]  # they do not wait for each other
    assert len({*versions}) == 6
    history = [await done[-1].read_transaction(version) for version in (versions[3], versions[4], versions[7])]
    assert [one.transaction_properties.get("writer") for one in history] == ["a", "b", None]
    assert [*versions[7:]] == [versions[7]] * 9
    added = (await AsyncDataset.open("memory://t", session=session_of(store))).get_fragments()
    sizes = Counter(fragment.physical_rows for fragment in added)
    assert sizes == {1: 2 + 1 + 2 + 1, 2: 1 + 2, 3: 2}
    assert sorted(await values_in(store)) == sorted([0, 1, 100, *range(15)])


async def test_a_table_that_is_not_there_is_made_once(caplog: pytest.LogCaptureFixture) -> None:
    empty = Held(MemoryStore())
    with runtime.use_loop(asyncio.get_running_loop()):
        done = await asyncio.gather(*(write(empty, rows(n)) for n in range(CALLERS)))
        assert sorted(await values_in(empty)) == [*range(CALLERS)]
    assert min(one.version for one in done) == 1
    assert "creating it" in caplog.text


# -- one caller's trouble ----------------------------------------------------------------------------------------------


async def test_rows_that_do_not_fit_are_nobody_elses_trouble(store: Held) -> None:
    misfit = write(store, pa.table({"b": [1]}))
    done = await holding(store, write(store, rows(1)), misfit, write(store, rows(2)))
    assert isinstance(done[2], SchemaError)
    assert "Append with different schema" in str(done[2])
    assert [one.version for one in (done[1], done[3])] == [4, 4]
    assert (store.written("_versions"), store.written("data")) == (2, 2)


@pytest.mark.parametrize("bad", [(0,), (3,), (0, 1, 5), (2, 3, 4, 5, 6, 7), tuple(range(CALLERS))])
async def test_rows_that_cannot_be_stored_are_nobody_elses_trouble(store: Held, bad: tuple[int, ...]) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    base = pa.table({"a": [0]}, schema)
    await AsyncDataset.write(base, "memory://t", session=session_of(store), mode="overwrite")
    missing = pa.table({"a": pa.array([None], pa.int64())})
    store.seen.clear()
    appends = [write(store, missing if n in bad else rows(n)) for n in range(CALLERS)]
    done = (await holding(store, *appends, first=write(store, base)))[1:]
    alone = None
    try:
        await AsyncDataset.write(missing, "memory://t", session=session_of(store), mode="append")
    except LanceError as error:
        alone = error
    assert alone is not None
    for n, one in enumerate(done):
        if n in bad:
            assert (type(one), str(one)) == (type(alone), str(alone))
        else:
            assert one.version == 5
    assert await values_in(store) == [0, 0, *(n for n in range(CALLERS) if n not in bad)]
    assert store.written("_versions") == 1 + (len(bad) < CALLERS)
    data = [meta.key async for meta in store.inner.list("t/data/")]
    latest = await AsyncDataset.open("memory://t", session=session_of(store))
    files = {file.path for fragment in latest.get_fragments() for file in fragment.data_files()}
    assert files <= {key.rpartition("/")[2] for key in data}
    assert len(data) == len(files) + 2  # those of the versions that were overwritten: nothing else is left


async def test_callers_whose_table_was_overwritten_are_told_alone(store: Held) -> None:
    stale = [await AsyncDataset.open("memory://t", session=session_of(store)) for _ in range(2)]
    await AsyncDataset.write(rows(7), "memory://t", session=session_of(store), mode="overwrite")
    done = await holding(
        store,
        stale[0].insert(rows(1), group_commit=True),
        write(store, rows(2)),
        stale[1].insert(rows(3), group_commit=True),
        write(store, rows(4)),
        first=write(store, rows(0)),
    )
    assert isinstance(done[1], CommitConflictError)
    assert isinstance(done[3], CommitConflictError)
    assert done[1] is not done[3]
    assert (done[2].version, done[4].version) == (5, 5)
    assert await values_in(store) == [7, 0, 2, 4]


async def test_versions_far_apart_do_not_share(store: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_queues, "VERSIONS_NEAR", 1)
    old = await AsyncDataset.open("memory://t", session=session_of(store))
    for n in range(2):
        await write(store, rows(n))
    new = await AsyncDataset.open("memory://t", session=session_of(store))
    done = await holding(store, old.insert(rows(5), group_commit=True), new.insert(rows(6), group_commit=True))
    assert [done[0].version, old.version, new.version] == [5, 6, 7]


async def test_bounds_of_a_group(store: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_queues, "GROUP_APPENDS_MAX", 3)
    done = await holding(store, *(write(store, rows(n)) for n in range(5)))
    assert [one.version for one in done] == [3, 4, 4, 4, 5, 5]
    monkeypatch.setattr(append_queues, "GROUP_BYTES_MAX", 20)
    store.held.clear()
    store.go.clear()
    done = await holding(store, *(write(store, rows(n)) for n in range(4)))  # eight bytes each
    assert [one.version for one in done] == [6, 7, 7, 8, 8]


async def test_a_group_that_hangs_does_not_hold_up_the_next(store: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_queues, "LEASE_S", 0.02)
    store.holds = lambda request: "/data/" in request.key and not store.held.is_set()
    first = asyncio.ensure_future(write(store, rows(5)))
    await store.held.wait()
    done = await asyncio.gather(*(write(store, rows(n)) for n in range(6, 9)))
    assert not first.done()
    store.go.set()
    assert (await first).version > max(one.version for one in done)


# -- cancellation ------------------------------------------------------------------------------------------------------


class Stepping(Held):
    """Its n-th request after `begin` waits, until it is told to go on."""

    def begin(self, step: int) -> None:
        self.held.clear()
        self.go.clear()
        first, self.seen = len(self.seen), [*self.seen]
        self.holds = lambda _: len(self.seen) == first + step + 1
        self.num_before = first


@pytest.mark.parametrize("leaving", [(0,), (1,), (2, 3), (0, 1, 2, 3)])
async def test_who_is_cancelled_at_any_step_harms_nobody(leaving: tuple[int, ...]) -> None:
    """At each request of a group of four some are cancelled: rows of each are all there or none, of others all."""
    with runtime.use_loop(asyncio.get_running_loop()):
        for step in range(20):
            store = Stepping(MemoryStore())
            await AsyncDataset.write(rows(0), "memory://t", session=session_of(store))
            store.begin(0)
            leading = asyncio.ensure_future(write(store, rows(1)))
            await store.held.wait()
            appends = [asyncio.ensure_future(write(store, rows(10 * n, -10 * n))) for n in range(1, 5)]
            await until(lambda: GROUPS.num_waiting() == 4)
            leading.add_done_callback(lambda _, store=store, step=step: store.begin(step))
            store.go.set()
            await leading
            ended = asyncio.ensure_future(asyncio.wait(appends))
            reached = asyncio.ensure_future(store.held.wait())
            await asyncio.wait({ended, reached}, return_when=asyncio.FIRST_COMPLETED)
            for n in leaving:
                appends[n].cancel()
            await asyncio.sleep(0)
            store.go.set()
            done = await asyncio.gather(*appends, return_exceptions=True)
            reached.cancel()
            await ended
            there = await values_in(store)
            for n, one in enumerate(done):
                count = there.count(10 * (n + 1)), there.count(-10 * (n + 1))
                assert count == (1, 1) or (n in leaving and count == (0, 0))
                assert n in leaving or isinstance(one, AsyncDataset)
            if not store.num_held > 1:
                assert step > 3
                return
    raise AssertionError("a group makes fewer requests than this")


async def test_who_waits_and_leaves_is_in_no_version(store: Held) -> None:
    async def leave() -> None:
        waiting = asyncio.ensure_future(write(store, rows(66)))
        await until(lambda: GROUPS.num_waiting() == 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert GROUPS.num_waiting() == 1

    await holding(store, write(store, rows(5)), leave())
    assert await values_in(store) == [0, 1, 100, 5]


async def test_a_group_that_all_have_left_ends_at_once(store: Held) -> None:
    store.holds = lambda request: "/data/" in request.key and request.operation == "put"
    alone = asyncio.ensure_future(write(store, rows(66)))
    await store.held.wait()
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone  # though nothing was let go
    assert store.written("_versions") == 0


# -- faults and crashes ------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.commit.put_absent.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("lance_io.commit.external.FIRST_PAUSE_S", 0.0)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER, Fault.CRASH, Fault.THROTTLED])
@pytest.mark.parametrize("database", [False, True])
async def test_every_write_of_a_group_may_fail(fault: Fault, database: bool) -> None:
    """Rows of each caller are there once or not at all, and what each was told is true."""
    for number in range(12):
        inner = MemoryStore()
        handler = ExternalHandler(MemoryManifestStore()) if database else PutAbsentHandler()
        with runtime.use_loop(asyncio.get_running_loop()):
            await AsyncDataset.write(rows(0), "memory://t", session=session_of(inner, handler))
            faulty = FaultyStore(inner, {number: fault})
            appends = [write(faulty, rows(n), handler) for n in range(1, 6)]
            done = await asyncio.gather(*appends, return_exceptions=True)
            there = Counter(await values_in(inner, handler=handler))
            assert max(there.values()) == 1
            for n, one in enumerate(done, 1):
                if isinstance(one, AsyncDataset):
                    assert there[n] == 1
                elif isinstance(one, CommitUnknownError):
                    again = await AsyncDataset.commit("memory://t", one.transaction, session=session_of(inner, handler))
                    assert (await again.to_table())["a"].to_pylist().count(n) == 1
                elif fault is Fault.CRASH:
                    assert isinstance(one, RuntimeError)
                else:
                    assert isinstance(one, LanceError)
                    assert there[n] == 0
            assert max(Counter(await values_in(inner, handler=handler)).values()) == 1
        if len(faulty.seen) <= number:
            return
    raise AssertionError("groups of five appends make fewer writes")


async def test_errors_are_each_callers_own(store: Held) -> None:
    faulty = FaultyStore(store, {n: Fault.REFUSED for n in range(100)}, lambda request: "/data/" in request.key)
    done = await holding(store, *(write(faulty, rows(n)) for n in range(3)), first=write(store, rows(9)))
    errors = done[1:]
    assert all(isinstance(one, LanceError) for one in errors)
    assert len({id(one) for one in errors}) == 3
    assert len({str(one) for one in errors}) <= 3


# -- a model -----------------------------------------------------------------------------------------------------------

callers_do = st.lists(
    st.lists(st.tuples(st.sampled_from("urnbc"), st.integers(1, 4)), max_size=4), min_size=1, max_size=6
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(callers_do)
def test_any_callers_get_what_a_list_of_rows_would_have(plan: list[list[tuple[str, int]]]) -> None:
    """u by URI, r reordered columns, n without the nullable one, b rows that do not fit, c cancelled."""
    inner = MemoryStore(profile=CLOUD)
    log = RecordingStore(LatencyStore(inner))
    there: dict[int, list[int]] = {}  # version -> rows acknowledged with it
    maybe: Counter[int] = Counter()

    async def caller(number: int, steps: list[tuple[str, int]]) -> None:
        last = 0
        for step, (kind, num_rows) in enumerate(steps):
            ids = [100 * number + 10 * step + n for n in range(num_rows)]
            table = pa.table({"a": ids, "s": list(map(str, ids))})
            if kind == "r":
                table = table.select(["s", "a"])
            elif kind == "n":
                table = table.select(["a"])
            elif kind == "b":
                table = table.rename_columns(["a", "z"])
            append = asyncio.ensure_future(write(log, table))
            if kind == "c":
                await asyncio.sleep(num_rows / 2)
                append.cancel()
            try:
                dataset = await append
            except asyncio.CancelledError:
                maybe.update(ids)
                continue
            except SchemaError:
                assert kind == "b"
                continue
            assert dataset.version > last
            last = dataset.version
            there.setdefault(last, []).extend(ids)

    async def all_of_them() -> None:
        with runtime.use_loop(asyncio.get_running_loop()):
            await AsyncDataset.write(pa.table({"a": [0], "s": ["0"]}), "memory://t", session=session_of(log))
            await asyncio.gather(*(caller(number, steps) for number, steps in enumerate(plan, 1)))
            found: dict[int, list[int]] = {}
            before: list[int] = [0]
            newest = await AsyncDataset.open("memory://t", session=session_of(inner))
            for version in range(2, newest.version + 1):
                now = await values_in(inner, version)
                assert now[: len(before)] == before
                found[version] = now[len(before) :]
                before = now
            assert len(before) == len({*before})
            for version, ids in there.items():
                assert not Counter(ids) - Counter(found[version])
            assert not Counter(before) - Counter([0]) - sum((Counter(ids) for ids in there.values()), maybe)

    run_virtual(all_of_them)


def test_the_rate_of_many_writers_under_latency() -> None:
    """64 writers, four appends each, a store of one unit a request: four versions, of two rounds each."""
    log = RecordingStore(LatencyStore(MemoryStore(profile=CLOUD)))

    async def body() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        with runtime.use_loop(loop):
            dataset = await AsyncDataset.write(rows(0), "memory://t", session=session_of(log))
            began = loop.time()

            async def caller() -> None:
                for _ in range(4):
                    await dataset.insert(rows(*range(10)), group_commit=True)

            await asyncio.gather(*(caller() for _ in range(64)))
            rounds = loop.time() - began
            newest = await AsyncDataset.open("memory://t", session=session_of(log))
            assert await newest.count_rows() == 1 + 64 * 4 * 10
            return rounds, newest.version

    rounds, version = run_virtual(body)[0]
    assert (rounds, version) == (8, 5)


# -- threads, local tables, pylance ------------------------------------------------------------------------------------


class Gate:
    """A commit lock that holds up the first commit until it is opened; what waits meanwhile shares a version."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.versions: list[int] = []

    @contextmanager
    def __call__(self, version: int) -> Iterator[None]:
        self.versions.append(version)
        self.entered.set()
        self.opened.wait()
        yield


def wait_until(true: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not true():
        pause.wait(0.001)


def share(uri: Any, *tables: Any, meanwhile: Callable[[], object] = lambda: None, **how: Any) -> list[Any]:
    """Append tables from threads, the first one by itself, all others together; gives datasets or errors."""
    gate = Gate()
    options = {**GROUPED, "commit_lock": gate, "durability": "none", **how}
    with ThreadPoolExecutor(len(tables)) as threads:
        begun = []
        for number, table in enumerate(tables):
            begun.append(threads.submit(lance_io.write_dataset, table, uri, **options))
            if number == 0:
                gate.entered.wait()
            else:
                wait_until(lambda number=number: GROUPS.num_waiting() == number)
        meanwhile()
        gate.opened.set()
        return [one.exception() or one.result() for one in begun]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_pylance_reads_what_threads_have_written(tmp_path: Path, version: str, stable: bool) -> None:
    if version == "0.1" and stable:
        pytest.skip("tables of 0.1 have no stable row ids")
    uri = tmp_path / "t"
    lance_io.write_dataset(rows(0), uri, data_storage_version=version, enable_stable_row_ids=stable, durability="none")
    done = share(uri, *(rows(10 * n, 10 * n + 1) for n in range(1, 6)))
    assert [one.version for one in done] == [2, 3, 3, 3, 3]
    theirs = lance.dataset(uri)
    assert theirs.version == 3
    assert len(theirs.get_fragments()) == 3 if version != "0.1" else 6
    expected = [0, *(10 * n + k for n in range(1, 6) for k in (0, 1))]
    assert theirs.to_table()["a"].to_pylist() == expected
    ids = theirs.to_table(with_row_id=True)["_rowid"].to_pylist()
    assert len({*ids}) == len(expected)
    if stable:
        assert ids == [*range(len(expected))]
    theirs.delete("a = 20")
    assert lance_io.dataset(uri).count_rows() == len(expected) - 1


def test_a_rival_is_built_on(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    lance.write_dataset(rows(0), uri)
    done = share(
        uri,
        *(rows(n) for n in range(1, 6)),
        meanwhile=lambda: [lance.write_dataset(rows(10 + n), uri, mode="append") for n in range(2)],
    )
    versions = [one.version for one in done]
    assert versions[1:] == [versions[1]] * 4
    theirs = lance.dataset(uri)
    assert Counter(theirs.to_table()["a"].to_pylist()) == Counter([*range(6), 10, 11])
    assert theirs.version == 5
    for n, one in enumerate(done, 1):
        assert n in one.to_table()["a"].to_pylist()


def test_a_rival_that_overwrites_wins_over_all(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    lance.write_dataset(rows(0), uri)
    done = share(
        uri, *(rows(n) for n in range(1, 6)), meanwhile=lambda: lance.write_dataset(rows(9), uri, mode="overwrite")
    )
    there = lance.dataset(uri).to_table()["a"].to_pylist()
    for n, one in enumerate(done, 1):
        assert isinstance(one, CommitConflictError) or n in there or n in one.to_table()["a"].to_pylist()
    assert max(Counter(there).values()) == 1


def test_blobs(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    schema = pa.schema([lance_io.blob_field("blob")])

    def blobs(*values: Any) -> pa.Table:
        return pa.table({"blob": lance_io.blob_array(values)}, schema=schema)

    large = os.urandom(100_000)
    lance_io.write_dataset(blobs(b"first"), uri, durability="none")
    done = share(uri, blobs(b"x"), blobs(large), blobs(None, b"y"), blobs("file:///nowhere"), blobs(b"z" * 70_000))
    assert isinstance(done[3], LanceError)  # a URI is not allowed: these rows are refused, and no others
    assert [one.version for one in (done[1], done[2], done[4])] == [3, 3, 3]
    assert len({fragment.fragment_id for fragment in done[1].get_fragments()}) <= 4
    found = [None if one is None else one for _, one in lance_io.dataset(uri).read_blobs("blob", indices=range(6))]
    assert found == [b"first", b"x", large, None, b"y", b"z" * 70_000]
    theirs = [blob.read() for blob in lance.dataset(uri).take_blobs("blob", indices=[0, 1, 2, 4, 5])]
    assert theirs == [one for one in found if one is not None]


def test_progress_hears_of_its_own_files_only(tmp_path: Path) -> None:
    class Heard(lance_io.progress.FragmentWriteProgress):
        def __init__(self) -> None:
            self.num_rows: list[int] = []

        def begin(self, fragment: Any, **kwargs: Any) -> None:
            pass

        def complete(self, fragment: Any, **kwargs: Any) -> None:
            self.num_rows.append(fragment.physical_rows)

    lance_io.write_dataset(rows(0), tmp_path / "t", durability="none")
    heard = Heard()
    lance_io.write_dataset(rows(1, 2), tmp_path / "t", progress=heard, durability="none", **GROUPED)
    assert heard.num_rows == [2]


def test_a_second_thread_does_not_get_the_credentials_of_the_first() -> None:
    from lance_io.store.url import resolve_uri

    def bucket(**options: str) -> Any:
        return resolve_uri("s3://bucket/t", {"aws_region": "us-east-1", "aws_endpoint": "https://x", **options}).store

    mine = {"aws_access_key_id": "mine", "aws_secret_access_key": "secret"}
    assert append_queues._is_same(bucket(**mine), bucket(**mine))
    assert not append_queues._is_same(bucket(**mine), bucket(**{**mine, "aws_secret_access_key": "other"}))
    assert not append_queues._is_same(MemoryStore(), MemoryStore())
    assert append_queues._is_same(LocalStore(), LocalStore())
    assert not append_queues._is_same(LocalStore(), LocalStore(durability="none"))


# -- how rows come -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["APPEND_BYTES_MAX", "PULLED_BYTES_MAX"])
async def test_many_rows_are_appended_as_ever(tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = tmp_path / "t"
    lance_io.write_dataset(rows(0), uri, durability="none")
    monkeypatch.setattr(group_append if limit == "APPEND_BYTES_MAX" else append_queues, limit, 20)
    how: dict[str, Any] = {"durability": "none", **GROUPED}
    schema = rows(0).schema
    batches = [rows(n).to_batches()[0] for n in range(1, 6)]

    async def come() -> AsyncIterator[pa.RecordBatch]:
        for batch in batches:
            yield batch

    lance_io.write_dataset(iter(batches), uri, schema, **how)
    await AsyncDataset.write(iter(batches), uri, schema, **how)
    await AsyncDataset.write(come(), uri, schema, **how)
    monkeypatch.undo()
    await AsyncDataset.write(come(), uri, schema, **how)
    lance_io.write_dataset(pa.Table.from_batches(batches), uri, **how)
    there = lance.dataset(uri).to_table()["a"].to_pylist()
    assert there == [0, *[1, 2, 3, 4, 5] * 5]


def test_only_appends_share(tmp_path: Path) -> None:
    for mode in ("create", "overwrite"):
        with pytest.raises(UsageError, match="group_commit=True is for appends"):
            lance_io.write_dataset(rows(1), tmp_path / "t", mode=mode, group_commit=True)


# -- forks, loops and processes that end -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_groups_of_its_own(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    lance_io.write_dataset(rows(0), uri, durability="none")
    statuses: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            try:
                lance_io.write_dataset(rows(77), uri, durability="none", **GROUPED)
            except BaseException:
                os._exit(1)
            os._exit(0)
        statuses.append(os.waitpid(child, 0)[1])

    share(uri, rows(1), rows(2), rows(3), meanwhile=fork)
    assert statuses == [0]
    assert sorted(lance.dataset(uri).to_table()["a"].to_pylist()) == [0, 1, 2, 3, 77]


def test_a_loop_that_ends_while_appends_wait(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    lance_io.write_dataset(rows(0), uri, durability="none")
    gate = Gate()
    how: dict[str, Any] = {"commit_lock": gate, "durability": "none", **GROUPED}

    async def leave_behind() -> None:
        for n in range(3):
            asyncio.ensure_future(AsyncDataset.write(rows(n + 1), uri, **how))  # noqa: RUF006
        await asyncio.to_thread(gate.entered.wait)
        threading.Timer(0, gate.opened.set).start()

    asyncio.run(leave_behind())
    there = Counter(lance.dataset(uri).to_table()["a"].to_pylist())
    assert max(there.values()) == 1
    assert lance_io.write_dataset(rows(9), uri, durability="none", **GROUPED).count_rows() == sum(there.values()) + 1


def test_threads_that_outlive_the_main_one(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    program = f"""
import threading, lance_io, pyarrow as pa
lance_io.write_dataset(pa.table({{"a": [0]}}), {str(uri)!r}, durability="none")
def write(n):
    threading.main_thread().join()
    lance_io.write_dataset(pa.table({{"a": [n]}}), {str(uri)!r}, mode="append", group_commit=True, durability="none")
for n in range(1, 9):
    threading.Thread(target=write, args=(n,)).start()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sorted(lance.dataset(uri).to_table()["a"].to_pylist()) == [*range(9)]
