"""`lance-io doctor`: what a store is told and by whom, without secrets, and which step fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.store.url import resolve_uri

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import AzureServer, GcsServer, S3Server

ROWS = pa.table({"a": range(100)})
STEPS = ["resolve", "connect", "list", "read", "conditional put"]


def flags(options: dict[str, str]) -> list[str]:
    return [text for name, value in options.items() for text in ("-o", f"{name}={value}")]


def told(ran: Any) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[bool, str]]]:
    report = json.loads(ran.out)
    assert all(step["seconds"] >= 0 for step in report["steps"])
    options = {one["name"]: (one["value"], one["origin"]) for one in report["options"]}
    return options, {step["step"]: (step["ok"], step["told"]) for step in report["steps"]}


def test_a_bucket(run: Any, s3: S3Server, s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lance_io.write_dataset(ROWS, s3_uri, storage_options=s3.options())
    given = s3.options(**{"headers.x-team": "planted-header"})
    del given["aws_region"]
    monkeypatch.setenv("AWS_REGION", s3.region)
    monkeypatch.setenv("LANCE_IO_REQUESTS_MAX", "77")
    ran = run("doctor", s3_uri, "--json", *flags(given))
    options, steps = told(ran)
    assert (ran.code, list(steps)) == (0, STEPS)
    assert all(is_ok for is_ok, _ in steps.values())
    assert options["aws_endpoint"] == (s3.endpoint, "option aws_endpoint")
    assert options["aws_region"] == (s3.region, "variable AWS_REGION")
    assert options["aws_secret_access_key"] == ("***", "option aws_secret_access_key")
    assert options["headers.x-team"] == ("***", "option headers.x-team")
    assert options["requests_max"] == ("77", "variable LANCE_IO_REQUESTS_MAX")
    assert (steps["conditional put"][1], "bytes of" in steps["read"][1]) == ("honoured", True)
    for one in (ran, run("doctor", s3_uri, *flags(given))):
        assert s3.secret not in one.out + one.err and "planted-header" not in one.out
    place = resolve_uri(s3_uri, s3.options())

    async def left() -> list[str]:
        return [meta.key async for meta in place.store.list(place.path) if "doctor" in meta.key]

    assert runtime.run(left()) == []


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_other_clouds(run: Any, kind: str, request: pytest.FixtureRequest) -> None:
    server: GcsServer | AzureServer = request.getfixturevalue(kind)
    ran = run("doctor", server.uri("empty-place"), "--json", *flags(server.options()))
    options, steps = told(ran)
    assert (ran.code, list(steps)) == (0, STEPS)
    assert "nothing to read" in steps["read"][1]
    assert options["credentials"][0] in ("none", "***")


def test_where_keys_and_region_come_from(
    run: Any, s3: S3Server, s3_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id = {s3.user}\naws_secret_access_key = {s3.secret}\n"
    )
    (tmp_path / "config").write_text("[default]\nregion = eu-central-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    ran = run("doctor", s3_uri, "--json", "--no-write", *flags({"aws_endpoint": s3.endpoint, "allow_http": "true"}))
    options, steps = told(ran)
    assert list(steps) == STEPS[:-1]
    assert options["aws_region"] == ("eu-central-1", "profile")
    assert options["credentials"] == ("***", "shared-credentials-file")


def test_where_endpoints_come_from(
    run: Any, s3: S3Server, s3_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part of the profile that names one, or the variable before it."""
    config = tmp_path / "config"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    given = {name: text for name, text in s3.options().items() if name != "aws_endpoint"}

    def found() -> dict[str, tuple[str, str]]:
        return told(run("doctor", s3_uri, "--json", "--no-write", *flags(given)))[0]

    config.write_text(f"[default]\nendpoint_url = {s3.endpoint}\n")
    assert found()["aws_endpoint"] == (s3.endpoint, "profile default")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    config.write_text(
        "[profile mine]\nendpoint_url = http://127.0.0.1:1\nservices = here\n"
        f"[services here]\ns3 =\n  endpoint_url = {s3.endpoint}\n"
    )
    options = found()
    assert options["aws_endpoint"] == (s3.endpoint, "services here of profile mine")
    assert "endpoint" not in options and "aws_endpoint_url_dynamodb" not in options
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    assert found()["aws_endpoint"] == (s3.endpoint, "variable AWS_ENDPOINT_URL_S3")
    given["aws_ignore_configured_endpoint_urls"], given["client_max_retries"] = "true", "0"
    given["proxy_url"] = "http://127.0.0.1:1"  # nothing is to leave this machine
    assert found()["endpoint"] == ("the cloud's own", "default")


def test_what_fails_is_told(run: Any, s3: S3Server, s3_uri: str) -> None:
    wrong = s3.options(aws_secret_access_key="planted-secret", client_max_retries="0")
    ran = run("doctor", s3_uri, "--json", *flags(wrong))
    _, steps = told(ran)
    assert (ran.code, steps["connect"][0]) == (1, True)
    assert not steps["list"][0] and "SignatureDoesNotMatch" in steps["list"][1]
    assert "planted-secret" not in ran.out + ran.err
    nobody = {**wrong, "aws_endpoint": "http://127.0.0.1:1"}
    _, steps = told(run("doctor", s3_uri, "--json", *flags(nobody)))
    assert steps["resolve"][0] and not steps["connect"][0] and not steps["list"][0]


def test_a_bucket_that_decides_nothing(run: Any, s3: S3Server, s3_uri: str) -> None:
    ran = run("doctor", s3_uri, "--json", *flags(s3.options(aws_conditional_put="disabled")))
    _, steps = told(ran)
    assert ran.code == 0 and "commit_lock" in steps["conditional put"][1]


def test_a_folder_of_this_machine(run: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance_io.write_dataset(ROWS, uri)
    ran = run("doctor", uri, "--json")
    _, steps = told(ran)
    assert (ran.code, list(steps)) == (0, STEPS[2:])
    assert steps["conditional put"] == (True, "honoured")
