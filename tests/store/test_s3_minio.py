"""S3 on a real server: who may do what, credentials that change, loops, forks, closing without a trace."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from minio import Minio

from lance_io import runtime
from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound
from lance_io.store.api import Selection
from lance_io.store.failures import ConflictRetry
from lance_io.store.s3.bucket import S3Store
from lance_io.store.url import resolve_uri

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.servers import S3Server


@pytest.fixture
async def store(s3: S3Server) -> AsyncIterator[S3Store]:
    store = resolve_uri(f"s3://{s3.bucket}", s3.options()).store
    assert isinstance(store, S3Store)
    yield store
    await store.aclose()


async def test_a_restricted_user_stays_within_its_bucket(s3: S3Server, s3_prefix: str) -> None:
    store = resolve_uri(f"s3://{s3.private_bucket}", s3.options()).store
    for work in (
        store.get_range(s3_prefix, 0, 1),
        store.get(s3_prefix),
        store.head(s3_prefix),
        store.put(s3_prefix, b"1"),
        store.delete([s3_prefix]),
        store.put_multipart(s3_prefix),
    ):
        with pytest.raises(AccessDenied):
            await work
    with pytest.raises(AccessDenied):
        _ = [meta async for meta in store.list("")]
    await store.aclose()
    owner = resolve_uri(f"s3://{s3.private_bucket}", s3.root_options()).store
    with pytest.raises(NotFound):
        await owner.head(s3_prefix)
    await owner.aclose()


async def test_a_missing_bucket_is_not_found(s3: S3Server) -> None:
    store = resolve_uri("s3://no-such-bucket-anywhere", s3.root_options()).store
    with pytest.raises(NotFound):
        _ = [meta async for meta in store.list("")]
    with pytest.raises(NotFound):
        await store.get("key")
    await store.aclose()


async def test_a_listing_of_several_pages(store: S3Store, s3_prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.store.s3.bucket.LIST_PAGE", 4)
    keys = [f"{s3_prefix}/{number:02}" for number in range(10)]
    await asyncio.gather(*(store.put(key, b"") for key in keys))
    assert [meta.key async for meta in store.list(f"{s3_prefix}/")] == keys
    assert [meta.key async for meta in store.list(f"{s3_prefix}/", Selection(limit=6))] == keys[:6]
    assert store.stats.snapshot()["list"].requests == 3 + 2
    await store.delete(keys)
    assert store.stats.snapshot()["delete"].requests == 3
    assert [meta.key async for meta in store.list(f"{s3_prefix}/")] == []


async def test_the_newest_name_costs_one_small_request(store: S3Store, s3_prefix: str) -> None:
    await asyncio.gather(*(store.put(f"{s3_prefix}/{number}", b"") for number in range(5)))
    store.stats.snapshot()
    assert [meta.name async for meta in store.list(f"{s3_prefix}/", Selection(limit=1))] == ["0"]
    assert store.stats.snapshot()["list"].requests == 1


# -- credentials ------------------------------------------------------------------------------------------------------


async def test_temporary_credentials_with_a_token(s3: S3Server, s3_prefix: str) -> None:
    from aiobotocore.session import get_session

    sts = get_session().create_client(
        "sts",
        endpoint_url=s3.endpoint,
        region_name=s3.region,
        aws_access_key_id=s3.user,
        aws_secret_access_key=s3.secret,
    )
    async with sts as client:
        answer = await client.assume_role(RoleArn="arn:xxx:xxx:xxx:xxxx", RoleSessionName="anything")
    found = answer["Credentials"]
    options = s3.options(aws_access_key_id=found["AccessKeyId"], aws_secret_access_key=found["SecretAccessKey"])
    store = resolve_uri(f"s3://{s3.bucket}", {**options, "aws_session_token": found["SessionToken"]}).store
    await store.put(f"{s3_prefix}/x", b"12345")
    assert bytes(await store.get_range(f"{s3_prefix}/x", 1, 3)) == b"23"
    await store.aclose()
    without = resolve_uri(f"s3://{s3.bucket}", options).store
    with pytest.raises(AccessDenied):
        await without.get(f"{s3_prefix}/x")
    await without.aclose()


def _without_keys(s3: S3Server) -> dict[str, str]:
    return {name: value for name, value in s3.options().items() if "key" not in name}


async def test_credentials_of_the_environment(s3: S3Server, s3_prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.user)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    store = resolve_uri(f"s3://{s3.bucket}").store
    await store.put(f"{s3_prefix}/x", b"12345")
    assert bytes((await store.get(f"{s3_prefix}/x"))[0]) == b"12345"
    await store.aclose()


async def test_credentials_of_a_profile_that_refresh(
    s3: S3Server, s3_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A credential process whose answers soon expire is asked again, and nobody waits for that."""
    program = tmp_path / "credentials.py"
    program.write_text(
        textwrap.dedent(f"""
            import json, datetime
            open({str(tmp_path / "calls")!r}, "a").write("x")
            soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=1)
            print(json.dumps(dict(Version=1, AccessKeyId={s3.user!r}, SecretAccessKey={s3.secret!r},
                                  Expiration=soon.strftime("%Y-%m-%dT%H:%M:%SZ"))))
        """)
    )
    (tmp_path / "config").write_text(
        f"[profile tester]\nregion = {s3.region}\ncredential_process = {sys.executable} {program}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    options = {name: value for name, value in _without_keys(s3).items() if name != "aws_region"}
    store = resolve_uri(f"s3://{s3.bucket}", {**options, "aws_profile": "tester"}).store
    await store.put(f"{s3_prefix}/x", b"12345")
    for _ in range(2):
        assert bytes(await store.get_range(f"{s3_prefix}/x", 0, 5)) == b"12345"
    while len((tmp_path / "calls").read_text()) < 2:  # noqa: ASYNC110 (another process)
        await asyncio.sleep(0.01)
    await store.aclose()


async def test_no_credentials_are_named(s3: S3Server) -> None:
    store = resolve_uri(f"s3://{s3.bucket}", _without_keys(s3)).store
    for work in (store.get_range("key", 0, 1), store.head("key"), store.put("key", b"1")):
        with pytest.raises(AccessDenied, match="aws_skip_signature"):
            await work
    await store.aclose()


async def test_a_missing_profile_is_named(s3: S3Server) -> None:
    store = resolve_uri(f"s3://{s3.bucket}", {**_without_keys(s3), "aws_profile": "nobody"}).store
    for work in (store.get_range("key", 0, 1), store.head("key")):
        with pytest.raises(AccessDenied, match="nobody"):
            await work
    await store.aclose()


@pytest.mark.parametrize("express", ["false", "true"])
async def test_anonymous_reading(s3: S3Server, s3_prefix: str, express: str) -> None:
    host = s3.endpoint.removeprefix("http://")
    owner = Minio(endpoint=host, access_key=s3.root_user, secret_key=s3.root_secret, secure=False, region=s3.region)
    open_to_all = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": ["*"]},
                "Action": ["s3:GetObject"],
                "Resource": [f"arn:aws:s3:::{s3.bucket}/{s3_prefix}/public/*"],
            }
        ],
    }
    owner.set_bucket_policy(bucket_name=s3.bucket, policy=json.dumps(open_to_all))
    mine = resolve_uri(f"s3://{s3.bucket}", s3.options()).store
    for name in ("public/x", "private/x"):
        await mine.put(f"{s3_prefix}/{name}", b"12345")
    await mine.aclose()
    options = {**_without_keys(s3), "aws_skip_signature": "true", "s3_express": express}
    store = resolve_uri(f"s3://{s3.bucket}", options).store
    assert bytes(await store.get_range(f"{s3_prefix}/public/x", 1, 3)) == b"23"
    assert (await store.head(f"{s3_prefix}/public/x")).size_bytes == 5
    with pytest.raises(AccessDenied):
        await store.get(f"{s3_prefix}/private/x")
    await store.aclose()


# -- life and death ---------------------------------------------------------------------------------------------------


def test_one_store_serves_one_loop_after_another(s3: S3Server, s3_prefix: str) -> None:
    store = resolve_uri(f"s3://{s3.bucket}", s3.options()).store

    async def use() -> bytes:
        await store.put(f"{s3_prefix}/x", b"12345")
        found = bytes(await store.get_range(f"{s3_prefix}/x", 0, 5))
        await store.aclose()
        return found

    assert [asyncio.run(use()) for _ in range(2)] == [b"12345"] * 2


async def test_a_dropped_store_closes_its_connections(s3: S3Server, s3_prefix: str) -> None:
    store = resolve_uri(f"s3://{s3.bucket}", s3.options()).store
    await store.put(f"{s3_prefix}/x", b"12345")
    await store.get(f"{s3_prefix}/x")
    del store
    gc.collect()
    for _ in range(20):  # the closing task runs on this loop; a warning about an open session would fail the test
        await asyncio.sleep(0.01)
    gc.collect()


PROGRAM = """
import asyncio, os, sys
from lance_io import runtime
from lance_io.runtime import engine
from lance_io.store.url import resolve_uri

engine.CLOSE_SECONDS_MAX = 20.0  # a loaded machine may need more than a second to close
uri, prefix, *pairs = sys.argv[1:]
store = resolve_uri(uri, dict(pair.split("=", 1) for pair in pairs)).store
runtime.run(store.put(prefix + "/x", b"12345"))
assert bytes(runtime.run(store.get_range(prefix + "/x", 1, 3))) == b"23"
pid = os.fork()
assert bytes(runtime.run(store.get_range(prefix + "/x", 2, 4))) == b"34"
assert runtime.run(store.head(prefix + "/x")).size_bytes == 5
if pid:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert bytes(runtime.run(store.get_range(prefix + "/x", 0, 4))) == b"1234"
"""


def test_a_fork_and_an_exit_without_closing_leave_no_trace(s3: S3Server, s3_prefix: str) -> None:
    pairs = [f"{name}={value}" for name, value in s3.options().items()]
    command = [sys.executable, "-W", "default", "-W", "ignore::DeprecationWarning", "-c", PROGRAM]
    done = subprocess.run(
        [*command, f"s3://{s3.bucket}", s3_prefix, *pairs],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_engine_runs_it(s3: S3Server, s3_prefix: str) -> None:
    store = resolve_uri(f"s3://{s3.bucket}", s3.options()).store
    runtime.run(store.put(f"{s3_prefix}/x", b"12345"))
    assert bytes(runtime.run(store.get_range(f"{s3_prefix}/x", 1, 3))) == b"23"
    runtime.run(store.aclose())


@pytest.mark.parametrize("package", ["aiobotocore", "aiohttp", "httptools"])
async def test_a_missing_client_library_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"needs the package {package}: pip install 'lance_io\[s3\]'"):
        resolve_uri("s3://bucket/x")


async def test_every_error_of_a_used_store_is_ours(store: S3Store, s3_prefix: str) -> None:
    for work in (
        store.put("x" * 2000, b"1"),
        store.get("x" * 2000),
        store.head("x" * 2000),
        store.put(s3_prefix, b"1", if_match="nonsense"),
    ):
        with pytest.raises(LanceError):
            await work


# -- uploads ----------------------------------------------------------------------------------------------------------


def _uploads_under_way(s3: S3Server, prefix: str) -> int:
    host = s3.endpoint.removeprefix("http://")
    owner = Minio(endpoint=host, access_key=s3.root_user, secret_key=s3.root_secret, secure=False, region=s3.region)
    return len(owner._list_multipart_uploads(bucket_name=s3.bucket, prefix=prefix).uploads)


async def test_an_upload_of_parts_and_what_is_left_of_a_cancelled_one(
    s3: S3Server, store: S3Store, s3_prefix: str
) -> None:
    piece = os.urandom(1 << 20)
    key = f"{s3_prefix}/large"
    async with await store.open_upload(key) as upload:
        for _ in range(33):
            await upload.write([piece])
        assert _uploads_under_way(s3, key) == 1
        meta = await upload.close()
    assert store.stats.snapshot()["part"].requests == 1 + 3
    assert meta == replace(await store.head(key), last_modified=None)
    assert bytes(await store.get_range(key, 32 << 20, 33 << 20)) == piece

    under_way = asyncio.Event()

    async def endless() -> None:
        async with await store.open_upload(f"{s3_prefix}/cancelled") as upload:
            while True:
                await upload.write([piece])
                if upload.size_bytes > 40 << 20:
                    under_way.set()
                await asyncio.sleep(0)

    writing = asyncio.create_task(endless())
    await under_way.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert _uploads_under_way(s3, s3_prefix) == 0
    with pytest.raises(NotFound):
        await store.head(f"{s3_prefix}/cancelled")


async def test_many_creators_of_one_key_through_two_stores(s3: S3Server, store: S3Store, s3_prefix: str) -> None:
    other = resolve_uri(f"s3://{s3.bucket}", s3.options()).store
    for key in (f"{s3_prefix}/{number}" for number in range(4)):
        puts = [(store, other)[number % 2].put(key, b"%d" % number, if_absent=True) for number in range(24)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        winners = [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
        assert len(winners) == 1
        assert {type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)} <= {
            AlreadyExists,
            ConflictRetry,
        }
        assert bytes((await store.get(key))[0]) == b"%d" % winners[0]
    await other.aclose()
