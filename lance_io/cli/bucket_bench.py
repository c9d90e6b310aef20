"""`bench` of a bucket: latency and throughput of its requests from here, and storage options for the cost model."""

from __future__ import annotations

import asyncio
import random
import statistics
import uuid
from dataclasses import dataclass, replace
from os import urandom
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.cli.tables import Pairs, Table
from lance_io.dataset.cli_imports import CLOUD, Ranges, ReadScheduler, costs_of, format_bytes, runtime
from lance_io.errors import AlreadyExists, UsageError
from lance_io.limits import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.cli.tables import Shown
    from lance_io.dataset.cli_imports import Location, ObjectStore, RequestCosts, StatsSnapshot, StoreProfile

SMALL_BYTES: Final = 4 * KIB
LARGE_BYTES: Final = 32 * MIB
PART_BYTES: Final = 8 * MIB  # of the reads that measure bandwidth
FOLDER: Final = ".lance-io-bench-"


@dataclass(frozen=True, slots=True)
class Counts:
    """How often each request is made."""

    puts: int = 10
    lists: int = 10
    gets: int = 50
    parts: int = 4  # sequential
    parts_together: int = 32
    gets_together: int = 2000  # at most; four per request in flight
    in_flight: tuple[int, ...] = (16, 64, 256, 1024)
    parts_in_flight: int = 16


def measure_bucket(location: Location, seed: int) -> dict[str, Any]:
    """The report for a bucket, or a folder in it. Writes temporary objects there.

    Raises `UsageError` for a store without latency, which has no costs.
    """
    store = location.store
    known = store.profile.costs
    if known is None or hasattr(store, "read_sync"):
        raise UsageError(f"{location.uri}: --bucket measures a store behind a network")
    before = store.stats.snapshot()
    folder = location.key(FOLDER + uuid.uuid4().hex)
    report, costs = runtime.run(_measure_and_clean(store, folder, known, seed, Counts()))
    return {"uri": location.uri, **report, **_advice(costs), "spent": _spent(store.stats.snapshot() - before, known)}


async def _measure_and_clean(
    store: ObjectStore, folder: str, known: RequestCosts, seed: int, counts: Counts
) -> tuple[dict[str, Any], RequestCosts]:
    names = [f"{folder}/{name}" for name in ("large", "absent", *(f"small-{i}" for i in range(counts.puts)))]
    try:
        return await measure(store, folder, known, seed, counts)
    finally:
        await runtime.to_the_end(store.delete(names))


async def measure(
    store: ObjectStore, folder: str, known: RequestCosts, seed: int, counts: Counts
) -> tuple[dict[str, Any], RequestCosts]:
    """Measure requests; returns the report, and the costs for the cost model. Objects stay in `folder`.

    known  costs that the measured ones replace; their prices stay
    """
    chance, large = random.Random(seed), f"{folder}/large"

    def small_start() -> int:
        return chance.randrange(LARGE_BYTES // SMALL_BYTES) * SMALL_BYTES

    async def listing() -> None:
        async for _ in store.list(f"{folder}/"):
            pass

    large_put_s = await _time(lambda: store.put(large, urandom(LARGE_BYTES)))
    put_s = [await _time(lambda i=i: store.put(f"{folder}/small-{i}", bytes(SMALL_BYTES))) for i in range(counts.puts)]  # type: ignore[misc]
    create_s, creates_once = await _create_twice(store, f"{folder}/absent")
    list_s = [await _time(listing) for _ in range(counts.lists)]

    async def get(start: int, num_bytes: int) -> float:
        return await _time(lambda: store.get_range(large, start, start + num_bytes))

    await get(0, SMALL_BYTES)  # opens the connection
    get_s = sorted([await get(small_start(), SMALL_BYTES) for _ in range(counts.gets)])
    latency_s = statistics.median(get_s)
    part_starts = range(0, LARGE_BYTES, PART_BYTES)
    part_s = [await get(part_starts[i % len(part_starts)], PART_BYTES) for i in range(counts.parts)]
    connection_bytes_per_s = PART_BYTES / max(statistics.median(part_s) - latency_s, 1e-6)
    levels = [
        await _together(store, large, min(counts.gets_together, 4 * limit), limit, chance)
        for limit in counts.in_flight
        if limit <= max(store.profile.requests_max, counts.in_flight[0])
    ]
    processor_s = min(level["processor_s"] for level in levels)
    network = await _parts_together(store, large, counts)
    per_byte_s = max(network["processor_s"] - counts.parts_together * processor_s, 0.0) / network["num_bytes"]
    costs = replace(
        known,
        latency_s=latency_s,
        connection_bytes_per_s=connection_bytes_per_s,
        network_bytes_per_s=max(network["num_bytes"] / network["seconds"], connection_bytes_per_s),
        processor_s=processor_s,
        processor_s_per_byte=max(per_byte_s, 1e-12),
    )
    report = {
        "get": {"p50_s": latency_s, "p99_s": get_s[int(len(get_s) * 0.99)], "num_bytes": SMALL_BYTES},
        "put": {"p50_s": statistics.median(put_s), "large_s": large_put_s, "large_bytes": LARGE_BYTES},
        "list": {"p50_s": statistics.median(list_s)},
        "create_if_absent": {"seconds": create_s, "is_honoured": creates_once},
        "connection_bytes_per_s": connection_bytes_per_s,
        "network_bytes_per_s": network["num_bytes"] / network["seconds"],
        "in_flight": levels,
    }
    return report, costs


async def _time(call: Callable[[], Awaitable[Any]]) -> float:
    started = perf_counter()
    await call()
    return perf_counter() - started


async def _create_twice(store: ObjectStore, key: str) -> tuple[float, bool]:
    """Seconds of a create-if-absent, and whether a second one is refused."""
    seconds = await _time(lambda: store.put(key, b"bench", if_absent=True))
    try:
        await store.put(key, b"bench", if_absent=True)
    except AlreadyExists:
        return seconds, True
    return seconds, False


async def _together(store: ObjectStore, key: str, num_gets: int, limit: int, chance: random.Random) -> dict[str, Any]:
    """Small GETs as in a take, `limit` in flight."""
    starts = np.array(chance.choices(range(0, LARGE_BYTES, 2 * SMALL_BYTES), k=num_gets), np.int64)
    starts = np.unique(starts)
    async with ReadScheduler(store, merge="take", requests_max=limit, gap_bytes_max=0, budget_bytes=0) as reads:
        file = reads.file(key)
        started, processor = perf_counter(), process_time()
        await file.submit(Ranges(starts, starts + SMALL_BYTES))
        seconds, processor = perf_counter() - started, process_time() - processor
        num_reads = reads.stats.num_reads
    return {"requests": limit, "gets_per_s": num_reads / seconds, "processor_s": processor / num_reads}


async def _parts_together(store: ObjectStore, key: str, counts: Counts) -> dict[str, Any]:
    """Large concurrent GETs: throughput of the network, and its processor time."""
    slots = asyncio.Semaphore(counts.parts_in_flight)
    half_bytes = PART_BYTES // 2

    async def get(number: int) -> None:
        start = number * half_bytes % LARGE_BYTES
        async with slots:
            await store.get_range(key, start, start + half_bytes)

    started, processor = perf_counter(), process_time()
    await asyncio.gather(*(get(number) for number in range(counts.parts_together)))
    return {
        "seconds": perf_counter() - started,
        "processor_s": process_time() - processor,
        "num_bytes": counts.parts_together * half_bytes,
    }


def _advice(costs: RequestCosts) -> dict[str, Any]:
    """Storage options with the measurements, and the numbers of a profile that follow from them."""
    known = costs_of(costs.name).options()
    options = {"store_costs": costs.name, **{n: v for n, v in costs.options().items() if v != known[n]}}
    profile: StoreProfile = CLOUD.with_options(options)
    numbers = ("take_gap_bytes", "scan_gap_bytes", "split_bytes", "requests_start", "requests_max")
    return {"options": options, "profile": {name: getattr(profile, name) for name in numbers}}


def _spent(spent: StatsSnapshot, costs: RequestCosts) -> dict[str, Any]:
    usd = costs.prices.usd(
        gets=spent["get"].requests + spent["head"].requests,
        puts=spent["put"].requests + spent["put_create"].requests + spent["part"].requests,
        lists=spent["list"].requests,
        bytes_read=spent.bytes_read,
        bytes_written=spent.bytes_written,
    )
    return {"num_requests": spent.requests, "num_bytes": spent.bytes_read + spent.bytes_written, "usd": usd}


def show_bucket(report: dict[str, Any]) -> Shown:
    """The report for people."""
    get, put = report["get"], report["put"]
    times = {
        "GET of 4 KiB": f"{_ms(get['p50_s'])} (99 of 100: {_ms(get['p99_s'])})",
        "PUT of 4 KiB": _ms(put["p50_s"]),
        f"PUT of {format_bytes(put['large_bytes'])}": _ms(put["large_s"]),
        "LIST": _ms(report["list"]["p50_s"]),
        "PUT if absent": _ms(report["create_if_absent"]["seconds"])
        + ("" if report["create_if_absent"]["is_honoured"] else " NOT HONOURED: commits need a commit lock"),
        "a connection": f"{report['connection_bytes_per_s'] / 1e6:,.0f} MB/s",
        "the network": f"{report['network_bytes_per_s'] / 1e6:,.0f} MB/s",
    }
    levels = [
        (level["requests"], round(level["gets_per_s"]), f"{1e6 * level['processor_s']:,.0f}")
        for level in report["in_flight"]
    ]
    spent = report["spent"]
    return [
        Pairs(times),
        Table([">in flight", ">GETs/s", ">processor us/GET"], levels, title="GETs of 4 KiB together"),
        Pairs({name: f"{number:,}" for name, number in report["profile"].items()}),
        "storage options with these measurements, from which the numbers above follow (docs/costs.md):",
        "\n".join(f"    -o {name}={value}" for name, value in report["options"].items()),
        f"measured with {spent['num_requests']:,} requests, {format_bytes(spent['num_bytes'])}, ${spent['usd']:.2g}",
    ]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.2f} ms"
