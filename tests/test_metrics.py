"""Metrics beside what a store was asked for; what they cost when nobody watches; that nobody's secrets are in them."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import lance_io
from lance_io import LanceOperation, metrics
from lance_io.errors import CommitConflictError
from lance_io.fragment import write_fragments
from lance_io.io.cache import SearchCache, process_cache_stats
from lance_io.io.call_metrics import CALLS
from lance_io.reads.version.session import Session
from lance_io.store.counters import StoreStats, Tally, process_operations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.metrics import CallMetrics, Sample
    from tests.servers import S3Server

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operations.md"


@pytest.fixture
def told() -> Iterator[list[CallMetrics]]:
    """What watchers are told."""
    found: list[CallMetrics] = []
    stop = metrics.on_call(found.append)
    yield found
    stop()


def numbers() -> dict[tuple[str, ...], float]:
    return {(sample.metric.prometheus_name, *sample.labels): sample.value for sample in metrics.collect()}


def spent(before: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    return {name: value - before.get(name, 0) for name, value in numbers().items() if value != before.get(name, 0)}


def test_counters_are_those_of_the_store(s3: S3Server, s3_uri: str) -> None:
    uri = f"{s3_uri}/t"
    lance_io.write_dataset(pa.table({"a": range(1000)}), uri, storage_options=s3.options())
    dataset = lance_io.dataset(uri, storage_options=s3.options())
    stats, before = dataset._state.location.store.stats, numbers()
    seen = stats.snapshot()
    dataset.take([1, 700])
    dataset.to_table()
    dataset.insert(pa.table({"a": [5]}))
    made, found = stats.snapshot() - seen, spent(before)
    assert made["get"].requests > 0 and made["put"].requests > 0
    for name, counts in made.operations.items():
        assert found.get(("lance_io_requests_total", name), 0) == counts.requests
        assert found.get(("lance_io_transferred_bytes_total", name), 0) == counts.num_bytes
    text = metrics.prometheus_text()
    assert s3.secret not in text and s3.user not in text and s3.bucket not in text


def disk_cache_numbers() -> dict[str, float]:
    return {name[0]: value for name, value in numbers().items() if name[0].startswith("lance_io_disk_cache_")}


def test_disk_caches_are_counted(s3: S3Server, s3_uri: str, tmp_path: Path) -> None:
    """What they count is what their sessions say, also of a folder that has two bounds, and when both are gone."""
    uri, before = f"{s3_uri}/t", disk_cache_numbers()
    lance_io.write_dataset(pa.table({"a": range(1000)}), uri, storage_options=s3.options())
    caches = [Session(disk_cache=tmp_path, disk_cache_bytes=size << 20) for size in (32, 33)]
    for cache in caches:
        dataset = lance_io.dataset(uri, storage_options=s3.options(), session=cache)
        assert dataset.take([1, 700])["a"].to_pylist() == [1, 700]
        assert cache.flush_disk_cache()
        del dataset
    found, stats = disk_cache_numbers(), [cache.disk_cache_stats for cache in caches]
    made = {name: found[name] - before[name] for name in found}
    counted = {
        "hits": "hits_total",
        "misses": "misses_total",
        "bytes_found": "found_bytes_total",
        "bytes_kept": "kept_bytes_total",
        "dropped": "dropped_total",
        "evictions": "evictions_total",
        "damaged": "damaged_total",
        "pauses": "pauses_total",
    }
    for field, name in counted.items():
        assert made[f"lance_io_disk_cache_{name}"] == sum(getattr(one, field) for one in stats), name
    assert made["lance_io_disk_cache_hits_total"] > 0 < made["lance_io_disk_cache_found_bytes_total"]
    assert made["lance_io_disk_cache_misses_total"] > 0 < made["lance_io_disk_cache_kept_bytes_total"]
    assert made["lance_io_disk_cache_size_bytes"] == max(one.bytes for one in stats) > 0
    assert made["lance_io_disk_cache_limit_bytes"] == 33 << 20
    os.chmod(next(tmp_path.iterdir()), 0o777)
    refused = Session(disk_cache=tmp_path, disk_cache_bytes=34 << 20)
    with pytest.warns(UserWarning, match="disk cache is not used"):
        lance_io.dataset(uri, storage_options=s3.options(), session=refused).take([1])
        refused.flush_disk_cache()
    pauses = refused.disk_cache_stats.pauses
    assert pauses > 0
    del caches, cache, refused
    gc.collect()
    last = disk_cache_numbers()
    assert last["lance_io_disk_cache_pauses_total"] == found["lance_io_disk_cache_pauses_total"] + pauses
    assert last["lance_io_disk_cache_hits_total"] == found["lance_io_disk_cache_hits_total"]
    assert last["lance_io_disk_cache_limit_bytes"] == before["lance_io_disk_cache_limit_bytes"]


def test_calls(told: list[CallMetrics], tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(pa.table({"a": range(1000)}), uri)
    dataset = lance_io.dataset(uri)
    dataset.take([1])
    dataset.take([2])
    dataset.to_table()
    assert sum(batch.num_rows for batch in dataset.to_batches()) == 1000
    dataset.count_rows()
    assert [one.call for one in told] == ["write", "open", "take", "take", "scan", "scan", "count"]
    assert [one.rounds for one in told[2:]] == [1, 1, 1, 1, 0]
    assert not any(one.failed for one in told)
    with pytest.raises(Exception, match="100000"):
        dataset.take([100_000])
    assert (told[-1].call, told[-1].failed) == ("take", True)
    dataset.delete("a < 5")
    assert told[-1].call == "delete"


async def test_awaited_calls(told: list[CallMetrics], s3: S3Server, s3_uri: str) -> None:
    uri, options = f"{s3_uri}/t", s3.options()
    await asyncio.to_thread(lance_io.write_dataset, pa.table({"a": range(1000)}), uri, storage_options=options)
    told.clear()
    async with lance_io.AsyncDataset.open(uri, storage_options=options) as dataset:
        await dataset.take([1])
        await dataset.take([1])
        assert (await dataset.to_table()).num_rows == 1000
    assert [one.call for one in told] == ["open", "take", "take", "scan"]
    assert (told[2].rounds, told[2].num_requests) == (1, 1)
    assert told[2].bytes_read > 0


async def test_every_way_to_commit_is_a_call(told: list[CallMetrics], tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    dataset = lance_io.write_dataset(pa.table({"a": range(10)}), uri)
    fragments = write_fragments(pa.table({"a": [10]}), uri)
    told.clear()
    dataset = lance_io.LanceDataset.commit(uri, lance_io.LanceOperation.Append(fragments), read_version=1)
    dataset.update({"a": "a + 1"}, "a = 3")
    dataset.add_columns({"b": "a * 2"})
    dataset.alter_columns({"path": "b", "name": "c"})
    dataset.drop_columns(["c"])
    dataset.update_config({"k": "v"})
    dataset.tags.create("one", 1)
    dataset.insert(pa.table({"a": [11]}), group_commit=True)
    async with lance_io.AsyncDataset.open(uri) as other:
        await other.insert(pa.table({"a": [12]}), group_commit=True)
        await other.restore()
    names = ["commit", "update", "add_columns", "alter_columns", "drop_columns", "update_metadata", "tag"]
    names += ["group_append", "open", "group_append", "restore"]
    assert [one.call for one in told] == names
    assert set(names) <= {*CALLS.values()}


def commit_numbers() -> dict[tuple[str, ...], float]:
    return {name: value for name, value in numbers().items() if "_commit" in name[0] or "_group" in name[0]}


def test_commits_are_counted_by_operation(tmp_path: Path) -> None:
    """What is counted against the versions that are there then, and what made them by pylance."""
    uri, before = str(tmp_path / "t"), commit_numbers()
    dataset = lance_io.write_dataset(pa.table({"a": range(10)}), uri)
    stale = lance_io.dataset(uri)
    dataset.insert(pa.table({"a": [5]}))
    dataset.insert(pa.table({"a": [6]}), group_commit=True)
    dataset.delete("a = 5")
    dataset.update_config({"k": "v"})
    with pytest.raises(CommitConflictError):
        lance_io.LanceDataset.commit(uri, LanceOperation.Delete([], [0], "true"), read_version=stale.version)
    found = {name: value - before.get(name, 0) for name, value in commit_numbers().items()}
    theirs = lance.dataset(uri)
    made = Counter(type(one.operation).__name__ for one in theirs.get_transactions() if one is not None)
    counted = {name[1]: value for name, value in found.items() if name[0] == "lance_io_commits_total" and value}
    assert counted == made == {"Overwrite": 1, "Append": 2, "Delete": 1, "UpdateConfig": 1}
    assert found["lance_io_commit_conflicts_total", "Delete"] == 1
    assert found["lance_io_group_commits_total",] == found["lance_io_group_appends_total",] == 1


def test_lost_races_are_counted(tmp_path: Path) -> None:
    before = commit_numbers()
    uri = str(tmp_path / "t")
    lance_io.write_dataset(pa.table({"a": [1]}), uri)

    @contextmanager
    def lock(version: int) -> Iterator[None]:
        """Somebody without the lock commits the version for which it was taken first."""
        if version == 2:
            lance.write_dataset(pa.table({"a": [2]}), uri, mode="append")
        yield

    lance_io.write_dataset(pa.table({"a": [3]}), uri, mode="append", commit_lock=lock)
    found = {name: value - before.get(name, 0) for name, value in commit_numbers().items()}
    assert found["lance_io_commit_races_total", "Append"] == 1
    assert found["lance_io_commits_total", "Append"] == 1
    assert sorted(lance.dataset(uri).to_table()["a"].to_pylist()) == [1, 2, 3]


def test_a_watcher_that_fails_hurts_nobody(tmp_path: Path) -> None:
    def fail(_: CallMetrics) -> None:
        raise RuntimeError("not the call's")

    stop = metrics.on_call(fail)
    try:
        assert lance_io.write_dataset(pa.table({"a": [1]}), str(tmp_path / "t")).take([0]).num_rows == 1
    finally:
        stop()


def python_calls(work: Any) -> list[str]:
    """The files of all Python functions that are called."""
    found: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            found.append(frame.f_code.co_filename)

    gc.collect()
    gc.disable()  # what it calls belongs to whatever has left garbage
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def test_nobody_watching_costs_no_call(tmp_path: Path) -> None:
    dataset = lance_io.write_dataset(pa.table({"a": range(1000)}), str(tmp_path / "t"))
    for work in (lambda: dataset.take([1]), dataset.to_table, dataset.count_rows):
        work()
        calls = python_calls(work)
        assert calls and not any(re.search("call_metrics|lance_io/metrics|opentelemetry", name) for name in calls)
        stop = metrics.on_call(lambda _: None)
        assert any("call_metrics" in name for name in python_calls(work))
        stop()
        assert len(python_calls(work)) == len(calls)


def test_counters_only_grow() -> None:
    """Those of stores and caches that are gone stay in the sums."""
    before, cached = process_operations(), process_cache_stats()
    stats, cache = StoreStats(), SearchCache(100)
    stats.count("head", "k", 7)
    stats.throttled("head")
    cache.put(("a",), 1, 10)
    assert (cache.get(("a",)), cache.get(("b",))) == (1, None)
    for _ in range(2):
        found, now = process_operations()["head"], process_cache_stats()
        less = before.get("head", type(found)())
        assert (found - less).requests == (found - less).throttles == 1
        assert (now.hits - cached.hits, now.misses - cached.misses) == (1, 1)
        stats = cache = None


def test_a_forked_child_begins_at_zero() -> None:
    class Owner:
        pass

    tally, owner = Tally(), Owner()
    mine = {"x": [3]}
    tally.follow(owner, mine)
    tally.start_over()
    mine["x"][0] += 2
    assert tally.total() == {"x": [2]}
    del owner
    assert tally.total() == {"x": [2]}


def first_bytes() -> dict[str, float]:
    """The histogram of the time to the first byte, by its lines."""
    lines = [line.rpartition(" ") for line in metrics.prometheus_text().splitlines() if "first_byte" in line]
    return {line: float(value) for line, _, value in lines if not line.startswith("#")}


def test_first_bytes_are_those_of_all_answers(s3: S3Server, s3_uri: str) -> None:
    """As many as the store has counted, in the buckets in which OpenTelemetry has them, each in all above its own."""
    uri, options = f"{s3_uri}/t", s3.options()
    lance_io.write_dataset(pa.table({"a": range(1000)}), uri, storage_options=options)
    reader = InMemoryMetricReader()
    dataset = lance_io.dataset(uri, storage_options=options)
    seen, before = dataset._state.location.store.stats.snapshot(), first_bytes()
    stop = metrics.instrument(MeterProvider([reader]))
    for _ in range(20):
        dataset.take([1, 700])
    dataset.to_table()
    stop()
    made, found = dataset._state.location.store.stats.snapshot() - seen, first_bytes()
    dataset.take([5])  # is measured anyway, and told to nobody
    assert list(first_bytes().values())[-1] == list(found.values())[-1] + 1
    data = reader.get_metrics_data()
    assert data is not None
    (theirs,) = [
        point
        for scope in data.resource_metrics[0].scope_metrics
        for one in scope.metrics
        if one.name == "lance_io.first_byte"
        for point in one.data.data_points
    ]
    *buckets, total_s, count = [found[line] - before[line] for line in found]
    assert count == theirs.count == made["get"].requests - made["get"].errors - made["get"].hedges >= 20
    assert buckets == [sum(theirs.bucket_counts[: end + 1]) for end in range(len(theirs.bucket_counts))]
    assert total_s == pytest.approx(theirs.sum) and total_s > 0
    assert theirs.attributes == {"operation": "get"}
    ends = [re.search(r'le="(.*)"', line) for line in found]
    assert [float(end[1]) for end in ends if end] == [*theirs.explicit_bounds, float("inf")]


def test_opentelemetry_has_the_same_numbers(s3: S3Server, s3_uri: str) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    stop = metrics.instrument(provider)
    dataset = lance_io.write_dataset(pa.table({"a": range(1000)}), f"{s3_uri}/t", storage_options=s3.options())
    dataset.take([1])
    stop()
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        one.name: one.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for one in scope.metrics
    }
    assert set(found) == {one.name for one in metrics.METRICS}
    ours: list[Sample] = metrics.collect()
    for name, points in found.items():
        for point in points:
            labels = tuple(point.attributes.values())
            expected = [one.value for one in ours if (one.metric.name, one.labels) == (name, labels)]
            assert not expected or expected == [point.value]
    takes = [point for point in found["lance_io.call.rounds"] if point.attributes == {"call": "take"}]
    assert [(point.count, point.sum) for point in takes] == [(1, 1)]
    provider.shutdown()


def test_text_for_prometheus(tmp_path: Path) -> None:
    recorder = metrics.CallRecorder()
    dataset = lance_io.write_dataset(pa.table({"a": range(1000)}), str(tmp_path / "t"))
    dataset.take([1])
    recorder.stop()
    dataset.take([1])
    text = metrics.prometheus_text(recorder)
    rounds = 'lance_io_call_rounds_bucket{call="take",le="%d"} %d'
    assert rounds % (0, 0) + "\n" + rounds % (1, 1) in text
    assert 'lance_io_call_duration_seconds_bucket{call="take",le="+Inf"} 1' in text
    assert 'lance_io_call_failures_total{call="take"} 0' in text
    line = re.compile(r"(# (HELP|TYPE) \w+ .+|\w+(\{\w+=\"[^\"]*\"(,\w+=\"[^\"]*\")*\})? -?[\d.e+-]+)")
    assert all(line.fullmatch(one) for one in text.splitlines())
    assert os.path.basename(tmp_path) not in text


def test_the_page_names_every_metric_and_no_other() -> None:
    named = set(re.findall(r"(?m)^\| `(lance_io_\w+)`", PAGE.read_text()))
    assert named == {one.prometheus_name for one in metrics.METRICS}
