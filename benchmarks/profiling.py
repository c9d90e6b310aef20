"""Where the time of a case goes, on our side: `cProfile` in every thread that we run, for some seconds.

A kernel is one line of the profile, so the kernels, the reads, the planning in Python and the waiting can be told
apart. The clock of `cProfile` makes Python functions look about twice as slow as they are and kernels as slow as they
are: a share that is small here is smaller still without it. (A sampling thread inside the process would cost less, but
it wakes up when others let go of the interpreter lock, so it sees kernels and system calls and little else.)
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Operation, operations_per_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.cases import Case

PROFILE_S = 4.0
LINES = 32
WAITS = ("'acquire' of '_thread.lock'", "'get' of '_queue.SimpleQueue'", "_acquire_restore")
ROOT = Path(__file__).resolve().parents[1]

CallStats = tuple[int, int, float, float, Any]  # primitive calls, calls, own seconds, total seconds, callers
Place = tuple[str, int, str]  # file, line, function


@contextmanager
def profiled_threads() -> Iterator[list[cProfile.Profile]]:
    """Give every thread that starts in the block a profile, which the list gains.

    Python 3.11 profiles thread by thread; from 3.12 on a profile sees the calls of all of them by itself.
    """
    profiles: list[cProfile.Profile] = []

    def begin(frame: object, event: str, argument: object) -> None:
        del frame, event, argument
        profile = cProfile.Profile()
        profiles.append(profile)
        profile.enable()  # takes the place of this function

    if sys.version_info < (3, 12):
        threading.setprofile(begin)
    try:
        yield profiles
    finally:
        threading.setprofile(None)


def repeat(operation: Operation, seconds: float) -> tuple[int, float]:
    """Run for about so long; returns how often, and the seconds that it took."""
    started = time.perf_counter()
    number = 0
    while (passed := time.perf_counter() - started) < seconds or not number:
        operation(number)
        number += 1
    return number, passed


def profile_text(case: Case, seconds: float = PROFILE_S) -> str:
    """The profile of our side of `case`, as text."""
    if case.profiled is None:
        return f"{case.name}: a fresh process does the work; try python -X importtime or a memory profiler\n"
    with profiled_threads() as others:
        operation = case.profiled()
        operations_per_turn(operation)  # warms, and starts the threads
        often, passed = repeat(operation, seconds / 4)
        undisturbed_ms = passed / often * 1e3
        for profile in others:
            profile.clear()
        own = cProfile.Profile()
        own.enable()
        often, passed = repeat(operation, seconds)
        own.disable()
    heading = f"{case.name}: {undisturbed_ms:.3f} ms each, {passed / often * 1e3:.3f} ms under the profiler\n"
    other_threads = f"Other threads ({len(others)})"
    return "\n".join([heading, "Calling thread", calls_text([own], often), other_threads, calls_text(others, often)])


def calls_text(profiles: list[cProfile.Profile], often: int) -> str:
    """The calls that took most of the time themselves: count and microseconds per operation, waiting in one line."""
    profiles = [profile for profile in profiles if profile.getstats()]  # pstats refuses what has seen no call
    if not profiles:
        return "  none\n"
    merged = pstats.Stats(profiles[0])
    for profile in profiles[1:]:
        merged.add(profile)
    stats: dict[Place, CallStats] = merged.stats  # type: ignore[attr-defined]
    waiting_s, rows = 0.0, []
    for (filename, number, name), (_, calls, own_s, total_s, _) in stats.items():
        if any(wait in name for wait in WAITS):
            waiting_s += own_s
            continue
        where = name if filename == "~" else f"{short(filename)}:{number} {name}"
        rows.append((own_s, f"{own_s / often * 1e6:12.1f} {total_s / often * 1e6:12.1f} {calls / often:9.1f}  {where}"))
    rows.sort(reverse=True)
    heading = f"{'own us':>12} {'total us':>12} {'calls':>9}"
    waiting = f"{waiting_s / often * 1e6:12.1f} {'':12} {'':9}  (waiting for other threads)"
    return "\n".join([heading, waiting, *(text for _, text in rows[:LINES]), ""])


def short(filename: str) -> str:
    """A file name without what differs from machine to machine."""
    path = Path(filename)
    if "site-packages" in path.parts:
        return "/".join(path.parts[path.parts.index("site-packages") + 1 :])
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
