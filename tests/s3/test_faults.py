"""Every fault x operation on a table in a bucket: the right result or an error of ours, in time, and nothing is left.

A fault comes once, at a request that is drawn, or with every request; then the operation is done again without it.
The bucket is one in memory, behind real sockets (`tests/bucket.py`). `LANCE_IO_SIMULATE` is how many are drawn;
`LANCE_IO_CANCELLED_TAKES` how many takes are given up, four times over.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_io import AsyncDataset, Session, runtime
from lance_io.errors import CommitUnknownError, DeadlineExceeded, LanceError
from lance_io.io.slots import slots_of
from lance_io.store import descriptors
from tests.bucket import NAME, Bucket, Exchange, Harm, refuse
from tests.s3.settling import all_bytes_are_back
from tests.seeds import seed_of
from tests.simulate.world import SIZE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

TIMEOUT_S: Final = 1.0  # of a request
RETRIES: Final = 2
# An operation ends with the first request that fails for good, or, of those of a write that go out beside each other,
# with the last one, and what it has written is removed: four after another at most. Deadlines are looked at eight times
# in each; the rest is for pauses, and for a loaded machine.
ENDS_S: Final = 4 * (RETRIES + 1) * TIMEOUT_S * 9 / 8 + 20
AT_ONCE: Final = 10
URI: Final = f"s3://{NAME}/t.lance"
ROWS: Final = 20_000
MORE: Final = 100
CANCELLED: Final = int(os.environ.get("LANCE_IO_CANCELLED_TAKES", "2000")) // 4


def rows(count: int, first: int = 0) -> pa.Table:
    """Integers, texts, and vectors whose bytes no page repeats."""
    numbers = np.arange(first, first + count)
    vectors = np.random.default_rng(first).random(8 * count, np.float32)
    return pa.table(
        {
            "id": numbers,
            "text": [f"row {number}" for number in numbers],
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 8),
        }
    )


TABLE: Final = pa.concat_tables([rows(ROWS // 2), rows(ROWS // 2, ROWS // 2)]).combine_chunks()
APPENDED: Final = rows(MORE, ROWS)
HUNDRED: Final = sorted(random.Random(1).sample(range(ROWS), 100))


# -- faults ------------------------------------------------------------------------------------------------------------


async def reset(exchange: Exchange) -> bool:
    """The request is not even looked at."""
    exchange.to_client.transport.abort()
    return False


async def lost(exchange: Exchange) -> bool:
    """It is done, and the answer is lost."""
    exchange.right()
    exchange.to_client.transport.abort()
    return False


async def reset_in_head(exchange: Exchange) -> bool:
    await exchange.say(exchange.right().data[:20])
    exchange.to_client.transport.abort()
    return False


def half(exchange: Exchange) -> bytes:
    """The head and half of the body; of an answer without a body half of the head."""
    right = exchange.right()
    if not right.body:
        return right.data[: len(right.data) // 2]
    return right.data[: len(right.data) - (len(right.body) + 1) // 2]


async def cut(exchange: Exchange) -> bool:
    await exchange.say(half(exchange))
    return False


async def stalled_head(exchange: Exchange) -> bool:
    exchange.right()
    await exchange.silence()
    return False


async def stalled_body(exchange: Exchange) -> bool:
    await exchange.say(half(exchange))
    await exchange.silence()
    return False


async def garbage(exchange: Exchange) -> bool:
    exchange.right()
    await exchange.say(b"\x16\x03\x01 220 mail.example.com ready\r\n\r\n" + bytes(range(256)))
    return False


async def another_range(exchange: Exchange) -> bool:
    """One byte further on, and so it says."""
    right = exchange.right()
    if right.status == 206:
        span, _, size = str(right.headers["Content-Range"]).removeprefix("bytes ").partition("/")
        first, last = map(int, span.split("-"))
        right.headers["Content-Range"] = f"bytes {first + 1}-{last + 1}/{int(size) + 1}"
    await exchange.say(right.data)
    return True


async def no_range(exchange: Exchange) -> bool:
    """All of the object, with 200."""
    exchange.asked.headers.pop("range", None)
    await exchange.say(exchange.right().data)
    return True


async def too_long(exchange: Exchange) -> bool:
    right = exchange.right()
    if right.status == 206:
        right = replace(right, body=right.body + b"x" * 10)
        right.headers["Content-Length"] = len(right.body)
    await exchange.say(right.data)
    return True


async def changed(exchange: Exchange) -> bool:
    """It breaks off, and whoever wants the rest of what was there is told that it has changed."""
    if "if-match" in exchange.asked.headers:
        return await refuse(412, "PreconditionFailed")(exchange)
    return await cut(exchange)


async def broken_chunks(exchange: Exchange) -> bool:
    if (
        exchange.asked.line.startswith("GET ")
        and ("?" not in exchange.asked.line or "alt=media" in exchange.asked.line)
        and "range" not in exchange.asked.headers
    ):
        return await cut(exchange)  # without its length, a whole object is no answer at all
    right = exchange.right()
    right.headers.pop("Content-Length", None)
    right.headers["Transfer-Encoding"] = "chunked"
    piece = right.body[: len(right.body) // 2 + 1] or b"?"
    right = replace(right, body=b"%x\r\n%s\r\nno number\r\n" % (len(piece), piece))
    await exchange.say(right.data)
    return False


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    harm    with an answer; None for what goes wrong before a request can be sent
    passes  whether trying again helps: a read recovers from one of them
    """

    name: str
    harm: Harm | None
    passes: bool = True


FAULTS: Final = (
    Fault("refused", None),
    Fault("no TLS", None),
    Fault("reset", reset),
    Fault("lost", lost),
    Fault("reset in the head", reset_in_head),
    Fault("cut", cut),
    Fault("stalled head", stalled_head),
    Fault("stalled body", stalled_body),
    Fault("garbage", garbage),
    Fault("another range", another_range, passes=False),
    Fault("no range", no_range, passes=False),
    Fault("too long", too_long, passes=False),
    Fault("500", refuse(500, "InternalError")),
    Fault("503", refuse(503, "SlowDown")),
    Fault("503 later", refuse(503, "SlowDown", Retry_After="1")),
    Fault("403", refuse(403, "AccessDenied"), passes=False),
    Fault("404", refuse(404, "NoSuchKey"), passes=False),
    Fault("416", refuse(416, "InvalidRange"), passes=False),
    Fault("changed", changed),
    Fault("broken chunks", broken_chunks),
)


class Once:
    """Does harm to one request: that of a number."""

    def __init__(self, harm: Harm, number: int) -> None:
        self._harm = harm
        self._before = number
        self.done = 0

    async def __call__(self, exchange: Exchange) -> bool:
        is_rest = self._harm is changed and self.done == 1 and "if-match" in exchange.asked.headers
        self._before -= 1
        if self._before == -1 or is_rest:
            self.done += 1
            return await self._harm(exchange)
        await exchange.say(exchange.right().data)
        return True


# -- operations --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """What is done to a table.

    work     on a dataset that is open, or None where there is none
    found    the right result, of a read
    changes  it is a write
    opens    it needs a dataset that was opened before
    """

    name: str
    work: Callable[[AsyncDataset | None, dict[str, Any]], Awaitable[Any]]
    found: Any = None
    changes: bool = False
    opens: bool = True


async def _open(_: AsyncDataset | None, how: dict[str, Any]) -> Any:
    async with AsyncDataset.open(**how) as table:
        return table.version, await table.count_rows(), table.schema


async def _append(_: AsyncDataset | None, how: dict[str, Any]) -> Any:
    await AsyncDataset.write(APPENDED, mode="append", **how)


async def _create(_: AsyncDataset | None, how: dict[str, Any]) -> Any:
    await AsyncDataset.write(APPENDED, **how)


async def _tag(table: AsyncDataset | None, _: dict[str, Any]) -> Any:
    await asyncio.to_thread(table.to_sync().tags.create, "monday", 1)


OPERATIONS: Final = (
    Operation("open", _open, (2, ROWS, TABLE.schema), opens=False),
    Operation("take 1", lambda table, _: table.take([77]), TABLE.take([77])),
    Operation("take 100", lambda table, _: table.take(HUNDRED), TABLE.take(HUNDRED)),
    Operation("scan", lambda table, _: table.to_table(), TABLE),
    Operation("count", lambda table, _: table.count_rows("id % 7 = 3"), len(range(3, ROWS, 7))),
    Operation("append", _append, changes=True),
    Operation("delete", lambda table, _: table.delete(f"id < {MORE}"), changes=True),
    Operation("create", _create, changes=True, opens=False),
    Operation("tag", _tag, changes=True),
)
BY_NAME: Final = {operation.name: operation for operation in OPERATIONS}
State = tuple[int, list[int], set[str]]
OLD: Final[State] = (2, list(range(ROWS)), set())
NOTHING: Final[State] = (0, [], set())
NEW: Final[dict[str, State]] = {
    "append": (3, [*range(ROWS + MORE)], set()),
    "delete": (3, [*range(MORE, ROWS)], set()),
    "create": (1, [*range(ROWS, ROWS + MORE)], set()),
    "tag": (2, [*range(ROWS)], {"monday"}),
}


@pytest.fixture
def kind() -> type[Bucket]:
    """Of the bucket."""
    return Bucket


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    """Those of a table of two fragments, as they lie in a bucket."""

    async def write() -> dict[str, bytes]:
        async with Bucket() as bucket:
            how: dict[str, Any] = {"uri": URI, "storage_options": bucket.options(), "session": Session()}
            half = ROWS // 2
            await AsyncDataset.write(TABLE[:half], **how)
            await AsyncDataset.write(TABLE[half:], mode="append", **how)
            return bucket.objects

    return asyncio.run(write())


def state_of(bucket: Bucket, folder: Path) -> State:
    """Version, rows and tags of the table in a bucket, as pylance reads them from disk."""
    place = folder / "t.lance"
    for key, content in bucket.objects.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    try:
        table = lance.dataset(str(place))
    except ValueError:
        return NOTHING
    try:
        return table.version, table.to_table(["id"])["id"].to_pylist(), set(table.tags.list())
    finally:
        shutil.rmtree(folder)


# -- one of them on the other ------------------------------------------------------------------------------------------


class Trial:
    """One operation under one fault.

    kind  of bucket
    once  the number of the request that it befalls; None for all
    """

    def __init__(self, kind: type[Bucket], operation: Operation, fault: Fault, once: int | None, folder: Path) -> None:
        self._kind = kind
        self.operation, self.fault, self.once = operation, fault, once
        self._folder = folder
        self.took_s = 0.0
        self.outcome = ""

    def __str__(self) -> str:
        return f"{self.operation.name} / {self.fault.name} / {'always' if self.once is None else f'at {self.once}'}"

    async def run(self, objects: dict[str, bytes]) -> None:
        """The operation with the fault and again without it; what was wrong is an `AssertionError` that names both."""
        async with self._kind(objects if self.operation.name != "create" else {}) as bucket:
            session = Session()
            options = bucket.options(
                request_timeout=f"{TIMEOUT_S}s", connect_timeout=f"{TIMEOUT_S}s", client_max_retries=str(RETRIES)
            )
            how: dict[str, Any] = {"uri": f"{bucket.uri}/t.lance", "storage_options": options, "session": session}
            try:
                table = await AsyncDataset.open(**how) if self.operation.opens else None
                error = await self._harmed(bucket, table, how)
                await self._again(bucket, table, how, error)
                if table is not None:
                    await table.aclose()
                store: Any = session.locate(how["uri"], options).store
                await runtime.wrap(store.aclose())
                assert slots_of(store).in_use == store.stats.in_flight == 0, self
                await until_closed(bucket)
            except Exception as error:
                raise AssertionError(f"{self}: {type(error).__name__}: {error}") from error

    async def _harmed(self, bucket: Bucket, table: AsyncDataset | None, how: dict[str, Any]) -> LanceError | None:
        """Under the fault: nothing but the right result, or an error of ours, in time."""
        operation, fault = self.operation, self.fault
        harm: Any = None
        if fault.harm is not None:
            bucket.harm = harm = fault.harm if self.once is None else Once(fault.harm, self.once)
        elif fault.name == "refused":
            await bucket.stop()
            if self.once is not None:
                self._listening = asyncio.ensure_future(listen_again(bucket))
        else:
            secure = {**how["storage_options"], **bucket.place("https")}
            how = {**how, "storage_options": secure, "session": Session()}
        began_s = time.monotonic()
        error = None
        try:
            async with asyncio.timeout(ENDS_S):
                if fault.name == "no TLS" and operation.opens:
                    async with AsyncDataset.open(**how) as other:
                        await operation.work(other, how)
                found = await operation.work(table, how)
            assert operation.changes or found == operation.found, "the result is wrong"
        except LanceError as raised:
            error = raised
        self.took_s = time.monotonic() - began_s
        bucket.harm = None
        if fault.name == "refused" and self.once is None:
            await bucket.start()
        elif fault.name == "no TLS":
            store: Any = how["session"].locate(how["uri"], how["storage_options"]).store
            await runtime.wrap(store.aclose())
        befell = harm is None or self.once is None or harm.done > 0
        self.outcome = "failed" if error is not None else "recovered" if befell else "spared"
        if fault.passes and self.once is not None and not operation.changes:
            assert error is None or fault.harm is None, f"a read did not recover: {error!r}"
        return error

    async def _again(
        self, bucket: Bucket, table: AsyncDataset | None, how: dict[str, Any], error: LanceError | None
    ) -> None:
        """Without the fault: it works, once."""
        if self.fault.name == "refused" and self.once is not None:
            await self._listening
        if not self.operation.changes:
            assert await self.operation.work(table, how) == self.operation.found, "the result is wrong afterwards"
            return
        old, new = NOTHING if self.operation.name == "create" else OLD, NEW[self.operation.name]
        state = await asyncio.to_thread(state_of, bucket, self._folder)
        if error is None:
            assert state == new, "it is not there"
        elif isinstance(error, CommitUnknownError):
            assert state in (old, new), "it is there by half"
        else:
            assert state == old, f"it is there, in spite of {error!r}"
        if state == old:
            await self.operation.work(table, how)
            assert await asyncio.to_thread(state_of, bucket, self._folder) == new, "it is not there afterwards"


async def listen_again(bucket: Bucket) -> None:
    """Soon: while the operation tries again, or after it has failed."""
    await asyncio.sleep(0.05)
    await bucket.start()


async def until_closed(bucket: Bucket) -> None:
    """Wait until the bucket knows that its connections are closed."""
    while bucket.alive:  # noqa: ASYNC110 (a number of the server's)
        await asyncio.sleep(0.001)


async def tasks() -> set[Any]:
    """Those of the engine; to be asked there."""
    return asyncio.all_tasks() - {asyncio.current_task()}


async def ended(left: set[Any]) -> set[Any]:
    """Those that do not end by themselves."""
    return (await asyncio.wait(left, timeout=30))[1] if left else set()


async def requests_of(kind: type[Bucket], operation: Operation, objects: dict[str, bytes]) -> int:
    """How many requests it makes where nothing is wrong."""
    async with kind(objects if operation.name != "create" else {}) as bucket:
        session = Session()
        how: dict[str, Any] = {"uri": f"{kind.uri}/t.lance", "storage_options": bucket.options(), "session": session}
        table = await AsyncDataset.open(**how) if operation.opens else None
        before = bucket.asked
        found = await operation.work(table, how)
        assert operation.changes or found == operation.found
        asked = bucket.asked - before
        store: Any = session.locate(how["uri"], how["storage_options"]).store
        await runtime.wrap(store.aclose())
        return asked


@pytest.mark.parametrize("name", BY_NAME)
async def test_every_fault(
    name: str,
    kind: type[Bucket],
    objects: dict[str, bytes],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    operation, dice = BY_NAME[name], random.Random(seed_of(f"faults {name}"))
    open_sockets, before = descriptors.num_sockets(), await runtime.wrap(tasks())
    num_requests = await requests_of(kind, operation, objects)
    trials = [
        Trial(kind, operation, fault, once, tmp_path / f"{number}-{once}")
        for number, fault in enumerate(FAULTS)
        for once in (None, *sorted({dice.randrange(num_requests) for _ in range(SIZE)}))
    ]
    turns = asyncio.Semaphore(AT_ONCE)

    async def in_turn(trial: Trial) -> None:
        async with turns:
            await trial.run(objects)

    failures = [error for error in await asyncio.gather(*map(in_turn, trials), return_exceptions=True) if error]
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(trials)} trials", failures)
    counts = Counter(trial.outcome for trial in trials)
    slowest = max(trials, key=lambda trial: trial.took_s)
    told = f"{kind.__name__}, {name}, {len(trials)} trials: {dict(counts)}; the slowest took {slowest.took_s:.1f} s: "
    told += str(slowest)
    print(told)
    record_property("faults", told)
    record_property("fault_trials", f"{kind.uri.partition(':')[0]} {len(trials)}")
    assert counts["recovered"] and counts["failed"] >= len(FAULTS) - 5, told
    await all_bytes_are_back()
    assert await runtime.wrap(ended(await runtime.wrap(tasks()) - before)) == set()
    gc.collect()
    assert descriptors.num_sockets() <= open_sockets


# -- takes that are given up -------------------------------------------------------------------------------------------


async def fickle(exchange: Exchange, dice: random.Random) -> bool:
    """The right answer as a rule; late, half or none by chance."""
    chance = dice.random()
    if chance < 0.2:
        return await dice.choice((reset, cut, stalled_head, stalled_body, refuse(500, "InternalError")))(exchange)
    if chance < 0.4:
        await asyncio.sleep(dice.random() * 0.01)
    await exchange.say(exchange.right().data)
    return True


async def test_takes_of_a_table_cancelled_anywhere(
    objects: dict[str, bytes], record_property: Callable[[str, object], None]
) -> None:
    """By cancelling the caller or by a deadline, while 16 take; `tests/io/test_cancelled_takes.py` looks closer."""
    dice, met = random.Random(seed_of("cancelled takes of a table")), Counter[str]()
    open_sockets, before = descriptors.num_sockets(), await runtime.wrap(tasks())
    expected = {at: TABLE.take([at]) for at in range(0, ROWS, 2500)}

    async def call(table: AsyncDataset) -> None:
        while met["given up"] < CANCELLED:
            at = dice.choice([*expected])
            deadline_s = dice.choice((None, None, 0.02 * dice.random() + 1e-4))
            taking = asyncio.ensure_future(table.take([at], timeout=deadline_s))
            if deadline_s is None:
                await asyncio.wait([taking], timeout=dice.random() * dice.choice((0.005, 0.02, 0.2)))
                taking.cancel()
            try:
                assert await taking == expected[at]
                met["answered"] += 1
            except (asyncio.CancelledError, DeadlineExceeded) as error:
                met["given up"] += 1
                met[type(error).__name__] += 1
            except LanceError:
                met["failed"] += 1

    async with Bucket(objects) as bucket:
        session = Session()
        options = bucket.options(request_timeout="5s", hedge_percent="50")
        table = await AsyncDataset.open(URI, storage_options=options, session=session)
        bucket.harm = partial(fickle, dice=dice)
        await asyncio.gather(*(call(table) for _ in range(16)))
        bucket.harm = None
        told = f"{CANCELLED} takes of a table given up: {dict(met)}, {bucket.asked} requests"
        print(told)
        record_property("cancelled_takes", told)
        assert min(met[name] for name in ("CancelledError", "DeadlineExceeded", "answered")) > CANCELLED / 50
        await all_bytes_are_back()
        assert await table.take(HUNDRED) == TABLE.take(HUNDRED)
        store: Any = session.locate(URI, options).store
        assert slots_of(store).in_use == store.stats.in_flight == 0

        async def gates() -> int:
            return sum(gate.in_flight for gate in store._loop().gates.values())

        assert await runtime.wrap(gates()) == 0
        assert await runtime.wrap(ended(await runtime.wrap(tasks()) - before)) == set()
        await table.aclose()
        await runtime.wrap(store.aclose())
        await until_closed(bucket)
    assert descriptors.num_sockets() <= open_sockets
