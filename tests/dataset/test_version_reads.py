"""What a list of versions and `asof` read: exact rounds, requests and bytes; every request takes one unit of time."""

from __future__ import annotations

import asyncio
import shutil
import sys
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.reads.version.session import Session
from lance_io.reads.version.versions import TIME_BYTES
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.store.url import Location
from lance_io.testing.latency import LatencyStore, run_virtual
from lance_io.testing.record import RecordingStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

VERSIONS = 6
MICROSECOND = timedelta(microseconds=1)
LARGE = "x" * 3 * TIME_BYTES


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fragments whose manifests are longer than the ends that are read, but for the first, by pylance."""
    path = tmp_path_factory.mktemp("versions") / "t"
    rows = pa.table({"a": np.arange(300)})
    lance.write_dataset(rows.slice(0, 1), path)
    for _ in range(VERSIONS - 1):
        made = lance.write_dataset(rows, path, mode="append", max_rows_per_file=3)
    made.delete("a % 7 = 2")
    return path


class Bucket:
    """A table's files behind a store that records and delays."""

    def __init__(self, table: Path) -> None:
        self.inner = MemoryStore(profile=CLOUD)
        for file in table.rglob("*"):
            if file.is_file():
                self.inner.put_sync(f"t/{file.relative_to(table)}", file.read_bytes())
        self.store = RecordingStore(LatencyStore(self.inner))
        self.session = self.new_session()

    def new_session(self) -> Session:
        """One that knows nothing of the table."""
        session = Session()
        session.locate = lambda uri, options: Location(self.store, "t", "memory://t")
        return session

    async def open(self, session: Session | None = None, **options: Any) -> AsyncDataset:
        return await AsyncDataset.open("memory://t", session=session or self.session, **options)

    def run(self, work: Callable[[], Awaitable[Any]]) -> tuple[Any, int, list[str]]:
        """Its result, rounds and requests; the versions by their numbers."""

        async def body() -> tuple[Any, int, list[str]]:
            loop = asyncio.get_running_loop()
            with runtime.use_loop(loop):
                result = await work()
            return result, round(loop.time()), self.store.take_log()

        return run_virtual(body)[0]


@pytest.fixture
def bucket(table: Path) -> Bucket:
    return Bucket(table)


def sizes(table: Path) -> list[int]:
    """Lengths of the manifests, oldest version first."""
    return [path.stat().st_size for path in sorted((table / "_versions").glob("*.manifest"), reverse=True)]


def bytes_of(log: list[str]) -> list[int]:
    """Bytes that each GET of a range asks for."""
    spans = [line.split()[2].split("-") for line in log if line.startswith("get") and len(line.split()) > 2]
    return [int(end) - int(start) for start, end in spans]


def test_a_time_takes_a_short_range_of_each_version_in_one_round(bucket: Bucket, table: Path) -> None:
    versions = lance_io.dataset(table).versions()
    assert sizes(table)[0] < TIME_BYTES < sizes(table)[1]
    for one in versions[1:]:
        asof = one["timestamp"].astimezone(UTC)
        opened, rounds, log = bucket.run(lambda asof=asof: bucket.open(bucket.new_session(), asof=asof))
        assert opened.version == one["version"]
        assert rounds == 3, "a listing, the ends, the manifest"
        assert [line.split()[0] for line in log] == ["list", *["get"] * (VERSIONS + 2)]
        assert sorted(bytes_of(log)) == [sizes(table)[0], *[TIME_BYTES] * VERSIONS]


def test_a_session_looks_at_the_times_of_new_versions_only(bucket: Bucket, table: Path) -> None:
    newest = lance_io.dataset(table).versions()[-1]["timestamp"].astimezone(UTC)
    bucket.run(lambda: bucket.open(asof=newest))
    _, rounds, log = bucket.run(lambda: bucket.open(asof=newest - MICROSECOND))
    assert (rounds, len(log)) == (2, 2), "a listing and the manifest"
    bucket.run(lambda: AsyncDataset.write(pa.table({"a": [1]}), "memory://t", mode="append", session=bucket.session))
    opened, rounds, log = bucket.run(lambda: bucket.open(asof="9000-01-01"))
    assert (opened.version, rounds) == (VERSIONS + 2, 3)
    assert bytes_of(log) == [TIME_BYTES]


@pytest.mark.parametrize("is_pylance", [True, False])
def test_where_the_end_does_not_say_it_the_rest_is_read(table: Path, tmp_path: Path, is_pylance: bool) -> None:
    """What follows the time may be long: then a second round brings the whole of these manifests."""
    bucket, uri = Bucket(table), "memory://t"
    if is_pylance:
        shutil.copytree(table, tmp_path / "t")
        lance.dataset(tmp_path / "t").update_config({"k": LARGE})
        bucket = Bucket(tmp_path / "t")
    else:
        bucket.run(lambda: _configure(bucket, uri))
    opened, rounds, log = bucket.run(lambda: bucket.open(bucket.new_session(), asof="9000-01-01"))
    assert (opened.version, opened.config()["k"]) == (VERSIONS + 2, LARGE)
    assert rounds == 4
    assert len(log) == 1 + VERSIONS + 2 + 1 + 1


async def _configure(bucket: Bucket, uri: str) -> None:
    await (await bucket.open()).update_config({"k": LARGE})


def test_versions_take_each_manifest_in_one_round(bucket: Bucket, table: Path) -> None:
    opened, _, _ = bucket.run(bucket.open)
    found, rounds, log = bucket.run(opened.versions)
    assert rounds == 2
    assert sorted(bytes_of(log)) == sorted(sizes(table))
    for ours, theirs in zip(found, lance.dataset(table).versions(), strict=True):
        assert (ours["version"], ours["metadata"]) == (theirs["version"], theirs["metadata"])


async def test_both_faces_read_the_same_files_on_disk(table: Path) -> None:
    with lance_io.io.stats.io_stats() as seen:
        lance_io.dataset(table, asof="9000-01-01")
    assert seen.num_reads == VERSIONS + 2
    assert seen.bytes_read < (VERSIONS + 1) * TIME_BYTES + 2 * max(sizes(table))
    assert (await AsyncDataset.open(table, asof="9000-01-01")).version == VERSIONS + 1
    opened = lance_io.dataset(table)
    with lance_io.io.stats.io_stats() as seen:
        found = opened.versions()
    assert (seen.num_reads, seen.bytes_read) == (VERSIONS + 1, sum(sizes(table)))
    assert await (await AsyncDataset.open(table)).versions() == found


def test_a_manifest_that_was_renamed_since_is_found(bucket: Bucket) -> None:
    """Under its newer name, by whoever lists what was there before."""
    entries = bucket.inner.list_sync("t/_versions/")
    names = {f"{2**64 - 1 - number}.manifest": number for number in range(1, VERSIONS + 2)}
    old = Bucket.__new__(Bucket)
    old.inner = MemoryStore(profile=CLOUD)
    for meta in bucket.inner.list_sync("t/"):
        old.inner.put_sync(meta.key, bucket.inner.get_sync(meta.key))
    first = next(meta for meta in entries if names.get(meta.name) == 1)
    old.inner.put_sync("t/_versions/1.manifest", bucket.inner.get_sync(first.key))
    old.inner.delete_sync([first.key])
    old.store = RecordingStore(LatencyStore(old.inner))
    old.session = old.new_session()
    opened, _, _ = old.run(old.open)

    class Renamed(RecordingStore):
        """Renames between the listing and the reading of a version."""

        async def request(self, request: Any, send: Callable[[], Awaitable[Any]]) -> Any:
            if request.operation == "get" and request.key.endswith("/1.manifest"):
                old.inner.put_sync(first.key, bucket.inner.get_sync(first.key))
                old.inner.delete_sync(["t/_versions/1.manifest"])
            return await super().request(request, send)

    old.store = Renamed(LatencyStore(old.inner))
    opened, _, _ = old.run(lambda: old.open(old.new_session()))
    found, _, _ = old.run(opened.versions)
    assert [one["version"] for one in found] == [*range(1, VERSIONS + 2)]


async def test_the_number_of_rows_is_no_plan(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that of a version that was checked out, and of a filter, are their own."""
    table = shutil.copytree(table, tmp_path / "t")
    opened, twin = lance_io.dataset(table), await AsyncDataset.open(table)
    older = opened.checkout_version(2)
    expected = lance.dataset(table).count_rows()
    assert opened.count_rows("a % 7 = 3") == lance.dataset(table).count_rows("a % 7 = 3")
    with monkeypatch.context() as patched:
        patched.delattr(sys.modules["lance_io.dataset.scanner"], "make_options")
        assert (opened.count_rows(), len(opened), await twin.count_rows()) == (expected, expected, expected)
        assert older.count_rows() == 301
        with pytest.raises(AttributeError):
            opened.count_rows("a = 1")
    opened.delete("a = 1")
    assert opened.count_rows() == lance.dataset(table).count_rows() < expected
    assert older.checkout_version(opened.version - 1).count_rows() == expected
