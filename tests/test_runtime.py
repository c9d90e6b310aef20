"""The engine: results and errors cross threads, nothing outlives its caller, and fork, Ctrl-C and exit are survived."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_io import runtime
from lance_io.errors import ForkedRuntimeError, UsageError
from lance_io.runtime import cpu_pool, iterate, run, stream, wrap
from lance_io.runtime.pool import LastingPool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

CHECKOUT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 90  # only a hang takes this long
name_of_caller = contextvars.ContextVar("name_of_caller", default="nobody")


def wait_until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def fail() -> None:
    await asyncio.sleep(0)
    raise LookupError("from the engine")


class Source:
    """An async generator of numbers that records how far it got and whether it was closed."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.count = count
        self.error = error
        self.made = 0
        self.closed = threading.Event()

    async def __call__(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                await asyncio.sleep(0)
                self.made += 1
                yield number
            if self.error is not None:
                raise self.error
        finally:
            await asyncio.sleep(0)
            self.closed.set()


# -- run -------------------------------------------------------------------------------------------------------


def test_run_gives_the_result_of_the_engine_thread() -> None:
    assert run(thread_name()) == "lance_io-engine"


def test_an_error_keeps_its_traceback_and_leaves_no_cycle() -> None:
    with pytest.raises(LookupError, match="from the engine") as caught:
        run(fail())
    assert any(frame.name == "fail" for frame in traceback.extract_tb(caught.value.__traceback__))


def test_context_variables_are_the_callers() -> None:
    async def read() -> str:
        return name_of_caller.get()

    token = name_of_caller.set("me")
    try:
        assert run(read()) == "me"
    finally:
        name_of_caller.reset(token)


def test_many_threads_at_once() -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: run(double(n)), range(200))) == [2 * n for n in range(200)]


def test_run_refuses_on_the_engine_thread() -> None:
    async def nested() -> str:
        return run(thread_name())

    with pytest.raises(RuntimeError, match="await the asynchronous API"):
        run(nested())


async def test_run_works_inside_a_running_loop() -> None:
    assert run(thread_name()) == "lance_io-engine"


def test_an_interrupt_while_a_call_is_handed_over_cancels_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cancelled = threading.Event(), threading.Event()
    loop, hand_over = runtime.engine_loop(), asyncio.BaseEventLoop.call_soon_threadsafe

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(SECONDS_MAX)
        finally:
            cancelled.set()

    def interrupted(*arguments: Any, **named: Any) -> None:
        monkeypatch.undo()
        hand_over(loop, *arguments, **named)
        assert begun.wait(SECONDS_MAX)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(wait())
    assert cancelled.wait(SECONDS_MAX / 2)


def test_a_system_exit_belongs_to_its_call() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        run(leave())
    assert run(thread_name()) == "lance_io-engine"


# -- wrap ------------------------------------------------------------------------------------------------------


async def test_wrap_awaits_from_a_foreign_loop() -> None:
    assert await wrap(thread_name()) == "lance_io-engine"
    with pytest.raises(LookupError):
        await wrap(fail())


async def test_cancelling_the_caller_cancels_the_coroutine() -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(SECONDS_MAX)
        finally:
            cancelled.set()

    task = asyncio.create_task(wrap(wait()))
    assert await asyncio.to_thread(started.wait, SECONDS_MAX)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(cancelled.wait, SECONDS_MAX)


async def test_wrap_on_the_engine_loop_just_awaits() -> None:
    async def outer() -> tuple[str, str]:
        return await wrap(thread_name()), threading.current_thread().name

    assert await wrap(outer()) == ("lance_io-engine", "lance_io-engine")


async def test_a_loop_can_take_the_engines_place() -> None:
    with runtime.use_loop(asyncio.get_running_loop()):
        assert await wrap(thread_name()) == threading.current_thread().name
        with pytest.raises(RuntimeError, match="await the asynchronous API"):
            run(thread_name())
        assert [item async for item in stream(Source(3))] == [0, 1, 2]
    assert await wrap(thread_name()) == "lance_io-engine"


# -- iterate and stream ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_items_arrive_in_order_and_no_more_are_made_than_allowed(ahead: int) -> None:
    source = Source(10)
    items = iterate(source, ahead)
    assert source.made == 0
    for number in range(5):
        assert next(items) == number
        wait_until(lambda: source.made == number + 1 + ahead)  # noqa: B023 - called before the loop goes on
        run(asyncio.sleep(0.002))
        assert source.made == number + 1 + ahead
    assert list(items) == [5, 6, 7, 8, 9]
    assert list(items) == []
    assert source.closed.is_set()


def test_the_error_of_a_source_comes_after_its_items() -> None:
    items = iterate(Source(2, LookupError("broken")), ahead=5)
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(LookupError, match="broken"):
        next(items)
    assert list(items) == []


def test_closing_waits_until_the_source_has_closed() -> None:
    source = Source(10)
    with iterate(source) as items:
        next(items)
    assert source.closed.is_set()
    items.close()
    never_started = iterate(source)
    never_started.close()
    assert list(never_started) == []


def test_closing_right_after_asking_does_not_wait_for_ever() -> None:
    for _ in range(50):
        items = iterate(Source(3), ahead=0)
        assert items._pump is not None
        pump = items._pump
        pump.ask()
        items.close()
        assert pump.ended.is_set()


def test_dropping_the_iterator_closes_the_source() -> None:
    source = Source(10)
    items = iterate(source)
    next(items)
    del items
    gc.collect()
    assert source.closed.wait(SECONDS_MAX)


def test_a_negative_readahead_is_refused() -> None:
    with pytest.raises(UsageError):
        iterate(Source(1), ahead=-1)


async def test_a_stream_on_a_foreign_loop() -> None:
    assert [item async for item in stream(Source(5), ahead=2)] == [0, 1, 2, 3, 4]
    with pytest.raises(LookupError, match="broken"):
        _ = [item async for item in stream(Source(2, LookupError("broken")))]


async def test_leaving_a_stream_early_closes_the_source() -> None:
    source = Source(100)
    items = stream(source)
    async for _ in items:
        break
    await items.aclose()
    assert await asyncio.to_thread(source.closed.wait, SECONDS_MAX)


# -- shutting down, forking, interrupting ----------------------------------------------------------------------------


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, where warnings that exit may print are not hidden.

    But for those of asyncio about slow callbacks: on a busy machine each may be one.
    """
    quiet = "import logging; logging.getLogger('asyncio').setLevel(logging.ERROR)\n"
    code = quiet + textwrap.dedent(code)
    command = [sys.executable, "-X", "dev", "-W", "ignore:.*fork:DeprecationWarning", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=CHECKOUT)


def test_import_starts_no_thread() -> None:
    done = python("import threading, lance_io.runtime; print(threading.active_count())")
    assert done.stdout == "1\n"


def test_exit_closes_what_was_registered_and_says_nothing() -> None:
    done = python("""
        import asyncio
        from lance_io.runtime import cpu_pool, engine, iterate, on_engine_close, run

        engine.CLOSE_SECONDS_MAX = 60.0  # a loaded machine may need more than a second

        class Session:
            async def open(self):
                on_engine_close(self.aclose)
            async def aclose(self):
                await asyncio.sleep(0)
                print("closed", flush=True)

        async def numbers():
            while True:
                await asyncio.sleep(0)
                yield 1

        async def forever():
            await asyncio.sleep(3600)

        async def leave_running():
            global task
            task = asyncio.get_running_loop().create_task(forever())

        session, forgotten = Session(), Session()
        run(session.open())
        run(forgotten.open())
        del forgotten
        run(leave_running())
        cpu_pool().submit(print, "decoded", flush=True).result()
        items = iterate(numbers)
        next(items)
        """)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "decoded\nclosed\n"


def test_a_registration_can_be_taken_back() -> None:
    done = python("""
        from lance_io.runtime import on_engine_close

        async def close():
            print("closed")

        on_engine_close(close)()
        on_engine_close(close)
        """)
    assert (done.stdout, done.stderr) == ("closed\n", "")


def test_a_closer_that_hangs_does_not_stop_the_exit() -> None:
    done = python("""
        import asyncio
        from lance_io.runtime import on_engine_close, run

        async def hang():
            await asyncio.sleep(3600)

        on_engine_close(hang)
        run(asyncio.sleep(0))
        """)
    assert (done.returncode, done.stderr) == (0, "")


async def test_what_has_lost_its_user_is_closed_on_its_own_loop() -> None:
    """One loop's closing neither waits for another's nor is seen by it, whichever thread asks."""
    loop, engine, let_go = asyncio.get_running_loop(), runtime.engine_loop(), asyncio.Event()
    closed: asyncio.Queue[tuple[str, object]] = asyncio.Queue()

    async def close(name: str, wait: bool = False) -> None:
        if wait:
            await let_go.wait()
        where = asyncio.get_running_loop()
        loop.call_soon_threadsafe(closed.put_nowait, (name, where))

    assert runtime.close_soon(engine, lambda: close("waiting", wait=True))
    assert await asyncio.to_thread(runtime.close_soon, loop, lambda: close("mine"))
    assert await closed.get() == ("mine", loop)
    gc.collect()  # a loop holds its tasks weakly
    engine.call_soon_threadsafe(let_go.set)
    assert await closed.get() == ("waiting", engine)


def test_exit_waits_for_what_is_being_closed() -> None:
    done = python("""
        import asyncio
        from lance_io import runtime

        async def close():
            for _ in range(1000):
                await asyncio.sleep(0)
            print("closed")

        runtime.run(asyncio.sleep(0))
        runtime.close_soon(runtime.engine_loop(), close)
        """)
    assert (done.stdout, done.stderr) == ("closed\n", "")


def test_nothing_is_closed_on_a_loop_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where its thread closes it after it was seen to run."""
    loop, closed = asyncio.new_event_loop(), asyncio.new_event_loop()
    closed.close()
    assert not runtime.close_soon(loop, lambda: asyncio.sleep(0))
    monkeypatch.setattr(closed, "is_running", lambda: True)
    assert not runtime.close_soon(closed, lambda: asyncio.sleep(0))
    loop.close()


@pytest.mark.parametrize(("has_room", "expected"), [(True, [0, 1]), (False, [0])])
def test_items_are_made_ahead_where_there_is_room(has_room: bool, expected: list[int]) -> None:
    made: list[int] = []

    async def numbers() -> AsyncGenerator[int, None]:
        for number in range(4):
            made.append(number)
            yield number

    async def settle() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    with iterate(numbers, has_room=lambda: has_room) as items:
        assert next(items) == 0
        run(settle())
        assert made == expected
        assert list(items) == [1, 2, 3]


def test_a_forked_child_starts_its_own_engine() -> None:
    done = python("""
        import asyncio, os
        from lance_io.errors import ForkedRuntimeError
        from lance_io.runtime import cpu_pool, iterate, run

        async def pid():
            await asyncio.sleep(0)
            return os.getpid()

        async def numbers():
            try:
                for number in range(5):
                    yield number
            finally:
                await asyncio.sleep(0)

        assert run(pid()) == os.getpid()
        assert cpu_pool().submit(os.getpid).result() == os.getpid()
        items = iterate(numbers)
        assert next(items) == 0
        child = os.fork()
        if child == 0:
            assert run(pid()) == os.getpid()
            assert cpu_pool().submit(os.getpid).result() == os.getpid()
            assert list(iterate(numbers)) == [0, 1, 2, 3, 4]
            try:
                next(items)
            except ForkedRuntimeError:
                print("child done", flush=True)
            raise SystemExit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert run(pid()) == os.getpid()
        assert list(items) == [1, 2, 3, 4]
        """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "child done\n", "")


@contextmanager
def interrupted(code: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A program that has printed that it waits, and was sent Ctrl-C; what it prints from then on. It ends well."""
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(code)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes, text=True, cwd=CHECKOUT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        yield process, process.stdout
    assert process.returncode == 0


def test_ctrl_c_cancels_the_coroutine() -> None:
    code = """
        import asyncio
        from lance_io.runtime import run
        from tests.interrupting import keep_interrupts

        keep_interrupts()

        async def wait():
            try:
                print("waiting", flush=True)
                await asyncio.sleep(3600)
            finally:
                print("cancelled", flush=True)

        try:
            run(wait())
        except KeyboardInterrupt:
            print("interrupted " + str(run(asyncio.sleep(0, 7))), flush=True)
        """
    with interrupted(code) as (process, printed):
        assert process.stderr is not None
        assert sorted(printed) == ["cancelled\n", "interrupted 7\n"]
        assert process.stderr.read() == ""


def test_ctrl_c_ends_no_import_half_way(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("print('waiting', flush=True)\nassert input() == 'go on'\nwhole = True\n")
    code = f"""
        import sys
        from lance_io.runtime import load_modules_sync
        from tests.interrupting import keep_interrupts

        sys.path.insert(0, {str(tmp_path)!r})
        keep_interrupts()
        try:
            load_modules_sync("slow")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        load_modules_sync("slow")
        print(sys.modules["slow"].whole)
        """
    with interrupted(code) as (process, printed):
        assert printed.readline() == "interrupted\n"
        assert process.communicate("go on\n", SECONDS_MAX)[0] == "True\n"


def test_ctrl_c_ends_an_iteration() -> None:
    code = """
        import asyncio
        from lance_io.runtime import iterate, run
        from tests.interrupting import keep_interrupts

        keep_interrupts()

        async def numbers():
            try:
                print("waiting", flush=True)
                await asyncio.sleep(3600)
                yield 1
            finally:
                print("closed", flush=True)

        items = iterate(numbers)
        try:
            next(items)
        except KeyboardInterrupt:
            run(asyncio.sleep(0))
            print(list(items), flush=True)
        """
    with interrupted(code) as (_, printed):
        assert sorted(printed) == ["[]\n", "closed\n"]


# -- the pool --------------------------------------------------------------------------------------------------


def test_the_pool_is_one_per_process_and_as_wide_as_the_processors() -> None:
    runtime.use_cpus(1)  # another test may have made it, with fewer or more threads
    runtime.use_cpus(None)
    assert cpu_pool() is cpu_pool()
    assert cpu_pool()._max_workers == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("share", [1, 2])
def test_a_process_with_one_processor_starts_no_threads(tmp_path: Path, share: int) -> None:
    """Reads, scans and takes then cost what their caller's thread takes, and nothing else of the processors."""
    work = "table.to_table(filter='a < 0.5'), table.take(range(0, 1 << 20, 1 << 6))"
    assert (others_ns(work, share, tmp_path, num_files=1) < THREAD_NS) == (share == 1)


@pytest.mark.parametrize("num_rows", [100, 10_000])
def test_small_takes_start_no_threads(tmp_path: Path, num_rows: int) -> None:
    """A thread takes as long to start as a thousand rows to decode, however large the memory that is read into."""
    work = f"table.take(range(0, 1 << 20, {(1 << 20) // num_rows}))"
    assert (others_ns(work, 2, tmp_path, num_files=4) < THREAD_NS) == (num_rows == 100)


THREAD_NS = 100_000  # what a thread takes to start and end


def others_ns(work: str, share: int, folder: Path, num_files: int) -> int:
    """Processor time of all threads but the caller's, in ten calls of `work`, of a process that has a share of them."""
    values = pa.array(np.random.default_rng(3).random(1 << 20))
    lance.write_dataset(
        pa.table({"a": values, "b": values}), str(folder / "t.lance"), max_rows_per_file=(1 << 20) // num_files
    )
    code = f"""
        import time, sys
        import lance_io
        from lance_io import runtime

        def others_ns():
            return time.process_time_ns() - time.thread_time_ns()

        runtime.use_cpus(int(sys.argv[1]))
        table = lance_io.dataset(sys.argv[2])
        spent = []
        for _ in range(11):
            before = others_ns()
            {work}
            spent.append(others_ns() - before)
        print(sum(spent[1:]))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(share), str(folder / "t.lance")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True, cwd=CHECKOUT)
    return int(done.stdout)


LATE = """
import asyncio, sys, threading
import pyarrow as pa, lance_io

rows = pa.table({"a": range(200_000), "s": [str(number) for number in range(200_000)]})

async def awaited(uri):
    async with lance_io.AsyncDataset.open(uri) as table:
        found = await table.to_table(filter="a > 5")
        num_rows = 0
        async for batch in table.to_batches():
            num_rows += batch.num_rows
    batches = iter(rows.to_batches(max_chunksize=50_000))
    written = await lance_io.AsyncDataset.write(batches, uri + "2", schema=rows.schema)
    return found.num_rows, num_rows, await written.count_rows()

def work():
    threading.main_thread().join()
    lance_io.write_dataset(rows, sys.argv[1])
    table = lance_io.dataset(sys.argv[1])
    print(table.to_table(filter="a > 5").num_rows, table.take([1, 150_000])["a"].to_pylist())
    print(sum(batch.num_rows for batch in table.to_batches()), asyncio.run(awaited(sys.argv[1])))

threading.Thread(target=work).start()
"""


def test_a_thread_that_outlives_the_main_thread_reads_and_writes(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LATE, str(tmp_path / "t")], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.stdout, ran.stderr) == ("199994 [1, 150000]\n200000 (199994, 200000, 200000)\n", "")


class TestLastingPool:
    def test_results_and_errors_come_back(self) -> None:
        with LastingPool(2, "test") as pool:
            assert list(pool.map(str, range(50))) == [str(number) for number in range(50)]
            with pytest.raises(ZeroDivisionError):
                pool.submit(lambda: 1 // 0).result()

    def test_threads_start_as_they_are_needed(self) -> None:
        gate = threading.Event()
        with LastingPool(3, "test-needed") as pool:
            for _ in range(2):
                pool.submit(int).result()
            waiting = [pool.submit(gate.wait) for _ in range(5)]
            names = {thread.name for thread in threading.enumerate() if thread.name.startswith("test-needed")}
            assert names <= {f"test-needed_{number}" for number in range(3)} and len(names) == 3
            gate.set()
            assert all(one.result() for one in waiting)

    def test_what_was_taken_is_done_and_nothing_more_is_taken(self) -> None:
        gate, pool = threading.Event(), LastingPool(1, "test")
        first, second = pool.submit(gate.wait), pool.submit(int)
        pool.shutdown(wait=False)
        with pytest.raises(RuntimeError, match="shut down"):
            pool.submit(int)
        gate.set()
        pool.shutdown()
        assert (first.result(), second.result()) == (True, 0)

    def test_what_waits_can_be_cancelled(self) -> None:
        gate, started, pool = threading.Event(), threading.Event(), LastingPool(1, "test")
        first = pool.submit(lambda: (started.set(), gate.wait()))
        second = pool.submit(int)
        assert started.wait(60)
        pool.shutdown(wait=False, cancel_futures=True)
        gate.set()
        pool.shutdown()
        assert first.result()[1] and second.cancelled()

    def test_a_pool_that_is_dropped_ends_its_threads(self) -> None:
        pool = LastingPool(1, "test-dropped")
        pool.submit(int).result()
        [thread] = [thread for thread in threading.enumerate() if thread.name.startswith("test-dropped")]
        del pool
        thread.join(60)
        assert not thread.is_alive()

    def test_a_thread_whose_start_was_interrupted_is_ended_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(thread: threading.Thread) -> None:
            start(thread)
            raise KeyboardInterrupt

        start, pool = threading.Thread.start, LastingPool(2, "test-interrupted")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.submit(int)
        assert pool.submit(int).result() == 0
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("test-interrupted")]
        pool.shutdown()
        for thread in threads:
            thread.join(60)
        assert [thread.is_alive() for thread in threads] == [False, False]

    def test_a_thread_that_could_not_start_takes_no_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(thread: threading.Thread) -> None:
            raise KeyboardInterrupt

        with LastingPool(1, "test") as pool:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refused)
                with pytest.raises(KeyboardInterrupt):
                    pool.submit(int)
            assert pool.submit(int).result() == 0


def test_an_iterator_does_not_cross_a_fork() -> None:
    items = iterate(Source(3))
    assert items._pump is not None
    items._pump.pid = -1
    with pytest.raises(ForkedRuntimeError):
        next(items)
