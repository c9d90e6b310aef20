"""Takes of few rows whose columns come as one batch: the rows that were written, whatever the type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError
from lance_io.levels.layout import BatchLayout

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS: Final = 90
ROWS: Final = [89, 0, 7, 7, 31, 60, 29, 30]


def leaves() -> dict[str, pa.Array]:
    """Columns of one leaf, a third of their values null."""

    def some(make: Any) -> list[Any]:
        return [None if at % 3 == 1 else make(at) for at in range(NUM_ROWS)]

    vectors = some(lambda at: [at, None if at % 2 else at + 1, 3])
    return {
        "bool": pa.array(some(lambda at: at % 2 == 0)),
        "int8": pa.array(some(lambda at: at), pa.int8()),
        "int64": pa.array(some(lambda at: at << 40)),
        "float16": pa.array(some(float), pa.float16()),
        "decimal": pa.array(some(lambda at: at), pa.decimal128(20, 3)),
        "timestamp": pa.array(some(lambda at: at), pa.timestamp("ms", "+02:00")),
        "text": pa.array(some(lambda at: "é" * at)),
        "large text": pa.array(some(lambda at: "x" * at), pa.large_string()),
        "bytes": pa.array(some(lambda at: bytes([at] * (at % 4)))),
        "large bytes": pa.array(some(lambda at: bytes([at] * (at % 4))), pa.large_binary()),
        "five bytes": pa.array(some(lambda at: bytes([at] * 5)), pa.binary(5)),
        "vectors": pa.array(vectors, pa.list_(pa.int32(), 3)),
        "long vectors": pa.array([[at / 3] * 700 for at in range(NUM_ROWS)], pa.list_(pa.float32(), 700)),
        "flags": pa.array(some(lambda at: [at % 2 == 0, at % 3 == 0]), pa.list_(pa.bool_(), 2)),
        "few values": pa.array(some(lambda at: f"value {at % 5}")),
        "few numbers": pa.array(some(lambda at: at // 4)),
    }


def wrapped(leaf: pa.Array) -> dict[str, pa.Array]:
    """The leaf, and what may be around it."""
    lengths = [None if at % 7 == 3 else at % 3 for at in range(NUM_ROWS)]
    lists = [None if length is None else leaf.slice(at, length).to_pylist() for at, length in enumerate(lengths)]
    structs = [None if at % 5 == 2 else {"m": value} for at, value in enumerate(leaf.to_pylist())]
    of_structs = [None if items is None else [None, *({"m": item} for item in items)] for items in lists]
    return {
        "plain": leaf,
        "list": pa.array(lists, pa.list_(leaf.type)),
        "large list": pa.array(lists, pa.large_list(leaf.type)),
        "struct": pa.array(structs, pa.struct([("m", leaf.type)])),
        "list of structs": pa.array(of_structs, pa.list_(pa.struct([("m", leaf.type)]))),
        "struct of lists": pa.array([{"m": items} for items in lists], pa.struct([("m", pa.list_(leaf.type))])),
    }


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[pa.RecordBatch]:
    """What kernels have made as a whole."""
    made: list[pa.RecordBatch] = []
    original = BatchLayout.batch

    def batch(self: BatchLayout, memory: Any) -> pa.RecordBatch:
        made.append(original(self, memory))
        return made[-1]

    monkeypatch.setattr(BatchLayout, "batch", batch)
    return made


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("name", leaves())
def test_columns_of_one_leaf(name: str, version: str, tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
    table = pa.table(wrapped(leaves()[name]) | {"id": pa.array(range(NUM_ROWS))})
    uri = str(tmp_path / "t.lance")
    writer: Any = lance_io if name == "bool" else lance  # pylance fails at some bits of nested columns
    writer.write_dataset(table, uri, max_rows_per_file=30, data_storage_version=version)
    dataset = lance_io.dataset(uri)
    for rows in (ROWS, [64]):
        taken = dataset.take(rows)
        taken.validate(full=True)
        assert taken == table.take(rows)
        assert taken.schema == table.schema
        for column in table.column_names:
            batches.clear()
            assert dataset.take(rows, columns=[column]) == table.take(rows).select([column])
            if name == "long vectors" and column not in ("plain", "id"):
                continue  # zipped with their levels, they are decoded one page at a time
            assert len(batches) == 1
            batches[0].validate(full=True)


def test_several_columns_are_one_batch_in_the_order_asked(tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
    table = pa.table({name: leaf for name, leaf in leaves().items() if name != "few values"})
    dataset = lance_io.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=30)
    assert dataset.take([5]) == table.take([5])
    assert len(batches) == 1
    names = table.column_names[::-1]
    assert dataset.take(ROWS, columns=names) == table.take(ROWS).select(names)


@pytest.mark.parametrize(
    "columns",
    [["_rowid", "a"], {"a": "a + 1"}, {"b": "a"}, ["n.x"], ["n"], ["d"], ["u"], ["a", "d"]],
    ids=str,
)
def test_what_is_not_as_it_was_read(columns: Any, tmp_path: Path) -> None:
    """System and computed columns, other names, members of structs, fields of two leaves, dictionaries, extensions."""
    table = pa.table(
        {
            "a": pa.array(range(NUM_ROWS)),
            "n": pa.array([{"x": at, "y": str(at)} for at in range(NUM_ROWS)]),
            "d": pa.array([f"v{at % 3}" for at in range(NUM_ROWS)]).dictionary_encode(),
            "u": pa.array([bytes([at] * 16) for at in range(NUM_ROWS)], pa.uuid()),
        }
    )
    uri = str(tmp_path / "t.lance")
    theirs = lance.write_dataset(table, uri, max_rows_per_file=30)
    taken = lance_io.dataset(uri).take(ROWS, columns=columns)
    assert taken == theirs.take(ROWS, columns=columns).cast(taken.schema)


def test_files_that_lack_a_column_or_have_other_pages(tmp_path: Path) -> None:
    """One file has all columns, one lacks some, one holds them in two files, and a column is all null in another."""
    uri = str(tmp_path / "t.lance")
    first = pa.table({"a": pa.array(range(30)), "s": [f"text {at}" for at in range(30)]})
    theirs = lance.write_dataset(first, uri)
    theirs.add_columns({"b": "a * 2"})
    second = pa.table({"a": pa.array(range(30, 60)), "s": pa.nulls(30, pa.string()), "b": pa.array([1] * 30)})
    theirs = lance.write_dataset(second, uri, mode="append")
    third = pa.table({"a": pa.array(range(60, 90))})
    theirs = lance.write_dataset(third, uri, mode="append")
    dataset = lance_io.dataset(uri)
    for rows in (ROWS, [5], [35], [65], [35, 5], [5, 65], ROWS):
        for columns in (None, ["a"], ["b", "s"], ["s"]):
            assert dataset.take(rows, columns=columns) == theirs.take(rows, columns=columns)


def test_values_of_a_batch_are_checked_where_that_is_asked_for(tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
    table = pa.table({"s": pa.array([b"\xff", b"a"]).view(pa.string())})
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(table, uri)  # which ours refuses
    dataset = lance_io.dataset(uri, read_params={"validate_on_decode": True})
    assert dataset.take([1])["s"].to_pylist() == ["a"]
    assert len(batches) == 1
    with pytest.raises(FormatError):
        dataset.take([0])
