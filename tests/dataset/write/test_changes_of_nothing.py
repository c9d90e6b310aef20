"""Calls that change no row make a version, of the kind that pylance makes, and write nothing; beside pylance."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[[Any, Any, str], Any]

SCHEMA = pa.schema(
    [
        pa.field("a", pa.int32(), nullable=False),
        pa.field("s", pa.string()),
        pa.field("st", pa.struct([pa.field("p", pa.int64())])),
    ]
)
ROWS = pa.table({"a": [1, 2, 3], "s": ["x", "y", None], "st": [{"p": 1}, {"p": 2}, None]}, schema=SCHEMA)
NONE = ROWS.slice(0, 0)
LACKING = NONE.select(["s"])


def merge(source: Any, *clauses: str, key: str = "a") -> Call:
    def call(library: Any, dataset: Any, uri: str) -> None:
        builder = dataset.merge_insert(key)
        for clause in clauses:
            builder = getattr(builder, clause)()
        builder.execute(source() if callable(source) else source)

    return call


UPSERT = ("when_matched_update_all", "when_not_matched_insert_all")
CALLS: dict[str, Call] = {
    "append": lambda library, dataset, uri: library.write_dataset(NONE, uri, mode="append"),
    "append of no batches": lambda library, dataset, uri: library.write_dataset(
        pa.RecordBatchReader.from_batches(SCHEMA, []), uri, mode="append"
    ),
    "append of a part": lambda library, dataset, uri: library.write_dataset(NONE.select(["a"]), uri, mode="append"),
    "insert": lambda library, dataset, uri: dataset.insert(NONE),
    "delete": lambda library, dataset, uri: dataset.delete("a > 10"),
    "delete by false": lambda library, dataset, uri: dataset.delete("false"),
    "update": lambda library, dataset, uri: dataset.update({"s": "'z'"}, where="a > 10"),
    "upsert": merge(NONE, *UPSERT),
    "upsert without a column": merge(LACKING, *UPSERT, key="s"),
    "insert without a column": merge(LACKING, "when_not_matched_insert_all", key="s"),
    "insert without a column, from a stream": merge(lambda: LACKING.to_reader(), *UPSERT, key="s"),
    "insert of rows without a column": merge(pa.table({"s": ["q"]}), *UPSERT, key="s"),
    "all go, as the source is empty": merge(
        LACKING, "when_not_matched_insert_all", "when_not_matched_by_source_delete", key="s"
    ),
    "insert of what is there": merge(ROWS, "when_not_matched_insert_all"),
    "merged delete": merge(NONE, "when_matched_delete"),
    "rename": lambda library, dataset, uri: dataset.alter_columns({"path": "a", "name": "a"}),
    "alter nothing": lambda library, dataset, uri: dataset.alter_columns(),
    "drop nothing": lambda library, dataset, uri: dataset.drop_columns([]),
    "add nothing": lambda library, dataset, uri: dataset.add_columns({}),
    "null": lambda library, dataset, uri: dataset.add_columns({"n": "cast(null as int)"}),
    "nulls": lambda library, dataset, uri: dataset.add_columns(
        {"n": "CAST(NULL AS string)", "m": "cast(null as double)"}
    ),
    "null in brackets": lambda library, dataset, uri: dataset.add_columns({"n": "(cast(null as bigint))"}),
    "null beside values": lambda library, dataset, uri: dataset.add_columns({"n": "cast(null as int)", "m": "a + 1"}),
    "null of no type": lambda library, dataset, uri: dataset.add_columns({"n": "null"}),
    "configuration": lambda library, dataset, uri: dataset.update_config({}),
    "compaction": lambda library, dataset, uri: dataset.optimize.compact_files(),
    "cleanup": lambda library, dataset, uri: dataset.cleanup_old_versions(timedelta(0)),
}


def outcome(uri: Path) -> tuple[Any, ...]:
    dataset = lance.dataset(uri)
    kinds = [type(one.operation).__name__ for one in dataset.get_transactions()[: dataset.version - 1]]
    return dataset.version, kinds, len(list((uri / "data").iterdir())), dataset.schema, dataset.to_table()


@pytest.mark.filterwarnings("ignore:files of version 0.1 hold no nulls")
@pytest.mark.parametrize("version", ["0.1", "2.2"])
@pytest.mark.parametrize("name", CALLS)
def test_as_pylance(tmp_path: Path, name: str, version: str) -> None:
    found = []
    for library in (lance, lance_io):
        uri = tmp_path / library.__name__
        rows = ROWS
        if version == "0.1":  # which holds no null structs
            rows = rows.set_column(2, SCHEMA.field("st"), pa.array([{"p": one} for one in range(3)]))
        dataset = library.write_dataset(rows, uri, data_storage_version=version)
        try:
            CALLS[name](library, dataset, str(uri))
            error = None
        except (OSError, ValueError) as refused:
            error = str(refused).removeprefix("Invalid user input: ").removeprefix("LanceError(Arrow): ")[:40]
        found.append((error, *outcome(uri)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "alterations",
    [
        [{"path": "a", "data_type": pa.int32()}],
        [{"path": "s", "data_type": pa.string(), "name": "t"}],
        [{"path": "st.p", "data_type": pa.int64()}],
        [{"path": "a", "data_type": pa.int32()}, {"path": "s", "data_type": pa.string()}],
    ],
    ids=str,
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_cast_to_the_same_type_writes_nothing(
    tmp_path: Path, alterations: list[dict[str, Any]], is_async: bool
) -> None:
    """pylance writes the columns anew; the version, its kind, the schema and the rows are the same."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    lance.write_dataset(ROWS, theirs).alter_columns(*alterations)
    dataset = lance_io.write_dataset(ROWS, ours)
    if is_async:

        async def alter() -> None:
            async with lance_io.AsyncDataset.open(str(ours)) as table:
                await table.alter_columns(*alterations)

        asyncio.run(alter())
    else:
        dataset.alter_columns(*alterations)
    here, there = outcome(ours), outcome(theirs)
    assert here[:2] == there[:2] == (2, ["Merge"])
    assert here[2] == 1
    assert here[3:] == there[3:]


@pytest.mark.parametrize("text", ["nullif(1, 1)", "cast(null as int) + 1", "cast(cast(null as int) as bigint)"])
def test_what_is_null_in_any_row_is_not_written(tmp_path: Path, text: str) -> None:
    """pylance computes it for each row; the column and the version are the same."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for library, uri in ((lance_io, ours), (lance, theirs)):
        library.write_dataset(ROWS, uri).add_columns({"n": text})
    here, there = outcome(ours), outcome(theirs)
    assert here[2] == 1
    assert here[:2] + here[3:] == there[:2] + there[3:]


def test_an_asynchronous_null_column_reads_nothing(tmp_path: Path) -> None:
    lance_io.write_dataset(ROWS, tmp_path)

    async def add() -> int:
        async with lance_io.AsyncDataset.open(str(tmp_path)) as table:
            table.io_stats_incremental()
            await table.add_columns({"n": "cast(null as int)"})
            return table.io_stats_incremental().read_bytes

    data = next((tmp_path / "data").iterdir())
    assert asyncio.run(add()) < data.stat().st_size
    assert lance.dataset(tmp_path).to_table()["n"].null_count == 3
