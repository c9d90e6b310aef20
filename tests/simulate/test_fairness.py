"""Processes that append to one table for as long as they can: each gets its share of the versions.

The real commit loop on a virtual clock. Every request takes a drawn time, as does the making of files in between;
each writer has a process of its own, so that none is told what another did.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from lance_io.commit.commit_queue import CommitQueues
from lance_io.commit.target import CommitTarget, SystemClock
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from lance_io.testing.latency import run_virtual
from lance_io.testing.wrap import Request, WrappedStore
from tests.commit.tables import Sample, commit_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from lance_io.store.api import ObjectStore

    T = TypeVar("T")

REQUEST_S = 0.001  # on average
FILES_S = 0.002  # between the opening of the table and the commit, on average


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


class DrawnClock(SystemClock):
    """The loop's time, and chance that is the same in each run."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def random(self) -> float:
        return self.chance.random()

    def drawn_s(self, mean_s: float) -> float:
        """A time that differs by a third from its mean, mostly."""
        return self.chance.gammavariate(9, mean_s / 9)


class DrawnStore(WrappedStore):
    """Requests take drawn times."""

    def __init__(self, inner: ObjectStore, clock: DrawnClock) -> None:
        super().__init__(inner)
        self._clock = clock

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self._clock.drawn_s(REQUEST_S))
        return await send()


async def appended(
    sample: Sample, num_writers: int, num_versions: int, seed: int, max_retries: int | None = None
) -> list[int]:
    """How many versions each writer made while all made so many."""
    clock = DrawnClock(random.Random(seed))
    store = DrawnStore(MemoryStore(), clock)
    place = Location(store, "t", "memory://t")
    created = await sample.create(CommitTarget(place, clock=clock, queues=CommitQueues()))
    newest, counts = created.manifest, [0] * num_writers

    async def write(number: int) -> None:
        nonlocal newest
        target = CommitTarget(place, clock=clock, queues=CommitQueues())
        while newest.version <= num_versions:
            base = newest
            await asyncio.sleep(clock.drawn_s(FILES_S))
            done = await commit_async(target, sample.append(base.version), base=base, max_retries=max_retries)
            counts[number] += 1
            newest = max(newest, done.manifest, key=lambda manifest: manifest.version)

    await asyncio.gather(*map(write, range(num_writers)))
    return counts


@pytest.mark.parametrize(("num_writers", "num_versions"), [(3, 150), (8, 240)])
def test_each_process_gets_half_of_an_equal_share(sample: Sample, num_writers: int, num_versions: int) -> None:
    counts, _ = run_virtual(lambda: appended(sample, num_writers, num_versions, seed=num_writers))
    assert min(counts) >= sum(counts) / num_writers / 2, counts


def test_commits_of_few_attempts_do_not_give_up_in_a_crowd(sample: Sample) -> None:
    counts, _ = run_virtual(lambda: appended(sample, 32, 640, seed=32, max_retries=20))
    assert sum(counts) >= 640


def test_a_process_that_is_alone_waits_for_nobody(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.commit.commit_loop.Pause", None)
    counts, _ = run_virtual(lambda: appended(sample, 1, 80, seed=1))
    assert counts == [80]
