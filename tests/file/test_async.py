"""Reading that is cancelled, times out, fails halfway, or comes from many loops, threads and processes at once.

Tables lie in a memory store that does not answer in the caller's thread, so that everything takes the way of S3: over
the scheduler, on the engine. A gate holds requests back until the test opens it.
"""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset, runtime
from lance_io.io.budget import process_pool
from lance_io.io.stats import store_stats
from lance_io.reads.version.session import Session
from lance_io.store.failures import StoreFailure
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.store.url import Location
from lance_io.testing.faults import Fault, FaultyStore
from lance_io.testing.wrap import WrappedStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lance_io.testing.wrap import Request

CHECKOUT = Path(__file__).resolve().parents[2]
ROWS = 20_000
FRAGMENTS = 4
SECONDS_MAX = 90  # only a hang takes this long: the program that forks took 22 s on two cores with twenty at work


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, dict[str, bytes], str]:
    """A table of four fragments: rows, files by key, path."""
    root = tmp_path_factory.mktemp("table") / "t"
    dice = np.random.default_rng(0)
    numbers = dice.integers(0, 1 << 60, ROWS)
    table = pa.table({"number": numbers, "text": [f"{x:x}" for x in numbers.tolist()], "row": np.arange(ROWS)})
    lance.write_dataset(table, root, max_rows_per_file=ROWS // FRAGMENTS)
    files = {f"t/{p.relative_to(root)}": p.read_bytes() for p in root.rglob("*") if p.is_file()}
    return table, files, str(root)


class Gate(WrappedStore):
    """Reads in `folder`, at first of data files, wait while it is shut; `waiting` counts them."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.is_shut = False
        self.folder = "/data/"
        self.waiting = 0
        self._opened: list[Callable[[], None]] = []
        self._lock = threading.Lock()  # it is opened by another thread than those that wait

    async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        loop, opened = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if must_wait := self.is_shut and self.folder in request.key:
                self._opened.append(lambda: loop.call_soon_threadsafe(opened.set))
        if must_wait:
            self.waiting += 1
            try:
                await opened.wait()
            finally:
                self.waiting -= 1
        return await send()

    def open(self) -> None:
        with self._lock:
            self.is_shut = False
            for opened in self._opened:
                opened()
            self._opened.clear()


@pytest.fixture
def memory(written: Any) -> MemoryStore:
    store = MemoryStore(profile=CLOUD)
    for key, data in written[1].items():
        store.put_sync(key, data)
    return store


@pytest.fixture
def gate(memory: MemoryStore) -> Gate:
    return Gate(memory)


def session_of(store: Any) -> Session:
    session = Session()
    session.locate = lambda uri, options: Location(store, "t", "memory://t")
    return session


@pytest.fixture(autouse=True)
def nothing_is_left(memory: MemoryStore, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No task on the engine, no bytes held, no exception that nobody saw."""
    yield
    gc.collect()
    wait_until(lambda: not engine_tasks())
    assert store_stats(memory.identity)._bytes_held == 0
    assert process_pool().avail_bytes == process_pool().capacity_bytes
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def engine_tasks() -> set[Any]:
    async def others() -> set[Any]:
        return asyncio.all_tasks() - {asyncio.current_task()}

    return runtime.run(others())


def wait_until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not true():  # noqa: ASYNC110 - the engine's thread changes it
            await asyncio.sleep(0.002)


# -- leaving -----------------------------------------------------------------------------------------------------------


async def test_leaving_the_block_ends_what_is_in_flight(gate: Gate, memory: MemoryStore, written: Any) -> None:
    async with AsyncDataset.open("t", session=session_of(gate)) as table:
        older = await table.checkout_version(1)
        batches = table.to_batches(batch_size=100)
        first = await anext(batches)
        gate.is_shut = True
        calls = [table.to_table(), table.take([1, ROWS - 1]), older.take([3]), table.get_fragments()[2].to_table()]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await until(lambda: gate.waiting >= len(tasks))
        kept = table.to_sync()
    assert gate.waiting == 0
    assert store_stats(memory.identity)._bytes_held == 0
    assert process_pool().avail_bytes == process_pool().capacity_bytes
    for task in tasks:
        with pytest.raises(RuntimeError, match="the dataset was closed"):
            await task
    with pytest.raises(RuntimeError, match="the dataset was closed"):
        _ = [batch async for batch in batches]
    with pytest.raises(RuntimeError, match="the dataset was closed"):
        await table.take([5])
    gate.open()
    assert first.num_rows == 100
    assert kept.to_table() == written[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.take([1, ROWS - 1], timeout=0.05),
        lambda table: table.to_table(timeout=0.05),
        lambda table: list(table.to_batches(timeout=0.05)),
        lambda table: table.scanner(timeout=0.05).to_reader().read_all(),
        lambda table: table.count_rows("number > 7", timeout=0.05),
        lambda table: table.warm(timeout=0.05),
        lambda table: table.to_pandas(timeout=0.05),
        lambda table: table.slice(3, 9, timeout=0.05),
        lambda table: table.get_fragments()[1].to_table(timeout=0.05),
    ],
)
def test_a_deadline_frees_what_the_call_held(gate: Gate, memory: MemoryStore, call: Any) -> None:
    table = lance_io.dataset("t", session=session_of(gate))
    gate.is_shut = True
    with pytest.raises(TimeoutError, match=r"within the 0\.05 s"):
        call(table)
    assert gate.waiting == 0
    assert store_stats(memory.identity)._bytes_held == 0
    assert process_pool().avail_bytes == process_pool().capacity_bytes
    gate.open()
    assert table.take([3], timeout=60).num_rows == 1


def test_a_deadline_holds_on_local_disk_too(written: Any) -> None:
    table = lance_io.dataset(written[2], timeout=timedelta(minutes=1))
    assert table.to_table(timeout=60) == written[0]
    assert table.take([7, 3], timeout=60) == written[0].take([7, 3])
    assert pa.Table.from_batches(table.to_batches(timeout=60)) == written[0]
    with pytest.raises(TimeoutError, match="1e-09 s"):
        table.to_table(timeout=1e-9)
    with pytest.raises(TimeoutError, match="1e-09 s"):
        lance_io.dataset(written[2], timeout=1e-9)
    refused: list[tuple[Any, Any]] = [
        (0, ValueError),
        (-1, ValueError),
        ("1", TypeError),
        (True, TypeError),
        (math.nan, ValueError),
    ]
    for wrong, error in refused:
        with pytest.raises(error, match="timeout"):
            table.take([1], timeout=wrong)
        with pytest.raises(error, match="timeout"):
            table.scanner(timeout=wrong)
    assert table.take([1], timeout=math.inf).num_rows == 1


async def test_what_shares_a_dataset_goes_on(gate: Gate, written: Any) -> None:
    plain = lance_io.dataset("t", session=session_of(gate))
    table = AsyncDataset.of(plain)
    await table.aclose()
    assert await table.take([5]) == plain.take([5]) == written[0].take([5])


# -- cancelling --------------------------------------------------------------------------------------------------------


async def scan_all(table: AsyncDataset) -> list[pa.RecordBatch]:
    return [batch async for batch in table.to_batches(batch_size=500)]


CALLS: dict[str, Callable[[AsyncDataset], Awaitable[Any]]] = {
    "take": lambda table: table.take([5, 7000, 19_999]),
    "to_table": lambda table: table.to_table(),
    "to_batches": scan_all,
}


@pytest.mark.parametrize("name", CALLS)
async def test_cancelling_ends_what_is_in_flight(name: str, gate: Gate, written: Any) -> None:
    table = await AsyncDataset.open("t", session=session_of(gate))
    gate.is_shut = True
    task = asyncio.ensure_future(CALLS[name](table))
    await until(lambda: gate.waiting)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not gate.waiting)  # the requests themselves were cancelled
    gate.open()
    assert await table.to_table() == written[0]


async def test_cancelling_a_task_cancels_its_opening(gate: Gate, written: Any) -> None:
    gate.is_shut, gate.folder = True, "/_versions/"
    task = asyncio.get_running_loop().create_task(AsyncDataset.open("t", session=session_of(gate)))
    await until(lambda: gate.waiting)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not gate.waiting)


@pytest.mark.parametrize("name", CALLS)
async def test_a_timeout_around_a_call(name: str, gate: Gate, written: Any) -> None:
    table = await AsyncDataset.open("t", session=session_of(gate))
    gate.is_shut = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await CALLS[name](table)
    await until(lambda: not gate.waiting)
    gate.open()
    assert await table.take([19_999]) == written[0].slice(19_999)


async def test_cancelling_while_pages_are_decoded(gate: Gate) -> None:
    table = await AsyncDataset.open("t", session=session_of(gate))
    for rounds in range(0, 40, 4):
        task = asyncio.ensure_future(scan_all(table))
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_one_of_many_is_cancelled_and_the_others_go_on(gate: Gate, written: Any) -> None:
    """They wait for one another's cache entries: whoever loads them may be the one that goes."""
    table = await AsyncDataset.open("t", session=session_of(gate))
    gate.is_shut = True
    tasks = [asyncio.ensure_future(table.take([i, 19_000 - i])) for i in range(20)]
    await until(lambda: gate.waiting)
    for task in tasks[:10]:
        task.cancel()
    await asyncio.sleep(0)
    gate.open()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in done[:10])
    assert [one["row"].to_pylist() for one in done[10:]] == [[i, 19_000 - i] for i in range(10, 20)]


async def test_an_iterator_is_dropped_unfinished(gate: Gate) -> None:
    table = await AsyncDataset.open("t", session=session_of(gate))
    batches = table.to_batches(batch_size=10)
    await anext(batches)
    del batches
    gc.collect()
    await asyncio.sleep(0)
    assert await table.count_rows() == ROWS


# -- failing -----------------------------------------------------------------------------------------------------------


def data_requests(request: Request) -> bool:
    return "/data/" in request.key


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("call", [0, 2, 3])
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.SHORT_BODY])
async def test_an_error_in_the_middle_of_a_scan_is_raised_once(
    face: str, call: int, fault: Fault, memory: MemoryStore, written: Any
) -> None:
    script = {call: fault}
    store = FaultyStore(memory, script, counts=data_requests)
    seen = 0
    if face == "sync":
        ds = lance_io.dataset("t", session=session_of(store))
        batches = iter(ds.to_batches(batch_size=100))
        with pytest.raises(OSError, match=r"scripted|cut off") as caught:
            for _ in batches:
                seen += 1
        assert next(batches, None) is None  # it is over
        table = await AsyncDataset.open("t", session=session_of(store))
    else:
        table = await AsyncDataset.open("t", session=session_of(store))
        stream = table.to_batches(batch_size=100)
        with pytest.raises(OSError, match=r"scripted|cut off") as caught:
            async for _ in stream:
                seen += 1
        assert await anext(stream, None) is None
    assert not isinstance(caught.value, BaseExceptionGroup)
    assert seen < ROWS / 100
    assert await table.to_table() == written[0]  # the fault was one of a moment


async def test_all_that_fails_gives_one_error(memory: MemoryStore) -> None:
    store = FaultyStore(memory, dict.fromkeys(range(1000), Fault.REFUSED), counts=data_requests)
    table = await AsyncDataset.open("t", session=session_of(store))
    for call in CALLS.values():
        with pytest.raises(StoreFailure, match="scripted"):
            await call(table)
    with pytest.raises(StoreFailure, match="scripted"):
        table.to_sync().to_table()


# -- from many places --------------------------------------------------------------------------------------------------


def test_one_dataset_on_several_loops(gate: Gate, written: Any) -> None:
    table = asyncio.run(opened(gate))

    async def work(row: int) -> list[int]:
        found, whole = await asyncio.gather(table.take([row], ["row"]), table.to_table(["row"]))
        assert whole["row"].to_pylist() == list(range(ROWS))
        return found["row"].to_pylist()

    assert [asyncio.run(work(row)) for row in (1, 2)] == [[1], [2]]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda row: asyncio.run(work(row)), range(8))) == [[row] for row in range(8)]


async def opened(store: Any) -> AsyncDataset:
    return await AsyncDataset.open("t", session=session_of(store))


@pytest.mark.parametrize("where", ["disk", "scheduler"])
def test_the_synchronous_dataset_from_many_threads(where: str, gate: Gate, written: Any) -> None:
    rows, _, path = written
    ds = lance_io.dataset(path) if where == "disk" else lance_io.dataset("t", session=session_of(gate))

    def work(number: int) -> bool:
        indices = [number, ROWS - 1 - number, number * 7]
        assert ds.take(indices) == rows.take(indices)
        got = pa.Table.from_batches(ds.to_batches(["text", "row"], batch_size=700 + number))
        return got == rows.select(["text", "row"])

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(16)))


async def test_the_synchronous_dataset_inside_a_running_loop(gate: Gate, written: Any) -> None:
    ds = lance_io.dataset("t", session=session_of(gate))
    assert ds.to_table() == written[0]
    assert pa.Table.from_batches(ds.to_batches(batch_size=900)) == written[0]
    assert ds.take([3, 1]) == written[0].take([3, 1])


def test_two_scans_take_turns(gate: Gate, written: Any) -> None:
    ds = lance_io.dataset("t", session=session_of(gate))
    scans = [iter(ds.to_batches(["row"], batch_size=1000, io_buffer_size=1)) for _ in range(3)]
    for _ in range(ROWS // 1000):
        batches = [next(scan) for scan in scans]
        assert batches[0] == batches[1] == batches[2]
    assert [next(scan, None) for scan in scans] == [None] * 3


# -- processes ---------------------------------------------------------------------------------------------------------

PRELUDE = """
import asyncio, contextlib, os, signal, sys, threading, time
import lance_io
from lance_io.reads.version.session import Session
from lance_io.store.local.disk import LocalStore
from lance_io.store.url import Location
from lance_io.runtime import engine
from lance_io.testing.wrap import WrappedStore
from tests.interrupting import keep_interrupts

keep_interrupts()
engine.CLOSE_SECONDS_MAX = 60.0  # a loaded machine may need more than a second to end
path = sys.argv[1]

class Slow(WrappedStore):
    delay_s = 0.0
    def __init__(self, inner):
        super().__init__(inner)
        self.waiting = threading.Event()  # for a minute
    async def request(self, request, send):
        if self.delay_s >= 60:
            self.waiting.set()
        await asyncio.sleep(self.delay_s)
        return await send()

slow = Slow(LocalStore())
session = Session()
session.locate = lambda uri, options: Location(slow, path, "slow://" + path)
tables = {"disk": lance_io.dataset(path), "engine": lance_io.dataset("slow", session=session)}
for table in tables.values():
    table.to_table()  # imports what scans need: an interrupt in the middle of that would be somebody else's
"""


def run_program(code: str, path: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-W",
        "default",
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        PRELUDE + textwrap.dedent(code),
    ]
    return subprocess.run(
        [*command, path], capture_output=True, text=True, timeout=SECONDS_MAX, cwd=CHECKOUT, check=False
    )


def test_datasets_go_on_after_a_fork(written: Any) -> None:
    done = run_program(
        """
        for table in tables.values():
            table.take([1, 2]); next(iter(table.to_batches(batch_size=10)))
        open_scans = [iter(table.to_batches(["row"], batch_size=10)) for table in tables.values()]
        [next(scan) for scan in open_scans]
        pid = os.fork()
        for name, table in tables.items():
            assert table.take([5, 19_000], ["row"])["row"].to_pylist() == [5, 19_000], name
            assert sum(batch.num_rows for batch in table.to_batches(["row"])) == 20_000, name
            assert asyncio.run(lance_io.AsyncDataset.of(table).to_table(["row"])).num_rows == 20_000, name
        if pid:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert [sum(batch.num_rows for batch in scan) for scan in open_scans] == [19_990] * 2
        """,
        written[2],
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("how", ["disk", "engine"])
def test_ctrl_c_ends_a_scan_and_gives_back_what_it_held(how: str, written: Any) -> None:
    done = run_program(
        f"""
        from lance_io.io.budget import process_pool
        table = tables[{how!r}]
        slow.delay_s = 0.05
        main = threading.get_ident()
        timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
        timer.start()
        try:
            while True:
                for batch in table.to_batches(batch_size=10, io_buffer_size=1):
                    pass
        except KeyboardInterrupt:
            print("interrupted")
        slow.delay_s = 0
        for _ in range(1000):
            if process_pool().avail_bytes == process_pool().capacity_bytes:
                break
            time.sleep(0.01)
        assert process_pool().avail_bytes == process_pool().capacity_bytes
        assert table.to_table().num_rows == 20_000
        """,
        written[2],
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


@pytest.mark.parametrize("how", ["disk", "engine"])
def test_the_interpreter_ends_with_an_open_iterator(how: str, written: Any) -> None:
    done = run_program(
        f"""
        scan = iter(tables[{how!r}].to_batches(batch_size=10))
        next(scan)
        slow.delay_s = 60
        other = iter(tables["engine"].to_batches(batch_size=10))
        def wait():
            with contextlib.suppress(RuntimeError):
                next(other)
        threading.Thread(target=wait, daemon=True).start()
        assert slow.waiting.wait(60)
        print("bye")
        """,
        written[2],
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "bye\n", "")


def test_a_signal_to_the_process_while_it_waits(written: Any) -> None:
    """As Ctrl-C in a terminal: nothing but the interrupt is reported."""
    code = """
        def tell():
            slow.waiting.wait()
            print("waiting", flush=True)
        slow.delay_s = 60
        threading.Thread(target=tell, daemon=True).start()
        tables["engine"].to_table()
    """
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code), written[2]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=CHECKOUT)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1
