"""Every Python block of the README and of `docs/` runs as it stands, alone, in a fresh interpreter.

Only addresses differ: folders become those of the test, buckets those of the test servers, dots their keys. Two places
that no test has, an SFTP server and Hugging Face, are folders of this machine under their names in fsspec.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import lance_io
from servers import azurite, fake_gcs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.servers import AzureServer, GcsServer, S3Server

CHECKOUT = Path(__file__).resolve().parents[1]
BLOCKS = {
    f"{page.stem}-{number}": code
    for page in (CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md")))
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
}
ON_DISK = (
    "README-0 branches-0 changing-0 commits-0 commits-1 costs-0 operations-0 operations-1 tour-0 tour-1 tour-2 tour-4 "
    "indices-0 indices-1 indices-2 indices-3 indices-text-0 indices-vectors-0 indices-vectors-1 "
    "indices-vectors-2 upkeep-0 upkeep-1 writing-0 writing-1"
).split()
ON_S3 = ["costs-1", "credentials-0", "disk-cache-0", "filesystems-1", "filesystems-2", "storage-0", "tour-3"]
ON_OTHERS = ["clouds-0", "clouds-1", "filesystems-0", "filesystems-3"]
ON_SPARK = ["spark-0", "spark-1", "tour-5"]  # tests/spark/test_spark_blocks.py, test_pipeline.py

ORDERS = pa.table({"id": range(300_000), "drink": ["mate"] * 300_000, "price": [42.5] * 300_000})
ORDERS = ORDERS.append_column("token", ORDERS["id"].cast(pa.string()))

# fsspec finds the classes of these protocols here, in place of packages that need a server.
STAND_INS = """
import fsspec
from fsspec.implementations.local import LocalFileSystem

class Sftp(LocalFileSystem):
    protocol = "sftp"

    def __init__(self, host, username):
        assert (host, username) == ("files.example.org", "me")
        super().__init__()

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(path.removeprefix("sftp://files.example.org"))

    @staticmethod
    def _get_kwargs_from_urls(url):
        return {"host": "files.example.org"}

class HuggingFace(LocalFileSystem):
    protocol = "hf"

    def __init__(self, token):
        super().__init__()

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(path.removeprefix("hf:/"))

fsspec.register_implementation("sftp", Sftp, clobber=True)
fsspec.register_implementation("hf", HuggingFace, clobber=True)
"""


def run_block(
    name: str, folder: Path, changes: Mapping[str, str], variables: Mapping[str, str] | None = None, before: str = ""
) -> None:
    """Run a block in `folder` with other addresses; it must end well and say nothing on its error output."""
    code = BLOCKS[name]
    missing = [old for old in changes if old not in code]
    assert not missing, f"the block no longer has {missing}"
    if changes:  # in one pass: a new address may hold an old one
        code = re.sub("|".join(map(re.escape, changes)), lambda match: changes[match[0]], code)
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning:botocore", "-c", before + code]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), **(variables or {})}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_block_is_run() -> None:
    assert sorted(BLOCKS) == sorted([*ON_DISK, *ON_S3, *ON_OTHERS, *ON_SPARK])


@pytest.mark.parametrize("name", ON_DISK)
def test_blocks_on_disk_run(name: str, tmp_path: Path) -> None:
    if name in ("tour-0", "tour-1", "tour-2"):
        lance.write_dataset(ORDERS, str(tmp_path / "orders.lance"))
    if name.startswith("indices-vectors"):
        numbers = np.random.default_rng(7).random(600 * 128, np.float32)
        images = pa.table({"id": range(600), "v": pa.FixedSizeListArray.from_arrays(pa.array(numbers), 128)})
        images = lance.write_dataset(images, str(tmp_path / "images.lance"), max_rows_per_file=300)
        if name == "indices-vectors-0":
            images.create_index("v", "IVF_FLAT", num_partitions=2)
    if name == "indices-text-0":
        news = pa.table({"title": ["Storm warning"], "body": ["A storm over the North Sea"], "year": [2026]})
        news = lance.write_dataset(news, str(tmp_path / "news.lance"))
        for column in ("title", "body"):
            news.create_scalar_index(column, "INVERTED", with_position=True)
    changes = {"/tmp/": f"{tmp_path}/"} if "/tmp/" in BLOCKS[name] else {}
    if name == "indices-vectors-2":  # 600 rows train two partitions
        changes["(256, 16)"] = "(2, 16, sample_rate=2)"
    run_block(name, tmp_path, changes)


@pytest.mark.parametrize("name", ON_S3)
def test_blocks_on_s3_run(name: str, s3: S3Server, s3_uri: str, s3_prefix: str, tmp_path: Path) -> None:
    keys = {"key": s3.user, "secret": s3.secret, "token": "", "expires_at_millis": 2**42}
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    changes = {
        "s3://bucket/": f"{s3_uri}/",
        "s3://lance-io/": f"{s3_uri}/",
        '"bucket/': f'"{s3.bucket}/{s3_prefix}/',
        'S3Store("bucket"': f'S3Store("{s3.bucket}", prefix="{s3_prefix}"',
        'S3FileSystem(region="eu-west-1"': f'S3FileSystem(region="eu-west-1", endpoint_override="{s3.endpoint}"',
        '"eu-west-1"': f'"{s3.region}"',
        "http://127.0.0.1:9000": s3.endpoint,
        '"aws_access_key_id": "..."': f'"aws_access_key_id": "{s3.user}"',
        '"aws_secret_access_key": "..."': f'"aws_secret_access_key": "{s3.secret}"',
        "/run/keys.json": f"{tmp_path}/keys.json",
        "/var/cache/tables": f"{tmp_path}/cache",
    }
    variables = {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_ALLOW_HTTP": "true"}
    if name != "credentials-0":
        variables |= {"AWS_ACCESS_KEY_ID": s3.user, "AWS_SECRET_ACCESS_KEY": s3.secret, "AWS_REGION": s3.region}
    for table in ("t", "table", "orders"):
        lance.write_dataset(ORDERS.slice(0, 10).select(["id"]), f"{s3_uri}/{table}.lance", storage_options=s3.options())
    run_block(name, tmp_path, {old: new for old, new in changes.items() if old in BLOCKS[name]}, variables)


@pytest.fixture
def token_endpoint() -> Iterator[str]:
    """A service that gives a token of Google's to every caller."""

    class Giver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.dumps({"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Giver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/token"
        server.shutdown()
        thread.join()


def test_the_block_on_google_runs(gcs: GcsServer, s3_prefix: str, token_endpoint: str, tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form, open_text = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    account = {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "number",
        "private_key": key.private_bytes(serialization.Encoding.PEM, form, open_text).decode(),
        "client_email": "tester@project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_endpoint,
    }
    (tmp_path / "key.json").write_text(json.dumps(account))
    lance_io.write_dataset(ORDERS.slice(0, 10), gcs.uri(f"{s3_prefix}/t.lance"), storage_options=gcs.options())
    variables = fake_gcs.environment(gcs.endpoint)
    del variables["GOOGLE_SKIP_SIGNATURE"]
    variables["GOOGLE_APPLICATION_CREDENTIALS"] = f"{tmp_path}/key.json"
    here = gcs.uri(f"{s3_prefix}/t.lance")
    run_block("clouds-0", tmp_path, {"gs://bucket/t.lance": here, "gs://public-bucket/t.lance": here}, variables)


def test_the_block_on_azure_runs(azure: AzureServer, s3_prefix: str, tmp_path: Path) -> None:
    lance.write_dataset(ORDERS.slice(0, 10), azure.uri(f"{s3_prefix}/t.lance"), storage_options=azure.options())
    variables = {**azurite.environment(azure.endpoint), "AZURITE_BLOB_STORAGE_URL": azure.endpoint}
    changes = {
        "az://container/": azure.uri(f"{s3_prefix}/"),
        "container@account.dfs.core.windows.net/": (
            f"{azure.container}@{azure.account}.dfs.core.windows.net/{s3_prefix}/"
        ),
        '"account_name": "..."': f'"account_name": "{azure.account}"',
        '"account_key": "..."': f'"account_key": "{azure.account_key}"',
    }
    run_block("clouds-1", tmp_path, changes, variables)


def test_the_blocks_on_other_filesystems_run(tmp_path: Path) -> None:
    run_block("filesystems-0", tmp_path, {"/data/": f"{tmp_path}/data/"}, before=STAND_INS)
    assert lance.dataset(f"{tmp_path}/data/orders.lance").count_rows() == 3

    lance.write_dataset(ORDERS.slice(0, 10), str(tmp_path / "acme/orders/orders.lance"))
    with zipfile.ZipFile(tmp_path / "2026.zip", "w") as archive:
        for path in (tmp_path / "data/orders.lance").rglob("*"):
            archive.write(path, path.relative_to(tmp_path / "data"))
    changes = {
        "datasets/acme": f"{tmp_path}/acme".lstrip("/"),
        "/archives/": f"{tmp_path}/",
        "/data/": f"{tmp_path}/data/",
    }
    run_block("filesystems-3", tmp_path, changes, before=STAND_INS)
