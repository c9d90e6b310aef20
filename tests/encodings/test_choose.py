"""Which layout and codec a page gets, as readers describe it; and sizes beside those of pylance."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io.encodings.leafvalues import leaf_values
from lance_io.encodings.open_page import rules_for
from lance_io.encodings.options import ColumnOptions
from lance_io.encodings.v2_1 import write_dictionary
from lance_io.encodings.v2_1.write_dictionary import split_dictionary
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.levels.path import leaf_paths
from tests.encodings.cases import sentences
from tests.encodings.container import reopen
from tests.encodings.harness import write
from tests.encodings.test_write_pages import VERSIONS, encode, save

if TYPE_CHECKING:
    from pathlib import Path

DICE = np.random.default_rng(8)
N = 8192


def table_of(array: pa.Array, options: dict[str, str] | None = None) -> pa.Table:
    metadata = {f"lance-encoding:{key}": value for key, value in (options or {}).items()}
    return pa.Table.from_arrays([array], schema=pa.schema([pa.field("c", array.type, metadata=metadata or None)]))


def described(array: pa.Array, version: str, options: dict[str, str] | None = None) -> str:
    table = table_of(array, options)
    path = leaf_paths(schema_from_arrow(table.schema).fields[0])[0]
    pages = encode(table, VERSIONS[version])[0]
    layouts = [reopen(page, path, VERSIONS[version])[0].describe() for page in pages]
    return " + ".join(f"{each.layout} {each.codec}" for each in layouts)


ASCENDING = pa.array(np.arange(N))
FULL = pa.array(DICE.integers(-(2**62), 2**62, N))
RUNS = pa.array(np.repeat(DICE.integers(-(2**62), 2**62, N // 64), 64))
FEW_WORDS = pa.array([f"word {i * i % 10}" for i in range(N)])
TEXT = pa.array(sentences())


@pytest.mark.parametrize(
    ("array", "options", "version", "expected"),
    [
        (ASCENDING, {}, "2.1", "mini-block inline_bitpacking(64)"),
        (ASCENDING, {"compression": "none"}, "2.1", "mini-block flat(64)"),
        (ASCENDING, {"compression": "zstd"}, "2.1", "mini-block zstd(byte_stream_split(64))"),
        (ASCENDING, {"compression": "zstd", "bss": "off"}, "2.1", "mini-block zstd(inline_bitpacking(64))"),
        (FULL, {}, "2.2", "mini-block flat(64)"),
        (FULL, {"compression": "lz4", "bss": "off"}, "2.1", "mini-block flat(64)"),  # nothing to gain
        (RUNS, {}, "2.1", "mini-block rle(64)"),
        (RUNS, {"rle-threshold": "0.01"}, "2.1", "mini-block flat(64)"),
        (RUNS, {}, "2.2", "mini-block rle(64)"),
        (pa.array(FULL.to_numpy()[:50].repeat(3)[DICE.integers(0, 150, N)]), {}, "2.2",
         "mini-block dictionary(50 x flat(64), inline_bitpacking(32))"),
        (pa.array(np.arange(N) % 50), {}, "2.2", "mini-block inline_bitpacking(64)"),
        (pa.array(np.full(N, 7)), {}, "2.2", None),
        (FEW_WORDS, {}, "2.1", "mini-block dictionary(6 x variable(32), inline_bitpacking(32))"),
        (FEW_WORDS, {"dict-divisor": "100000"}, "2.1", "mini-block fsst(variable(32))"),
        (TEXT, {}, "2.1", "mini-block fsst(variable(32))"),
        (TEXT.cast(pa.large_string()), {}, "2.2", "mini-block fsst(variable(64))"),
        (TEXT.cast(pa.binary()), {}, "2.1", "mini-block variable(32)"),
        (TEXT.cast(pa.binary()), {"compression": "fsst"}, "2.1", "mini-block fsst(variable(32))"),
        (TEXT, {"compression": "none"}, "2.1", "mini-block variable(32)"),
        (TEXT, {"structural-encoding": "fullzip"}, "2.1", "full-zip fsst(variable(32))"),
        (pa.array(["x" * 255, "y" * 255]), {}, "2.1", "mini-block variable(32)"),
        (pa.array(["x" * 256, "y"]), {}, "2.1", "full-zip variable(32)"),
        (pa.array(["x" * 256, "y"]), {"structural-encoding": "miniblock"}, "2.1", "mini-block variable(32)"),
        (pa.array([[1.0] * 63] * 9, pa.list_(pa.float32(), 63)), {}, "2.1", "mini-block fixed_size_list(63, flat(32))"),
        (pa.array([[1.0] * 64] * 9, pa.list_(pa.float32(), 64)), {}, "2.1", "full-zip fixed_size_list(64, flat(32))"),
        (pa.array([True, False, True]), {}, "2.1", "mini-block flat(1)"),
    ],
)  # fmt: skip
def test_choice(array: pa.Array, options: dict[str, str], version: str, expected: str | None) -> None:
    found = described(array, version, options)
    assert found.startswith("constant") if expected is None else found == expected


def test_empties_that_no_chunk_can_count_split_the_page() -> None:
    array = pa.array([[1], *[[]] * 150_000, [2, 3]], pa.list_(pa.int32()))
    parts = described(array, "2.1").split(" + ")
    assert len(parts) > 2 and {part.split()[0] for part in parts} <= {"mini-block", "all-null"}
    one_row = pa.array([[[1]], [*[[]] * 150_000, [2], [3]]], pa.list_(pa.list_(pa.int32())))
    assert "full-zip" in described(one_row, "2.1")


def benchmark_columns() -> dict[str, pa.Array]:
    dice = random.Random(2)
    lists = pa.array([[dice.randrange(1000) for _ in range(i % 7)] for i in range(20_000)])
    return {
        "ascending": pa.array(np.arange(50_000)),
        "random": pa.array(DICE.integers(0, 2**62, 20_000)),
        "float": pa.array(DICE.normal(size=20_000)),
        "nullable": pa.array(np.arange(50_000), mask=DICE.random(50_000) < 0.1),
        "bool": pa.array(DICE.random(50_000) < 0.5),
        "timestamp": pa.array(1_700_000_000_000_000 + np.cumsum(DICE.integers(0, 10**6, 20_000)), pa.timestamp("us")),
        "hex": pa.array([f"{dice.getrandbits(64):016x}" for _ in range(20_000)]),
        "category": pa.array([dice.choice(["red", "green", "blue", "black"]) for _ in range(50_000)]),
        "text": TEXT,
        "lists": lists,
        "vectors": pa.FixedSizeListArray.from_arrays(pa.array(DICE.random(128 * 1000, dtype="f4")), 128),
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", benchmark_columns())
def test_no_column_is_larger_than_pylance_writes_it(name: str, version: str, tmp_path: Path) -> None:
    table = table_of(benchmark_columns()[name])
    save(tmp_path / "ours.lance", table, version)
    write(tmp_path / "theirs.lance", table, version)
    ours, theirs = ((tmp_path / f"{who}.lance").stat().st_size for who in ("ours", "theirs"))
    assert ours <= theirs * 1.01 + 4096


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_dictionaries_that_cannot_pay_are_given_up_early_and_no_others(data: st.DataObject) -> None:
    universe = data.draw(st.lists(st.integers(0, 2 ** data.draw(st.integers(1, 63)) - 1), min_size=1, max_size=300))
    repeats = data.draw(st.integers(1, 20))
    draws = data.draw(st.lists(st.sampled_from(universe), min_size=100, max_size=900))
    values = leaf_values(pa.array(np.repeat(np.array(draws, np.uint64), repeats)))
    rules = rules_for(VERSIONS["2.2"])
    found = split_dictionary(values, ColumnOptions(), rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_dictionary, "_word_items_max", lambda facts: write_dictionary.ITEMS_MAX)
        patient = split_dictionary(values, ColumnOptions(), rules)
    assert (found is None) == (patient is None)
    if found is not None and patient is not None:
        assert bytes(found[0].data) == bytes(patient[0].data) and found[1].num_items == patient[1].num_items
