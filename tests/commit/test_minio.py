"""Commits on a real S3 server, beside pylance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import lance
import pytest

from lance_io.commit.opening import open_place
from lance_io.commit.steps import drive
from lance_io.commit.target import CommitTarget
from lance_io.errors import AlreadyExists
from tests.commit.tables import ROWS, Sample, commit_later

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from servers import S3Server


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


@pytest.fixture
async def target(s3: S3Server, s3_uri: str) -> AsyncIterator[CommitTarget]:
    place, handler = open_place(s3_uri, s3.options())
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

    ours = [commit_later(target, sample.append(1)) for _ in range(5)]
    done = await asyncio.gather(*ours, *(asyncio.to_thread(pylance) for _ in range(2)))
    assert len(done) == 7
    newest = await drive(target.handler.find_latest(target.place))
    assert newest.version == 8
    table = await asyncio.to_thread(lambda: lance.dataset(s3_uri, storage_options=s3.options()).to_table())
    assert table.num_rows == 8 * ROWS
    names = [meta.name async for meta in target.place.store.list(target.place.key("_transactions", ""))]
    assert len(names) == 8
    left = [meta.name async for meta in target.place.store.list(target.place.key("_versions", ""))]
    assert len(left) == 8  # neither a hint nor a probe
