"""What reading a table on S3 costs in requests and bytes, beside what pylance needs for the same."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.runtime import run
from lance_io.store.cloud import connections
from tests.s3.proxy import CountingProxy

if TYPE_CHECKING:
    from tests.s3.proxy import Spent
    from tests.servers import S3Server

ROWS = 100_000
FRAGMENTS = 2
NAMES = (
    "open",
    "count",
    "cold take",
    "warm take",
    "take of other rows",
    "take of 100 rows",
    "warm scan of a column",
    "reopen",
    "cold take of 100 rows",
    "open again",
    "cold scan",
    "open once more",
    "cold take of a column",
)
CHUNK_TABLE_BYTES = 2048
WIDE_ROWS = 40_000


def part(number: int) -> pa.Table:
    dice = np.random.default_rng(number)
    return pa.table(
        {
            "a": np.arange(ROWS) + number * ROWS,
            "b": dice.random(ROWS),
            "s": [f"row {x}" for x in range(ROWS)],
        }
    )


def wide_part(number: int) -> pa.Table:
    """Seven columns, as in the benchmarks."""
    dice = np.random.default_rng(number)
    numbers = dice.integers(0, 1 << 60, WIDE_ROWS)
    lengths = dice.integers(0, 6, WIDE_ROWS)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.table(
        {
            "ascending": np.arange(WIDE_ROWS) + number * WIDE_ROWS,
            "number": numbers,
            "float": dice.random(WIDE_ROWS),
            "text": [f"{x:015x}" for x in numbers.tolist()],
            "word": [f"word {x % 40}" for x in numbers.tolist()],
            "nullable": pa.array(numbers % 1000, mask=numbers % 5 == 0),
            "list": pa.ListArray.from_arrays(offsets, pa.array(dice.integers(0, 1000, int(offsets[-1])))),
        }
    )


def operations(library: Any, uri: str, options: dict[str, str], rows: int) -> Any:
    """The operations to compare, to be run in order: (name, call)."""
    kept: dict[str, Any] = {}
    scattered = np.random.default_rng(1).choice(FRAGMENTS * rows, 100, replace=False).tolist()

    def open_table() -> None:
        kept["table"] = library.dataset(uri, storage_options=options)

    yield "open", open_table
    yield "count", lambda: kept["table"].count_rows()
    yield "cold take", lambda: kept["table"].take([5, rows + 7])
    yield "warm take", lambda: kept["table"].take([5, rows + 7])
    yield "take of other rows", lambda: kept["table"].take([rows // 2, rows + rows // 3])
    yield "take of 100 rows", lambda: kept["table"].take(scattered)
    yield "warm scan of a column", lambda: kept["table"].to_table([kept["table"].schema.names[1]])
    yield "reopen", open_table
    yield "cold take of 100 rows", lambda: kept["table"].take(scattered)
    yield "open again", open_table
    yield "cold scan", lambda: kept["table"].to_table()
    yield "open once more", open_table
    yield "cold take of a column", lambda: kept["table"].take([7], columns=kept["table"].schema.names[:1])


def costs(
    library: Any, uri: str, options: dict[str, str], rows: int, proxy: CountingProxy
) -> tuple[dict[str, Spent], list[Any]]:
    """What each operation cost, and the results."""
    found, results = {}, []
    proxy.take()
    for name, call in operations(library, uri, options, rows):
        results.append(call())
        found[name] = proxy.take()
    return found, results


def compare(
    parts: list[pa.Table], version: str, uri: str, s3: S3Server, proxy: CountingProxy, gap_bytes: int | None = 0
) -> dict[str, int]:
    """Our requests by operation; neither they nor our bytes are above pylance's anywhere.

    gap_bytes  that may be read more, where values lie so near to each other that one request takes several; None for
               columns whose pages lie between each other's
    """
    for table in parts:
        lance.write_dataset(table, uri, mode="append", data_storage_version=version, storage_options=s3.options())
    options, rows = s3.through(proxy.endpoint), len(parts[0])
    theirs, expected = costs(lance, uri, options, rows, proxy)
    ours, found = costs(lance_io, uri, options, rows, proxy)
    assert found == expected
    for name, spent in ours.items():
        assert spent.requests <= theirs[name].requests, name
        slack = CHUNK_TABLE_BYTES if name == "warm scan of a column" else 0  # scans do not look into the cache
        assert gap_bytes is None or spent.body_bytes <= theirs[name].body_bytes + slack + gap_bytes, name
        assert spent.list_bytes <= theirs[name].list_bytes, name
        assert spent.count("HEAD") == 0, name
    return {name: spent.requests for name, spent in ours.items()}


@pytest.fixture(autouse=True)
def unlimited_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """pylance does not hold itself back."""
    for name, value in {"INITIAL_RATE": "50000", "MAX_RATE": "50000", "BURST_CAPACITY": "5000"}.items():
        monkeypatch.setenv(f"LANCE_AIMD_{name}", value)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_three_columns(version: str, s3: S3Server, s3_uri: str, proxy: CountingProxy) -> None:
    ours = compare([part(number) for number in range(FRAGMENTS)], version, s3_uri, s3, proxy)
    assert ours == dict(zip(NAMES, (2, 0, 14, 6, 6, 3, 2, 2, 11, 2, 4, 2, 3), strict=True))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_seven_columns(version: str, s3: S3Server, s3_uri: str, proxy: CountingProxy) -> None:
    ours = compare([wide_part(number) for number in range(FRAGMENTS)], version, s3_uri, s3, proxy)
    assert ours == dict(zip(NAMES, (2, 0, 24, 10, 12, 6, 2, 2, 16, 2, 4, 2, 3), strict=True))


@pytest.mark.parametrize("make", [part, wide_part])
def test_tables_of_version_2_0(make: Any, s3: S3Server, s3_uri: str, proxy: CountingProxy) -> None:
    compare([make(number) for number in range(FRAGMENTS)], "2.0", s3_uri, s3, proxy, gap_bytes=16 * 1024)


@pytest.mark.parametrize(
    ("make", "numbers"),
    [(part, (2, 0, 6, 4, 4, 75, 2, 2, 75, 2, 4, 2, 2)), (wide_part, (2, 0, 6, 4, 4, 38, 2, 2, 40, 2, 4, 2, 2))],
)
def test_tables_of_version_0_1(
    make: Any, numbers: tuple[int, ...], s3: S3Server, s3_uri: str, proxy: CountingProxy
) -> None:
    """One request brings all that lies near: batches are small there, and so are the gaps between their pages."""
    ours = compare([make(number) for number in range(FRAGMENTS)], "0.1", s3_uri, s3, proxy, gap_bytes=None)
    assert ours == dict(zip(NAMES, numbers, strict=True))


def small_part(number: int, *, rows: int) -> pa.Table:
    """Three columns of some 30 bytes a row."""
    dice = np.random.default_rng(number)
    return pa.table(
        {
            "a": dice.integers(0, 1 << 60, rows),
            "b": dice.random(rows),
            "s": [f"{x:015x}" for x in dice.integers(0, 1 << 60, rows).tolist()],
        }
    )


def vectors_part(number: int) -> pa.Table:
    """18 MB of vectors, whose pages need no index."""
    values = np.random.default_rng(number).random((9000, 512), dtype=np.float32)
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(values.ravel(), 512), "id": np.arange(9000)})


SHAPES = {
    "50 KB": partial(small_part, rows=1_600),
    "100 KB": partial(small_part, rows=3_200),
    "250 KB": partial(small_part, rows=8_000),
    "600 KB": partial(small_part, rows=19_000),
    "18 MB of vectors": vectors_part,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_of_files_needs_more_than_the_peer(
    shape: str, s3: S3Server, s3_uri: str, proxy: CountingProxy
) -> None:
    compare([SHAPES[shape](number) for number in range(FRAGMENTS)], "2.2", s3_uri, s3, proxy)


def test_the_index_of_a_page_that_is_cut_is_read_once(s3: S3Server, s3_uri: str, proxy: CountingProxy) -> None:
    """A page of 20 MB is scanned in pieces, which its index tells: pylance keeps that, too."""
    digits = np.random.default_rng(0).bytes(50 * 400_000).hex()
    texts = pa.table({"text": [digits[at : at + 100] for at in range(0, len(digits), 100)]})
    lance.write_dataset(texts, s3_uri, storage_options=s3.options(), data_storage_version="2.1")
    options = s3.options(aws_endpoint=proxy.endpoint)
    spent: list[list[Spent]] = []
    for library in (lance_io, lance):
        table = library.dataset(s3_uri, storage_options=options)
        spent.append([])
        for _ in range(2):
            proxy.take()
            assert pa.Table.from_batches(table.to_batches()) == texts
            spent[-1].append(proxy.take())
        assert table.take([77_777])["text"].to_pylist() == [texts["text"][77_777].as_py()]
        spent[-1].append(proxy.take())
    (first, again, take), (_, theirs_again, theirs_take) = spent
    assert len(again.lines) == len(theirs_again.lines) < len(first.lines)
    assert again.body_bytes <= theirs_again.body_bytes < first.body_bytes
    assert len(take.lines) == len(theirs_take.lines) == 1


def test_tables_of_one_session_share_their_connections(s3: S3Server, s3_uri: str, proxy: CountingProxy) -> None:
    """The second table of a bucket finds them open.

    So it does in pylance, whose client now and then opens one more than it needs: its number says nothing here.
    """
    options = s3.options(aws_endpoint=proxy.endpoint)
    session, opened = lance_io.Session(), []
    for name in ("one", "two"):
        lance.write_dataset(part(0), f"{s3_uri}/{name}", storage_options=s3.options())
        table = lance_io.dataset(f"{s3_uri}/{name}", storage_options=options, session=session)
        assert table.take([7])["a"].to_pylist() == [7]
        opened.append(proxy.take().connections)
    assert opened[0] > opened[1] == 0


_FIRST_ROW = """
import json, sys
import lance_io
table = lance_io.dataset(sys.argv[1], storage_options=json.loads(sys.argv[2]))
assert table.take([2]).to_pydict() == {"i": [3], "s": ["z"]}
print(json.dumps(list(sys.modules)))
"""
_NOT_NEEDED = {
    *("aiobotocore", "aiohttp", "botocore", "boto3", "email.utils", "pandas"),
    *("pyarrow.compute", "pyarrow.dataset", "pyarrow._dataset", "pyarrow._compute"),
    *("lance_io.encodings.v2_0.array_page", "lance_io.encodings.v0_1.field_pages", "lance_io.file.open.batched_file"),
    *(
        "lance_io.dataset.scanner",
        "lance_io.reads.scan.scan_options",
        "lance_io.reads.scan.execute",
        "lance_io.reads.blobs.blob_values",
    ),
    *(
        "lance_io.changes.edits.change_plans",
        "lance_io.changes.operations.lance_operation",
        "lance_io.dataset.tags_and_branches",
    ),
    *(
        "lance_io.table.transaction.operations",
        "lance_io.table.transaction.transaction",
        "lance_io.table.manifest.refs",
        "lance_io.table.transaction.draft",
    ),
    *(
        "lance_io.commit.commit_loop",
        "lance_io.commit.cleanups.cleanup",
        "lance_io.commit.external",
        "lance_io.commit.lock",
    ),
    *("lance_io.store.local.disk", "lance_io.store.memory", "lance_io.store.upload", "lance_io.store.probe"),
    *("lance_io.store.s3.client_gets", "lance_io.store.s3.multipart"),
}


_FIRST_USES = """
import json, sys, threading

class Watching:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread().name == "lance_io-engine":
            seen.append(name)

seen = []
sys.meta_path.insert(0, Watching())
import pyarrow as pa
import lance_io
uri, options, doing = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
table = lance_io.dataset(uri, storage_options=options)
if doing == "filter":
    assert table.to_table(filter="i > 1").num_rows == 2
elif doing == "count":
    assert table.count_rows("s = 'x'") == 1
elif doing == "take":
    assert table.take([1], {"j": "i + 1"})["j"].to_pylist() == [3]
elif doing == "append":
    lance_io.write_dataset(pa.table({"i": [4], "s": ["w"]}), uri, mode="append", storage_options=options)
elif doing == "delete":
    assert table.delete("i = 2")["num_deleted_rows"] == 1
print(json.dumps(seen))
"""


@pytest.mark.parametrize("doing", ["filter", "count", "take", "append", "delete"])
def test_what_takes_long_to_import_does_not_hold_the_engines_loop(doing: str, s3: S3Server, s3_uri: str) -> None:
    """All takes of a service would wait for the first text filter, or the first write."""
    lance.write_dataset(pa.table({"i": [1, 2, 3], "s": ["x", "y", "z"]}), s3_uri, storage_options=s3.options())
    command = [sys.executable, "-c", _FIRST_USES, s3_uri, json.dumps(s3.options()), doing]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    there = json.loads(done.stdout)
    slow = {"aiobotocore", "aiohttp", "botocore", "pandas", "sqlglot"}
    assert [name for name in there if name.partition(".")[0] in slow] == []


@pytest.mark.parametrize("where", ["options", "environment"])
def test_a_first_row_loads_what_it_needs(where: str, s3: S3Server, s3_uri: str) -> None:
    """In a new process: no other client, nothing of pyarrow's datasets and functions, nothing that writes."""
    lance.write_dataset(pa.table({"i": [1, 2, 3], "s": ["x", "y", "z"]}), s3_uri, storage_options=s3.options())
    options, environment = s3.options(), {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    if where == "environment":
        keys = ("aws_access_key_id", "aws_secret_access_key", "aws_region")
        environment |= {name.upper(): options.pop(name) for name in keys}
    environment["AWS_EC2_METADATA_DISABLED"] = "true"
    command = [sys.executable, "-c", _FIRST_ROW, s3_uri, json.dumps(options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=environment)
    loaded = set(json.loads(done.stdout))
    assert "lance_io.store.http.gets" in loaded
    assert loaded.isdisjoint(_NOT_NEEDED), loaded & _NOT_NEEDED


def test_a_second_opening_needs_two_requests_and_no_connection(s3: S3Server, s3_uri: str, proxy: CountingProxy) -> None:
    lance.write_dataset(part(0), s3_uri, storage_options=s3.options())
    options = s3.options(aws_endpoint=proxy.endpoint)
    first = lance_io.dataset(s3_uri, storage_options=options)
    assert first.take([7])["a"].to_pylist() == [7]
    proxy.take()
    second = lance_io.dataset(s3_uri, storage_options=options)
    spent = proxy.take()
    assert (spent.requests, spent.connections, second.version) == (2, 0, 1)
    assert second.io_stats_snapshot().read_iops == 2  # counted apart


def opened_and_dropped(uri: str, options: dict[str, str], row: int) -> weakref.ref[Any]:
    """Take a row, and leave nothing but what stays by itself: the bucket's store."""
    table = lance_io.dataset(uri, storage_options=options)
    assert table.take([row])["a"].to_pylist() == [row]
    return weakref.ref(table._state.location.store)


def test_tables_that_are_dropped_leave_their_connections_to_the_next(
    s3: S3Server, s3_uri: str, proxy: CountingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(part(0), s3_uri, storage_options=s3.options())
    options = s3.options(aws_endpoint=proxy.endpoint)
    stores = [opened_and_dropped(s3_uri, options, 7)]
    first = proxy.take()
    stores.append(opened_and_dropped(s3_uri, options, 8))
    second = proxy.take()
    assert first.connections > second.connections == 0
    assert first.requests == second.requests
    run(asyncio.sleep(0))  # what was said to the loop has been heard
    gc.collect()
    assert stores[0]() is None  # of a bucket the last one is kept
    kept = stores[1]()
    assert kept is not None
    gone = threading.Event()
    weakref.finalize(kept, gone.set)
    monkeypatch.setattr(connections, "KEPT_S", 0.01)
    kept.linger()
    del kept
    while not gone.wait(0.05):  # the collector frees what is in cycles
        gc.collect()
    stores.append(opened_and_dropped(s3_uri, options, 9))
    assert proxy.take().connections > 0


def test_no_more_buckets_than_a_few_are_kept(s3: S3Server, s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEPT_MAX", 2)
    lance.write_dataset(part(0), s3_uri, storage_options=s3.options())
    with ExitStack() as stack:
        proxies = [stack.enter_context(CountingProxy(s3.endpoint)) for _ in range(3)]
        stores = [opened_and_dropped(s3_uri, s3.options(aws_endpoint=one.endpoint), 7) for one in proxies]
        run(asyncio.sleep(0))
        gc.collect()
        assert [store() is not None for store in stores] == [False, True, True]
        for store in stores[1:]:
            kept = store()
            assert kept is not None
            run(kept.aclose())


def test_callers_at_once_share_requests(s3: S3Server, s3_uri: str, proxy: CountingProxy) -> None:
    """Those of the same row make the requests of one caller, those of neighbours the requests of one take of all."""
    for number in range(FRAGMENTS):
        lance.write_dataset(
            wide_part(number), s3_uri, mode="append" if number else "create", storage_options=s3.options()
        )
    options = s3.options(aws_endpoint=proxy.endpoint)

    async def spent(table: lance_io.AsyncDataset, *takes: list[int]) -> int:
        proxy.take()
        found = await asyncio.gather(*(table.take(rows) for rows in takes))
        assert [one["ascending"].to_pylist() for one in found] == list(takes)
        return proxy.take().requests

    async def compare() -> None:
        async with lance_io.AsyncDataset.open(s3_uri, storage_options=options) as table:
            await table.take([2000, 30_000])  # what locates rows is known then
            assert await spent(table, *[[2000]] * 32) == await spent(table, [2000]) > 0
            neighbours = list(range(30_000, 30_016))
            assert await spent(table, *([row] for row in neighbours)) == await spent(table, neighbours) > 0

    run(compare())
