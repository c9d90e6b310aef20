"""Folders as old releases left them: V1 names, a copy of some manifest, no transactions, manifests that say little."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError
from tests.fuzz.test_found import change_manifest

if TYPE_CHECKING:
    from lance_io.proto import table_pb2

HISTORICAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "peer-datasets" / "historical"
COPIES = ("_latest.manifest", "latest.manifest")
SAID_LATER = (
    "data_format writer_version timestamp transaction_file transaction_section max_fragment_id index_section".split()
)


def rows(start: int, end: int) -> pa.Table:
    return pa.table({"a": range(start, end), "s": [f"s{i}" for i in range(start, end)]})


def old_table(folder: Path) -> str:
    """Three versions under V1 names, and a copy of the first one, which is not the newest."""
    uri = str(folder)
    lance.write_dataset(
        rows(0, 6), uri, max_rows_per_file=3, enable_v2_manifest_paths=False, data_storage_version="2.1"
    )
    for name in COPIES:
        shutil.copy(folder / "_versions" / "1.manifest", folder / name)
    lance.write_dataset(rows(6, 8), uri, mode="append")
    lance.dataset(uri).delete("a = 1")
    return uri


def manifest_names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "_versions").glob("*.manifest"))


def assert_same(uri: str) -> None:
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    assert (ours.version, ours.count_rows()) == (theirs.version, theirs.count_rows())
    columns = ["a", "s", "_rowid"]
    assert ours.to_table(columns=columns).equals(theirs.to_table(columns=columns))
    ours.validate()


@pytest.mark.parametrize("content", ["stale", "damaged", "absent"])
def test_a_copy_of_the_newest_manifest_is_not_looked_at(tmp_path: Path, content: str) -> None:
    uri = old_table(tmp_path / "t")
    for name in COPIES:
        if content == "damaged":
            (tmp_path / "t" / name).write_bytes(b"LANC")
        elif content == "absent":
            (tmp_path / "t" / name).unlink()
    assert_same(uri)
    before = [(tmp_path / "t" / name).read_bytes() for name in COPIES if content != "absent"]
    lance_io.write_dataset(rows(8, 9), uri, mode="append")
    assert_same(uri)
    assert [(tmp_path / "t" / name).read_bytes() for name in COPIES if content != "absent"] == before
    assert lance_io.dataset(uri).version == 4


def test_old_names_stay_until_they_are_migrated(tmp_path: Path) -> None:
    uri = old_table(tmp_path / "t")
    lance_io.write_dataset(rows(8, 9), uri, mode="append")
    ours = lance_io.dataset(uri)
    ours.tags.create("first", 1)
    ours.restore()
    assert manifest_names(tmp_path / "t") == [f"{version}.manifest" for version in range(1, 6)]
    assert_same(uri)
    assert [one["version"] for one in lance_io.dataset(uri).versions()] == [1, 2, 3, 4, 5]
    assert lance_io.dataset(uri, version=2).to_table().equals(lance.dataset(uri, version=2).to_table())
    lance_io.dataset(uri).cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert manifest_names(tmp_path / "t") == ["1.manifest", "5.manifest"]
    assert lance_io.dataset(uri, version="first").count_rows() == 6
    lance.dataset(uri).migrate_manifest_paths_v2()
    assert all(len(name) == 29 for name in manifest_names(tmp_path / "t"))
    lance_io.dataset(uri).delete("a = 2")
    assert_same(uri)


def test_a_manifest_under_the_number_of_another_is_refused_by_both(tmp_path: Path) -> None:
    uri = old_table(tmp_path / "t")
    shutil.copy(tmp_path / "t" / "_versions" / "3.manifest", tmp_path / "t" / "_versions" / f"{2**64 - 5}.manifest")
    for library, what in ((lance, "multiple manifest naming schemes"), (lance_io, "of version 3, its name of 4")):
        with pytest.raises(ValueError, match=what):
            library.dataset(uri)
    with pytest.raises(FormatError):
        lance_io.write_dataset(rows(8, 9), uri, mode="append")


@pytest.mark.parametrize("library", [lance, lance_io], ids=["pylance", "ours"])
def test_manifests_that_say_as_little_as_those_of_0_5(tmp_path: Path, library: Any) -> None:
    """Without what later releases added, and without transactions, a table is read, appended to, and made whole."""

    def change(message: table_pb2.Manifest) -> None:
        for name in SAID_LATER:
            message.ClearField(name)
        for fragment in message.fragments:
            for file in fragment.files:
                file.file_size_bytes = 0

    folder = tmp_path / "t"
    uri = str(folder)
    lance.write_dataset(rows(0, 6), uri, max_rows_per_file=3, data_storage_version="2.1")
    change_manifest(folder, change)
    shutil.rmtree(folder / "_transactions")
    assert_same(uri)
    library.write_dataset(rows(6, 8), uri, mode="append")
    assert_same(uri)
    library.dataset(uri).delete("a in (1, 7)")
    assert_same(uri)
    assert [fragment.fragment_id for fragment in lance_io.dataset(uri).get_fragments()] == [0, 1, 2]
    library.dataset(uri, version=1).restore()
    assert_same(uri)


def test_counts_of_rows_that_are_wrong_are_found_by_validation(tmp_path: Path) -> None:
    """Where the manifest says something, both libraries believe it."""
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(0, 6), uri, data_storage_version="2.1")
    change_manifest(tmp_path / "t", lambda message: setattr(message.fragments[0], "physical_rows", 5))
    assert lance_io.dataset(uri).count_rows() == lance.dataset(uri).count_rows() == 5
    with pytest.raises(FormatError, match="the file has 6 rows, the manifest says 5"):
        lance_io.dataset(uri).validate()


@pytest.mark.parametrize("case", sorted({path.parent.name for path in HISTORICAL.glob("*/v*.arrow")}))
def test_tables_of_old_releases_are_read_by_pylance_after_our_commits(tmp_path: Path, case: str) -> None:
    """Our versions change nothing that they need not. pylance's own first commit to the table of 0.10.5 ruins it."""
    folder = tmp_path / "t"
    shutil.copytree(HISTORICAL / case / "data.lance", folder)
    before = lance.dataset(str(folder)).to_table()
    ours = lance_io.dataset(str(folder))
    ours.update_config({"k": "v"})
    lance_io.dataset(str(folder), version=ours.version).restore()
    lance_io.dataset(str(folder)).tags.create("newest", ours.version)
    for version in (None, "newest", ours.version + 1):
        assert lance.dataset(str(folder), version=version).to_table().equals(before)
    assert lance_io.dataset(str(folder)).data_storage_version == lance.dataset(str(folder)).data_storage_version
