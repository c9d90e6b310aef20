"""Tables of more files than the process may open: read whole, at 80 descriptors and where hardly any is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lance_io

CHECKOUT = Path(__file__).resolve().parents[2]
FILES, ROWS_EACH = 200, 3
LEFT = [row for row in range(FILES * ROWS_EACH) if row % ROWS_EACH]  # one row of each file is deleted

PROGRAM = """
import asyncio, os, resource, sys
from concurrent.futures import ThreadPoolExecutor

limit, free = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
import pyarrow as pa
import lance_io

uri = sys.argv[1]
ROWS, LEFT = range(0, 400, 2), [row for row in range(600) if row % 3]


def numbers(table):
    return table["a"].to_pylist()


def opened():
    return lance_io.dataset(uri)


async def later():
    async with lance_io.AsyncDataset.open(uri) as ds:
        assert numbers(await ds.to_table()) == LEFT
        assert [row async for batch in ds.to_batches() for row in batch["a"].to_pylist()] == LEFT
        assert numbers(await ds.to_table(filter="s like '%9'")) == [row for row in LEFT if row % 10 == 9]
        found = await asyncio.gather(*(ds.take(ROWS[first::9]) for first in range(9)))
        assert [numbers(one) for one in found] == [LEFT[0::2][first::9] for first in range(9)]


def now():
    assert [row for batch in opened().to_batches() for row in batch["a"].to_pylist()] == LEFT
    assert numbers(opened().to_table(filter="s like '%9'")) == [row for row in LEFT if row % 10 == 9]
    return taken()


def taken():
    ds = opened()
    for _ in range(2):
        assert numbers(ds.take(ROWS)) == LEFT[0::2]
    for row in ROWS[:120]:  # those of many files are closed at once, others are kept
        assert numbers(ds.take([row])) == [LEFT[row]]
    return ds


def descriptors():
    return len(os.listdir("/proc/self/fd")) - 1


before = descriptors()
kept = [now(), taken()]
print("kept", descriptors() - before)
asyncio.run(later())
with asyncio.Runner() as runner, ThreadPoolExecutor(3) as threads:
    runner.get_loop()
    others = []
    try:
        while free:
            others.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        for _ in range(free):
            os.close(others.pop())
    kept += threads.map(lambda _: taken(), range(3))
    runner.run(later())
    for fd in others:
        os.close(fd)
lance_io.write_dataset(pa.table({"a": [1]}), f"{uri}{limit}")
print("done")
"""


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of many files, each with a deletion file."""
    made = str(tmp_path_factory.mktemp("descriptors") / "t")
    rows = pa.table({"a": range(FILES * ROWS_EACH), "s": [f"row {row}" for row in range(FILES * ROWS_EACH)]})
    options = {"durability": "none"}
    table = lance_io.write_dataset(rows, made, max_rows_per_file=ROWS_EACH, storage_options=options)
    table.delete(f"a % {ROWS_EACH} = 0")
    assert (len(os.listdir(f"{made}/data")), len(os.listdir(f"{made}/_deletions"))) == (FILES, FILES)
    return made


@pytest.mark.parametrize(("limit", "free", "kept_max"), [(80, 1, 20), (400, 0, 100)])
def test_many_files_and_few_descriptors(uri: str, limit: int, free: int, kept_max: int) -> None:
    """At most a quarter is kept; where a program leaves us a single one, reads of several threads take turns."""
    command = [sys.executable, "-c", PROGRAM, uri, str(limit), str(free)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=CHECKOUT)
    assert ran.stderr == ""
    kept, done = ran.stdout.splitlines()
    assert kept_max // 2 < int(kept.removeprefix("kept ")) <= kept_max
    assert done == "done"
