"""Where batches of a scan end for their bytes: at the same rows however these are stored, read and filtered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lance_io
from lance_io.levels import row_bytes
from lance_io.levels.row_bytes import RowBytes
from lance_io.limits import MIB
from lance_io.reads.rows import rebatch

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 400
BATCH_BYTES = 5000


def values_bytes(value: Any, dtype: pa.DataType) -> float:
    """Bytes of a value, counted as the documentation says."""
    if pa.types.is_string(dtype) or pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype):
        text = value.encode() if isinstance(value, str) else value
        return (8 if pa.types.is_large_binary(dtype) else 4) + len(text or b"")
    if pa.types.is_struct(dtype):
        members = [dtype.field(place) for place in range(dtype.num_fields)]
        return sum(values_bytes((value or {}).get(one.name), one.type) for one in members)
    if pa.types.is_list(dtype):
        return 4 + sum(values_bytes(item, dtype.value_type) for item in value or ())
    if pa.types.is_fixed_size_list(dtype):
        return dtype.list_size * values_bytes(None, dtype.value_type)
    return dtype.bit_width / 8


def greedy(rows: pa.Table, bytes_max: float, rows_max: int) -> list[int]:
    """Rows of batches that end before one passes the bound, one row at least."""
    types = rows.schema.types
    counts, used = [0], 0.0
    for row in rows.to_pylist():
        more = sum(values_bytes(value, dtype) for value, dtype in zip(row.values(), types, strict=True))
        if counts[-1] and (used + more > bytes_max or used >= bytes_max or counts[-1] == rows_max):
            counts.append(0)
            used = 0.0
        counts[-1] += 1
        used += more
    return [count for count in counts if count]


def table(compression: str) -> pa.Table:
    dice = np.random.default_rng(11)
    lengths = dice.integers(0, 40, ROWS) ** 2
    texts = [None if n % 9 == 5 else chr(97 + n % 3) * int(lengths[n]) for n in range(ROWS)]
    schema = pa.schema(
        [
            ("key", pa.int64()),
            ("flag", pa.bool_()),
            pa.field("text", pa.string(), metadata={"lance-encoding:compression": compression}),
            pa.field("large", pa.large_binary(), metadata={"lance-encoding:compression": compression}),
            ("vector", pa.list_(pa.float32(), 3)),
            ("struct", pa.struct([("x", pa.int16()), ("y", pa.string())])),
            ("lists", pa.list_(pa.string())),
        ]
    )
    columns = [
        range(ROWS),
        [n % 2 == 0 for n in range(ROWS)],
        texts,
        [None if n % 50 == 7 else b"z" * (4000 if n % 31 == 0 else n % 17) for n in range(ROWS)],
        [[float(n)] * 3 for n in range(ROWS)],
        [{"x": n, "y": "y" * (n % 5)} for n in range(ROWS)],
        [["abc"[: n % 4]] * (n % 6) for n in range(ROWS)],
    ]
    return pa.table([pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)], schema=schema)


CASES = [
    ("legacy", "none"),
    ("2.0", "none"),
    ("2.0", "zstd"),
    *[(v, c) for v in ("2.1", "2.2") for c in ("none", "fsst", "lz4", "zstd")],
]


@pytest.mark.parametrize(("version", "compression"), CASES)
def test_batches_end_at_the_same_rows_however_they_are_stored(tmp_path: Path, version: str, compression: str) -> None:
    rows, uri = table(compression), str(tmp_path / "t.lance")
    lance.write_dataset(rows, uri, data_storage_version=version, max_rows_per_file=150, max_rows_per_group=64)
    ds = lance_io.dataset(uri)
    counts = [fragment.count_rows() for fragment in lance.dataset(uri).get_fragments()]
    starts = np.cumsum([0, *counts[:-1]]).tolist()
    expected = [
        count
        for start, num_rows in zip(starts, counts, strict=True)
        for count in greedy(rows.slice(start, num_rows), BATCH_BYTES, 50)
    ]
    options: dict[str, Any] = {"batch_size_bytes": BATCH_BYTES, "batch_size": 50}
    assert [batch.num_rows for batch in ds.to_batches(**options)] == expected
    assert pa.Table.from_batches(ds.to_batches(**options)).equals(lance.dataset(uri).to_table())
    kept = rows.filter(np.arange(ROWS) % 3 != 1)
    filtered = [batch.num_rows for batch in ds.to_batches(filter="key % 3 != 1", **options)]
    assert filtered == greedy(kept, BATCH_BYTES, 50)

    async def on_a_loop() -> list[int]:
        found = await lance_io.AsyncDataset.open(uri)
        counts = [batch.num_rows async for batch in found.to_batches(**options)]
        await found.aclose()
        return counts

    assert asyncio.run(on_a_loop()) == expected


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """150 values of 1 MiB in a file of some kilobytes."""
    uri = str(tmp_path_factory.mktemp("compressed") / "t.lance")
    schema = pa.schema([pa.field("m", pa.large_binary(), metadata={"lance-encoding:compression": "zstd"})])
    rows = (pa.record_batch([pa.array([bytes(MIB)], pa.large_binary())], schema=schema) for _ in range(150))
    lance_io.write_dataset(rows, uri, schema=schema)
    return uri


def test_batches_that_nobody_counts_have_at_most_64_mib(compressed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = lance_io.dataset(compressed)
    assert [batch.num_rows for batch in ds.to_batches()] == [63, 63, 24]
    assert [batch.num_rows for batch in ds.to_batches(filter="m is not null")] == [63, 63, 24]
    assert [batch.num_rows for batch in ds.to_batches(batch_size=100)] == [100, 50]
    assert [batch.num_rows for batch in ds.to_batches(strict_batch_size=True)] == [150]
    assert [batch.num_rows for batch in ds.to_batches(batch_size_bytes=1)] == [1] * 150
    monkeypatch.setenv("LANCE_DEFAULT_BATCH_SIZE", "120")
    assert [batch.num_rows for batch in ds.to_batches()] == [120, 30]


@pytest.mark.parametrize(
    "options", [{"batch_size": 8192}, {"filter": "k >= 0", "batch_size": 8192}, {"order_by": ["k"]}]
)
def test_no_batch_has_more_text_than_offsets_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Offsets of 32 bits are taken to reach 3,000 bytes."""
    monkeypatch.setattr(row_bytes, "NARROW_MAX", 3000)
    monkeypatch.setattr(rebatch, "NARROW_MAX", 3000)
    rows = pa.table(
        {
            "k": range(64),
            "s": ["s" * 100] * 64,
            "l": [[1] * 10] * 64,
            "n": [[b"n" * 60, b""]] * 64,
            "m": pa.array([[("key", "v" * 40)]] * 64, pa.map_(pa.string(), pa.string())),
        }
    )
    uri = str(tmp_path / "t.lance")
    lance_io.write_dataset(rows, uri, max_rows_per_file=8)
    batches = list(lance_io.dataset(uri).to_batches(strict_batch_size=True, **options))
    assert [batch.num_rows for batch in batches] == [30, 30, 4]
    assert pa.Table.from_batches(batches) == rows


@given(st.lists(st.none() | st.lists(st.none() | st.binary(max_size=9), max_size=4), max_size=12), st.data())
def test_rows_are_counted_one_by_one(values: list[Any], data: st.DataObject) -> None:
    lists = pa.array(values, pa.list_(pa.binary()))
    array = pa.StructArray.from_arrays([lists, pa.array(range(len(values)), pa.int16())], ["a", "b"])
    start = data.draw(st.integers(0, len(values)))
    sizes = RowBytes([array.slice(start)])
    each = [values_bytes(one, array.type) for one in array.slice(start).to_pylist()]
    assert [sizes.bits_before(row) / 8 for row in range(len(each) + 1)] == [
        sum(each[:row]) for row in range(len(each) + 1)
    ]


def test_what_nulls_hide_is_not_counted() -> None:
    offsets = pa.array([0, 5, 9, 10], pa.int32())
    hidden = pa.Array.from_buffers(
        pa.binary(), 3, [pa.py_buffer(b"\x05"), offsets.buffers()[1], pa.py_buffer(b"x" * 10)], 1
    )
    assert [RowBytes([hidden]).bits_before(row) // 8 for row in range(4)] == [0, 9, 13, 18]
