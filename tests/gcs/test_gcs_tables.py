"""Tables in Google Cloud Storage: what they hold, beside pylance; what they cost; writers, faults, forks, the end.

Pylance cannot write to the server of the tests, which does not know its way of PUTs; it reads there what we write.
"""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import CommitUnknownError, LanceError
from lance_io.reads.version.session import Session
from lance_io.store.gcs.gcs_store import GcsStore
from lance_io.store.url import resolve_uri
from tests.s3.proxy import CountingProxy, FaultyProxy, Message
from tests.s3.test_reprs import reached_from
from tests.s3.test_requests import FRAGMENTS, ROWS, costs, part
from tests.simulate.world import numbers
from tests.simulate.writers import row
from tests.store.forward_proxy import ForwardProxy
from tests.store.table_conformance import TableConformance, run_program, until_it_goes

if TYPE_CHECKING:
    from tests.servers import GcsServer, TableServer

TOKEN = "very-secret-token"
CHECKOUT = Path(__file__).resolve().parents[2]
WRITERS = 16


@pytest.fixture
def uri(gcs: GcsServer) -> str:
    """A fresh place."""
    return f"gs://{gcs.bucket}/test-{uuid.uuid4().hex}/t.lance"


def through(gcs: GcsServer, proxy: Any, **more: str) -> dict[str, str]:
    return gcs.options(google_base_url=proxy.endpoint, **more)


class CountingGcsProxy(CountingProxy):
    """Names the server as itself: it knows no other host, where it is asked in pylance's way."""

    async def answer(self, request: Message, server: Any, to_server: Any) -> Message:
        host = b"Host: %s:%d" % (self._target[0].encode(), self._target[1])
        named = Message(re.sub(rb"(?i)(?<=\r\n)host: [^\r]*", host, request.head), request.body)
        return await super().answer(named, server, to_server)


def for_pylance(options: dict[str, str]) -> dict[str, str]:
    """It asks for a token even where none is wanted."""
    return {**options, "google_storage_token": TOKEN}


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_reading_costs_what_it_costs_on_s3_and_not_more_than_pylance(gcs: GcsServer, uri: str, version: str) -> None:
    for number in range(FRAGMENTS):
        how: dict[str, Any] = {"mode": "append", "data_storage_version": version, "storage_options": gcs.options()}
        lance_io.write_dataset(part(number), uri, **how)
    with CountingGcsProxy(gcs.endpoint) as proxy:
        options = through(gcs, proxy)
        theirs, expected = costs(lance, uri, for_pylance(options), ROWS, proxy)
        ours, found = costs(lance_io, uri, options, ROWS, proxy)
    assert found == expected
    assert {name: spent.requests for name, spent in ours.items() if spent.requests > theirs[name].requests} == {}
    assert (ours["open"].requests, ours["count"].requests) == (2, 0)
    assert all(line.startswith("GET /storage/v1/b/") for spent in ours.values() for line in spent.lines)
    assert sum("/o?" in line for spent in ours.values() for line in spent.lines) == 4  # listings, one for each opening


def test_an_append_costs_what_it_costs_on_s3(gcs: GcsServer, uri: str) -> None:
    lance_io.write_dataset(row(0), uri, storage_options=gcs.options())
    with CountingGcsProxy(gcs.endpoint) as proxy:
        lance_io.write_dataset(row(1), uri, mode="append", storage_options=through(gcs, proxy))
        lance_io.write_dataset(row(2), uri, mode="append", storage_options=through(gcs, proxy))
        proxy.take()
        lance_io.write_dataset(row(3), uri, mode="append", storage_options=through(gcs, proxy))
        spent = proxy.take()
    assert (spent.count("POST"), spent.requests <= 6) == (3, True), spent.lines
    assert sum("ifGenerationMatch=0" in line for line in spent.lines) == 1
    assert numbers(lance_io.dataset(uri, storage_options=gcs.options())) == [0, 1, 2, 3]


def test_a_table_of_pylance_is_read(gcs: GcsServer, uri: str, tmp_path: Path) -> None:
    rows = part(3)
    lance.write_dataset(rows, tmp_path / "t.lance", max_rows_per_file=30_000)
    paths = [path for path in (tmp_path / "t.lance").rglob("*") if path.is_file()]
    files = {path.relative_to(tmp_path / "t.lance").parts: path.read_bytes() for path in paths}
    store = runtime.run(copy_files(files, uri, gcs.options()))
    assert isinstance(store, GcsStore)
    table = lance_io.dataset(uri, storage_options=gcs.options())
    assert table.to_table() == rows
    assert table.take([7, 90_000, 7]) == rows.take([7, 90_000, 7])
    table.delete("a = 7 OR a = 300007")
    theirs = lance.dataset(uri, storage_options=for_pylance(gcs.options()))
    assert (theirs.count_rows(), theirs.version) == (len(rows) - 1, 2)


async def copy_files(files: dict[tuple[str, ...], bytes], uri: str, options: dict[str, str]) -> Any:
    """Put them below a place; gives its store."""
    place = resolve_uri(uri, options)
    for parts, data in files.items():
        await place.store.put(place.key(*parts), data)
    return place.store


def test_a_large_file_goes_up_in_parts(gcs: GcsServer, uri: str) -> None:
    rows = pa.table({"bytes": pa.array([os.urandom(1 << 20) for _ in range(40)], pa.large_binary())})
    with CountingGcsProxy(gcs.endpoint) as proxy:
        lance_io.write_dataset(rows, uri, storage_options=through(gcs, proxy))
        lines = proxy.take().lines
    assert sum(line.startswith("POST ") and "uploadType=resumable" in line for line in lines) == 1
    assert lance_io.dataset(uri, storage_options=gcs.options()).to_table() == rows
    names = runtime.run(names_below(uri, gcs.options()))
    assert sum("/data/" in name for name in names) == 1


async def names_below(uri: str, options: dict[str, str]) -> list[str]:
    place = resolve_uri(uri, options)
    return [meta.key async for meta in place.store.list(f"{place.path}/")]


# -- writers and faults -----------------------------------------------------------------------------------------------


async def test_writers_through_faults_lose_nothing(gcs: GcsServer, uri: str) -> None:
    lance_io.write_dataset(row(-1), uri, storage_options=gcs.options())
    with FaultyProxy(gcs.endpoint, seed=11) as faulty:
        how: dict[str, Any] = {"storage_options": through(gcs, faulty), "session": Session(), "mode": "append"}
        done = await asyncio.gather(
            *(AsyncDataset.write(row(number), uri, **how) for number in range(WRITERS)), return_exceptions=True
        )
        for error in done:
            if isinstance(error, CommitUnknownError):
                transaction, how_ = error.transaction, {name: how[name] for name in ("storage_options", "session")}
                await until_it_goes(lambda t=transaction, h=how_: AsyncDataset.commit(uri, t, **h))
            else:
                assert not isinstance(error, BaseException), error
    assert faulty.done["lost"] and faulty.done["cut"] and faulty.done["refused"]
    table = await asyncio.to_thread(lance_io.dataset, uri, storage_options=gcs.options())
    assert await asyncio.to_thread(numbers, table) == [-1, *range(WRITERS)]


class TestGcs(TableConformance):
    TITLE: ClassVar = "GCS: fake-gcs-server"

    @pytest.fixture
    def server(self, gcs: GcsServer) -> TableServer:
        return gcs


# -- imports, secrets, proxies -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table_uri(gcs: GcsServer) -> str:
    place = f"gs://{gcs.bucket}/test-{uuid.uuid4().hex}/t.lance"
    lance_io.write_dataset(part(0), place, storage_options=gcs.options())
    return place


def test_reading_anonymously_imports_no_client(table_uri: str, gcs: GcsServer) -> None:
    code = """
        assert ds.take([1])["a"].to_pylist() == [1]
        assert not {"gcsfs", "aiohttp", "google.auth", "fsspec"} & sys.modules.keys()
        assert threading.active_count() <= 3
        print("done")
    """
    assert run_program(code, table_uri, gcs.options()) == (0, "done\n", "")


def test_no_part_of_an_open_table_shows_a_token(gcs: GcsServer, uri: str) -> None:
    options = for_pylance({name: value for name, value in gcs.options().items() if "skip" not in name})
    lance_io.write_dataset(pa.table({"a": range(100)}), uri, storage_options=options)
    table = lance_io.dataset(uri, storage_options=options)
    assert table.take([7])["a"].to_pylist() == [7]
    found = reached_from(table)
    assert {"GcsStore", "GcsOptions", "GcsState", "Tokens", "GcsSite"} <= {type(one).__name__ for one in found}
    assert {type(one).__name__ for one in found if TOKEN in repr(one)} == set()
    with pytest.raises(LanceError) as caught:
        lance_io.dataset(f"gs://no-such-bucket/{uuid.uuid4().hex}", storage_options=options)
    assert TOKEN not in str(caught.value)


def test_behind_a_proxy_everything_goes_through_it(gcs: GcsServer, uri: str) -> None:
    host, port = gcs.endpoint.removeprefix("http://").split(":")
    with ForwardProxy(host, int(port)) as proxy:
        options = gcs.options(proxy_url=proxy.endpoint.replace("//", "//user:hidden@"))
        lance_io.write_dataset(row(1), uri, storage_options=options)
        table = lance_io.dataset(uri, storage_options=options)
        assert numbers(table) == [1]
        with pytest.raises(LanceError) as caught:
            lance_io.dataset(f"{uri}/nothing", 7, storage_options=options)
    assert {line.split(" ")[0] for line in proxy.asked} == {"GET", "POST"}
    assert "hidden" not in str(caught.value) and "hidden" not in repr(table)
    excluded = gcs.options(proxy_url=proxy.endpoint, proxy_excludes="127.0.0.1")
    assert numbers(lance_io.dataset(uri, storage_options=excluded)) == [1]
