"""Requests of opening and committing by how manifests are named, and writers who meet at a number with two names."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import CommitConflictError, FormatError
from lance_io.reads.version.session import Session
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from lance_io.table.manifest.paths import parse_manifest_name
from lance_io.testing.faults import FaultyStore
from lance_io.testing.latency import LatencyStore, run_virtual
from tests.simulate.test_orders import any_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

URI = "memory://t"
LIBRARIES = (lance, lance_io)


def rows(*numbers: int) -> pa.Table:
    return pa.table({"a": pa.array(numbers, pa.int64())})


def make(folder: Path, num_versions: int, *, old: bool = True) -> str:
    """A table whose version n has the rows 1 to n."""
    uri = str(folder)
    for number in range(1, num_versions + 1):
        mode = "append" if number > 1 else "create"
        lance_io.write_dataset(rows(number), uri, mode=mode, enable_v2_manifest_paths=not old, durability="none")
    return uri


def new_name(version: int) -> str:
    return f"{2**64 - 1 - version:020d}.manifest"


def rename(uri: str, *versions: int) -> None:
    """As a renaming does that nobody announced."""
    for version in versions:
        Path(uri, "_versions", f"{version}.manifest").rename(Path(uri, "_versions", new_name(version)))


def schemes(uri: str) -> dict[int, str]:
    """How the manifests are named, by version."""
    names = [parse_manifest_name(path.name) for path in Path(uri, "_versions").iterdir()]
    found = Counter(name.version for name in names if name is not None)
    assert set(found.values()) == {1}
    return {name.version: name.scheme for name in names if name is not None}


def read(table: Any) -> list[int]:
    return sorted(table.to_table()["a"].to_pylist())


# -- requests ----------------------------------------------------------------------------------------------------------


def requests_of(uri: str, *works: Callable[[Any, Any], Awaitable[Any]]) -> list[tuple[dict[str, int], float]]:
    """What each piece of work asks of a store that is asked over a distance, one after the other: requests, rounds."""
    inner, found = MemoryStore(), []
    for path in Path(uri).rglob("*"):
        if path.is_file() and path.name != "latest_version_hint.json":
            inner.put_sync(f"t/{path.relative_to(uri)}", path.read_bytes())
    store, session, there = FaultyStore(LatencyStore(inner), {}, any_request), Session(), None
    session.locate = lambda uri, options: Location(store, "t", uri)

    async def on_loop(work: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        with runtime.use_loop(asyncio.get_running_loop()):
            return await work(session, there)

    for work in works:
        before = len(store.seen)
        there, rounds = run_virtual(lambda work=work: on_loop(work))
        operations = Counter(str(request.operation) for request in store.seen[before:])
        found.append((dict(operations), rounds))
    return found


async def open_newest(session: Session, _: Any) -> AsyncDataset:
    return await AsyncDataset.open(URI, session=session)


async def configure(_: Session, table: Any) -> Any:
    """A commit that uploads nothing of its own."""
    await table.update_config({"k": str(table.version)})
    return table


SHORT, CUT = 5, 20


@pytest.mark.parametrize("num_versions", [SHORT, CUT])
def test_a_table_of_newer_names_costs_nothing_more(tmp_path: Path, num_versions: int) -> None:
    """But for one key behind the listing where that was cut, beside the manifest."""
    opened, *committed = requests_of(make(tmp_path / "t", num_versions, old=False), open_newest, configure, configure)
    assert opened == ({"list": 1 + (num_versions == CUT), "get": 1}, 2)
    assert committed == [({"list": 1, "put": 1, "put_create": 1}, 2)] * 2


@pytest.mark.parametrize("num_versions", [SHORT, CUT])
def test_a_commit_under_the_older_name_looks_once_more(tmp_path: Path, num_versions: int) -> None:
    num_listings = 1 + (num_versions == CUT)
    opened, committed = requests_of(make(tmp_path / "t", num_versions), open_newest, configure)
    assert opened == ({"list": num_listings, "get": 1}, 1 + num_listings)
    assert committed == ({"list": num_listings + 2, "put": 1, "put_create": 1}, 2 + num_listings)


def test_a_commit_among_names_of_both_kinds_looks_for_the_other_name(tmp_path: Path) -> None:
    """The newest version has its newer name already, or is given it, for another listing."""
    half = make(tmp_path / "half", SHORT)
    rename(half, SHORT)
    opened, committed = requests_of(half, open_newest, configure)
    assert opened == ({"list": 1, "get": 1}, 2)
    assert committed == ({"list": 1, "put": 1, "head": 1, "put_create": 1}, 3)
    other = make(tmp_path / "other", SHORT)
    rename(other, 1)
    opened, committed = requests_of(other, open_newest, configure)
    assert opened == ({"list": 1, "get": 1}, 2)
    # one GET finds no newer name, one has the older; one compares the version that was opened by its older name
    assert committed == ({"list": 2, "put": 1, "head": 1, "get": 3, "put_create": 2}, 8)


# -- both kinds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("renamed", [(1,), (1, 2, 3), (5, 4), (4,), (3, 5)])
def test_a_table_that_another_renaming_left_goes_on(tmp_path: Path, renamed: tuple[int, ...]) -> None:
    uri = make(tmp_path / "t", 5)
    stale = [lance_io.dataset(uri) for _ in range(2)]
    rename(uri, *renamed)
    assert read(lance_io.dataset(uri)) == [1, 2, 3, 4, 5]
    assert lance_io.write_dataset(rows(6), uri, mode="append").version == 6
    stale[0].insert(rows(7))
    stale[1].delete("a = 2")
    assert [one["version"] for one in lance_io.dataset(uri).versions()] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert read(lance_io.dataset(uri, version=5)) == [1, 2, 3, 4, 5]
    lance_io.dataset(uri).migrate_manifest_paths_v2()
    assert schemes(uri) == dict.fromkeys(range(1, 9), "V2")
    for library in LIBRARIES:
        assert read(library.dataset(uri)) == [1, 3, 4, 5, 6, 7]


def test_a_handle_of_the_other_library_that_missed_the_renaming_loses_nothing(tmp_path: Path) -> None:
    """It goes on with older names, and then cannot open the table itself."""
    uri = make(tmp_path / "t", 20)
    theirs = lance.dataset(uri)
    lance_io.dataset(uri).migrate_manifest_paths_v2()
    theirs.insert(rows(21))
    with pytest.raises(ValueError, match="multiple manifest naming schemes"):
        lance.dataset(uri)
    assert read(lance_io.dataset(uri)) == [*range(1, 22)]
    assert lance_io.write_dataset(rows(22), uri, mode="append").version == 22
    lance_io.dataset(uri).migrate_manifest_paths_v2()
    for library in LIBRARIES:
        assert read(library.dataset(uri)) == [*range(1, 23)]
    assert schemes(uri) == dict.fromkeys(range(1, 23), "V2")


def test_where_two_manifests_of_one_number_differ_both_are_named_and_left(tmp_path: Path) -> None:
    uri, fork = make(tmp_path / "t", 3), str(tmp_path / "fork")
    shutil.copytree(uri, fork)
    table = lance_io.write_dataset(rows(9), fork, mode="append")
    uuids = [
        next(Path(place, "_transactions").glob("3-*.txn")).stem[2:] if place == fork else "" for place in (uri, fork)
    ]
    shutil.copytree(fork, uri, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.manifest"))
    shutil.copy(f"{fork}/_versions/4.manifest", f"{uri}/_versions/4.manifest")
    shutil.copy(Path(make(tmp_path / "other", 4), "_versions", "4.manifest"), Path(uri, "_versions", new_name(4)))
    shutil.copytree(tmp_path / "other", uri, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.manifest"))
    old = lance_io.dataset(uri, version=2)
    theirs = next((tmp_path / "other" / "_transactions").glob("3-*.txn")).stem[2:]
    before = {path.name for path in Path(uri, "_versions").iterdir()}
    for _ in range(2):
        with pytest.raises(FormatError, match="version 4 is Append") as raised:
            old.migrate_manifest_paths_v2()
        assert uuids[1] in str(raised.value) and theirs in str(raised.value)
    left = {path.name for path in Path(uri, "_versions").iterdir()}
    assert {"4.manifest", new_name(4)} <= before & left
    assert left & {f"{number}.manifest" for number in range(1, 4)} == set()
    Path(uri, "_versions", "4.manifest").unlink()
    old.migrate_manifest_paths_v2()
    assert lance_io.dataset(uri).version == table.version == 4


def test_a_version_that_was_taken_back_is_no_base(tmp_path: Path) -> None:
    """It was opened while its writer had not looked yet; then another made a version of its number."""
    uri = make(tmp_path / "t", 3)
    dead = str(tmp_path / "dead")
    shutil.copytree(uri, dead)
    lance_io.write_dataset(rows(100), dead, mode="append")
    shutil.copytree(dead, uri, dirs_exist_ok=True)
    handles = [lance_io.dataset(uri) for _ in range(3)]
    assert read(handles[0]) == [1, 2, 3, 100]
    Path(uri, "_versions", "4.manifest").unlink()
    rename(uri, 3, 2)
    lance_io.write_dataset(rows(4), uri, mode="append")
    for change in (
        lambda: handles[0].insert(rows(5)),
        lambda: handles[1].update_config({"k": "v"}),
        lambda: handles[2].delete("a = 100", conflict_retries=0),
    ):
        with pytest.raises((CommitConflictError, OSError), match="was taken back"):
            change()
    assert read(lance_io.dataset(uri)) == [1, 2, 3, 4]
    lance_io.dataset(uri).migrate_manifest_paths_v2()
    with pytest.raises((CommitConflictError, OSError), match=re.escape("Open the table again")):
        handles[0].insert(rows(5))
    assert read(lance_io.dataset(uri)) == [1, 2, 3, 4]
