"""What metadata of fields ask of encodings, seen from outside: sizes beside pylance's, and values that stay."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import SchemaError

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "lance-encoding:"
RANDOM = np.random.default_rng(4)
SMOOTH = pa.array(np.cumsum(RANDOM.normal(size=20_000)))
TEXTS = pa.array([f"some text number {i % 2000:05} of it" for i in range(20_000)])  # of 28 bytes


def size_of(library: Any, uri: str, values: pa.Array, version: str = "2.2", **options: str) -> int:
    metadata: dict[Any, Any] = {PREFIX + key.replace("_", "-"): value for key, value in options.items()}
    schema = pa.schema([pa.field("x", values.type, metadata=metadata)])
    library.write_dataset(pa.table([values], schema=schema), uri, mode="overwrite", data_storage_version=version)
    assert lance.dataset(uri).to_table()["x"].combine_chunks() == values
    newest = max(os.scandir(f"{uri}/data"), key=lambda one: one.stat().st_mtime_ns)
    return newest.stat().st_size - sum(len(key) + len(value) for key, value in metadata.items())


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_dictionaries_have_no_more_bytes_than_are_allowed(tmp_path: Path, version: str) -> None:
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    usual = size_of(lance_io, ours, TEXTS, version)
    for most, has_one in (("56000", True), ("1000000", True), ("55999", False), ("0", False)):
        found = size_of(lance_io, ours, TEXTS, version, dict_max_size=most)
        expected = size_of(lance, theirs, TEXTS, version, dict_max_size=most)
        assert (found < 1.1 * usual) == (expected < 1.1 * usual) == has_one, most
    for wrong in ("x", "1.5", "-1", "1MB", ""):
        with pytest.raises(SchemaError, match=r"dict-max-size is .* which is not a byte count"):
            size_of(lance_io, ours, TEXTS, version, dict_max_size=wrong)


def test_byte_stream_split_takes_a_sensitivity(tmp_path: Path) -> None:
    sizes = {
        mode: size_of(lance_io, str(tmp_path / "t"), SMOOTH, compression="lz4", bss=mode)
        for mode in ("off", "0", "-1", "0.1", "on", "1", "1.5", "0.95", "auto", "0.5", "x", "nan")
    }
    assert sizes["on"] < 0.9 * sizes["off"]
    for modes in (("off", "0", "-1", "0.1"), ("on", "1", "1.5", "0.95"), ("auto", "0.5", "x", "nan")):
        found = [sizes[mode] for mode in modes]
        assert max(found) - min(found) < 50, modes


async def test_what_has_no_effect_is_told(tmp_path: Path) -> None:
    field = pa.field("x", pa.string(), metadata={PREFIX + "general": "zstd"})
    rows = pa.table([TEXTS], schema=pa.schema([field]))
    with pytest.warns(UserWarning, match="lance-encoding:general of the field x has no effect"):
        table = lance_io.write_dataset(rows, str(tmp_path / "t"))
    assert lance.dataset(table.uri).to_table()["x"].combine_chunks() == TEXTS
    item = pa.field("item", pa.int64(), metadata={PREFIX + "general": "1"})
    nested = pa.table([pa.array([[1]], pa.list_(item))], ["y"])
    with pytest.warns(UserWarning, match="of the field item has no effect"):
        await (await AsyncDataset.open(table.uri)).add_columns(nested.take([0] * len(TEXTS)))
