"""Small files of version 2.0 that look like others: the rows are those of pylance, and damage is told as in general."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.file.scan.templates.file_templates import MISSES_MIN
from lance_io.format.version import V2_0
from lance_io.proto import encodings_pb2 as pb
from tests.file.known_scans import Counted, check_damage, opened

if TYPE_CHECKING:
    from pathlib import Path

FILES, ROWS = 48, 120


def rows_of(number: int) -> pa.Table:
    """Pages of every kind that may be known, some of them in some of the files only."""
    dice = np.random.default_rng(number)
    first = number * ROWS
    some = [None if dice.random() < 0.2 else i for i in range(first, first + ROWS)]
    texts = [["a", None, str(one)][: i % 4] for i, one in enumerate(some)]
    inner = pa.struct([("z", pa.list_(pa.float32())), ("w", pa.bool_())])
    columns: dict[str, tuple[pa.DataType, Any]] = {
        "plain": (pa.int64(), range(first, first + ROWS)),
        "nullable": (pa.int32(), [None] * ROWS if number % 5 == 0 else some),
        "flag": (pa.bool_(), [None if one is None else one % 3 > 0 for one in some]),
        "sure": (pa.bool_(), [i % 3 > 0 for i in range(ROWS)]),
        "text": (pa.string(), [f"row {one} of {number}" * (i % 3) for i, one in enumerate(some)]),
        "sparse": (pa.large_string(), [None if one is None else f"row {one}" * (number % 2 * 9) for one in some]),
        "bytes": (pa.binary(), [None if one is None else bytes([one % 256]) * (one % 5) for one in some]),
        "word": (pa.string(), [None if one is None else f"word {one % (1 + number % 9)}" for one in some]),
        "empty": (pa.string(), [""] * ROWS),
        "none": (pa.string(), [None] * ROWS),
        "list": (pa.list_(pa.int16()), [None if one is None else [one % 99, None] * (one % 4) for one in some]),
        "flags": (pa.large_list(pa.bool_()), [[True, False][: i % 3] for i in range(ROWS)]),
        "texts": (pa.list_(pa.string()), texts),
        "struct": (pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": i, "y": str(i)} for i in range(ROWS)]),
        "deep": (pa.struct([("in", inner)]), [{"in": {"z": [i] * (i % 3), "w": i > 7}} for i in range(ROWS)]),
        "vector": (pa.list_(pa.float64(), 3), [[i, i + 0.5, -i] for i in range(ROWS)]),
        "key": (pa.binary(4), [b"%04d" % i for i in range(ROWS)]),
        "time": (pa.timestamp("us", "UTC"), [None if one is None else 1_000_000 * one for one in some]),
        "decimal": (pa.decimal128(20, 3), list(range(ROWS))),
    }
    arrays = [pa.array(values, dtype) for dtype, values in columns.values()]
    return pa.Table.from_arrays(arrays, schema=pa.schema([(name, dtype) for name, (dtype, _) in columns.items()]))


@pytest.fixture(scope="module", params=[lance, lance_io], ids=lambda module: module.__name__)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table by either writer."""
    made = tmp_path_factory.mktemp("known_arrays") / "t"
    for number in range(FILES):
        request.param.write_dataset(rows_of(number), str(made), mode="append", data_storage_version="2.0")
    return made


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_files_are_known_and_their_rows_those_of_pylance(folder: Path, counted: Counted) -> None:
    ours, theirs = opened(folder), lance.dataset(str(folder))
    expected = theirs.to_table()
    found = ours.to_table()
    found.validate(full=True)
    assert found.equals(expected)
    assert counted.known == FILES and counted.missed == 0
    for column in expected.column_names:
        before = counted.known
        assert ours.to_table([column]).equals(expected.select([column])), column
        assert counted.known - before == FILES, column
    nested = ["struct.y", "deep.in.w", "texts"]
    assert ours.to_table(nested).equals(theirs.to_table(nested))
    assert counted.missed == 0


def test_the_general_way_has_the_same_rows(folder: Path, counted: Counted) -> None:
    expected = lance.dataset(str(folder)).to_table()
    assert opened(folder).scanner(fragment_readahead=2).to_table().equals(expected)
    assert counted.known == 0


def test_filters_and_deletions(folder: Path, tmp_path: Path) -> None:
    uri = str(shutil.copytree(folder, tmp_path / "t"))
    lance.dataset(uri).delete("plain % 7 = 0 or (plain >= 120 and plain < 400)")
    ours, theirs = opened(tmp_path / "t"), lance.dataset(uri)
    assert ours.to_table(with_row_id=True).equals(theirs.to_table(with_row_id=True))
    for condition in ("plain % 100 = 7", "text is null", "struct.x > 100", "sparse is not null and not sure"):
        assert ours.to_table(filter=condition).equals(theirs.to_table(filter=condition)), condition
    batches = pa.Table.from_batches(ours.to_batches(batch_size=50))
    assert batches.equals(theirs.to_table())


def test_each_file_is_read_once(folder: Path) -> None:
    dataset = opened(folder)
    dataset.io_stats_incremental()
    dataset.to_table(["plain", "text"])
    assert dataset.io_stats_incremental().read_iops == FILES


def test_empty_lists_and_compressed_files_are_read_in_general(tmp_path: Path, counted: Counted) -> None:
    """Of lists without an item there are no values to look at; symbols of strings are not compared."""
    uri = str(tmp_path / "t")
    coded = pa.field("coded", pa.string(), metadata={"lance-encoding:compression": "fsst"})
    schema = pa.schema([("list", pa.list_(pa.int32())), coded])
    for number in range(30):
        lists = [[]] * ROWS if number % 7 == 0 else [[number, None]] * ROWS
        rows = pa.table([lists, [f"http://example.org/{number}/{i}" for i in range(ROWS)]], schema=schema)
        lance.write_dataset(rows, uri, mode="append", data_storage_version="2.0")
    ours, theirs = opened(tmp_path / "t"), lance.dataset(uri)
    assert ours.to_table(["list"]).equals(theirs.to_table(["list"]))
    assert (counted.known, counted.missed) == (25, 5)
    for _ in range(2):
        assert ours.to_table().equals(theirs.to_table())
    assert counted.known == 25
    assert MISSES_MIN <= counted.missed - 5 <= 30  # the second scan does not ask, nor does the first to its end


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fragile_arrays") / "t"
    names = ["plain", "nullable", "flag", "sparse", "word", "list", "texts", "struct", "vector"]
    for number in range(12):
        rows = rows_of(number).select(names).slice(0, 110)
        lance.write_dataset(rows, str(made), mode="append", data_storage_version="2.0")
    return made


@pytest.mark.parametrize("columns", [["nullable", "sparse"], ["word", "list"], ["texts", "struct", "flag"]])
def test_damage_is_told_as_in_general(fragile: Path, tmp_path: Path, columns: list[str]) -> None:
    rows = lance.dataset(str(fragile)).to_table(columns)
    lance.write_dataset(rows, str(tmp_path / "t"), max_rows_per_file=110, data_storage_version="2.0")
    check_damage(tmp_path / "t", seed=len(columns))


NUMBERS = (0, 1, 2, 100, 109, 110, 111, 255, 256, 1 << 20, 1 << 62)


@pytest.mark.parametrize("column", ["sparse", "word", "list", "texts"])
def test_other_numbers_in_a_message(tmp_path: Path, column: str) -> None:
    """Messages that are like those of other files but for numbers that contradict the page."""
    folder, count = tmp_path / "t", 12
    for number in range(count):
        rows = rows_of(number).select(["plain", column]).slice(0, 110)
        lance.write_dataset(rows, str(folder), mode="append", data_storage_version="2.0")
    victim = sorted((folder / "data").iterdir())[5]
    sound, changed = victim.read_bytes(), 0
    for value in NUMBERS:
        for path in ("null_adjustment", "null_offset_adjustment", "num_items", "num_dictionary_items"):
            damaged = _with_number(sound, path, value)
            if damaged is None:
                continue
            victim.write_bytes(damaged)
            changed += 1
            results = []
            for options in ({}, {"fragment_readahead": 1}):
                try:
                    results.append(opened(folder).scanner(**options).to_table().to_pylist())
                except lance_io.errors.LanceError as error:
                    results.append((type(error), str(error)))
            assert results[0] == results[1], (path, value)
    assert changed > 0


def _with_number(file: bytes, name: str, value: int) -> bytes | None:
    """The file with another number of as many bytes in a message; None where there is none, or no room for it."""
    from lance_io.file.open.open_file import open_ending

    opened_file = open_ending(("", "", len(file)), file, 0)
    assert opened_file is not None
    assert opened_file[0].version == V2_0
    for info in opened_file[0].infos():
        for page in info.pages:
            message = pb.ArrayEncoding.FromString(page.encoding)
            for part in (message.binary, message.list, message.dictionary, message.dictionary.items.binary):
                if name in part.DESCRIPTOR.fields_by_name and getattr(part, name) and part.ByteSize():
                    if value.bit_length() > (31 if name == "num_dictionary_items" else 63):
                        continue
                    setattr(part, name, value)
                    other = message.SerializeToString()
                    if len(other) == len(page.encoding) and other != page.encoding:
                        return file.replace(page.encoding, other)
                    return None
    return None
