"""Calls that go through indices: changes of rows, SQL, orders, nested columns, prewarming, unknown kinds."""

from __future__ import annotations

import asyncio
import shutil
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import Index

import lance_io
from lance_io.errors import BindError, UsageError
from lance_io.index.scalar import bitmap, btree, ngram
from lance_io.indices import IndexConfig
from lance_io.reads.index import segments
from lance_io.reads.keys import key_lookup
from lance_io.reads.scan import index_scan

if TYPE_CHECKING:
    from pathlib import Path

NUM_ROWS = 4000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table with indices of plain and of nested columns, and rows that no index covers."""
    rng = np.random.default_rng(9)
    order = rng.permutation(NUM_ROWS)
    rows = pa.table(
        {
            "id": order,
            "c": order % 7,
            "st": pa.array([None if number % 9 == 0 else {"a": number, "b": "x"} for number in order.tolist()]),
            "d": pa.array([Decimal(number) / 4 for number in order.tolist()], pa.decimal128(10, 2)),
            "h": pa.array((order % 50).astype(np.float16) / 4),
            "ts": pa.array(order * 1_000_000, pa.timestamp("us", "UTC")),
            "x": [f"value {number}" for number in order.tolist()],
        }
    )
    table = lance.write_dataset(rows.slice(0, NUM_ROWS - 50), tmp_path / "t", max_rows_per_file=1000)
    for column, kind in (("id", "BTREE"), ("c", "BITMAP"), ("d", "BTREE"), ("h", "BTREE"), ("ts", "ZONEMAP")):
        table.create_scalar_index(column, kind, name=f"{column}_index")
    table.create_scalar_index("st.a", "BTREE", name="a_index")
    lance.write_dataset(rows.slice(NUM_ROWS - 50), tmp_path / "t", mode="append")
    return tmp_path / "t"


def is_indexed(table: Any, text: str) -> bool:
    return "ScalarIndexQuery" in table.scanner(filter=text).explain_plan()


@pytest.mark.parametrize(
    "text",
    [
        "st.a = 10",
        "st.a IS NULL",
        "st.a > 3990 AND id < 3995",
        "d = cast('12.25' as decimal(10, 2))",
        "d BETWEEN 1 AND 2",
        "h = 1.5",
        "h > 12",
        "ts = timestamp '1970-01-01T00:10:00Z'",
        "ts < timestamp '1970-01-01T00:00:30Z'",
        "id = 3 OR c = 2 AND d > 900",
    ],
)
def test_types_and_nested_columns(folder: Path, text: str) -> None:
    table = lance_io.dataset(folder)
    assert is_indexed(table, text)
    expected = table.to_table(filter=text, use_scalar_index=False)
    assert table.to_table(filter=text) == expected
    assert expected.num_rows > 0
    assert sorted(lance.dataset(folder).to_table(filter=text)["id"].to_pylist()) == sorted(expected["id"].to_pylist())


def test_changes_find_rows_by_index(folder: Path) -> None:
    table = lance_io.dataset(folder)
    session = table.session()
    assert session.index_cache_size_bytes() == 0
    assert table.delete("id = 5 AND c = 5") == {"num_deleted_rows": 1}
    assert session.index_cache_size_bytes() > 0
    assert table.update({"x": "'new'"}, where="id IN (6, 7, 3999)") == {"num_rows_updated": 3}
    assert table.to_table(["id"], "x = 'new'")["id"].to_pylist() == [6, 7, 3999] or table.count_rows("x = 'new'") == 3
    assert table.count_rows("id IN (5, 6, 7, 3999)") == 3
    source = pa.table({"id": [6, 100_000], "x": ["merged", "inserted"]})
    counts = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
    assert (counts["num_updated_rows"], counts["num_inserted_rows"]) == (1, 1)
    assert table.get("id", [100_000, 6], ["x"])["x"].to_pylist() == ["inserted", "merged"]


def test_sql_and_orders(folder: Path) -> None:
    table = lance_io.dataset(folder)
    table.drop_columns(["h"])  # DuckDB has no half floats
    assert table.session().index_cache_size_bytes() == 0
    (batch,) = table.sql("SELECT x FROM dataset WHERE id = 77").build().to_batch_records()
    assert batch.to_pydict() == {"x": ["value 77"]}
    assert table.session().index_cache_size_bytes() > 0
    ordered = table.to_table(["id"], "id < 40", limit=3, order_by="id")
    assert ordered["id"].to_pylist() == [0, 1, 2]
    plain = table.to_table(["id"], "id < 40", limit=5, offset=2, use_scalar_index=False)
    assert table.to_table(["id"], "id < 40", limit=5, offset=2) == plain
    assert table.to_table(["id"], "id < 40", limit=5, offset=2, scan_in_order=False).num_rows == 5
    assert not is_indexed(table, "id + 1 = 5")


def test_the_index_is_used_only_where_it_may(folder: Path) -> None:
    table = lance_io.dataset(folder)
    assert "ScalarIndexQuery" not in table.scanner(filter="id = 5", use_scalar_index=False).explain_plan()
    ids = [fragment.fragment_id for fragment in table.get_fragments()]
    for chosen in ([ids[0]], [ids[3], ids[1]], ids[-1:]):
        fragments = [table.get_fragment(number) for number in chosen]
        options: dict[str, Any] = {"columns": ["id"], "filter": "id < 400", "fragments": fragments}
        assert table.to_table(**options) == table.to_table(**options, use_scalar_index=False)
    fast = table.to_table(["id"], "id < 400", fast_search=True)
    assert 0 < fast.num_rows < table.count_rows("id < 400")


def test_an_index_that_would_read_too_much_is_not_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole pages count. A scan answers; a fast search has no other answer than that of the index."""
    monkeypatch.setattr(index_scan, "INDEX_ROWS_MIN", 1000)
    table = lance_io.dataset(folder)
    table.create_scalar_index("id", IndexConfig("btree", {"zone_size": 256}), "id_index")
    lance.write_dataset(table.to_table().slice(0, 10), folder, mode="append")
    table = lance_io.dataset(folder)
    for text, is_used in (("id = 77", True), ("id >= 0", False), ("id >= 0 AND c = 2", True), ("id != 5", True)):
        assert is_indexed(table, text) == is_used, text
        assert table.to_table(filter=text) == table.to_table(filter=text, use_scalar_index=False)
    assert table.to_table(["id"], "id >= 0", fast_search=True).num_rows < table.count_rows("id >= 0")


def test_large_bitmaps_are_loaded_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sizes are known once some are read; pages are alike."""
    rows = pa.table({"c": np.arange(40_000) % 300})
    table = lance_io.write_dataset(rows, tmp_path)
    table.create_scalar_index("c", "BITMAP", "c_index")
    table.create_scalar_index("c", IndexConfig("btree", {"zone_size": 1000}), "c_pages")
    search, sizes = segments.search_segments, list[int]()

    def noted(state: Any, searches: Any) -> Any:
        sizes.append(len(searches[0][1].gi_frame.f_locals["blocks"].ranges))
        return search(state, searches)

    monkeypatch.setattr(segments, "search_segments", noted)
    monkeypatch.setattr(segments, "_LOADED_BYTES", 10 << 10)
    table.prewarm_index("c_pages")
    assert sizes == [40]
    sizes.clear()
    table.prewarm_index("c_index")
    assert sizes[0] == 8 and sum(sizes) >= 300
    assert 1 < max(sizes[1:]) < 60  # of some 500 bytes each
    assert table.count_rows("c = 7") == 134


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_keys_of_very_many_rows_are_found_by_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Before their pages are read or their bitmaps decoded; keys of few rows are looked up."""
    values = [n % 2 if n < 19_000 else 2 for n in range(20_000)]
    rows = pa.table({"k": values, "n": range(20_000)})
    table = lance_io.write_dataset(rows, tmp_path, max_rows_per_file=5000)
    table.create_scalar_index("k", IndexConfig("btree", {"zone_size": 100}) if kind == "BTREE" else kind)
    decoded: list[int] = []
    page, bitmap_rows = btree.BTree._page, vars(bitmap)["decode_tree_map"]

    def read_page(tree: btree.BTree, first_row: int, columns: Any) -> Any:
        decoded.append(first_row)
        return page(tree, first_row, columns)

    def read_bitmap(data: Any, space: Any) -> Any:
        decoded.append(len(data))
        return bitmap_rows(data, space)

    monkeypatch.setattr(btree.BTree, "_page", read_page)
    monkeypatch.setattr(bitmap, "decode_tree_map", read_bitmap)
    with monkeypatch.context() as little:
        little.setattr(key_lookup, "LOOKED_UP_BYTES_MIN", 16 * 3000)
        little.setattr(index_scan, "INDEX_ROWS_MIN", 3000)
        bounded = lance_io.dataset(tmp_path)
        for keys in ([1], [1, 2, 1], [0]):
            expected = [n for key in keys for n, k in enumerate(values) if k == key]
            assert bounded.get("k", keys, ["n"])["n"].to_pylist() == expected
            assert decoded == []
        assert bounded.get("k", [2], ["n"])["n"].to_pylist() == [*range(19_000, 20_000)]
        assert decoded
        decoded.clear()
    assert lance_io.dataset(tmp_path).get("k", [1], ["n"])["n"].to_pylist() == [*range(1, 19_000, 2)]
    assert decoded


def test_lists_of_frequent_trigrams_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of a rare one is enough, as rows are checked; if all are frequent, a scan finds the rows."""
    texts = [f"common {number:04x}" for number in range(8000)]
    table = lance_io.write_dataset(pa.table({"s": texts}), tmp_path, max_rows_per_file=3000)
    table.create_scalar_index("s", "NGRAM")
    decoded: list[int] = []
    decode = vars(ngram)["decode_treemap64"]

    def noted(data: Any, space: Any) -> Any:
        decoded.append(len(data))
        return decode(data, space)

    monkeypatch.setattr(ngram, "decode_treemap64", noted)
    for runs_max, num_lists in ((1 << 22, 6), (600, 2)):
        monkeypatch.setattr(ngram, "_RUNS_MAX", runs_max)
        decoded.clear()
        rows = lance_io.dataset(tmp_path).to_table(filter="contains(s, 'common 01f0')")
        assert rows["s"].to_pylist() == texts[496:497]
        assert len(decoded) == num_lists
    monkeypatch.setattr(index_scan, "INDEX_ROWS_MIN", 1000)
    decoded.clear()
    assert lance_io.dataset(tmp_path).count_rows("contains(s, 'common')") == 8000
    assert decoded == []
    assert lance_io.dataset(tmp_path).count_rows("contains(s, 'common 01f0')") == 1
    assert decoded


def test_prewarmed_indices_answer_from_memory(folder: Path) -> None:
    table = lance_io.dataset(folder)
    table.prewarm_index("id_index")
    assert table.session().index_cache_size_bytes() > 0
    with pytest.raises(UsageError, match="there is no index 'nothing'"):
        table.prewarm_index("nothing")
    with pytest.raises(UsageError, match="has no segment"):
        table.prewarm_index("id_index", index_segments=[uuid4()])

    async def warm() -> int:
        async with lance_io.AsyncDataset.open(folder) as opened:
            await opened.prewarm_index("c_index")
            return (await opened.get("id", [4, 4], ["x"])).num_rows

    assert asyncio.run(warm()) == 2


def test_keys_that_cannot_be_looked_up(folder: Path) -> None:
    table = lance_io.dataset(folder)
    for keys, match in (([5.5], "do not fit"), (["5"], "of type string"), ([1 << 70], "do not fit")):
        with pytest.raises(UsageError, match=match):
            table.get("id", keys)
    with pytest.raises(UsageError, match="create_scalar_index"):
        table.get("x", ["value 1"])
    with pytest.raises(UsageError, match="create_scalar_index"):
        table.get("ts", [])
    with pytest.raises(UsageError, match="on_missing"):
        table.get("id", [1], on_missing="ignore")
    with pytest.raises(TypeError, match="list or an array"):
        table.get("id", "12")
    with pytest.raises(BindError, match="No field named"):
        table.get("nothing", [1])
    with pytest.raises(KeyError, match="no row has the key 123456"):
        table.get("id", [1, 123456], on_missing="raise")
    assert table.get("id", []).num_rows == 0
    assert table.get("id", [None, None]).num_rows == 0
    assert table.get("id", [1.0, 2.0], ["id"])["id"].to_pylist() == [1, 2]
    assert table.get("st.a", [10, 20], ["x"])["x"].to_pylist() == ["value 10", "value 20"]
    assert table.get("d", [Decimal("2.25")], ["x"])["x"].to_pylist() == ["value 9"]
    assert table.get("h", np.array([1.5]), ["h"]).num_rows == table.count_rows("h = 1.5")
    assert table.get("id", pa.chunked_array([[3], [3]]), ["id"])["id"].to_pylist() == [3, 3]
    pinned = lance_io.dataset(folder, version=1)
    with pytest.raises(UsageError, match="create_scalar_index"):
        pinned.get("id", [1])


@pytest.mark.parametrize(("on_missing", "num_rows"), [("skip", 3), ("null", 4)])
def test_rows_of_keys_are_counted_without_columns(folder: Path, on_missing: str, num_rows: int) -> None:
    table = lance_io.dataset(folder)
    rows = table.get("id", [4, 3, 3, 123456], [], on_missing=on_missing)
    assert (rows.num_rows, rows.num_columns) == (num_rows, 0)
    assert table.to_table([], order_by=["id"]).num_rows == table.count_rows()


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_keys_are_looked_up_by_an_index_that_covers_no_row(tmp_path: Path, kind: str) -> None:
    """Of a table without rows, or one that is not built yet: rows that come later are scanned."""
    uri = str(tmp_path / "t")
    schema = pa.schema([("id", pa.int64())])
    lance_io.write_dataset(schema.empty_table(), uri).create_scalar_index("id", kind)
    table = lance_io.dataset(uri)
    assert table.get("id", [1, 2]).num_rows == 0
    table.prewarm_index("id_idx")
    (index,) = table.describe_indices()
    table.prewarm_index("id_idx", index_segments=[segment.uuid for segment in index.segments])
    with pytest.raises(UsageError, match="there is no index 'id_idx' that this release reads"):
        table.prewarm_index("id_idx", index_segments=[uuid4()])
    assert table.get("id", [1, 2], on_missing="null")["id"].to_pylist() == [None, None]
    table.insert([{"id": 2}, {"id": 3}])
    table.create_scalar_index("id", kind, train=False)
    assert lance_io.dataset(uri).get("id", [3, 2, 9])["id"].to_pylist() == [3, 2]


@pytest.mark.parametrize(
    ("url", "version"), [("/lance.table.SomeNewIndexDetails", 0), ("/lance.table.BTreeIndexDetails", 9)]
)
def test_an_unknown_index_is_left_alone_with_a_warning(folder: Path, url: str, version: int) -> None:
    table = lance.dataset(folder)
    covered = {fragment.fragment_id for fragment in table.get_fragments()}
    field = table.lance_schema.field("x").id()
    entry = Index(str(uuid4()), "new", [field], table.version, covered, version, index_details=(url, b""))
    lance.LanceDataset.commit(str(folder), lance.LanceOperation.CreateIndex([entry], []), table.version)
    ours = lance_io.dataset(folder)
    with pytest.warns(UserWarning, match="'new'"):
        assert ours.count_rows("x = 'value 12'") == 1
    assert ours.count_rows("x = 'value 13'") == 1  # no second warning


@pytest.mark.parametrize(
    ("column", "kind", "text"),
    [
        ("i", "BTree", "i = 5"),
        ("i", "Bitmap", "i = 5"),
        ("l", "LabelList", "array_has(l, 'a5')"),
        ("s", "NGram", "contains(s, 'word 5 ')"),
        ("i", "ZoneMap", "i = 5"),
    ],
)
def test_names_of_an_old_release_are_known(tmp_path: Path, column: str, kind: str, text: str) -> None:
    """pylance 0.36 had the details of these kinds in another package."""
    uri = str(tmp_path / "t")
    rows = pa.table({"i": range(90), "l": [[f"a{n}"] for n in range(90)], "s": [f"word {n} here" for n in range(90)]})
    table = lance.write_dataset(rows, uri)
    table.create_scalar_index(column, kind.upper() if kind != "LabelList" else "LABEL_LIST", name="new")
    (index,) = table.describe_indices()
    (segment,) = index.segments
    old, url = str(uuid4()), f"/lance.index.pb.{kind}IndexDetails"
    shutil.copytree(tmp_path / "t" / "_indices" / segment.uuid, tmp_path / "t" / "_indices" / old)
    entry = Index(old, "old", [*index.fields], 1, {0}, segment.index_version, index_details=(url, b""))
    table.drop_index("new")
    lance.LanceDataset.commit(uri, lance.LanceOperation.CreateIndex([entry], []), table.version)
    for library in (lance, lance_io):
        opened = library.dataset(uri)
        assert f"@old({kind})" in opened.scanner(filter=text).explain_plan()
        assert opened.to_table(filter=text)["i"].to_pylist() == [5]


@pytest.mark.parametrize(
    ("text", "parts", "comparisons"),
    [
        ("id = 5", 1, None),
        ("id >= 3900", 1, None),
        ("c = 3", 1, 1),
        ("c > 4", 2, 2),
        ("NOT (c = 3)", 1, 1),
        ("ts < timestamp '1970-01-01T00:00:30Z'", 0, 4),
        ("id = 5 AND c = 5", 2, None),
        ("x = 'value 5'", 0, 0),
    ],
)
def test_statistics_of_indices(folder: Path, text: str, parts: int, comparisons: int | None) -> None:
    """Those of pylance, cold and warm; a scan with no index counts 0."""
    ours, theirs = lance_io.dataset(folder), lance.dataset(folder)
    for hits, misses in ((0, parts), (parts, 0)):
        seen: list[Any] = []
        for table in (ours, theirs):
            options: dict[str, Any] = {"columns": ["x"], "filter": text, "scan_stats_callback": seen.append}
            table.scanner(**options).to_table()
        mine, other = ([each.indices_loaded, each.parts_loaded, each.index_comparisons] for each in seen)
        assert mine == other
        assert (seen[0].index_cache_hits, seen[0].index_cache_misses, mine[1]) == (hits, misses, misses)
        assert comparisons is None or mine[2] == comparisons
    assert "indices_loaded=0, parts_loaded=0" in ours.scanner(filter=text).analyze_plan()
