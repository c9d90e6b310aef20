"""What metadata of fields ask of encodings, seen from outside: sizes beside pylance's, and values that stay."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
import lance_io.fragment
from lance_io import AsyncDataset, Encoding
from lance_io.errors import BindError, SchemaError, UsageError

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


@pytest.mark.parametrize("num_runs", [5, 50])
def test_runs_are_counted_however_long(tmp_path: Path, num_runs: int) -> None:
    values = pa.array(np.repeat(np.arange(num_runs), 20_000 // num_runs))
    for share in (1e-5, num_runs / 20_000, 1.1 * num_runs / 20_000, 0.3):
        sizes = [
            size_of(library, str(tmp_path / library.__name__), values, rle_threshold=f"{share:.8f}")
            for library in (lance, lance_io)
        ]
        assert sizes[1] < 1.1 * sizes[0], (share, sizes)


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


# -- as an argument ----------------------------------------------------------------------------------------------------

ROWS = pa.table(
    {
        "x": SMOOTH,
        "t": TEXTS,
        "l": [[i, i + 1] for i in range(len(TEXTS))],
        "st": [{"a": i, "b": f"text number {i}"} for i in range(len(TEXTS))],
        "p": [{"a": i, "b": -i} for i in range(len(TEXTS))],
    }
)
ENCODINGS = {
    "x": Encoding(compression="zstd", level=9, bss="on"),
    "t": Encoding(dict_max_size=0, structural_encoding="fullzip"),
    "l": Encoding(compression="lz4", rle_threshold=0.25, minichunk_size=2048),
    "st.b": Encoding(compression="fsst", dict_divisor=1000, dict_size_ratio=0.5, bss=0.5),
    "p": Encoding(packed=True),
}
METADATA = {
    "x": {"compression": "zstd", "compression-level": "9", "bss": "on"},
    "t": {"dict-max-size": "0", "structural-encoding": "fullzip"},
    "l.item": {"compression": "lz4", "rle-threshold": "0.25", "minichunk-size": "2048"},
    "st.b": {"compression": "fsst", "dict-divisor": "1000", "dict-size-ratio": "0.5", "bss": "0.5"},
    "p": {"packed": "true"},
}


def metadata_of(uri: str) -> dict[str, dict[str, str]]:
    """The metadata of all fields, as pylance reads them."""
    found: dict[str, dict[str, str]] = {}

    def walk(field: pa.Field, path: str) -> None:
        if field.metadata:
            found[path] = {key.decode().removeprefix(PREFIX): value.decode() for key, value in field.metadata.items()}
        for child in [field.type.field(at) for at in range(field.type.num_fields)]:
            walk(child, f"{path}.{child.name}")

    for field in lance.dataset(uri).schema:
        walk(field, field.name)
    return found


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_encodings_are_metadata_of_the_fields(tmp_path: Path, version: str) -> None:
    """The same as a schema with these metadata, and what writes to the table afterwards keeps to them."""
    uri, plain, marked = (str(tmp_path / name) for name in ("t", "plain", "marked"))
    table = lance_io.write_dataset(ROWS, uri, data_storage_version=version, encodings=ENCODINGS)
    assert metadata_of(uri) == METADATA
    lance_io.write_dataset(ROWS, plain, data_storage_version=version)
    lance_io.write_dataset(
        pa.table(ROWS.columns, schema=lance.dataset(uri).schema), marked, data_storage_version=version
    )
    sizes = [sum(one.stat().st_size for one in os.scandir(f"{place}/data")) for place in (uri, plain, marked)]
    assert sizes[0] == sizes[2] != sizes[1]
    table.insert(ROWS)
    table.optimize.compact_files()
    assert metadata_of(uri) == METADATA
    (file,) = [one.data_files()[0].path for one in lance.dataset(uri).get_fragments()]
    assert file not in os.listdir(f"{marked}/data")
    assert lance.dataset(uri).to_table().to_pylist() == 2 * ROWS.to_pylist()
    lance_io.write_dataset(ROWS, uri, mode="overwrite", encodings={"x": Encoding(compression="lz4")})
    assert metadata_of(uri) == {"x": {"compression": "lz4"}}
    lance_io.write_dataset(ROWS, uri, mode="overwrite")
    assert metadata_of(uri) == {}


async def test_encodings_of_other_writes(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    await AsyncDataset.write(ROWS, place, encodings=ENCODINGS)
    assert metadata_of(place) == METADATA
    place = str(tmp_path / "u")
    made = lance_io.fragment.write_fragments(ROWS, place, mode="create", return_transaction=True, encodings=ENCODINGS)
    lance_io.LanceDataset.commit(place, made)
    assert metadata_of(place) == METADATA


def test_encodings_that_cannot_be(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for encodings, kind, text in (
        ({"zz": Encoding()}, BindError, "No field named zz"),
        ({"st.zz": Encoding()}, BindError, r"No field named st\.zz.*of st are a, b"),
        ({"x": {"compression": "zstd"}}, UsageError, "expected an Encoding for x, found dict"),
        ({"x": Encoding(compression="best")}, SchemaError, "Unknown compression scheme: best"),
        ({"x": Encoding(structural_encoding="zip")}, SchemaError, "structural"),
    ):
        with pytest.raises(kind, match=text):
            lance_io.write_dataset(ROWS, uri, encodings=encodings)
        assert not os.path.exists(f"{uri}/_versions")
    wrong: dict[str, Any]
    for wrong in ({"level": "9"}, {"dict_max_size": 1.5}, {"rle_threshold": "x"}, {"bss": "maybe"}, {"level": True}):
        with pytest.raises(UsageError, match="of an encoding: expected"):
            Encoding(**wrong)
    lance_io.write_dataset(ROWS, uri)
    with pytest.raises(UsageError, match="update_field_metadata"):
        lance_io.write_dataset(ROWS, uri, mode="append", encodings=ENCODINGS)
    lance_io.write_dataset(ROWS, uri, mode="append", encodings={})
