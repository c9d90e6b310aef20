"""The rounds and requests of queries by index, as exact numbers: 4 fragments, on a bucket, after the manifest.

    theirs   data and index files of pylance: rounds cold at most 5, 5, 3, 3
    ours     files of our writer, which has page indexes in front of the tail: 3, 3, 3, 2
    new      other keys than before, page indexes known: 2, 2, 1, 1
    again    the same question: its index pages are kept

A request lasts one unit of virtual time, so that the time of a call is its rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from tests.index.test_index_rounds import Bench, counts

if TYPE_CHECKING:
    from lance_io.dataset.lance_dataset import AsyncDataset

NUM_ROWS = 800_000
LIBRARIES = {"theirs": lance, "ours": lance_io}


@pytest.fixture(scope="module", params=LIBRARIES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Bench]:
    library, folder = LIBRARIES[request.param], tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(7)
    rows = pa.table(
        {
            "id": rng.permutation(NUM_ROWS),
            "cat": rng.integers(0, 100, NUM_ROWS),
            "ts": np.arange(NUM_ROWS),
            "value": rng.random(NUM_ROWS),
        }
    )
    library.write_dataset(rows, folder, max_rows_per_file=NUM_ROWS // 4)
    for column, kind in (("id", "BTREE"), ("cat", "BITMAP"), ("ts", "ZONEMAP")):
        library.dataset(folder).create_scalar_index(column, kind)
    return request.param, Bench(folder)


def keys(seed: int) -> list[int]:
    return np.random.default_rng(seed).choice(NUM_ROWS, 100, replace=False).tolist()


def in_list(seed: int) -> str:
    return f"id IN ({', '.join(map(str, keys(seed)))})"


def select(text: str) -> Any:
    async def call(table: AsyncDataset) -> pa.Table:
        return await table.to_table(["value"], text)

    return call


def test_one_key(written: tuple[str, Bench]) -> None:
    who, bench = written
    known = [select(f"id = {key}") for key in range(0, NUM_ROWS, 40_000)]
    cold, *_, new, again = counts(bench.run(select("id = 5"), *known, select("id = 31000"), select("id = 31000")))
    assert cold == {"theirs": (4, 10), "ours": (3, 9)}[who]
    assert (new, again) == ((2, 3), (1, 1))


def test_a_hundred_keys(written: tuple[str, Bench]) -> None:
    who, bench = written
    measured = bench.run(*[select(in_list(seed)) for seed in (1, 2, 2)])
    assert [result.num_rows for _, _, result in measured] == [100] * 3
    cold, new, again = counts(measured)
    assert (cold[0], new[0], again[0]) == ({"theirs": 5, "ours": 3}[who], 2, 1)
    assert cold[1] <= 240
    assert new[1] <= 160
    assert again[1] <= 101


def test_a_count_by_bitmap(written: tuple[str, Bench]) -> None:
    bench = written[1]
    measured = bench.run(*[lambda table, value=value: table.count_rows(f"cat = {value}") for value in (5, 7, 7)])
    assert [rounds for rounds, _ in counts(measured)] == [3, 1, 0]
    assert measured[1][2] == measured[2][2] > 7000


def test_a_range_by_zones(written: tuple[str, Bench]) -> None:
    who, bench = written
    texts = [f"ts >= {first} AND ts < {first + 800}" for first in (300_000, 310_000, 310_000)]
    measured = bench.run(*map(select, texts))
    assert [result.num_rows for _, _, result in measured] == [800] * 3
    assert [rounds for rounds, _ in counts(measured)] == [{"theirs": 3, "ours": 2}[who], 1, 1]


def test_a_look_up_of_a_key(written: tuple[str, Bench]) -> None:
    who, bench = written
    look_up = [lambda table, key=key: table.get("id", [key], ["value"]) for key in range(0, NUM_ROWS, 40_000)]
    cold, *_, new, again = counts(bench.run(*look_up, lambda table: table.get("id", [31000], ["value"]), *look_up[:1]))
    assert cold[0] == {"theirs": 4, "ours": 3}[who]
    assert (new[0], again) == (2, (1, 2))
