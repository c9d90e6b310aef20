"""Many small files: pages of several of them are decoded in one kernel call, takes of much file by file."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset, _kernels
from lance_io.errors import FormatError
from lance_io.file import file_requests
from lance_io.file.scan.readahead import PIECES_AHEAD
from lance_io.file.scan.scan_sync import TURNS_MIN
from lance_io.file.take import take_files

if TYPE_CHECKING:
    from pathlib import Path

FILES, ROWS = 40, 120
VERSIONS = ("2.0", "2.1", "2.2")


def _rows(number: int) -> pa.Table:
    """Every kind of page that version 2.0 has, some of them in one of the files only."""
    dice = np.random.default_rng(number)
    first = number * ROWS
    some = [None if dice.random() < 0.2 else i for i in range(first, first + ROWS)]
    return pa.table(
        {
            "plain": pa.array(range(first, first + ROWS)),
            "nullable": pa.array([None] * ROWS if number == 7 else some, pa.int32()),
            "flag": pa.array([None if one is None else one % 3 > 0 for one in some], pa.bool_()),
            "text": pa.array([None if one is None else f"row {one}" for one in some]),
            "word": pa.array([None if one is None else f"word {one % 4}" for one in some]),
            "list": pa.array([None if one is None else [one, None] * (one % 4) for one in some], pa.list_(pa.int16())),
            "flags": pa.array([[True, False][: i % 3] for i in range(ROWS)], pa.large_list(pa.bool_())),
            "texts": pa.array([["a", None, str(one)][: i % 4] for i, one in enumerate(some)], pa.list_(pa.string())),
            "struct": pa.array([{"x": i, "y": str(i)} for i in range(ROWS)]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(dice.random(3 * ROWS)), 3),
            "coded": pa.array([f"http://example.org/{i % 5}/{i}" for i in range(ROWS)]),
            "key": pa.array([f"key {i % 3}" for i in range(ROWS)]).dictionary_encode(),
        },
        pa.schema(
            [
                ("plain", pa.int64()),
                ("nullable", pa.int32()),
                ("flag", pa.bool_()),
                ("text", pa.string()),
                ("word", pa.string()),
                ("list", pa.list_(pa.int16())),
                ("flags", pa.large_list(pa.bool_())),
                ("texts", pa.list_(pa.string())),
                ("struct", pa.struct([("x", pa.int64()), ("y", pa.string())])),
                ("vector", pa.list_(pa.float64(), 3)),
                pa.field("coded", pa.string(), metadata={"lance-encoding:compression": "fsst"}),
                ("key", pa.dictionary(pa.int32(), pa.string())),
            ]
        ),
    )


@pytest.fixture(scope="module", params=[*VERSIONS, "mixed"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that pylance wrote, of one version or of all."""
    made = tmp_path_factory.mktemp("small") / "t"
    whole = pa.concat_tables([_rows(number) for number in range(FILES)])
    if request.param != "mixed":
        lance.write_dataset(whole, made, max_rows_per_file=ROWS, data_storage_version=request.param)
        return made
    for part, version in enumerate((*VERSIONS, "2.0")):
        rows = whole.slice(part * 10 * ROWS, 10 * ROWS)
        lance.write_dataset(rows, made, mode="append", max_rows_per_file=ROWS, data_storage_version=version)
    return made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files each call of a kernel that decodes whole pages was about."""
    found: list[int] = []

    def counted(kernel: Any) -> Any:
        def call(files: list[Any]) -> Any:
            found.append(len(files))
            return kernel(files)

        return call

    for name in ("scan_arrays", "scan_pages"):
        monkeypatch.setattr(_kernels, name, counted(getattr(_kernels, name)))
    return found


def test_scans_are_those_of_pylance(folder: Path, calls: list[int]) -> None:
    ours, theirs = lance_io.dataset(str(folder)), lance.dataset(str(folder))
    assert ours.to_table().equals(theirs.to_table())
    files_per_job = FILES // (TURNS_MIN * PIECES_AHEAD)  # fewer where there are many processors
    assert max(calls) > 1 or files_per_job < 2
    for columns in (["plain"], ["list"], ["text", "coded"], ["texts", "key"], ["struct", "flag"]):
        assert ours.to_table(columns=columns).equals(theirs.to_table(columns=columns))
    batches = pa.Table.from_batches(ours.to_batches(batch_size=77))
    assert batches.equals(theirs.to_table())
    part: dict[str, Any] = {"offset": 3 * ROWS + 5, "limit": 33 * ROWS, "filter": "plain % 7 < 3"}
    assert ours.to_table(**part).equals(theirs.to_table(**part))


def test_scans_past_deleted_rows(folder: Path, tmp_path: Path) -> None:
    uri = str(shutil.copytree(folder, tmp_path / "t"))
    lance.dataset(uri).delete("plain % 5 = 0 or plain < 100 or (plain > 1000 and plain < 1300)")
    assert lance_io.dataset(uri).to_table().equals(lance.dataset(uri).to_table())


@pytest.fixture
def file_by_file(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every take of several files is one of much; the places of the files that were decoded by themselves."""
    found: list[int] = []
    monkeypatch.setattr(file_requests, "POOL_BYTES", 0)
    monkeypatch.setattr(file_requests, "READ_PART_BYTES", 5000)
    decode_file = take_files._Joined.decode_file

    def noted(self: Any, at: int, fetched: Any) -> None:
        found.append(at)
        decode_file(self, at, fetched)

    monkeypatch.setattr(take_files._Joined, "decode_file", noted)
    return found


def test_takes_of_much_are_those_of_pylance(folder: Path, file_by_file: list[int]) -> None:
    ours, theirs = lance_io.dataset(str(folder)), lance.dataset(str(folder))
    rows = np.random.default_rng(3).permutation(theirs.count_rows())[:300].tolist()
    for columns in (None, ["plain"], ["plain", "text"], ["text", "struct", "word"]):
        for _ in range(3):
            assert ours.take(rows, columns=columns).equals(theirs.take(rows, columns=columns))
    assert file_by_file and len(set(file_by_file)) > FILES // 2


def test_takes_of_much_from_a_coroutine(folder: Path, file_by_file: list[int]) -> None:
    rows = np.random.default_rng(4).permutation(FILES * ROWS // 2)[:200].tolist()

    async def taken() -> pa.Table:
        async with AsyncDataset.open(str(folder)) as table:
            await table.take(rows, columns=["plain", "text"])
            return await table.take(rows, columns=["plain", "text"])

    assert asyncio.run(taken()).equals(lance.dataset(str(folder)).take(rows, columns=["plain", "text"]))


def test_damage_names_its_file(tmp_path: Path, file_by_file: list[int]) -> None:
    """An end of the strings of one of many files points behind all of them."""
    rows = pa.table({"plain": range(FILES * ROWS), "text": [f"row {x}" for x in range(FILES * ROWS)]})
    lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=ROWS, data_storage_version="2.0")
    files = [fragment.data_files()[0].path for fragment in lance.dataset(str(tmp_path / "t")).get_fragments()]
    path = tmp_path / "t" / "data" / files[23]
    table = lance_io.dataset(str(tmp_path / "t"))
    good = path.read_bytes()
    ends_at = good.index(b"row ") - 8 * ROWS  # no padding: that is a multiple of 64
    path.write_bytes(good[:ends_at] + (1 << 40).to_bytes(8, "little") + good[ends_at + 8 :])
    with pytest.raises(FormatError, match="an end of") as caught:
        table.to_table()
    assert files[23] in str(caught.value) and '"text"' in str(caught.value)
    with pytest.raises(FormatError, match="an end of") as caught:
        table.take(range(0, FILES * ROWS, 7))
    assert files[23] in str(caught.value) and '"text"' in str(caught.value)


@pytest.mark.parametrize("kept_max", [4096, 100])
def test_files_of_one_value_each(kept_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that hold a value, of one width, of strings of any length, or none, alike in many files."""
    monkeypatch.setattr("lance_io.file.scan.scan_sync.KEPT_FILES_MAX", kept_max)
    of_file = [{"i": at, "s": "x" * (at % 5) if at % 7 else None, "b": at % 2 == 0} for at in range(150)]
    vectors = [[at, at + 1] for at in range(150)]
    rows = pa.Table.from_pylist([one for one in of_file for _ in range(20)])
    rows = rows.append_column("v", pa.array([one for one in vectors for _ in range(20)], pa.list_(pa.float32(), 2)))
    rows = rows.append_column("f", pa.array([at // 20 / 3 for at in range(3000)]))
    uri = str(tmp_path / "t")
    options = {"durability": "none"}
    lance_io.write_dataset(rows, uri, max_rows_per_file=20, data_storage_version="2.2", storage_options=options)
    want, table = lance.dataset(uri).to_table(), lance_io.dataset(uri)
    for _ in range(2):
        assert table.to_table().to_pylist() == want.to_pylist() == rows.to_pylist()
    assert table.to_table(columns=["s", "f"]).to_pylist() == want.select(["s", "f"]).to_pylist()
    batches = [batch for batch in table.to_batches(batch_size=7) if batch.num_rows]
    assert pa.Table.from_batches(batches).to_pylist() == want.to_pylist()
    assert table.take([5, 2999, 40]).to_pylist() == want.take([5, 2999, 40]).to_pylist()


def test_pages_of_other_files_in_other_places(tmp_path: Path) -> None:
    """Pages of version 2.0 that differ from one of another file in their place alone."""
    kinds = pa.schema(
        [("s", pa.string()), ("i", pa.int32()), ("b", pa.bool_()), ("n", pa.float64()), ("t", pa.string())]
    )
    uri = str(tmp_path / "t")
    for at in range(30):
        texts = ["y" * (at % 4)] * 60
        flags, halves = (
            [one % 3 == at % 2 for one in range(60)],
            [None if one % 5 == at % 5 else at / 2 for one in range(60)],
        )
        rows = pa.table([texts, range(at, at + 60), flags, halves, [f"{at:03}-{one:02}" for one in range(60)]], kinds)
        lance.write_dataset(rows, uri, mode="append" if at else "create", data_storage_version="2.0")
    want, table = lance.dataset(uri).to_table(), lance_io.dataset(uri)
    for _ in range(2):
        assert table.to_table().equals(want)
    rows_taken = [1799, 3, 650, 651]
    assert table.take(rows_taken).equals(want.take(rows_taken))
