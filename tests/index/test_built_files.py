"""The files of our indices hold what pylance's hold, for every type of column, and are not larger."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from pyroaring import BitMap, BitMap64

import lance_io
from lance_io.indices import IndexConfig
from lance_io.levels.arrays import shown_value
from tests.index.index_tables import our

DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 15, 250000)
NUMBERS = [3, 0, None, 1, 3, 100, 7, 7, None, 55, 2, 0]
FLOATS = [1.5, float("nan"), None, -0.0, 0.0, float("inf"), float("-inf"), 3.25, float("nan"), -2.5, 1.5, None]
TEXTS = ["b", "", None, "a", "a\0", "é", "Z", "日本", "b", "a", "😀", None]

COLUMNS: dict[str, pa.Array] = {
    "bool": pa.array([None if n is None else n > 2 for n in NUMBERS]),
    **{str(dtype): pa.array(NUMBERS, dtype) for dtype in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16())},
    **{str(dtype): pa.array(NUMBERS, dtype) for dtype in (pa.int32(), pa.uint32(), pa.uint64())},
    "int64": pa.array([None if n is None else n - 50 for n in NUMBERS], pa.int64()),
    "float16": pa.array([None if f is None else np.float16(f) for f in FLOATS], pa.float16()),
    "float32": pa.array(FLOATS, pa.float32()),
    "float64": pa.array(FLOATS, pa.float64()),
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "binary": pa.array([None if t is None else t.encode() for t in TEXTS], pa.binary()),
    "large_binary": pa.array([None if t is None else t.encode() for t in TEXTS], pa.large_binary()),
    "fixed_size_binary": pa.array([None if n is None else bytes([n, 1]) for n in NUMBERS], pa.binary(2)),
    "date32": pa.array([None if n is None else DAY + datetime.timedelta(n) for n in NUMBERS]),
    "date64": pa.array([None if n is None else DAY + datetime.timedelta(n) for n in NUMBERS], pa.date64()),
    "time32": pa.array([None if n is None else datetime.time(1, n % 60) for n in NUMBERS], pa.time32("s")),
    "time64": pa.array([None if n is None else datetime.time(1, n % 60) for n in NUMBERS], pa.time64("us")),
    "timestamp": pa.array([None if n is None else MOMENT + datetime.timedelta(hours=n) for n in NUMBERS]),
    "timestamp with zone": pa.array(
        [None if n is None else MOMENT + datetime.timedelta(hours=n) for n in NUMBERS], pa.timestamp("ms", "UTC")
    ),
    "duration": pa.array([None if n is None else datetime.timedelta(seconds=n - 4) for n in NUMBERS]),
    "decimal128": pa.array([None if n is None else decimal.Decimal(n - 50) for n in NUMBERS], pa.decimal128(10, 2)),
    "decimal256": pa.array([None if n is None else decimal.Decimal(n - 50) for n in NUMBERS], pa.decimal256(50, 2)),
}
NOT_HASHED = ("bool", "float16", "fixed_size_binary", "duration", "decimal128", "decimal256")


def index_files(uri: str, name: str) -> dict[str, Path]:
    """The files of an index of one segment, by name."""
    (index,) = [each for each in lance.dataset(uri).describe_indices() if each.name == name]
    (segment,) = index.segments
    return {path.name: path for path in (Path(uri) / "_indices" / segment.uuid).iterdir()}


def content(path: Path, buffers: tuple[str, ...] = ()) -> tuple[pa.Table, dict[str, Any]]:
    """The rows and the metadata of a file, by pylance; global buffers in place of their numbers."""
    reader = LanceFileReader(str(path))
    table = reader.read_all().to_table()
    metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    for key in buffers:
        metadata[key] = bytes(reader.read_global_buffer(int(metadata[key])))
    return table.replace_schema_metadata(None), metadata


def tree(data: bytes) -> dict[int, set[int]]:
    """A RowAddrTreeMap, by an independent library."""
    count, at = int.from_bytes(data[:4], "little"), 4
    parts = {}
    for _ in range(count):
        fragment, size = (int.from_bytes(data[at + n : at + n + 4], "little") for n in (0, 4))
        parts[fragment] = set(BitMap.deserialize(data[at + 8 : at + 8 + size]))
        at += 8 + size
    assert at == len(data)
    return parts


def shown(values: pa.ChunkedArray) -> list[str]:
    """Values that compare by their bits."""
    return [repr(value.as_py()) for value in values]


def pairs(table: pa.Table) -> list[tuple[str, int]]:
    """The pairs of a B-tree; those of one value in the order of their rows."""
    rows = list(zip(shown(table["values"]), table["ids"].to_pylist(), strict=True))
    runs: list[list[tuple[str, int]]] = []
    for row in rows:
        if runs and runs[-1][0][0] == row[0]:
            runs[-1].append(row)
        else:
            runs.append([row])
    return [row for run in runs for row in sorted(run)]


def both(
    tmp_path: Path, column: pa.Array, index_type: str, parameters: dict[str, Any] | None = None
) -> tuple[str, bool]:
    """A table of three fragments, with an index by each library: `theirs` and `ours`."""
    uri = str(tmp_path / "t.lance")
    table = lance.write_dataset(pa.table({"c": column}), uri, max_rows_per_file=5)
    table.delete("_rowaddr IN (2, 4294967297)")
    if parameters is None:
        table.create_scalar_index("c", index_type, name="theirs")
        our(uri).create_scalar_index("c", index_type, "ours")
    else:
        table.create_scalar_index("c", lance.indices.IndexConfig(index_type.lower(), parameters), name="theirs")
        our(uri).create_scalar_index("c", IndexConfig(index_type.lower(), parameters), "ours")
    theirs, ours = index_files(uri, "theirs"), index_files(uri, "ours")
    assert theirs.keys() == ours.keys()
    return uri, True


@pytest.mark.parametrize("name", COLUMNS)
def test_btree(tmp_path: Path, name: str) -> None:
    uri, _ = both(tmp_path, COLUMNS[name], "BTREE", {"zone_size": 4})
    theirs, ours = index_files(uri, "theirs"), index_files(uri, "ours")
    left, right = content(theirs["page_data.lance"])[0], content(ours["page_data.lance"])[0]
    assert right.schema == left.schema
    assert pairs(right) == pairs(left)
    left, metadata = content(theirs["page_lookup.lance"])
    right, our_metadata = content(ours["page_lookup.lance"])
    assert right.schema == left.schema
    assert our_metadata == metadata
    for column in left.schema.names:
        assert shown(right[column]) == shown(left[column]), column


@pytest.mark.parametrize("name", COLUMNS)
def test_bitmap(tmp_path: Path, name: str) -> None:
    uri, _ = both(tmp_path, COLUMNS[name], "BITMAP")
    left, metadata = content(index_files(uri, "theirs")["bitmap_page_lookup.lance"])
    right, our_metadata = content(index_files(uri, "ours")["bitmap_page_lookup.lance"])
    assert right.schema == left.schema
    assert our_metadata == metadata
    assert shown(right["keys"]) == shown(left["keys"])
    assert list(map(tree, right["bitmaps"].to_pylist())) == list(map(tree, left["bitmaps"].to_pylist()))


UNBOUNDED = {
    "dictionary": pa.array(["b", "a", None, "c", "a", "b", None]).dictionary_encode(),
    "list": pa.array([[2, 1], [1], None, [], [None, 3], [1, 2], [5]]),
    "vector": pa.array([[1.0, 2.0]] * 7, pa.list_(pa.float32(), 2)),
}


@pytest.mark.parametrize("name", [*COLUMNS, *UNBOUNDED])
def test_zone_map(tmp_path: Path, name: str) -> None:
    uri, _ = both(tmp_path, {**COLUMNS, **UNBOUNDED}[name], "ZONEMAP", {"rows_per_zone": 2})
    left, metadata = content(index_files(uri, "theirs")["zonemap.lance"], ("null_bitmap",))
    right, our_metadata = content(index_files(uri, "ours")["zonemap.lance"], ("null_bitmap",))
    assert right.schema == left.schema
    if name == "fixed_size_binary":  # pylance writes no bounds for these
        assert left["min"].null_count == len(left)
        left = left.drop_columns(["min", "max"])
    for column in left.schema.names:
        assert shown(right[column]) == shown(left[column]), column
    assert tree(our_metadata.pop("null_bitmap")) == tree(metadata.pop("null_bitmap"))
    assert our_metadata == metadata


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in NOT_HASHED])
def test_bloom_filter(tmp_path: Path, name: str) -> None:
    uri, _ = both(tmp_path, COLUMNS[name], "BLOOMFILTER", {"number_of_items": 2, "probability": 0.02})
    left, metadata = content(index_files(uri, "theirs")["bloomfilter.lance"], ("null_bitmap",))
    right, our_metadata = content(index_files(uri, "ours")["bloomfilter.lance"], ("null_bitmap",))
    assert right.equals(left)
    assert tree(our_metadata.pop("null_bitmap")) == tree(metadata.pop("null_bitmap"))
    assert our_metadata == metadata


@pytest.mark.parametrize("kind", ["BLOOMFILTER", "BTREE", "BITMAP", "NGRAM", "LABEL_LIST"])
def test_types_that_a_kind_does_not_take(tmp_path: Path, kind: str) -> None:
    """Both libraries refuse them."""
    columns = {
        "list": pa.array([[1], [2]]),
        "dictionary": pa.array(["a", "b"]).dictionary_encode(),
        "struct": pa.array([{"a": 1}, {"a": 2}]),
        "bool": pa.array([True, False]),
        "nested": pa.array([[[1]], [[2]]]),
    }
    refused = {
        "BLOOMFILTER": ["list", "dictionary", "struct", "bool"],
        "NGRAM": ["list", "dictionary", "struct", "bool"],
        "LABEL_LIST": ["dictionary", "struct", "bool", "nested"],
    }.get(kind, ["list", "dictionary", "struct"])
    uri = str(tmp_path / "t.lance")
    table = lance.write_dataset(pa.table(columns), uri)
    version = table.version
    for name in refused:
        with pytest.raises((TypeError, ValueError, OSError, RuntimeError, NotImplementedError)):
            lance.dataset(uri).create_scalar_index(name, kind)
        with pytest.raises(TypeError, match=name):
            our(uri).create_scalar_index(name, kind)
    assert our(uri).version == version
    assert not (Path(uri) / "_indices").exists() or not [*(Path(uri) / "_indices").rglob("*.lance")]


LISTS = {
    "texts": pa.array([["a", "b", "a"], [], None, ["b", None], ["c"], [None], ["a"], ["é", "b"], None, []]),
    "numbers": pa.array([[1, 2], [2], None, [], [None, 3], [1], [7], [1, 1], [2], [5]], pa.large_list(pa.int32())),
}


@pytest.mark.parametrize("name", LISTS)
def test_label_list(tmp_path: Path, name: str) -> None:
    uri, _ = both(tmp_path, LISTS[name], "LABEL_LIST")
    key = "lance:label_list_nulls"
    left, metadata = content(index_files(uri, "theirs")["bitmap_page_lookup.lance"], (key,))
    right, our_metadata = content(index_files(uri, "ours")["bitmap_page_lookup.lance"], (key,))
    assert right.schema == left.schema
    assert shown(right["keys"]) == shown(left["keys"])
    assert list(map(tree, right["bitmaps"].to_pylist())) == list(map(tree, left["bitmaps"].to_pylist()))
    assert tree(our_metadata.pop(key)) == tree(metadata.pop(key))
    assert our_metadata == metadata


WORDS = ["hello", "HELLO World", None, "xy", "", "Élan ﬁne", "a1_b2c", "日本語 ab", "straße", "½ Œuvre ℋel", "abc" * 30]


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string()], ids=str)
def test_ngram(tmp_path: Path, dtype: pa.DataType) -> None:
    uri, _ = both(tmp_path, pa.array(WORDS, dtype), "NGRAM")
    left, _ = content(index_files(uri, "theirs")["ngram_postings.lance"])
    right, _ = content(index_files(uri, "ours")["ngram_postings.lance"])
    assert right.schema == left.schema
    assert right["tokens"].to_pylist() == left["tokens"].to_pylist()
    postings = [list(map(BitMap64.deserialize, table["posting_list"].to_pylist())) for table in (right, left)]
    assert postings[0] == postings[1]


DOCUMENTS: dict[str, list[Any]] = {
    "numbers": [{"a": 3}, {}, {"a": 1}, None, {"a": None}, {"a": 7}, {"b": 1}],
    "floats": [{"a": 1.5}, {"a": 2}, {"a": None}],
    "flags": [{"a": True}, {"a": False}, {}],
    "texts": [{"a": 'x"y'}, {"a": "é"}, {"a": "plain"}, {}],
    "nothing": [{"b": 1}, {}, None],
}


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("target", ["btree", "bitmap"])
def test_json_path(tmp_path: Path, name: str, target: str) -> None:
    texts = [None if document is None else json.dumps(document) for document in DOCUMENTS[name]]
    uri = str(tmp_path / "t.lance")
    table = lance.write_dataset(pa.table({"c": pa.array(texts, pa.json_())}), uri, max_rows_per_file=3)
    parameters = {"target_index_type": target, "path": "a"}
    table.create_scalar_index("c", lance.indices.IndexConfig("json", parameters), name="theirs")
    our(uri).create_scalar_index("c", IndexConfig("json", parameters), "ours")
    described = {index.name: index for index in lance.dataset(uri).describe_indices()}
    assert described["ours"].type_url == described["theirs"].type_url
    assert described["ours"].details == described["theirs"].details
    file = "page_data.lance" if target == "btree" else "bitmap_page_lookup.lance"
    left, right = (content(index_files(uri, index)[file])[0] for index in ("theirs", "ours"))
    assert right.schema == left.schema
    if target == "btree":
        assert pairs(right) == pairs(left)
    else:
        assert shown(right["keys"]) == shown(left["keys"])
        assert list(map(tree, right["bitmaps"].to_pylist())) == list(map(tree, left["bitmaps"].to_pylist()))


@pytest.mark.parametrize(
    "documents", [[{"a": 1}, {"a": "x"}], [{"a": {"b": 1}}], [{"a": 1}, {"a": 2.5}], [{"a": True}, {"a": 1}]]
)
def test_json_values_of_several_types(tmp_path: Path, documents: list[Any]) -> None:
    """Both libraries refuse them."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"c": pa.array(map(json.dumps, documents), pa.json_())}), uri)
    parameters = {"target_index_type": "btree", "path": "a"}
    with pytest.raises(ValueError, match="JSON path 'a'"):
        lance.dataset(uri).create_scalar_index("c", lance.indices.IndexConfig("json", parameters))
    with pytest.raises(ValueError, match="JSON path 'a'"):
        our(uri).create_scalar_index("c", IndexConfig("json", parameters))
    assert not [*(Path(uri) / "_indices").rglob("*.lance")] or len(our(uri).describe_indices()) == 0


SIZED = {
    "BTREE": "i",
    "BITMAP": "k",
    "LABEL_LIST": "l",
    "ZONEMAP": "i",
    "BLOOMFILTER": "i",
    "NGRAM": "s",
}


@pytest.mark.parametrize("kind", SIZED)
@pytest.mark.parametrize("is_text", [False, True], ids=["numbers", "texts"])
def test_our_files_are_not_larger(tmp_path: Path, kind: str, is_text: bool) -> None:
    rng = np.random.default_rng(5)
    num_rows = 60_000
    labels = [[f"t{n % 50}", f"t{n % 13}"] for n in rng.integers(0, 1000, num_rows)]
    numbers = rng.permutation(num_rows)
    texts = [f"key-{n:09d}" for n in numbers]
    values = {"i": texts if is_text else numbers, "k": [f"c{n % 100}" for n in numbers] if is_text else numbers % 100}
    table = pa.table({**values, "l": labels, "s": texts})
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(table, uri, max_rows_per_file=16_000).create_scalar_index(SIZED[kind], kind, name="theirs")
    our(uri).create_scalar_index(SIZED[kind], kind, "ours")
    theirs, ours = (sum(path.stat().st_size for path in index_files(uri, name).values()) for name in ("theirs", "ours"))
    assert ours <= 1.05 * theirs, (ours, theirs)


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_moments_that_python_lacks(tmp_path: Path, kind: str) -> None:
    """Years after 9999, days beyond any date, an unknown time zone."""
    columns = {
        "far": pa.array([1 << 62, -1 << 62, None, 5], pa.timestamp("us")),
        "day": pa.array([1 << 30, -1 << 30, None, 5], pa.int32()).cast(pa.date32()),
        "zone": pa.array([1, 2, None, 5], pa.timestamp("us", "Mars/Phobos")),
    }
    table = lance_io.write_dataset(pa.table({**columns, "n": range(4)}), tmp_path)
    for name in columns:
        table.create_scalar_index(name, kind)
        (statistics,) = table.stats.index_stats(f"{name}_idx")["indices"]
        assert kind != "BTREE" or (statistics["min"], statistics["num_pages"]) == ("NULL", 1)
        for opened in (table, lance.dataset(tmp_path)):
            assert opened.to_table(["n"], filter=f"{name} IS NULL")["n"].to_pylist() == [2]
    scan = table.scanner(["n"], filter=f"far > arrow_cast({1 << 61}, 'Timestamp(Microsecond, None)')")
    assert "far_idx" in scan.explain_plan()
    assert scan.to_table()["n"].to_pylist() == [0]


def test_lists_of_moments_that_python_lacks(tmp_path: Path) -> None:
    """As labels, and lists by themselves."""
    moments = pa.array([[1 << 62, 5], [], None, [5]], pa.list_(pa.timestamp("us")))
    table = lance_io.write_dataset(pa.table({"l": moments, "n": range(4)}), tmp_path)
    table.create_scalar_index("l", "LABEL_LIST")
    far = f"arrow_cast({1 << 62}, 'Timestamp(Microsecond, None)')"
    scan = table.scanner(["n"], filter=f"array_has_any(l, [{far}])")
    assert f"array_has_any(l, List([{1 << 62} (timestamp[us])]))" in scan.explain_plan()
    assert scan.to_table()["n"].to_pylist() == [0]
    assert shown_value(moments[0]) == [f"{1 << 62} (timestamp[us])", datetime.datetime(1970, 1, 1, 0, 0, 0, 5)]
    assert shown_value(pa.StructArray.from_arrays([moments], ["l"])[0]) == {"l": shown_value(moments[0])}
