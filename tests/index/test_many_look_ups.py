"""256 concurrent look-ups: those of one key share each request, those of random keys read a page once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import lance_io
from tests.index.test_index_rounds import Bench

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.dataset.lance_dataset import AsyncDataset

NUM_ROWS = 400_000
CALLERS = 256
PAGE_ROWS = 4096


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("indexed")
    rng = np.random.default_rng(7)
    rows = pa.table({"id": rng.permutation(NUM_ROWS), "value": np.arange(NUM_ROWS)})
    lance_io.write_dataset(rows, folder, max_rows_per_file=NUM_ROWS // 4)
    lance_io.dataset(folder).create_scalar_index("id", "BTREE")
    return Bench(folder)


async def warm(table: AsyncDataset) -> None:
    """The lookup of the index is in memory, and none of its pages."""
    await table.warm(["id", "value"])
    assert (await table.get("id", [NUM_ROWS])).num_rows == 0


def look_ups(keys: list[int]) -> Callable[[AsyncDataset], Awaitable[list[list[int]]]]:
    async def call(table: AsyncDataset) -> list[list[int]]:
        tables = await asyncio.gather(*[table.get("id", [key], ["id"]) for key in keys])
        return [rows["id"].to_pylist() for rows in tables]

    return call


def test_of_one_key(bench: Bench) -> None:
    same = look_ups([77] * CALLERS)
    _, first, second = bench.run(warm, same, same)
    assert (first[0], second[0]) == (2, 1)
    assert sorted(line.split()[1].split("/")[-1] for line in first[1])[1:] == ["page_data.lance"] * 2  # values and rows
    assert len(first[1]) == 3
    assert len(second[1]) == 1
    assert first[2] == second[2] == [[77]] * CALLERS


def test_of_random_keys(bench: Bench) -> None:
    keys = np.random.default_rng(1).choice(NUM_ROWS, CALLERS, replace=False).tolist()
    some = look_ups(keys)
    _, first, second = bench.run(warm, some, some)
    pages = len({key // PAGE_ROWS for key in keys})
    assert 0 < len(first[1]) <= 2 * pages + CALLERS  # values and rows of each page once, and each wanted row
    of_index = [line for line in first[1] if "_indices" in line]
    assert len({*of_index}) == len(of_index) > 0
    assert 0 < len(second[1]) <= CALLERS
    assert not [line for line in second[1] if "_indices" in line]
    assert first[2] == second[2] == [[key] for key in keys]
