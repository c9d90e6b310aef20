"""No call depends on what another library has imported, or on the main thread: each is made in a program that has
imported `lance_io` alone, and in a thread that outlives the main one, and gives what it gives after `import lance`.

The names are drawn from the classes and the commands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.changes.merge.merge_builder import AsyncMergeInsertBuilder, MergeInsertBuilder
from lance_io.cli.main import app
from lance_io.dataset.fragment import AsyncFragment
from lance_io.dataset.optimizer import AsyncDatasetOptimizer, DatasetOptimizer
from lance_io.dataset.scanner import AsyncScanner
from lance_io.dataset.sql_query import AsyncSqlQuery, AsyncSqlQueryBuilder, SqlQuery, SqlQueryBuilder
from lance_io.dataset.tags_and_branches import Branches, Tags
from lance_io.dataset.version_delta import AsyncDatasetDelta, DatasetDelta
from lance_io.reads.metadata.table_statistics import AsyncStats, LanceStats
from tests import products
from tests.interop.alone_calls import FIRST_WAYS, RECEIVERS
from tests.interop.awaited import TWINS
from tests.interop.table_calls import make_history

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
CLASSES = [
    *(lance_io.LanceDataset, lance_io.LanceFragment, lance_io.LanceScanner, Tags, Branches, LanceStats, DatasetDelta),
    *(DatasetOptimizer, MergeInsertBuilder, SqlQueryBuilder, SqlQuery),
    *(lance_io.AsyncDataset, AsyncFragment, AsyncScanner, AsyncStats, AsyncDatasetDelta, AsyncDatasetOptimizer),
    *(AsyncMergeInsertBuilder, AsyncSqlQueryBuilder, AsyncSqlQuery),
]


def names() -> list[str]:
    """All that is called: each command, and each name of a class, in the first way that the tables of calls hold."""
    assert {one.__name__ for one in CLASSES} == {*RECEIVERS, *TWINS}
    told = list(FIRST_WAYS.values())
    found = {f"{kind.__name__}.{name}" for kind in CLASSES for name in dir(kind) if not name.startswith("_")}
    found -= {one.partition(":")[0] for one in told}
    commands = [one.name or one.callback.__name__.replace("_", "-") for one in app.registered_commands if one.callback]
    return [*(f"lance-io {one}" for one in commands), *told, *sorted(found)]


def of_one_face(called: list[str]) -> list[str]:
    """The names without one of each two faces, which make the same plans: in turn, and in a campaign all."""

    members = {name.partition(":")[0] for name in called}

    def has_turn(name: str) -> bool:
        kind, _, member = name.partition(":")[0].partition(".")
        twins = {f"{other}.{member}" for other in (TWINS.get(kind), *(face for face in TWINS if TWINS[face] == kind))}
        return not twins & members or crc32(member.encode()) % 2 == (kind in TWINS)

    return [name for name in called if products.ALL or has_turn(name)]


def outcomes(way: str, table: Path, work: Path, called: list[str]) -> Mapping[str, str]:
    """What each of the calls gives in a program of that way."""
    work.mkdir()
    mine = {name: text for name, text in os.environ.items() if name != "LANCE_IO_HEDGE_PERCENT"}  # set by `conftest`
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.alone_calls", way, str(table), str(work)],
        input=json.dumps(called),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**mine, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    found: Mapping[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    make_history(lance, f"{folder}/t.lance")
    blobs = pa.table(
        [pa.array([b"one", b"", b"three"], pa.large_binary()), pa.array([[1], [], [2, 3]], pa.list_(pa.int64()))],
        pa.schema(
            [
                pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
                pa.field("l", pa.list_(pa.int64())),
            ]
        ),
    )
    lance.write_dataset(blobs, f"{folder}/blobs.lance", data_storage_version="2.1")
    (folder / "rows.csv").write_text("a,s\n3,new\n90,more\n")
    return folder


@pytest.fixture(scope="module")
def beside(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What each call gives after `import lance`."""
    return outcomes("beside", table, tmp_path_factory.mktemp("beside") / "work", names())


def test_every_call_is_one(beside: Mapping[str, str]) -> None:
    """None lacks an argument: a new name that needs some is given them in `alone_calls`."""
    assert {name: one for name, one in beside.items() if one.startswith(("builtins.TypeError", "builtins.Attr"))} == {}
    commands = {name: one for name, one in beside.items() if name.startswith("lance-io ")}
    assert {name: one for name, one in commands.items() if not one.startswith("['worked'")} == {}


@pytest.mark.timeout(900)  # each process imports for itself
@pytest.mark.parametrize("way", ["forked", "late"])
def test_calls_need_nobody_else(way: str, table: Path, beside: Mapping[str, str], tmp_path: Path) -> None:
    called = of_one_face(names()) if way == "forked" else names()
    found = outcomes(way, table, tmp_path / "work", called)
    assert {*found} == {*called}
    expected = {name: beside[name] for name in called}
    assert {name: one for name, one in found.items() if one != expected[name]} == {
        name: one for name, one in expected.items() if found[name] != one
    }


def printed(program: str, *arguments: object) -> list[str]:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


LATE_LOOP = """
import sys, threading, lance_io

async def read(uri):
    async with lance_io.AsyncDataset.open(uri) as table:
        print((await table.to_table()).num_rows, sum([one.num_rows async for one in table.to_batches()]))
        print((await table.sql("SELECT count(*) AS n FROM dataset").build().to_batch_records())[0]["n"][0])

def work(uri, image):
    threading.main_thread().join()
    import asyncio
    asyncio.run(read(uri))
    from lance_io.arrow import ImageURIArray
    print(ImageURIArray.from_uris([image, None]).read_uris().to_pylist()[1])
    from concurrent.futures import ThreadPoolExecutor
    try:
        ThreadPoolExecutor(1).submit(print)
    except RuntimeError:
        print("refused")

threading.Thread(target=work, args=sys.argv[1:]).start()
"""


def test_a_loop_in_a_thread_after_the_main_one(table: Path) -> None:
    """Python's own pools refuse work then, as they do where they were imported before."""
    assert printed(LATE_LOOP, table / "t.lance", table / "rows.csv") == ["5", "5", "5", "None", "refused"]


REGISTERED = """
import sys, duckdb, lance_io
table = lance_io.dataset(sys.argv[1])
connection = duckdb.connect()
connection.register("t", table)
print(connection.sql("SELECT sum(a) FROM t WHERE a < 50").fetchall()[0][0], table.io_stats_incremental().read_bytes)
"""


def test_duckdb_reads_the_columns_that_it_needs(tmp_path: Path) -> None:
    """It takes for a dataset only what it finds once `pyarrow.dataset` is imported; else it reads all there is."""
    uri, texts = str(tmp_path / "t"), [str(number) * 500 for number in range(1000)]
    lance.write_dataset(pa.table({"a": range(1000), "s": texts}), uri)
    total, read_bytes = printed(REGISTERED, uri)
    assert int(total) == sum(range(50))
    assert int(read_bytes) < 100_000 < sum(map(len, texts))
