"""Tables whose data files are of several versions (feature flag 256), and tables whose manifest is wrong about them."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import permutations
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError, OperationError
from lance_io.format.version import READABLE, V2_0
from lance_io.format.writable import WRITABLE
from tests.fuzz.test_found import change_manifest
from tests.interop.test_feature_flags import newest

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.proto import table_pb2

READ = sorted(version.name for version in READABLE if version >= V2_0)
WRITTEN = sorted(version.name for version in WRITABLE if version >= V2_0)
PAIRS = list(permutations(READ, 2))
SCHEMA = pa.schema(
    [("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int32())), ("n", pa.struct([("x", pa.float64())]))]
)


def rows(start: int, end: int) -> pa.Table:
    made = [
        {"a": i, "s": f"s{i % 7}" if i % 5 else None, "l": [i] * (i % 3), "n": {"x": i / 2}} for i in range(start, end)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def described(folder: Path) -> tuple[Any, ...]:
    """Words, named version, and the version and fields of every file, of the newest version."""
    message = newest(folder)
    files = [
        [(file.file_major_version, file.file_minor_version, list(file.fields)) for file in fragment.files]
        for fragment in message.fragments
    ]
    return message.reader_feature_flags, message.writer_feature_flags, message.data_format.version, files


def assert_same(uri: str) -> None:
    """Both libraries read the same, by scans, takes and filters, and all files are what the manifest says."""
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    columns = [*theirs.schema.names, "_rowid", "_rowaddr"]
    assert ours.to_table(columns=columns).equals(theirs.to_table(columns=columns))
    picked = [theirs.count_rows() - 1, 0, theirs.count_rows() // 2, 0]
    assert ours.take(picked).equals(theirs.take(picked))
    assert ours.to_table(filter="a % 3 = 1").equals(theirs.to_table(filter="a % 3 = 1"))
    assert ours.data_storage_version == theirs.data_storage_version
    ours.validate()


@pytest.mark.parametrize(("first", "second"), PAIRS, ids="+".join)
def test_tables_of_two_versions_are_read_and_changed(tmp_path: Path, first: str, second: str) -> None:
    """Files of two versions, then a fragment with files of both; deletions, a restore, a tag and a cleanup."""
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(0, 50), uri, max_rows_per_file=20, data_storage_version=first)
    lance.write_dataset(rows(50, 90), uri, mode="append", data_storage_version=second)
    assert_same(uri)
    lance.dataset(uri).add_columns({"more": "a * 2"})
    versions = {file[:2] for file in described(tmp_path / "t")[3][-1]}
    assert len(versions) == 2  # of one fragment
    assert_same(uri)
    lance_io.dataset(uri).delete("a % 11 = 4")
    assert_same(uri)
    if first in WRITTEN:
        lance_io.write_dataset(rows(90, 100), uri, mode="append")
        assert_same(uri)
    ours = lance_io.dataset(uri)
    ours.tags.create("mixed", 2)
    flags = described(tmp_path / "t")[:2]
    assert all(word & 256 for word in flags)
    lance_io.dataset(uri, version=1).restore()
    assert described(tmp_path / "t")[:2] == (256, 256)
    assert_same(uri)
    lance_io.dataset(uri).cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert lance_io.dataset(uri, version="mixed").to_table().equals(lance.dataset(uri, version="mixed").to_table())
    assert_same(uri)


@pytest.mark.parametrize(("first", "second"), [pair for pair in PAIRS if {*pair} <= {*WRITTEN}], ids="+".join)
def test_our_writes_leave_what_those_of_pylance_leave(tmp_path: Path, first: str, second: str) -> None:
    left = []
    for name, library in (("theirs", lance), ("ours", lance_io)):
        uri, found = str(tmp_path / name), []
        library.write_dataset(rows(0, 5), uri, data_storage_version=first)
        for options in (
            {"mode": "append"},
            {"mode": "append", "data_storage_version": second},
            {"mode": "append"},
            {"mode": "overwrite"},
            {"mode": "overwrite", "data_storage_version": second},
            {"mode": "append"},
        ):
            library.write_dataset(rows(5, 9), uri, **options)
            found.append(described(tmp_path / name))
            assert_same(uri)
        library.dataset(uri).delete("true")
        found.append(described(tmp_path / name))
        library.dataset(uri, version=1).restore()
        found.append(described(tmp_path / name))
        left.append(found)
    assert left[0] == left[1]
    words = [word for *words, _, _ in left[1] for word in words]
    assert words == [0, 0] + [256, 256] * 7


def commit_files(library: Any, folder: Path, version: str) -> None:
    """Append a file that lies in the table's folder already, of a version that nobody has checked."""
    source = folder.parent / f"files of {version} for {folder.name}"
    (fragment,) = lance.fragment.write_fragments(rows(0, 3), str(source), data_storage_version=version)
    (source / "data" / fragment.files[0].path).rename(folder / "data" / fragment.files[0].path)
    metadata = library.FragmentMetadata.from_json(json.dumps(fragment.to_json()))
    library.LanceDataset.commit(str(folder), library.LanceOperation.Append([metadata]), read_version=1)


def test_files_of_another_version_that_are_committed_set_the_flag(tmp_path: Path) -> None:
    left = []
    for name, library in (("theirs", lance), ("ours", lance_io)):
        lance.write_dataset(rows(0, 5), str(tmp_path / name), data_storage_version="2.1")
        commit_files(library, tmp_path / name, "2.2")
        left.append(described(tmp_path / name))
    assert left[0] == left[1]


def test_versions_0_1_and_2_x_are_not_mixed(tmp_path: Path) -> None:
    for name, library in (("theirs", lance), ("ours", lance_io)):
        flat = pa.table({"a": [1, 2]})
        for base, added in (("2.1", "0.1"), ("0.1", "2.1")):
            folder = tmp_path / f"{name} {base}"
            lance.write_dataset(
                rows(0, 5) if base == "2.1" else rows(0, 5).select(["a", "s"]), str(folder), data_storage_version=base
            )
            with pytest.raises(OSError, match=r"V1 and V2|All data files must have the same version|mixes V1 and V2"):
                commit_files(library, folder, added)
        with pytest.raises(
            OSError, match=r"Cannot append data files in version 2.1 to a dataset with default version 0.1: V1 and V2"
        ):
            library.write_dataset(flat, str(tmp_path / f"{name} 0.1"), mode="append", data_storage_version="2.1")


def renamed(version: str | None) -> Any:
    """A change of a manifest's data format; None takes it away."""

    def change(message: table_pb2.Manifest) -> None:
        message.data_format.version = version or ""
        if version is None:
            message.ClearField("data_format")

    return change


@pytest.mark.parametrize("version", READ)
def test_a_missing_version_is_that_of_the_files(tmp_path: Path, version: str) -> None:
    left = []
    for name, library in (("theirs", lance), ("ours", lance_io)):
        uri = str(tmp_path / name)
        lance.write_dataset(rows(0, 5), uri, data_storage_version=version)
        change_manifest(tmp_path / name, renamed(None))
        assert library.dataset(uri).data_storage_version == version
        assert_same(uri)
        if version in WRITTEN:
            library.write_dataset(rows(5, 6), uri, mode="append")
        library.dataset(uri).update_config({"k": "v"})
        left.append(described(tmp_path / name))
        assert_same(uri)
    assert left[0] == left[1]


@pytest.mark.parametrize("version", READ)
def test_a_table_that_says_0_1_over_files_of_2_x_is_put_right(tmp_path: Path, version: str) -> None:
    """As release 0.16 wrote them. The next version says so, in both libraries; here appends and deletions work, too."""
    left = []
    for name, library in (("theirs", lance), ("ours", lance_io)):
        uri = str(tmp_path / name)
        lance.write_dataset(rows(0, 5), uri, data_storage_version=version)
        change_manifest(tmp_path / name, renamed("0.1"))
        assert lance_io.dataset(uri).to_table().equals(rows(0, 5))
        library.dataset(uri).update_config({"k": "v"})
        left.append(described(tmp_path / name))
        assert_same(uri)
    assert left[0] == left[1]
    if version in WRITTEN:
        lance.write_dataset(rows(0, 5), str(tmp_path / "t"), data_storage_version=version)
        change_manifest(tmp_path / "t", renamed("0.1"))
        lance_io.write_dataset(rows(5, 9), str(tmp_path / "t"), mode="append")
        lance_io.dataset(str(tmp_path / "t")).delete("a = 1")
        assert described(tmp_path / "t")[:3] == (1, 1, version)
        assert_same(str(tmp_path / "t"))


def add_file(folder: Path, version: str, place: int) -> None:
    """A fragment of five rows more, before (0) or behind the one that is there, and nobody says so."""
    source = folder.parent / f"files of {version} for {folder.name}"
    (fragment,) = lance.fragment.write_fragments(rows(5, 10), str(source), data_storage_version=version)
    (file,) = fragment.files
    (source / "data" / file.path).rename(folder / "data" / file.path)

    def change(message: table_pb2.Manifest) -> None:
        new = message.fragments.add()
        new.CopyFrom(message.fragments[0])
        message.fragments[1 - place].id, message.max_fragment_id = 1, 1
        new = message.fragments[place]
        new.files[0].path, new.files[0].file_size_bytes = file.path, 0
        new.files[0].file_major_version, new.files[0].file_minor_version = (2, 0) if version == "2.0" else (2, 1)
        new.files[0].fields[:], new.files[0].column_indices[:] = file.fields, file.column_indices
        message.fragments[place].id, message.fragments[1 - place].id = place, 1 - place

    change_manifest(folder, change)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_a_table_that_says_0_1_over_files_of_both_is_read_only(tmp_path: Path, version: str, place: int) -> None:
    """As release 0.16 left them, too. A filter of pylance fails at the statistics that files of 2.x do not have."""
    folder = tmp_path / "t"
    lance.write_dataset(rows(0, 5), str(folder), data_storage_version="0.1", max_rows_per_group=2)
    lance.write_dataset(rows(0, 5), str(folder), mode="overwrite", max_rows_per_group=2)
    add_file(folder, version, place)
    before, ours, theirs = described(folder), lance_io.dataset(folder), lance.dataset(folder)
    assert ours.to_table(columns=["a", "s", "_rowid"]) == theirs.to_table(columns=["a", "s", "_rowid"])
    assert ours.to_table() == theirs.to_table() and ours.count_rows() == theirs.count_rows() == 10
    assert ours.take([9, 0, 4]) == theirs.take([9, 0, 4])
    assert ours.to_table(filter="a > 3") == theirs.scanner(filter="a > 3", use_stats=False).to_table()
    assert ours.data_storage_version == theirs.data_storage_version == "0.1"
    ours.validate()
    for change in (
        lambda library, table: library.write_dataset(rows(10, 11), folder, mode="append"),
        lambda library, table: table.update_config({"k": "v"}),
        lambda library, table: table.restore(),
    ):
        for library in (lance, lance_io):
            with pytest.raises(OSError, match=r"a mixture of file versions.*to rollback to an earlier"):
                change(library, library.dataset(folder))
    with pytest.raises(OperationError, match="a mixture of file versions"):
        lance_io.dataset(folder).delete("a = 1")
    assert described(folder) == before
    assert len([*(folder / "data").iterdir()]) == 4  # the fourth is of pylance's append
    lance_io.dataset(folder, version=1).restore()
    assert_same(str(folder))
    lance_io.write_dataset(rows(5, 9), folder, mode="append")
    assert_same(str(folder))


def test_such_a_table_is_emptied_and_overwritten(tmp_path: Path) -> None:
    for library in (lance, lance_io):
        folder = tmp_path / library.__name__
        lance.write_dataset(rows(0, 5), str(folder), data_storage_version="0.1")
        add_file(folder, "2.0", 1)
        library.dataset(folder).delete("true")
        assert described(folder)[2:] == ("0.1", [])
        library.dataset(folder, version=1)
        library.write_dataset(rows(0, 5), folder, mode="overwrite", data_storage_version="2.1")
        assert_same(str(folder))


def test_files_of_both_are_refused_where_nothing_or_mixed_files_are_said(tmp_path: Path) -> None:
    lance.write_dataset(rows(0, 5), str(tmp_path / "t"), data_storage_version="0.1")
    add_file(tmp_path / "t", "2.1", 1)

    def mix(message: table_pb2.Manifest) -> None:
        message.data_format.version = "0.1"
        message.reader_feature_flags |= 256
        message.writer_feature_flags |= 256

    for change in (renamed(None), mix, renamed("2.1")):
        change_manifest(tmp_path / "t", change)
        for library in (lance, lance_io):
            with pytest.raises(ValueError, match=r"V1|must have the same version"):
                library.dataset(tmp_path / "t")


@pytest.mark.parametrize("named", ["2.0", "2.2", "1.0", ""])
def test_other_wrong_versions_are_refused_by_both(tmp_path: Path, named: str) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(0, 5), uri, data_storage_version="2.1")
    change_manifest(tmp_path / "t", renamed(named))
    for library in (lance, lance_io):
        with pytest.raises(ValueError, match=r"mixed|[Uu]nknown"):
            library.dataset(uri)


def test_files_of_0_1_in_a_table_that_says_2_x_are_refused_by_both(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": [1]}), uri, data_storage_version="0.1")
    change_manifest(tmp_path / "t", renamed("2.1"))
    for library in (lance, lance_io):
        with pytest.raises(ValueError, match="V1 and V2 storage versions cannot be mixed"):
            library.dataset(uri)


def test_one_field_in_two_columns_is_refused_by_its_id(tmp_path: Path) -> None:
    """In files of 2.x; releases of 0.1 wrote such fragments, which are read."""
    lance.write_dataset(rows(0, 5), str(tmp_path / "t"), data_storage_version="2.1")
    lance.dataset(str(tmp_path / "t")).add_columns({"more": "a * 2"})
    change_manifest(tmp_path / "t", lambda message: message.fragments[0].files[1].fields.__setitem__(0, 0))
    with pytest.raises(FormatError, match="fragment 0: field 0 is stored in more than one column"):
        lance_io.dataset(str(tmp_path / "t")).to_table()
