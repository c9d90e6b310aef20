"""`oss://` and `s3a://`: buckets that speak S3, by other names and options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import UsageError
from lance_io.store.s3.bucket import S3Store
from lance_io.store.s3.bucket_options import S3Options, parse_s3
from lance_io.store.s3.oss_options import as_s3_options
from lance_io.store.url import resolve_uri

if TYPE_CHECKING:
    from tests.servers import S3Server

HANGZHOU = "https://oss-cn-hangzhou.aliyuncs.com"
TABLE = pa.table({"a": [1, 2, 3]})


def parsed(options: dict[str, str], environment: dict[str, str] | None = None) -> S3Options:
    return parse_s3("bucket", as_s3_options(options, environment or {}), {})


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (
            {
                "oss_endpoint": HANGZHOU,
                "oss_access_key_id": "id",
                "oss_secret_access_key": "secret",
                "oss_security_token": "token",
            },
            {},
        ),
        (
            {
                "endpoint": "oss-cn-hangzhou.aliyuncs.com",
                "access_key_id": "id",
                "access_key_secret": "secret",
                "security_token": "token",
            },
            {},
        ),
        (
            {},
            {
                "OSS_ENDPOINT": HANGZHOU,
                "OSS_ACCESS_KEY_ID": "id",
                "OSS_ACCESS_KEY_SECRET": "secret",
                "OSS_SECURITY_TOKEN": "token",
            },
        ),
        (
            {"oss_endpoint": HANGZHOU, "oss_access_key_id": "id"},
            {"ALIBABA_CLOUD_ACCESS_KEY_SECRET": "secret", "OSS_ACCESS_KEY_ID": "other", "OSS_SECURITY_TOKEN": "token"},
        ),
    ],
    ids=["oss", "plain", "environment", "mixed"],
)
def test_options_of_pylance(options: dict[str, str], environment: dict[str, str]) -> None:
    found = parsed(options, environment)
    assert (found.access_key, found.secret_key, found.token) == ("id", "secret", "token")
    assert (found.endpoint, found.region, found.virtual_hosted) == (HANGZHOU, "cn-hangzhou", True)
    assert not {"secret", "token"} & {*repr(found).split("'")}


def test_regions_and_options_of_s3() -> None:
    assert parsed({"oss_endpoint": "https://oss-cn-beijing-internal.aliyuncs.com"}).region == "cn-beijing"
    assert parsed({"oss_endpoint": HANGZHOU, "oss_region": "elsewhere"}).region == "elsewhere"
    found = parsed({"oss_endpoint": HANGZHOU, "connect_timeout": "2s", "aws_virtual_hosted_style_request": "false"})
    assert (found.connect_timeout_s, found.virtual_hosted) == (2.0, False)


def test_an_endpoint_is_needed() -> None:
    with pytest.raises(UsageError, match="OSS endpoint is required"):
        resolve_uri("oss://bucket/path")


def test_a_table_by_oss(s3: S3Server, s3_prefix: str) -> None:
    options = {
        "oss_endpoint": s3.endpoint,
        "allow_http": "true",
        "oss_access_key_id": s3.user,
        "oss_secret_access_key": s3.secret,
        "oss_region": s3.region,
    }
    uri = f"oss://{s3.bucket}/{s3_prefix}"
    written = lance_io.write_dataset(TABLE, uri, storage_options=options)
    assert written.uri == uri
    assert lance_io.dataset(uri, storage_options=options).to_table() == TABLE
    assert lance_io.dataset(f"s3://{s3.bucket}/{s3_prefix}", storage_options=s3.options()).to_table() == TABLE


def test_a_table_by_s3a(s3: S3Server, s3_prefix: str) -> None:
    lance_io.write_dataset(TABLE, f"s3a://{s3.bucket}/{s3_prefix}", storage_options=s3.options())
    assert lance_io.dataset(f"s3://{s3.bucket}/{s3_prefix}", storage_options=s3.options()).to_table() == TABLE
    found = resolve_uri(f"s3a://{s3.bucket}/{s3_prefix}", s3.options())
    assert isinstance(found.store, S3Store)
    assert found.uri == f"s3://{s3.bucket}/{s3_prefix}"
