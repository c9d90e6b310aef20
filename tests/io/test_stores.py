"""The scheduler on the real stores, on the engine: the same answers as slicing the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from lance_io.errors import FormatError, NotFound
from lance_io.io.scheduler import ReadScheduler
from lance_io.io.stats import io_stats
from lance_io.runtime import run
from lance_io.spans import Ranges
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.url import resolve_uri
from lance_io.testing.latency import LatencyStore, run_virtual
from tests.io.fakes import content

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lance_io.spans import Fetched
    from lance_io.store.api import ObjectStore

BLOB = content(1 << 18)


@pytest.fixture(params=["memory", "local", "s3"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ObjectStore, str]]:
    """A store with one object, and its key."""
    if request.param == "local":
        (tmp_path / "x.lance").write_bytes(BLOB)
        yield LocalStore(), str(tmp_path / "x.lance")
        return
    store, key = MemoryStore(), "data/x.lance"
    if request.param == "s3":
        place = resolve_uri(request.getfixturevalue("s3_uri"), request.getfixturevalue("s3").options())
        store, key = place.store, f"{place.path}/x.lance"
    run(store.put(key, BLOB))
    yield store, key
    run(store.aclose())


@pytest.mark.parametrize("merge", ["take", "scan"])
def test_scattered_ranges_of_several_columns(stored: tuple[ObjectStore, str], merge: str) -> None:
    store, key = stored
    rng = np.random.default_rng(3)
    columns = []
    for _ in range(5):
        starts = rng.integers(0, len(BLOB) - 200, 300)
        columns.append(Ranges(starts, starts + rng.integers(0, 200, 300)))

    async def read() -> list[Fetched]:
        async with ReadScheduler(store, merge=merge) as scheduler:
            file = scheduler.file(key, size_bytes=len(BLOB))
            handles = [file.submit(column) for column in columns]
            return [await handle for handle in handles]

    with io_stats() as seen:
        answers = run(read())
    for column, answer in zip(columns, answers, strict=True):
        for index, (start, end) in enumerate(zip(column.starts.tolist(), column.ends.tolist(), strict=True)):
            assert bytes(answer.piece(index, end - start)) == BLOB[start:end]
    assert (seen.num_ranges, seen.rounds) == (1500, 1)


def test_errors_of_the_store_come_through(stored: tuple[ObjectStore, str]) -> None:
    store, key = stored

    async def read(key: str, wanted: Ranges) -> Fetched:
        answer: Fetched = await ReadScheduler(store).file(key).submit(wanted)
        return answer

    with pytest.raises(NotFound):
        run(read(key + ".missing", Ranges.of((0, 5))))
    with pytest.raises(FormatError):
        run(read(key, Ranges.of((0, 5), (len(BLOB) - 5, len(BLOB) + 5))))


@pytest.mark.parametrize(("requests_max", "rounds"), [(32, 1), (8, 4)])
def test_dependent_rounds_on_a_store_with_latency(requests_max: int, rounds: int) -> None:
    async def read() -> None:
        store = MemoryStore()
        await store.put("x", BLOB)
        slow = LatencyStore(store)
        scheduler = ReadScheduler(slow, merge="take", requests_max=requests_max, gap_bytes_max=0, read_bytes_max=4096)
        handles = [scheduler.file("x").submit(Ranges.of((4096 * i, 4096 * i + 100))) for i in range(32)]
        for handle in handles:
            await handle
        assert scheduler.stats.num_reads == 32

    assert run_virtual(read)[1] == rounds
