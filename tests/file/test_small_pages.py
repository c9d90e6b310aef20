"""Small pages of many columns from one kernel call: files as the way page by page makes them, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from lance_io import _kernels
from lance_io.encodings.write_small import encode_small_pages, page_rules
from lance_io.file.write import leaf_queues
from lance_io.file.write.writers import LanceFileWriter

if TYPE_CHECKING:
    from pathlib import Path

TYPES = [
    pa.int8(),
    pa.uint16(),
    pa.int32(),
    pa.int64(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.timestamp("us"),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.decimal128(20, 0),
]
MADE_BY_KERNEL = TYPES[:-1]
# What files have been written by so far: a number that changes, changes files.
RULES = {
    "chunk_target_bytes": 4096,
    "chunk_levels_max": 65535,
    "large_value_bytes": 256,
    "coded_value_bytes_min": 5,
    "coded_page_bytes_min": 32768,
    "dictionary_values_min": 100,
    "dictionary_items_max": 100_000,
    "dictionary_divisor": 2,
    "dictionary_size_ratio": 0.8,
    "index_bits": 32,
}
NULL_SHARES = [0, 0.01, 0.5, 0.99, 1]


def values(rng: np.random.Generator, dtype: pa.DataType, num_rows: int) -> pa.Array:
    """Constant, few, many or sorted values; strings of one length or several, some long; under nulls anything."""
    numbers = rng.integers(0, rng.choice([1, 2, 3, 100, 30_000]), num_rows)
    if rng.random() < 0.3:
        numbers.sort()
    if pa.types.is_boolean(dtype):
        made = pa.array(numbers % 2 == 1)
    elif dtype in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        padding = "x" * int(rng.choice([0, 1, 7, 40, 300]))
        made = pa.array([f"{number}{padding}" if number else padding for number in numbers]).cast(dtype)
    elif pa.types.is_floating(dtype):
        made = pa.array((rng.random(num_rows) if rng.random() < 0.5 else numbers % 7).astype(dtype.to_pandas_dtype()))
    else:
        made = pa.array(numbers % 127).cast(pa.int32() if dtype == pa.date32() else pa.int64()).cast(dtype)
    is_valid = rng.random(num_rows) >= rng.choice(NULL_SHARES)
    validity = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(dtype, num_rows, [validity, *made.buffers()[1:]])


def table(seed: int, num_rows: int) -> pa.Table:
    """Columns of all types in random order, sliced."""
    rng = np.random.default_rng(seed)
    skipped = int(rng.integers(0, 9))
    types = [TYPES[at] for at in rng.permutation(np.repeat(np.arange(len(TYPES)), 3))]
    columns = [values(rng, dtype, skipped + num_rows).slice(skipped) for dtype in types]
    return pa.table(columns, names=[f"c{at}" for at in range(len(types))])


def write(path: Path, rows: pa.Table, version: str) -> bytes:
    with LanceFileWriter(path, rows.schema, version=version) as writer:
        writer.write_batch(rows)
    return path.read_bytes()


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("num_rows", [1, 3, 100, 1025, 5000])
def test_files_are_those_of_the_way_page_by_page(
    num_rows: int, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table(num_rows, num_rows)
    together = write(tmp_path / "together.lance", rows, version)
    monkeypatch.setattr(leaf_queues, "SMALL_PAGE_BYTES_MAX", -1)
    assert write(tmp_path / "alone.lance", rows, version) == together
    read = LanceFileReader(str(tmp_path / "together.lance")).read_all().to_table()
    for name in rows.column_names:
        assert read[name].to_pylist() == rows[name].to_pylist(), rows[name].type


def test_plain_columns_of_a_file_are_made_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(columns, version):
        calls.append((len(columns), runs := encode_small_pages(columns, version)))
        return runs

    monkeypatch.setattr(leaf_queues, "encode_small_pages", counted)
    made = [pa.array(["a", "b", "c"]) if at % 2 else pa.array([1, None, at + 2]) for at in range(300)]
    write(tmp_path / "wide.lance", pa.table(made, names=[str(at) for at in range(300)]), "2.2")
    ((num_columns, runs),) = calls
    assert num_columns == 300
    assert [(first, len(pages)) for first, pages in runs] == [(0, 300)]


@pytest.mark.parametrize("dtype", MADE_BY_KERNEL, ids=str)
def test_buffers_that_are_too_short_are_left_to_the_caller(dtype: pa.DataType) -> None:
    kind = 16 if dtype == pa.string() else 18 if dtype == pa.binary() else 0 if pa.types.is_boolean(dtype) else None
    if kind is None:
        kind = 17 if dtype == pa.large_string() else 19 if dtype == pa.large_binary() else dtype.bit_width // 8
    many = 1 << 62
    for offset, length in [(0, 99), (99, 1), (many, many), (0, many), (many, 1)]:
        columns = [(kind, offset, length, False, [None, b"\0" * 8, b""])]
        assert _kernels.encode_small_pages(columns, page_rules(True)) == []
    columns = [(kind, 0, 64, True, [b"\0", b"\0" * 1024, b""])]
    assert _kernels.encode_small_pages(columns, page_rules(True)) == []


def test_kinds_that_are_unknown_are_refused() -> None:
    with pytest.raises(ValueError, match="kind 3"):
        _kernels.encode_small_pages([(3, 0, 1, False, [None, b"\0" * 8])], page_rules(True))


TEXTS = pa.array([f"number {row}" for row in range(200)])
FEW = pa.array([f"value {row % 9}" for row in range(200)])
NUMBERS = pa.array([row * 7919 % 50 * 10**15 for row in range(400)])


@pytest.mark.parametrize(
    ("changed", "rows", "is_wide"),
    [
        ({"large_value_bytes": 4}, TEXTS, True),
        ({"coded_page_bytes_min": 100, "coded_value_bytes_min": 4}, TEXTS, True),
        ({"dictionary_values_min": 1000}, FEW, True),
        ({"dictionary_size_ratio": 0.0}, FEW, True),
        ({"dictionary_values_min": 1000}, NUMBERS, True),
        ({"wide_chunks": False}, NUMBERS, True),
        ({"chunk_target_bytes": 256}, TEXTS, True),
        ({"chunk_levels_max": 32}, TEXTS, True),
    ],
)
def test_each_threshold_is_the_callers(changed: dict[str, Any], rows: pa.Array, is_wide: bool) -> None:
    """Another number makes another page, or leaves it to the caller who has it."""
    kind = 16 if pa.types.is_string(rows.type) else 8

    def made(rules: _kernels.PageRules) -> list[bytes]:
        columns = [(kind, 0, len(rows), False, rows.buffers())]
        return [bytes(pages.data) for _, pages in _kernels.encode_small_pages(columns, rules)]

    given: dict[str, Any] = {**RULES, "wide_chunks": is_wide}
    assert made(_kernels.PageRules(**given)) == made(page_rules(is_wide))
    assert made(_kernels.PageRules(**{**given, **changed})) != made(page_rules(is_wide))
