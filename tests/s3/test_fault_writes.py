"""Writes through a proxy before MinIO that cuts, delays and resets connections, by a seeded chance.

What a write that ended well has written is there once, what one that failed for certain has written is not there, and
a commit whose end nobody knows can be made again. `LANCE_IO_SIMULATE` is the size.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import lance_io
from lance_io.dataset.aio import AsyncDataset
from lance_io.dataset.session import Session
from lance_io.dataset.write.commits import commit_async
from lance_io.dataset.write.entry import write_fragments_async
from lance_io.errors import CommitUnknownError, LanceError
from tests.s3.proxy import FaultyProxy
from tests.simulate.world import SIZE
from tests.simulate.writers import row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from servers import S3Server

APPENDS = 10 * SIZE
TRIES_MAX = 60


@pytest.fixture
def faulty(s3: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint, seed=7) as proxy:
        yield proxy


def impatient(s3: S3Server, proxy: FaultyProxy) -> dict[str, str]:
    """Options of a client that soon gives up, so that failures are seen."""
    return s3.options(aws_endpoint=proxy.endpoint, client_max_retries="1", request_timeout="10s")


def found(s3: S3Server, uri: str) -> tuple[int, list[int]]:
    """Version and rows, by a way where nothing fails."""
    table = lance_io.dataset(uri, storage_options=s3.options())
    return table.version, sorted(table.to_table()["a"].to_pylist())


async def until_it_goes(work: Callable[[], Awaitable[Any]]) -> Any:
    """Its result, however often it takes."""
    for _ in range(TRIES_MAX):
        try:
            return await work()
        except LanceError as error:
            last = error
    raise last


async def test_appends_end_well_or_clearly(s3: S3Server, s3_uri: str, faulty: FaultyProxy) -> None:
    lance_io.write_dataset(row(-1), s3_uri, storage_options=s3.options())
    how: dict[str, Any] = {"mode": "append", "storage_options": impatient(s3, faulty), "session": Session()}
    done, unknown = [-1], []
    for number in range(APPENDS):
        try:
            await AsyncDataset.write(row(number), s3_uri, **how)
            done.append(number)
        except CommitUnknownError:
            unknown.append(number)
        except LanceError:
            pass
    assert {"refused", "lost"} <= faulty.done.keys()
    version, rows = await asyncio.to_thread(found, s3, s3_uri)
    assert [number for number in rows if number not in unknown] == done
    assert len(rows) == len(set(rows)) == version


async def test_every_transaction_goes_at_last(s3: S3Server, s3_uri: str, faulty: FaultyProxy) -> None:
    lance_io.write_dataset(row(-1), s3_uri, storage_options=s3.options())
    how: dict[str, Any] = {"storage_options": impatient(s3, faulty), "session": Session()}

    async def append(number: int) -> None:
        transaction = await until_it_goes(
            lambda: write_fragments_async(row(number), s3_uri, return_transaction=True, **how)
        )
        await until_it_goes(lambda: commit_async(s3_uri, transaction, **how))

    for start in range(0, APPENDS, 5):
        await asyncio.gather(*(append(number) for number in range(start, start + 5)))
    version, rows = await asyncio.to_thread(found, s3, s3_uri)
    assert rows == [-1, *range(APPENDS)]
    assert version == APPENDS + 1
    assert faulty.done["lost"] and faulty.done["cut"]


async def test_deletes_go_at_last(s3: S3Server, s3_uri: str, faulty: FaultyProxy) -> None:
    for number in range(3):
        mode = "append" if number else "create"
        lance_io.write_dataset(row(number), s3_uri, mode=mode, storage_options=s3.options())
    how: dict[str, Any] = {"storage_options": impatient(s3, faulty), "session": Session()}

    async def delete() -> None:
        table = await AsyncDataset.open(s3_uri, **how)
        await table.delete("a = 1")

    await until_it_goes(delete)
    _, rows = await asyncio.to_thread(found, s3, s3_uri)
    assert rows == [0, 2]
