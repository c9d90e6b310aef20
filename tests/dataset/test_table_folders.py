"""Folders of tables in each kind of store: their properties, what they hold, and their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest

import lance_io
from lance_io.dataset.distributed import TableFolder, TablePlace
from lance_io.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import S3Server

ROWS = pa.table({"id": [1, 2]})


def check_folders(root: str, options: dict[str, str]) -> None:
    """A folder of tables is written, filled and dropped below a root."""

    def folder(*names: str) -> TableFolder:
        return TableFolder(TablePlace.of_process("/".join([root, *names]), options))

    def write(path: str) -> None:
        lance_io.write_dataset(ROWS, f"{root}/{path}.lance", storage_options=options)

    outer, inner = folder("outer"), folder("outer", "inner")
    assert outer.properties() is None and outer.drop() == []
    outer.write({"comment": "words", "x": "1"})
    outer.write({"comment": "others"})
    assert outer.properties() == {"comment": "others"}
    assert folder().folders() == ["outer"]
    write("outer/t")
    write("outer/inner/u")
    assert outer.folders() == ["inner"] and inner.folders() == []
    assert inner.properties() == {}  # no object says that it is one, but a table is in it
    assert sorted(outer.drop()) == ["inner", "t.lance"]
    assert lance_io.dataset(f"{root}/outer/t.lance", storage_options=options).count_rows() == 2
    write("outer/inner/_other/v")
    assert outer.drop(with_tables=True) == ["inner/_other"]
    assert lance_io.dataset(f"{root}/outer/inner/u.lance", storage_options=options).count_rows() == 2
    write("kept")
    assert folder("outer", "inner", "_other").drop(with_tables=True) == []
    assert outer.drop(with_tables=True) == []
    assert (outer.properties(), inner.properties()) == (None, None)
    assert folder().folders() == []
    assert lance_io.dataset(f"{root}/kept.lance", storage_options=options).count_rows() == 2


def test_folders_on_disk(tmp_path: Path) -> None:
    check_folders(str(tmp_path), {})
    assert [path.name for path in tmp_path.iterdir()] == ["kept.lance"]


def test_folders_in_memory() -> None:
    check_folders(f"shared-memory://folders-{uuid4().hex}/root", {})


def test_folders_in_a_bucket(s3: S3Server) -> None:
    check_folders(s3.uri(f"folders-{uuid4().hex}"), s3.options())


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"7", b"{}", b'{"properties": 7}', b'{"properties": {"a": 1}}', b"\xff\xfe", b"[" * 100_000],
)
def test_other_contents_are_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "_namespace.json").write_bytes(text)
    with pytest.raises(FormatError, match=r"_namespace\.json"):
        TableFolder(TablePlace.of_process(str(tmp_path), {})).properties()


def test_an_object_beyond_all_measure_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "_namespace.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match="at most 1048576 bytes"):
        TableFolder(TablePlace.of_process(str(tmp_path), {})).properties()


def test_links_to_other_folders_are_not_followed(tmp_path: Path) -> None:
    lance_io.write_dataset(ROWS, str(tmp_path / "elsewhere" / "t.lance"))
    folder = TableFolder(TablePlace.of_process(str(tmp_path / "linked"), {}))
    folder.write({})
    (tmp_path / "linked" / "away").symlink_to(tmp_path / "elsewhere")
    assert folder.drop(with_tables=True) == ["away"]
    assert lance_io.dataset(str(tmp_path / "elsewhere" / "t.lance")).count_rows() == 2
