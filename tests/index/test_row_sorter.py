"""The sort of pairs against Python's, in memory and through runs on disk; and bitmaps against pyroaring."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from lance_io.changes.join.spilled_batches import SpilledBatches
from lance_io.index.build import bloom_files, map_bytes, row_sorter
from lance_io.index.build.bloom_blocks import filter_bytes, filter_of, value_hashes
from lance_io.index.build.bloom_files import BloomFilterBuilder
from lance_io.index.build.json_values import JsonBuilder
from lance_io.index.build.map_bytes import RowMap, containers_of, encode_maps
from lance_io.index.build.row_sorter import RowSorter
from lance_io.index.build.sort_keys import Comparable
from lance_io.index.build.zone_cuts import ZoneCutter
from lance_io.index.build.zone_files import ZoneMapBuilder
from lance_io.index.details import Space
from lance_io.index.rows.tree_maps import decode_tree_map, decode_treemap64, tree_map_runs_max, treemap64_runs_max
from lance_io.levels.arrays import distinct
from tests.seeds import seeded

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1))),
    "uint8": (pa.uint8(), st.integers(0, 255)),
    "float64": (pa.float64(), st.floats()),
    "float32": (pa.float32(), st.floats(width=32)),
    "string": (pa.string(), st.text("aé\0z", max_size=4)),
    "binary": (pa.large_binary(), st.binary(max_size=3)),
    "bool": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(5, 1), st.decimals(-999, 999, places=1)),
}


def key(value: Any) -> tuple[Any, ...]:
    """The order of the specification, from Python's own: IEEE's total order for floats."""
    if value is None:
        return ()
    if isinstance(value, float):
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        return (bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF),)
    return (value.encode() if isinstance(value, str) else value,)


class Held:
    """A store in memory that counts the batches it takes."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def get(self, number: int) -> pa.RecordBatch:
        return self.batches[number]

    def __len__(self) -> int:
        return len(self.batches)

    def close(self) -> None:
        self.batches = []


@seeded
@settings(max_examples=80)
@given(st.sampled_from(sorted(VALUES)), st.data())
def test_pairs_come_in_order(name: str, data: Any) -> None:
    """However many runs there are, and in whatever order rows come."""
    dtype, values = VALUES[name]
    drawn = data.draw(st.lists(st.one_of(st.none(), values), max_size=60))
    rows = data.draw(st.permutations(range(len(drawn))))
    pieces = data.draw(st.integers(1, 12))
    limit = data.draw(st.sampled_from([1, 200, 1 << 20]))
    store = Held()
    sorter = RowSorter(dtype, store, limit)
    for start in range(0, len(drawn), pieces):
        array = pa.array(drawn[start : start + pieces], dtype)
        sorter.add(array, np.array(rows[start : start + pieces], np.uint64))
    result = [pair for values, ids in sorter.sorted() for pair in zip(values.to_pylist(), ids.tolist(), strict=True)]
    stored = pa.array(drawn, dtype).to_pylist()  # a float32 is rounded
    expected = sorted(zip(stored, rows, strict=True), key=lambda pair: (key(pair[0]), pair[1]))
    assert list(map(repr, result)) == list(map(repr, expected))
    assert (len(store) > 0) == (limit == 1 and bool(drawn)) or limit == 200


@pytest.mark.parametrize("dtype", [pa.int64(), pa.string()])
def test_runs_on_disk_hold_little_memory(dtype: pa.DataType) -> None:
    """Forty times the limit are sorted by blocks of each run: one block of each is in memory at a time."""
    rng = np.random.default_rng(1)
    store = SpilledBatches()
    limit = 1 << 20
    sorter = RowSorter(dtype, store, limit)
    numbers = rng.permutation(1 << 19)
    for start in range(0, len(numbers), 1 << 14):
        part = numbers[start : start + (1 << 14)]
        values = pa.array(part) if dtype == pa.int64() else pa.array([f"{n:08d}" for n in part])
        sorter.add(values, np.arange(start, start + len(part), dtype=np.uint64))
    before = pa.total_allocated_bytes()
    total, last, largest = 0, None, 0
    for values, rows in sorter.sorted():
        largest = max(largest, pa.total_allocated_bytes() - before)
        assert len(values) <= 1 << 16  # what builders make of a row is bounded, too
        assert values.to_pylist() == sorted(values.to_pylist())
        assert last is None or values[0].as_py() > last
        assert (numbers[rows.astype(np.int64)] == [int(value) for value in values.to_pylist()]).all()
        last, total = values[-1].as_py(), total + len(values)
    assert total == len(numbers)
    assert len(store) > 40
    assert largest < 12 * limit
    sorter.close()
    assert len(store) == 0


@seeded
@settings(max_examples=60)
@given(st.lists(st.sets(st.integers(0, 1 << 34), min_size=1, max_size=30), min_size=1, max_size=6), st.booleans())
def test_maps_are_those_of_another_library(groups: list[set[int]], dense: bool) -> None:
    rows_of = [np.array(sorted(group), np.uint64) for group in groups]
    if dense:  # containers of bits, next to small ones
        rows_of[0] = np.unique(np.concatenate([rows_of[0], np.arange(70_000, dtype=np.uint64) * np.uint64(3)]))
    keys = np.repeat(np.arange(len(rows_of)), [len(rows) for rows in rows_of])
    containers = containers_of(np.concatenate(rows_of), keys)
    for rows, data in zip(rows_of, encode_maps(containers, sized=False).to_pylist(), strict=True):
        assert list(BitMap64.deserialize(data)) == rows.tolist()
        assert len(decode_treemap64(data, Space.IDS).starts) <= treemap64_runs_max(data) <= len(rows)
    for rows, data in zip(rows_of, encode_maps(containers).to_pylist(), strict=True):
        assert decoded(data) == rows.tolist()
        row_set = decode_tree_map(data, Space.ADDRESSES)
        assert row_set.rows().tolist() == rows.tolist()
        assert len(row_set.starts) <= tree_map_runs_max(data) <= len(rows)
    growing = RowMap()
    for part in np.array_split(rows_of[0], 5):
        growing.add(part)
    assert decoded(growing.encode()) == rows_of[0].tolist()
    growing.add(rows_of[0][:1])  # out of order
    assert decoded(growing.encode()) == rows_of[0].tolist()


@pytest.mark.parametrize("order", ["ascending", "descending", "interleaved", "shuffled"])
def test_rows_in_any_order_take_little_memory(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third row of a fragment: 16 MiB as numbers, 16 bits a row or less when they are compressed."""
    monkeypatch.setattr(map_bytes, "_HELD_ROWS_MAX", 1 << 16)
    monkeypatch.setattr(map_bytes, "_MERGED_ROWS", 1 << 16)
    rows = (np.uint64(7) << np.uint64(32)) + np.arange(1 << 21, dtype=np.uint64) * np.uint64(3)
    pieces = np.array_split(rows, 64)
    if order == "descending":
        pieces.reverse()
    elif order == "interleaved":
        pieces = [rows[start::64] for start in range(64)]
    elif order == "shuffled":
        pieces = np.array_split(np.random.default_rng(3).permutation(rows), 64)
    growing = RowMap()
    tracemalloc.start()
    for piece in pieces:
        growing.add(piece.copy())
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3 << 20
    assert peak < 10 << 20
    data = growing.encode()
    assert data[:8] == (1).to_bytes(4, "little") + (7).to_bytes(4, "little")
    assert (np.array(BitMap.deserialize(data[12:]).to_array()) == rows.astype(np.uint32)).all()


@seeded
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 1 << 18) | st.integers(0, 1 << 34), max_size=40), max_size=12), st.booleans())
def test_rows_in_any_order_are_a_set(pieces: list[list[int]], dense: bool) -> None:
    """Rows that come twice, out of order, and compressed after every few."""
    growing, given_rows = RowMap(), [np.array(piece, np.uint64) for piece in pieces]
    if dense:
        given_rows += [np.arange(0, 70_000, 2, dtype=np.uint64), np.arange(1, 70_000, 3, dtype=np.uint64)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(map_bytes, "_HELD_ROWS_MAX", 10)
        patch.setattr(map_bytes, "_MERGED_ROWS", 30)
        for rows in given_rows:
            growing.add(rows)
        for _ in range(2):
            assert decoded(growing.encode()) == sorted({row for rows in given_rows for row in rows.tolist()})


def decoded(data: bytes) -> list[int]:
    """A RowAddrTreeMap."""
    count, at, rows = int.from_bytes(data[:4], "little"), 4, []
    for _ in range(count):
        upper, size = (int.from_bytes(data[at + n : at + n + 4], "little") for n in (0, 4))
        rows += [upper << 32 | low for low in BitMap.deserialize(data[at + 8 : at + 8 + size])]
        at += 8 + size
    assert at == len(data)
    return rows


def test_hashes_and_sizes_of_filters() -> None:
    """The check values of the specification, and of the public xxHash."""
    texts = {"": 0xEF46DB3751D8E999, "abc": 0x44BC2CF5AD770999}
    assert value_hashes(pa.array(texts)).tolist() == [*texts.values()]
    assert value_hashes(pa.array([None, *texts]).slice(1)).tolist() == [*texts.values()]
    (number,) = value_hashes(pa.array([42])).tolist()
    assert number == 0xB556806FB6D14353
    words = "00010000 80000000 00000040 00400000 00040000 00800000 00000008 10000000"
    assert filter_of(value_hashes(pa.array([42])), 32) == bytes.fromhex(words)
    sizes = {(8192, 0.00057): 32768, (8192, 0.01): 16384, (8192, 0.1): 8192, (1000, 0.01): 2048, (100, 0.1): 128}
    assert {terms: filter_bytes(*terms) for terms in sizes} == sizes


def test_runs_are_bounded_for_any_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow joins at most 2 GiB of texts, however much memory there is."""
    monkeypatch.setattr(row_sorter, "LIMIT_BYTES_MAX", 1 << 20)
    store = Held()
    sorter = RowSorter(pa.string(), store, 1 << 40)
    for number in range(30):
        sorter.add(pa.array([f"{number * 7 % 30:02}" + "x" * 9_998]), np.array([number], np.uint64))
    assert len(store) > 0
    assert [text[:2] for values, _ in sorter.sorted() for text in values.to_pylist()] == [f"{n:02}" for n in range(30)]


@seeded
@given(st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 9)))
def test_distinct_numbers(numbers: list[int]) -> None:
    given_numbers = np.array(numbers, np.uint64)
    assert distinct(given_numbers).tolist() == sorted(set(numbers))
    assert given_numbers.tolist() == numbers


def cut_zones(live: np.ndarray[Any, Any], step: int) -> list[tuple[int, int, int]]:
    """Start, length and live rows of zones of ten rows, cut from batches of `step` rows."""
    looked_at: list[int] = []
    cutter, zones = ZoneCutter(10, lambda values: looked_at.append(len(values))), []
    for start in range(0, len(live) + step, step):
        part = live[start : start + step]
        for zone in cutter.add(pa.array(part), part) if len(part) else cutter.finish():
            zones.append((zone.start, zone.length, sum(looked_at)))
            looked_at.clear()
    return zones


def test_zones_count_live_rows() -> None:
    """The example of the specification: deleted rows between the live ones count for the length."""
    gone = {*range(3), *range(10, 15), *range(29, 32), 49}
    live = np.array([offset for offset in range(50) if offset not in gone], np.uint64)
    for step in (1, 7, 50):
        assert cut_zones(live, step) == [(3, 15, 10), (18, 10, 10), (28, 13, 10), (41, 8, 8)]


@pytest.mark.parametrize("zone_rows", [8, 1 << 20])
@pytest.mark.parametrize("kind", ["zones", "filters"])
def test_zones_keep_no_values(kind: str, zone_rows: int) -> None:
    """Whether zones are many or large, a build holds a few of the values that it has seen."""
    builder: Any = ZoneMapBuilder(pa.string(), zone_rows)
    if kind == "filters":
        builder = BloomFilterBuilder(zone_rows, 0.01, Held())
    before = pa.total_allocated_bytes()
    for number in range(40):
        values = pa.array([f"{number:03}" + "x" * (1 << 16)] * 16)
        builder.add(values, np.arange(16 * number, 16 * number + 16, dtype=np.uint64))
        del values
    held = pa.total_allocated_bytes() - before
    assert held < 12 << 20  # of 40 MiB: zones of eight rows keep 160 values of 64 KiB
    (file,) = builder.files()
    rows = pa.Table.from_batches(file.batches)
    assert rows.num_rows == -(-640 // zone_rows)
    if kind == "zones":
        assert min(rows["min"].to_pylist())[:3] == "000" and max(rows["max"].to_pylist())[:3] == "039"


def test_filters_of_zones_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values go into the filter of a large zone now and then, also the last ones of it."""
    monkeypatch.setattr(bloom_files, "_HASHES_MAX", 16)
    values, num_items = pa.array(range(250)), 100
    num_bytes = filter_bytes(num_items, 0.1)
    wanted = [filter_of(value_hashes(values.slice(start, num_items)), num_bytes) for start in (0, 100, 200)]
    for step in (1, 7, 17, 25, 50, 250):
        builder = BloomFilterBuilder(num_items, 0.1, Held())
        for start in range(0, 250, step):
            part = values.slice(start, step)
            builder.add(part, np.arange(start, start + len(part), dtype=np.uint64))
        (file,) = builder.files()
        assert pa.Table.from_batches(file.batches)["bloom_filter_data"].to_pylist() == wanted, step


def test_documents_without_a_value_take_little_memory() -> None:
    """Until the first value, a build knows no type to sort them by."""
    seen: list[np.ndarray[Any, Any]] = []

    class Kept:
        def add(self, values: pa.Array, rows: np.ndarray[Any, Any]) -> None:
            assert values.type == pa.int64() and len(values) == len(rows)
            seen.append(rows)

    builder = JsonBuilder("a", lambda _: Kept())  # type: ignore[return-value]
    tracemalloc.start()
    for start in range(0, 1 << 20, 1 << 16):
        builder.add(pa.nulls(1 << 16, pa.string()), np.arange(start, start + (1 << 16), dtype=np.uint64))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1 << 20  # of 8 MiB
    builder.add(pa.array(["7", None]), np.arange(1 << 20, (1 << 20) + 2, dtype=np.uint64))
    assert np.concatenate(seen).tolist() == [*range((1 << 20) + 2)]


def test_long_values_are_compared_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of values with blocks of their own, a merge makes one key each, however many runs there are."""
    made: list[int] = []
    plain = Comparable.__getitem__

    def counted(self: Comparable, position: int) -> tuple[Any, ...]:
        made.append(position)
        return plain(self, position)

    monkeypatch.setattr(Comparable, "__getitem__", counted)
    values = [f"{'x' * 70_000}{number * 7919 % 120:04}" for number in range(120)]
    sorter = RowSorter(pa.string(), Held(), 1 << 20)
    for row, value in enumerate(values):
        sorter.add(pa.array([value]), np.array([row], np.uint64))
    result = [value for piece, _ in sorter.sorted() for value in piece.to_pylist()]
    assert result == sorted(values)
    assert len(made) == len(values)
