"""Tables that cannot be opened leave no session open, on any store: a program with `-W error` says nothing of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSED = "http://127.0.0.1:9"  # nobody listens


class Answer(BaseHTTPRequestHandler):
    """The same refusal to every request, whatever it was; the first part of the path says which."""

    protocol_version = "HTTP/1.1"
    code, text = 404, b"NoSuchBucket"

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b"<Error><Code>%s</Code><Message>no</Message></Error>" % self.text
        body = b"" if self.command == "HEAD" else body
        self.send_response(self.code)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-type", "application/xml")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Denied(Answer):
    """Another one."""

    code, text = 403, b"AccessDenied"


@pytest.fixture(scope="module")
def endpoints() -> Iterator[list[str]]:
    """What is not there, what is denied, and where nobody listens."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (Answer, Denied)]
    for one in servers:
        one.daemon_threads = True
        threading.Thread(target=one.serve_forever, daemon=True).start()
    yield [*(f"http://127.0.0.1:{one.server_address[1]}" for one in servers), REFUSED]
    for one in servers:
        one.shutdown()
        one.server_close()


CHILD = """
import asyncio, json, os, sys
import lance_io
from lance_io.file import AsyncFileReader, LanceFileReader

async def opened(uri, options):
    async with lance_io.AsyncDataset.open(uri, storage_options=options):
        pass

async def read(uri, options):
    async with AsyncFileReader(uri + "/data/x.lance", options):
        pass

kept = []
for uri, options, variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    for attempt in (
        lambda: lance_io.dataset(uri, storage_options=options),
        lambda: asyncio.run(opened(uri, options)),
        lambda: LanceFileReader(uri + "/data/x.lance", options),
        lambda: asyncio.run(read(uri, options)),
    ):
        try:
            attempt()
        except (lance_io.errors.LanceError, OSError, ValueError) as error:
            if len(kept) % 4 in (0, 3):  # every second one lives on, with the frames that it came through
                kept.append(error)
            else:
                kept.append(None)
            print(type(error).__name__)
        else:
            print("opened")
"""


def place(store: str, endpoint: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """URI, options and variables of a table."""
    quick = {"client_max_retries": "1", "client_retry_timeout": "1", "timeout": "5s", "allow_http": "true"}
    s3 = {
        "aws_endpoint": endpoint,
        "aws_access_key_id": "who-it-is",
        "aws_secret_access_key": "what-nobody-knows",
        "aws_region": "us-east-1",
        **quick,
    }
    match store:
        case "s3":
            return "s3://bucket/t.lance", s3, {}
        case "dynamodb":
            variables = {"AWS_ENDPOINT_URL_DYNAMODB": endpoint}
            return "s3+ddb://bucket/t.lance?ddbTableName=commits", s3, variables
        case "azure":
            key = b64encode(b"key" * 11).decode()
            options = {"azure_storage_account_name": "account", "azure_storage_account_key": key}
            return "az://container/t.lance", {**options, "azure_endpoint": f"{endpoint}/account", **quick}, {}
        case "gcs":
            options = {"google_skip_signature": "true", **quick}
            return "gs://bucket/t.lance", options, {"STORAGE_EMULATOR_HOST": endpoint}
        case _:
            return f"{endpoint}/t.lance", {}, {}


@pytest.mark.parametrize("store", ["s3", "dynamodb", "azure", "gcs", "fsspec"])
def test_failing_opens_leave_no_session_open(store: str, endpoints: list[str]) -> None:
    places: list[Any] = [place(store, endpoint) for endpoint in endpoints]
    environment = {**os.environ, "AWS_EC2_METADATA_DISABLED": "true"}
    environment.pop("PYTHONASYNCIODEBUG", None)
    arguments = [sys.executable, "-W", "error", "-c", CHILD, json.dumps(places)]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = done.stdout.split()
    assert len(found) == 4 * len(endpoints)
    assert "opened" not in found
