"""What the README and `examples/` show runs as it stands there, and gives what pylance gives."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pytest
from aiohttp.test_utils import TestClient, TestServer

if TYPE_CHECKING:
    from types import ModuleType

    from tests.servers import S3Server

CHECKOUT = Path(__file__).resolve().parents[1]
EXAMPLES = CHECKOUT / "examples"
README_BLOCKS = re.findall(r"```python\n(.*?)```", (CHECKOUT / "README.md").read_text(), flags=re.DOTALL)


def load_example(name: str) -> ModuleType:
    """Import `examples/<name>.py` without running it."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_orders(uri: str, num_rows: int, storage_options: dict[str, str] | None = None) -> lance.LanceDataset:
    """The demo's table, written by pylance."""
    batches = list(load_example("demo").order_batches(num_rows))
    return lance.write_dataset(batches, uri, schema=batches[0].schema, storage_options=storage_options)


def run_block(code: str) -> None:
    """Run a code block of the README in a fresh interpreter; it must end well and complain about nothing."""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_demo_runs_without_a_terminal(tmp_path: Path) -> None:
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    uri = tmp_path / "orders.lance"
    command = [sys.executable, EXAMPLES / "demo.py", "--rows", "3000", "--keep", uri]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "What was read" in done.stdout
    assert "Every answer equals pylance's" in done.stdout
    assert lance.dataset(str(uri)).count_rows() == 3000


@pytest.mark.parametrize("block", [0, 1, 2], ids=["plain", "async", "service"])
def test_readme_blocks_run(block: int, tmp_path: Path) -> None:
    uri = str(tmp_path / "orders.lance")
    write_orders(uri, 300_000)
    code = README_BLOCKS[block]
    assert "/tmp/orders.lance" in code
    run_block(code.replace("/tmp/orders.lance", uri))


def test_readme_block_runs_on_s3(s3: S3Server, s3_uri: str) -> None:
    write_orders(f"{s3_uri}/orders.lance", 1000, storage_options=s3.options())
    _, code = README_BLOCKS[3].split("\n", 1)  # its first line needs a bucket in a cloud
    code = code.replace("http://127.0.0.1:9000", s3.endpoint).replace("s3://lance-io", s3_uri)
    for secret in (s3.user, s3.secret):
        code = code.replace('"..."', repr(secret), 1)
    run_block(f"import lance_io\n{code}\nassert ds.count_rows() == 1000")


async def test_service_answers_lookups_from_a_bucket(
    s3: S3Server, s3_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"{s3_uri}/orders.lance"
    orders = write_orders(uri, 1000, storage_options=s3.options())
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)  # as `python -m servers` prints it
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", s3.region)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.user)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    monkeypatch.setenv("ORDERS_URI", uri)
    service = load_example("service")

    async with TestClient(TestServer(service.app)) as client:
        for row in orders.take([0, 417, 999]).to_pylist():
            answer = await (await client.get(f"/orders/{row['token']}")).json()
            assert answer["id"] == row["id"]
            assert answer["tags"] == row["tags"]
            assert answer["ordered"] == str(row["ordered"])
        assert (await client.get("/orders/nobody")).status == 404
