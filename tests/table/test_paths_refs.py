"""Where files are, which paths are refused, and what tags and branches say."""

from __future__ import annotations

import json

import lance
import pyarrow as pa
import pytest

from lance_io.errors import FormatError, UsageError
from lance_io.format.version import V2_2
from lance_io.table.manifest.fragment import DataFile, DeletionFile
from lance_io.table.manifest.manifest import BasePath
from lance_io.table.manifest.paths import (
    FileLocation,
    ManifestName,
    check_relative,
    data_file_location,
    deletion_file_location,
    is_detached,
    join,
    manifest_name,
    manifest_names,
    parse_manifest_name,
    transaction_path,
)
from lance_io.table.manifest.refs import (
    branch_path,
    branch_root,
    check_branch_name,
    check_tag_name,
    decode_branch,
    decode_tag,
    ref_name,
    tag_path,
)

ROOTED, FLAT = BasePath(0, "s3://b/parent", True), BasePath(4, "/mnt/files", False, "flat")
BASES = {0: ROOTED, 4: FLAT}


def file(path: str, base_id: int | None = None) -> DataFile:
    return DataFile(path, (0,), (0,), V2_2, 100, base_id)


def test_files_lie_below_the_table_or_a_declared_base():
    assert data_file_location(file("x.lance"), BASES) == FileLocation(None, "data/x.lance")
    assert data_file_location(file("sub/x.lance", 0), BASES) == FileLocation(ROOTED, "data/sub/x.lance")
    assert data_file_location(file("x.lance", 4), BASES) == FileLocation(FLAT, "x.lance")
    for kind, suffix in (("arrow", "arrow"), ("bitmap", "bin")):
        deletion = DeletionFile(kind, 9, 18446744073709551615, 1, 0)
        assert deletion_file_location(7, deletion, BASES) == FileLocation(
            ROOTED, f"_deletions/7-9-18446744073709551615.{suffix}"
        )
    with pytest.raises(FormatError, match="base path 1"):
        data_file_location(file("x.lance", 1), BASES)


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "a/../../x", "a/..", ".", "./x", "s3://b/x", "file:x", "C:/x", "a\\b", "a\0b", "a\nb"],
)
def test_paths_that_leave_their_folder_are_refused(path):
    with pytest.raises(FormatError, match="leaves its folder"):
        data_file_location(file(path), {})
    with pytest.raises(FormatError):
        transaction_path(path)


def test_odd_but_harmless_paths_are_kept():
    for path in ("a b.lance", "..a", "a..b/c", "é/ü.lance", "a:b", "part-0/1.lance"):
        if path != "a:b":
            assert check_relative(path, "x") == path
    with pytest.raises(FormatError, match="bare file name"):
        transaction_path("a/b.txn")


def test_manifest_names_go_both_ways():
    assert manifest_name(1, "V2") == "18446744073709551614.manifest"
    detached = (1 << 63) + 5
    assert is_detached(detached) and not is_detached(5)
    for version in (1, 2, 10**9, 1 << 62):
        for name, scheme in zip(manifest_names(version), ("V2", "V1"), strict=True):
            assert parse_manifest_name(name) == ManifestName(scheme, version)
    for version in (0, (1 << 64) - 1):
        assert parse_manifest_name(manifest_name(version, "V2")) == ManifestName("V2", version)
    assert parse_manifest_name(f"{1 << 64}.manifest") is None
    [name] = manifest_names(detached)
    assert parse_manifest_name(name) == ManifestName("detached", detached)


@pytest.mark.parametrize(
    "name",
    [
        *["latest_version_hint.json", ".tmp1.manifest_x", "5.manifest#1", "5.manifest-abc", "x.manifest", ".manifest"],
        *["-5.manifest", "99999999999999999999.manifest", "d.manifest", "٣.manifest", "000000000000000000001.manifest"],
    ],
)
def test_other_names_are_no_manifests(name):
    assert parse_manifest_name(name) is None


def test_keys_join_below_any_root():
    assert join("", "a", "b") == "a/b"
    assert join("r/", "a") == "r/a"
    assert join("/", "a") == "/a"
    assert join("/x/t", "_versions", "") == "/x/t/_versions/"


def test_tags_and_branches_of_pylance(tmp_path):
    root = tmp_path / "t"
    dataset = lance.write_dataset(pa.table({"a": [1]}), str(root))
    dataset.tags.create("v1.0-final", 1)
    dataset.create_branch("team/a-b", 1)
    path = root / tag_path("v1.0-final")
    tag, theirs = decode_tag(path.read_bytes(), "v1.0-final"), dataset.tags.list()["v1.0-final"]
    assert (tag.version, tag.branch, tag.manifest_size) == (1, theirs["branch"], theirs["manifest_size"])
    assert ref_name(path.name) == "v1.0-final"
    path = root / branch_path("team/a-b")
    branch, theirs = decode_branch(path.read_bytes(), "team/a-b"), dataset.branches.list()["team/a-b"]
    assert (branch.parent_version, branch.parent_branch) == (theirs["parent_version"], theirs["parent_branch"])
    assert branch.manifest_size == theirs["manifest_size"]
    assert ref_name(path.name) == "team/a-b"
    assert (tmp_path / branch_root("t", "team/a-b") / "_versions").is_dir()
    assert branch_root("t", "main") == branch_root("t", None) == "t"


@pytest.mark.parametrize("name", ["", ".a", "a.", "a..b", "x.lock", "a/b", "ü", "a b", "../x"])
def test_impossible_tag_names(name):
    with pytest.raises(UsageError):
        check_tag_name(name)


@pytest.mark.parametrize("name", ["", "main", "/a", "a/", "a//b", "a/../b", "a\\b", "x.lock", "a b"])
def test_impossible_branch_names(name):
    with pytest.raises(UsageError):
        check_branch_name(name)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        json.dumps({"version": 1}).encode(),
        json.dumps({"version": -1, "manifestSize": 3}).encode(),
        json.dumps({"version": True, "manifestSize": 3}).encode(),
        json.dumps({"version": 1, "manifestSize": 3, "branch": 5}).encode(),
        json.dumps({"version": 1, "manifestSize": 3, "metadata": []}).encode(),
        json.dumps({"version": 1, "manifest_size": 3}).encode(),
    ],
)
def test_malformed_tags_are_refused(content):
    with pytest.raises(FormatError, match="tag 't'"):
        decode_tag(content, "t")


def test_what_a_tag_may_leave_out():
    tag = decode_tag(b'{"version": 7, "manifestSize": 9}', "t")
    assert (tag.branch, tag.created_at, tag.metadata) == (None, None, {})
