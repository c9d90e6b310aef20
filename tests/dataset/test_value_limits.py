"""`max_decoded_bytes`: what one value may decode to, by session and by call, in reads and writes."""

from __future__ import annotations

import os
import pickle
import re
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.encodings.v2_2 import constant
from lance_io.errors import LanceError, ResourceLimitError, UsageError
from lance_io.file import AsyncFileReader, AsyncFileWriter, LanceFileReader, LanceFileWriter
from lance_io.limits import KIB, MIB

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ["legacy", "2.0", "2.1", "2.2"]
LARGE_ROW = 37


def rows(value: str | bytes | list[int], dtype: pa.DataType, compression: str) -> pa.Table:
    """A hundred rows, of which one is large."""
    small = value[:3]
    values = [value if row == LARGE_ROW else small for row in range(100)]
    field = pa.field("value", dtype, metadata={"lance-encoding:compression": compression})
    return pa.table([pa.array(values, dtype), pa.array(range(100))], pa.schema([field, pa.field("id", pa.int64())]))


TEXT = rows("abc" * (1 * MIB // 3), pa.string(), "zstd")
KINDS = {
    "zstd text": TEXT,
    "lz4 text": rows("abc" * (1 * MIB // 3), pa.large_string(), "lz4"),
    "fsst text": rows("abcdefgh" * (1 * MIB // 8), pa.string(), "fsst"),
    "plain bytes": rows(bytes(1 * MIB), pa.binary(), "none"),
    "list": rows([7] * (1 * MIB // 4), pa.list_(pa.int32()), "zstd"),
}


@pytest.fixture(scope="module", params=[f"{version} {kind}" for version in VERSIONS for kind in KINDS])
def table(request: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table that pylance wrote."""
    version, _, kind = request.param.partition(" ")
    uri = str(tmp_path_factory.mktemp("limits") / "t.lance")
    lance.write_dataset(KINDS[kind], uri, data_storage_version=version)
    return uri


def check(error: pytest.ExceptionInfo[ResourceLimitError]) -> None:
    """It says file, column, row, size and option."""
    text = str(error.value)
    assert isinstance(error.value, MemoryError) and isinstance(error.value, LanceError)
    assert ".lance: column" in text and '"value"' in text and "max_decoded_bytes is 262144" in text
    assert re.search(r"10485\d\d bytes", text)
    rows = re.search(r"row (\d+)|one of the rows (\d+) to (\d+)", text)
    assert rows is not None, text
    first, last = (int(rows[1]),) * 2 if rows[1] else (int(rows[2]), int(rows[3]))
    assert first <= LARGE_ROW <= last


def test_a_value_that_is_too_large_is_refused(table: str) -> None:
    dataset = lance_io.dataset(table, max_decoded_bytes=256 * KIB)
    for read in (
        lambda: dataset.to_table(),
        lambda: list(dataset.to_batches(batch_size=7)),
        lambda: dataset.to_table(filter=f"id = {LARGE_ROW}"),
        lambda: dataset.to_table(limit=50),
    ):
        with pytest.raises(ResourceLimitError) as error:
            read()
        check(error)
    with pytest.raises(ResourceLimitError) as error:
        dataset.take([LARGE_ROW])
    check(error)
    assert dataset.to_table(columns=["id"]).num_rows == dataset.count_rows() == 100
    assert dataset.take([1, 2])["id"].to_pylist() == [1, 2]


def test_what_may_be_larger_is_read(table: str) -> None:
    """Also beside a handle that may not: what one session knows of a file belongs to its limit."""
    session = lance_io.Session(max_decoded_bytes=256 * KIB)
    for _ in range(2):
        with pytest.raises(ResourceLimitError):
            lance_io.dataset(table, session=session).to_table()
        allowed = lance_io.dataset(table, session=session, max_decoded_bytes=2 * MIB)
        assert allowed.to_table().equals(lance.dataset(table).to_table())
    assert lance_io.dataset(table).take([LARGE_ROW]).equals(lance.dataset(table).take([LARGE_ROW]))


async def test_the_same_on_a_loop(table: str) -> None:
    dataset = await lance_io.AsyncDataset.open(table, max_decoded_bytes=256 * KIB)
    with pytest.raises(ResourceLimitError) as error:
        await dataset.to_table()
    check(error)
    with pytest.raises(ResourceLimitError) as error:
        await dataset.take([LARGE_ROW])
    check(error)
    assert (await dataset.take([3, 4], columns=["id"]))["id"].to_pylist() == [3, 4]


def test_the_limit_travels(table: str) -> None:
    for given in (
        lance_io.dataset(table, max_decoded_bytes=256 * KIB),
        lance_io.dataset(table, session=lance_io.Session(max_decoded_bytes=256 * KIB)),
    ):
        with pytest.raises(ResourceLimitError):
            pickle.loads(pickle.dumps(given)).to_table()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
async def test_files_by_themselves(tmp_path: Path, version: str) -> None:
    path = tmp_path / "f.lance"
    with LanceFileWriter(path, TEXT.schema, version=version) as writer:
        writer.write_batch(TEXT)
    with pytest.raises(ResourceLimitError) as error:
        LanceFileReader(path, max_decoded_bytes=256 * KIB).read_all().to_table()
    assert "f.lance" in str(error.value)
    async with AsyncFileReader(path, max_decoded_bytes=256 * KIB) as reader:
        with pytest.raises(ResourceLimitError):
            await reader.take_rows([LARGE_ROW])
    assert LanceFileReader(path, max_decoded_bytes=2 * MIB).read_all().to_table()["value"].equals(TEXT["value"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_larger_values_are_not_written(tmp_path: Path, version: str, kind: str) -> None:
    """Unless the option is given: nobody could read them without."""
    uri = str(tmp_path / "t.lance")
    with pytest.raises(ResourceLimitError, match=f'column "value".*row {LARGE_ROW}.*max_decoded_bytes is 262144'):
        lance_io.write_dataset(KINDS[kind], uri, data_storage_version=version, max_decoded_bytes=256 * KIB)
    assert not list(tmp_path.rglob("*.lance/data/*"))
    lance_io.write_dataset(KINDS[kind], uri, data_storage_version=version, max_decoded_bytes=2 * MIB)
    assert lance.dataset(uri).to_table().equals(lance_io.dataset(uri).to_table())


async def test_writers_of_files_by_themselves(tmp_path: Path) -> None:
    writer = LanceFileWriter(tmp_path / "a", TEXT.schema, max_decoded_bytes=10)
    with pytest.raises(ResourceLimitError), writer:
        writer.write_batch(TEXT)
    with pytest.raises(ResourceLimitError):
        async with AsyncFileWriter(tmp_path / "b", TEXT.schema, max_decoded_bytes=256 * KIB) as asynchronous:
            await asynchronous.write_batch(TEXT)
    assert not os.listdir(tmp_path)


def test_blobs_do_not_count(tmp_path: Path) -> None:
    """Those that are read as files take no memory."""
    field = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    blobs = pa.table([pa.array([bytes(1 * MIB)], pa.large_binary())], pa.schema([field]))
    uri = str(tmp_path / "t.lance")
    dataset = lance_io.write_dataset(blobs, uri, max_decoded_bytes=1000)
    dataset = lance_io.dataset(uri, max_decoded_bytes=1000)
    (blob,) = dataset.take_blobs("blob", indices=[0])
    with blob as file:
        assert file.read() == bytes(1 * MIB)
    assert dataset.to_table().num_rows == 1


@pytest.mark.parametrize("value", ["one", "a text that is longer than its levels are " * 20])
def test_lists_of_one_value_that_few_bytes_stand_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """A page with levels is decoded whole, so what it becomes is bounded as a value is."""
    uri = str(tmp_path / "t.lance")
    lists = pa.table({"l": pa.array([[value] * 3000] * 100, pa.list_(pa.string()))})
    lance.write_dataset(lists, uri, data_storage_version="2.2")
    monkeypatch.setattr(constant, "VALUE_BYTES_MAX", 500 * KIB)
    with pytest.raises(ResourceLimitError, match=r"levels|values"):
        lance_io.dataset(uri, max_decoded_bytes=500 * KIB).to_table()
    assert lance_io.dataset(uri).to_table().equals(lists)


@pytest.mark.parametrize("wrong", [0, -1, 1 << 64])
def test_a_limit_that_cannot_be(tmp_path: Path, wrong: int) -> None:
    uri = str(tmp_path / "t.lance")
    lance_io.write_dataset(TEXT, uri)
    for call in (
        lambda: lance_io.Session(max_decoded_bytes=wrong),
        lambda: lance_io.dataset(uri, max_decoded_bytes=wrong),
    ):
        with pytest.raises((UsageError, OverflowError), match="max_decoded_bytes"):
            call()
    if wrong < 1:
        with pytest.raises(UsageError, match="max_decoded_bytes"):
            lance_io.write_dataset(TEXT, uri, mode="append", max_decoded_bytes=wrong)
