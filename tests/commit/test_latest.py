"""Finding versions: every kind of listing, both drivers, mixed names, hints good and bad."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_io.commit.latest import (
    VersionFile,
    decode_hint,
    find_latest,
    find_version,
    list_after,
    list_versions,
)
from lance_io.errors import NotFound
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.plans.store_requests import Head, List, Read
from lance_io.store.api import DIRECTLY_BELOW, Selection
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.offers import SyncReads
from lance_io.table.manifest.paths import HINT_NAME, manifest_name, parse_manifest_name

ASKED: list[str] = []


class Unordered:
    """A store whose listings have no order and that answers on a loop only, as S3 Express does."""

    def __init__(self, inner: MemoryStore) -> None:
        self._inner = inner
        self.identity = inner.identity
        self.capabilities = replace(inner.capabilities, ordered_list=False)

    def list(self, prefix: str, asked: Selection) -> Any:
        return self._inner.list(prefix, asked)

    async def head(self, key: str) -> Any:
        return await self._inner.head(key)

    async def get(self, key: str) -> Any:
        return await self._inner.get(key)


def now(search: Any) -> Any:
    """Drive a search without a loop, noting what it asks for."""
    return drive_sync(noted(search))


def later(search: Any) -> Any:
    """Drive a search on a loop."""
    return asyncio.run(drive_async(noted(search)))


def noted(search: Any) -> Any:
    """The same search; its requests are noted."""
    ASKED.clear()
    request = next(search)
    while True:
        ASKED.append(f"List {request.selection.limit}" if isinstance(request, List) else type(request).__name__)
        try:
            answer = yield request
        except NotFound as error:
            send: Any = search.throw, error
        else:
            send = search.send, answer
        try:
            request = send[0](send[1])
        except StopIteration as finished:
            return finished.value


def store_with(*names: str, root: str = "t", hint: bytes | None = None) -> MemoryStore:
    store = MemoryStore()
    for name in names:
        asyncio.run(store.put(f"{root}/_versions/{name}", name.encode()))
    if hint is not None:
        asyncio.run(store.put(f"{root}/_versions/{HINT_NAME}", hint))
    return store


def named(scheme: Any, *versions: int) -> list[str]:
    return [manifest_name(version, scheme) for version in versions]


DETACHED = (1 << 63) + 7
DRIVERS = pytest.mark.parametrize("drive", [now, later])


@DRIVERS
def test_newest_first_names_need_one_short_listing(drive):
    names = named("V2", *range(1, 40))
    store = store_with(*names, *named("detached", DETACHED), ".tmp_1", f"{names[8]}-abc")
    newest = drive(find_latest(store, "t"))
    assert newest == VersionFile(39, "V2", f"t/_versions/{names[-1]}", 29, newest.etag)
    assert ASKED == ["List 16", "Together"]  # beside what the caller does with it: one key behind all V2 names


@DRIVERS
def test_what_lies_in_folders_is_no_version(drive):
    """The short listing does not sum folders up; many objects in one leave no room for the versions."""
    few = store_with(*named("V2", 1, 2), f".old/{manifest_name(9, 'V2')}", f"0/{manifest_name(8, 'V1')}")
    assert drive(find_latest(few, "t")).version == 2
    assert ASKED == ["List 16"]
    many = store_with(*named("V2", 1, 2), *(f".old/{name}" for name in named("V2", *range(3, 30))))
    assert drive(find_latest(many, "t")).version == 2
    assert ASKED == ["List 16", "List None"]
    assert [file.version for file in drive(list_after(many, "t", 1))] == [2]


@DRIVERS
def test_names_by_version_need_all(drive):
    store = store_with(*named("V1", *range(1, 30)))
    assert drive(find_latest(store, "t")).version == 29
    assert ASKED == ["List 16", "List None"]
    few = store_with(*named("V1", 2, 10, 9), *named("detached", DETACHED))
    assert drive(find_latest(few, "t")).version == 10
    assert ASKED == ["List 16"]


@DRIVERS
@pytest.mark.parametrize("root", ["", "a/b"])
def test_a_folder_without_versions_is_no_dataset(drive, root):
    store = store_with(*named("detached", DETACHED), "x.txt", root=root or "other")
    with pytest.raises(NotFound, match="was not found"):
        drive(find_latest(store, root))


def test_a_folder_is_listed_once(tmp_path):
    root = tmp_path / "t"
    dataset = lance.write_dataset(pa.table({"a": [1]}), str(root))
    for _ in range(3):
        dataset.insert(pa.table({"a": [1]}))
    store = LocalStore()
    assert isinstance(store, SyncReads)
    newest = now(find_latest(store, str(root)))
    assert (newest.version, newest.scheme) == (4, "V2")
    assert newest.size_bytes == (root / "_versions" / manifest_name(4, "V2")).stat().st_size
    assert newest.etag is not None
    assert ASKED == ["List 2"]  # each file is looked at
    assert [each.version for each in now(list_versions(store, str(root)))] == [1, 2, 3, 4]
    assert now(find_version(store, str(root), 2)).version == 2


@pytest.mark.parametrize("scheme", ["V1", "V2"])
def test_a_name_that_leads_nowhere_is_passed_over(tmp_path, scheme):
    folder = tmp_path / "_versions"
    folder.mkdir()
    for version in (1, 2, 3):
        (folder / manifest_name(version, scheme)).write_bytes(b"x" * version)
    (folder / manifest_name(4, scheme)).symlink_to(folder / "missing")
    store = LocalStore()
    newest = now(find_latest(store, str(tmp_path)))
    assert (newest.version, newest.size_bytes) == (3, 3)
    assert now(list_after(store, str(tmp_path), 2)) == [newest]
    assert now(list_after(store, str(tmp_path), 7)) == [newest]


# The newest version is 25 or 7. V1 names of one digit, and those of 19 and more, sort behind all V2 names.
MIXTURES = [
    (named("V2", *range(1, 21)), named("V1", *range(21, 26))),  # the oldest first, as pylance may
    (named("V2", *range(21, 26)), named("V1", *range(1, 21))),  # the newest first
    (named("V2", *range(1, 26)), named("V1", *range(20, 26))),  # some have both
    (named("V2", *range(5, 22)), named("V1", *range(22, 26))),  # the first ones were cleaned up
    (named("V2", 25), named("V1", *range(5, 25))),
    (named("V2", 5), named("V1", 6, 7)),
    (named("V2", 5, 6), named("V1", 7)),
    (named("V2", 7), named("V1", 5, 6)),
    (named("V2", 1), named("V1", 2, 3)),
]


@DRIVERS
@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("kind", ["memory", "hint", "local"])
def test_of_names_of_both_kinds_the_highest_number_is_the_newest(tmp_path, mixture, kind, drive):
    names, old = [*mixture[0], *mixture[1]], {name: parse_manifest_name(name).version for name in mixture[1]}
    numbers = sorted({parse_manifest_name(name).version for name in names})
    newest, root = numbers[-1], "t"
    store: Any = store_with(*names, hint=b'{"version":%d}' % numbers[len(numbers) // 2])
    if kind == "hint":
        if drive is now:
            pytest.skip("such stores answer on a loop")
        store = Unordered(store)
    elif kind == "local":
        store, root = LocalStore(), str(tmp_path)
        (tmp_path / "_versions").mkdir()
        for name in names:
            (tmp_path / "_versions" / name).write_bytes(name.encode())
    found = drive(find_latest(store, root))
    assert found.version == newest
    assert found.scheme == ("V2" if manifest_name(newest, "V2") in names else "V1")
    assert [each.version for each in drive(list_versions(store, root))] == numbers
    for after in (0, numbers[0], newest - 1, newest, newest + 5):
        above = [each.version for each in drive(list_after(store, root, after))]
        assert above == ([number for number in numbers if number > after] or [newest])
    for number in numbers:
        assert drive(find_version(store, root, number)).version == number
        assert drive(find_version(store, root, number)).scheme == (
            "V1" if number in old.values() and manifest_name(number, "V2") not in names else "V2"
        )


def test_a_commit_looks_once_for_older_names_behind_a_listing_that_was_cut():
    """Afterwards this process knows; whoever opens the table looks each time."""
    store, stats = store_with(*named("V2", *range(1, 40))), None
    stats = store.stats

    def num_listings(search: Any) -> int:
        before = stats.snapshot()
        now(search)
        return (stats.snapshot() - before)["list"].requests

    assert num_listings(list_after(store, "t", 39)) == 2
    assert num_listings(list_after(store, "t", 39)) == 1
    assert num_listings(find_latest(store, "t")) == 2
    few = store_with(*named("V2", *range(1, 10)))
    assert num_listings(find_latest(few, "t")) == 0  # of the other store
    stats = few.stats
    assert [num_listings(find_latest(few, "t")), num_listings(list_after(few, "t", 9))] == [1, 1]


@DRIVERS
def test_one_version_by_its_number(drive):
    store = store_with(*named("V2", 3), *named("V1", 5), *named("detached", DETACHED))
    assert drive(find_version(store, "t", 3)).scheme == "V2"
    assert ASKED == ["Head"]
    assert drive(find_version(store, "t", 5)).key == "t/_versions/5.manifest"
    assert drive(find_version(store, "t", DETACHED)).scheme == "detached"
    with pytest.raises(NotFound, match=r"path (t/_versions/4\.manifest) was not found: Not found: \1"):
        drive(find_version(store, "t", 4))


@pytest.mark.parametrize("scheme", ["V1", "V2"])
@pytest.mark.parametrize("hinted", [3, 5])
def test_a_hint_saves_the_listing(scheme, hinted):
    store = Unordered(store_with(*named(scheme, 1, 2, 3, 4, 5), hint=b'{"version":%d}' % hinted))
    assert later(find_latest(store, "t")).version == 5
    assert set(ASKED) == {"Read", "Head", "Together"}


@pytest.mark.parametrize("hint", [None, b"", b"{", b"[]", b'{"version":"3"}', b'{"version":99}', b'{"version":0}'])
def test_a_useless_hint_means_a_listing(hint):
    store = Unordered(store_with(*named("V2", 1, 2, 3), hint=hint))
    assert later(find_latest(store, "t")).version == 3
    assert ASKED[-1] == "List None"


def test_hints_are_only_hints():
    assert decode_hint(b'{"version":12}') == 12
    assert decode_hint(b'{"version":%d}' % (1 << 63)) is None
    assert decode_hint(b"[" * 100_000) is None


def test_requests_answer_the_same_both_ways():
    store = store_with(*named("V2", 1, 2))
    key = f"t/_versions/{manifest_name(1, 'V2')}"
    for request in (
        List(store, "t/_versions/", DIRECTLY_BELOW),
        List(store, "t/_versions/", Selection(limit=1)),
        List(store, "t/"),
        Head(store, key),
    ):
        assert request.answer_sync() == asyncio.run(request.answer_async())
    assert bytes(Read(store, key).answer_sync()) == bytes(asyncio.run(Read(store, key).answer_async()))
    for missing in (Head(store, "t/none"), Read(store, "t/none")):
        with pytest.raises(NotFound):
            missing.answer_sync()
        with pytest.raises(NotFound):
            asyncio.run(missing.answer_async())
