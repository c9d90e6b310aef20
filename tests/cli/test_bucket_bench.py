"""`bench` of a bucket: which requests it makes, what it makes of them, and that nothing stays behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.cli.bucket_bench import LARGE_BYTES, PART_BYTES, SMALL_BYTES, Counts, _measure_and_clean
from lance_io.store.costs import STORE_COSTS
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.testing.record import RecordingStore

if TYPE_CHECKING:
    import lance

    from lance_io.testing.wrap import Request
    from tests.servers import S3Server

COUNTS = Counts(
    puts=3, lists=2, gets=5, parts=4, parts_together=16, gets_together=40, in_flight=(8, 16), parts_in_flight=4
)


async def test_the_requests_that_it_makes() -> None:
    inner = MemoryStore(profile=CLOUD)
    store = RecordingStore(inner)
    report, costs = await _measure_and_clean(store, "f", STORE_COSTS["s3-express"], 0, COUNTS)
    made = Counter(one.operation for one in store.requests)
    objects = 2 + COUNTS.puts
    assert made["put"] + made["put_create"] == objects + 1  # one is created twice
    assert made["list"] == COUNTS.lists
    sizes = Counter((one.end or 0) - (one.start or 0) for one in store.requests if one.operation == "get")
    assert sizes[PART_BYTES] == COUNTS.parts
    assert sizes[PART_BYTES // 2] == COUNTS.parts_together
    together = sizes[SMALL_BYTES] - 1 - COUNTS.gets  # random ones, each once
    assert 50 <= together <= sum(min(40, 4 * limit) for limit in COUNTS.in_flight)
    assert [one["requests"] for one in report["in_flight"]] == [8, 16]
    assert report["create_if_absent"]["is_honoured"]
    assert report["get"]["p50_s"] == costs.latency_s <= report["get"]["p99_s"]
    assert costs.prices == STORE_COSTS["s3-express"].prices
    assert max(one.end or 0 for one in store.requests if one.operation == "get") <= LARGE_BYTES
    assert [one async for one in inner.list("")] == []


async def test_what_fails_leaves_nothing() -> None:
    inner = MemoryStore(profile=CLOUD)
    store = FailingLists(inner)
    with pytest.raises(RuntimeError, match="no list"):
        await _measure_and_clean(store, "f", STORE_COSTS["s3"], 0, COUNTS)
    assert [one async for one in inner.list("")] == []


class FailingLists(RecordingStore):
    """Fails the first listing."""

    async def request(self, request: Request, send: Any) -> Any:
        """Refuse."""
        if request.operation == "list":
            raise RuntimeError("no list")
        return await super().request(request, send)


def options(s3: S3Server) -> list[str]:
    return [part for key, value in s3.options().items() for part in ("-o", f"{key}={value}")]


def test_of_a_bucket(run: Any, s3: S3Server, s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_io.cli.bucket_bench.Counts", lambda: replace(COUNTS))
    report = run("bench", s3_uri, "--bucket", *options(s3), "--json").report
    assert report["uri"] == s3_uri
    assert report["options"]["store_costs"] == "minio"
    assert float(report["options"]["latency_ms"]) == pytest.approx(1e3 * report["get"]["p50_s"], rel=1e-3)
    assert CLOUD.with_options(report["options"]).requests_max == report["profile"]["requests_max"]
    assert report["spent"]["usd"] == 0 and report["spent"]["num_bytes"] > LARGE_BYTES
    assert report["create_if_absent"]["is_honoured"]
    drawn = run("bench", f"s3://{s3.bucket}", *options(s3))  # no table lies there: the bucket is meant
    assert (drawn.code, drawn.err) == (0, "")
    assert "-o latency_ms=" in drawn.out and s3.secret not in drawn.out


def test_of_what_is_no_bucket(run: Any, table: lance.LanceDataset) -> None:
    ran = run("bench", table.uri, "--bucket")
    assert (ran.code, "behind a network" in ran.err) == (2, True)
