"""Versions, tags, branches and time travel, compared with pylance."""

from __future__ import annotations

import pickle
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError, NotFound, UsageError


@pytest.fixture
def versioned_uri(mutable_uri: str) -> str:
    table = lance.dataset(mutable_uri)
    table.delete("i = 3")
    lance.write_dataset(pa.table({"i": [100]}), mutable_uri, mode="append")
    table.tags.create("first", 1)
    branch = table.create_branch("try/out", 2)
    branch.insert(pa.table({"i": [7, 7]}))
    table.tags.create("on-branch", ("try/out", 3))
    return mutable_uri


def test_versions_are_those_of_pylance(versioned_uri: str) -> None:
    ours, theirs = lance_io.dataset(versioned_uri), lance.dataset(versioned_uri)
    for got, expected in zip(ours.versions(), theirs.versions(), strict=True):
        assert (got["version"], got["metadata"]) == (expected["version"], expected["metadata"])
        difference = got["timestamp"] - expected["timestamp"]  # pylance goes through a float: one microsecond off
        assert abs(difference) <= timedelta(microseconds=1)
    assert ours.version_refs() == theirs.version_refs() == [{"version": 1}, {"version": 2}, {"version": 3}]
    assert ours.get_version() == ours.versions()[-1]
    assert (ours.version, ours.latest_version, len(ours)) == (3, 3, 10)


def test_a_snapshot_moves_only_when_told(mutable_uri: str) -> None:
    table = lance_io.dataset(mutable_uri)
    lance.write_dataset(pa.table({"i": [11]}), mutable_uri, mode="append")
    assert (table.count_rows(), table.version, table.latest_version) == (10, 1, 2)
    table.checkout_latest()
    assert (table.count_rows(), table.version) == (11, 2)
    assert table.checkout_version(1).count_rows() == 10
    assert table.version == 2


@pytest.mark.parametrize(
    ("ref", "rows", "version"),
    [
        (1, 10, 1),
        ("first", 10, 1),
        ((None, 2), 9, 2),
        (("main", None), 10, 3),
        ("on-branch", 11, 3),
        (("try/out", None), 11, 3),
        (("try/out", 2), 9, 2),
        (None, 10, 3),
    ],
    ids=str,
)
def test_what_a_version_may_be(versioned_uri: str, ref: Any, rows: int, version: int) -> None:
    table = lance_io.dataset(versioned_uri, version=ref)
    assert (table.count_rows(), table.version) == (rows, version)
    assert table.to_table().num_rows == rows
    if ref is not None:
        assert lance_io.dataset(versioned_uri).checkout_version(ref).to_table() == table.to_table()


def test_a_branch_keeps_its_own_numbers_and_the_tables_tags(versioned_uri: str) -> None:
    branch = lance_io.dataset(versioned_uri, version=("try/out", None))
    assert [one["version"] for one in branch.versions()] == [2, 3]
    assert branch.checkout_version(2).count_rows() == 9
    assert branch.checkout_version(("main", 3)).to_table().column("i").to_pylist()[-1] == 100
    assert branch.tags.list() == lance.dataset(versioned_uri).tags.list()
    assert branch.branches.list() == lance.dataset(versioned_uri).branches.list()
    assert pickle.loads(pickle.dumps(branch)).to_table() == branch.to_table()


def test_tags_and_branches_are_those_of_pylance(versioned_uri: str) -> None:
    ours, theirs = lance_io.dataset(versioned_uri), lance.dataset(versioned_uri)
    assert ours.tags.list() == theirs.tags.list()
    assert ours.tags.get_version("first") == 1
    for order in (None, "asc", "desc"):
        assert [tag["version"] for _, tag in ours.tags.list_ordered(order)] == [
            tag["version"] for _, tag in theirs.tags.list_ordered(order)
        ]
        assert ours.branches.list_ordered(order) == theirs.branches.list_ordered(order)
    with pytest.raises(ValueError, match="Invalid sort order 'x'"):
        ours.tags.list_ordered("x")


def test_time_travel(versioned_uri: str) -> None:
    times = [one["timestamp"] for one in lance_io.dataset(versioned_uri).versions()]
    step = timedelta(microseconds=1)
    assert lance_io.dataset(versioned_uri, asof=times[1] - step).version == 1
    assert lance_io.dataset(versioned_uri, asof=times[1]).version == 2
    assert lance_io.dataset(versioned_uri, asof=(times[2] + step).isoformat()).version == 3
    assert lance_io.dataset(versioned_uri, asof=datetime(2101, 1, 1).astimezone()).version == 3
    with pytest.raises(ValueError, match="is earlier than the first version of this dataset"):
        lance_io.dataset(versioned_uri, asof="2001-01-01")
    with pytest.raises(ValueError, match="Failed to parse timestamp"):
        lance_io.dataset(versioned_uri, asof="yesterday")


@pytest.mark.parametrize(
    ("ref", "words"),
    [(99, "was not found"), ("nope", "tag nope does not exist"), (("nope", None), "was not found"), (0, "not found")],
    ids=str,
)
def test_what_is_not_there(versioned_uri: str, ref: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        lance_io.dataset(versioned_uri, version=ref)
    with pytest.raises(OSError, match=words):
        lance_io.dataset(versioned_uri).checkout_version(ref)


def missing(library: Any, uri: str, how: str) -> str:
    table = library.dataset(uri)
    calls = {
        "dataset": lambda: library.dataset(uri, version=99),
        "checkout_version": lambda: table.checkout_version(99),
        "of a branch": lambda: table.checkout_version(("side", 99)),
        "commit": lambda: library.LanceDataset.commit(uri, library.LanceOperation.Append([]), read_version=99),
        "commit a restore": lambda: library.LanceDataset.commit(
            uri, library.LanceOperation.Restore(99), read_version=1
        ),
        "create_branch": lambda: table.create_branch("other", 99),
        "shallow_clone": lambda: table.shallow_clone(f"{uri}-clone", 99),
        "read_transaction": lambda: table.read_transaction(99),
    }
    with pytest.raises((ValueError, OSError)) as raised:
        calls[how]()
    return str(raised.value)


MISSING = ["dataset", "checkout_version", "of a branch", "commit", "commit a restore", "create_branch", "shallow_clone"]


@pytest.mark.parametrize("how", [*MISSING, "read_transaction"])
def test_a_version_that_is_not_there_is_named_as_by_pylance(tmp_path: Path, how: str) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"i": [1]}), uri).create_branch("side", 1)
    (path,) = re.findall(r"Not found: /?(\S+/\d+\.manifest)", missing(lance, uri, how))
    assert path.endswith("/_versions/99.manifest") and f"Not found: /{path}" in missing(lance_io, uri, how)


async def test_missing_versions_of_coroutines_are_named_so_too(versioned_uri: str) -> None:
    table = await lance_io.AsyncDataset.open(versioned_uri)
    for opened in (table.checkout_version(99), lance_io.AsyncDataset.open(versioned_uri, version=99)):
        with pytest.raises(ValueError, match=r"^Dataset at path (\S+/99\.manifest) was not found: Not found: \1"):
            await opened
    in_memory = lance_io.write_dataset(pa.table({"i": [1]}), "memory://no-such-version")
    with pytest.raises(ValueError, match=r"Not found: memory://no-such-version/_versions/99\.manifest"):
        in_memory.checkout_version(99)


def test_wrong_uses(versioned_uri: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="was not found"):
        lance_io.dataset(tmp_path / "missing.lance")
    with pytest.raises(ValueError, match="No object store provider found for scheme"):
        lance_io.dataset("foo://bucket/table")
    with pytest.raises(UsageError, match="version must be an integer or a string"):
        lance_io.dataset(versioned_uri, version=1.5)
    with pytest.raises(OverflowError):
        lance_io.dataset(versioned_uri, version=-1)
    with pytest.raises(ValueError, match="uri must be given"):
        lance_io.dataset()
    with pytest.raises(NotImplementedError, match="namespaces"):
        lance_io.dataset(versioned_uri, table_id=["a"])


def test_uris_and_paths_open_the_same_table(versioned_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(versioned_uri)
    monkeypatch.chdir(path.parent)
    for uri in (path, f"file://{path}", path.name, f"./{path.name}/"):
        assert lance_io.dataset(uri).count_rows() == 10


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_files_of_all_versions_are_read(tmp_path: Path, version: str) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"i": range(5)}), uri, data_storage_version=version)
    table = lance_io.dataset(uri)
    assert (table.count_rows(), table.data_storage_version) == (5, version)
    assert table.to_table()["i"].to_pylist() == list(range(5))
    assert table.take([1, 3])["i"].to_pylist() == [1, 3]


def test_a_manifest_under_the_name_of_another_version_is_refused(mutable_uri: str) -> None:
    lance.dataset(mutable_uri).delete("i = 3")
    first, second = sorted(Path(mutable_uri, "_versions").glob("*.manifest"), reverse=True)
    second.write_bytes(first.read_bytes())
    for version in (None, 2):
        with pytest.raises(FormatError, match="of version 1, its name of 2"):
            lance_io.dataset(mutable_uri, version)
    assert lance_io.dataset(mutable_uri, 1).version == 1


@pytest.mark.parametrize("scheme", ["V1", "V2"])
def test_the_old_copy_of_the_latest_manifest_is_not_trusted(tmp_path: Path, scheme: str) -> None:
    uri = str(tmp_path / "t.lance")
    for number in range(3):
        lance.write_dataset(pa.table({"i": [number]}), uri, mode="append", enable_v2_manifest_paths=scheme == "V2")
    manifests = [Path(uri, "_versions", path.name) for path in Path(uri, "_versions").glob("*.manifest")]
    oldest = min(manifests, key=lambda path: path.stat().st_mtime_ns)
    for stale in (oldest.read_bytes(), b"nothing"):
        Path(uri, "_latest.manifest").write_bytes(stale)
        Path(uri, "_versions", "_latest.manifest").write_bytes(stale)
        assert (lance_io.dataset(uri).version, lance_io.dataset(uri).count_rows()) == (3, 3)
        assert [one["version"] for one in lance_io.dataset(uri).versions()] == [1, 2, 3]
