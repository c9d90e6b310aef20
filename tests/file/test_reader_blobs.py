"""A file's reader gives the bytes of the blobs that lie in it, as pylance's does."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as PylanceReader
from lance.file import LanceFileWriter as PylanceWriter

from lance_io.errors import FormatError
from lance_io.file import AsyncFileReader, LanceFileReader, LanceFileWriter
from lance_io.file.take.blob_bytes import with_bytes
from lance_io.format.schema_arrow import schema_from_arrow

if TYPE_CHECKING:
    from pathlib import Path

BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
VALUES = [b"a" * 10, None, b"", b"c" * 70_000, b"d"]
NUM_ROWS = 500


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Blobs beside other columns, and in a struct with nulls."""
    values = [VALUES[i * i % 5] for i in range(NUM_ROWS)]
    inside = pa.StructArray.from_arrays(
        [pa.array(reversed(values), pa.large_binary()), pa.array(range(NUM_ROWS))],
        fields=[BLOB, pa.field("n", pa.int64())],
        mask=pa.array([i % 7 == 3 for i in range(NUM_ROWS)]),
    )
    schema = pa.schema([pa.field("i", pa.int64()), BLOB, pa.field("s", inside.type)])
    return pa.table([pa.array(range(NUM_ROWS)), pa.array(values, pa.large_binary()), inside], schema=schema)


@pytest.fixture(scope="module", params=[PylanceWriter, LanceFileWriter], ids=["theirs", "ours"])
def path(request: pytest.FixtureRequest, rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, written by either library."""
    found = tmp_path_factory.mktemp("blobs") / "t.lance"
    with request.param(str(found), schema=rows.schema, version="2.1") as writer:
        for batch in rows.to_batches(max_chunksize=130):
            writer.write_batch(batch)
    return found


def test_bytes_are_those_of_pylance(path: Path, rows: pa.Table) -> None:
    ours, theirs = LanceFileReader(path), PylanceReader(str(path))
    assert ours.read_all(batch_size=64).to_table().equals(theirs.read_all().to_table(), check_metadata=True)
    assert ours.read_all().to_table().equals(rows)
    assert ours.read_range(77, 200).to_table().equals(theirs.read_range(77, 200).to_table())
    taken = [0, 3, 8, 77, 499]
    assert ours.take_rows(taken).to_table().equals(theirs.take_rows(taken).to_table())
    assert ours.take_rows([3, 3]).to_table()["b"].to_pylist() == [rows["b"][3].as_py()] * 2
    only = LanceFileReader(path, columns=["s.b"]).read_all().to_table()
    assert only.equals(PylanceReader(str(path), columns=["s.b"]).read_all().to_table(), check_metadata=True)


def test_bytes_awaited(path: Path, rows: pa.Table) -> None:
    async def read() -> tuple[pa.Table, pa.Table, pa.Table]:
        async with AsyncFileReader(path) as reader:
            streamed = [batch async for batch in reader.read_all(batch_size=90)]
            taken = await reader.take_rows([1, 8, 8, 300])
            return pa.Table.from_batches(streamed), await reader.read_range(5, 100), taken

    whole, part, taken = asyncio.run(read())
    assert whole.equals(rows)
    assert part.equals(rows.slice(5, 100))
    assert taken.equals(rows.take([1, 8, 8, 300]))


@pytest.mark.parametrize(
    ("position", "size", "found"),
    [
        (90, 20, "behind the end"),
        (1 << 63, 1, "behind the end"),
        (0, (1 << 64) - 1, "behind the end"),
        (0, 60, "larger"),
    ],
)
def test_descriptions_that_cannot_be(position: int, size: int, found: str) -> None:
    file: Any = SimpleNamespace(size_bytes=100, key="t.lance")
    numbers = [pa.array(np.full(2, one, np.uint64)) for one in (position, size)]
    descriptions = pa.StructArray.from_arrays(numbers, ["position", "size"])
    with pytest.raises(FormatError, match=found):
        next(with_bytes(file, schema_from_arrow(pa.schema([BLOB])).fields, [descriptions]))
