"""Lists without rows that have no offsets, as Arrow's Java library sends them, are written like all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.file import LanceFileWriter
from tests.levels.arrays import without_offsets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

DEEP: Final = pa.list_(pa.struct([("z", pa.map_(pa.string(), pa.list_(pa.list_(pa.int16()))))]))
VALUES: Final = {  # below each lies a list without rows
    "texts": pa.array([None, []], pa.list_(pa.list_(pa.string()))),
    "large": pa.array([[], []], pa.large_list(pa.large_list(pa.binary()))),
    "map": pa.array([[], None], pa.map_(pa.string(), DEEP)),
    "deep": pa.nulls(2, DEEP),
    "struct": pa.array([{"l": []}, None], pa.struct([("l", DEEP)])),
}
WHOLE: Final = pa.record_batch({"id": [1, 2], **VALUES})
GIVEN: Final = pa.record_batch(
    {"id": [1, 2], **{name: without_offsets(array, pa.allocate_buffer(0)) for name, array in VALUES.items()}}
)


def no_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [without_offsets(pa.array([], dtype), None) for dtype in batch.schema.types]
    return pa.record_batch(arrays, schema=batch.schema)


SOURCES: Final[dict[str, Callable[[pa.RecordBatch], Any]]] = {
    "batch": lambda batch: batch,
    "table": lambda batch: pa.Table.from_batches([no_rows(batch), batch]),
    "reader": lambda batch: pa.RecordBatchReader.from_batches(batch.schema, [batch, no_rows(batch)]),
    "batches": lambda batch: [batch, no_rows(batch)],
}


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
@pytest.mark.parametrize("source", SOURCES)
def test_tables_are_written_and_merged(tmp_path: Path, source: str, version: str) -> None:
    names = (
        WHOLE.schema.names if version == "2.2" else ["id", "large"] if version == "0.1" else ["id", "texts", "large"]
    )
    make, uri, whole, given = SOURCES[source], str(tmp_path / "t.lance"), WHOLE.select(names), GIVEN.select(names)
    lance_io.write_dataset(make(given), uri, whole.schema, data_storage_version=version)
    assert lance.dataset(uri).to_table().equals(pa.Table.from_batches([whole]))
    merge = lance_io.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(make(given), schema=whole.schema)
    assert lance.dataset(uri).to_table().sort_by("id").equals(pa.Table.from_batches([whole]))
    lance_io.write_dataset(no_rows(given), uri, mode="append")
    assert lance.dataset(uri).count_rows() == 2


async def test_an_asynchronous_source(tmp_path: Path) -> None:
    async def batches() -> AsyncIterator[pa.RecordBatch]:
        yield GIVEN
        yield no_rows(GIVEN)

    uri = str(tmp_path / "t.lance")
    await AsyncDataset.write(batches(), uri, WHOLE.schema)
    assert lance.dataset(uri).to_table().equals(pa.Table.from_batches([WHOLE]))


def test_files(tmp_path: Path) -> None:
    path = str(tmp_path / "f.lance")
    with LanceFileWriter(path) as writer:
        writer.write_batch(GIVEN)
        writer.write_batch(pa.Table.from_batches([no_rows(GIVEN), GIVEN]))
    table = lance.file.LanceFileReader(path).read_all().to_table()
    assert table.equals(pa.Table.from_batches([WHOLE, WHOLE]))
