"""The engine: one background thread with one event loop, and the ways into it.

    run(coro)        from plain code: wait for the result
    wrap(coro)       from a coroutine on any loop: await the result
    iterate(make)    from plain code: the items of an async generator that runs on the engine
    stream(make)     the same from a coroutine on any loop
    cpu_pool()       threads for decoding; kernels release the GIL, and the loop must not wait for them

Sessions, connections and schedulers belong to the loop that made them, so all of them live on the engine's loop,
whoever calls. A user's own loop (a notebook's, a web server's) is never re-entered, only told when a result is there.

Nothing starts at import. Thread and pool are made by the first call that needs them, made anew in a forked child
(which inherits neither), and shut down at interpreter exit. One crossing between threads costs 20 to 60
microseconds: cheap per call or per batch, wasteful per byte range.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import queue
import threading
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from lance_io.errors import ForkedRuntimeError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator

T = TypeVar("T")
Closer: TypeAlias = "Callable[[], Awaitable[None]]"

CLOSE_SECONDS_MAX: Final = 1.0  # interpreter exit waits this long for sessions to close, then leaves them
STREAM_CLOSE_SECONDS_MAX: Final = 5.0  # `close` of an iterator may run inside a garbage collection: never for ever


# -- the engine ------------------------------------------------------------------------------------------------


class _Engine:
    """A loop and the thread that runs it; with `loop` given, somebody else's loop that takes the engine's place."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self.closers: dict[object, Callable[[], Closer | None]] = {}
        self.closing = False  # no new calls
        self._stopped = False
        self._last_task: asyncio.Task[None] | None = None
        self.thread: threading.Thread | None = None
        if loop is None:
            self.thread = threading.Thread(target=self._serve, name="lance_io-engine", daemon=True)
            self.thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._stopped:
            # A SystemExit raised inside a call leaves the loop too, but it belongs to that call: it is its result.
            with suppress(KeyboardInterrupt, SystemExit):
                self.loop.run_forever()
        self.loop.close()

    @property
    def is_current(self) -> bool:
        """True on the thread that runs this engine's loop."""
        if self.thread is not None:
            return threading.get_ident() == self.thread.ident
        with suppress(RuntimeError):
            return asyncio.get_running_loop() is self.loop
        return False

    def shut_down(self) -> None:
        """Cancel what runs, close what was registered, end the thread; all within `CLOSE_SECONDS_MAX`."""
        thread = self.thread
        if thread is None or not thread.is_alive() or self.closing:
            return
        self.closing = True

        async def finish() -> None:
            calls = asyncio.all_tasks() - {asyncio.current_task(), self._last_task}
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            closers = [closer for closer in (find() for find in self.closers.values()) if closer is not None]
            await asyncio.gather(*(closer() for closer in closers), return_exceptions=True)
            await self.loop.shutdown_asyncgens()

        async def finish_in_time() -> None:
            try:
                await asyncio.wait_for(finish(), CLOSE_SECONDS_MAX)
            except TimeoutError:
                pass  # the process ends anyway; the other side sees its connections close
            finally:
                self._stopped = True
                self.loop.stop()

        def begin() -> None:
            self._last_task = self.loop.create_task(finish_in_time())

        self.loop.call_soon_threadsafe(begin)
        thread.join(2 * CLOSE_SECONDS_MAX)
        self.closers.clear()  # a weak reference that dies while modules are torn down complains


_lock = threading.Lock()
_engine: _Engine | None = None
_pool: ThreadPoolExecutor | None = None
_exit_registered = False


def _current_engine() -> _Engine:
    """The process's engine, started if it does not run yet."""
    global _engine, _exit_registered
    engine = _engine
    if engine is not None:
        return engine
    with _lock:
        if _engine is None:
            if not _exit_registered:
                atexit.register(_shut_down)
                _exit_registered = True
            _engine = _Engine()
        return _engine


def _shut_down() -> None:
    """At interpreter exit."""
    engine = _engine
    if engine is not None:
        engine.shut_down()


def _forget_engine() -> None:
    """In a forked child: the thread is not there. Nothing is closed: sockets and locks still belong to the parent."""
    global _lock, _engine, _pool
    engine, pool, _engine, _pool = _engine, _pool, None, None
    _lock = threading.Lock()
    if engine is not None or pool is not None:
        running = [] if engine is None else asyncio.all_tasks(engine.loop)
        _never_finalize((engine, pool, running))


def _never_finalize(inherited: object) -> None:
    """Leak what the parent is still using: finalizing it here would run `finally` blocks on the parent's sockets."""
    import ctypes  # only a forked child needs it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


os.register_at_fork(after_in_child=_forget_engine)


def on_engine_thread() -> bool:
    """True when called from the engine's own thread, where waiting for the engine would never end."""
    return _engine is not None and _engine.is_current


def engine_loop() -> asyncio.AbstractEventLoop:
    """The engine's loop, started if it does not run yet."""
    return _current_engine().loop


@contextmanager
def use_loop(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Inside the block `loop` takes the engine's place: for tests that want everything on one loop, without threads."""
    global _engine
    before, _engine = _engine, _Engine(loop)
    try:
        yield
    finally:
        _engine = before


def on_engine_close(closer: Closer) -> Callable[[], None]:
    """Have `await closer()` called on the engine's loop when the engine shuts down.

    Returns a function that takes the registration back. A bound method is held weakly, so registering does not keep
    its object alive. A forked child starts with no registrations.
    """
    engine, token = _current_engine(), object()

    def forget(_: object = None) -> None:
        engine.closers.pop(token, None)

    if hasattr(closer, "__self__"):
        engine.closers[token] = weakref.WeakMethod(closer, forget)
    else:
        engine.closers[token] = lambda: closer
    return forget


# -- one result ------------------------------------------------------------------------------------------------


class _Call(Generic[T]):
    """A coroutine on its way through the engine; `notify` is called on the engine's thread once it has ended."""

    def __init__(self, engine: _Engine, coro: Coroutine[Any, Any, T], notify: Callable[[], None]) -> None:
        self._engine = engine
        self._coro: Coroutine[Any, Any, T] | None = coro
        self._notify = notify
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False
        try:
            if engine.closing:
                raise RuntimeError("the interpreter is shutting down, and the lance_io engine with it")
            engine.loop.call_soon_threadsafe(self._start)
        except RuntimeError:  # or a loop that was closed from outside
            coro.close()
            raise

    def _start(self) -> None:
        coro, self._coro = self._coro, None
        assert coro is not None
        if self._cancelled:
            coro.close()
            return
        self._task = self._engine.loop.create_task(coro, context=self._context)
        self._task.add_done_callback(lambda _: self._notify())

    def cancel(self) -> None:
        """Cancel from any thread; harmless when it has ended."""

        def cancel_here() -> None:
            self._cancelled = True
            if self._task is not None:
                self._task.cancel()

        with suppress(RuntimeError):  # the loop is closed: so is the call
            self._engine.loop.call_soon_threadsafe(cancel_here)

    def result(self) -> T:
        """The result, or the error with the traceback it had on the engine."""
        task, self._task = self._task, None  # a raised error must not hold the task that holds the error
        assert task is not None
        if task.cancelled():  # not by the caller, who would not be here
            raise RuntimeError("the lance_io engine shut down, or cancelled this call, before it had a result")
        return task.result()


def run(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the engine and wait for its result, whatever loop the calling thread may be running.

    Context variables are those of the caller. Ctrl-C, or any exception raised into the waiting thread, cancels the
    coroutine and is passed on. Raises `RuntimeError` on the engine's own thread, where waiting would never end.
    """
    engine = _current_engine()
    if engine.is_current:
        coro.close()
        raise RuntimeError(
            "this is the synchronous API, called from the engine's own thread (inside an async callback); "
            "await the asynchronous API there instead"
        )
    ended = threading.Lock()
    ended.acquire()
    call = _Call(engine, coro, ended.release)
    try:
        ended.acquire()
    except BaseException:
        call.cancel()  # no orphan request keeps running
        raise
    return call.result()


async def wrap(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the engine and await its result from a coroutine on any loop.

    Cancelling the caller cancels the coroutine. On the engine's own loop it is simply awaited.
    """
    engine, loop = _current_engine(), asyncio.get_running_loop()
    if loop is engine.loop:
        return await coro
    ended: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        with suppress(RuntimeError):  # the caller's loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(_set_done, ended)

    call = _Call(engine, coro, tell)
    try:
        await ended
    except BaseException:
        call.cancel()
        raise
    return call.result()


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# -- many results ----------------------------------------------------------------------------------------------


class _End:
    """The last message of a pump: the source is exhausted, or failed."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def raise_stop(self, stop: type[Exception]) -> None:
        error, self.error = self.error, None
        try:
            raise stop if error is None else error
        finally:
            del error


_END: Final = object()


class _Pump(Generic[T]):
    """Runs an async generator on the engine, at most `ahead` finished items before what the consumer asked for."""

    def __init__(self, make: Callable[[], AsyncIterator[T]], ahead: int, post: Callable[[Any], None]) -> None:
        if ahead < 0:
            raise UsageError(f"ahead must not be negative, got {ahead}")
        self._engine = _current_engine()
        self._make = make
        self._post = post  # called on the engine's thread with each item, at last with an _End
        self._context = contextvars.copy_context()
        self._allowed = ahead  # items that may be made, less those made
        self._more: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.pid = os.getpid()
        self.ended = threading.Event()

    def ask(self) -> None:
        """Let one more item be made; the first call starts the source. From any thread."""
        if self.pid != os.getpid():
            raise ForkedRuntimeError(
                "this iterator was started before os.fork and cannot go on in the child; start a new one there"
            )
        self._engine.loop.call_soon_threadsafe(self._allow)

    def stop(self) -> None:
        """Cancel the source; `ended` is set once it has closed. From any thread, any number of times."""
        if self.pid == os.getpid():
            with suppress(RuntimeError):  # the loop is closed, and with it the source
                self._engine.loop.call_soon_threadsafe(self._stop)

    def wait_closed(self) -> None:
        """Wait until the source has closed, unless this is the thread that has to close it."""
        if self.pid == os.getpid() and not self._engine.is_current and not self._engine.closing:
            self.ended.wait(STREAM_CLOSE_SECONDS_MAX)

    def _allow(self) -> None:
        self._allowed += 1
        if self._more is not None:
            _set_done(self._more)
        if self._task is None and not self.ended.is_set():
            self._task = self._engine.loop.create_task(self._work(), context=self._context)
            self._task.add_done_callback(self._finish)

    def _stop(self) -> None:
        if self._task is None:
            self.ended.set()  # never started
        else:
            self._task.cancel()

    async def _work(self) -> None:
        source = self._make()
        try:
            while True:
                while self._allowed <= 0:
                    self._more = self._engine.loop.create_future()
                    await self._more
                item = await anext(source, _END)
                if item is _END:
                    return
                self._allowed -= 1
                self._post(item)
                del item
        finally:
            await _aclose(source)

    def _finish(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            error: BaseException | None = RuntimeError("this stream was closed, or the lance_io engine shut down")
        else:
            error = task.exception()
        self.ended.set()
        self._post(_End(error))


def iterate(make: Callable[[], AsyncIterator[T]], ahead: int = 1) -> EngineIterator[T]:
    """Iterate in plain code over an async generator that runs on the engine.

    make   makes the async generator; called on the engine when the first item is asked for
    ahead  how many finished items may wait while the caller works on one; 0 makes each on request
    """
    return EngineIterator(make, ahead)


async def _aclose(source: object) -> None:
    """Close an async generator; any other async iterator has nothing to close."""
    aclose = getattr(source, "aclose", None)
    if aclose is not None:
        await aclose()


class EngineIterator(Generic[T]):
    """What `iterate` returns.

    `close` (or leaving a `with` block) closes the generator and waits until it has; dropping the iterator only has it
    closed. An error of the source is raised where its item would have come. Raises `ForkedRuntimeError` in a child
    forked after iteration began.
    """

    def __init__(self, make: Callable[[], AsyncIterator[T]], ahead: int) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pump: _Pump[T] | None = _Pump(make, ahead, self._items.put)

    def __iter__(self) -> EngineIterator[T]:
        return self

    def __next__(self) -> T:
        pump = self._pump
        if pump is None:
            raise StopIteration
        if on_engine_thread():
            raise RuntimeError("a synchronous iterator cannot be advanced on the engine's own thread; use `async for`")
        try:
            pump.ask()
            item = self._items.get()
        except BaseException:
            self._drop()
            raise
        if isinstance(item, _End):
            self._pump = None
            item.raise_stop(StopIteration)
        result: T = item
        return result

    def close(self) -> None:
        """Close the source and wait until it has closed; harmless a second time."""
        pump = self._pump
        self._drop()
        if pump is not None:
            pump.wait_closed()

    def _drop(self) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.stop()

    def __enter__(self) -> EngineIterator[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_pump"):
            self._drop()


async def stream(make: Callable[[], AsyncIterator[T]], ahead: int = 1) -> AsyncGenerator[T, None]:
    """Iterate on any loop over an async generator that runs on the engine; parameters as for `iterate`.

    Closing the result (or cancelling its consumer) closes the source. On the engine's own loop the source is
    iterated directly, with nothing ahead.
    """
    loop = asyncio.get_running_loop()
    if loop is engine_loop():
        source = make()
        try:
            async for item in source:
                yield item
        finally:
            await _aclose(source)
        return
    inbox = _Inbox(loop)
    pump = _Pump(make, ahead, inbox.post)
    try:
        while True:
            pump.ask()
            item = await inbox.take()
            if isinstance(item, _End):
                item.raise_stop(StopAsyncIteration)
            yield item
            del item
    except StopAsyncIteration:
        return
    finally:
        pump.stop()


class _Inbox:
    """Messages from the engine's thread to one consumer on another loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._messages: deque[Any] = deque()
        self._arrived: asyncio.Future[None] | None = None

    def post(self, message: Any) -> None:
        """From the engine's thread."""
        self._messages.append(message)
        with suppress(RuntimeError):  # the consumer's loop has been closed
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._arrived is not None:
            _set_done(self._arrived)

    async def take(self) -> Any:
        """The next message, on the consumer's loop."""
        while not self._messages:
            self._arrived = self._loop.create_future()
            await self._arrived
        return self._messages.popleft()


# -- threads for decoding --------------------------------------------------------------------------------------


def cpu_count() -> int:
    """How many processors this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def cpu_pool() -> ThreadPoolExecutor:
    """The pool for work on the CPU, one thread per processor; a forked child gets its own."""
    global _pool
    pool = _pool
    if pool is not None:
        return pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(cpu_count(), thread_name_prefix="lance_io-cpu")
        return _pool
