"""The engine: one background thread with one event loop, and the ways into it.

    run(coro)        from plain code: wait for the result
    wrap(coro)       from a coroutine on any loop: await the result
    begin(coro, f)   from anywhere: run in the background, and call f at the end
    iterate(make)    from plain code: the items of an async generator that runs on the engine
    stream(make)     the same from a coroutine on any loop
    cpu_pool()       threads for decoding; kernels release the GIL, and the loop must not wait for them
    in_thread(f)     run a function that may block or take long
    load_modules(...)  import modules that take long to import
    load_modules_sync(...)  the same from plain code; Ctrl-C cannot interrupt an import half way
    within(s, coro)  await a coroutine with a deadline in seconds
    to_the_end(coro) run a coroutine to its end, even if the caller is cancelled
    wait_until_done(future)  wait for work of another thread, whether it succeeds or fails

Sessions, connections and schedulers belong to the loop that created them, so all of them live on the engine's loop. A
user's own loop (a notebook's, a web server's) is never re-entered, only notified of results.

Nothing starts at import. The first call that needs them starts the thread and the pools; a forked child, which inherits
neither, starts its own; the interpreter's exit shuts them down. One crossing between threads costs 20 to 60
microseconds: cheap per call or per batch, wasteful per byte range.
"""

from __future__ import annotations

from lance_io.runtime.calls import begin, check_not_on_engine, run, set_done, to_the_end, wait_until_done, wrap
from lance_io.runtime.deadlines import seconds, within, within_each
from lance_io.runtime.engine import close_soon, engine_loop, on_engine_close, on_engine_thread, use_loop
from lance_io.runtime.pool import (
    begin_driving,
    cpu_count,
    cpu_pool,
    driven_in_thread,
    in_cpu_pool,
    in_thread,
    load_modules,
    load_modules_sync,
    use_cpus,
)
from lance_io.runtime.processors import memory_limit_bytes, processors
from lance_io.runtime.streams import EngineIterator, iterate, stream

__all__ = [
    # one result
    "begin",
    "check_not_on_engine",
    "run",
    "set_done",
    "to_the_end",
    "wait_until_done",
    "wrap",
    # deadlines
    "seconds",
    "within",
    "within_each",
    # many results
    "EngineIterator",
    "iterate",
    "stream",
    # work on the CPU
    "begin_driving",
    "driven_in_thread",
    "cpu_count",
    "cpu_pool",
    "in_cpu_pool",
    "in_thread",
    "load_modules",
    "load_modules_sync",
    "processors",
    "use_cpus",
    # memory
    "memory_limit_bytes",
    # the engine itself
    "engine_loop",
    "close_soon",
    "on_engine_close",
    "on_engine_thread",
    "use_loop",
]
