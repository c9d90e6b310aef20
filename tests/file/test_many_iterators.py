"""Many scans that were begun and are not advanced: together they stay near what their process may hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lance_io

CHECKOUT = Path(__file__).resolve().parents[2]
ROWS = 600_000
MIB = 1 << 20
ITERATORS, BUDGET = 60, 32 * MIB
EACH = {"now": 1 * MIB, "later": 3 * MIB}  # on the loop a read is admitted for each that waits

PROGRAM = """
import asyncio, sys
import lance_io

uri, num_iterators, budget = sys.argv[1], int(sys.argv[3]), int(sys.argv[4])
shared = lance_io.IoScheduler(io_buffer_size=budget)
session = lance_io.Session(io_scheduler=shared)


def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def now():
    ds = lance_io.dataset(uri, session=session)
    ds.head(1)
    before = resident()
    begun = [ds.to_batches() for _ in range(num_iterators)]
    rows = [next(one).num_rows for one in begun]
    print(resident() - before)
    for at in (num_iterators - 1, 0, num_iterators // 2):  # the others are waiting
        rows[at] += sum(batch.num_rows for batch in begun[at])
        print(rows[at])
    mixed = zip(*begun[1:4])
    print(sum(batch.num_rows for row in mixed for batch in row) + sum(rows[1:4]))
    begun.clear()


async def later():
    ds = await lance_io.AsyncDataset.open(uri, session=session)
    await ds.head(1)
    before = resident()
    begun = [ds.to_batches() for _ in range(num_iterators)]
    rows = [(await anext(one)).num_rows for one in begun]
    print(resident() - before)
    for at in (num_iterators - 1, 0, num_iterators // 2):
        rows[at] += sum([batch.num_rows async for batch in begun[at]])
        print(rows[at])

    async def all_of(one):
        return sum([batch.num_rows async for batch in one])

    print(sum(await asyncio.gather(*map(all_of, begun[1:4]))) + sum(rows[1:4]))
    await ds.aclose()
    for one in begun:
        await one.aclose()
    while shared.pool.avail_bytes < budget:  # what was begun ends by itself
        await asyncio.sleep(0.01)


if sys.argv[2] == "now":
    now()
else:
    asyncio.run(later())
print(budget - shared.pool.avail_bytes)
"""


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Pages of some MB."""
    made = str(tmp_path_factory.mktemp("iterators") / "t")
    dice = np.random.default_rng(0)
    columns = {name: dice.integers(0, 1 << 60, ROWS) for name in "abc"}
    lance_io.write_dataset(pa.table(columns), made, max_rows_per_file=ROWS // 2)
    return made


@pytest.mark.parametrize("way", ["now", "later"])
def test_scans_that_nobody_advances_share_a_bound(uri: str, way: str) -> None:
    """Beyond it each holds a small piece of each column. Those that are advanced end, in whatever order."""
    command = [sys.executable, "-c", PROGRAM, uri, way, str(ITERATORS), str(BUDGET)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=CHECKOUT)
    assert ran.stderr == ""
    grown, *rows, left = map(int, ran.stdout.split())
    assert rows == [ROWS, ROWS, ROWS, 3 * ROWS]
    assert left == 0
    assert grown < BUDGET + ITERATORS * EACH[way]  # it was 14 MiB and more for each of them
