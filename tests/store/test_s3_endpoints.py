"""Which endpoint is asked: option, variables and profile in the order of AWS's tools, with botocore beside it."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from botocore.session import Session

from lance_io import AsyncDataset
from lance_io.commit.dynamodb import DynamoManifestStore
from lance_io.commit.table_location import open_location
from lance_io.errors import LanceError, UnsupportedError, UsageError
from lance_io.store.s3.bucket import S3Store
from lance_io.store.url import resolve_uri
from tests.bucket import NAME, Bucket

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}
SOURCES = {
    "option": "http://option:1",
    "AWS_ENDPOINT_URL_S3": "http://of-s3:2",
    "AWS_ENDPOINT_URL": "http://all:3",
    "AWS_ENDPOINT": "http://old:4",
    "services": "http://services:5",
    "profile": "http://profile:6",
}
ALL = [taken for size in range(len(SOURCES) + 1) for taken in combinations(SOURCES, size)]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything."""
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "DYNAMODB_")):
            monkeypatch.delenv(name)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def write_config(place: Path, taken: tuple[str, ...], service: str = "s3", ignore: str = "") -> None:
    lines = ["[default]", ignore]
    if "services" in taken:
        lines.append("services = local")
    if "profile" in taken:
        lines.append(f"endpoint_url = {SOURCES['profile']}")
    if "services" in taken:
        lines += ["[services local]", f"{service} =", f"  endpoint_url = {SOURCES['services']}", "  other = 1"]
    (place / "config").write_text("\n".join(lines) + "\n")


def endpoint_of(options: Mapping[str, str] | None = None) -> str | None:
    store = resolve_uri("s3://bucket/t.lance", {"allow_http": "true", **(options or {})}).store
    assert isinstance(store, S3Store)
    return store.options.endpoint


def of_botocore(service: str) -> str:
    return str(Session().create_client(service).meta.endpoint_url)


@pytest.mark.parametrize("taken", ALL, ids=" ".join)
def test_the_first_that_says_something_counts(
    taken: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(place, taken)
    for name in taken:
        if name.startswith("AWS"):
            monkeypatch.setenv(name, SOURCES[name])
    found = endpoint_of({"aws_endpoint": SOURCES["option"]} if "option" in taken else {})
    assert found == (SOURCES[taken[0]] if taken else None)
    if 0 < len(taken) < 3 and not {"option", "AWS_ENDPOINT"} & set(taken):  # which botocore does not know
        assert of_botocore("s3") == found


def test_others_profiles_say_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "config").write_text(
        "[default]\nregion = x\n[profile of mine]\nendpoint_url = http://mine:7\n"
        '[profile "quoted one"]\nservices = all\n[services all]\ns3 =\n  endpoint_url=http://quoted:8\n'
        "[profile empty]\nservices = none\nendpoint_url =\n"
    )
    (place / "credentials").write_text("[keys]\nendpoint_url = http://keys:9\n")
    assert endpoint_of() is None
    assert endpoint_of({"aws_profile": "quoted one"}) == "http://quoted:8"
    assert endpoint_of({"aws_profile": "empty"}) is None
    assert endpoint_of({"aws_profile": "keys"}) == "http://keys:9"
    monkeypatch.setenv("AWS_PROFILE", "of mine")
    assert endpoint_of() == "http://mine:7"


@pytest.mark.parametrize("how", ["variable", "option", "aws option", "profile"])
def test_what_is_configured_can_be_passed_over(how: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(
        place, ("services", "profile"), ignore="ignore_configured_endpoint_urls = true" if how == "profile" else ""
    )
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_DYNAMODB"):
        monkeypatch.setenv(name, "http://configured:1")
    options = {"option": {"ignore_configured_endpoint_urls": "true"}}.get(how, {})
    if how == "aws option":
        options = {"aws_ignore_configured_endpoint_urls": "true"}
    assert endpoint_of() == (None if how == "profile" else "http://configured:1")
    if how == "variable":
        monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert endpoint_of(options) is None
    assert endpoint_of({**options, "aws_endpoint": "http://given:2"}) == "http://given:2"
    assert database_of(options) is None
    if how in ("variable", "profile"):
        assert of_botocore("s3") == "https://s3.amazonaws.com"
        assert endpoint_of({"ignore_configured_endpoint_urls": "false"}) == "http://configured:1"


def database_of(options: Mapping[str, str] | None = None) -> str | None:
    _, handler = open_location("s3+ddb://bucket/t?ddbTableName=rows", {"allow_http": "true", **(options or {})})
    rows = handler.rows  # type: ignore[attr-defined]
    assert isinstance(rows, DynamoManifestStore)
    return rows._endpoint


def test_databases_have_endpoints_of_their_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "http://of-s3-only:1")
    assert database_of() is None
    write_config(place, ("services", "profile"), service="dynamodb")
    assert database_of() == SOURCES["services"] == of_botocore("dynamodb")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all:3")
    assert database_of() == "http://all:3" == of_botocore("dynamodb")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://of-it:2")
    assert database_of() == "http://of-it:2" == of_botocore("dynamodb")
    monkeypatch.setenv("DYNAMODB_ENDPOINT", "http://of-pylance:2")
    assert database_of() == "http://of-pylance:2"
    assert database_of({"dynamodb_endpoint": "http://given:1"}) == "http://given:1"


def test_files_that_are_none(place: Path) -> None:
    (place / "config").write_text("aws_secret_access_key = hidden-words\n")
    with pytest.raises(UsageError, match="config") as caught:
        endpoint_of()
    assert "hidden-words" not in str(caught.value)


async def test_all_requests_go_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads by connections of our own, writes by aiobotocore."""
    import pyarrow as pa

    rows = pa.table({"a": range(10)})
    async with Bucket() as bucket:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        how: dict[str, Any] = {"storage_options": {"allow_http": "true", "client_max_retries": "0"}}
        table = await AsyncDataset.write(rows, f"s3://{NAME}/t.lance", **how)
        assert await table.to_table() == rows
        await table.aclose()
        monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
        how["storage_options"]["aws_endpoint"] = bucket.endpoint
        table = await AsyncDataset.write(rows, f"s3://{NAME}/t.lance", mode="append", **how)
        assert await table.count_rows() == 20
        await table.aclose()


@pytest.mark.parametrize("ignores", [False, True])
async def test_security_tokens_come_from_where_they_are_configured(
    ignores: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AssumeRoleWithWebIdentity is asked of AWS_ENDPOINT_URL_STS, unless that is passed over."""
    from tests.bucket import Exchange
    from tests.http_faults import head

    asked: list[str] = []

    async def answer(exchange: Exchange) -> bool:
        asked.append(exchange.asked.line)
        body = (
            b"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
            b"<AccessKeyId>AKIDOFSTS</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>t</SessionToken>"
            b"<Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
            b"</AssumeRoleWithWebIdentityResponse>"
        )
        await exchange.say(head(200, {"Content-Length": len(body), "Content-Type": "text/xml"}) + body)
        return True

    (place / "token").write_text("token")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(place / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    async with Bucket() as bucket, Bucket() as tokens:
        tokens.harm = answer
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", tokens.endpoint)
        options = {"aws_endpoint": bucket.endpoint, "allow_http": "true", "client_max_retries": "0"}
        if ignores:
            options["ignore_configured_endpoint_urls"] = "true"
            monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # Amazon is not to be asked by tests
        with pytest.raises(LanceError):
            await AsyncDataset.open(f"s3://{NAME}/none.lance", storage_options=options)
    assert asked == ([] if ignores else ["POST / HTTP/1.1"])


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3+ddb"])
@pytest.mark.parametrize("resource", ["accesspoint/mine", "accesspoint:mine"])
def test_access_points_are_refused_as_such(scheme: str, resource: str) -> None:
    end = "?ddbTableName=rows" if scheme == "s3+ddb" else ""
    with pytest.raises(UnsupportedError, match=r"access point.*alias"):
        open_location(f"{scheme}://arn:aws:s3:eu-west-1:123456789012:{resource}/t.lance{end}")
