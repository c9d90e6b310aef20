"""Random access compared with pylance: positions, row ids, errors, samples."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import BindError
from lance_io.io.stats import io_stats
from tests.fuzz.test_found import change_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.proto import table_pb2

COLUMNS: list[Any] = [None, ["s", "a"], ["n.x"], ["n.y", "s", "n.x"], {"z": "a"}, ["a", "_rowid", "l"], ["_rowaddr"]]
PICKS = [[0], [92, 0, 0, 5], list(range(40)), [91, 90, 89], [17, 3, 60, 3, 17, 44]]


def pylance_take(uri: str, indices: list[int], columns: Any) -> pa.Table:
    """What pylance takes; it cannot take system columns alone, so another one is asked for and dropped."""
    table = lance.dataset(uri)
    if columns == ["_rowaddr"]:
        return table.take(indices, ["_rowaddr", "s"]).select(["_rowaddr"])
    return table.take(indices, columns)


@pytest.mark.parametrize("columns", COLUMNS, ids=str)
@pytest.mark.parametrize("indices", PICKS, ids=lambda rows: f"{len(rows)} rows")
def test_takes_equal_those_of_pylance(mixed_uri: str, indices: list[int], columns: Any) -> None:
    got = lance_io.dataset(mixed_uri).take(indices, columns)
    expected = pylance_take(mixed_uri, indices, columns)
    assert got.schema.equals(expected.schema)
    assert got.combine_chunks().equals(expected.combine_chunks())
    got.validate(full=True)


@pytest.fixture(scope="module")
def nested_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("takes") / "nested.lance")
    table = pa.table(
        {
            "id": range(20),
            "A B": range(20),
            "n": [None if i % 7 == 0 else {"x": i, "y": "y" * i, "m m": {"z": i}} for i in range(20)],
            "l": [None if i % 5 == 0 else [{"p": i, "q": "z" * i}] * (i % 4) for i in range(20)],
            "ll": [[[{"p": i, "q": i}]] * (i % 3) for i in range(20)],
            "m": pa.array([[("k", i)] for i in range(20)], pa.map_(pa.string(), pa.int64())),
        }
    )
    packed = pa.field("packed", pa.struct({"a": pa.int32(), "b": pa.int64()}), metadata={"packed": "true"})
    table = table.append_column(packed, pa.array([{"a": i, "b": -i} for i in range(20)], packed.type))
    lance.write_dataset(table, uri, max_rows_per_file=8, data_storage_version="2.2")
    return uri


@pytest.mark.parametrize(
    "columns",
    [
        ["`A B`", "A B"],
        ["id", "n", "id"],
        ("id", "n.x"),
        np.array(["id", "l"]),
        pd.DataFrame(columns=["id", "l"]).columns,
        pd.Series(["id", "l"], index=[7, 8]),
        ["n.x", "id", "n.x", "n.`m m`.z"],
        ["n.y", "n"],
        ["l.item"],
        ["l.item.p", "id"],
        ["l.item.q", "l.item.p"],
        ["ll.item.item.q"],
        ["m.entries"],
        ["packed.a"],
        ["id", "_rowoffset"],
        {"o": "_rowoffset", "r": "_rowid"},
        ["_rowid", "id", "_rowid"],
    ],
    ids=str,
)
def test_names_select_as_in_pylance(nested_uri: str, columns: Any) -> None:
    ours, theirs = lance_io.dataset(nested_uri), lance.dataset(nested_uri)
    for taken, expected in (
        (ours.take([15, 3, 3, 0], columns), theirs.take([15, 3, 3, 0], columns)),
        (ours._take_rows([1, 7], columns), theirs._take_rows([1, 7], columns)),
    ):
        taken.validate(full=True)
        assert taken.schema.equals(expected.schema)
        assert taken.combine_chunks().equals(expected.combine_chunks())


@pytest.mark.parametrize("columns", ["id", {"id"}, b"id", [1]], ids=str)
def test_what_is_no_selection_is_refused_as_in_pylance(nested_uri: str, columns: Any) -> None:
    for library in (lance_io, lance):
        with pytest.raises(TypeError):
            library.dataset(nested_uri).take([1], columns)


@pytest.mark.parametrize("name", ["nope", "n.nope", "l.p", "l.item.nope", "li.element", "id.x", "m.key"])
def test_unknown_names_are_refused(nested_uri: str, name: str) -> None:
    with pytest.raises(BindError, match="No field named"):
        lance_io.dataset(nested_uri).take([1], [name])


def test_members_are_read_alone(nested_uri: str) -> None:
    table = lance_io.dataset(nested_uri)
    table.take([1])  # the metadata are known from now on
    read = {}
    for columns in (["n.x"], ["n"], ["l.item.p"], ["l"]):
        with io_stats() as spent:
            table.take([1, 6], columns)
        read[columns[0]] = spent.bytes_wanted
    assert read["n.x"] < read["n"]
    assert read["l.item.p"] < read["l"]


def test_random_takes_equal_a_take_from_the_whole_table(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    whole = table.to_table(with_row_id=True)
    rng = random.Random(7)
    for _ in range(20):
        indices = [rng.randrange(whole.num_rows) for _ in range(rng.randrange(1, 60))]
        got = table.take(indices, [*whole.schema.names])
        assert got.combine_chunks().equals(whole.take(indices).combine_chunks())


@pytest.mark.parametrize(
    "indices",
    [
        range(3, 9, 2),
        np.array([5, 1], dtype=np.uint8),
        np.array([5, 0, 1, 0])[::2],
        np.array([1, 5])[::-1],
        np.frombuffer(bytes(1) + np.array([5, 1]).tobytes(), dtype=np.int64, offset=1),
        pa.array([5, 1], pa.uint64()),
        pa.chunked_array([[5], [1]]),
        (5, 1),
        iter([5, 1]),
    ],
    ids=["range", "numpy", "strided", "reversed", "unaligned", "arrow", "chunked", "tuple", "iterator"],
)
def test_row_numbers_come_in_many_containers(mixed_uri: str, indices: Any) -> None:
    expected = [5, 1] if not isinstance(indices, range) else [3, 5, 7]
    got = lance_io.dataset(mixed_uri).take(indices, ["_rowoffset"])
    assert got.column(0).to_pylist() == expected


def test_no_rows_and_no_columns(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    assert table.take([]).schema.equals(table.schema, check_metadata=True)
    assert table.take([]).num_rows == 0
    assert table.take([3, 3], []).num_rows == 2


@pytest.mark.parametrize(
    ("indices", "error"),
    [
        ([-1], OverflowError),
        ([93], OSError),
        ([1 << 63], OSError),
        ([1 << 64], OverflowError),
        ([1.5], TypeError),
        ([None], TypeError),
        (pa.array([1, None]), TypeError),
        (["1"], TypeError),
        (np.array([True, False]), TypeError),
        (pa.array([True, False]), TypeError),
        ({1, 2}, TypeError),
        ({1: 2}, TypeError),
        (np.ma.array([1, 2], mask=[False, True]), TypeError),
    ],
    ids=str,
)
def test_rows_that_are_not_there(mixed_uri: str, indices: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        lance_io.dataset(mixed_uri).take(indices)


def test_rows_by_address(mixed_uri: str) -> None:
    ids = [(1 << 32) + 5, 0, 1 << 32, 1, 7]  # offset 5 of fragment 1 and offset 0 of fragment 0 were deleted
    got = lance_io.dataset(mixed_uri)._take_rows(ids, ["s", "_rowid"])
    assert got.column("s").to_pylist() == lance.dataset(mixed_uri)._take_rows(ids, ["s"]).column("s").to_pylist()
    assert got.column("_rowid").to_pylist() == [1 << 32, 1, 7]
    for bad in (9 << 32, 25):
        with pytest.raises(OSError, match="row address"):
            lance_io.dataset(mixed_uri)._take_rows([bad])


def test_rows_by_stable_id(stable_uri: str) -> None:
    ids = [199, 4, 3, 0, 10**9, 4, 150, 1 << 63]  # 3 and 150 were deleted, two never existed
    got = lance_io.dataset(stable_uri)._take_rows(ids, ["i", "t", "_rowid"])
    assert got.column("i").to_pylist() == [199, 4, 0, 4]
    assert got.column("t").to_pylist() == ["t199", "new", "t0", "new"]
    assert got.column("_rowid").to_pylist() == [199, 4, 0, 4]


def test_head_slice_and_sample(mixed_uri: str) -> None:
    ours, theirs = lance_io.dataset(mixed_uri), lance.dataset(mixed_uri)
    assert ours.head(3, columns=["s"]).equals(theirs.head(3, columns=["s"]))
    assert ours.slice(20, 30, ["s"]).combine_chunks().equals(theirs.slice(20, 30, ["s"]).combine_chunks())
    for start, end in ((-1, 3), (5, 3)):
        with pytest.raises(ValueError, match=r"must be|start"):
            ours.slice(start, end)
    sample = ours.sample(20, ["_rowoffset"], randomize_order=False).column(0).to_pylist()
    assert sample == sorted(set(sample))
    assert len(set(ours.sample(93, ["s"]).column(0).to_pylist())) == 93
    with pytest.raises(ValueError, match="larger than population"):
        ours.sample(94)


def test_a_fragment_takes_its_own_positions(mixed_uri: str) -> None:
    ours, theirs = lance_io.dataset(mixed_uri).get_fragment(1), lance.dataset(mixed_uri).get_fragment(1)
    assert ours is not None
    assert ours.take([0, 4, 5, 5, 23], ["s"]).equals(theirs.take([0, 4, 5, 5, 23], ["s"]))
    for bad in ([2, 1], [24]):
        with pytest.raises(OSError, match=r"increasing|rows"):
            ours.take(bad)
    with pytest.raises(OverflowError):
        ours.take([-1])


@pytest.mark.parametrize("rows_per_file", [4000, 1000], ids=["pages", "files"])
@pytest.mark.parametrize("nested", [False, True], ids=["values", "lists"])
def test_rows_with_other_dictionaries_whose_values_fit_together(
    tmp_path: Path, rows_per_file: int, nested: bool
) -> None:
    """Four dictionaries of a hundred values, and indices that tell 128 apart."""
    columns = []
    for page in range(4):
        words = pa.array([f"{page} {number}" for number in range(100)])
        column = pa.DictionaryArray.from_arrays(
            pa.array(np.arange(1000) % 100, pa.int8(), mask=np.arange(1000) == 7), words
        )
        offsets = pa.array(range(1001), pa.int32())
        columns.append(pa.ListArray.from_arrays(offsets, column) if nested else column)
    table = pa.Table.from_batches([pa.record_batch({"d": column}) for column in columns])
    lance_io.write_dataset(table.to_reader(), tmp_path, max_rows_per_file=rows_per_file)
    indices = [5, 3999, 1007, 2500, 5, *range(3000, 3090)]
    expected = [table["d"][index].as_py() for index in indices]
    for library in (lance, lance_io):
        taken = library.dataset(str(tmp_path)).take(indices)
        assert taken["d"].to_pylist() == expected
        assert taken["d"].type == table["d"].type
    whole = lance_io.dataset(tmp_path).take(range(4000))["d"]
    assert whole.num_chunks > 1 and whole.to_pylist() == table["d"].to_pylist()


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("rows_per_file", [2000, 500], ids=["one file", "four files"])
def test_takes_do_not_share_memory(tmp_path: Path, version: str, rows_per_file: int) -> None:
    """Read buffers are reused by the next take of a thread; what a take returned must not lie in them."""
    rng = np.random.default_rng(3)
    num_rows = 2000
    data = rng.bytes(300 * num_rows)
    vectors = pa.array(rng.random(800 * num_rows, dtype=np.float32))
    words = pa.array([f"{number} {data[number : number + 40].hex()}" for number in range(num_rows)])
    table = pa.table(
        {
            "long": pa.array(rng.integers(0, 2**60, num_rows)),
            "text": words,
            "binary": pa.array([data[300 * at : 300 * at + 300] for at in range(num_rows)], pa.large_binary()),
            "fixed": pa.array([data[300 * at : 300 * at + 200] for at in range(num_rows)], pa.binary(200)),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 800),
            "list": pa.ListArray.from_arrays(pa.array(range(num_rows + 1), pa.int32()), words),
            "struct": pa.StructArray.from_arrays([words, vectors[:num_rows]], ["w", "v"]),
        }
    )
    lance.write_dataset(table, tmp_path / "t", max_rows_per_file=rows_per_file, data_storage_version=version)
    ours = lance_io.dataset(tmp_path / "t")
    picks = [np.sort(rng.choice(num_rows, size, replace=False)) for size in (300, 1, 400, 40, 300)]
    picks += [np.arange(start, start + 500) for start in (0, 700, 1500)]
    picks += [np.arange(start, num_rows) for start in (0, 300, 600)]  # so many that vectors are not copied
    taken = [ours.take(rows) for rows in picks]
    for rows, found in zip(picks, taken, strict=True):
        assert found.equals(table.take(rows))


def test_large_takes_of_several_threads_do_not_share_memory(tmp_path: Path) -> None:
    """A take of 40 MiB reads into a buffer of the process; whoever comes meanwhile has another."""
    num_rows = 600_000
    rng = np.random.default_rng(5)
    table = pa.table({f"c{number}": rng.integers(0, 2**62, num_rows) for number in range(8)})
    lance.write_dataset(table, tmp_path / "t")
    ours = lance_io.dataset(tmp_path / "t")
    picks = [np.arange(start, num_rows) for start in (0, 5_000, 10_000, 15_000)] * 2
    ours.take(picks[0])  # there is a buffer to be taken from now on
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda rows: ours.take(rows), picks))
    for rows, found in zip(picks, taken, strict=True):
        assert found.equals(table.slice(int(rows[0])))


@pytest.mark.parametrize("columns", [["s.j"], ["s.u", "a"], ["s.u", "s.n"], ["s.n", "s"]], ids=str)
def test_takes_of_members_with_extension_types(tmp_path: Path, columns: list[str]) -> None:
    members = [pa.array([1, 2]), pa.array(['{"a":1}', None], pa.json_()), pa.array([b"x" * 16] * 2, pa.uuid())]
    structs = pa.StructArray.from_arrays(members, names=["n", "j", "u"])
    lance.write_dataset(pa.table({"a": [1, 2], "s": structs}), tmp_path / "t", data_storage_version="2.1")
    got = lance_io.dataset(tmp_path / "t").take([1, 0, 1], columns)
    expected = lance.dataset(tmp_path / "t").take([1, 0, 1], columns)
    assert got.schema.equals(expected.schema, check_metadata=True)
    assert got.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_members_of_packed_structs(tmp_path: Path, version: str) -> None:
    """All members share a column, which is read whole: pylance reads the bytes of the first as those of any other."""
    rows = pa.table({"p": [{"a": 1, "c": 2.0}, {"a": 3, "c": 4.0}]})
    packed = rows.schema.field("p").with_metadata({"lance-encoding:packed": "true"})
    lance.write_dataset(rows.cast(pa.schema([packed])), tmp_path / "t", data_storage_version=version)
    ours, theirs = lance_io.dataset(tmp_path / "t"), lance.dataset(tmp_path / "t")
    assert ours.to_table(columns=["p.a"]).equals(theirs.to_table(columns=["p.a"]))
    assert ours.take([1, 0], ["p.a"]).equals(theirs.take([1, 0], ["p.a"]))
    assert ours.to_table(columns=["p.c"])["p.c"].to_pylist() == [2.0, 4.0]
    assert ours.take([1, 0], ["p.c"]).to_pylist() == [{"p": {"c": 4.0}}, {"p": {"c": 2.0}}]
    assert ours.to_table(columns=["p.a"], filter="p.c > 2").to_pylist() == [{"p.a": 3}]


def _dictionary(kind: str, fragment: int, num_rows: int) -> pa.Array:
    """Rows over a dictionary that only in part is that of other fragments; some are null."""
    values = {
        "texts": pa.array([f"first {fragment}", "all", f"last {fragment}"]),
        "integers": pa.array([fragment, 7, fragment + 100]),
        "halves": pa.array(np.array([fragment + 0.5, 7, -1], np.float16)),
        "flags": pa.array([True, False, True]),
    }.get(kind, pa.array([b"", b"all", bytes([fragment])]))
    indices = np.arange(fragment, fragment + num_rows) * 7 % 3
    column = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int16(), mask=indices == fragment), values)
    if kind == "in lists":
        return pa.ListArray.from_arrays(pa.array(range(num_rows + 1), pa.int32()), column)
    return pa.StructArray.from_arrays([column], ["m"]) if kind == "in structs" else column


@pytest.mark.parametrize("num_rows", [3, 400], ids=["few rows", "many rows"])
@pytest.mark.parametrize("kind", ["texts", "integers", "halves", "flags", "bytes", "in lists", "in structs"])
def test_dictionaries_are_those_of_pylance(kind: str, num_rows: int, tmp_path: Path) -> None:
    """Tables are equal only where their dictionaries are, which the two libraries make of those of the fragments."""
    for fragment in range(3):
        lance.write_dataset(pa.table({"d": _dictionary(kind, fragment, num_rows)}), tmp_path, mode="append")
    ours, theirs, last = lance_io.dataset(tmp_path), lance.dataset(tmp_path), 3 * num_rows - 1
    for rows in ([0, last], [last, 0, num_rows, 0], range(0, last, 2), range(last), [1]):
        found, expected = ours.take(rows), theirs.take(rows)
        assert found == expected
        assert found["d"].num_chunks == expected["d"].num_chunks
    for columns in ({}, {"offset": 1, "limit": num_rows + 1}):
        assert ours.to_table(**columns) == theirs.to_table(**columns)
        assert ours.to_table(**columns)["d"].num_chunks == theirs.to_table(**columns)["d"].num_chunks
    assert ours.get_fragments()[1].take([0, 2]) == theirs.get_fragments()[1].take([0, 2])
    lance.write_dataset(theirs.scanner().to_reader(), tmp_path / "one")
    pages = [library.dataset(tmp_path / "one") for library in (lance_io, lance)]
    assert pages[0].to_table() == pages[1].to_table()
    assert pages[0].take([last, 1, num_rows]) == pages[1].take([last, 1, num_rows])


@pytest.mark.parametrize("num_files", [1, 4])
def test_files_of_which_the_manifest_does_not_say_how_long_they_are(tmp_path: Path, num_files: int) -> None:
    """As old releases wrote it: whoever opens one begins with its end."""

    def forget(manifest: table_pb2.Manifest) -> None:
        for fragment in manifest.fragments:
            for file in fragment.files:
                file.ClearField("file_size_bytes")

    table = pa.table({"a": range(1000), "s": [f"{number:x}" for number in range(1000)]})
    lance.write_dataset(table, tmp_path / "t.lance", max_rows_per_file=1000 // num_files)
    change_manifest(tmp_path / "t.lance", forget)
    found = lance_io.dataset(tmp_path / "t.lance")
    assert found.take([5, 700, 3]) == table.take([5, 700, 3])
    assert lance_io.dataset(tmp_path / "t.lance").to_table() == table
