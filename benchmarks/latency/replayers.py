"""Contenders that fetch the ranges which another one has fetched: no plan, no decoding, no table."""

from __future__ import annotations

import asyncio
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.latency.callers import waits_of
from benchmarks.latency.replaying import BareClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from benchmarks.latency.requestlog import Range

BARE, OBSTORE = "bare", "obstore"


class Replayer:
    """Fetches groups of ranges: a group is what one take needs."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self._runner = asyncio.Runner()

    def connect(self, in_flight: int) -> None:
        """Get ready for so many requests at once."""
        raise NotImplementedError

    def prepared(self, groups: Sequence[Sequence[Range]]) -> Callable[[int], Awaitable[Any]]:
        """How one group is fetched, by its number."""
        raise NotImplementedError

    def waits(self, groups: Sequence[Sequence[Range]], callers: int, takes: int) -> Callable[[], list[float]]:
        """Ready to fetch `takes` groups by so many callers, from the first group again where there are not enough."""
        fetch = self.prepared(groups)
        numbers = list(islice(cycle(range(len(groups))), takes))
        return lambda: self._runner.run(waits_of(fetch, iter(numbers), callers))


class Bare(Replayer):
    """`BareClient`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        parts = urlsplit(options["proxy"])
        self._client = BareClient(parts.hostname or "", parts.port or 80)

    def connect(self, in_flight: int) -> None:
        self._runner.run(self._client.connect(in_flight))

    def prepared(self, groups: Sequence[Sequence[Range]]) -> Callable[[int], Awaitable[Any]]:
        return lambda number: self._client.fetch(groups[number])


class Obstore(Replayer):
    """obstore's async calls, signed, as many in flight as asked for."""

    def connect(self, in_flight: int) -> None:
        import obstore.store

        self._in_flight = asyncio.Semaphore(in_flight)
        self._stores: dict[str, Any] = {}
        self._make_store = obstore.store.S3Store

    def _store(self, bucket: str) -> Any:
        if bucket not in self._stores:
            self._stores[bucket] = self._make_store(
                bucket,
                endpoint=self.options["aws_endpoint"],
                region=self.options["aws_region"],
                access_key_id=self.options["aws_access_key_id"],
                secret_access_key=self.options["aws_secret_access_key"],
                client_options={"allow_http": True},
            )
        return self._stores[bucket]

    def prepared(self, groups: Sequence[Sequence[Range]]) -> Callable[[int], Awaitable[Any]]:
        import obstore

        async def one(bucket: str, path: str, start: int, end: int) -> None:
            async with self._in_flight:
                await obstore.get_range_async(self._store(bucket), path, start=start, end=end)

        async def fetch(number: int) -> None:
            names = [(key.lstrip("/").split("/", 1), start, end) for key, start, end in groups[number]]
            await asyncio.gather(*(one(name[0], name[1], start, end) for name, start, end in names))

        return fetch


REPLAYERS: dict[str, type[Replayer]] = {BARE: Bare, OBSTORE: Obstore}
