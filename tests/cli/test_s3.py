"""The program on a bucket: the same answers, and nobody's secrets."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers import S3Server


def arguments(options: dict[str, str]) -> list[str]:
    """Storage options as the program takes them."""
    return [part for key, value in options.items() for part in ("-o", f"{key}={value}")]


@pytest.fixture(scope="module")
def bucket_table(s3: S3Server, write: Callable[..., lance.LanceDataset]) -> lance.LanceDataset:
    """The table of the other tests, in a bucket."""
    return write(f"s3://{s3.bucket}/test-{uuid.uuid4().hex}", "2.1", storage_options=s3.options())


def test_reads_a_bucket(run: Any, s3: S3Server, bucket_table: lance.LanceDataset) -> None:
    options = arguments(s3.options())
    uri = bucket_table.uri
    assert run("count", uri, *options, "--json").report["num_rows"] == bucket_table.count_rows()
    assert run("info", uri, *options, "--json").report["tags"] == {"second": 2}
    assert (
        run("head", uri, *options, "-c", "id", "--json").report["rows"]
        == bucket_table.head(10, columns=["id"]).to_pylist()
    )
    file = bucket_table.get_fragments()[0].data_files()[0]
    (pages,) = run("pages", f"{uri}/data/{file.path}", *options, "--json").report["files"]
    assert pages["size_bytes"] == file.file_size_bytes
    plan = run("explain", uri, *options, "--take", "1,5000", "--json").report
    assert [one["purpose"] for one in plan["rounds"]] == ["metadata", "metadata", "index", "data"]


def test_refusal_is_one_line(run: Any, s3: S3Server, bucket_table: lance.LanceDataset) -> None:
    wrong = s3.options(aws_secret_access_key="not-the-secret")
    ran = run("info", bucket_table.uri, *arguments(wrong))
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert "not-the-secret" not in ran.err
    assert s3.user not in ran.err


def test_changes_a_bucket(run: Any, s3: S3Server, s3_uri: str, tmp_path: Path) -> None:
    uri, options = s3_uri, s3.options()
    given = arguments(options)
    pq.write_table(pa.table({"a": range(1000)}), tmp_path / "a.parquet")
    for mode in ("create", "append"):
        assert run("write", tmp_path / "a.parquet", uri, "-m", mode, *given, "--json").report["num_rows"] == 1000
    assert run("delete", uri, "a >= 10", "-y", *given, "--json").report["num_deleted_rows"] == 1980
    assert run("tag", uri, "create", "few", *given).code == 0
    assert lance.dataset(uri, "few", storage_options=options).to_table()["a"].to_pylist() == [*range(10)] * 2
    assert run("restore", uri, "-v", 2, *given).code == 0
    assert lance.dataset(uri, storage_options=options).count_rows() == 2000
    log = run("log", uri, *given, "--json").report["versions"]
    assert [one["operation"] for one in log] == ["Restore", "Delete", "Append", "Overwrite"]
    assert run("cleanup", uri, "--older-than", "0s", "-y", *given, "--json").report["old_versions"] == 2
    assert lance.dataset(uri, "few", storage_options=options).count_rows() == 20
