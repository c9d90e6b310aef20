"""Single items of lists: `take_items` and `l[18]` in takes give what whole rows hold, and read little of them.

The reference is the whole table, indexed in Python.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lance_io
from lance_io import AsyncDataset
from lance_io.encodings.v2_1 import fullzip
from lance_io.errors import BindError, FormatError, LanceError, UnsupportedError, UsageError
from tests.encodings.test_random_types import (
    EXAMPLES,
    ODDS,
    Odds,
    failed_inside_pylance,
    lists_of_struct_vectors,
    make_table,
    named,
    run_examples,
    types,
)
from tests.file.test_rounds import Bench, Lap, ranges_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from lance_io.store.counters import StatsSnapshot

VERSIONS = ["0.1", "2.0", "2.1", "2.2"]
STRUCTS = pa.struct([("a", pa.int32()), ("b", pa.string())])
ITEMS = {
    "numbers": pa.int64(),
    "flags": pa.bool_(),
    "texts": pa.string(),
    "words": pa.dictionary(pa.int32(), pa.string()),
    "structs": STRUCTS,
    "vectors": pa.list_(pa.float32(), 4),
    "wide vectors": pa.list_(pa.float32(), 100),  # full-zip
    "lists": pa.list_(pa.int16()),
}
SMALL_CHUNKS = {"lance-encoding:minichunk-size": "128"}


def drawn(dice: random.Random, dtype: pa.DataType) -> Any:
    """A value, null now and then."""
    if dice.random() < 0.15:
        return None
    if pa.types.is_struct(dtype):
        return {member.name: drawn(dice, member.type) for member in dtype}
    if pa.types.is_fixed_size_list(dtype):
        return [drawn(dice, dtype.value_type) for _ in range(dtype.list_size)]
    if pa.types.is_list(dtype):
        return [drawn(dice, dtype.value_type) for _ in range(dice.randrange(4))]
    if pa.types.is_boolean(dtype):
        return dice.random() < 0.5
    if pa.types.is_floating(dtype):
        return float(dice.randrange(100))
    return dice.randrange(10_000) if pa.types.is_integer(dtype) else str(dice.randrange(40)) * dice.randrange(6)


def lists_of(dtype: pa.DataType, num_rows: int, longest: int, *, has_null_structs: bool = True) -> list[Any]:
    """Lists of all lengths, null and empty ones, several chunks long and several in a chunk."""
    dice = random.Random(str(dtype))
    found: list[Any] = []
    for _ in range(num_rows):
        length = dice.choice([-1, 0, 0, 1, 2, 7, longest // 9, longest])
        found.append(None if length < 0 else [drawn(dice, dtype) for _ in range(length)])
    if not has_null_structs and pa.types.is_struct(dtype):
        return [row and [one or {"a": None, "b": None} for one in row] for row in found]
    return found


def written(path: Path, table: pa.Table, version: str, by: ModuleType = lance_io, **how: Any) -> str:
    uri = str(path / "t.lance")
    by.write_dataset(table, uri, data_storage_version="legacy" if version == "0.1" else version, **how)
    return uri


def item_of(rows: list[Any], row: int, item: int) -> Any:
    """What a row holds there, as the calls answer."""
    of_row = rows[row]
    return of_row[item] if of_row is not None and 0 <= item < len(of_row) else None


@pytest.mark.filterwarnings("ignore:files of version 0.1 hold no nulls")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ITEMS)
def test_every_item(tmp_path: Path, kind: str, version: str) -> None:
    dtype = ITEMS[kind]
    rows = lists_of(dtype, 24, 40 if pa.types.is_nested(dtype) else 150, has_null_structs=version > "2.0")
    item = pa.field("item", dtype, metadata=SMALL_CHUNKS)
    narrow, wide = pa.array(rows, pa.list_(item)), pa.array(rows, pa.large_list(item))
    members = [pa.field("l", wide.type), pa.field("k", pa.int32())]
    structs = pa.StructArray.from_arrays([wide, pa.array(range(24), pa.int32())], fields=members)
    table = pa.table({"id": range(24), "l": narrow, "s": structs})
    uri = written(tmp_path, table, version, max_rows_per_file=13)
    for by in (lance_io, lance):
        if by is lance:
            uri = written(tmp_path / "peer", table.select(["l", "s"]), version, lance, max_rows_per_file=13)
        dataset = lance_io.dataset(uri)
        if version == "0.1":  # which has no nulls
            rows = dataset.to_table()["l"].to_pylist()
        pairs = [(row, item) for row in range(24) for item in range(len(rows[row] or ()) + 2)]
        random.Random(3).shuffle(pairs)
        for column in ("l", "s.l"):
            found = dataset.take_items(column, pairs)
            assert found.type == dtype
            assert found.to_pylist() == [item_of(rows, *pair) for pair in pairs]
            found.validate(full=True)
        picks = [5, 20, 5, 0, 23, 11, 12, 13]
        for number, whole in itertools.product((0, 1, 2, 23, 400), (False, True)):
            columns = {"x": f"l[{number}]", "y": f"s.l[{number}]"} | ({"all": "l"} if whole else {})
            got = dataset.take(picks, columns)
            expected = [item_of(rows, row, number - 1) for row in picks]
            assert got["x"].to_pylist() == got["y"].to_pylist() == expected, (number, whole)
            assert got.schema == dataset.to_table(columns=columns, limit=1).schema


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_every_item_of_entries_of_one_width(tmp_path: Path, version: str, nulls: float, monkeypatch: Any) -> None:
    dice = random.Random(7)
    rows = [
        None if nulls and dice.random() < nulls else [None if dice.random() < nulls else dice.randrange(99)] * length
        for length in (1, 3, 0, 40, 1, 1, 0, 17, 2)
    ]
    kind = pa.field("l", pa.list_(pa.int64()), metadata={"lance-encoding:structural-encoding": "fullzip"})
    uri = written(tmp_path, pa.table([pa.array(rows, kind.type)], schema=pa.schema([kind])), version)
    pairs = [(row, item) for row in range(len(rows)) for item in range(42)]
    expected = [item_of(rows, *pair) for pair in pairs]
    assert lance_io.dataset(uri).take_items("l", pairs).to_pylist() == expected
    monkeypatch.setattr(fullzip, "REPETITION_INDEX_KEPT_BYTES_MAX", 0)  # read by entry
    assert lance_io.dataset(uri).take_items("l", pairs).to_pylist() == expected


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_chunks_of_as_many_items_as_there_can_be(tmp_path: Path, version: str) -> None:
    dice = np.random.default_rng(2)
    flags = pa.array(dice.random(150_000) < 0.5, mask=dice.random(150_000) < 0.3)
    lists = pa.ListArray.from_arrays(pa.array([0, 5, 5, 90_000, 150_000], pa.int32()), flags)
    item = pa.field("item", pa.bool_(), metadata={"lance-encoding:minichunk-size": "32000"})
    uri = written(tmp_path, pa.table({"l": lists.cast(pa.list_(item))}), version)
    pairs = [(row, number) for row in range(4) for number in (0, 4, 32_763, 32_764, 59_999, 60_000, 89_994)]
    assert lance_io.dataset(uri).take_items("l", pairs).to_pylist() == [item_of(lists.to_pylist(), *p) for p in pairs]


LISTS = st.sampled_from(["2.1", "2.2"]).flatmap(
    lambda version: st.tuples(
        st.just(version),
        named("item", st.integers(0, 2).flatmap(lambda depth: types(depth, version))),
        st.sampled_from([pa.list_, pa.large_list]),
    )
)


@settings(run_examples, max_examples=max(1, EXAMPLES // 2))
@given(LISTS, ODDS, st.booleans())
def test_items_of_random_types(drawn_type: Any, odds: Odds, by_pylance: bool) -> None:
    version, item, kind = drawn_type
    assume(not lists_of_struct_vectors(kind(item)))
    table = make_table([pa.field("l", kind(item)), pa.field("s", pa.struct([pa.field("l", kind(item))]))], odds, 40)
    with tempfile.TemporaryDirectory() as folder:
        try:
            uri = written(Path(folder), table, version, lance if by_pylance else lance_io)
            rows = lance_io.dataset(uri).to_table()
        except BaseException as error:
            assume(not isinstance(error, UnsupportedError))  # what neither writes
            assume(not (by_pylance and failed_inside_pylance(error)))
            raise
        structs = [row and row["l"] for row in rows["s"].to_pylist()]
        for column, lists in (("l", rows["l"].to_pylist()), ("s.l", structs)):
            pairs = [(row, number) for row in range(len(lists)) for number in {0, 1, len(lists[row] or ()) // 2, 29}]
            found = lance_io.dataset(uri).take_items(column, pairs)
            found.validate(full=True)
            assert repr(found.to_pylist()) == repr([item_of(lists, *pair) for pair in pairs])  # NaN equals itself so


# -- expressions -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Lists in three fragments, with deleted rows and stable row ids."""
    rows = lists_of(pa.int64(), 60, 300)
    table = pa.table({"id": range(60), "l": pa.array(rows), "v": pa.array([[i, i + 1] for i in range(60)], ITEMS_OF_2)})
    uri = written(tmp_path_factory.mktemp("mixed"), table, "2.2", max_rows_per_file=20, enable_stable_row_ids=True)
    lance_io.dataset(uri).delete("id % 7 = 3")
    return uri


ITEMS_OF_2 = pa.list_(pa.int64(), 2)
EXPRESSIONS: list[dict[str, str]] = [
    {"x": "l[2]"},
    {"x": "l[2]", "id": "id"},
    {"x": "l[2]", "y": "l[150]", "again": "l[2]", "v": "v"},
    {"x": "coalesce(l[300], l[1] * 2, -1)", "z": "l[0]"},
    {"x": "nvl2(l[1], l[2], l[3])"},
    {"x": "l[1] in (l[2], 7) or l[1] is null"},
    {"x": "cast(l[3] as string)", "y": "array_element(l, 30)"},
    {"x": "l[-1]", "y": "l[1]"},
    {"x": "array_length(l)", "y": "l[1]"},
    {"x": "l[id]", "y": "l[1]"},
    {"x": "l[1]", "l": "l"},
    {"x": "v[1]", "y": "v[3]", "z": "l[1]"},
    {"x": "l[3 - 1]", "y": "l[null]", "z": "l[9223372036854775807]"},
]


@pytest.mark.parametrize("columns", EXPRESSIONS, ids=lambda columns: "; ".join(columns.values()))
def test_expressions_in_takes_equal_those_of_scans(mixed: str, columns: dict[str, str]) -> None:
    dataset = lance_io.dataset(mixed)
    picks = [3, 40, 3, 17, 50, 0, 22, 23]
    expected = dataset.to_table(columns=columns).take(picks)
    for got in (dataset.take(picks, columns), dataset.take(picks, columns)):
        assert got.combine_chunks().equals(expected.combine_chunks())
    by_id = dataset.to_table(columns=["_rowid"])["_rowid"].take(picks).to_pylist()
    assert dataset._take_rows(by_id, columns).combine_chunks().equals(expected.combine_chunks())
    assert dataset.take(picks, {"id": "_rowid + 0"} | columns).column_names == list({"id": 0} | columns)
    fragment = dataset.get_fragments()[1]
    assert fragment.take([1, 5], columns).equals(fragment.to_table(columns=columns).take([1, 5]))


def test_pairs_count_rows_that_are_left(mixed: str) -> None:
    dataset = lance_io.dataset(mixed)
    table = dataset.to_table().to_pydict()
    pairs = [(row, item) for row in (0, 50, 17, 18, 19, 3, 40, 3) for item in (0, 1, 299, 300, 1 << 62)]
    for column in ("l", "v"):
        expected = [item_of(table[column], *pair) for pair in pairs]
        assert dataset.take_items(column, pairs).to_pylist() == expected
        assert dataset.take_items(column, np.array(pairs)).to_pylist() == expected
        assert dataset.take_items(column, []).type == pa.int64()

    async def main() -> list[Any]:
        opened = await AsyncDataset.open(mixed)
        found = await opened.take_items("l", pairs)
        taken = await opened.take([7, 30], {"x": "l[3]"})
        return [found.to_pylist(), taken["x"].to_pylist()]

    expected = [item_of(table["l"], *pair) for pair in pairs]
    assert asyncio.run(main()) == [expected, [item_of(table["l"], row, 2) for row in (7, 30)]]


def test_what_is_refused(mixed: str) -> None:
    dataset = lance_io.dataset(mixed)
    wrong: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (OSError, "row 51", lambda: dataset.take_items("l", [(0, 0), (51, 0)])),
        (OverflowError, "negative", lambda: dataset.take_items("l", [(-1, 0)])),
        (OverflowError, "negative", lambda: dataset.take_items("l", [(0, -1)])),
        (BindError, "No field named k", lambda: dataset.take_items("k", [(0, 0)])),
        (UsageError, "'id' is a int64", lambda: dataset.take_items("id", [(0, 0)])),
        (TypeError, "pairs", lambda: dataset.take_items("l", [5])),
        (TypeError, r"shape \(3,\)", lambda: dataset.take_items("l", np.arange(3))),
        (TypeError, "names must be strings", lambda: dataset.take_items(["l"], [(0, 0)])),
        (TypeError, "float", lambda: dataset.take_items("l", [(0, 1.5)])),
    ]
    for kind, text, call in wrong:
        with pytest.raises(kind, match=text):
            call()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_changed_schemas(tmp_path: Path, version: str) -> None:
    numbers = lists_of(pa.int64(), 20, 100)
    structs = lists_of(STRUCTS, 20, 40, has_null_structs=False)
    uri = written(tmp_path, pa.table({"id": range(20), "l": pa.array(numbers)}), version)
    dataset = lance_io.dataset(uri)
    kind = pa.list_(STRUCTS)
    dataset.add_columns(pa.field("n", kind))  # in no file yet
    more = pa.table({"id": range(20), "l": pa.array(numbers), "n": pa.array(structs, kind)})
    dataset = lance_io.write_dataset(more, uri, mode="append")
    dataset.alter_columns({"path": "l", "name": "renamed"})
    dataset.add_columns({"m": "renamed"})  # in files of its own
    pairs = [(row, item) for row in range(40) for item in (0, 1, 30, 99, 100)]
    table = dataset.to_table().to_pydict()
    for column in ("renamed", "n", "m"):
        expected = [item_of(table[column], *pair) for pair in pairs]
        assert dataset.take_items(column, pairs).to_pylist() == expected
    picks = [1, 25, 39, 25]
    got = dataset.take(picks, {"x": "n[2]", "y": "n[2].b", "z": "renamed[2]"}).to_pydict()
    assert got["x"] == [item_of(table["n"], row, 1) for row in picks]
    assert got["y"] == [one and one["b"] for one in got["x"]]
    assert got["z"] == [item_of(table["renamed"], row, 1) for row in picks]


# -- requests and bytes ----------------------------------------------------------------------------------------------

LENGTH = 200_000
NUMBERS = np.random.default_rng(0).integers(0, 1 << 62, 6 * LENGTH)
BYTES = {"2.0": 8, "2.1": 8216, "2.2": 8216, "full-zip": 9}  # of a number, of a chunk with its levels, of an entry
INDEX_BYTES = {"2.0": 48, "2.1": 18_000, "2.2": 21_000, "full-zip": 64}  # at most


def numbers_table(path: Path, version: str) -> str:
    metadata = {"lance-encoding:structural-encoding": "fullzip"} if version == "full-zip" else None
    kind = pa.field("l", pa.list_(pa.int64()), metadata=metadata)
    lists = pa.ListArray.from_arrays(np.arange(7, dtype=np.int32) * LENGTH, pa.array(NUMBERS))
    table = pa.table([lists, pa.array(range(6))], schema=pa.schema([kind, pa.field("id", pa.int64())]))
    return written(path, table, "2.1" if version == "full-zip" else version)


def spent(dataset: lance_io.LanceDataset, call: Callable[[], Any]) -> tuple[int, int, Any]:
    """Requests, bytes and the answer."""
    stats = dataset._state.location.store.stats
    before: StatsSnapshot = stats.snapshot()
    found = call()
    after = stats.snapshot() - before
    return after["get"].requests, after["get"].num_bytes, found


@pytest.mark.parametrize("version", BYTES)
def test_an_item_is_read_without_its_list(tmp_path: Path, version: str) -> None:
    uri = numbers_table(tmp_path, version)
    dataset = lance_io.dataset(uri)
    dataset.warm(["l"])
    chunk_bytes = BYTES[version]
    for row, item in ((3, 17), (5, LENGTH - 1), (0, 0), (2, 123_456)):
        expected = [NUMBERS[row * LENGTH + item]]
        requests, num_bytes, found = spent(dataset, lambda: dataset.take_items("l", [(row, item)]))  # noqa: B023
        assert (requests, found.to_pylist()) == (1, expected) and num_bytes <= chunk_bytes
        columns = {"x": f"l[{item + 1}]"}
        requests, num_bytes, taken = spent(dataset, lambda: dataset.take([row], columns))  # noqa: B023
        assert (requests, taken["x"].to_pylist()) == (1, expected) and num_bytes <= chunk_bytes
    far = [(row, row * 30_000) for row in range(6)]
    requests, num_bytes, found = spent(dataset, lambda: dataset.take_items("l", far))
    assert requests == 6 and num_bytes <= 6 * chunk_bytes
    assert found.to_pylist() == [NUMBERS[row * LENGTH + item] for row, item in far]
    # behind the end nothing is read, unless the chunk must tell where the list ends
    assert spent(dataset, lambda: dataset.take_items("l", [(1, 2 * LENGTH)]))[0] == 0
    assert spent(dataset, lambda: dataset.take([1], {"x": "l[0]"}))[0] == 0
    assert spent(dataset, lambda: dataset.take([1], ["l"]))[1] > 1_000_000
    assert dataset.take_items("l", far).to_pylist() == found.to_pylist(), (
        "with what takes of rows have left in the cache"
    )


@pytest.mark.parametrize("version", BYTES)
def test_rounds_on_a_bucket(tmp_path: Path, version: str) -> None:
    root = numbers_table(tmp_path, version)
    files = (path for path in (tmp_path / "t.lance").rglob("*") if path.is_file())
    bench = Bench({f"t/{path.relative_to(root)}": path.read_bytes() for path in files})
    expected = [NUMBERS[4 * LENGTH + 99_999]]

    async def work(lap: Lap) -> None:
        dataset = await AsyncDataset.open("t", session=bench.session)
        lap()
        for is_warm in (False, True):
            found = await dataset.take_items("l", [(4, 99_999)])
            assert found.to_pylist() == expected
            rounds, log = lap()
            num_bytes = sum(end - start for _, start, end in ranges_of(log) if start >= 0)
            if is_warm:
                assert (rounds, len(log)) == (1, 1) and num_bytes <= BYTES[version]
            else:
                assert rounds <= 3 and num_bytes <= 65_536 + INDEX_BYTES[version] + BYTES[version]  # and the file's end
        taken = await dataset.take([4], {"x": "l[100000]", "id": "id"})
        assert taken["x"].to_pylist() == expected
        await dataset.take([4], {"x": "l[100000]", "id": "id"})
        lap()
        taken = await dataset.take([4], {"x": "l[100000]", "id": "id"})
        rounds, log = lap()
        assert (rounds, len(log)) == (1, 2), "the same round as other columns"

    bench.run(work)


# -- damaged pages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_an_index_that_contradicts_the_chunks(tmp_path: Path, version: str) -> None:
    rows = [[1, 2], list(range(3000)), [7] * 2000]
    uri = written(tmp_path, pa.table({"l": pa.array(rows, pa.list_(pa.int64()))}), version)
    (file,) = (tmp_path / "t.lance" / "data").iterdir()
    data = file.read_bytes()
    index = np.array([[1, 1022], [0, 1024]], "<u8").tobytes()
    at = data.find(index)
    assert at > 0 and data.count(index) == 1, "of the second row 1022 levels are in the first chunk, then 1024"
    for wrong in ([[1, 1021], [0, 1024]], [[1, 1025], [0, 1024]], [[1, 1022], [0, 1023]]):
        file.write_bytes(data[:at] + np.array(wrong, "<u8").tobytes() + data[at + len(index) :])
        with pytest.raises(FormatError, match="chunk 0"):
            lance_io.dataset(uri, session=lance_io.Session()).take_items("l", [(1, 5)])


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "full-zip"])
def test_damage_is_told_as_damage(tmp_path: Path, version: str) -> None:
    metadata = {"lance-encoding:structural-encoding": "fullzip"} if version == "full-zip" else None
    kind = pa.field("l", pa.list_(pa.field("item", pa.int16(), metadata=SMALL_CHUNKS)), metadata=metadata)
    table = pa.table([pa.array(lists_of(pa.int16(), 20, 90), kind.type)], schema=pa.schema([kind]))
    uri = written(tmp_path, table, "2.1" if version == "full-zip" else version)
    (file,) = (tmp_path / "t.lance" / "data").iterdir()
    data, dice = file.read_bytes(), random.Random(11)
    pairs = [(row, item) for row in range(20) for item in (0, 1, 7, 60, 89)]
    num_refused = 0
    for _ in range(60):
        changed = bytearray(data)
        for _ in range(dice.randrange(1, 4)):
            changed[dice.randrange(len(data))] = dice.randrange(256)
        file.write_bytes(changed)
        try:
            found = lance_io.dataset(uri, session=lance_io.Session()).take_items("l", pairs)
            assert len(found) == len(pairs)
        except LanceError:
            num_refused += 1
    assert num_refused > 10
