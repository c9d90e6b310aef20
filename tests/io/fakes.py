"""Stores for tests of the scheduler: bytes in memory, answers when the test says so, everything written down."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.spans import Fetched, Ranges
from lance_io.store.api import ObjectMeta
from lance_io.store.profile import CLOUD, StoreProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.store.offers import Flow, OnRangesDone, OnRetry, WantedRange

_numbers = itertools.count()

PROFILE = replace(
    CLOUD,
    take_gap_bytes=4,
    scan_gap_bytes=16,
    take_read_bytes_max=100,
    scan_read_bytes_max=100,
    split_bytes=100,
    requests_start=4,
    requests_max=8,
)


def content(size_bytes: int, seed: int = 0) -> bytes:
    """Bytes that differ from place to place."""
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8).tobytes()


class FakeStore:
    """Answers each range by itself.

    held      True: answers wait until `release` is called
    failures  (key, start) -> error to raise instead of an answer
    log       (key, start, end) of every read, in the order in which they went out
    cancelled those that were cancelled
    stubborn  True: a read that is cancelled runs on until it is released
    """

    scheme = "fake"

    def __init__(self, files: dict[str, bytes], profile: StoreProfile = PROFILE) -> None:
        self.files = files
        self.profile = profile
        self.identity = f"fake-{next(_numbers)}"
        self.held = False
        self.stubborn = False
        self.failures: dict[tuple[str, int], BaseException] = {}
        self.log: list[tuple[str, int, int]] = []
        self.cancelled: list[tuple[str, int, int]] = []
        self.given: list[bytes] = []
        self.in_flight = 0
        self.in_flight_peak = 0
        self._gates: list[asyncio.Event] = []

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        async with _Flight(self, (key, start, end)):
            if (key, start) in self.failures:
                raise self.failures[key, start]
            self.given.append(self.files[key][start:end])
            return self.given[-1]

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[bytes, int, str | None]:
        size = len(self.files[key])
        async with _Flight(self, (key, -num_bytes, size)):
            return self.files[key][-num_bytes:], size, None

    async def get(self, key: str) -> tuple[bytes, ObjectMeta]:
        size = len(self.files[key])
        async with _Flight(self, (key, 0, size)):
            return self.files[key], ObjectMeta(key, size)

    def release(self, count: int | None = None) -> None:
        """Let the oldest `count` reads in flight answer (None: all)."""
        for gate in self._gates[:count]:
            gate.set()


class FakeStarted:
    """A range that a `FakeStartStore` has begun to read."""

    def __init__(self, store: FakeStartStore, wanted: WantedRange, on_done: OnRangesDone) -> None:
        key, start, end, self._memory, _, self.tag = wanted
        self._task = asyncio.ensure_future(store.get_range(key, start, end))
        self._task.add_done_callback(self._tell)
        self._on_done: OnRangesDone | None = on_done
        self.queue_s = 0.25

    def result(self) -> bytes | None:
        data = self._task.result()
        if self._memory is None:
            return data
        self._memory[:] = data
        return None

    def cancel(self) -> None:
        self._on_done = None
        self._task.cancel()

    def _tell(self, task: asyncio.Task[bytes]) -> None:
        if self._on_done is not None:
            self._on_done([self])


class FakeStartStore(FakeStore):
    """Begins reads without a task of the scheduler's; `received` is the memory that was given to them."""

    def __init__(self, files: dict[str, bytes], profile: StoreProfile = PROFILE) -> None:
        super().__init__(files, profile)
        self.received: list[memoryview] = []
        self.asked: list[tuple[Any, Any]] = []

    def start_ranges(
        self, requests: Sequence[WantedRange], on_done: OnRangesDone, on_retry: OnRetry
    ) -> list[FakeStarted]:
        self.received += [wanted.memory for wanted in requests if wanted.memory is not None]
        self.asked += [(wanted.operation, partial(on_retry, wanted.tag)) for wanted in requests]
        return [FakeStarted(self, wanted, on_done) for wanted in requests]


class FakeTogetherStore(FakeStartStore):
    """Reports all reads that end in one turn of the loop by one call."""

    def start_ranges(
        self, requests: Sequence[WantedRange], on_done: OnRangesDone, on_retry: OnRetry
    ) -> list[FakeStarted]:
        over: list[Any] = []

        def flush() -> None:
            reported, over[:] = [read for read in over if read._on_done is not None], []
            on_done(reported)

        def note(reads: Sequence[Any]) -> None:
            if not over:
                asyncio.get_running_loop().call_soon(flush)
            over.extend(reads)

        return super().start_ranges(requests, note, on_retry)


class FakeCachedStore(FakeTogetherStore):
    """Has a disk cache that knows ranges of "a" that begin at an even place; `finds` is what was looked for.

    finds_held  True: what was found is told when the test sets the futures in `finds`
    """

    def __init__(self, files: dict[str, bytes], profile: StoreProfile = PROFILE) -> None:
        super().__init__(files, profile)
        self.finds_held = False
        self.finds: list[tuple[list[WantedRange], Future[list[memoryview | None]]]] = []

    def may_be_cached(self, key: str, operation: Flow | None) -> bool:
        return key == "a"

    def find_ranges(self, wanted: Sequence[WantedRange]) -> Future[list[memoryview | None]]:
        future: Future[list[memoryview | None]] = Future()
        self.finds.append((list(wanted), future))
        if not self.finds_held:
            self.tell()
        return future

    def tell(self, error: BaseException | None = None) -> None:
        """Answer the last look."""
        wanted, future = self.finds[-1]
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result([self._copy(one) for one in wanted])

    def _copy(self, one: WantedRange) -> memoryview | None:
        data = memoryview(self.files[one.key])[one.start : one.end]
        if one.memory is None:
            return None if one.start % 2 else data
        one.memory[:] = data if one.start % 2 == 0 else bytes(len(data))  # anything may be there
        return None if one.start % 2 else one.memory


class _Flight:
    """One read on its way, until it is let go."""

    def __init__(self, store: FakeStore, read: tuple[str, int, int]) -> None:
        self.store = store
        self.read = read

    async def __aenter__(self) -> None:
        store = self.store
        store.log.append(self.read)
        store.in_flight += 1
        store.in_flight_peak = max(store.in_flight_peak, store.in_flight)
        gate = asyncio.Event()
        store._gates.append(gate)
        if not store.held:
            gate.set()
        try:
            await asyncio.sleep(0)
            await gate.wait()
        except asyncio.CancelledError:
            store.cancelled.append(self.read)
            if store.stubborn:
                await gate.wait()
            await self.__aexit__()
            raise
        finally:
            store._gates.remove(gate)

    async def __aexit__(self, *_: object) -> None:
        self.store.in_flight -= 1


class FakePlanStore(FakeStore):
    """Executes whole plans: `log` has one entry per call, from the first to the last byte."""

    async def read_ranges(self, key: str, ranges: Ranges, gap_bytes: int, read_bytes_max: int) -> Fetched:
        async with _Flight(self, (key, int(ranges.starts.min()), int(ranges.ends.max()))):
            lengths = ranges.ends - ranges.starts
            parts: list[Any] = [
                self.files[key][start:end] for start, end in zip(ranges.starts, ranges.ends, strict=True)
            ]
            return Fetched(b"".join(parts), np.cumsum(lengths) - lengths)
