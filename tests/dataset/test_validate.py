"""`validate` finds what does not fit together, and nothing where everything does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError, NotFound

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"a": range(100), "s": [str(i) for i in range(100)]})


@pytest.fixture(params=[lance, lance_io], ids=["by pylance", "by us"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two fragments, one with deleted rows, stable row ids."""
    path = tmp_path / "t"
    request.param.write_dataset(ROWS, str(path), max_rows_per_file=50, enable_stable_row_ids=True).delete("a < 10")
    return path


def data_files(table: Path) -> list[Path]:
    return [table / "data" / one.data_files()[0].path for one in lance_io.dataset(table).get_fragments()]


async def test_a_whole_table_is_valid(table: Path) -> None:
    ours = lance_io.dataset(table)
    ours.validate()
    for fragment in ours.get_fragments():
        fragment.validate()
    twin = await lance_io.AsyncDataset.open(table)
    await twin.validate()
    await twin.get_fragments()[0].validate()


def test_a_missing_data_file(table: Path) -> None:
    data_files(table)[1].unlink()
    with pytest.raises(NotFound, match="version 2 refers to a file that is not there"):
        lance_io.dataset(table).validate()
    lance_io.dataset(table).get_fragments()[0].validate()
    with pytest.raises(OSError, match="not there"):
        lance_io.dataset(table).get_fragments()[1].validate()


def test_a_missing_deletion_file(table: Path) -> None:
    next((table / "_deletions").iterdir()).unlink()
    with pytest.raises(NotFound, match="not there"):
        lance_io.dataset(table).validate()


def blobs(*, managed: bool) -> pa.Table:
    """Blobs in the data file, packed into a file of several, and in files of their own; also in lists."""
    field = lance.blob_field("b", inline_size_threshold=10, dedicated_size_threshold=25)
    lists = pa.list_(lance.blob_field("item", inline_size_threshold=10, dedicated_size_threshold=25))
    values = [None if i % 5 == 0 else bytes(i) for i in range(1, 40)]
    items = pa.ListArray.from_arrays(pa.array(range(40), pa.int32()), lance.blob_array(values), type=lists)
    columns = [pa.array(range(39)), lance.blob_array(values), items]
    schema = pa.schema([pa.field("a", pa.int64()), field, pa.field("l", lists)])
    return pa.table(columns, schema=schema.with_metadata({"lance.blob.managed": "true"}) if managed else schema)


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("library", [lance, lance_io], ids=["by pylance", "by us"])
def test_files_of_blobs(library: Any, managed: bool, tmp_path: Path) -> None:
    """Every one of them is missed, and every byte at its end."""
    path = tmp_path / "t"
    library.write_dataset(blobs(managed=managed), str(path), max_rows_per_file=20)
    lance.dataset(str(path)).delete("a = 30")
    table = lance_io.dataset(path)
    table.validate()
    payloads = sorted(path.glob("_blobs/*.blob" if managed else "data/*/*.blob"))
    assert len(payloads) > 10
    for payload in payloads:
        whole = payload.read_bytes()
        payload.unlink()
        with pytest.raises(NotFound, match=rf"{payload.name}: version 2 refers to a file that is not there"):
            table.validate()
        payload.write_bytes(whole[:-1])
        with pytest.raises(FormatError, match=rf"{payload.name}.*a blob ends at {len(whole)}, beyond the end"):
            table.validate()
        payload.write_bytes(whole)
    table.validate()
    (path / "_blobs" / "another.blob").parent.mkdir(exist_ok=True)
    (path / "_blobs" / "another.blob").write_bytes(b"of nobody")
    table.validate()


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_blobs_in_data_files(version: str, tmp_path: Path) -> None:
    """Of the first kind: their descriptions fit the file, also where they are nulls or empty."""
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = pa.array([None, b"", b"some", bytes(9000)], pa.large_binary())
    lance.write_dataset(pa.table([values], schema=pa.schema([field])), tmp_path / "t", data_storage_version=version)
    lance_io.dataset(tmp_path / "t").validate()


def test_objects_outside_of_the_table_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(b"bytes")
    rows = pa.table({"b": lance.blob_array([(tmp_path / "photo").as_uri()])}, schema=pa.schema([lance.blob_field("b")]))
    lance_io.write_dataset(rows, tmp_path / "t", allow_external_blob_outside_bases=True)
    (tmp_path / "photo").unlink()
    lance_io.dataset(tmp_path / "t").validate()


def test_a_file_of_another_table(table: Path, tmp_path: Path) -> None:
    """The right name, the wrong rows."""
    target = data_files(table)[1]
    lance_io.write_dataset(ROWS, tmp_path / "other")
    target.write_bytes(data_files(tmp_path / "other")[0].read_bytes())
    with pytest.raises(FormatError):
        lance_io.dataset(table).validate()
