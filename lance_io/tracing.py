"""Tracing: events of tables, and durations of calls. Names are those of pylance.

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

WAITING_MAX: Final = 65_536  # events in the queue of a callback

_logger = get_logger(__name__)


def capture_trace_events(callback: Callable[[TraceEvent], object]) -> Callable[[], None]:
    """Call a function with every `TraceEvent` from now on, until the process ends.

    A separate thread calls it, in the order of the events, so that traced calls do not wait. Exceptions of the callback
    are logged. At most 65,536 events wait in the queue of a slow callback; further events are dropped, and their number
    is logged.

    Args:
        callback: Called with each event.

    Returns:
        A function that ends the capture after all events so far. It also runs when the process exits.
    """
    waiting: Queue[TraceEvent | None] = Queue(WAITING_MAX)
    dropped = count(1)
    ended = (
        threading.Event()
    )  # set if the callback calls `stop`: its own thread empties the queue, so it must not wait for room there

    def enqueue(event: TraceEvent) -> None:
        try:
            waiting.put_nowait(event)
        except Full:
            number = next(dropped)
            if number & (number - 1) == 0:  # 1, 2, 4 ...: a message for each event would slow the program further
                _logger.warning("a callback for trace events is too slow: %d dropped so far", number)

    def deliver() -> None:
        while (event := waiting.get()) is not None:
            try:
                callback(event)
            except Exception:  # of any class: delivery goes on with the next event
                _logger.exception("a callback for trace events failed")
            if ended.is_set() and waiting.empty():
                return

    thread = threading.Thread(target=deliver, name="lance_io trace events", daemon=True)
    thread.start()
    stop_listening = listen(enqueue)

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
    """Write every call from now on to a trace file for chrome://tracing and Perfetto.

    Every call is one slice of its thread, with its requests and bytes.

    Args:
        file: Path of the file; None for `trace-<microseconds>.json` in the current folder.

    Returns:
        A function that completes the file. It also runs when the process exits.

    Raises:
        OSError: The file cannot be created.
    """
    path = file if file is not None else f"./trace-{time.time_ns() // 1000}.json"
    began, lock, process_id = time.perf_counter(), threading.Lock(), os.getpid()
    trace_file = open(path, "w", encoding="utf-8")  # until `finish`
    trace_file.write(
        f"[\n{json.dumps({'ph': 'M', 'pid': process_id, 'name': 'process_name', 'args': {'name': 'lance_io'}})}"
    )
    threads: set[int] = set()

    def write_line(values: dict[str, Any]) -> None:
        trace_file.write(f",\n{json.dumps(values)}")

    def write_call(metrics: CallMetrics) -> None:
        end, thread = time.perf_counter(), threading.get_native_id()
        with lock:
            if trace_file.closed or os.getpid() != process_id:  # a forked child has a copy of the unwritten buffer
                return
            if thread not in threads:
                threads.add(thread)
                thread_args = {"name": threading.current_thread().name}
                write_line({"ph": "M", "pid": process_id, "tid": thread, "name": "thread_name", "args": thread_args})
            write_line(
                {
                    "ph": "X",
                    "pid": process_id,
                    "tid": thread,
                    "name": metrics.call,
                    "cat": "lance_io",
                    "ts": max(0.0, round((end - metrics.seconds - began) * 1e6, 3)),
                    "dur": round(metrics.seconds * 1e6, 3),
                    "args": {
                        "failed": metrics.failed,
                        "rounds": metrics.rounds,
                        "requests": metrics.num_requests,
                        "bytes_read": metrics.bytes_read,
                        "retries": metrics.retries,
                    },
                }
            )

    stop_watching = on_call(write_call)

    def finish() -> None:
        atexit.unregister(finish)
        stop_watching()
        with lock:
            if not trace_file.closed and os.getpid() == process_id:
                trace_file.write("\n]\n")
                trace_file.close()

    atexit.register(finish)
    return finish
