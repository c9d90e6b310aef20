"""What `examples/` shows runs as it stands there, and gives what pylance gives."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import lance
import numpy as np
import pyarrow as pa
import pytest
from aiohttp.test_utils import TestClient, TestServer

import lance_io

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import ModuleType

    from tests.servers import S3Server

CHECKOUT = Path(__file__).resolve().parents[1]
EXAMPLES = CHECKOUT / "examples"


def load_example(name: str) -> ModuleType:
    """Import `examples/<name>.py` without running it."""
    spec = importlib.util.spec_from_file_location(f"examples_{name.replace('/', '_')}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_orders(uri: str, num_rows: int, storage_options: dict[str, str] | None = None) -> lance.LanceDataset:
    """The demo's table, written by pylance."""
    batches = list(load_example("demo").order_batches(num_rows))
    return lance.write_dataset(batches, uri, schema=batches[0].schema, storage_options=storage_options)


def variables_of(s3: S3Server) -> dict[str, str]:
    """How S3 clients find the server, as `python -m servers` prints it."""
    return {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": s3.region,
        "AWS_ACCESS_KEY_ID": s3.user,
        "AWS_SECRET_ACCESS_KEY": s3.secret,
    }


def test_demo_runs_without_a_terminal(tmp_path: Path) -> None:
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    uri = tmp_path / "orders.lance"
    command = [sys.executable, EXAMPLES / "demo.py", "--rows", "3000", "--keep", uri]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Read and written" in done.stdout
    assert "Every answer equals pylance's" in done.stdout
    assert lance.dataset(str(uri)).count_rows() == 3000


async def test_service_answers_lookups_from_a_bucket(
    s3: S3Server, s3_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"{s3_uri}/orders.lance"
    orders = write_orders(uri, 1000, storage_options=s3.options())
    for variable, value in variables_of(s3).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("ORDERS_URI", uri)
    service = load_example("service/lookups")

    async with TestClient(TestServer(service.app)) as client:
        for row in orders.take([0, 417, 999]).to_pylist():
            answer = await (await client.get(f"/orders/{row['token']}")).json()
            assert answer["id"] == row["id"]
            assert answer["tags"] == row["tags"]
            assert answer["ordered"] == str(row["ordered"])
        assert (await client.get("/orders/nobody")).status == 404


async def test_service_answers_keys_by_an_index_that_it_builds(
    s3: S3Server, s3_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"{s3_uri}/orders.lance"
    orders = write_orders(uri, 5000, storage_options=s3.options())
    for variable, value in variables_of(s3).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("ORDERS_URI", uri)
    service = load_example("service/by_key")
    async with TestClient(TestServer(service.app)) as client:
        rows = orders.take([0, 417, 4999], columns=service.COLUMNS).to_pylist()
        for row in rows:
            assert await (await client.get(f"/orders/{row['id']}")).json() == [row]
        keys = [rows[1]["id"], -5, rows[0]["id"]]
        assert await (await client.post("/orders", json=keys)).json() == [rows[1], None, rows[0]]
        assert (await client.get("/orders/-5")).status == 404
        for key in ("nothing", str(1 << 70)):
            assert (await client.get(f"/orders/{key}")).status == 400
        for body in ('{"id": 5}', '["x"]', "[", f"[{1 << 70}]"):
            assert (await client.post("/orders", data=body)).status == 400
    assert [index.name for index in lance.dataset(uri, storage_options=s3.options()).describe_indices()] == ["id_idx"]


async def test_service_answers_lookups_of_numbers_that_json_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    uri = str(tmp_path / "orders.lance")
    prices = pa.array([math.nan, math.inf, -math.inf, 1.5])
    orders = write_orders(uri, 4).to_table()
    orders = orders.set_column(orders.schema.get_field_index("price"), "price", prices)
    lance.write_dataset(orders, uri, mode="overwrite")
    monkeypatch.setenv("ORDERS_URI", uri)
    service = load_example("service/lookups")
    async with TestClient(TestServer(service.app)) as client:
        found = [await (await client.get(f"/orders/{token}")).text() for token in orders["token"].to_pylist()]
    shown = [json.loads(text, parse_constant=refuse)["price"] for text in found]
    assert shown == ["NaN", "Infinity", "-Infinity", 1.5]


def numbers_in(text: str) -> dict[str, float]:
    """Metrics in the text format of Prometheus."""
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


async def test_table_service_answers_as_pylance(s3: S3Server, s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"{s3_uri}/orders.lance"
    orders = write_orders(uri, 1000, storage_options=s3.options())
    for variable, value in variables_of(s3).items():
        monkeypatch.setenv(variable, value)
    service = load_example("service/table_service")

    def shown(rows: pa.Table) -> list[Any]:
        return json.loads(json.dumps(rows.to_pylist(), default=str))

    async with TestClient(TestServer(service.make_app(uri))) as client:

        async def get(path: str, **query: str) -> Any:
            answer = await client.get(path, params=query)
            assert answer.status == 200, await answer.text()
            return await answer.json()

        before = numbers_in(await (await client.get("/metrics")).text())
        assert await get("/health") == {"version": 1, "rows": 1000, "fresh": True}
        expected = shown(orders.take([0, 417, 999]))
        assert [(await get(f"/rows/{row['id']}"))["row"] for row in expected] == expected
        found = await get("/rows", filter="price > 20 AND drink = 'mate'", columns="id,price", limit="4")
        wanted = orders.to_table(columns=["id", "price"], filter="price > 20 AND drink = 'mate'", limit=4)
        assert found["rows"] == shown(wanted) and len(found["rows"]) == 4

        new = [{"id": 5000 + n, "drink": "mate", "ordered": "2026-01-02 03:04:05", "tags": [n]} for n in range(8)]
        new[0]["embedding"] = [0.5] * 32
        added = await asyncio.gather(*(client.post("/rows", data=json.dumps(row)) for row in new))
        told = [await answer.json() for answer in added]
        assert [answer.status for answer in added] == [201] * 8
        theirs = lance.dataset(uri, storage_options=s3.options())
        assert theirs.version == max(one["version"] for one in told)
        for row in shown(theirs.to_table(filter="id >= 5000")):
            assert (await get(f"/rows/{row['id']}"))["row"] == row
        assert theirs.count_rows() == 1008

        for path in (
            "/rows?filter=nothing%20%3D%201",
            "/rows?limit=many",
            "/rows?columns=nothing",
            "/search?words=mate",
        ):
            assert (await client.get(path)).status == 400
        for body in ("[1]", "{", '{"nothing": 1}', '{"id": "x"}', ""):
            assert (await client.post("/rows", data=body)).status == 400
        for unknown in ("77777", "nobody"):
            assert (await client.get(f"/rows/{unknown}")).status == 404
        theirs.create_scalar_index("drink", "INVERTED")
        theirs.delete("id = 5001")
        await client.app[service.NEWEST].move(await lance_io.AsyncDataset.open(uri))
        assert (await client.get("/rows/5001")).status == 404
        matches = (await get("/search", words="mate", limit="3"))["rows"]
        assert [row["drink"] for row in matches] == ["mate"] * 3

        after = numbers_in(await (await client.get("/metrics")).text())
        spent = {name: value - before.get(name, 0) for name, value in after.items()}
        assert spent["lance_io_group_appends_total"] == 8
        assert spent["lance_io_group_commits_total"] == len({one["version"] for one in told})
        assert spent['lance_io_call_duration_seconds_count{call="take"}'] >= 11
        assert spent['lance_io_requests_total{operation="get"}'] > 0
        assert not any(secret in "".join(after) for secret in (s3.user, s3.secret, s3.bucket))
    assert theirs.count_rows() == 1007


@pytest.fixture
def service() -> ModuleType:
    """The module of the service, newly loaded."""
    return load_example("service/table_service")


@pytest.fixture
async def client(tmp_path: Path, service: ModuleType) -> AsyncIterator[TestClient[Any, Any]]:
    """The service of a table with unusual values."""
    rows = {"id": [1, 2, 3], "name": ["x", "y", "repeat("], "price": [math.nan, -math.inf, math.inf]}
    rows["parts"] = [{"inner": [math.nan, 1.5]}] * 3
    lance.write_dataset(pa.table(rows), str(tmp_path / "t.lance"))
    async with TestClient(TestServer(service.make_app(str(tmp_path / "t.lance")))) as client:
        yield client


async def test_table_service_answers_numbers_that_json_lacks(client: TestClient[Any, Any]) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    rows = []
    for path in ("/rows/1", "/rows"):
        answer = json.loads(await (await client.get(path)).text(), parse_constant=refuse)
        rows += [answer["row"]] if "row" in answer else answer["rows"]
    assert [row["price"] for row in rows] == ["NaN", "NaN", "-Infinity", "Infinity"]
    assert rows[0]["parts"] == {"inner": ["NaN", 1.5]}


async def test_table_service_finds_the_nearest_rows_of_a_filter(tmp_path: Path, service: ModuleType) -> None:
    values = np.random.default_rng(4).normal(size=(900, 4)).astype("f4")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 4)
    peer = lance.write_dataset(pa.table({"id": range(900), "v": vectors}), str(tmp_path / "t.lance"))
    peer.create_index("v", "IVF_FLAT", num_partitions=3)
    asked = {"column": "v", "q": "0.5,-0.5,0.25,1e-1", "filter": "id % 2 = 0", "limit": "7"}
    async with TestClient(TestServer(service.make_app(str(tmp_path / "t.lance")))) as client:
        rows = (await (await client.get("/near", params=asked)).json())["rows"]
        nearest = {"column": "v", "q": [0.5, -0.5, 0.25, 0.1], "k": 7, "nprobes": 20}
        expected = peer.to_table(["id"], "id % 2 = 0", nearest=nearest, prefilter=True)["id"].to_pylist()
        assert [row["id"] for row in rows] == expected
        for wrong in ({"q": "a"}, {"q": "1,2"}, {"q": ""}, {"column": "w"}, {"limit": "0"}, {"filter": "repeat(v, 9)"}):
            assert (await client.get("/near", params={**asked, **wrong})).status == 400


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 21, "٣" * 1000])
async def test_table_service_knows_no_row_of_so_many_digits(client: TestClient[Any, Any], digits: str) -> None:
    assert (await client.get(f"/rows/{digits}")).status == 404
    assert (await client.get("/rows", params={"limit": digits})).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b'{"id": 7}\nnull',
        b'"{}"',
        b"[{}]",
        b'{"id": 7, "name": ' + b"[" * 1_000_000,
        b'{"id": 7, "name": ' + b'{"a":' * 100_000,
        b'{"id": 7',
        b'{"id": 7, "name": "\\ud800"}',
        b'{"id": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: body[:24].decode(),
)
async def test_table_service_refuses_what_is_no_row(client: TestClient[Any, Any], body: bytes) -> None:
    """Arrow's parser ends the process on some of these."""
    answer = await client.post("/rows", data=body)
    assert (answer.status, (await client.get("/rows/7")).status) == (400, 404)


async def test_table_service_takes_brackets_in_texts(client: TestClient[Any, Any]) -> None:
    texts = ["[" * 100, '"{"' * 50, "\\" * 9, "]}"]
    body = "\n".join(json.dumps({"id": number, "name": text}) for number, text in enumerate(texts, 10))
    assert (await client.post("/rows", data=body.encode())).status == 201
    assert [(await (await client.get(f"/rows/{n}")).json())["row"]["name"] for n in range(10, 14)] == texts


async def test_table_service_refuses_text_that_is_not_utf8(client: TestClient[Any, Any]) -> None:
    """Appends that come together are one commit: what is right must not fail with what is wrong."""
    bodies = [b'{"id": 7, "name": "\xff\xfe"}', *(json.dumps({"id": n, "name": "é"}).encode() for n in (8, 9))]
    answers = await asyncio.gather(*(client.post("/rows", data=body) for body in bodies))
    assert [answer.status for answer in answers] == [400, 201, 201]
    assert [(await client.get(f"/rows/{number}")).status for number in (7, 8, 9)] == [404, 200, 200]


@pytest.mark.parametrize(
    "filter",
    [
        "length(repeat(name, 100000000)) > 3",
        "repeat('x', 100000000) = name",
        "REPEAT (name, 9) = name",
        "lower(rpad(name, 100000000, 'x')) = name",
        "repeat/* */(name, 9) = name",
        '"repeat"(name, 9) = name',
        "name = '' or " * 200 + "id = 1",
    ],
)
async def test_table_service_bounds_the_work_of_filters(client: TestClient[Any, Any], filter: str) -> None:
    assert (await client.get("/rows", params={"filter": filter})).status == 400


@pytest.mark.parametrize(
    ("filter", "ids"),
    [
        ("name = 'repeat('", [3]),
        ("upper(name) IN ('X', 'Y') and (id > 1)", [2]),
        ("cast(id as string) = '1' or not (id < 3)", [1, 3]),
    ],
)
async def test_table_service_takes_ordinary_filters(client: TestClient[Any, Any], filter: str, ids: list[int]) -> None:
    answer = await client.get("/rows", params={"filter": filter, "columns": "id"})
    assert [row["id"] for row in (await answer.json())["rows"]] == ids


async def test_table_service_knows_when_its_table_is_gone(
    client: TestClient[Any, Any], service: ModuleType, tmp_path: Path
) -> None:
    assert (await client.get("/health")).status == 200
    newest = client.app[service.NEWEST]
    lance.dataset(str(tmp_path / "t.lance")).insert(pa.table({"id": [4]}))
    await newest.look()
    assert await (await client.get("/health")).json() == {"version": 2, "rows": 4, "fresh": True}
    shutil.rmtree(tmp_path / "t.lance")
    with pytest.raises(FileNotFoundError):
        await newest.look()
    assert (await client.get("/health")).status == 503
    assert (await client.get("/rows", params={"filter": "name = 'x'"})).status == 503
    assert (await client.post("/rows", data=b'{"id": 5}')).status == 503
    lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "t.lance"))  # another table, at version 1
    await newest.look()
    assert (await client.get("/health")).status == 503


async def test_table_service_ends_well_under_load(tmp_path: Path) -> None:
    """What it has acknowledged when it is told to end is there, and it loses no request that it took."""
    uri = str(tmp_path / "orders.lance")
    write_orders(uri, 100)
    command = [sys.executable, EXAMPLES / "service" / "table_service.py", uri, "--port", "0"]
    service = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        assert service.stdout is not None
        url = (await service.stdout.readline()).decode().strip()
        assert await load_example("service/load_test").run(url, num_clients=8, seconds=60, num_requests=6) == 0
        acknowledged: list[int] = []

        async def add(session: aiohttp.ClientSession, first: int) -> None:
            with suppress(aiohttp.ClientConnectionError):  # once it takes no more
                for number in range(first, first + 1000):
                    async with session.post("/rows", data=json.dumps({"id": number})) as answer:
                        assert answer.status == 201, await answer.text()
                        acknowledged.append(number)
                        if len(acknowledged) == 20:
                            service.send_signal(signal.SIGTERM)

        async with aiohttp.ClientSession(url) as session:
            await asyncio.gather(*(add(session, -1000 * (caller + 1)) for caller in range(4)))
        assert await service.wait() == 0
    finally:
        if service.returncode is None:
            service.kill()
            await service.wait()
    assert len(acknowledged) >= 20
    assert sorted(lance.dataset(uri).to_table(filter="id < 0")["id"].to_pylist()) == sorted(acknowledged)
