"""Writes through a proxy before MinIO that cuts, delays and resets connections, by a seeded chance.

What a write that ended well has written is there once, what one that failed for certain has written is not there, and
a commit whose end nobody knows is made sure by committing its transaction again. `LANCE_IO_SIMULATE` is the size.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import lance
import pytest

import lance_io
from lance_io import runtime
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.dataset.version.session import Session
from lance_io.dataset.write.write_fragments import write_fragments_async
from lance_io.errors import CommitUnknownError, LanceError
from tests.s3.proxy import HARMS, FaultyProxy
from tests.simulate.world import CASES, SIZE, Case, commit_of, numbers
from tests.simulate.writers import row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.servers import S3Server

APPENDS = 10 * SIZE
TURNS = SIZE  # of each change
TRIES_MAX = 60


@pytest.fixture
def faulty(s3: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint, seed=7) as proxy:
        yield proxy


def impatient(s3: S3Server, proxy: FaultyProxy) -> dict[str, str]:
    """Options of a client that soon gives up, so that failures are seen."""
    return s3.through(proxy.endpoint, client_max_retries="1", request_timeout="10s")


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


# -- every change that there is ----------------------------------------------------------------------------------------


def session_of(uri: str, options: dict[str, str]) -> Session:
    """A session for which the tables of `tests/simulate` lie at a place in the bucket."""
    session = Session()
    locate = session.locate
    session.locate = lambda _uri, _options: locate(uri, options)
    return session


def newest(uri: str, options: dict[str, str]) -> tuple[int, list[int]]:
    """Number and rows of the newest version, 0 and none without a table; all that is there was found to be whole."""
    try:
        table = lance_io.dataset(uri, storage_options=options)
    except ValueError:
        return 0, []
    versions = [each["version"] for each in table.versions()]
    for version in versions:
        assert numbers(lance_io.dataset(uri, version, storage_options=options)) == sorted(
            lance.dataset(uri, version, storage_options=options).to_table()["a"].to_pylist()
        )
        assert table.read_transaction(version) is not None
    assert {tag["version"] for tag in table.tags.list().values()} <= set(versions)
    return table.version, numbers(table)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_change_is_made_once(s3: S3Server, s3_uri: str, case: Case) -> None:
    """Tried until it goes, each time by a process that knows nothing of the time before."""
    done = Counter[Any]()
    for seed in range(TURNS):
        uri = f"{s3_uri}/{seed}"
        for change in case.before:
            runtime.run(change(session_of(uri, s3.options())))
        old = newest(uri, s3.options())
        new = (old[0] + case.commits, list(case.after))
        change = case.change
        with FaultyProxy(s3.endpoint, seed, rate=0.4) as faulty:
            for _ in range(TRIES_MAX):
                error = run(change, session_of(uri, impatient(s3, faulty)))
                left = newest(uri, s3.options())
                if error is None:
                    break
                if isinstance(error, CommitUnknownError):
                    if error.transaction is None:  # a tag may be there
                        break
                    change = commit_of(error)
                else:
                    assert left == old or change is not case.change or not case.commits, error
            done += faulty.done
        assert left == new, error
    assert set(HARMS) <= done.keys() or TURNS < 10


def run(change: Callable[[Session], Awaitable[Any]], session: Session) -> LanceError | None:
    """What a change raises."""
    try:
        runtime.run(change(session))
    except LanceError as error:
        return error
    return None
