"""Pages whose repetition index is deeper than those of all writers so far: well formed, and not read here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.errors import FormatError, LanceError, UnsupportedError
from lance_io.proto import encodings21_pb2 as pb

if TYPE_CHECKING:
    from pathlib import Path

LISTS = pa.table({"l": [[[i, 1], []] for i in range(50)]})


def errors_of(uri: str) -> tuple[type, str]:
    """The class and text of what each way of reading raises."""
    found = []
    for read in (lambda t: t.to_table(), lambda t: t.take([3]), lambda t: t.to_table(filter="l is null")):
        with pytest.raises(LanceError) as raised:
            read(lance_io.dataset(uri))
        found.append((type(raised.value), str(raised.value)))
    assert len({one for one, _ in found}) == 1
    return found[0]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
async def test_deeper_repetition_indices(tmp_path: Path, version: str) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(LISTS, uri, data_storage_version=version)
    (file,) = (tmp_path / "t" / "data").iterdir()
    data = file.read_bytes()
    tag = pb.MiniBlockLayout(repetition_index_depth=1).SerializeToString()
    assert data.count(tag) == 1, "the page's own message"
    for depth, kind in ((2, UnsupportedError), (7, UnsupportedError), (0, FormatError)):
        file.write_bytes(data.replace(tag, tag[:-1] + bytes([depth])))
        found, text = errors_of(uri)
        assert found is kind and f"repetition index of depth {depth}" in text
        with pytest.raises(kind):
            await (await AsyncDataset.open(uri)).to_table()
