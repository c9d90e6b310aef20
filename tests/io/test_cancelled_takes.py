"""Takes on a bucket, cancelled wherever they are: nothing of them is left behind, and the next one is answered.

A server answers as the dice say, late, half, not at all. Callers begin takes and cancel them after some turns of the
loop or some milliseconds; where each of its reads was at that moment is looked up and counted, so that the test knows
that every place was met. `LANCE_IO_CANCELLED_TAKES` is how many there are.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from lance_io.errors import LanceError
from lance_io.io.budget import process_pool
from lance_io.io.reads import RangeRead, Request
from lance_io.io.scheduler import ReadScheduler
from lance_io.io.slots import slots_of
from lance_io.spans import Ranges
from lance_io.store import descriptors
from lance_io.store.http.attempt import DownloadAttempt
from lance_io.store.http.exchange import Exchange
from lance_io.store.http.range_get import RangeGet
from lance_io.store.policies.download import Download
from lance_io.store.policies.hedge import Race
from lance_io.store.policies.logical_read import Reading
from lance_io.store.s3.bucket import S3Store, open_s3
from tests.http_faults import FaultServer, head, read_asked
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Callable

TAKES: Final = int(os.environ.get("LANCE_IO_CANCELLED_TAKES", "2000"))
# Each episode has a bucket of its own: what was learnt of one's latency and refusals says nothing of the next.
EPISODE: Final = min(500, max(1, TAKES // 4))
CALLERS: Final = 24
GETS_MAX: Final = 16  # at once: some have to stand in line
CONTENT: Final = random.Random(3).randbytes(600_000)
RANGES: Final = [(start, start + length) for start in range(0, 300_000, 50_000) for length in (100, 30_000, 250_000)]

# Where a read can be when it is cancelled.
PLACES: Final = (
    "submitted",  # nothing has been planned yet
    "slot",  # in line for a slot of the store
    "gate",  # in line at the gate of the bucket
    "connect",  # no connection yet
    "head",  # sent, no answer yet
    "body",  # half an answer
    "hedge",  # asked for again, since the answer is late
    "pause",  # until it is tried again
    "joined",  # somebody else wants it, too
    "answered",  # the answer is there, and nobody has looked
)


class Dice(FaultServer):
    """Answers by chance.

    refusing  whether it also asks for fewer requests
    """

    def __init__(self, dice: random.Random, *, refusing: bool) -> None:
        super().__init__(CONTENT)
        self._dice = dice
        self._refusing = refusing
        self.harm = True

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One connection."""
        while await self._one(client, to_client):
            await to_client.drain()

    async def _one(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> bool:
        """One request; whether the connection goes on."""
        asked = await read_asked(client)
        self.arrived.set()
        start, end = asked.span(len(CONTENT)) or (0, len(CONTENT))
        fields = {
            "ETag": self.etag,
            "Content-Length": end - start,
            "Content-Range": f"bytes {start}-{end - 1}/{len(CONTENT)}",
        }
        answer = head(206, fields)
        chance = self._dice.random() if self.harm else 1.0
        if chance < 0.12:  # silence
            await client.read()
            return False
        if chance < 0.24:  # half an answer, and silence
            to_client.write(answer + CONTENT[start : (start + end) // 2])
            await to_client.drain()
            await client.read()
            return False
        if chance < 0.28:  # half an answer
            to_client.write(answer + CONTENT[start : (start + end) // 2])
            return False
        if chance < 0.34:  # none
            return False
        if chance < 0.40:
            to_client.write(head(500, {"Content-Length": 0}))
            return True
        if chance < 0.45 and self._refusing:
            to_client.write(head(503, {"Content-Length": 0}))
            return True
        if chance < 0.6:
            await asyncio.sleep(self._dice.random() * 0.02)
        to_client.write(answer)
        if chance < 0.7:
            await to_client.drain()
        to_client.write(CONTENT[start:end])
        return True


def place_of(read: Any) -> str:
    """Where a read is."""
    if read.state == "queued":
        return "slot"
    reading = read.started
    if isinstance(reading, RangeGet):
        if reading._reading is None:
            if reading.is_over or reading.connection is None:
                return "answered" if reading.is_over else "connect"
            return "head" if reading.answer is None else "body"
        reading = reading._reading
    if reading is None or reading._ended is None:
        return "answered"
    if reading._timer is not None:
        return "pause"
    if reading._queued is not None:
        return "gate"
    race = reading._race
    if race._others:
        return "hedge"
    exchange = race._first._exchange
    if exchange is None or exchange.connection is None:
        return "connect"
    received = reading.download.received > reading._received_before
    return "body" if received or exchange.status else "head"


def places_of(scheduler: ReadScheduler) -> set[str]:
    """Where the reads of a take are."""
    found = set()
    for request in scheduler._own.live:
        if request.ended:
            found.add("answered")
        elif not request.reads:
            found.add("submitted")
        for read in request.reads:
            found.add(place_of(read))
            if len(read.holders) > 1 and not request.ended:
                found.add("joined")
    return found


async def take(scheduler: ReadScheduler, key: str, wanted: list[tuple[int, int]]) -> None:
    """Some ranges, checked."""
    fetched = await scheduler.file(key).submit(Ranges.of(*wanted))
    for at, (start, end) in enumerate(wanted):
        assert bytes(fetched.piece(at, end - start)) == CONTENT[start:end]


async def call_and_cancel(store: S3Store, dice: random.Random, until_cancelled: int, met: Counter[str]) -> None:
    """One caller; counts what its takes ended with, and where those were that it cancelled."""
    while met["cancelled"] < until_cancelled:
        scheduler = ReadScheduler(store, merge="take")
        wanted = sorted(dice.sample(RANGES, dice.choice((1, 1, 2, 3))))
        taking = asyncio.ensure_future(take(scheduler, dice.choice("ab"), wanted))
        if dice.random() < 0.3:
            for _ in range(dice.randrange(12)):
                await asyncio.sleep(0)
        else:
            await asyncio.wait([taking], timeout=dice.random() * dice.choice((0.02, 0.02, 0.2)))
        if not taking.done():
            met.update(places_of(scheduler))
            met["cancelled"] += 1
            taking.cancel()
        try:
            await taking
            met["through"] += 1
        except asyncio.CancelledError:
            pass
        except LanceError:
            met["failed"] += 1
        assert scheduler._own.budget.held_bytes >= 0


def store_of(server: FaultServer, bucket: str) -> S3Store:
    options = {
        "aws_endpoint": server.endpoint,
        "allow_http": "true",
        "aws_skip_signature": "true",
        "aws_region": "us-east-1",
        "requests_max": str(GETS_MAX),
        "requests_start": str(GETS_MAX),
        "take_gap_bytes": "0",
        "take_read_bytes_max": "100000",
        "split_bytes": "100000",
        "hedge_percent": "100",
        "client_max_retries": "3",
    }
    return open_s3(bucket, options)


async def until(happened: Callable[[], bool], what: Callable[[], object]) -> None:
    """Let the loop turn until something has happened; `what` is told where it never does."""
    ends_s = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < ends_s, what()
        await asyncio.sleep(0.001)


def timers() -> list[str]:
    """What the loop has still to call, by name."""
    handles = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [getattr(handle._callback, "__qualname__", "?") for handle in handles if not handle.cancelled()]


def alive() -> Counter[str]:
    """What a GET is made of, and is still there."""
    gc.collect()
    kinds = (Request, RangeRead, RangeGet, Reading, Race, DownloadAttempt, Exchange, Download)
    return Counter(type(each).__name__ for each in gc.get_objects() if type(each) in kinds)


async def nothing_is_left(store: S3Store, server: Dice, own_tasks: set[Any]) -> None:
    """All of it has ended: tasks, timers, requests, places in line, bytes. Connections are idle."""
    loop = store._loop()
    (pool,) = loop.gets._pools.values()  # type: ignore[attr-defined]

    def tasks() -> set[Any]:
        return asyncio.all_tasks() - own_tasks - server._connections

    await until(lambda: not pool._opening and not tasks(), tasks)
    watch = loop.sending.watch
    await until(lambda: set(timers()) <= {"OriginPool._sweep"} and watch._timer is None, timers)
    assert not any(watch._waiting)
    assert slots_of(store).in_use == 0 and not slots_of(store)._queue
    for gate in loop.gates.values():
        assert gate.in_flight == 0
        assert not [turn for _, turn in gate._waiting if turn.go is not None]
    assert store.stats.in_flight == 0
    assert process_pool().avail_bytes == process_pool().capacity_bytes
    assert pool.num_idle == pool.num_open == descriptors.num_sockets()
    assert all(exchange.is_over for exchange in (*pool._waiting, *pool._resent))
    await until(lambda: server.alive == pool.num_open, lambda: (server.alive, pool))
    pool._drop_cancelled()  # as the next sweep would
    assert alive() == Counter()


async def get_to_know(store: S3Store) -> None:
    """Read a little: how long answers take as a rule has to be known before any of them is late."""
    readings = [asyncio.create_task(store.get_range("a", at, at + 10)) for at in range(64)]
    await asyncio.wait(readings, timeout=0.1)
    for reading in readings:
        reading.cancel()
    await asyncio.gather(*readings, return_exceptions=True)


async def play(dice: random.Random, number: int, until_cancelled: int, met: Counter[str]) -> None:
    """One episode, until so many takes were cancelled in all."""
    own_tasks = asyncio.all_tasks()
    async with Dice(dice, refusing=number % 4 == 3) as server:
        store = store_of(server, f"bucket{number}")
        await get_to_know(store)
        dispatcher = ReadScheduler(store, merge="take")._bind()  # it lives as long as somebody holds it
        await asyncio.gather(*(call_and_cancel(store, dice, until_cancelled, met) for _ in range(CALLERS)))
        await nothing_is_left(store, server, own_tasks)
        assert not (dispatcher.in_flight or dispatcher._queue or dispatcher._under_way or dispatcher._pending)
        assert not dispatcher._in_line and not dispatcher._granted
        server.harm = False
        await asyncio.gather(*(take(ReadScheduler(store, merge="take"), key, RANGES) for key in "ab"))
        await store.aclose()
        await until(lambda: server.alive == 0, lambda: server.alive)
        assert descriptors.num_sockets() == 0


def seldom(met: Counter[str]) -> list[str]:
    """The places that have not been met often enough."""
    return [place for place in PLACES if met[place] < TAKES / 200]


@pytest.mark.usefixtures("nothing_of_others")
@pytest.mark.timeout(0 if TAKES > 2000 else 120)
async def test_cancelled_takes_leave_nothing_behind(record_property: Callable[[str, object], None]) -> None:
    dice, met = random.Random(seed_of("cancelled takes")), Counter[str]()
    num_episodes = -(-TAKES // EPISODE)
    for number in range(5 * num_episodes):  # how often a read is found at a place depends on the machine, too
        if number >= num_episodes and not seldom(met):
            break
        await play(dice, number, (number + 1) * EPISODE, met)
    told = ", ".join(f"{count} {place}" for place, count in met.most_common())
    print(told)
    record_property("cancelled_takes", told)
    assert met["cancelled"] >= TAKES and met["through"] > TAKES / 50, told
    assert not seldom(met), told
