"""Where the time of a case goes, on our side.

Two views, because each is blind to something: `cProfile` counts every call of the calling thread (and slows short calls
down), the sampler looks at all threads a thousand times a second and costs nothing, but sees only Python lines; a line
that calls a kernel stands for the kernel.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Operation, operations_per_turn

if TYPE_CHECKING:
    from types import FrameType

    from benchmarks.cases import Case

PROFILE_S = 3.0
SAMPLE_S = 0.001
LINES = 28
ROOT = Path(__file__).resolve().parents[1]


class Sampler:
    """Counts what every other thread is doing while it is entered: line and function of the innermost frame."""

    def __init__(self) -> None:
        self.places: Counter[str] = Counter()
        self.looks = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        me = threading.get_ident()
        while not self._done.wait(SAMPLE_S):
            self.looks += 1
            for thread, frame in sys._current_frames().items():
                if thread != me:
                    self.places[place(frame)] += 1


def place(frame: FrameType) -> str:
    """`file:line function` of a frame, the file as seen from the checkout."""
    code = frame.f_code
    return f"{short(code.co_filename)}:{frame.f_lineno} {code.co_qualname}"


def short(filename: str) -> str:
    """A file name without what differs from machine to machine."""
    path = Path(filename)
    if "site-packages" in path.parts:
        return "/".join(path.parts[path.parts.index("site-packages") + 1 :])
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def repeat(operation: Operation, seconds: float) -> tuple[int, float]:
    """Run for about so long; returns how often, and the seconds that it took."""
    started = time.perf_counter()
    number = 0
    while (passed := time.perf_counter() - started) < seconds or not number:
        operation(number)
        number += 1
    return number, passed


def profile_text(case: Case, seconds: float = PROFILE_S) -> str:
    """Both views of our side of `case`, as text."""
    if case.profiled is None:
        return f"{case.name}: a fresh process does the work; try python -X importtime or a memory profiler\n"
    operation = case.profiled()
    operations_per_turn(operation)  # warm

    with Sampler() as sampler:
        often, passed = repeat(operation, seconds)
    out = io.StringIO()
    print(f"{case.name}: {passed / often * 1e3:.3f} ms each\n\nAll threads, share of {sampler.looks} looks:", file=out)
    for where, count in sampler.places.most_common(LINES):
        print(f"  {count / max(sampler.looks, 1):6.1%}  {where}", file=out)

    profile = cProfile.Profile()
    profile.enable()
    often, passed = repeat(operation, seconds)
    profile.disable()
    print(f"\nCalls of the calling thread, {often} operations, {passed / often * 1e3:.3f} ms each:", file=out)
    print(calls_text(profile, often), file=out)
    return out.getvalue()


def calls_text(profile: cProfile.Profile, often: int) -> str:
    """The calls that took most of the time themselves: count and microseconds per operation."""
    stats = pstats.Stats(profile)
    rows = []
    for (filename, number, name), (_, calls, own_s, total_s, _) in stats.stats.items():  # type: ignore[attr-defined]
        where = name if filename == "~" else f"{short(filename)}:{number} {name}"
        rows.append(
            (own_s, f"  {own_s / often * 1e6:10.1f} {total_s / often * 1e6:10.1f} {calls / often:9.1f}  {where}")
        )
    rows.sort(reverse=True)
    heading = f"  {'own us':>10} {'total us':>10} {'calls':>9}"
    return "\n".join([heading, *(text for _, text in rows[:LINES])])
