"""What changes of columns tell while they run (`progress`), and how much they hold (`memory_limit`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.changes.write.data_files import NewFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Told = list[tuple[int, int | None]]

NUM_ROWS = 300_000
FIRST = 200_000  # rows of the first of two fragments
LIVE = NUM_ROWS - 70_000
ROWS = pa.table({"i": np.arange(NUM_ROWS), "n": np.arange(NUM_ROWS, dtype=np.int32)})
RIGHT = pa.table({"i": np.arange(0, NUM_ROWS, 3), "c": np.arange(0, NUM_ROWS, 3)})


def made(tmp_path: Path) -> str:
    """A table of two fragments; rows are deleted in the middle of the first, and at the end of the second."""
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(ROWS, uri, max_rows_per_file=FIRST)
    table.delete(f"i >= 90000 and i < 150000 or i >= {NUM_ROWS - 10000}")
    return uri


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"c": pa.array(2 * batch["i"].to_numpy())})


def given_rows() -> pa.RecordBatchReader:
    return pa.table({"c": np.arange(LIVE)}).to_reader(max_chunksize=10_000)


OF_TABLE: dict[str, Callable[..., Any]] = {
    "sql": lambda table, **more: table.add_columns({"c": "i * 2"}, **more),
    "function": lambda table, **more: table.add_columns(doubled, **more),
    "rows": lambda table, **more: table.add_columns(given_rows(), **more),
    "join": lambda table, **more: table.merge(RIGHT, "i", **more),
    "cast": lambda table, **more: table.alter_columns({"path": "n", "data_type": pa.int64()}, **more),
}
OF_FRAGMENT: dict[str, Callable[..., Any]] = {
    "sql": lambda one, **more: one.merge_columns({"c": "i * 2"}, **more),
    "function": lambda one, **more: one.merge_columns(doubled, **more),
    "join": lambda one, **more: one.merge(RIGHT, "i", **more),
    "update": lambda one, **more: one.update_columns(RIGHT.set_column(1, "n", RIGHT["c"].cast("int32")), "i", **more),
}


def check_told(told: Told, num_rows: int) -> None:
    numbers = [done for done, _ in told]
    assert {total for _, total in told} == {num_rows}
    assert numbers == sorted(set(numbers)) and numbers[0] > 0 and numbers[-1] == num_rows
    assert len(told) >= num_rows // 100_000, "a call for each batch, of at most 65,536 rows"


@pytest.mark.parametrize("name", OF_TABLE)
def test_progress_goes_up_to_all_rows(tmp_path: Path, name: str) -> None:
    told: Told = []
    OF_TABLE[name](lance_io.dataset(made(tmp_path)), progress=lambda done, total: told.append((done, total)))
    check_told(told, NUM_ROWS)


@pytest.mark.parametrize("name", OF_FRAGMENT)
def test_progress_of_a_fragment(tmp_path: Path, name: str) -> None:
    for number, num_rows in enumerate((FIRST, NUM_ROWS - FIRST)):
        told: Told = []
        fragment = lance_io.dataset(made(tmp_path / str(number))).get_fragments()[number]
        OF_FRAGMENT[name](fragment, progress=lambda done, total, told=told: told.append((done, total)))
        check_told(told, num_rows)


async def test_progress_of_the_asynchronous_methods(tmp_path: Path) -> None:
    for name, change in OF_TABLE.items():
        told: Told = []
        table = await AsyncDataset.open(made(tmp_path / name))
        await change(table, progress=lambda done, total, told=told: told.append((done, total)), memory_limit=16 << 20)
        check_told(told, NUM_ROWS)
    for name, change in OF_FRAGMENT.items():
        told = []
        fragment = (await AsyncDataset.open(made(tmp_path / f"of fragment {name}"))).get_fragments()[0]
        await change(
            fragment, progress=lambda done, total, told=told: told.append((done, total)), memory_limit=16 << 20
        )
        check_told(told, FIRST)


def test_progress_knows_fragments_that_were_finished_before(tmp_path: Path) -> None:
    uri = made(tmp_path)

    def compute(fails: bool) -> Any:
        @lance_io.batch_udf(pa.schema([("c", pa.int64())]), tmp_path / "checkpoint")
        def call(batch: pa.RecordBatch) -> pa.RecordBatch:
            if fails and batch["i"][0].as_py() >= FIRST:
                raise KeyError("the second fragment")
            return doubled(batch)

        return call

    told: Told = []
    with pytest.raises(OSError, match="the second fragment"):
        lance_io.dataset(uri).add_columns(compute(True), progress=lambda *one: told.append(one))
    assert told[-1] == (FIRST, NUM_ROWS)
    told.clear()
    lance_io.dataset(uri).add_columns(compute(False), progress=lambda *one: told.append(one))
    assert told[0] == (FIRST, NUM_ROWS) and told[-1] == (NUM_ROWS, NUM_ROWS)


def test_progress_says_nothing_where_nothing_is_written(tmp_path: Path) -> None:
    told: Told = []
    table = lance_io.dataset(made(tmp_path))
    table.add_columns(pa.field("c", pa.int8()), progress=lambda *one: told.append(one))
    table.alter_columns({"path": "c", "name": "d"}, progress=lambda *one: told.append(one))
    assert table.schema.names == ["i", "n", "d"] and not told


@pytest.mark.parametrize("name", OF_TABLE)
def test_who_hears_of_progress_may_end_it(tmp_path: Path, name: str) -> None:
    uri = made(tmp_path)
    before = set((tmp_path / "t" / "data").iterdir())

    def stop(done: int, total: int | None) -> None:
        if done > FIRST:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        OF_TABLE[name](lance_io.dataset(uri), progress=stop)
    assert lance_io.dataset(uri).version == 2 and set((tmp_path / "t" / "data").iterdir()) == before


@pytest.mark.parametrize("limit", [0, 1000, (16 << 20) - 1])
async def test_a_limit_that_is_too_small_is_refused(tmp_path: Path, limit: int) -> None:
    uri = made(tmp_path)
    table, other = lance_io.dataset(uri), await AsyncDataset.open(uri)
    fragment, other_fragment = table.get_fragments()[0], other.get_fragments()[0]
    for changes, sync, asynchronous in ((OF_TABLE, table, other), (OF_FRAGMENT, fragment, other_fragment)):
        for change in changes.values():
            with pytest.raises(ValueError, match="memory_limit must be at least"):
                change(sync, memory_limit=limit)
            with pytest.raises(ValueError, match="memory_limit must be at least"):
                await change(asynchronous, memory_limit=limit)
    with pytest.raises(ValueError, match="memory_limit must be at least"):
        table.add_columns(pa.field("c", pa.int8()), memory_limit=limit)
    with pytest.raises(TypeError):
        table.merge(RIGHT, "i", memory_limit="16 MiB")
    assert lance_io.dataset(uri).version == 2


def test_a_function_gets_as_many_rows_as_the_limit_allows(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(4096 * 1024, np.float32)), 1024)
    uri = str(tmp_path / "v")
    lance_io.write_dataset(pa.table({"i": np.arange(4096), "v": vectors}), uri)
    seen: list[int] = []

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        return doubled(batch)

    def sizes(**options: Any) -> set[int]:
        seen.clear()
        table = lance_io.dataset(uri, memory_limit=options.pop("of_table", None))
        table.add_columns(look, **options)
        table.drop_columns(["c"])
        return set(seen[1:])  # the first call is the sample

    assert max(sizes(memory_limit=16 << 20)) == max(sizes(of_table=16 << 20)) < 256
    assert max(sizes(memory_limit=1 << 30)) == 4096
    assert sizes(memory_limit=16 << 20, batch_size=1024) == {1024}, "who says a size gets it"
    assert sizes(memory_limit=16 << 20, read_columns=["i"]) == {4096}, "of what it reads, not of all columns"


def test_rows_of_any_size_are_not_joined_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand values of a tenth of a MiB, of which each batch has one; the rows of the table are small."""
    uri = str(tmp_path / "w")
    lance_io.write_dataset(pa.table({"i": np.arange(1000)}), uri, max_rows_per_file=600)
    written: list[int] = []
    add = NewFiles.add

    def look(self: NewFiles, batch: pa.RecordBatch) -> Any:
        written.append(batch.nbytes)
        return add(self, batch)

    monkeypatch.setattr(NewFiles, "add", look)
    values = [f"{number:>100000}" for number in range(1000)]
    schema = pa.schema([("text", pa.string())])
    batches = (pa.record_batch({"text": [value]}) for value in values)
    lance_io.dataset(uri).add_columns(batches, reader_schema=schema, memory_limit=16 << 20)
    assert 1 << 19 < max(written) < 1 << 20
    assert lance.dataset(uri).to_table(columns=["text"])["text"].to_pylist() == values
