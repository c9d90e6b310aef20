"""Measure the tests of `make unit` and write those over a second to tests/slow_tests.json, which marks them `slow`.

    make slow-tests        some minutes; one process, so that tests do not slow each other down

Seconds are of processor time, of the test and of the processes that it starts: a busy machine makes no test slow.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
LIST: Final = ROOT / "tests" / "slow_tests.json"
SLOW_S: Final = 1.0
MOST: Final = 0.02  # of the cases


class Stopwatch:
    """A plugin that records the time of each test; `seconds` by the test's id."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item):  # type: ignore[no-untyped-def]
        """See pytest."""
        before = _processor_s()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = _processor_s() - before


def _processor_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main(arguments: list[str]) -> None:
    """See the module's docstring."""
    watch = Stopwatch()
    status = pytest.main(["-q", "-p", "no:xdist", *arguments], plugins=[watch])
    if status:
        sys.exit(status)
    longest = sorted(watch.seconds.items(), key=lambda pair: -pair[1])[: int(len(watch.seconds) * MOST)]
    slow = {name: round(seconds, 1) for name, seconds in longest if seconds >= SLOW_S}
    LIST.write_text(json.dumps({"cases": len(watch.seconds), "seconds": dict(sorted(slow.items()))}, indent=1) + "\n")
    print(
        f"{len(slow)} of {len(watch.seconds)} tests take over {SLOW_S:.0f} s, {sum(slow.values()):.0f} s of "
        f"{sum(watch.seconds.values()):.0f} s"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
