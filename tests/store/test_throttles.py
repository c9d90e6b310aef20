"""Buckets of all three kinds that ask for fewer requests: counted, waited for, and the table is right all the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lance_io import metrics, runtime
from lance_io.dataset.lance_dataset import AsyncDataset
from lance_io.errors import LanceError
from lance_io.reads.version.session import Session
from lance_io.store.failures import Throttled
from tests.bucket import Bucket, Container, Exchange, GoogleBucket, Harm, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = pa.table({"a": range(1000)})
KINDS = [Bucket, Container, GoogleBucket]
REFUSALS = {
    "503": refuse(503, "SlowDown"),
    "429": refuse(429, "TooManyRequests"),
    "503 later": refuse(503, "ServerBusy", Retry_After="7"),
    "429 later": refuse(429, "rateLimitExceeded", Retry_After="7"),
}


class First:
    """The first answers to reads, or to writes without a condition, are refusals."""

    def __init__(self, refusal: Harm, number: int, *, is_write: bool) -> None:
        self._refusal = refusal
        self._number = number
        self._is_write = is_write
        self.refused: list[str] = []

    async def __call__(self, exchange: Exchange) -> bool:
        line, headers = exchange.asked.line, exchange.asked.headers
        decides = "if-none-match" in headers or "ifGenerationMatch" in line
        if len(self.refused) < self._number and line.startswith(("PUT", "POST")) == self._is_write and not decides:
            self.refused.append(exchange.asked.line.split(" ")[0])
            return await self._refusal(exchange)
        await exchange.say(exchange.right().data)
        return True


def counted(name: str) -> float:
    return sum(sample.value for sample in metrics.collect() if sample.metric.prometheus_name == name)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those of the engine's loop from here on, which are not waited for."""
    found: list[float] = []

    async def sleep(pause_s: float) -> None:
        if pause_s:  # libraries let others go first
            found.append(pause_s)

    async def engine_loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loop = runtime.run(engine_loop())
    real = loop.call_later

    def call_later(delay_s: float, callback: Callable[..., object], *arguments: Any, **more: Any) -> Any:
        if getattr(callback, "__name__", "") == "_again":  # a reading's pause
            found.append(delay_s)
            delay_s = 0.0
        return real(delay_s, callback, *arguments, **more)

    monkeypatch.setattr(loop, "call_later", call_later)
    monkeypatch.setattr("lance_io.store.cloud.cloud_store.asyncio.sleep", sleep)
    return found


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("kind", KINDS)
async def test_refusals_are_counted_and_waited_for(kind: type[Bucket], name: str, pauses: list[float]) -> None:
    async with kind() as bucket:
        how: dict[str, Any] = {"storage_options": bucket.options(), "session": Session()}
        uri = f"{bucket.uri}/t.lance"
        before = counted("lance_io_throttles_total"), counted("lance_io_retries_total")
        bucket.harm = writing = First(REFUSALS[name], 2, is_write=True)
        table = await AsyncDataset.write(ROWS, uri, **how)
        bucket.harm = reading = First(REFUSALS[name], 3, is_write=False)
        assert await table.take([7, 900]) == ROWS.take([7, 900])
        assert (await table.to_table()) == ROWS
        assert (len(writing.refused), len(reading.refused)) == (2, 3)
        found = counted("lance_io_throttles_total") - before[0], counted("lance_io_retries_total") - before[1]
        assert found == (5, 5)
        assert len(pauses) == 5
        least_s = 7 if "later" in name else 0
        assert all(least_s < pause_s < least_s + 1 for pause_s in pauses)  # never less than is asked for
        store: Any = how["session"].locate(uri, how["storage_options"]).store
        await runtime.wrap(store.aclose())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_bucket_that_never_stops_is_given_up(kind: type[Bucket], pauses: list[float]) -> None:
    """With an error that says so; each attempt is counted, and none is made after the last."""
    async with kind() as bucket:
        how: dict[str, Any] = {"storage_options": bucket.options(client_max_retries="3"), "session": Session()}
        uri = f"{bucket.uri}/t.lance"
        table = await AsyncDataset.write(ROWS, uri, **how)
        before = counted("lance_io_throttles_total")
        bucket.harm = refuse(503, "SlowDown")
        for work in (table.take([7]), table.count_rows("a > 7"), AsyncDataset.open(uri, **how)):
            asked = bucket.asked
            with pytest.raises(LanceError) as caught:
                await work
            assert isinstance(caught.value, Throttled) and caught.value.retryable
            assert "fewer requests" in str(caught.value)
            assert bucket.asked - asked == 4
        assert counted("lance_io_throttles_total") - before == 12
        assert len(pauses) == 9
        bucket.harm = None
        assert await table.take([7]) == ROWS.take([7])
        store: Any = how["session"].locate(uri, how["storage_options"]).store
        await runtime.wrap(store.aclose())
