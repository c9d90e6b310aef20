"""Statistics of batches: what is written of them, and filters that use them, whose answer is that of a full scan."""

from __future__ import annotations

import datetime
import decimal
import pickle
import random
import struct
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.dataset.distributed import TablePlace, TableVersion
from lance_io.encodings.v0_1.write_statistics import ColumnStatistics
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.io.stats import io_stats
from tests.filters.test_zones import NEGATIVE_NAN, expression

if TYPE_CHECKING:
    from pathlib import Path

LEGACY = {"data_storage_version": "legacy"}
LAST = "\U0010ffff"

# what a batch holds, and what is to be known of it (spec: legacy 0.1, section 8)
WORKED: list[tuple[pa.Array, tuple[int, Any, Any]]] = [
    (pa.array([1.5, float("nan"), -2.0, None]), (1, struct.pack("<d", -2.0), struct.pack("<d", 1.5))),
    (pa.array([float("nan")] * 4), (0, struct.pack("<d", float("-inf")), struct.pack("<d", float("inf")))),
    (pa.array([0.0, -0.0, None, None]), (2, struct.pack("<d", -0.0), struct.pack("<d", 0.0))),
    (pa.array([None, None], pa.int8()), (2, b"\x80", b"\x7f")),
    (pa.array([None, 3, 1], pa.uint16()), (1, b"\x01\x00", b"\x03\x00")),
    (pa.array(["b", "", None, "a"]), (1, b"", b"b")),
    (pa.array(["a" * 64 + "b", "a" * 64, "a"]), (0, b"a", b"a" * 63 + b"b")),
    (pa.array(["é" * 40, "b", "c", None]), (1, b"b", ("é" * 31 + "ê").encode())),
    (pa.array([LAST * 20, "b"]), (0, b"b", None)),
    (pa.array([b"\xff" * 70, b"a"]), (0, b"a", None)),
    (pa.array([b"\xff" * 64, b"a"]), (0, b"a", b"\xff" * 64)),
    (pa.array(["z" * 65, ""]), (0, b"", b"z" * 63 + b"{")),
    (pa.array([None, None], pa.string()), (2, None, None)),
    (pa.array([True, None, True]), (1, True, True)),
    (pa.array([True, False]), (0, False, True)),
    (pa.array([None], pa.bool_()), (1, False, True)),
    (pa.array([None], pa.decimal128(10, 2)), (1, bytes(15) + b"\x80", b"\xff" * 15 + b"\x7f")),
]


@pytest.mark.parametrize("number", range(len(WORKED)))
def test_worked_cases(number: int) -> None:
    array, expected = WORKED[number]
    (field,) = schema_from_arrow(pa.schema([("c", array.type)])).fields
    found = ColumnStatistics(field)
    padded = pa.concat_arrays([array, array])  # two batches, alike
    size = len(array)
    found.add(padded, *(pa.array(ends).to_numpy() for ends in ([0, size], [size, 2 * size])))
    assert list(zip(found.null_counts, found.least, found.greatest, strict=True)) == [expected] * 2


def rows(dice: random.Random, num_rows: int = 400) -> pa.Table:
    numbers = sorted(dice.randrange(40) for _ in range(num_rows))
    floats: list[Any] = [number / 2 for number in numbers]
    texts: list[Any] = [f"t{number:02}" if number > 3 else "" for number in numbers]
    for _ in range(8):
        floats[dice.randrange(num_rows)] = dice.choice([float("nan"), NEGATIVE_NAN, float("inf"), -0.0, 0.0, None])
        texts[dice.randrange(num_rows)] = dice.choice([None, "z" * 70, "é" * 40, LAST * 20])
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=number) for number in numbers]
    return pa.table(
        {
            "i": pa.array([None if dice.random() < 0.02 else number for number in numbers], pa.int32()),
            "f": floats,
            "s": texts,
            "m": [{"u": number, "v": f"v{number:02}"} for number in numbers],
            "b": [number > 20 for number in numbers],
            "day": days,
            "d": pa.array([decimal.Decimal(number) for number in numbers], pa.decimal128(10, 2)),
            "bytes": [b"%02d" % number for number in numbers],
            "n": range(num_rows),
        }
    )


@pytest.mark.filterwarnings("ignore:files of version 0.1 hold no nulls:UserWarning")
@pytest.mark.parametrize("library", [lance, lance_io])
@pytest.mark.parametrize("seed", range(3))
def test_a_filter_gives_what_a_full_scan_gives(seed: int, library: Any, tmp_path: Path) -> None:
    dice = random.Random(seed)
    uri = str(tmp_path / "t")
    options = {"max_rows_per_group": dice.choice((7, 16, 50)), "max_rows_per_file": 150, **LEGACY}
    library.write_dataset(rows(dice), uri, **options)
    lance.dataset(uri).delete("n % 17 = 3")
    if seed:
        lance.dataset(uri).add_columns({"twice": "n * 2"})  # a second file for every fragment
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    more = ["day < date '2020-01-09'", "day = date '2020-01-20'", "d >= 30", "n between 100 and 120", "n in (1, 399)"]
    if seed:
        more += ["twice = 300 and n > 20", "twice < 40 or i = 39"]
    skipped = 0
    for text in more + [expression(dice, dice.randrange(4)) for _ in range(40)]:
        told: list[Any] = []
        asked = {"columns": ["n"], "filter": text, "with_row_id": True}
        got = ours.to_table(**asked, scan_stats_callback=told.append)
        assert got.equals(ours.to_table(**asked, use_stats=False)), text
        want = theirs.scanner(**asked, use_stats=False).to_table()
        assert got["n"].to_pylist() == want["n"].to_pylist(), text
        skipped += told[0].all_counts.get("batches_skipped", 0)
        assert ours.count_rows(text) == len(got)
    assert skipped > 100


def test_a_plan_says_what_is_skipped(tmp_path: Path) -> None:
    table = lance_io.write_dataset(pa.table({"i": range(1000)}), str(tmp_path / "t"), max_rows_per_group=100, **LEGACY)
    assert "Statistics: batches=10, skipped=9" in table.scanner(filter="i = 250").explain_plan()
    assert "Statistics" not in table.scanner(filter="i = 250", use_stats=False).explain_plan()
    assert "Statistics" not in table.scanner(filter="abs(i) = 250").explain_plan()  # which could fail


def test_nulls_are_found_where_pylance_loses_them(tmp_path: Path) -> None:
    """With statistics pylance says that there is no null; the rows that it gives without are the right ones."""
    lance.write_dataset(pa.table({"s": ["a", None, "b", None]}), str(tmp_path / "t"), max_rows_per_group=2, **LEGACY)
    assert lance_io.dataset(str(tmp_path / "t")).to_table(filter="s is null").num_rows == 2


def test_parts_of_a_scan_elsewhere(tmp_path: Path) -> None:
    """What travels has the values of dictionaries, and skips batches, too."""
    rows = pa.table({"i": range(3000), "d": pa.array([f"word {i % 5}" for i in range(3000)]).dictionary_encode()})
    uri = str(tmp_path / "t")
    lance.write_dataset(rows, uri, max_rows_per_group=100, max_rows_per_file=1000, **LEGACY)
    place = TablePlace.of_process(uri, {})
    version = TableVersion.open(place)
    scan = version.scan(columns=[("i",), ("d",)], filter="i between 1250 and 1260")
    parts = version.parts(scan, part_bytes=1, num_parts=4)
    sent = [pickle.dumps((scan, part)) for part in parts]
    found = []
    with io_stats() as seen:
        for one in sent:
            there, part = pickle.loads(one)
            found += list(there.read(place, part, batch_bytes=1 << 20))
    assert pa.Table.from_batches(found).to_pylist() == rows.slice(1250, 11).to_pylist()
    whole = sum(path.stat().st_size for path in (tmp_path / "t" / "data").iterdir())
    assert seen.snapshot().bytes_read < whole * 3 // 4 + 3 * 4096  # the ends of files, and one batch
