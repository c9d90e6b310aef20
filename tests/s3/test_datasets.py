"""Datasets on S3 as users meet them: options and credentials, versions, fragments, blobs, query engines, refusals."""

from __future__ import annotations

import json
import pickle
import traceback
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import lance
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.blob import Blob, blob_array, blob_field
from minio import Minio

import lance_io
from lance_io import AsyncDataset, runtime
from lance_io.errors import AccessDenied, NotFound
from lance_io.plans.plan import ask, drive_async
from lance_io.plans.store_requests import List, Remove
from lance_io.store.url import resolve_uri

if TYPE_CHECKING:
    from tests.servers import S3Server

WRONG_SECRET = "wrong-secret-0123456789"
ROOT = {"aws_access_key_id": "minioadmin", "aws_secret_access_key": "minioadmin1"}


@pytest.fixture
def table_uri(s3: S3Server, s3_uri: str) -> str:
    """A table of the test's own, see `make_table`."""
    return make_table(f"{s3_uri}/t.lance", s3)


@pytest.fixture(scope="module")
def read_uri(s3: S3Server) -> str:
    """A table that is only read, see `make_table`."""
    return make_table(f"s3://{s3.bucket}/test-{uuid.uuid4().hex}/t.lance", s3)


def make_table(uri: str, s3: S3Server) -> str:
    """Three versions: 60 rows in fragments of 20, two rows deleted, ten appended; version 2 has a tag."""
    rows = pa.table({"i": range(60), "s": [f"s{i}" for i in range(60)], "l": [[i] * (i % 4) for i in range(60)]})
    made = lance.write_dataset(rows, uri, max_rows_per_file=20, storage_options=s3.options())
    made.delete("i in (3, 47)")
    made.tags.create("trimmed", 2)
    lance.write_dataset(rows.slice(0, 10), uri, mode="append", storage_options=s3.options())
    return uri


def without_keys(s3: S3Server, **more: str) -> dict[str, str]:
    return {name: value for name, value in s3.options().items() if "key" not in name} | more


# -- what is there ---------------------------------------------------------------------------------------------------


def test_versions_tags_and_moments(read_uri: str, s3: S3Server) -> None:
    options = s3.options()
    theirs = lance.dataset(read_uri, storage_options=options)
    ours = lance_io.dataset(read_uri, storage_options=options)
    assert ours.version == ours.latest_version == theirs.version == 3
    assert [one["version"] for one in ours.versions()] == [1, 2, 3]
    assert ours.tags.list()["trimmed"]["version"] == 2
    for version, num_rows in ((1, 60), (2, 58), ("trimmed", 58), (3, 68)):
        one = lance_io.dataset(read_uri, version=version, storage_options=options)
        assert one.count_rows() == num_rows
        assert one.to_table() == lance.dataset(read_uri, version=version, storage_options=options).to_table()
        assert ours.checkout_version(version).version == one.version
    later = datetime.now(UTC) + timedelta(hours=1)
    assert lance_io.dataset(read_uri, asof=later, storage_options=options).version == 3
    first = theirs.versions()[0]["timestamp"]  # by way of a float, which may have lost a microsecond
    assert lance_io.dataset(read_uri, asof=first + timedelta(microseconds=2), storage_options=options).version == 1


def test_fragments_row_ids_and_filters(read_uri: str, s3: S3Server) -> None:
    theirs = lance.dataset(read_uri, storage_options=s3.options())
    ours = lance_io.dataset(read_uri, storage_options=s3.options())
    for mine, other in zip(ours.get_fragments(), theirs.get_fragments(), strict=True):
        assert mine.count_rows() == other.count_rows()
        assert mine.to_table(["s"]) == other.to_table(["s"])
        assert mine.take([1, 4]) == other.take([1, 4])
    chosen = ours.get_fragments()[1:3]
    assert ours.scanner(["i"], fragments=chosen).to_table()["i"].to_pylist() == [i for i in range(20, 60) if i != 47]
    system = {"with_row_id": True, "with_row_address": True}
    assert ours.to_table(**system) == theirs.to_table(**system)
    assert ours.to_table(["s"], pc.field("i") > 40) == theirs.to_table(["s"], "i > 40")
    assert ours._take_rows([1, 1 << 32, 3 << 32], ["i"]) == theirs._take_rows([1, 1 << 32, 3 << 32], ["i"])
    assert pickle.loads(pickle.dumps(ours)).to_table() == ours.to_table()


async def test_the_asynchronous_dataset(read_uri: str, s3: S3Server) -> None:
    sync = lance_io.dataset(read_uri, storage_options=s3.options())
    async with AsyncDataset.open(read_uri, storage_options=s3.options()) as table:
        assert await table.to_table() == sync.to_table()
        assert await table.take([60, 2, 2], ["s"]) == sync.take([60, 2, 2], ["s"])
        assert (await table.checkout_version("trimmed")).version == 2
        assert (await table.tags())["trimmed"]["version"] == 2
        batches = [batch async for batch in table.to_batches(["i"], batch_size=7)]
        assert pa.Table.from_batches(batches) == sync.to_table(["i"])


def test_blobs(s3: S3Server, s3_uri: str) -> None:
    rows = pa.table(
        {"id": range(4), "blob": [b"one", None, b"", b"x" * 100_000]},
        schema=pa.schema(
            [pa.field("id", pa.int64()), pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})]
        ),
    )
    lance.write_dataset(rows, f"{s3_uri}/b", data_storage_version="2.1", storage_options=s3.options())
    table = lance_io.dataset(f"{s3_uri}/b", storage_options=s3.options())
    found = table.take_blobs("blob", indices=[3, 0])
    with found[0] as blob:
        assert blob.seek(99_990) == 99_990
        assert blob.read() == b"x" * 10
    assert found[1].readall() == b"one"
    assert table.to_table(blob_handling="all_binary")["blob"].to_pylist() == rows["blob"].to_pylist()


def test_blobs_outside_of_the_table(s3: S3Server, s3_uri: str) -> None:
    place = resolve_uri(f"{s3_uri}/outside/a.bin", s3.options())
    runtime.run(place.store.put(place.path, bytes(range(100))))
    outside = f"{s3_uri}/outside/a.bin"
    values = [outside, Blob(uri=outside, position=5, size=7), b"inside"]
    rows = pa.table({"blob": blob_array(values)}, schema=pa.schema([blob_field("blob")]))
    uri, options = f"{s3_uri}/t", {"storage_options": s3.options()}
    lance.write_dataset(rows, uri, data_storage_version="2.2", allow_external_blob_outside_bases=True, **options)
    expected = [bytes(range(100)), bytes(range(5, 12)), b"inside"]
    found = lance_io.dataset(uri, **options).take_blobs("blob", indices=[0, 1, 2])
    assert [one.readall() for one in found] == expected


def test_query_engines(read_uri: str, s3: S3Server) -> None:
    orders = lance_io.dataset(read_uri, storage_options=s3.options())
    found = duckdb.sql("select count(*), sum(i) from orders where i >= 10 and s like 's%'").fetchall()
    assert found == [(49, sum(range(10, 60)) - 47)]
    lazy = pl.scan_pyarrow_dataset(orders).filter(pl.col("i") > 56).select("s")
    assert lazy.collect()["s"].to_list() == ["s57", "s58", "s59"]


# -- who may read ----------------------------------------------------------------------------------------------------


def secrets_in(error: BaseException, *secrets: str) -> list[str]:
    """Which of them the printed error, with everything that led to it, tells."""
    text = "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
    return [secret for secret in secrets if secret in text]


@pytest.mark.parametrize(
    ("path", "changes", "expected", "message"),
    [
        ("s3://{bucket}/{prefix}/nothing-here", {}, NotFound, "was not found"),
        ("s3://no-such-bucket-anywhere/t", {}, AccessDenied, "they do not allow this"),  # nor that it is missing
        ("s3://no-such-bucket-anywhere/t", ROOT, NotFound, "bucket"),
        ("s3://{private}/t", {}, AccessDenied, "t"),
        ("{table}", {"aws_secret_access_key": WRONG_SECRET}, AccessDenied, "credentials"),
        ("{table}", {"aws_access_key_id": "nobody"}, AccessDenied, "credentials"),
        ("{table}", {"aws_access_key_id": None, "aws_secret_access_key": None}, AccessDenied, "credentials"),
        ("{table}", {"aws_access_key_id": None, "aws_secret_access_key": None, "aws_skip_signature": "true"},
         AccessDenied, "t.lance"),
    ],
)  # fmt: skip
async def test_refusals(
    path: str, changes: dict[str, str | None], expected: Any, message: str,
    read_uri: str, s3: S3Server, s3_prefix: str,
) -> None:  # fmt: skip
    uri = path.format(bucket=s3.bucket, prefix=s3_prefix, private=s3.private_bucket, table=read_uri)
    options = {name: value for name, value in {**s3.options(), **changes}.items() if value is not None}
    with pytest.raises(ValueError):  # whatever it is: those who open tables with pylance catch that
        lance.dataset(uri, storage_options=options)
    for face in ("sync", "async"):
        with pytest.raises((NotFound, AccessDenied)) as caught:
            if face == "sync":
                lance_io.dataset(uri, storage_options=options)
            else:
                await AsyncDataset.open(uri, storage_options=options)
        assert isinstance(caught.value, ValueError), face
        assert isinstance(caught.value, expected), face
        assert message in str(caught.value), face
        assert secrets_in(caught.value, s3.secret, WRONG_SECRET) == [], face


def test_a_version_or_tag_that_is_not_there(read_uri: str, s3: S3Server) -> None:
    for version in (99, "nothing"):
        with pytest.raises(ValueError, match=str(version)):
            lance_io.dataset(read_uri, version=version, storage_options=s3.options())


def test_a_data_file_that_is_gone_is_named(table_uri: str, s3: S3Server) -> None:
    host = s3.endpoint.removeprefix("http://")
    owner = Minio(endpoint=host, access_key=s3.root_user, secret_key=s3.root_secret, secure=False, region=s3.region)
    table = lance_io.dataset(table_uri, storage_options=s3.options())
    prefix = table_uri.removeprefix(f"s3://{s3.bucket}/") + "/data/"
    [name, *_] = [one.object_name for one in owner.list_objects(bucket_name=s3.bucket, prefix=prefix)]
    owner.remove_object(bucket_name=s3.bucket, object_name=name)
    with pytest.raises(NotFound) as caught:
        table.to_table()
    assert name in str(caught.value)
    assert secrets_in(caught.value, s3.secret) == []


def test_the_owner_reads_what_others_may_not(s3: S3Server, s3_prefix: str) -> None:
    uri = f"s3://{s3.private_bucket}/{s3_prefix}"
    rows = pa.table({"a": [1, 2]})
    lance.write_dataset(rows, uri, storage_options=s3.root_options())
    assert lance_io.dataset(uri, storage_options=s3.root_options()).to_table() == rows
    with pytest.raises(AccessDenied):
        lance_io.dataset(uri, storage_options=s3.options())


def test_anonymous_reading(table_uri: str, s3: S3Server, s3_prefix: str) -> None:
    host = s3.endpoint.removeprefix("http://")
    owner = Minio(endpoint=host, access_key=s3.root_user, secret_key=s3.root_secret, secure=False, region=s3.region)
    everybody = {"Effect": "Allow", "Principal": {"AWS": ["*"]}}
    objects, bucket = f"arn:aws:s3:::{s3.bucket}/{s3_prefix}/*", f"arn:aws:s3:::{s3.bucket}"
    statements = [
        {**everybody, "Action": ["s3:GetObject"], "Resource": [objects]},
        {
            **everybody,
            "Action": ["s3:ListBucket"],
            "Resource": [bucket],
            "Condition": {"StringLike": {"s3:prefix": [f"{s3_prefix}/*"]}},
        },
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    owner.set_bucket_policy(bucket_name=s3.bucket, policy=policy)
    options = without_keys(s3, aws_skip_signature="true")
    table = lance_io.dataset(table_uri, storage_options=options)
    assert table.to_table() == lance_io.dataset(table_uri, storage_options=s3.options()).to_table()
    owner.delete_bucket_policy(bucket_name=s3.bucket)


def test_credentials_of_the_environment(table_uri: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", s3.region)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.user)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    table = lance_io.dataset(table_uri)
    assert table.count_rows() == 68
    assert s3.secret not in f"{table!r}{table._state!r}{table.session()!r}{table.get_fragments()!r}"


# -- feature flags ---------------------------------------------------------------------------------------------------


def test_managed_blobs_in_a_bucket(s3: S3Server, s3_uri: str) -> None:
    """Written by both, read by both, and removed when no version names them."""
    options, uri = s3.options(), f"{s3_uri}/managed.lance"
    schema = pa.schema([pa.field("i", pa.int64()), blob_field("b")], metadata={"lance.blob.managed": "true"})
    rows = pa.table([pa.array(range(3)), blob_array([b"x" * 100_000, b"small", b"y" * 100_000])], schema=schema)

    def payloads() -> set[str]:
        place = resolve_uri(f"{uri}/_blobs", options)
        return {meta.name for meta in runtime.run(drive_async(ask(List(place.store, f"{place.path}/"))))}

    lance_io.write_dataset(rows, uri, storage_options=options)
    replaced = payloads()
    for library in (lance_io, lance):
        library.write_dataset(rows, uri, mode="overwrite" if library is lance_io else "append", storage_options=options)
    assert len(payloads()) == 3
    expected = [b"x" * 100_000, b"small", b"y" * 100_000] * 2
    lance_io.dataset(uri, storage_options=options).cleanup_old_versions(timedelta(0))
    assert replaced.isdisjoint(payloads()) and len(payloads()) == 2
    for library in (lance_io, lance):
        table = library.dataset(uri, storage_options=options)
        assert table.to_table(columns=["b"], blob_handling="all_binary")["b"].to_pylist() == expected
        assert [blob.read() for blob in table.take_blobs("b", indices=[5, 0])] == [expected[5], expected[0]]
    table = lance_io.dataset(uri, storage_options=options)
    table.validate()
    place = resolve_uri(f"{uri}/_blobs", options)
    gone = f"{place.path}/{min(payloads())}"
    runtime.run(drive_async(ask(Remove(place.store, (gone,)))))
    with pytest.raises(NotFound, match="the file does not exist, but a blob refers to it"):
        table.validate()
