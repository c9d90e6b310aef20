"""Columns that functions, rows and joins give: the same call of both libraries gives the same table."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import OperationError
from tests.dataset.write.test_evolve_schema import ROWS, facts, pair

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd

    Change = Callable[[Any], Any]

VISIBLE = 4  # rows that `pair` leaves: 1, 2, 3 of the first fragment and 6 of the second
GIVEN = pa.table({"c": range(VISIBLE), "d": ["x", None, "", "y"]})
MEMBERS = pa.table({"st": [{"z": i} for i in range(VISIBLE)]})
STRICT = pa.schema([pa.field("c", pa.int64(), nullable=False)])
READY: dict[str, Any] = {"a batch": pa.record_batch({"c": [30, 10, None]})}  # for the rows of the first fragment
READY["a frame"] = READY["a batch"].to_pandas()


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"c": pc.multiply(batch["Camel"], 2)})


def framed(batch: pa.RecordBatch) -> pd.DataFrame:
    return batch.to_pandas()[["Camel"]].rename(columns={"Camel": "c"})


def positions(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"c": batch["_rowaddr"], "d": batch["_rowid"]})


def with_udf(function: Any, **options: Any) -> Change:
    """Each library's own decorator."""
    return lambda table: table.add_columns(
        (lance if isinstance(table, lance.LanceDataset) else lance_io).batch_udf(**options)(function)
    )


def strict(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch["Camel"]], schema=STRICT)


CHANGES: dict[str, Change] = {
    "a table": lambda table: table.add_columns(GIVEN),
    "a reader of short batches": lambda table: table.add_columns(GIVEN.to_reader(1)),
    "batches": lambda table: table.add_columns(iter(GIVEN.to_batches(3)), reader_schema=GIVEN.schema),
    "a frame": lambda table: table.add_columns(GIVEN.to_pandas()),
    "members": lambda table: table.add_columns(MEMBERS),
    "no nulls": lambda table: table.add_columns(pa.table([GIVEN["c"]], schema=STRICT)),
    "a function": lambda table: table.add_columns(doubled),
    "a function of some columns": lambda table: table.add_columns(doubled, read_columns=["Camel"]),
    "a function of a frame": lambda table: table.add_columns(framed),
    "a function of positions": lambda table: table.add_columns(positions, read_columns=["_rowid", "a", "_rowaddr"]),
    "a function of single rows": lambda table: table.add_columns(doubled, batch_size=1),
    "a function without nulls": lambda table: table.add_columns(strict),
    "a decorated function": with_udf(doubled, output_schema=pa.schema([("c", pa.int64())])),
    "a decorated function without schema": with_udf(doubled),
    "join": lambda table: table.merge(
        pa.table({"Camel": [3, 6, 99], "c": [30, 60, 0], "d": ["x", None, "z"]}), "Camel"
    ),
    "join by another name": lambda table: table.merge(pa.table({"k": [3, 6], "c": [30, 60]}), "Camel", "k"),
    "join with several rows": lambda table: table.merge(pa.table({"b": ["y", "y", "z"], "c": [1, 2, 3]}), "b"),
    "join null": lambda table: table.merge(pa.table({"a": [None, 4], "c": [[1], [2, 3]]}), "a"),
    "join by position": lambda table: table.merge(
        pa.table({"_rowaddr": pa.array([1, (1 << 32) + 2], pa.uint64()), "c": [1, 2]}), "_rowaddr"
    ),
    "join by id": lambda table: table.merge(pa.table({"k": pa.array([1, 6], pa.uint64()), "c": [1, 2]}), "_rowid", "k"),
    "join by a struct": lambda table: table.merge(
        pa.table({"st": [{"x": 1, "y": "q"}, None, {"x": 6, "y": "r"}], "c": [1, 2, 3]}), "st"
    ),
    "join of all kinds": lambda table: table.merge(
        pa.table(
            {
                "Camel": [3, 1],
                "v": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
                "s": [{"p": 1}, {"p": 2}],
                "t": pa.array(["u", "v"]).dictionary_encode(),
            }
        ),
        "Camel",
    ),
    "join without nulls": lambda table: table.merge(
        pa.table([[1, 2, 3, 6], [1, 2, 3, 4]], schema=pa.schema([("Camel", pa.int64()), STRICT.field("c")])), "Camel"
    ),
    "join batches": lambda table: table.merge(
        iter(pa.table({"Camel": [3], "c": [1]}).to_batches()),
        "Camel",
        schema=pa.schema([("Camel", pa.int64()), ("c", pa.int64())]),
    ),
}


def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise KeyError("no such thing")


def fail_later(batch: pa.RecordBatch) -> pa.RecordBatch:
    return fail(batch) if 6 in batch["Camel"].to_pylist() else doubled(batch)


REFUSED: dict[str, Change] = {
    "too few rows": lambda table: table.add_columns(GIVEN.slice(1)),
    "too many rows": lambda table: table.add_columns(pa.concat_tables([GIVEN, GIVEN])),
    "no rows": lambda table: table.add_columns(GIVEN.slice(0, 0)),
    "batches without schema": lambda table: table.add_columns(iter(GIVEN.to_batches())),
    "rows of a column that is there": lambda table: table.add_columns(pa.table({"a": range(VISIBLE)})),
    "members that are there": lambda table: table.add_columns(pa.table({"st": [{"x": 1, "z": 1}] * VISIBLE})),
    "nulls where there are none": lambda table: table.add_columns(pa.table([[1, None, 2, 3]], schema=STRICT)),
    "a failing function": lambda table: table.add_columns(fail),
    "a function that fails later": lambda table: table.add_columns(fail_later),
    "a failing decorated function": with_udf(fail, output_schema=pa.schema([("c", pa.int64())])),
    "a function of another schema": with_udf(doubled, output_schema=pa.schema([("c", pa.int32())])),
    "a function of another name": with_udf(doubled, output_schema=pa.schema([("d", pa.int64())])),
    "a function of fewer rows": lambda table: table.add_columns(lambda batch: doubled(batch).slice(0, 1)),
    "a function of ready columns for one fragment": lambda table: table.add_columns(lambda batch: READY["a batch"]),
    "a function of a table": lambda table: table.add_columns(lambda batch: pa.table({"c": batch["Camel"]})),
    "a function of what is there": lambda table: table.add_columns(lambda batch: batch),
    "no rows at once": lambda table: table.add_columns(doubled, batch_size=0),
    "join what is on both sides": lambda table: table.merge(pa.table({"Camel": [1], "b": ["x"]}), "Camel"),
    "join by what is not here": lambda table: table.merge(pa.table({"zz": [1], "c": ["x"]}), "zz"),
    "join by what is not there": lambda table: table.merge(pa.table({"Camel": [1], "c": ["x"]}), "Camel", "zz"),
    "join by another type": lambda table: table.merge(pa.table({"k": ["x"], "c": ["x"]}), "Camel", "k"),
    "join nothing": lambda table: table.merge(pa.table({"Camel": pa.array([], pa.int64()), "c": []}), "Camel"),
    "join where no null may be": lambda table: table.merge(
        pa.table([[1], [1]], schema=pa.schema([("Camel", pa.int64()), STRICT.field("c")])), "Camel"
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_those_of_pylance(tmp_path: Path, name: str) -> None:
    theirs, ours = pair(tmp_path, enable_stable_row_ids=True)
    CHANGES[name](lance.dataset(theirs))
    table = lance_io.dataset(ours)
    CHANGES[name](table)
    seen, expected = facts(ours), facts(theirs)
    if name == "a function of a frame":  # pylance describes the index of the sample in the table's metadata
        del seen["schema metadata"], expected["schema metadata"]
    assert seen == expected
    assert table.to_table().equals(lance.dataset(ours).to_table())


@pytest.mark.parametrize("name", REFUSED)
def test_what_pylance_refuses_is_refused(tmp_path: Path, name: str) -> None:
    theirs, ours = pair(tmp_path)
    with pytest.raises(Exception) as refused:
        REFUSED[name](lance.dataset(theirs))
    before = set((tmp_path / "ours" / "data").iterdir())
    expected = refused.type if name != "no rows at once" else ValueError
    with pytest.raises(expected):
        REFUSED[name](lance_io.dataset(ours))
    assert lance_io.dataset(ours).version == 2
    assert set((tmp_path / "ours" / "data").iterdir()) == before, "a file of a failed change stayed"


def test_the_keys_of_a_join_are_compared_as_in_pylance(tmp_path: Path) -> None:
    nan = float("nan")
    for values, keys in (
        ([1.0, None, nan, 0.0, -0.0], [None, nan, -0.0]),
        (pa.array([1.5, None, 0.0], pa.float32()).cast(pa.float16()), pa.array([1.5, None]).cast(pa.float16())),
        (pa.array(["a", None, "b"]).dictionary_encode(), pa.array(["b", None]).dictionary_encode()),
        (pa.array([{"x": 0.0}, None, {"x": nan}]), pa.array([{"x": nan}, None, {"x": -0.0}])),
        ([[1, None], [], None], [[], [1, None], [1]]),
        (pa.array([b"ab", b"cd", None], pa.binary(2)), pa.array([b"cd"], pa.binary(2))),
    ):
        rows = pa.table({"a": values})
        right = pa.table({"a": keys, "c": range(len(keys))})
        found = []
        for library, name in ((lance, "theirs"), (lance_io, "ours")):
            table = library.write_dataset(rows, str(tmp_path / name), mode="overwrite")
            table.merge(right, "a")
            found.append(table.to_table()["c"].to_pylist())
        assert found[1] == found[0], rows.schema


@pytest.mark.parametrize("answer", READY)
@pytest.mark.parametrize("is_decorated", [False, True])
async def test_a_function_may_answer_with_ready_columns(tmp_path: Path, answer: str, is_decorated: bool) -> None:
    """Its sample has one row, whatever it answers with."""

    def ready(batch: pa.RecordBatch) -> Any:
        return READY[answer]

    found: dict[Any, Any] = {}
    for library, name in ((lance, "theirs"), (lance_io, "ours")):
        function = library.batch_udf()(ready) if is_decorated else ready
        table = library.write_dataset(ROWS.slice(0, 3), str(tmp_path / name))
        (fragment,) = table.get_fragments()
        merged, schema = fragment.merge_columns(function)
        table = library.LanceDataset.commit(table, library.LanceOperation.Merge([merged], schema), read_version=1)
        found[name, "merge_columns"] = table.to_table().to_pydict()
        table = library.write_dataset(ROWS.slice(0, 3), str(tmp_path / name), mode="overwrite")
        if library is lance_io:
            coroutines = await AsyncDataset.open(str(tmp_path / name))
            merged, schema = await coroutines.get_fragments()[0].merge_columns(function)
            assert len(merged.files) == 2 and "c" in str(schema)
            await coroutines.add_columns(function)
            found["asynchronous"] = lance.dataset(str(tmp_path / name)).to_table().to_pydict()
            table = library.write_dataset(ROWS.slice(0, 3), str(tmp_path / name), mode="overwrite")
        table.add_columns(function)
        found[name, "add_columns"] = lance.dataset(str(tmp_path / name)).to_table().to_pydict()
    assert found["ours", "add_columns"] == found["theirs", "add_columns"] == found["asynchronous"]
    assert found["ours", "merge_columns"] == found["theirs", "merge_columns"]


def test_a_function_sees_batches_of_one_fragment(tmp_path: Path) -> None:
    _, ours = pair(tmp_path)
    seen: list[list[int]] = []

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch["Camel"].to_pylist())
        return doubled(batch)

    lance_io.dataset(ours).add_columns(look, read_columns=["Camel"], batch_size=2)
    assert seen == [[1], [1, 2], [3], [6]], "the first call is the sample"


def test_a_table_without_rows(tmp_path: Path) -> None:
    table = lance_io.write_dataset(ROWS.slice(0, 0), tmp_path / "t.lance")
    table.add_columns(doubled)
    assert lance.dataset(str(tmp_path / "t.lance")).schema.field("c").type == pa.int64()


# -- asynchronous ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1"])
def test_deleted_rows_get_no_copies_of_large_values(tmp_path: Path, version: str) -> None:
    """Their values are not shown; small ones are those of the rows before them."""
    data_version = "legacy" if version == "0.1" else version
    uri, num_rows, text = str(tmp_path / "t"), 60, bytes(range(33, 123)).decode() * 3000
    ds = lance_io.write_dataset(pa.table({"k": range(num_rows)}), uri, data_storage_version=data_version)
    ds.delete("k % 30 != 7")
    files = set((tmp_path / "t" / "data").iterdir())
    types = {"s": pa.string(), "b": pa.large_binary(), "n": pa.int64()}
    made = pa.table({"s": [text, text[::-1]], "b": [text.encode(), b"x"], "n": [7, 37]}, pa.schema(types))
    ds.add_columns(made.to_reader())
    (written,) = set((tmp_path / "t" / "data").iterdir()) - files
    assert written.stat().st_size < 5 * len(text)
    for table in (lance_io.dataset(uri), lance.dataset(uri)):
        assert table.to_table().to_pydict() == {"k": [7, 37], **made.to_pydict()}
    shown = lance_io.dataset(uri).to_table(columns=["n"], with_row_id=True, include_deleted_rows=True)
    assert shown["n"].to_pylist() == [7] * 37 + [37] * 23


async def test_the_asynchronous_methods(tmp_path: Path) -> None:
    theirs, ours = pair(tmp_path)
    threads = set()

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        threads.add(threading.current_thread())
        return doubled(batch)

    async def batches() -> Any:
        for batch in GIVEN.rename_columns(["e", "f"]).to_batches(1):
            await asyncio.sleep(0)
            yield batch

    joined = pa.table({"Camel": [3], "g": [1]})
    table = await AsyncDataset.open(ours)
    await table.add_columns(look)
    await table.add_columns(batches(), reader_schema=pa.schema([("e", pa.int64()), ("f", pa.string())]))
    await table.merge(joined, "Camel")
    assert threading.current_thread() not in threads
    other = lance.dataset(theirs)
    other.add_columns(doubled)
    other.add_columns(GIVEN.rename_columns(["e", "f"]))
    other.merge(joined, "Camel")
    assert facts(ours) == facts(theirs)


async def test_a_store_that_is_not_local() -> None:
    table = lance_io.write_dataset(ROWS, "memory://columns")
    table.add_columns(doubled)
    table.merge(pa.table({"Camel": [3], "d": [1]}), "Camel")
    table.add_columns(pa.table({"e": range(len(ROWS))}).to_reader(2))
    assert table.to_table(columns=["c", "d", "e"]).to_pydict() == {
        "c": [2 * i for i in range(8)],
        "d": [None, None, None, 1, None, None, None, None],
        "e": list(range(8)),
    }


# -- fragments ---------------------------------------------------------------------------------------------------------

UPDATES: dict[str, tuple[pa.Table, str]] = {
    "one column": (pa.table({"Camel": [3, 1], "b": ["X", None]}), "Camel"),
    "two columns": (pa.table({"Camel": [3, 1], "l": [[1], None], "b": ["X", "Y"]}), "Camel"),
    "a struct": (pa.table({"b": ["w"], "st": [{"x": 9, "y": "new"}]}), "b"),
    "no match": (pa.table({"Camel": [77], "b": ["X"]}), "Camel"),
    "null": (pa.table({"a": pa.array([None], pa.int64()), "Camel": [100]}), "a"),
}


@pytest.mark.parametrize("name", UPDATES)
def test_columns_of_a_fragment_are_updated(tmp_path: Path, name: str) -> None:
    theirs, ours = pair(tmp_path, enable_stable_row_ids=True)
    rows, key = UPDATES[name]
    found = []
    for library, uri in ((lance, theirs), (lance_io, ours)):
        table = library.dataset(uri)
        fragment, ids, offsets = table.get_fragments()[0].update_columns(rows, key, with_offsets=True)
        assert table.get_fragments()[0].update_columns(rows, key)[1] == ids
        change = library.LanceOperation.Update(
            updated_fragments=[fragment],
            fields_modified=ids,
            update_mode="rewrite_columns",
            updated_fragment_offsets={0: offsets},
        )
        library.LanceDataset.commit(uri, change, read_version=table.version)
        found.append((sorted(ids), offsets))
    assert found[0] == found[1]
    theirs_seen, ours_seen = facts(theirs), facts(ours)
    for seen in (theirs_seen, ours_seen):  # several new columns come in the order of the table, pylance's of the rows
        seen["files"] = [[sorted(ids) for ids, _ in files] for files in seen["files"]]
    assert ours_seen == theirs_seen


def test_columns_of_a_fragment_are_merged(tmp_path: Path) -> None:
    theirs, ours = pair(tmp_path)
    for library, uri in ((lance, theirs), (lance_io, ours)):
        for change in (
            lambda one: one.merge_columns({"c": "a + 1"}),
            lambda one: one.merge_columns({}),
            lambda one: one.merge_columns(lambda batch: pa.record_batch({"d": batch["a"]}), columns=["a"]),
            lambda one: one.merge(pa.table({"Camel": [1, 6], "e": ["x", "y"]}), "Camel"),
        ):
            table = library.dataset(uri)
            merged = [change(fragment) for fragment in table.get_fragments()]
            operation = library.LanceOperation.Merge([fragment for fragment, _ in merged], merged[0][1])
            library.LanceDataset.commit(uri, operation, read_version=table.version)
    assert facts(ours) == facts(theirs)


FRAGMENT_REFUSED: dict[str, Change] = {
    "an unknown column": lambda one: one.update_columns(pa.table({"a": [1], "q": [1]}), "a"),
    "another key": lambda one: one.update_columns(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}), "a"),
    "no key": lambda one: one.update_columns(pa.table({"b": ["x"]})),
    "part of a struct": lambda one: one.update_columns(pa.table({"a": [1], "st": [{"x": 1}]}), "a"),
    "too few rows": lambda one: one.merge_columns(pa.table({"c": [1]})),
    "too many rows": lambda one: one.merge_columns(pa.table({"c": range(9)})),
}


@pytest.mark.parametrize("name", FRAGMENT_REFUSED)
async def test_what_pylance_refuses_of_a_fragment(tmp_path: Path, name: str) -> None:
    theirs, ours = pair(tmp_path)
    with pytest.raises(Exception) as refused:
        FRAGMENT_REFUSED[name](lance.dataset(theirs).get_fragments()[0])
    before = set((tmp_path / "ours" / "data").iterdir())
    with pytest.raises(refused.type):
        FRAGMENT_REFUSED[name](lance_io.dataset(ours).get_fragments()[0])
    table = await AsyncDataset.open(ours)
    with pytest.raises(refused.type):
        await FRAGMENT_REFUSED[name](table.get_fragments()[0])
    assert set((tmp_path / "ours" / "data").iterdir()) == before


# -- checkpoints -------------------------------------------------------------------------------------------------------


class Broken(Exception):
    pass


def counting(calls: list[list[int]], fails_at: int | None, checkpoint: Path) -> Any:
    """A function that fails at a row, and remembers what it was asked for."""

    @lance_io.batch_udf(output_schema=pa.schema([("c", pa.int64())]), checkpoint_file=checkpoint)
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch["i"].to_pylist()
        if fails_at in rows:
            raise Broken
        calls.append(rows)
        return pa.record_batch({"c": pc.add(batch["i"], 1000)})

    return compute


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    """Twelve rows in three fragments."""
    uri = str(tmp_path / "numbers.lance")
    lance_io.write_dataset(pa.table({"i": range(12)}), uri, max_rows_per_file=4)
    return uri


def test_a_call_is_taken_up_where_it_failed(tmp_path: Path, numbers: str) -> None:
    kept = tmp_path / "kept.db"
    calls: list[list[int]] = []
    with pytest.raises(OperationError, match="Broken"):
        lance_io.dataset(numbers).add_columns(counting(calls, 7, kept), batch_size=2)
    assert calls == [[0, 1], [2, 3], [4, 5]]
    lance_io.write_dataset(pa.table({"i": [12]}), numbers, mode="append")  # more rows do no harm
    lance_io.dataset(numbers).add_columns(counting(calls, None, kept), batch_size=2)
    assert calls == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12]]
    assert lance.dataset(numbers).to_table()["c"].to_pylist() == [1000 + i for i in range(13)]
    assert not list(tmp_path.glob("kept.db*"))


_KILLED = """
import os, signal, sys
import pyarrow as pa, pyarrow.compute as pc
import lance_io

@lance_io.batch_udf(output_schema=pa.schema([("c", pa.int64())]), checkpoint_file=sys.argv[2])
def compute(batch):
    if int(sys.argv[3]) in batch["i"].to_pylist():
        os.kill(os.getpid(), signal.SIGKILL)
    return pa.record_batch({"c": pc.add(batch["i"], 1000)})

lance_io.dataset(sys.argv[1]).add_columns(compute, batch_size=2)
"""


@pytest.mark.parametrize("row", [0, 3, 6, 11])
def test_a_killed_process_loses_nothing_that_was_computed(tmp_path: Path, numbers: str, row: int) -> None:
    kept = tmp_path / "kept.db"
    done = subprocess.run([sys.executable, "-c", _KILLED, numbers, str(kept), str(row)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert lance.dataset(numbers).schema.names == ["i"]
    calls: list[list[int]] = []
    lance_io.dataset(numbers).add_columns(counting(calls, None, kept), batch_size=2)
    assert [row for batch in calls for row in batch] == list(range(row // 2 * 2, 12))
    assert lance.dataset(numbers).to_table()["c"].to_pylist() == [1000 + i for i in range(12)]


def test_a_table_that_changed_is_not_given_what_was_computed_before(tmp_path: Path, numbers: str) -> None:
    kept = tmp_path / "kept.db"
    calls: list[list[int]] = []
    with pytest.raises(OperationError, match="Broken"):
        lance_io.dataset(numbers).add_columns(counting(calls, 7, kept), batch_size=2)
    lance.dataset(numbers).delete("i = 1")
    with pytest.raises(OperationError, match=r"fragment 0 .* changed .* Remove it"):
        lance_io.dataset(numbers).add_columns(counting(calls, None, kept), batch_size=2)
    kept.unlink()
    lance_io.dataset(numbers).add_columns(counting(calls, None, kept), batch_size=2)
    assert lance.dataset(numbers).to_table()["c"].to_pylist() == [1000 + i for i in range(12) if i != 1]


def test_a_checkpoint_is_of_one_call(tmp_path: Path, numbers: str) -> None:
    kept = tmp_path / "kept.db"
    with pytest.raises(OperationError, match="Broken"):
        lance_io.dataset(numbers).add_columns(counting([], 7, kept), batch_size=2)
    other = lance_io.write_dataset(pa.table({"i": range(4)}), tmp_path / "other.lance")
    with pytest.raises(OperationError, match="fragment 0"):
        other.add_columns(counting([], None, kept))
    with pytest.raises(OperationError, match="columns"):
        lance_io.dataset(numbers).add_columns(counting([], None, kept), read_columns=["i", "_rowid"])
    lance_io.dataset(numbers).add_columns(pa.field("z", pa.int32()))
    with pytest.raises(OperationError, match="new columns"):
        lance_io.dataset(numbers).add_columns(counting([], None, kept), read_columns=["i"])


def test_a_file_that_was_removed_is_written_anew(tmp_path: Path, numbers: str) -> None:
    kept = tmp_path / "kept.db"
    calls: list[list[int]] = []
    with pytest.raises(OperationError, match="Broken"):
        lance_io.dataset(numbers).add_columns(counting(calls, 7, kept))
    lance_io.dataset(numbers).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    lance_io.dataset(numbers).add_columns(counting(calls, None, kept))
    assert calls == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert lance.dataset(numbers).to_table()["c"].to_pylist() == [1000 + i for i in range(12)]


def test_files_that_are_no_checkpoints(tmp_path: Path, numbers: str) -> None:
    text, other = tmp_path / "text", tmp_path / "other.db"
    text.write_bytes(b"not a database" * 100)
    with sqlite3.connect(other) as database:
        database.execute("create table batches (x)")
    database.close()
    for path in (text, other, tmp_path / "no" / "folder"):
        with pytest.raises(OperationError, match="cannot be used"):
            lance_io.dataset(numbers).add_columns(counting([], None, path))
    assert text.read_bytes() == b"not a database" * 100


def test_a_checkpoint_is_used_by_one_process(tmp_path: Path, numbers: str) -> None:
    kept = tmp_path / "kept.db"
    refused = []

    @lance_io.batch_udf(output_schema=pa.schema([("c", pa.int64())]), checkpoint_file=kept)
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not refused:
            done = subprocess.run(
                [sys.executable, "-c", _KILLED, numbers, str(kept), "-1"], check=False, capture_output=True, text=True
            )
            refused.append(done.stderr)
        return pa.record_batch({"c": batch["i"]})

    lance_io.dataset(numbers).add_columns(compute)
    assert "OperationError" in refused[0]
    assert "locked" in refused[0]
