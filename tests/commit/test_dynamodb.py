"""`s3+ddb://` against MinIO and dynalite, in turns with pylance."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.commit.dynamodb import DynamoManifestStore
from lance_io.commit.external import ExternalHandler, Row
from lance_io.commit.table_location import open_location
from lance_io.commit.target import CommitTarget
from lance_io.errors import AlreadyExists, ManifestMissing, NotFound, UsageError
from lance_io.plans.plan import drive_async
from tests.commit.dynalite import dynalite_server
from tests.commit.tables import ROWS, Sample, commit_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from lance_io.store.url import Location
    from tests.servers import S3Server


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with dynalite_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample") / "t")


@pytest.fixture
def options(s3: S3Server, database: str) -> dict[str, str]:
    return s3.options(dynamodb_endpoint=database)


async def make_table(options: dict[str, str], *, keys: tuple[str, str] = ("base_uri", "version")) -> str:
    """A DynamoDB table; pylance wants a third character in its name."""
    from aiobotocore.session import AioSession

    name = f"rows-{uuid.uuid4().hex}"
    session = AioSession()
    session.set_credentials(options["aws_access_key_id"], options["aws_secret_access_key"])
    how = {"region_name": options["aws_region"], "endpoint_url": options["dynamodb_endpoint"]}
    async with session.create_client("dynamodb", **how) as client:
        await client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[
                {"AttributeName": keys[0], "KeyType": "HASH"},
                {"AttributeName": keys[1], "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": keys[0], "AttributeType": "S"},
                {"AttributeName": keys[1], "AttributeType": "N"},
            ],
        )
        await client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 0.1})
    return name


@pytest.fixture
async def uri(options: dict[str, str], s3_uri: str) -> str:
    return f"{s3_uri.replace('s3://', 's3+ddb://')}?ddbTableName={await make_table(options)}"


@pytest.fixture
async def target(uri: str, options: dict[str, str]) -> AsyncIterator[CommitTarget]:
    place, handler = open_location(uri, options)
    assert isinstance(handler, ExternalHandler) and isinstance(handler.rows, DynamoManifestStore)
    yield CommitTarget(place, handler)
    await handler.rows.aclose()
    await place.store.aclose()


NUMBERS = pa.table({"a": range(5)})


async def rows_in(target: CommitTarget, folder: Location) -> list[Row]:
    return await drive_async(rows_of(target).list_rows(folder.path))


def rows_of(target: CommitTarget) -> DynamoManifestStore:
    assert isinstance(target.handler, ExternalHandler) and isinstance(target.handler.rows, DynamoManifestStore)
    return target.handler.rows


async def test_commits_in_turns_with_pylance(
    target: CommitTarget, sample: Sample, uri: str, options: dict[str, str]
) -> None:
    first = await sample.create(target)
    await asyncio.to_thread(lambda: lance.dataset(uri, storage_options=options).delete("a = 1"))
    appended = sample.append(1)
    await sample.place_files(target.location, appended)
    third = await commit_async(target, appended, base=first.manifest)
    table = await asyncio.to_thread(lambda: lance.dataset(uri, storage_options=options).to_table())
    assert (third.manifest.version, table.num_rows) == (3, 2 * ROWS - 1)
    row = await drive_async(rows_of(target).get(target.location.path, 3))
    assert row == Row(3, third.file.key, third.file.size_bytes)
    assert await drive_async(rows_of(target).get(target.location.path, 4)) is None


async def test_many_writers_lose_nothing(target: CommitTarget, sample: Sample) -> None:
    await sample.create(target)
    done = await asyncio.gather(*(commit_async(target, sample.append(1)) for _ in range(8)))
    assert sorted(each.manifest.version for each in done) == list(range(2, 10))
    newest = await drive_async(target.handler.find_latest(target.location))
    assert newest.version == 9


async def test_a_version_that_was_only_reserved_is_finished_by_readers(
    target: CommitTarget, sample: Sample, uri: str, options: dict[str, str]
) -> None:
    await sample.create(target)
    second = await commit_async(target, sample.append(1))
    store, key = target.location.store, second.file.key
    data, _ = await store.get(key)
    staging = f"{key}-{uuid.uuid4()}"
    await store.put(staging, data)
    await store.delete([key])
    await drive_async(rows_of(target).put_if_present(target.location.path, Row(2, staging, len(data))))
    found = await drive_async(target.handler.find_latest(target.location))
    assert (found.version, found.key) == (2, key)
    assert await drive_async(rows_of(target).get(target.location.path, 2)) == Row(2, key, len(data))
    with pytest.raises(NotFound):
        await store.head(staging)
    count = await asyncio.to_thread(lambda: lance.dataset(uri, storage_options=options).count_rows())
    assert count == 2 * ROWS


@pytest.mark.parametrize("maker", [lance, lance_io], ids=["pylance", "ours"])
@pytest.mark.parametrize("is_async", [False, True], ids=["now", "later"])
async def test_a_table_that_was_dropped_can_be_made_again(
    target: CommitTarget, uri: str, options: dict[str, str], maker: Any, is_async: bool
) -> None:
    how: dict[str, Any] = {"storage_options": options}

    def make(library: Any, mode: str = "create") -> Any:
        return library.write_dataset(NUMBERS, uri, mode=mode, **how)

    for _ in range(2):
        for mode in ("create", "append", "append"):
            await asyncio.to_thread(make, maker, mode)
        branch = await asyncio.to_thread(lambda: lance_io.dataset(uri, **how).create_branch("a/side"))
        await asyncio.to_thread(branch.delete, "a = 1")
        folders = [target.location, target.location.below("tree", "a", "side")]
        assert [len(await rows_in(target, folder)) for folder in folders] == [3, 2]
        if is_async:
            await lance_io.AsyncDataset.drop(uri, **how)
        else:
            await asyncio.to_thread(lambda: lance_io.LanceDataset.drop(uri, **how))
        assert [await rows_in(target, folder) for folder in folders] == [[], []]
        with pytest.raises(NotFound):
            await lance_io.AsyncDataset.drop(uri, **how)
        await lance_io.AsyncDataset.drop(uri, ignore_not_found=True, **how)
    for library in (lance_io, lance):
        await asyncio.to_thread(make, library)
        assert await asyncio.to_thread(lambda: lance.dataset(uri, **how).count_rows()) == NUMBERS.num_rows
        await lance_io.AsyncDataset.drop(uri, **how)


async def test_rows_without_a_table_are_told_of(target: CommitTarget, uri: str, options: dict[str, str]) -> None:
    """pylance's drop leaves them; then neither library makes a table here, and ours says what to do."""
    how: dict[str, Any] = {"storage_options": options}

    def make(library: Any, mode: str = "create") -> Any:
        return library.write_dataset(NUMBERS, uri, mode=mode, **how)

    for mode in ("create", "append"):
        await asyncio.to_thread(make, lance, mode)
    opened = await lance_io.AsyncDataset.open(uri, **how)
    await asyncio.to_thread(lambda: lance.LanceDataset.drop(uri, **how))
    with pytest.raises((OSError, ValueError)):
        await asyncio.to_thread(make, lance)
    calls: list[Callable[[], Any]] = [
        *(partial(make, lance_io, mode) for mode in ("create", "append", "overwrite")),
        lambda: lance_io.dataset(uri, **how),
        lambda: lance_io.dataset(uri, 2, **how),
        lambda: lance_io.LanceDataset.commit(uri, lance_io.LanceOperation.Append([]), 2, **how),
        lambda: lance_io.fragment.write_fragments(NUMBERS, uri, mode="append", **how),
    ]
    for call in calls:
        with pytest.raises(ManifestMissing, match=r"version 2 .*LanceDataset\.drop"):
            await asyncio.to_thread(call)
    for pending in (opened.insert(NUMBERS), opened.cleanup_old_versions()):
        with pytest.raises(ManifestMissing, match=r"LanceDataset\.drop"):
            await pending
    left = [meta.key async for meta in target.location.store.list(target.location.key("data", ""))]
    assert len(left) == 1  # of pylance's attempt
    await lance_io.AsyncDataset.drop(uri, **how)
    await asyncio.to_thread(make, lance)
    assert (await lance_io.AsyncDataset.open(uri, **how)).version == 1


async def test_a_branch_that_was_removed_can_be_made_again(uri: str, options: dict[str, str]) -> None:
    table = await lance_io.AsyncDataset.write(NUMBERS, uri, storage_options=options)
    for num_left in (1, 2):
        side = await table.create_branch("side")
        await side.delete(f"a < {num_left}")
        assert await side.count_rows() == NUMBERS.num_rows - num_left
        await asyncio.to_thread(lambda: lance_io.dataset(uri, storage_options=options).branches.delete("side"))


async def test_many_rows_are_listed_and_removed(target: CommitTarget) -> None:
    """Only those that are as they were seen."""
    rows = rows_of(target)
    made = [Row(number, f"x/{'long' * 200}/{number}", number or None) for number in range(1, 300)]
    for start in range(0, len(made), 50):
        await asyncio.gather(*(drive_async(rows.put_if_absent("base", row)) for row in made[start : start + 50]))
    assert await drive_async(rows.list_rows("base")) == made
    assert await drive_async(rows.list_rows("bas")) == []
    for wrong in (Row(1, made[0].path, 9), Row(1, "y", 1), Row(1, made[0].path)):
        assert not await drive_async(rows.remove_same("base", wrong))
    assert await drive_async(rows.remove_same("base", made[0]))
    assert not await drive_async(rows.remove_same("base", made[0]))
    assert await drive_async(rows.list_rows("base")) == made[1:]


async def test_conditions(target: CommitTarget) -> None:
    rows = rows_of(target)
    with pytest.raises(NotFound):
        await drive_async(rows.put_if_present("base", Row(1, "x")))
    await drive_async(rows.put_if_absent("base", Row(1, "x")))
    with pytest.raises(AlreadyExists):
        await drive_async(rows.put_if_absent("base", Row(1, "y")))
    assert await drive_async(rows.get_latest("base")) == Row(1, "x")


async def test_a_table_with_other_keys_is_refused(options: dict[str, str], s3_uri: str) -> None:
    name = await make_table(options, keys=("table", "version"))
    place, handler = open_location(f"{s3_uri.replace('s3://', 's3+ddb://')}?ddbTableName={name}", options)
    with pytest.raises(UsageError, match="base_uri"):
        await drive_async(handler.find_latest(place))
    await handler.rows.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("query", ["", "?", "?ddbTableName=", "?other=1", "?ddbTableName=a&x=1"])
def test_the_uri_names_one_table(query: str) -> None:
    with pytest.raises(UsageError, match="ddbTableName"):
        open_location(f"s3+ddb://bucket/path{query}")
