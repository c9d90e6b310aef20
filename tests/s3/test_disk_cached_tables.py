"""Tables in a bucket with a disk cache: what a second process asks for, and that nothing old or foreign is given."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io
from lance_io.errors import NotFound, UsageError
from lance_io.io.stats import io_stats
from lance_io.reads.version.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from tests.s3.proxy import CountingProxy
    from tests.servers import S3Server

ROWS = 20_000
WANTED = [3, 17_000, 4, 9_999]


def table(seed: int = 0) -> pa.Table:
    dice = np.random.default_rng(seed)
    return pa.table({"a": np.arange(ROWS) + seed, "b": dice.random(ROWS), "s": [f"row {x}" * 5 for x in range(ROWS)]})


def session(path: Path, **more: Any) -> Session:
    return Session(disk_cache=path, disk_cache_bytes=32 << 20, **more)


@pytest.fixture
def options(s3: S3Server, proxy: CountingProxy) -> dict[str, str]:
    """Through the proxy that counts."""
    return s3.options(aws_endpoint=proxy.endpoint)


@pytest.fixture
def uri(s3: S3Server, s3_uri: str) -> str:
    """A table of two fragments."""
    uri = f"{s3_uri}/t.lance"
    lance.write_dataset(table(), uri, storage_options=s3.options(), max_rows_per_file=ROWS // 2)
    return uri


PROGRAM = """
import json, sys
import lance_io
uri, options, rows, version = json.loads(sys.argv[1])
ds = lance_io.dataset(uri, version, storage_options=options)
found = ds.take(rows)
stats, spent = ds.session().disk_cache_stats, ds.io_stats_incremental()
told = {"rows": found.to_pydict(), "hits": stats.hits, "misses": stats.misses, "requests": spent.read_iops}
print(json.dumps(told))
"""


def process(cache: Path, uri: str, options: dict[str, str], rows: list[int], version: int | None = None) -> Any:
    """What another process says that finds its cache by the environment."""
    environment = {**os.environ, "LANCE_IO_DISK_CACHE": str(cache), "LANCE_IO_DISK_CACHE_BYTES": str(32 << 20)}
    command = [sys.executable, "-c", PROGRAM, json.dumps([uri, options, rows, version])]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def methods(proxy: CountingProxy) -> list[str]:
    """What was asked since this was asked last: "LIST", or the kind of file that was read."""
    return [_kind(line.split(" ")[1]) for line in proxy.take().lines]


def _kind(path: str) -> str:
    return "LIST" if "list-type" in path else path.rsplit("/", 2)[1]


def test_a_second_process_asks_for_the_listing_and_what_is_new(
    tmp_path: Path, uri: str, options: dict[str, str], proxy: CountingProxy, s3: S3Server
) -> None:
    right = table().take(WANTED).to_pydict()
    first = process(tmp_path, uri, options, WANTED)
    assert first["rows"] == right
    asked = methods(proxy)
    assert asked[:2] == ["LIST", "_versions"]
    assert first["requests"] == len(asked)

    second = process(tmp_path, uri, options, WANTED)
    assert second["rows"] == right
    assert methods(proxy) == ["LIST"]
    assert (second["requests"], second["misses"]) == (1, 0)

    pinned = process(tmp_path, uri, options, WANTED, 1)
    assert pinned["rows"] == right
    assert methods(proxy) == []
    assert (pinned["requests"], pinned["misses"]) == (0, 0)

    lance.write_dataset(table(1), uri, mode="append", storage_options=s3.options())
    third = process(tmp_path, uri, options, [*WANTED, ROWS + 5])
    assert third["rows"] == pa.concat_tables([table(), table(1)]).take([*WANTED, ROWS + 5]).to_pydict()
    lines = proxy.take().lines
    assert [_kind(line.split(" ")[1]) for line in lines[:2]] == ["LIST", "_versions"]
    (new,) = lance.dataset(uri, storage_options=s3.options()).get_fragments()[-1].data_files()
    assert all(new.path in line for line in lines[2:])


def test_requests_without_a_cache_are_the_same(
    tmp_path: Path, uri: str, options: dict[str, str], proxy: CountingProxy
) -> None:
    lance_io.dataset(uri, storage_options=options, session=Session()).take(WANTED)
    without = methods(proxy)
    lance_io.dataset(uri, storage_options=options, session=session(tmp_path)).take(WANTED)
    assert methods(proxy) == without


def test_scans_pass_by_unless_asked(tmp_path: Path, uri: str, options: dict[str, str], proxy: CountingProxy) -> None:
    for asked, left in ((False, True), (True, False)):
        for _ in range(2):
            of = session(tmp_path / str(asked), disk_cache_scans=asked)
            ds = lance_io.dataset(uri, storage_options=options, session=of)
            assert ds.to_table().equals(table())
            assert ds.to_table(filter=pc.field("a") < 5).num_rows == 5
            assert of.flush_disk_cache()
            requests = methods(proxy)
        assert ("data" in requests) == left
        stats = of.disk_cache_stats
        assert stats is not None
        assert (stats.bytes_found > ROWS) == asked


def test_a_table_written_anew_at_the_same_place(
    tmp_path: Path, uri: str, options: dict[str, str], s3: S3Server
) -> None:
    of = session(tmp_path)
    lance_io.dataset(uri, 1, storage_options=options, session=of).take(WANTED)
    assert of.flush_disk_cache()
    lance.LanceDataset.drop(uri, storage_options=s3.options())
    lance.write_dataset(table(7), uri, storage_options=s3.options(), max_rows_per_file=ROWS // 2)

    newest = lance_io.dataset(uri, storage_options=options, session=session(tmp_path))
    assert newest.take(WANTED).equals(table(7).take(WANTED))
    assert newest.session().flush_disk_cache()
    # The listing has shown that version 1 is another one now.
    assert lance_io.dataset(uri, 1, storage_options=options, session=session(tmp_path)).take(WANTED)["a"][
        0
    ] == pa.scalar(10)


def test_a_pinned_version_of_a_table_that_is_gone(
    tmp_path: Path, uri: str, options: dict[str, str], s3: S3Server
) -> None:
    of = session(tmp_path)
    lance_io.dataset(uri, 1, storage_options=options, session=of).take(WANTED)
    assert of.flush_disk_cache()
    lance.LanceDataset.drop(uri, storage_options=s3.options())
    lance.write_dataset(table(7), uri, storage_options=s3.options(), max_rows_per_file=ROWS // 2)

    of = session(tmp_path)
    old = lance_io.dataset(uri, 1, storage_options=options, session=of)
    assert old.take(WANTED).equals(table().take(WANTED))  # as long as all of it is there
    with pytest.raises(NotFound):
        old.take([12_345])
    assert of.flush_disk_cache()
    assert lance_io.dataset(uri, 1, storage_options=options, session=session(tmp_path)).take([3])["a"].to_pylist() == [
        10
    ]


def test_other_credentials_and_endpoints_have_copies_of_their_own(
    tmp_path: Path, uri: str, options: dict[str, str], proxy: CountingProxy, s3: S3Server
) -> None:
    for given in (options, s3.root_options(aws_endpoint=proxy.endpoint), s3.options()):
        of = session(tmp_path)
        lance_io.dataset(uri, storage_options=given, session=of).take(WANTED)
        assert of.flush_disk_cache()
        stats = of.disk_cache_stats
        assert stats is not None
        # One cache of the process counts for all; each of these finds nothing.
        assert stats.hits == 0
    lance_io.dataset(uri, storage_options=options, session=session(tmp_path)).take(WANTED)
    stats = of.disk_cache_stats
    assert stats is not None
    assert stats.hits > 0
    held = b"".join(file.read_bytes() for file in tmp_path.rglob("ranges-*"))
    assert s3.secret.encode() not in held
    assert s3.user.encode() not in held


def test_damage_on_the_disk_never_shows(tmp_path: Path, uri: str, options: dict[str, str]) -> None:
    dice = random.Random(1)
    right = table().take(WANTED)
    for damage in range(6):
        of = session(tmp_path)
        lance_io.dataset(uri, storage_options=options, session=of).take(WANTED)
        assert of.flush_disk_cache()
        of._disk_cache._database.close()
        (file,) = tmp_path.rglob("*.sqlite" if damage < 2 else "*.bytes")
        held = bytearray(file.read_bytes())
        for place in range(dice.randrange(100), len(held), 700):  # some in every copy
            held[place] ^= 1 << dice.randrange(8)
        file.write_bytes(held if damage % 2 else held[: dice.randrange(len(held))])
        of = session(tmp_path)
        ds = lance_io.dataset(uri, storage_options=options, session=of)
        assert ds.take(WANTED).equals(right)
        assert ds.take(WANTED).equals(right)
        assert of.flush_disk_cache()
    stats = of.disk_cache_stats
    assert stats is not None
    assert stats.damaged > 0


def test_a_cache_that_others_could_have_written_is_not_read(tmp_path: Path, uri: str, options: dict[str, str]) -> None:
    right = table().take(WANTED)
    of = session(tmp_path)
    lance_io.dataset(uri, storage_options=options, session=of).take(WANTED)
    assert of.flush_disk_cache()
    (folder,) = tmp_path.iterdir()
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match=f"{folder} can be written by other users"):
        found = lance_io.dataset(uri, storage_options=options, session=session(tmp_path)).take(WANTED)
    assert found.equals(right)
    stats = of.disk_cache_stats
    assert stats is not None
    assert (stats.hits, stats.pauses) == (0, 1)


async def test_from_coroutines_and_pickled(tmp_path: Path, uri: str, options: dict[str, str]) -> None:
    of = session(tmp_path)
    async with lance_io.AsyncDataset.open(uri, storage_options=options, session=of) as ds:
        assert (await ds.take(WANTED)).equals(table().take(WANTED))
    assert of.flush_disk_cache()
    again = pickle.loads(pickle.dumps(of))
    assert again.disk_cache_stats == of.disk_cache_stats  # the same cache of this process
    with io_stats() as seen:
        async with lance_io.AsyncDataset.open(uri, 1, storage_options=options, session=again) as ds:
            assert (await ds.take(WANTED)).equals(table().take(WANTED))
    assert (seen.num_reads, seen.rounds, seen.bytes_read) == (0, 0, 0)
    assert seen.num_cached > 2
    assert seen.bytes_cached > 1000
    ds = pickle.loads(pickle.dumps(lance_io.dataset(uri, storage_options=options, session=again)))
    assert ds.take(WANTED).equals(table().take(WANTED))


def test_writers_are_not_shown_old_versions(tmp_path: Path, uri: str, options: dict[str, str], s3: S3Server) -> None:
    of = session(tmp_path)
    ds = lance_io.dataset(uri, storage_options=options, session=of)
    ds.delete("a < 10")
    lance.write_dataset(table(1), uri, mode="append", storage_options=s3.options())
    ds.delete("a >= 15000")
    ds.checkout_latest()
    other = lance.dataset(uri, storage_options=s3.options())
    assert ds.count_rows() == other.count_rows() == ROWS - 10 - 5_000 + ROWS
    assert of.flush_disk_cache()
    again = lance_io.dataset(uri, storage_options=options, session=session(tmp_path))
    assert again.to_table().equals(other.to_table())
    ds.cleanup_old_versions(older_than=timedelta(0))
    assert of.flush_disk_cache()
    with pytest.raises(ValueError, match="not found"):
        lance_io.dataset(uri, 1, storage_options=options, session=session(tmp_path))


def test_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="disk_cache_bytes"):
        Session(disk_cache=tmp_path, disk_cache_bytes=5)
    monkeypatch.setenv("LANCE_IO_DISK_CACHE", str(tmp_path / "from"))
    assert Session().disk_cache_stats is not None
    assert Session(disk_cache="").disk_cache_stats is None
    monkeypatch.setenv("LANCE_IO_DISK_CACHE_BYTES", "12x")
    with pytest.raises(UsageError, match="LANCE_IO_DISK_CACHE_BYTES"):
        Session()
    monkeypatch.delenv("LANCE_IO_DISK_CACHE")
    assert Session().disk_cache_stats is None
    local = lance_io.write_dataset(pa.table({"a": [1]}), tmp_path / "t.lance")
    of = session(tmp_path / "cache")
    assert lance_io.dataset(local.uri, session=of).take([0]).num_rows == 1
    assert not (tmp_path / "cache").exists()  # what is on local disk needs none
