"""Field options: parsed as pylance parses them, and honoured without harm whatever the values are."""

from __future__ import annotations

import decimal
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lance_io.encodings.options import ColumnOptions, column_options
from lance_io.errors import SchemaError
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_1, V2_2
from lance_io.levels.path import leaf_paths
from tests.encodings.container import read_back
from tests.encodings.harness import assert_same
from tests.encodings.test_write_pages import encode

PREFIX = "lance-encoding:"


def options_of(metadata: dict[str, str], *, top: dict[str, str] | None = None) -> ColumnOptions:
    item = pa.field("item", pa.string(), metadata={PREFIX + key: value for key, value in metadata.items()})
    field = pa.field("c", pa.list_(item), metadata={PREFIX + key: value for key, value in (top or {}).items()} or None)
    path = leaf_paths(schema_from_arrow(pa.schema([field])).fields[0])[0]
    return column_options(path.top, path.leaf)


def test_defaults() -> None:
    assert options_of({}) == ColumnOptions()


def test_keys_count_on_the_leaf_and_the_layout_on_the_top() -> None:
    found = options_of({"compression": "zstd", "compression-level": "9"}, top={"structural-encoding": "FullZip"})
    assert (found.compression, found.compression_level, found.layout) == ("zstd", 9, "fullzip")
    assert options_of({"structural-encoding": "fullzip"}, top={"compression": "lz4"}) == ColumnOptions()


@pytest.mark.parametrize(
    "key", ["compression-level", "rle-threshold", "bss", "dict-divisor", "dict-size-ratio", "minichunk-size"]
)
def test_numbers_that_do_not_parse_are_passed_over(key: str) -> None:
    assert options_of({key: "x"}) == ColumnOptions()


@pytest.mark.parametrize(
    ("metadata", "top", "message"),
    [
        ({"compression": "LZ4"}, {}, "Unknown compression scheme: LZ4"),
        ({"compression": ""}, {}, "Unknown compression scheme"),
        ({"dict-values-compression": "foo"}, {}, "Unknown compression scheme: foo"),
        ({"dict-values-compression": "fsst"}, {}, "not usable as a general buffer compressor"),
        ({"dict-size-ratio": "0"}, {}, r"dict-size-ratio is 0 which is not in the range \(0, 1\]"),
        ({"dict-size-ratio": "2"}, {}, "dict-size-ratio is 2"),
        ({}, {"structural-encoding": "zip"}, "Cannot determine structural encoding for field c"),
    ],
)
def test_unknown_names_are_refused(metadata: dict[str, str], top: dict[str, str], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        options_of(metadata, top=top)


def arrays() -> dict[str, pa.Array]:
    dice = random.Random(5)
    return {
        "null strings": pa.nulls(500, pa.string()),
        "nulls, then one value": pa.array([None] * 250 + ["x" * 20] * 250),
        "ascending": pa.array(range(3000)),
        "floats": pa.array(np.random.default_rng(0).normal(size=3000)),
        "hex": pa.array([f"{dice.getrandbits(60):x}" for _ in range(3000)]),
        "long hex": pa.array([f"{dice.getrandbits(3000):x}" for _ in range(100)]),
        "empty strings": pa.array([""] * 900),
        "binary": pa.array([dice.randbytes(dice.randint(0, 40)) for _ in range(1500)]),
        "booleans": pa.array([True, None, False] * 1000),
        "decimals": pa.array([decimal.Decimal(i % 9) for i in range(900)], pa.decimal128(20, 0)),
        "dictionary": pa.array(["a", "b", None] * 300).cast(pa.dictionary(pa.int8(), pa.string())),
        "vectors": pa.array([[1.0, None, 3.0], None] * 200, pa.list_(pa.float32(), 3)),
    }


CHOICES: list[dict[str, str]] = [
    {"compression": "none"},
    {"compression": "lz4", "bss": "on"},
    {"compression": "zstd", "compression-level": "19", "minichunk-size": "60000"},
    {"compression": "fsst"},
    {"minichunk-size": "0"},
    {"minichunk-size": "16000"},
    {"structural-encoding": "miniblock"},
    {"structural-encoding": "fullzip"},
    {"dict-divisor": "1000000", "rle-threshold": "0.01"},
    {"dict-values-compression": "zstd"},
]


@pytest.mark.parametrize("name", arrays())
def test_any_options_keep_the_data(name: str) -> None:
    array = arrays()[name]
    for choice in CHOICES:
        metadata: dict[Any, Any] = {PREFIX + key: value for key, value in choice.items()}
        table = pa.Table.from_arrays([array], schema=pa.schema([pa.field("c", array.type, metadata=metadata)]))
        path = leaf_paths(schema_from_arrow(table.schema).fields[0])[0]
        for version in (V2_1, V2_2):
            pages = encode(table, version)[0]
            found = pa.chunked_array([read_back(page, path, version) for page in pages])
            assert_same(found, array)
