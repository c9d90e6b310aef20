"""Commits on a real S3 server, beside pylance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import lance
import pytest

from lance_io.commit.table_location import open_location
from lance_io.commit.target import CommitTarget
from lance_io.errors import AlreadyExists
from lance_io.plans.plan import drive_async
from tests.commit.tables import ROWS, Sample, commit_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from tests.servers import S3Server


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


@pytest.fixture
async def target(s3: S3Server, s3_uri: str) -> AsyncIterator[CommitTarget]:
    place, handler = open_location(s3_uri, s3.options())
    yield CommitTarget(place, handler)
    await place.store.aclose()


async def test_writers_of_both_kinds_lose_nothing(
    target: CommitTarget, sample: Sample, s3: S3Server, s3_uri: str
) -> None:
    await sample.create(target)
    with pytest.raises(AlreadyExists):
        await sample.create(target)

    def pylance() -> Any:
        dataset = lance.dataset(s3_uri, storage_options=s3.options())
        return lance.write_dataset(dataset.to_table(limit=ROWS), dataset, mode="append", storage_options=s3.options())

    appends = [sample.append(1) for _ in range(5)]
    await sample.place_files(target.location, *appends)
    ours = [commit_async(target, each) for each in appends]
    done = await asyncio.gather(*ours, *(asyncio.to_thread(pylance) for _ in range(2)))
    assert len(done) == 7
    newest = await drive_async(target.handler.find_latest(target.location))
    assert newest.version == 8
    table = await asyncio.to_thread(lambda: lance.dataset(s3_uri, storage_options=s3.options()).to_table())
    assert table.num_rows == 8 * ROWS
    names = [meta.name async for meta in target.location.store.list(target.location.key("_transactions", ""))]
    assert len(names) == 8
    left = [meta.name async for meta in target.location.store.list(target.location.key("_versions", ""))]
    assert len(left) == 8  # neither a hint nor a probe


async def test_writers_of_one_process_make_one_attempt_each(
    target: CommitTarget, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lance_io.commit.commit_queue.LEASE_S", 100.0)
    created = await sample.create(target)
    stats = target.location.store.stats
    before = stats.snapshot()
    done = await asyncio.gather(*(commit_async(target, sample.append(1), base=created.manifest) for _ in range(6)))
    assert [each.attempts for each in done] == [1] * 6
    assert (stats.snapshot() - before)["put_create"].requests == 6
    assert max(done, key=lambda each: each.manifest.version).manifest.fragments.ids == list(range(7))


async def test_a_listing_recognises_what_a_put_has_made(target: CommitTarget, sample: Sample) -> None:
    """So what commits of one process tell each other can be joined to what each of them has listed."""
    await sample.create(target)
    first = await drive_async(target.handler.find_latest(target.location))
    with target.queues.commit(target.location, target.clock) as watcher:
        for version in (1, 2):
            await commit_async(target, sample.append(version))
        told = watcher.commits_after(first)
    assert told is not None
    assert [made.file.version for made in told.versions] == [2, 3]
