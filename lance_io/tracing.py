"""What happens to tables, and what calls take, for whoever traces a program; names are pylance's.

stop = lance_io.tracing.capture_trace_events(print)         every event, as it happens
finish = lance_io.tracing.trace_to_chrome(file="t.json")    calls, for chrome://tracing or Perfetto
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from itertools import count
from queue import Full, Queue
from typing import TYPE_CHECKING, Any, Final

from lance_io.io.call_metrics import CallMetrics, on_call
from lance_io.io.trace_events import TraceEvent, listen
from lance_io.redaction import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TraceEvent", "capture_trace_events", "trace_to_chrome"]

WAITING_MAX: Final = 65_536  # events that a callback has not been given yet

_logger = get_logger(__name__)


def capture_trace_events(callback: Callable[[TraceEvent], object]) -> Callable[[], None]:
    """Have `callback` called with every `TraceEvent` from now on, until the process ends.

    A thread of its own calls it, in the order of the events, so that no call waits for it. What it raises is logged.
    Of a callback that is too slow 65,536 events wait; those that come then are left out, and their number is logged.
    Gives what ends that, after all events until then; it is called when the process exits, too.
    """
    waiting: Queue[TraceEvent | None] = Queue(WAITING_MAX)
    left_out = count(1)
    ended = threading.Event()  # by the callback itself, which cannot wait for room in its own queue

    def wait(event: TraceEvent) -> None:
        try:
            waiting.put_nowait(event)
        except Full:
            number = next(left_out)
            if number & (number - 1) == 0:  # 1, 2, 4 ...: a message for each would make it worse
                _logger.warning("a callback for trace events is too slow: %d left out so far", number)

    def hand_over() -> None:
        while (event := waiting.get()) is not None:
            try:
                callback(event)
            except Exception:  # whatever it is, the others are still to come
                _logger.exception("a callback for trace events failed")
            if ended.is_set() and waiting.empty():
                return

    thread = threading.Thread(target=hand_over, name="lance_io trace events", daemon=True)
    thread.start()
    stop_listening = listen(wait)

    def stop() -> None:
        atexit.unregister(stop)
        stop_listening()
        if thread is threading.current_thread():
            ended.set()
        else:
            waiting.put(None)
            thread.join()

    atexit.register(stop)
    return stop


def trace_to_chrome(*, file: str | None = None) -> Callable[[], None]:
    """Write what every call from now on takes to a file that chrome://tracing and Perfetto open.

    file  where to; None for `trace-<microseconds>.json` in the current folder
    Every call is one slice of its thread, with its requests and bytes. Gives what ends the file, which is done when the
    process exits, too. Raises `OSError` where the file cannot be made.
    """
    path = file if file is not None else f"./trace-{time.time_ns() // 1000}.json"
    began, lock, process = time.perf_counter(), threading.Lock(), os.getpid()
    written = open(path, "w", encoding="utf-8")  # until `finish`
    written.write(f"[\n{json.dumps({'ph': 'M', 'pid': process, 'name': 'process_name', 'args': {'name': 'lance_io'}})}")
    threads: set[int] = set()

    def line(values: dict[str, Any]) -> None:
        written.write(f",\n{json.dumps(values)}")

    def note(told: CallMetrics) -> None:
        end, thread = time.perf_counter(), threading.get_native_id()
        with lock:
            if written.closed or os.getpid() != process:  # a forked child has a copy of what is not yet written
                return
            if thread not in threads:
                threads.add(thread)
                named = {"name": threading.current_thread().name}
                line({"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": named})
            line(
                {
                    "ph": "X",
                    "pid": process,
                    "tid": thread,
                    "name": told.call,
                    "cat": "lance_io",
                    "ts": max(0.0, round((end - told.seconds - began) * 1e6, 3)),
                    "dur": round(told.seconds * 1e6, 3),
                    "args": {
                        "failed": told.failed,
                        "rounds": told.rounds,
                        "requests": told.num_requests,
                        "bytes_read": told.bytes_read,
                        "retries": told.retries,
                    },
                }
            )

    stop_watching = on_call(note)

    def finish() -> None:
        atexit.unregister(finish)
        stop_watching()
        with lock:
            if not written.closed and os.getpid() == process:
                written.write("\n]\n")
                written.close()

    atexit.register(finish)
    return finish
