"""Rounds, requests and bytes of reading tables of version 2.0, as exact numbers and beside pylance's.

As in `test_rounds.py` every request lasts one unit of virtual time. Rounds are those of the values: one where they have
one width, two for strings and for lists of such values, one more for each further level.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.encodings.v2_0.buffers import StoredBuffer
from lance_io.io.stats import io_stats
from tests.file.test_rounds import Bench, Lap, ranges_of

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 50_000
FRAGMENTS = 2
FEW = [5, ROWS + 7]
OTHERS = [77, ROWS + 30_000]
MANY = sorted(np.random.default_rng(1).choice(FRAGMENTS * ROWS, 100, replace=False).tolist())
VECTOR = 16


def _part(number: int) -> pa.Table:
    dice = np.random.default_rng(number)
    numbers = np.arange(ROWS)
    offsets = np.concatenate(([0], np.cumsum(dice.integers(0, 6, ROWS)))).astype(np.int32)
    items = pa.array(dice.integers(0, 1000, int(offsets[-1])))
    texts = pa.array([f"item {x}" for x in items.to_pylist()])
    return pa.table(
        {
            "number": numbers + number * ROWS,
            "nullable": pa.array(numbers % 1000, mask=numbers % 5 == 0),
            "text": [f"row {x}" for x in range(ROWS)],
            "word": [f"word {x % 40}" for x in range(ROWS)],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(dice.random(ROWS * VECTOR, dtype="f4")), VECTOR),
            "list": pa.ListArray.from_arrays(offsets, items),
            "texts": pa.ListArray.from_arrays(offsets, texts),
            "structs": pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([items, texts], ["x", "y"])),
        }
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that pylance wrote."""
    found = tmp_path_factory.mktemp("table") / "t"
    for number in range(FRAGMENTS):
        lance.write_dataset(_part(number), found, mode="append", data_storage_version="2.0")
    return found


@pytest.fixture(scope="module")
def objects(root: Path) -> dict[str, bytes]:
    return {f"t/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _theirs(root: Path, columns: list[str]) -> list[int]:
    """Requests of pylance for the takes and scans of `test_requests_beside_pylance`."""
    table = lance.dataset(str(root))
    table.io_stats_incremental()
    found = []
    for rows in (FEW, FEW, OTHERS, MANY):
        table.take(rows, columns=columns)
        found.append(table.io_stats_incremental().read_iops)
    table.to_table(columns=columns)
    found.append(table.io_stats_incremental().read_iops)
    table.to_table(columns=columns, offset=1000, limit=2000)
    return [*found, table.io_stats_incremental().read_iops]


@pytest.mark.parametrize(
    ("columns", "cold", "warm"),
    [
        (["number"], 2, 1),
        (["nullable"], 2, 1),
        (["vector"], 2, 1),
        (["word"], 2, 1),
        (["text"], 3, 2),
        (["list"], 3, 2),
        (["texts"], 4, 3),
        (["structs"], 4, 3),
        (["number", "text", "list"], 3, 2),
        (["number", "nullable", "text", "word", "vector", "list", "texts", "structs"], 4, 3),
    ],
)
def test_requests_beside_pylance(
    root: Path, objects: dict[str, bytes], columns: list[str], cold: int, warm: int
) -> None:
    bench = Bench(objects)
    found: list[tuple[int, int]] = []

    async def work(lap: Lap) -> None:
        table = await AsyncDataset.open("t", session=bench.session)
        rounds, log = lap()
        assert (rounds, len(log)) == (2, 2)

        def note() -> None:
            rounds, log = lap()
            found.append((rounds, len(log)))

        for rows in (FEW, FEW, OTHERS, MANY):
            await table.take(rows, columns=columns)
            note()
        await table.to_table(columns=columns)
        note()
        await table.to_table(columns=columns, offset=1000, limit=2000)
        note()

    bench.run(work)
    rounds = [one[0] for one in found]
    # A scan takes one round, whatever it reads; a part of a page as many as a take.
    assert rounds == [cold, warm, warm, warm, 1, warm]
    for (_, ours), theirs in zip(found, _theirs(root, columns), strict=True):
        assert ours <= theirs


def test_takes_ask_for_just_the_bytes_of_their_values(objects: dict[str, bytes]) -> None:
    [data, _] = sorted(key for key in objects if key.startswith("t/data/"))
    dice = np.random.default_rng(3)
    bench = Bench(objects)

    async def work(lap: Lap) -> None:
        table = await AsyncDataset.open("t", session=bench.session)
        await table.take(FEW)
        lap()
        for row in dice.integers(1, ROWS, 5).tolist():
            text, number = f"row {row}", row
            await table.take([number], columns=["number"])
            [(key, start, end)] = ranges_of(lap()[1])
            assert end - start == 8 and int.from_bytes(objects[key][start:end], "little") % ROWS == row
            await table.take([row], columns=["text"])
            (key, first, last), (_, start, end) = ranges_of(lap()[1])
            assert last - first == 16 and objects[key][start:end] == text.encode()
            await table.take([row], columns=["vector"])
            [(_, start, end)] = ranges_of(lap()[1])
            assert end - start == 4 * VECTOR
            await table.take([row], columns=["word"])  # of the dictionary nothing any more
            [(_, start, end)] = ranges_of(lap()[1])
            assert end - start == 1
        assert data in objects

    bench.run(work)


def test_a_scan_asks_for_every_byte_once(objects: dict[str, bytes]) -> None:
    bench = Bench(objects)

    async def work(lap: Lap) -> None:
        table = await AsyncDataset.open("t", session=bench.session)
        lap()
        await table.to_table(columns=["number", "nullable", "text", "word", "vector", "list", "texts"])
        rounds, log = lap()
        assert rounds == 2
        asked = sorted(ranges_of(log))
        for (key, _, end), (other, start, _) in pairwise(asked):
            assert key != other or end <= start

    bench.run(work)


def test_leaves_below_one_list_ask_once_for_its_ends(tmp_path: Path) -> None:
    """However large they are, and however little may be read ahead of the consumer."""
    offsets = np.arange(0, 800_001, 2, dtype=np.int32)
    members = [np.arange(800_000, dtype=kind) for kind in ("i8", "i2", "f8", "u4")]
    rows = pa.table({"l": pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(members, [*"abcd"]))})
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="2.0")
    root = tmp_path / "t"
    objects = {f"t/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()}
    bench = Bench(objects)

    [size] = [len(data) for key, data in objects.items() if key.startswith("t/data")]

    async def work(lap: Lap) -> None:
        table = await AsyncDataset.open("t", session=bench.session)
        lap()
        assert await table.to_table(io_buffer_size=1 << 20) == rows
        asked = sorted(ranges_of(lap()[1]))
        assert all(end <= start for (_, _, end), (_, start, _) in pairwise(asked))
        assert size - 4096 < sum(end - start for _, start, end in asked) <= size

    bench.run(work)
    table = lance_io.dataset(str(root))
    with io_stats() as seen:
        assert table.to_table() == rows
    assert seen.snapshot().num_reads == 2  # the end of the file, and all of it in one job
    assert size - 4096 < seen.snapshot().bytes_read <= size + 4096


def test_ends_of_small_pages_are_remembered(tmp_path: Path) -> None:
    rows = pa.table({"text": [f"row {x}" for x in range(5000)], "list": [[x, x] for x in range(5000)]})
    lance.write_dataset(rows, tmp_path / "t", data_storage_version="2.0")
    root = tmp_path / "t"
    bench = Bench({f"t/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()})

    async def work(lap: Lap) -> None:
        table = await AsyncDataset.open("t", session=bench.session)
        await table.take([5, 77])
        lap()
        await table.take([6, 4000])
        rounds, _ = lap()
        assert rounds == 1
        assert (await table.take([6, 4000])).to_pylist() == [rows.slice(i, 1).to_pylist()[0] for i in (6, 4000)]

    bench.run(work)


@pytest.mark.parametrize("scheme", ["zstd", "lz4"])
@pytest.mark.parametrize("is_warm", [False, True])
def test_small_compressed_pages_are_inflated_once(
    scheme: str, is_warm: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their bytes are remembered without compression: later takes ask for nothing."""
    field = pa.field("text", pa.string(), metadata={"lance-encoding:compression": scheme})
    rows = [None if x % 7 == 0 else "" if x % 7 == 1 else f"row {x} of many" for x in range(3000)]
    table = pa.Table.from_arrays([pa.array(rows)], schema=pa.schema([field]))
    root = tmp_path / "t"
    lance.write_dataset(table, root, data_storage_version="2.0")
    bench = Bench({f"t/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()})
    inflated: list[int] = []
    inflate = StoredBuffer.inflate

    def count(buffer: StoredBuffer, stored: memoryview) -> memoryview:
        inflated.append(len(stored))
        return inflate(buffer, stored)

    monkeypatch.setattr(StoredBuffer, "inflate", count)

    async def work(lap: Lap) -> None:
        found = await AsyncDataset.open("t", session=bench.session)
        if is_warm:
            await found.warm(["text"])
            lap()
        for number, wanted in enumerate(([5, 77, 2999], [0], [1], [*range(40, 60)], [*range(3000)])):
            assert (await found.take(wanted))["text"].to_pylist() == [rows[row] for row in wanted]
            rounds, _ = lap()
            assert number == 0 or rounds == 0
        assert len(inflated) == 1

    bench.run(work)
