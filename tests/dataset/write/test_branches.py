"""Branches and clones made by either library, seen, changed and removed by both."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import CommitConflictError, LanceError, NotFound, UsageError
from lance_io.table.manifest.index_section import decode_indices
from lance_io.table.manifest.manifest import decode_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import S3Server

LIBRARIES = (lance, lance_io)
NOW = timedelta(0)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Four versions: three fragments, a deletion file, a config entry and an index; version 2 has a tag."""
    path = str(tmp_path / "t")
    table = lance.write_dataset(
        pa.table({"a": range(12), "s": [f"row {i}" for i in range(12)]}), path, max_rows_per_file=4
    )
    table.delete("a = 1")
    table.update_config({"k": "v"})
    table.create_scalar_index("a", "BTREE")
    table.tags.create("two", 2)
    return path


def values(table: Any) -> list[int]:
    """The rows of a version, sorted."""
    return sorted(table.to_table()["a"].to_pylist())


def first_manifest(folder: Path) -> dict[str, Any]:
    """What the only manifest of a folder says, without names that are random."""
    (file,) = (folder / "_versions").glob("*.manifest")
    manifest = decode_manifest(file.read_bytes())
    message = manifest.message
    indices = decode_indices(manifest.index_section) if manifest.index_section else []
    return {
        "name": file.name,
        "flags": (message.reader_feature_flags, message.writer_feature_flags),
        "branch": message.branch if message.HasField("branch") else None,
        "bases": sorted((one.id, one.name, one.is_dataset_root, Path(one.path).name) for one in message.base_paths),
        "fragments": [
            (
                fragment.id,
                fragment.physical_rows,
                [(file.path, file.base_id if file.HasField("base_id") else None) for file in fragment.files],
                (fragment.deletion_file.id, fragment.deletion_file.HasField("base_id"), fragment.deletion_file.base_id),
            )
            for fragment in message.fragments
        ],
        "max": message.max_fragment_id,
        "config": dict(message.config),
        "indices": [(index.uuid, index.base_id) for index in indices],
        "transaction": bool(re.fullmatch(rf"{message.version}-[0-9a-f-]{{36}}\.txn", message.transaction_file)),
    }


REFERENCES = (None, 2, 4, "two", (None, None), ("main", 1), ("dev", None), ("dev", 4))


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_branches_are_those_that_pylance_makes(uri: str, tmp_path: Path, reference: Any) -> None:
    lance.dataset(uri).create_branch("dev").delete("a = 5")
    other = str(tmp_path / "other")
    shutil.copytree(uri, other)
    theirs, ours = (
        lance.dataset(uri).create_branch("n", reference),
        lance_io.dataset(other).create_branch("n", reference),
    )
    assert (ours.version, values(ours)) == (theirs.version, values(theirs))
    assert Path(ours.uri).relative_to(other) == Path(theirs.uri).relative_to(uri)
    made, expected = (first_manifest(Path(one) / "tree/n") for one in (other, uri))
    for one in (made, expected):  # one of the folders is of that name
        one["bases"] = [(*base[:3], base[3].replace("other", "t")) for base in one["bases"]]
    assert made == expected
    files = [json.loads((Path(one) / "_refs/branches/n.json").read_text()) for one in (other, uri)]
    assert list(files[0]) == list(files[1])
    for branch in files:
        assert branch.pop("createAt") > 1_700_000_000  # seconds
        assert branch.pop("manifestSize") > 0
        mapping = branch["identifier"]["version_mapping"]
        assert all(re.fullmatch("[0-9a-f]{32}", fork) for _, fork in mapping)
        mapping[-1][1] = "random"
    assert files[0] == files[1]
    for reader in LIBRARIES:
        seen = reader.dataset(other).branches.list()["n"]
        assert (seen["parent_branch"], seen["parent_version"]) == (files[0]["parentBranch"], files[0]["parentVersion"])
        assert seen["manifest_size"] == os.path.getsize(next((Path(other) / "tree/n/_versions").glob("*.manifest")))
        assert values(reader.dataset(other).checkout_version(("n", None))) == values(theirs)
    assert lance.dataset(other).checkout_version(("n", None)).to_table(filter="a = 5").num_rows == values(ours).count(5)


@pytest.mark.parametrize("maker", LIBRARIES, ids=lambda library: library.__name__)
@pytest.mark.parametrize("writer", LIBRARIES, ids=lambda library: library.__name__)
def test_either_library_writes_on_a_branch_of_the_other(uri: str, maker: Any, writer: Any) -> None:
    maker.dataset(uri).create_branch("team/try", 2)
    branch = writer.dataset(uri).checkout_version(("team/try", None))
    branch.insert(pa.table({"a": [100, 101], "s": ["x", "y"]}))
    branch.delete("a in (2, 100)")
    branch.update({"a": "a + 1000"}, where="a = 8")
    branch.add_columns({"twice": "a * 2"})
    branch.alter_columns({"path": "s", "name": "t"})
    branch.update_config({"mine": "yes"})
    writer.dataset(uri).tags.create("there", ("team/try", 4))
    expected = sorted({*range(12), 101, 1008} - {1, 2, 8})
    for reader in LIBRARIES:
        table = reader.dataset(uri).checkout_version(("team/try", None))
        assert (values(table), table.version) == (expected, 8)
        assert sorted(table.to_table()["twice"].to_pylist()) == [2 * one for one in expected]
        assert table.schema.names == ["a", "t", "twice"]
        assert reader.dataset(uri).checkout_version("there").version == 4
        assert values(reader.dataset(uri)) == [0, *range(2, 12)], "the main branch is as it was"
    branch = lance.dataset(uri).checkout_version(("team/try", None))
    branch.optimize.compact_files()
    table = lance_io.dataset(uri).checkout_version(("team/try", None))
    assert values(table) == expected
    assert {file.base_id for fragment in table.get_fragments() for file in fragment.data_files()} == {None}


def test_a_branch_opened_by_its_folder_knows_the_table(uri: str) -> None:
    made = lance_io.dataset(uri).create_branch("a/b")
    opened = lance_io.dataset(made.uri)
    assert opened.branches.list().keys() == {"a/b"}
    assert opened.tags.list().keys() == {"two"}
    written = lance_io.write_dataset(pa.table({"a": [50], "s": ["z"]}), made.uri, mode="append")
    assert written.tags.list().keys() == {"two"}
    assert values(written) == values(lance.dataset(uri).checkout_version(("a/b", None)))
    assert lance_io.dataset(uri).checkout_version(("a/b", None)).create_branch("a").version == 5


BAD_NAMES = ["dev", "main", "", "a b", "a//b", "/a", "a/", "..", "a.lock", "a\\b", "a..b"]


@pytest.mark.parametrize(
    "change",
    [
        *[lambda table, name=name: table.create_branch(name) for name in BAD_NAMES],
        lambda table: table.create_branch("n", 99),
        lambda table: table.create_branch("n", "nope"),
        lambda table: table.create_branch("n", ("nope", None)),
        lambda table: table.create_branch("n", 1.5),
        lambda table: table.create_branch(7),
        lambda table: table.branches.delete("nope"),
        lambda table: table.branches.delete("main"),
        lambda table: table.branches.delete("dev"),
        lambda table: table.branches.delete("tagged"),
        lambda table: table.branches.replace_metadata("nope", {"x": "y"}),
        lambda table: table.branches.replace_metadata("dev", {"x": 1}),
        lambda table: table.branches.list_ordered("up"),
        lambda table: table.shallow_clone(table.uri, 4),
        lambda table: table.deep_clone(table.uri, 4),
        lambda table: table.shallow_clone(table.uri + "-none", 44),
    ],
)
def test_what_cannot_be_is_refused_as_by_pylance(uri: str, change: Any) -> None:
    table = lance.dataset(uri)
    table.create_branch("dev").create_branch("heir")
    table.create_branch("tagged")
    table.tags.create("holds", ("tagged", None))
    before = table.branches.list()
    with pytest.raises((ValueError, OSError, TypeError)) as theirs:
        change(table)
    with pytest.raises((LanceError, TypeError)) as ours:
        change(lance_io.dataset(uri))
    assert isinstance(ours.value, theirs.type)
    assert lance.dataset(uri).branches.list() == before
    assert values(lance.dataset(uri).checkout_version(("dev", None))) == [0, *range(2, 12)]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__)
def test_branches_are_listed_in_order(uri: str, library: Any) -> None:
    for name, version in (("x", 2), ("ü", 4), ("b", 2), (".a", 1)):
        library.dataset(uri).create_branch(name, version)
    for reader in LIBRARIES:
        branches = reader.dataset(uri).branches
        assert [name for name, _ in branches.list_ordered()] == ["ü", "b", "x", ".a"]
        assert [name for name, _ in branches.list_ordered("asc")] == [".a", "b", "x", "ü"]
    lance_io.dataset(uri).branches.replace_metadata("x", {"why": "größer"})
    assert lance.dataset(uri).branches.list()["x"]["metadata"] == {"why": "größer"}
    lance_io.dataset(uri).cleanup_old_versions(NOW, error_if_tagged_old_versions=False)
    assert values(lance.dataset(uri).checkout_version(("x", None))) == [0, *range(2, 12)]


def left(folder: str) -> set[str]:
    """Files below the folder of branches."""
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


def test_a_removed_branch_leaves_nothing_but_branches_below_its_name(uri: str) -> None:
    table = lance_io.dataset(uri)
    table.create_branch("p").insert(pa.table({"a": [7], "s": ["q"]}))
    inner = table.create_branch("p/data")  # whose folder is one of those of `p`
    inner.insert(pa.table({"a": [8], "s": ["q"]}))
    table.branches.delete("p")
    assert all(path.startswith("p/data/") for path in left(f"{uri}/tree"))
    assert values(lance.dataset(uri).checkout_version(("p/data", None))) == sorted([8, 0, *range(2, 12)])
    assert table.create_branch("p").version == 4
    table.branches.delete("p/data")
    table.branches.delete("p")
    assert not os.path.exists(f"{uri}/tree/p")
    assert lance.dataset(uri).branches.list() == {}


@pytest.mark.parametrize("maker", LIBRARIES, ids=lambda library: library.__name__)
def test_what_an_unfinished_creation_left_is_taken_over_or_removed(uri: str, maker: Any) -> None:
    maker.dataset(uri).create_branch("side", 2)
    os.remove(f"{uri}/_refs/branches/side.json")
    table = lance_io.dataset(uri)
    with pytest.raises(OSError, match=re.escape("branches.delete")):
        table.create_branch("side", 4)
    table.create_branch("side", 2)
    assert values(lance.dataset(uri).checkout_version(("side", None))) == [0, *range(2, 12)]
    os.remove(f"{uri}/_refs/branches/side.json")
    table.branches.delete("side")
    assert not os.path.exists(f"{uri}/tree/side")
    with pytest.raises(NotFound):
        table.branches.delete("side")


def test_a_branch_file_without_versions_can_be_removed(uri: str) -> None:
    table = lance_io.dataset(uri)
    table.create_branch("side")
    shutil.rmtree(f"{uri}/tree/side")
    with pytest.raises(OSError, match="already exists"):
        table.create_branch("side")
    table.branches.delete("side")
    assert lance.dataset(uri).branches.list() == {}


def test_a_branch_whose_version_is_being_named_is_not_removed(uri: str) -> None:
    from lance_io.commit.pins import pin_version, release
    from lance_io.commit.target import SystemClock
    from lance_io.plans.plan import drive_sync

    table = lance_io.dataset(uri)
    branch = table.create_branch("side")
    pin = drive_sync(pin_version(branch._state.location, 4, SystemClock()))
    with pytest.raises(OSError, match="is being made of its versions"):
        table.branches.delete("side")
    drive_sync(release(branch._state.location, pin))
    table.branches.delete("side")


@pytest.mark.parametrize("cleaner", LIBRARIES, ids=lambda library: library.__name__)
@pytest.mark.parametrize("maker", LIBRARIES, ids=lambda library: library.__name__)
def test_cleanups_keep_what_branches_of_branches_refer_to(uri: str, maker: Any, cleaner: Any) -> None:
    main = lance.dataset(uri)
    side = maker.dataset(uri).create_branch("side")
    side.insert(pa.table({"a": [100], "s": ["n"]}))
    inner = maker.dataset(uri).checkout_version(("side", None)).create_branch("side/inner")
    inner.delete("a = 3")
    lance.dataset(uri).checkout_version(("side", None)).optimize.compact_files()
    main.optimize.compact_files()
    main.delete("a < 9")
    for branch in (None, "side", "side/inner"):
        table = cleaner.dataset(uri) if branch is None else cleaner.dataset(uri).checkout_version((branch, None))
        table.cleanup_old_versions(NOW, delete_unverified=True, error_if_tagged_old_versions=False)
    rows = [0, *range(2, 12), 100]
    for reader in LIBRARIES:
        assert values(reader.dataset(uri)) == [9, 10, 11]
        assert values(reader.dataset(uri).checkout_version("two")) == rows[:-1]
        assert values(reader.dataset(uri).checkout_version(("side", None))) == rows
        assert values(reader.dataset(uri).checkout_version(("side/inner", None))) == [one for one in rows if one != 3]


# -- clones ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["shallow_clone", "deep_clone"])
@pytest.mark.parametrize("reference", [2, 4, "two", ("dev", None)], ids=str)
def test_clones_are_those_that_pylance_makes(uri: str, tmp_path: Path, how: str, reference: Any) -> None:
    lance.dataset(uri).create_branch("dev").delete("a = 5")
    made = {}
    for library in LIBRARIES:
        target = tmp_path / library.__name__ / "clone"
        clone = getattr(library.dataset(uri), how)(str(target), reference)
        made[library] = first_manifest(target), left(str(target / "data")), left(str(target / "_deletions"))
        made[library] += (left(str(target / "_indices")),)
        for reader in LIBRARIES:
            assert values(reader.dataset(str(target))) == values(clone)
            assert reader.dataset(str(target)).version == clone.version
    assert made[lance] == made[lance_io]
    theirs = lance.dataset(str(tmp_path / "lance_io/clone"))
    theirs.delete("a = 9")
    lance_io.dataset(theirs.uri).insert(pa.table({"a": [1000], "s": ["w"]}))
    assert {9, 1000} & set(values(lance.dataset(theirs.uri))) == {1000}
    again = lance_io.dataset(theirs.uri).deep_clone(tmp_path / "again", None)
    shutil.rmtree(uri)
    deleted = {1, 5, 9} if reference == ("dev", None) else {1, 9}
    assert values(lance.dataset(again.uri)) == sorted({*range(12), 1000} - deleted)
    with pytest.raises(OSError, match="already exists"):
        again.deep_clone(again.uri, None)


def test_clones_of_blobs_have_them(tmp_path: Path) -> None:
    field = lance_io.blob_field("b", inline_size_threshold=10, dedicated_size_threshold=100)
    blobs = [bytes([size]) * size for size in (3, 0, 40, 41, 120)]
    rows = pa.table([pa.array(range(5)), lance_io.blob_array(blobs)], schema=pa.schema([("a", pa.int64()), field]))
    for managed in (False, True):
        source = rows.replace_schema_metadata({"lance.blob.managed": "true"}) if managed else rows
        table = lance_io.write_dataset(source, tmp_path / f"t{managed}", data_storage_version="2.2")
        clone = table.deep_clone(tmp_path / f"c{managed}", None)
        shutil.rmtree(tmp_path / f"t{managed}")
        for reader in LIBRARIES:
            read = reader.dataset(clone.uri).take_blobs("b", indices=[0, 1, 2, 3, 4])
            assert [one.readall() for one in read] == blobs


def test_clones_into_another_store(uri: str, s3: S3Server, s3_uri: str, tmp_path: Path) -> None:
    options = s3.options()
    rows = [0, *range(2, 12)]
    deep = lance_io.dataset(uri).deep_clone(f"{s3_uri}/deep", "two", storage_options=options)
    assert values(lance.dataset(f"{s3_uri}/deep", storage_options=options)) == rows
    lance_io.dataset(uri).shallow_clone(f"{s3_uri}/shallow", 4, storage_options=options)
    for reader in LIBRARIES:
        assert values(reader.dataset(f"{s3_uri}/shallow", storage_options=options)) == rows
    branch = deep.create_branch("side")
    branch.delete("a = 0")
    for reader in LIBRARIES:
        there = reader.dataset(f"{s3_uri}/deep", storage_options=options)
        assert values(there.checkout_version(("side", None))) == rows[1:]
    here = branch.shallow_clone(tmp_path / "here", None)
    assert values(lance.dataset(here.uri, storage_options=options)) == rows[1:]
    copy = branch.deep_clone(f"{s3_uri}/copy", None)
    assert values(lance.dataset(copy.uri, storage_options=options)) == rows[1:]
    deep.branches.delete("side")
    assert lance.dataset(f"{s3_uri}/deep", storage_options=options).branches.list() == {}
    assert values(lance_io.dataset(copy.uri, storage_options=options)) == rows[1:]


def test_from_a_coroutine(uri: str, tmp_path: Path) -> None:
    async def work() -> list[list[int]]:
        async with lance_io.AsyncDataset.open(uri) as table:
            side = await table.create_branch("side", 2)
            await side.delete("a > 3")
            await table.replace_branch_metadata("side", {"x": "y"})
            assert (await table.branches())["side"]["metadata"] == {"x": "y"}
            deep = await side.deep_clone(tmp_path / "deep", None)
            shallow = await table.shallow_clone(tmp_path / "shallow", ("side", None))
            found = [sorted((await one.to_table())["a"].to_pylist()) for one in (side, deep, shallow)]
            await table.delete_branch("side")
            assert not await table.branches()
            return found

    assert asyncio.run(work()) == [[0, 2, 3]] * 3


def test_a_clone_is_no_change_of_a_table(uri: str) -> None:
    from lance_io.changes.edits.change_plans import commit_target
    from lance_io.commit.commit_loop import commit
    from lance_io.commit.commit_request import CommitRequest
    from lance_io.plans.plan import drive_sync
    from lance_io.table.transaction.operations import Clone
    from lance_io.table.transaction.transaction import Transaction

    table = lance_io.dataset(uri)
    with pytest.raises(UsageError, match="first version"):
        drive_sync(commit(commit_target(table._state), CommitRequest(Transaction(4, Clone(True, None, 4, "/x", None)))))
    with pytest.raises(NotImplementedError):
        lance_io.LanceDataset.commit(uri, lance_io.LanceOperation.Clone(True, None, 4, "/x"), 4)
    assert issubclass(CommitConflictError, OSError)


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.branches.delete("none"),
        lambda table: table.branches.replace_metadata("none", {"k": "v"}),
        lambda table: table.branches.delete("side"),
    ],
    ids=["delete none", "describe none", "delete one that is needed"],
)
def test_refusals_begin_as_those_of_pylance(uri: str, call: Callable[[Any], None]) -> None:
    lance.dataset(uri).create_branch("side").create_branch("side/deep")
    told = []
    for library in (lance, lance_io):
        with pytest.raises((OSError, ValueError)) as caught:
            call(library.dataset(uri))
        told.append(str(caught.value).replace('"', "'"))
    assert told[1].startswith(told[0])
