"""Writes through a proxy before MinIO that cuts, delays and resets connections, by a seeded chance.

What a write that ended well has written is there once, what one that failed for certain has written is not there, and
a commit whose end nobody knows is made sure by committing its transaction again. `LANCE_IO_SIMULATE` is the size.
What tables in a bucket keep to on every store is in `tests/store/table_conformance.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import lance
import pytest

import lance_io
from lance_io.changes.write.write_fragments import write_fragments_async
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import CommitUnknownError, LanceError
from lance_io.reads.version.session import Session
from tests.s3.proxy import FaultyProxy
from tests.simulate.world import SIZE
from tests.simulate.writers import row
from tests.store.table_conformance import TableConformance, impatient, until_it_goes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import S3Server, TableServer

APPENDS = 10 * SIZE


@pytest.fixture
def faulty(s3: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint, seed=7) as proxy:
        yield proxy


def found(s3: S3Server, uri: str) -> tuple[int, list[int]]:
    """Version and rows, by a way where nothing fails."""
    table = lance_io.dataset(uri, storage_options=s3.options())
    return table.version, sorted(table.to_table()["a"].to_pylist())


async def test_appends_end_well_or_clearly(s3: S3Server, s3_uri: str, faulty: FaultyProxy) -> None:
    lance_io.write_dataset(row(-1), s3_uri, storage_options=s3.options())
    how: dict[str, Any] = {"storage_options": impatient(s3, faulty), "session": Session()}
    done = [-1]
    for number in range(APPENDS):
        try:
            await AsyncDataset.write(row(number), s3_uri, mode="append", **how)
        except CommitUnknownError as error:
            transaction = error.transaction
            await until_it_goes(lambda transaction=transaction: AsyncDataset.commit(s3_uri, transaction, **how))
        except LanceError:
            continue
        done.append(number)
    assert {"refused", "lost"} <= faulty.done.keys()
    version, rows = await asyncio.to_thread(found, s3, s3_uri)
    assert rows == done
    assert version == len(done)


async def test_appends_that_share_versions_end_well_or_clearly(s3: S3Server, s3_uri: str, faulty: FaultyProxy) -> None:
    lance_io.write_dataset(row(-1), s3_uri, storage_options=s3.options())
    how: dict[str, Any] = {"storage_options": impatient(s3, faulty), "session": Session()}
    done, transactions = [-1], {}

    async def caller(number: int) -> None:
        for step in range(APPENDS // 2):
            value = 1000 * number + step
            try:
                table = await AsyncDataset.write(row(value), s3_uri, mode="append", group_commit=True, **how)
            except CommitUnknownError as error:
                transactions[error.transaction.uuid] = error.transaction
            except LanceError:
                continue
            else:
                assert 1 < table.version
            done.append(value)

    await asyncio.gather(*(caller(number) for number in range(8)))
    for transaction in transactions.values():
        await until_it_goes(lambda transaction=transaction: AsyncDataset.commit(s3_uri, transaction, **how))
    version, rows = await asyncio.to_thread(found, s3, s3_uri)
    assert rows == sorted(done)
    assert version < len(done)
    assert lance.dataset(s3_uri, storage_options=s3.options()).count_rows() == len(done)


async def test_every_transaction_goes_at_last(s3: S3Server, s3_uri: str, faulty: FaultyProxy) -> None:
    lance_io.write_dataset(row(-1), s3_uri, storage_options=s3.options())
    how: dict[str, Any] = {"storage_options": impatient(s3, faulty), "session": Session()}

    async def append(number: int) -> None:
        transaction = await until_it_goes(
            lambda: write_fragments_async(row(number), s3_uri, return_transaction=True, **how)
        )
        await until_it_goes(lambda: AsyncDataset.commit(s3_uri, transaction, **how))

    for start in range(0, APPENDS, 5):
        await asyncio.gather(*(append(number) for number in range(start, start + 5)))
    version, rows = await asyncio.to_thread(found, s3, s3_uri)
    assert rows == [-1, *range(APPENDS)]
    assert version == APPENDS + 1
    assert faulty.done["lost"] and faulty.done["cut"]


class TestMinio(TableConformance):
    TITLE: ClassVar = "S3: MinIO"

    @pytest.fixture
    def server(self, s3: S3Server) -> TableServer:
        return s3
