"""A machine whose clock is wrong: requests are signed again with the server's time, once."""

from __future__ import annotations

import json
import re
import time
from calendar import timegm
from datetime import UTC, datetime
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import AccessDenied, LanceError
from tests.bucket import NAME, Bucket, Right, Tables
from tests.http_faults import head

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bucket import Exchange

ROWS = pa.table({"a": range(1000)})
TOLERATED_S = 900  # as S3 has it
WAYS = ("false", "true")  # whether GETs go as those of S3 Express


class Skewed:
    """A server by another clock.

    ahead_s   of this machine's
    is_wrong  it never takes a signature for valid
    """

    def __init__(self, ahead_s: float, *, is_wrong: bool = False) -> None:
        self.ahead_s, self.is_wrong = ahead_s, is_wrong
        self.refused: list[str] = []
        self.served = 0

    async def __call__(self, exchange: Exchange) -> bool:
        asked = exchange.asked.headers
        now_s = time.time() + self.ahead_s
        signed_s = timegm(time.strptime(asked["x-amz-date"], "%Y%m%dT%H%M%SZ"))
        scope = re.search(r"Credential=[^/]+/(\d{8})/", asked["authorization"])
        assert scope is not None and scope[1] == asked["x-amz-date"][:8]
        if not self.is_wrong and abs(now_s - signed_s) < TOLERATED_S:
            self.served += 1
            await exchange.say(exchange.right().data)
            return True
        self.refused.append(exchange.asked.line.split(" ")[0])
        text = "<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>"
        body = b"" if exchange.asked.line.startswith("HEAD") else text.encode()
        known = {"Content-Length": len(body), "Content-Type": "application/xml", "Date": formatdate(now_s, usegmt=True)}
        await exchange.say(head(403, known) + body)
        return True


def options(bucket: Bucket, **more: str) -> dict[str, Any]:
    return {"storage_options": bucket.options(client_max_retries="0", hedge_percent="0", **more)}


@pytest.mark.parametrize("ahead_s", [3 * 3600.0, -40 * 86400.0])
@pytest.mark.parametrize("express", WAYS)
async def test_tables_are_read_and_written(express: str, ahead_s: float) -> None:
    async with Bucket() as bucket:
        bucket.harm = skewed = Skewed(ahead_s)
        how = options(bucket, s3_express=express)
        table = await AsyncDataset.write(ROWS, f"s3://{NAME}/t.lance", max_rows_per_file=100, **how)
        num_refused = len(skewed.refused)
        assert 1 <= num_refused <= 8  # of those that went out before the first answer came
        assert await table.to_table() == ROWS
        assert (await table.take([5, 999]))["a"].to_pylist() == [5, 999]
        await table.delete("a = 7")
        assert await table.count_rows() == 999
        assert len(skewed.refused) == num_refused
        await table.aclose()


@pytest.mark.parametrize("express", WAYS)
async def test_each_read_that_is_under_way_is_signed_again_once(express: str) -> None:
    """The clock goes wrong while a table is open."""
    async with Bucket() as bucket:
        how = options(bucket, s3_express=express)
        table = await AsyncDataset.write(ROWS, f"s3://{NAME}/t.lance", max_rows_per_file=100, **how)
        bucket.harm = skewed = Skewed(-7200.0)
        assert (await table.take(list(range(0, 1000, 100))))["a"].to_pylist() == list(range(0, 1000, 100))
        assert set(skewed.refused) == {"GET"}
        assert len(skewed.refused) <= skewed.served
        await table.aclose()


@pytest.mark.parametrize("express", WAYS)
async def test_a_refusal_that_stays_is_told(express: str) -> None:
    async with Bucket() as bucket:
        bucket.harm = skewed = Skewed(7200.0, is_wrong=True)
        with pytest.raises(AccessDenied, match="RequestTimeTooSkewed"):
            await AsyncDataset.open(f"s3://{NAME}/t.lance", version=1, **options(bucket, s3_express=express))
        assert len(skewed.refused) == 2
        skewed.ahead_s = 0.0  # it says the time that the request was signed with
        skewed.refused.clear()
        with pytest.raises(AccessDenied, match="RequestTimeTooSkewed"):
            await AsyncDataset.open(
                f"s3://{NAME}/t.lance", version=2, **options(bucket, s3_express=express, user_agent="x")
            )
        assert len(skewed.refused) == 1


# -- services beside a bucket ------------------------------------------------------------------------------------------


class SkewedService(Skewed):
    """The same of a database, or of a service that gives keys, beside a bucket by this machine's clock."""

    def __init__(self, ahead_s: float, code: str, *, is_wrong: bool = False) -> None:
        super().__init__(ahead_s, is_wrong=is_wrong)
        self.code = code

    async def __call__(self, exchange: Exchange) -> bool:
        asked = exchange.asked
        if not asked.line.startswith("POST / "):
            await exchange.say(exchange.right().data)
            return True
        now_s = time.time() + self.ahead_s
        signed = asked.headers.get("x-amz-date")
        is_right = signed is None or abs(now_s - timegm(time.strptime(signed, "%Y%m%dT%H%M%SZ"))) < TOLERATED_S
        date = {"Date": formatdate(now_s, usegmt=True)}
        if is_right and not self.is_wrong:
            self.served += 1
            right = self.keys(asked.body, now_s) if "x-amz-target" not in asked.headers else exchange.right()
            await exchange.say(Right(right.status, {**right.headers, **date}, right.body).data)
            return True
        self.refused.append("POST")
        body = f"<ErrorResponse><Error><Code>{self.code}</Code><Message>late</Message></Error></ErrorResponse>".encode()
        if "x-amz-target" in asked.headers:
            body = json.dumps({"__type": f"com.amazon.coral.service#{self.code}", "message": "late"}).encode()
        await exchange.say(head(400, {"Content-Length": len(body), **date}) + body)
        return True

    def keys(self, body: bytes, now_s: float) -> Right:
        """Of a role, for an hour by the service's clock."""
        action = re.search(rb"Action=(\w+)", body)
        assert action is not None
        name, end = action[1].decode(), datetime.fromtimestamp(now_s + 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = (
            f"<{name}Response><{name}Result><Credentials><AccessKeyId>ROLE</AccessKeyId><SecretAccessKey>secret"
            f"</SecretAccessKey><SessionToken>token</SessionToken><Expiration>{end}</Expiration></Credentials>"
            f"</{name}Result></{name}Response>"
        ).encode()
        return Right(200, {"Content-Length": len(text), "Content-Type": "text/xml"}, text)


CODES = ["RequestTimeTooSkewed", "InvalidSignatureException", "SignatureDoesNotMatch"]


@pytest.fixture
def objects(tmp_path: Path) -> dict[str, bytes]:
    lance_io.write_dataset(ROWS, str(tmp_path / "t.lance"))
    return {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("ahead_s", "code"), [(3 * 3600.0, CODES[0]), (-7200.0, CODES[1])])
async def test_a_database_is_asked_again(ahead_s: float, code: str, objects: dict[str, bytes]) -> None:
    async with Tables(objects) as tables:
        tables.harm = skewed = SkewedService(ahead_s, code)
        uri = f"s3+ddb://{NAME}/t.lance?ddbTableName=rows"
        table = await AsyncDataset.open(uri, **options(tables))
        assert await table.to_table() == ROWS
        assert await table.latest_version() == 1
        assert len(skewed.refused) == 1 <= skewed.served
        await table.aclose()
        skewed.is_wrong, skewed.refused = True, []
        with pytest.raises(LanceError, match=code):
            await AsyncDataset.open(uri, **options(tables, user_agent="x"))
        assert len(skewed.refused) == 2


@pytest.mark.parametrize(("ahead_s", "code"), [(3 * 3600.0, CODES[2]), (-7200.0, CODES[0])])
@pytest.mark.parametrize("way", ["options", "profile", "token"])
async def test_a_role_is_assumed_again(
    way: str, ahead_s: float, code: str, objects: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its keys hold for as long as the service says, by its clock."""
    role = "arn:aws:iam::123456789012:role/reader"
    async with Bucket(objects) as bucket:
        bucket.harm = skewed = SkewedService(ahead_s, code)
        given = options(bucket, aws_role_arn=role, aws_endpoint_url_sts=bucket.endpoint)["storage_options"]
        if way == "token":
            (tmp_path / "token").write_text("token")
            given["aws_web_identity_token_file"] = str(tmp_path / "token")
        elif way == "profile":
            (tmp_path / "config").write_text(
                f"[default]\nrole_arn = {role}\nsource_profile = keys\nregion = us-east-1\n"
                "[profile keys]\naws_access_key_id = AKID\naws_secret_access_key = secret\n"
            )
            monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
            monkeypatch.setenv("AWS_ENDPOINT_URL_STS", bucket.endpoint)
            gone = ("aws_role_arn", "aws_endpoint_url_sts", "aws_access_key_id", "aws_secret_access_key")
            given = {name: text for name, text in given.items() if name not in gone}
        table = await AsyncDataset.open(f"s3://{NAME}/t.lance", storage_options=given)
        assert await table.to_table() == ROWS
        assert (len(skewed.refused), skewed.served) == (0 if way == "token" else 1, 1)
        await table.aclose()
