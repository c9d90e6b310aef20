"""Random nested types with random field options: what pylance wrote, read by scan, by range and by row.

A column's type, its nulls and empties, the shape of its values and its encoding options are drawn by Hypothesis; the
values come from a seed. `LANCE_IO_RANDOM_TYPES` sets the number of examples.
"""

from __future__ import annotations

import datetime
import decimal
import os
import random
import string
import tempfile
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import lance_io
from lance_io.errors import UnsupportedError
from lance_io.file.open.leaf_projection import Projection
from lance_io.format.schema_messages import decode_schema
from lance_io.levels.portable import compact
from lance_io.proto import file_pb2
from tests.encodings.harness import Opened, peer_table, storage, write

EXAMPLES = int(os.environ.get("LANCE_IO_RANDOM_TYPES", "40"))
run_examples = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="LANCE_IO_RANDOM_TYPES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)

# -- types -----------------------------------------------------------------------------------------------------------

NUMBERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
LEAVES = st.sampled_from(
    [
        *NUMBERS,
        pa.bool_(),
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.binary(5),
        pa.timestamp("us", "UTC"),
        pa.timestamp("s"),
        pa.date32(),
        pa.time64("us"),
        pa.decimal128(20, 3),
        pa.null(),
    ]
)
SMALL_LEAVES = st.sampled_from([*NUMBERS, pa.bool_(), pa.float32(), pa.float64()])
VECTORS = st.builds(lambda item, size: pa.list_(item, size), SMALL_LEAVES, st.sampled_from([1, 3, 9]))
VECTORS_OF_VECTORS = st.builds(lambda item, size: pa.list_(item, size), VECTORS, st.sampled_from([1, 2, 5]))

COMPRESSION = [{}, {}, {}] + [{"lance-encoding:compression": scheme} for scheme in ("none", "lz4", "zstd", "fsst")]
LAYOUT = [{}, {}, {}] + [{"lance-encoding:structural-encoding": kind} for kind in ("miniblock", "fullzip")]
OTHER = [
    *({} for _ in range(4)),
    {"lance-encoding:bss": "on"},
    {"lance-encoding:rle-threshold": "0.99"},
    {"lance-encoding:dict-divisor": "1000"},
    {"lance-encoding:minichunk-size": "512"},
]
OPTIONS = st.builds(
    lambda *parts: {key: value for part in parts for key, value in part.items()} or None,
    st.sampled_from(COMPRESSION),
    st.sampled_from(LAYOUT),
    st.sampled_from(OTHER),
)


def named(name: str, dtypes: st.SearchStrategy[pa.DataType], *, nullable: bool = True) -> st.SearchStrategy[pa.Field]:
    """A field; options of the encoder sit on leaves, structs may be packed."""

    def build(dtype: pa.DataType, metadata: dict[str, str] | None, packed: bool) -> pa.Field:
        if pa.types.is_struct(dtype):
            metadata = {"packed": "true"} if packed else None
        elif pa.types.is_nested(dtype) and not pa.types.is_fixed_size_list(dtype):
            metadata = None
        return pa.field(name, dtype, nullable=nullable, metadata=metadata)

    return st.builds(build, dtypes, OPTIONS, st.integers(0, 5).map(lambda n: n == 0))


def types(depth: int, version: str) -> st.SearchStrategy[pa.DataType]:
    """Types nested up to `depth` levels above the leaves."""
    leaf = st.one_of(LEAVES, LEAVES, VECTORS, VECTORS_OF_VECTORS)
    if depth == 0:
        return leaf
    below = types(depth - 1, version)
    nested = [
        st.integers(1, 3).flatmap(lambda n: st.tuples(*(named(f"m{i}", below) for i in range(n)))).map(pa.struct),
        named("item", below).map(pa.list_),
        named("item", below).map(pa.large_list),
    ]
    if version == "2.2":
        nested.append(st.builds(lambda item: pa.map_(pa.string(), item), named("value", below)))
        plain = st.lists(LEAVES, min_size=1, max_size=2)
        members = plain.map(lambda kinds: pa.struct([pa.field(f"m{i}", kind) for i, kind in enumerate(kinds)]))
        nested.append(st.builds(lambda item, size: pa.list_(item, size), members, st.sampled_from([1, 3])))
    return st.one_of(leaf, *nested, *nested)


# -- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Odds:
    """How rows look: shares of nulls and empty lists, the longest list, what leaf values are like."""

    null: float
    empty: float
    items_max: int
    style: str
    seed: int


ODDS = st.builds(
    Odds,
    st.sampled_from([0, 0, 0.1, 0.4, 1]),
    st.sampled_from([0, 0.1, 0.4, 1]),
    st.sampled_from([1, 3, 3, 30]),
    st.sampled_from(["wild", "small", "few", "constant", "runs", "long"]),
    st.integers(0, 1 << 30),
)


class Values:
    """Rows of any type."""

    def __init__(self, odds: Odds) -> None:
        self.odds = odds
        self.dice = random.Random(odds.seed)
        self.kept: dict[str, list] = {}

    def rows(self, dtype: pa.DataType, count: int) -> pa.Array:
        return pa.array([self.value(dtype) for _ in range(count)], dtype)

    def value(self, dtype: pa.DataType, nullable: bool = True):
        dice, odds = self.dice, self.odds
        if nullable and dice.random() < odds.null:
            return None
        if pa.types.is_struct(dtype):
            return {dtype.field(i).name: self.value(dtype.field(i).type) for i in range(dtype.num_fields)}
        if pa.types.is_fixed_size_list(dtype):
            has_null_items = odds.null and not pa.types.is_struct(dtype.value_type)
            return [self.value(dtype.value_type, has_null_items) for _ in range(dtype.list_size)]
        if pa.types.is_map(dtype):
            return [(f"k{i}", self.value(dtype.item_type)) for i in range(self.length())]
        if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
            return [self.value(dtype.value_type) for _ in range(self.length())]
        return self.leaf(dtype)

    def length(self) -> int:
        return 0 if self.dice.random() < self.odds.empty else self.dice.randint(1, self.odds.items_max)

    def leaf(self, dtype: pa.DataType):
        """Repeats earlier values as the style says."""
        kept = self.kept.setdefault(str(dtype), [])
        limit = {"few": 7, "constant": 1}.get(self.odds.style)
        if limit is not None and len(kept) >= limit:
            return self.dice.choice(kept)
        if self.odds.style == "runs" and kept and self.dice.random() < 0.97:
            return kept[-1]
        kept.append(self.fresh(dtype))
        return kept[-1]

    def fresh(self, dtype: pa.DataType):
        dice, small = self.dice, self.odds.style == "small"
        if pa.types.is_integer(dtype):
            info = np.iinfo(dtype.to_pandas_dtype())
            return dice.randint(0, 12) if small else dice.randint(info.min, info.max)
        if pa.types.is_boolean(dtype):
            return dice.random() < 0.5
        if pa.types.is_floating(dtype):
            return float(np.dtype(dtype.to_pandas_dtype()).type(dice.gauss(0, 100)))
        if pa.types.is_timestamp(dtype):
            return datetime.datetime.fromtimestamp(dice.randint(0, 1 << 31), datetime.UTC).replace(
                tzinfo=datetime.UTC if dtype.tz else None
            )
        if pa.types.is_date(dtype):
            return datetime.date.fromordinal(dice.randint(1, 3_000_000))
        if pa.types.is_time(dtype):
            return datetime.time(dice.randrange(24), dice.randrange(60), dice.randrange(60), dice.randrange(10**6))
        if pa.types.is_decimal(dtype):
            return decimal.Decimal(dice.randrange(10**12)).scaleb(-3)
        if pa.types.is_null(dtype):
            return None
        if pa.types.is_fixed_size_binary(dtype):
            return dice.randbytes(dtype.byte_width)
        size = dice.randint(200, 700) if self.odds.style == "long" else dice.randint(0, 3 if small else 30)
        if pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype):
            return dice.randbytes(size)
        return "".join(dice.choices(string.ascii_lowercase[:6] + " ", k=size))


# -- reading ----------------------------------------------------------------------------------------------------------


def failed_inside_pylance(error: BaseException) -> bool:
    """Whether pylance gave up on its own: it panics or refuses in some corners of both reader and writer."""
    return type(error).__name__ in ("PanicException", "OSError", "ValueError", "ArrowInvalid", "NotImplementedError")


def assert_equal(found: pa.ChunkedArray | pa.Array, expected: pa.ChunkedArray, written: pa.ChunkedArray) -> None:
    """Equal to what pylance reads, or, where that is not what it was given, to what was written."""
    found.validate(full=True)
    assert len(found) == len(expected)
    if not storage(found).equals(storage(expected)) and not _same(found, expected):
        assert _same(found, written), f"{found.type}"


def _same(one: pa.ChunkedArray | pa.Array, other: pa.ChunkedArray) -> bool:
    return repr(storage(one).to_pylist()) == repr(storage(other).to_pylist())  # repr: NaN equals itself in it


def check_file(path: Path, written: pa.Table) -> None:
    """Scan, ranges and takes of every column."""
    try:
        expected = peer_table(path)
    except BaseException as error:
        if not failed_inside_pylance(error):
            raise
        expected = written
    opened = Opened(path)
    rows = len(written)
    assert opened.file.num_rows == rows
    dice = np.random.default_rng(rows)
    selections = [np.unique(dice.integers(0, rows, n)) for n in (1, 5, rows // 2) if rows]
    start, end = sorted(dice.integers(0, rows + 1, 2).tolist())
    scans = {batch: opened.scan(start, end, batch) for batch in (7, None)}
    whole = opened.read()
    taken = [opened.take(selection) for selection in selections]
    for i, name in enumerate(written.column_names):
        columns = expected[name], written[name]
        assert_equal(whole[i], *columns)
        for scan in scans.values():
            assert_equal(scan[i], *(c.slice(start, end - start) for c in columns))
        for selection, arrays in zip(selections, taken, strict=True):
            assert_equal(arrays[i], *(c.take(pa.array(selection)) for c in columns))


def lists_of_struct_vectors(dtype: pa.DataType, in_list: bool = False) -> bool:
    """Fixed-size lists of structs inside lists: pylance writes what it cannot read, and so do we refuse it."""
    if not pa.types.is_nested(dtype):
        return False
    if pa.types.is_fixed_size_list(dtype):
        return in_list and pa.types.is_struct(dtype.value_type)
    in_list = in_list or not pa.types.is_struct(dtype)
    return any(lists_of_struct_vectors(dtype.field(i).type, in_list) for i in range(dtype.num_fields))


COLUMNS = st.sampled_from(["2.1", "2.2"]).flatmap(
    lambda version: st.tuples(
        st.just(version),
        st.integers(0, 4).flatmap(lambda depth: named("c", types(depth, version))),
        named("d", types(1, version)),
    )
)


def leaf_values(dtype: pa.DataType, items: float) -> float:
    """About how many leaf values a row has."""
    if pa.types.is_struct(dtype):
        return sum(leaf_values(dtype.field(i).type, items) for i in range(dtype.num_fields))
    if pa.types.is_fixed_size_list(dtype):
        return dtype.list_size * leaf_values(dtype.value_type, items)
    if pa.types.is_nested(dtype):
        return items * leaf_values(dtype.field(0).type, items) if not pa.types.is_map(dtype) else 2 * items
    return 1


def make_table(fields: list[pa.Field], odds: Odds, count: int) -> pa.Table:
    """A table of at most `count` rows, fewer where they are large."""
    values = Values(odds)
    items = 1 + odds.items_max / 2
    count = min(count, 1 + int(6000 / (1 + sum(leaf_values(field.type, items) for field in fields))))
    return pa.Table.from_arrays([values.rows(field.type, count) for field in fields], schema=pa.schema(fields))


@run_examples
@given(COLUMNS, ODDS, st.sampled_from([0, 1, 20, 300, 1100]), st.booleans())
def test_reads_random_types(columns, odds: Odds, count: int, tiny_pages: bool) -> None:
    version, *fields = columns
    assume(not any(lists_of_struct_vectors(field.type) for field in fields))
    table = make_table(fields, odds, count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.lance"
        try:
            write(path, table, version, tiny_pages=tiny_pages)
        except BaseException as error:
            if not failed_inside_pylance(error):
                raise
            assume(False)
        check_file(path, table)


def has_vectors_of_vectors(dtype: pa.DataType) -> bool:
    if not pa.types.is_nested(dtype):
        return False
    below = [dtype.field(i).type for i in range(dtype.num_fields)]
    is_vector = pa.types.is_fixed_size_list
    return (is_vector(dtype) and is_vector(below[0])) or any(map(has_vectors_of_vectors, below))


@run_examples
@given(COLUMNS, ODDS, st.integers(0, 1 << 30))
def test_takes_from_fragments_with_deletions(columns, odds: Odds, seed: int) -> None:
    """Several fragments, some rows deleted; takes unsorted and with duplicates, by offset and by row id."""
    version, *fields = columns
    assume(not any(lists_of_struct_vectors(field.type) for field in fields))
    assume(not any(has_vectors_of_vectors(field.type) for field in fields))  # see `test_selects_from_slices_of_...`
    table = make_table(fields, odds, 60)
    table = table.append_column("key", pa.array(range(len(table))))
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        uri = str(Path(folder) / "random.lance")
        try:
            peer = lance.write_dataset(
                table, uri, max_rows_per_file=dice.choice((7, 20, 60)), data_storage_version=version
            )
            gone = dice.sample(range(len(table)), len(table) // dice.choice((2, 5, 50)))
            if gone:
                peer.delete(f"key in ({', '.join(map(str, gone))})")
            left = peer.to_table()
        except BaseException as error:
            if not failed_inside_pylance(error):
                raise
            assume(False)
        ours = lance_io.dataset(uri)
        written = table.take([key for key in range(len(table)) if key not in gone])
        wanted = [dice.randrange(len(left)) for _ in range(40)] if len(left) else []
        pairs = {
            "scan": (ours.to_table(), left, written),
            "take": (ours.take(wanted), left.take(wanted), written.take(wanted)),
            "slice": (ours.to_table(offset=11, limit=9), left.slice(11, 9), written.slice(11, 9)),
        }
        for found, expected, plain in pairs.values():
            assert found.schema.names == expected.schema.names
            for name in found.schema.names:
                assert_equal(found[name], expected[name], plain[name])
        ids = ours.to_table(columns=["key"], with_row_id=True)
        chosen = [dice.randrange(len(ids)) for _ in range(20)] if len(ids) else []
        rows = ours._take_rows(ids["_rowid"].take(chosen).to_pylist(), columns=["key"])
        assert rows["key"].to_pylist() == ids["key"].take(chosen).to_pylist()


# -- what these tests found --------------------------------------------------------------------------------------------


NULL_VECTORS = {
    "items": (pa.list_(pa.int32(), 9), [[None] * 9, None, [None] * 9]),
    "items of items": (pa.list_(pa.list_(pa.int32(), 3), 2), [[[None] * 3] * 2, None]),
    "vectors": (pa.list_(pa.list_(pa.int32(), 3), 2), [[None, None], None]),
    "in lists of int": (pa.list_(pa.list_(pa.int64(), 2)), [[[None, None], None], [], None]),
}


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("name", list(NULL_VECTORS))
def test_vectors_whose_items_are_all_null(name: str, version: str, tmp_path: Path) -> None:
    """Such pages hold validity bitmaps over a constant without a value."""
    dtype, rows = NULL_VECTORS[name]
    table = pa.table({"c": pa.array(rows * 50, dtype)})
    path = tmp_path / "nulls.lance"
    write(path, table, version)
    check_file(path, table)


def packed(*members: pa.DataType) -> pa.DataType:
    return pa.struct([(f"m{i}", dtype) for i, dtype in enumerate(members)])


ROW = packed(pa.list_(pa.int8(), 1))
PACKED_IN_PACKED = {
    "one vector": packed(ROW),
    "beside others": packed(pa.int16(), ROW, pa.string()),
    "of text": packed(packed(pa.large_string(), pa.binary()), pa.int64()),
    "three deep": packed(packed(packed(pa.list_(pa.list_(pa.int16(), 2), 3), pa.string()), pa.int8()), ROW),
}


@pytest.mark.parametrize("null", [0, 0.2])
@pytest.mark.parametrize("in_list", [False, True], ids=["rows", "lists"])
@pytest.mark.parametrize("name", list(PACKED_IN_PACKED))
def test_packed_structs_inside_packed_structs(name: str, in_list: bool, null: float, tmp_path: Path) -> None:
    """Rows in rows, each with a length in front, also where all members are of one width."""
    dtype, marked = PACKED_IN_PACKED[name], {"packed": "true"}
    values, nulls = Values(Odds(0, 0.2, 3, "wild", 7)), random.Random(9)
    rows = [None if nulls.random() < null else values.value(dtype) for _ in range(700)]
    if in_list:
        item = pa.field("item", dtype, metadata=marked)
        field, rows = pa.field("c", pa.list_(item)), [rows[i : i + i % 4] for i in range(0, 700, 3)]
    else:
        field = pa.field("c", dtype, metadata=marked)
    table = pa.Table.from_arrays([pa.array(rows, field.type)], schema=pa.schema([field]))
    path = tmp_path / "packed.lance"
    write(path, table, "2.2")
    assert peer_table(path)["c"].to_pylist() == rows
    check_file(path, table)


def test_members_of_packed_structs_inside_packed_structs(tmp_path: Path) -> None:
    """Against what was written: pylance reads some of them as zeros where the row is null, and fails at others."""
    dtype = packed(packed(pa.int16(), pa.string()), pa.int64())
    rows = [{"m0": {"m0": i, "m1": f"{i}"}, "m1": -i} if i % 3 else None for i in range(50)]
    field = pa.field("c", dtype, metadata={"packed": "true"})
    table = pa.Table.from_arrays([pa.array(rows, dtype)], schema=pa.schema([field]))
    lance.write_dataset(table, tmp_path / "t", data_storage_version="2.2")
    found = lance_io.dataset(tmp_path / "t").to_table(columns=["c.m0.m0", "c.m0.m1", "c.m1", "c.m0"])
    assert found["c.m0"].to_pylist() == [row and row["m0"] for row in rows]
    assert found["c.m0.m0"].to_pylist() == [row and row["m0"]["m0"] for row in rows]
    assert found["c.m0.m1"].to_pylist() == [row and row["m0"]["m1"] for row in rows]
    assert found["c.m1"].to_pylist() == [row and row["m1"] for row in rows]


STRUCT_VECTOR = pa.list_(pa.struct([("m", pa.int64()), ("s", pa.string())]), 3)


def test_vectors_of_structs_inside_structs(tmp_path: Path) -> None:
    """The layers outside of such a vector repeat themselves, too."""
    dtype = pa.struct([("a", STRUCT_VECTOR), ("b", pa.struct([("v", STRUCT_VECTOR), ("i", pa.int8())]))])
    vectors = [[{"m": i + k, "s": f"{i}"} for k in range(3)] for i in range(70)]
    rows = [{"a": v, "b": None if i % 5 == 0 else {"v": v, "i": i}} for i, v in enumerate(vectors)]
    table = pa.table({"c": pa.array(rows, dtype)})
    path = tmp_path / "vectors.lance"
    write(path, table, "2.2")
    check_file(path, table)


def test_vectors_of_structs_inside_lists_are_refused(tmp_path: Path) -> None:
    dtype = pa.struct([("a", pa.list_(STRUCT_VECTOR))])
    path = tmp_path / "vectors.lance"
    write(path, pa.table({"c": pa.array([{"a": [[{"m": k, "s": ""} for k in range(3)]] * 2}] * 9, dtype)}), "2.2")
    with pytest.raises(UnsupportedError, match="column 0"):
        Opened(path).read()


BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_inside_structs_read_as_their_descriptions(version: str, tmp_path: Path) -> None:
    dtype = pa.struct([pa.field("a", pa.int32()), BLOB])
    rows = [{"a": 1, "b": b"xx"}, {"a": 2, "b": None}, None, {"a": 4, "b": b""}]
    path = tmp_path / "blob.lance"
    lance.write_dataset(pa.table({"c": pa.array(rows, dtype)}), path, data_storage_version=version)
    expected = lance.dataset(path).to_table()["c"]
    opened = Opened(next((path / "data").iterdir()))
    assert opened.read()[0].to_pylist() == expected.to_pylist()
    assert opened.take(np.array([0, 3]))[0].to_pylist() == expected.take([0, 3]).to_pylist()


def test_a_blob_column_that_a_fragment_lacks_reads_as_null_descriptions() -> None:
    field = decode_schema(
        [
            file_pb2.Field(
                name="b",
                id=0,
                parent_id=-1,
                logical_type="large_binary",
                nullable=True,
                metadata={"lance-encoding:blob": b"true"},
            )
        ],
        {},
    ).fields[0]
    array = Projection([field]).assemble_field(0, {}, 3)
    assert array.to_pylist() == [None] * 3
    assert array.type == pa.struct([("position", pa.uint64()), ("size", pa.uint64())])


def test_rows_are_selected_right_from_slices_of_nested_vectors() -> None:
    """pyarrow selects wrong ones by itself; should this fail, `compact` has become unnecessary."""
    items = pa.FixedSizeListArray.from_arrays(pa.array(range(60)), 3)
    whole = pa.FixedSizeListArray.from_arrays(items, 2)
    cut = whole.slice(2, 5)  # the wrong ones are rows of `whole` as well, not memory behind it
    expected = [whole[2].as_py(), whole[4].as_py()]
    assert cut.take(pa.array([0, 2])).to_pylist() != expected
    assert compact(cut).take(pa.array([0, 2])).to_pylist() == expected
    in_struct = pa.StructArray.from_arrays([whole], ["x"]).slice(2, 5)
    assert compact(in_struct).take(pa.array([0, 2])).field(0).to_pylist() == expected


def test_scans_nested_vectors_of_fragments_with_deletions(tmp_path: Path) -> None:
    dtype = pa.list_(pa.list_(pa.int64(), 3), 2)
    rows = [[[i, i + 1, i + 2], [-i, 0, 1]] for i in range(30)]
    uri = str(tmp_path / "vectors.lance")
    table = pa.table({"c": pa.array(rows, dtype), "i": range(30)})
    lance.write_dataset(table, uri, max_rows_per_file=10).delete("i % 3 = 1")
    assert lance_io.dataset(uri).to_table()["c"].to_pylist() == [row for i, row in enumerate(rows) if i % 3 != 1]
