"""The clients of other libraries on a real server: obstore decides by conditional PUTs, pyarrow's S3 takes a lock."""

from __future__ import annotations

import os
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import lance
import obstore.store
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

import lance_io
from lance_io.errors import AccessDenied, UnsupportedError
from lance_io.runtime import run
from lance_io.store.filesystem.resolve import open_filesystem

if TYPE_CHECKING:
    from tests.servers import S3Server

ROWS = pa.table({"id": range(1000), "text": [f"row {n}" for n in range(1000)]})


def _obstore(s3: S3Server, bucket: str | None = None) -> Any:
    return obstore.store.S3Store(
        bucket or s3.bucket,
        endpoint=s3.endpoint,
        access_key_id=s3.user,
        secret_access_key=s3.secret,
        region=s3.region,
        client_options={"allow_http": True},
    )


def _pyarrow(s3: S3Server, secret: str | None = None) -> Any:
    return pafs.S3FileSystem(
        endpoint_override=s3.endpoint.removeprefix("http://"),
        scheme="http",
        access_key=s3.user,
        secret_key=secret or s3.secret,
        region=s3.region,
    )


def test_obstore_writes_beside_pylance(s3: S3Server, s3_prefix: str) -> None:
    store, path = _obstore(s3), f"{s3_prefix}/t.lance"
    uri, options = f"s3://{s3.bucket}/{path}", s3.options()
    lance_io.write_dataset(ROWS, path, filesystem=store)

    def add(writer: int) -> None:
        rows = ROWS.slice(writer, 1)
        if writer % 4:
            lance_io.write_dataset(rows, path, mode="append", filesystem=store)
        elif writer:
            lance_io.write_dataset(rows, uri, mode="append", storage_options=options)
        else:
            lance.write_dataset(rows, uri, mode="append", storage_options=options)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    ds = lance_io.dataset(path, filesystem=store)
    assert (ds.version, ds.count_rows()) == (9, 1008)
    theirs = lance.dataset(uri, storage_options=options)
    assert ds.to_table().sort_by("id") == theirs.to_table().sort_by("id")


@pytest.mark.parametrize("kind", ["obstore", "pyarrow"])
def test_a_large_file_goes_up_in_parts(s3: S3Server, s3_prefix: str, kind: str) -> None:
    fs, path = (_obstore(s3), s3_prefix) if kind == "obstore" else (_pyarrow(s3), f"{s3.bucket}/{s3_prefix}")
    rows = pa.table({"noise": pa.array([os.urandom(1 << 20) for _ in range(20)], pa.binary())})
    lock = threading.Lock()
    lance_io.write_dataset(rows, path, filesystem=fs, commit_lock=lambda _: lock)
    assert lance_io.dataset(f"s3://{s3.bucket}/{s3_prefix}", storage_options=s3.options()).to_table() == rows
    assert lance_io.dataset(path, filesystem=fs).take([3, 19]) == rows.take([3, 19])


def test_pyarrow_takes_a_lock(s3: S3Server, s3_prefix: str) -> None:
    fs, path = _pyarrow(s3), f"{s3.bucket}/{s3_prefix}/t.lance"
    with pytest.raises(UnsupportedError, match="commit_lock"):
        lance_io.write_dataset(ROWS, path, filesystem=fs)
    lock = threading.Lock()
    lance_io.write_dataset(ROWS, path, filesystem=fs, commit_lock=lambda _: lock)

    def add(writer: int) -> None:
        lance_io.write_dataset(ROWS[:1], f"s3://{path}", mode="append", filesystem=fs, commit_lock=lambda _: lock)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert lance.dataset(f"s3://{path}", storage_options=s3.options()).count_rows() == 1008
    assert lance_io.dataset(path, filesystem=fs).version == 9


@pytest.mark.parametrize("kind", ["obstore", "pyarrow"])
def test_refusals_and_lost_servers_show_no_credentials(s3: S3Server, kind: str) -> None:
    if kind == "obstore":
        fs, key = _obstore(s3, s3.private_bucket), "object"
    else:
        fs, key = _pyarrow(s3), f"{s3.private_bucket}/object"
    store = open_filesystem(fs, {})
    shown = [repr(store), store.identity]
    for work in (store.get(key), store.put(key, b"1"), store.head(key)):
        with pytest.raises(AccessDenied) as caught:
            run(work)
        shown.append("".join(traceback.format_exception(caught.value)))
    for text in shown:
        assert s3.secret not in text
    assert s3.secret in store.calls.secrets  # so no message could show it


def test_pyarrow_in_a_forked_child_is_refused(s3: S3Server, s3_prefix: str) -> None:
    store = open_filesystem(_pyarrow(s3), {})
    store.start_over()  # what a child does
    with pytest.raises(UnsupportedError, match="spawn"):
        run(store.head(f"{s3.bucket}/{s3_prefix}"))
