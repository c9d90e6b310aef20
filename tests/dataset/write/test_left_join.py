"""Left joins (`merge`, `update_columns`) in memory and on local disk: the rows are those of pylance, and of a loop."""

from __future__ import annotations

import math
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import lance
import lance.arrow
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_io
import lance_io.arrow
from lance_io import AsyncDataset
from lance_io.changes.columns import left_join, sorted_values
from lance_io.changes.join import source_rows
from lance_io.changes.join.spilled_batches import SpilledBatches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
LIMIT = 16 * MIB  # the least that may be asked for
NUM_ROWS = 60_000
RANDOM = np.random.default_rng(22)


@pytest.fixture
def spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Rows of each batch that goes to local disk; what is written there is gone afterwards."""
    found: list[int] = []
    add = SpilledBatches.add
    monkeypatch.setattr(SpilledBatches, "add", lambda self, batch: (found.append(batch.num_rows), add(self, batch)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spill"))
    (tmp_path / "spill").mkdir()
    yield found
    assert list((tmp_path / "spill").iterdir()) == [], "a file of spilled rows stayed"


# -- against pylance -------------------------------------------------------------------------------------------------


def keys_of(kind: str, numbers: Any) -> pa.Array:
    """A key for each number, null for every 50th."""
    is_null = numbers % 50 == 0
    if kind == "float":
        values = numbers.astype("f8")
        values[numbers % 50 == 1], values[numbers % 50 == 2] = math.nan, -0.0
        return pa.array(values, mask=is_null, from_pandas=False)
    text = pa.array([None if number % 50 == 0 else f"key {number}" for number in numbers.tolist()])
    if kind == "text":
        return text
    if kind == "dictionary":
        return text.dictionary_encode()
    if kind == "struct":
        return pa.StructArray.from_arrays([pa.array(numbers // 7), text], ["n", "t"])
    return pa.array(numbers, mask=is_null)


def values_of(numbers: Any) -> dict[str, pa.Array]:
    """Columns of many kinds that depend on their row, some of them null."""
    texts = [f"{number % 90}" * 5 if number % 11 else None for number in numbers.tolist()]
    floats = np.arange(len(numbers) * 16, dtype=np.float32)
    return {
        "number": pa.array(numbers * 3, mask=numbers % 13 == 0),
        "text": pa.array(texts),
        "kind": pa.array(texts).dictionary_encode(),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(floats), 16),
        "pair": pa.StructArray.from_arrays([pa.array(numbers), pa.array(texts)], ["a", "b"]),
        "items": pa.array([list(range(number % 4)) for number in numbers.tolist()]),
        "half": lance_io.arrow.bfloat16_array((numbers % 100).tolist()),
    }


def tables(tmp_path: Path, kind: str, **options: Any) -> tuple[str, str]:
    """One table under two names: several fragments, of which one has deleted rows and one is gone."""
    numbers = RANDOM.permutation(NUM_ROWS)
    rows = pa.table({"key": keys_of(kind, numbers), "i": pa.array(np.arange(NUM_ROWS))})
    table = lance.write_dataset(rows, str(tmp_path / "theirs"), max_rows_per_file=17_000, **options)
    table.delete("i % 5 = 3 and i > 16000 or i >= 17000 and i < 34000 or i < 20")
    shutil.copytree(tmp_path / "theirs", tmp_path / "ours")
    return str(tmp_path / "theirs"), str(tmp_path / "ours")


def rows_of(uri: str, library: Any = lance) -> pa.Table:
    """The rows, dictionaries decoded: pylance's repeat their values."""
    table = library.dataset(uri).to_table()
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table[field.name].cast(field.type.value_type))
    return table


def right_side(kind: str) -> pa.Table:
    """Rows for two thirds of the keys, more rows for some of them, and for others; some keys are null."""
    numbers = np.concatenate([RANDOM.permutation(NUM_ROWS * 3 // 2)[:NUM_ROWS], RANDOM.integers(0, NUM_ROWS, 9000)])
    order = RANDOM.permutation(len(numbers))
    return pa.table({"k": keys_of(kind, numbers[order]), **values_of(order)})


def as_registered(dtype: pa.DataType) -> pa.DataType:
    """What comes back of a type that was written down."""
    return pa.ipc.read_schema(pa.schema([pa.field("x", dtype)]).serialize()).field("x").type


@pytest.fixture(params=[lance_io.arrow.BFloat16Type, lance.arrow.BFloat16Type], ids=["ours", "pylance's"])
def registered(request: pytest.FixtureRequest) -> Iterator[None]:
    """Which library's type of half floats comes back from local disk."""
    own = request.param()
    before = as_registered(own)
    if isinstance(before, pa.BaseExtensionType):
        pa.unregister_extension_type(own.extension_name)
    pa.register_extension_type(own)
    yield
    pa.unregister_extension_type(own.extension_name)
    if isinstance(before, pa.BaseExtensionType):
        pa.register_extension_type(before)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("kind", ["number", "float", "text", "dictionary", "struct"])
def test_a_join_that_does_not_fit_is_that_of_pylance(tmp_path: Path, kind: str, spilled: list[int]) -> None:
    theirs, ours = tables(tmp_path, kind)
    right = right_side(kind)
    lance.dataset(theirs).merge(right, "key", "k")
    lance_io.dataset(ours).merge(right.to_reader(max_chunksize=5000), "key", "k", memory_limit=LIMIT)
    assert sum(spilled) > len(right)
    expected = rows_of(theirs).drop_columns("key")  # in which no NaN is equal to another one
    assert expected["number"].null_count < len(expected) > NUM_ROWS // 2
    assert rows_of(ours).drop_columns("key").equals(expected)
    assert rows_of(ours, lance_io).drop_columns(["key", "half"]).equals(expected.drop_columns("half"))


@pytest.mark.parametrize("kind", ["number", "text"])
def test_keys_that_do_not_fit_go_in_partitions(tmp_path: Path, kind: str, spilled: list[int]) -> None:
    theirs, ours = tables(tmp_path, kind)
    numbers = RANDOM.permutation(400_000)
    right = pa.table({"k": keys_of(kind, numbers), "c": numbers})
    lance.dataset(theirs).merge(right, "key", "k")
    lance_io.dataset(ours).merge(right, "key", "k", memory_limit=LIMIT)
    assert sum(spilled) > 300_000, "keys of the right side"
    assert rows_of(ours).equals(rows_of(theirs))


@pytest.mark.parametrize("key", ["_rowid", "_rowaddr"])
def test_a_join_by_row_ids_that_does_not_fit(tmp_path: Path, key: str, spilled: list[int]) -> None:
    theirs, ours = tables(tmp_path, "number", enable_stable_row_ids=True)
    ids = lance.dataset(theirs).scanner(columns=[], with_row_id=True, with_row_address=True).to_table()[key]
    right = pa.table({"k": ids, **values_of(np.arange(len(ids)))}).take(RANDOM.permutation(len(ids)))
    lance.dataset(theirs).merge(right, key, "k")
    lance_io.dataset(ours).merge(right.to_reader(), key, "k", memory_limit=LIMIT)
    assert spilled
    assert rows_of(ours).equals(rows_of(theirs))


def test_a_join_of_one_fragment_that_does_not_fit(tmp_path: Path, spilled: list[int]) -> None:
    theirs, ours = tables(tmp_path, "text")
    right = right_side("text")
    for library, uri in ((lance, theirs), (lance_io, ours)):
        table = library.dataset(uri)
        fragments = table.get_fragments()
        more = {"memory_limit": LIMIT} if library is lance_io else {}
        changed, schema = fragments[1].merge(right.to_reader(), "key", "k", **more)
        others = [one.metadata for one in fragments if one.fragment_id != changed.id]
        operation = library.LanceOperation.Merge([*others, changed], schema)
        library.LanceDataset.commit(uri, operation, read_version=table.version)
    assert spilled
    assert rows_of(ours).equals(rows_of(theirs))


async def test_the_asynchronous_method_spills_too(tmp_path: Path, spilled: list[int]) -> None:
    theirs, ours = tables(tmp_path, "text")
    right = right_side("text")

    async def batches() -> Any:
        for batch in right.to_batches(4000):
            yield batch

    await (await AsyncDataset.open(ours)).merge(batches(), "key", "k", right.schema, memory_limit=LIMIT)
    assert spilled
    lance.dataset(theirs).merge(right, "key", "k")
    assert rows_of(ours).equals(rows_of(theirs))


@pytest.mark.usefixtures("registered")
def test_columns_are_updated_by_rows_that_do_not_fit(tmp_path: Path, spilled: list[int]) -> None:
    rows = pa.table({"key": RANDOM.permutation(NUM_ROWS), **values_of(np.arange(NUM_ROWS))})
    right = pa.table({"key": RANDOM.permutation(2 * NUM_ROWS)[:NUM_ROWS], **values_of(RANDOM.permutation(NUM_ROWS))})
    found = []
    for library, name in ((lance, "theirs"), (lance_io, "ours")):
        uri = str(tmp_path / name)
        table = library.write_dataset(rows, uri, max_rows_per_file=25_000)
        given_rows = {"memory_limit": LIMIT, "data_obj": right.to_reader()} if name == "ours" else {"data_obj": right}
        fragment, ids, offsets = table.get_fragments()[1].update_columns(left_on="key", with_offsets=True, **given_rows)
        change = library.LanceOperation.Update(
            updated_fragments=[fragment],
            fields_modified=ids,
            update_mode="rewrite_columns",
            updated_fragment_offsets={1: offsets},
        )
        library.LanceDataset.commit(uri, change, read_version=1)
        found.append((sorted(ids), offsets, rows_of(uri)))
    assert spilled
    assert found[0] == found[1]


def test_nans_are_told_apart_by_their_bits(tmp_path: Path) -> None:
    bits = np.array([0x7FF8 << 48, (0x7FF8 << 48) + 1, 0xFFF8 << 48, 0], np.uint64)
    rows = pa.table({"a": pa.array(bits.view("f8"), from_pandas=False)})
    right = pa.table({"a": pa.array(bits[1:].view("f8"), from_pandas=False), "c": [1, 2, 3]})
    for library, name in ((lance, "theirs"), (lance_io, "ours")):
        library.write_dataset(rows, str(tmp_path / name)).merge(right, "a")
    found = [lance.dataset(str(tmp_path / name)).to_table()["c"].to_pylist() for name in ("theirs", "ours")]
    assert found == [[None, 1, 2, 3]] * 2


def test_a_join_that_fails_leaves_nothing(tmp_path: Path, spilled: list[int]) -> None:
    _, ours = tables(tmp_path, "number")
    right = right_side("number")
    right = right.set_column(1, "number", pa.array(np.arange(len(right))))
    strict = pa.schema([field.with_nullable(field.name != "number") for field in right.schema])
    before = set((tmp_path / "ours" / "data").iterdir())
    with pytest.raises(OSError, match="non-nullable"):
        lance_io.dataset(ours).merge(iter(right.to_batches()), "key", "k", strict, memory_limit=LIMIT)
    assert spilled and set((tmp_path / "ours" / "data").iterdir()) == before

    def broken() -> Any:
        yield from right.to_batches(9000)
        raise RuntimeError("no more rows")

    with pytest.raises(RuntimeError, match="no more rows"):
        lance_io.dataset(ours).merge(broken(), "key", "k", right.schema, memory_limit=LIMIT)
    assert set((tmp_path / "ours" / "data").iterdir()) == before


# -- against a loop --------------------------------------------------------------------------------------------------

KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "number": (pa.int32(), st.integers(-3, 3)),
    "text": (pa.string(), st.sampled_from(["", "a", "aa", "b"])),
    "list": (pa.list_(pa.int8()), st.lists(st.integers(0, 1), max_size=2)),
    "nothing": (pa.null(), st.none()),
}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    dtype, keys = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    left = draw(st.lists(st.none() | keys, min_size=1, max_size=25))
    return {
        "type": dtype,
        "left": left,
        "deleted": draw(st.sets(st.integers(0, len(left) - 1), max_size=len(left) - 1)),
        "right": draw(st.lists(st.tuples(st.none() | keys, st.none() | st.integers(0, 99)), min_size=1, max_size=25)),
        "batch": draw(st.integers(1, 5)),
        "tables": draw(st.sampled_from([1, 3])),
        "held": draw(st.booleans()),
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_random_joins_are_those_of_a_loop(case: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(left_join, "planned_tables", lambda *_: case["tables"])
        patch.setattr(left_join, "HELD_SHARE", 1 if case["held"] else 1 << 40)
        patch.setattr(source_rows, "PIECE_ROWS", case["batch"])
        patch.setattr(source_rows, "_JOINED_ROWS", 0)
        patch.setattr(sorted_values, "BATCH_ROWS", case["batch"])
        patch.setattr(sorted_values, "BUCKETS_SHARE", 1 << 24)  # of 512 MiB
        left = pa.table({"k": pa.array(case["left"], case["type"]), "i": range(len(case["left"]))})
        table = lance_io.write_dataset(left, folder + "/t", max_rows_per_file=6)
        if case["deleted"]:
            table.delete(f"i in ({', '.join(map(str, case['deleted']))})")
        keys, values = zip(*case["right"], strict=True)
        right = pa.table({"k": pa.array(keys, case["type"]), "v": pa.array(values, pa.int64())})
        table.merge(right.to_reader(max_chunksize=case["batch"]), "k")
        found = table.to_table(columns=["i", "v"]).to_pylist()
    last = {repr(key): value for key, value in case["right"]}
    kept = [place for place in range(len(case["left"])) if place not in case["deleted"]]
    assert found == [{"i": place, "v": last.get(repr(case["left"][place]))} for place in kept]
