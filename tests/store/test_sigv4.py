"""Our signature is botocore's, and Amazon's published one."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from lance_io.store.http.sigv4 import Signer, wire_path

NOW_S = 1_790_000_000.7
ODD = [
    "a/b",
    "with space",
    "plus+percent%25",
    "üñí-漢字/x",
    "a=b&c?d#e",
    "(b)~_'!$,*",
    "//double//slash/",
    "../up/./here",
]


def botocore_headers(
    monkeypatch: pytest.MonkeyPatch, host: str, path: str, extra: dict[str, str], token: str | None, region: str
) -> dict[str, str]:
    """What botocore would send, lower-case names."""
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: datetime.fromtimestamp(NOW_S, UTC))
    request = AWSRequest("GET", f"https://{host}{path}", headers={"host": host, **extra})
    S3SigV4Auth(Credentials("AKIDEXAMPLE", "secret/+=", token), "s3", region).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


@pytest.mark.parametrize("token", [None, "a-session/token+=="])
@pytest.mark.parametrize("key", ODD)
def test_equal_to_botocore(monkeypatch: pytest.MonkeyPatch, key: str, token: str | None) -> None:
    extra = {"range": "bytes=0-99", "if-match": '"e-tag"', "x-amz-request-payer": "requester"}
    path = f"/bucket/{wire_path(key)}"
    expected = botocore_headers(monkeypatch, "host:9000", path, extra, token, "eu-central-1")
    signer = Signer("AKIDEXAMPLE", "secret/+=", token, "eu-central-1")
    found = {"host": "host:9000", **signer.headers("host:9000", path, extra, NOW_S)}
    assert found == expected


def test_the_example_of_amazons_documentation() -> None:
    signer = Signer("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None, "us-east-1")
    headers = signer.headers("examplebucket.s3.amazonaws.com", "/test.txt", {"range": "bytes=0-9"}, 1369353600)
    assert headers["x-amz-date"] == "20130524T000000Z"
    assert headers["authorization"].endswith("f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")


def test_the_day_key_follows_the_day() -> None:
    kept = Signer("a", "b", None, "r")
    for day in range(3):
        now_s = NOW_S + 86_400 * day
        assert kept.headers("h", "/p", {}, now_s) == Signer("a", "b", None, "r").headers("h", "/p", {}, now_s)


def test_the_clock_is_read_when_no_time_is_given() -> None:
    before = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    found = Signer("a", "b", None, "r").headers("h", "/p", {})["x-amz-date"]
    assert before <= found <= time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def test_a_signer_shows_no_secret() -> None:
    assert repr(Signer("AKID", "secret", "token", "eu-west-1")) == "Signer(region='eu-west-1')"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_wire_path_is_plain_and_can_be_read_back(key: str) -> None:
    from urllib.parse import unquote

    path = wire_path(key)
    assert unquote(path) == key
    assert all(c.isascii() and (c.isalnum() or c in "-._~/%") for c in path)
