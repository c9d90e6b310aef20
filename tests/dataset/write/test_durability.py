"""What every change of a table flushes to the local disk: each new file and its name, or nothing if told so."""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

import lance_io
from lance_io.fragment import write_fragments

if TYPE_CHECKING:
    from collections.abc import Callable

    Change = Callable[[str, dict[str, str]], Any]

BLOB: Final = lance_io.blob_field("b", inline_size_threshold=1, dedicated_size_threshold=10)
SCHEMA: Final = pa.schema([("a", pa.int64()), BLOB])


def rows(count: int) -> pa.Table:
    """With blobs in a file of several and in files of their own."""
    blobs = [b"x" * (5 + number % 2 * 10) for number in range(count)]
    return pa.table([pa.array(range(count)), lance_io.blob_array(blobs)], schema=SCHEMA)


def table(uri: str, options: dict[str, str], version: int | None = None) -> lance_io.LanceDataset:
    return lance_io.dataset(uri, version, storage_options=options)


def write(uri: str, options: dict[str, str], **how: Any) -> lance_io.LanceDataset:
    return lance_io.write_dataset(rows(20), uri, max_rows_per_file=10, storage_options=options, **how)


def commit_fragments(uri: str, options: dict[str, str]) -> None:
    made = write_fragments(rows(5), uri, storage_options=options)
    operation = lance_io.LanceOperation.Append(list(made))
    lance_io.LanceDataset.commit(uri, operation, read_version=2, storage_options=options)


CHANGES: Final[dict[str, Change]] = {
    "create": lambda uri, options: write(f"{uri}/new/table", options),
    "append": lambda uri, options: write(uri, options, mode="append"),
    "overwrite": lambda uri, options: write(uri, options, mode="overwrite"),
    "delete": lambda uri, options: table(uri, options).delete("a % 4 = 1"),
    "delete by an old handle": lambda uri, options: table(uri, options, 1).delete("a % 4 = 1"),
    "delete in a fragment": lambda uri, options: table(uri, options).get_fragment(1).delete("a = 12"),
    "commit": commit_fragments,
    "configure": lambda uri, options: table(uri, options).update_config({"k": "v"}),
    "restore": lambda uri, options: table(uri, options, 1).restore(),
    "tag": lambda uri, options: table(uri, options).tags.create("named", 1),
    "move tag": lambda uri, options: table(uri, options).tags.update("first", 2),
}


def files(root: Path) -> dict[str, int]:
    """All files and the inode of each."""
    return {str(path): path.stat().st_ino for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Two versions, a tag, and a deletion file."""
    uri = f"{tmp_path}/t"
    made = write(uri, {"durability": "none"})
    made.delete("a = 3")
    made.tags.create("first", 1)
    return uri


@pytest.mark.parametrize("name", CHANGES)
def test_everything_new_is_flushed(name: str, uri: str, flushed: list[str]) -> None:
    before = files(Path(uri))
    CHANGES[name](uri, {})
    new = [Path(path) for path, inode in files(Path(uri)).items() if before.get(path) != inode]
    new = [path for path in new if path.name != "latest_version_hint.json"]  # nothing is lost without it
    assert new
    for folder, count in Counter(str(path.parent) for path in new).items():
        assert folder in flushed, "the names are not"
        assert sum(os.path.dirname(path) == folder and not os.path.isdir(path) for path in flushed) >= count


@pytest.mark.parametrize("version", [None, 1])
def test_a_delete_flushes_the_names_of_its_files_once(tmp_path: Path, flushed: list[str], version: int | None) -> None:
    """However many fragments it concerns, and when it is made again for a version that others committed."""
    uri, num_fragments = f"{tmp_path}/t", 40
    made = lance_io.write_dataset(pa.table({"a": range(400)}), uri, max_rows_per_file=10)
    made.delete("a = 0")
    opened = table(uri, {}, version)
    flushed.clear()
    opened.delete("a % 10 = 3")
    folders = {path for path in flushed if os.path.isdir(path)}
    rounds = 1 if version is None else 2  # the file of the fragment that both have deleted from is made again
    assert flushed.count(f"{uri}/_deletions") == rounds + (rounds - 1), "what was made in vain is removed"
    files = [path for path in flushed if path not in folders and "/_deletions/" in path]
    assert len(files) == num_fragments + rounds - 1


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_is_flushed_if_the_table_is_opened_so(name: str, uri: str, flushed: list[str]) -> None:
    before = files(Path(uri))
    CHANGES[name](uri, {"durability": "none"})
    assert files(Path(uri)) != before
    assert flushed == []


def test_a_cleanup_flushes_what_it_removes_only_then(uri: str, flushed: list[str]) -> None:
    """Manifests go for good before the files that they name."""
    table(uri, {"durability": "none"}).cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert flushed == []
    write(uri, {"durability": "none"}, mode="overwrite")
    table(uri, {}).tags.delete("first")
    flushed.clear()
    table(uri, {}).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert flushed.index(f"{uri}/_versions") < flushed.index(f"{uri}/data")
