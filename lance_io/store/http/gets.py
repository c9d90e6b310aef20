"""GETs of one store: authorised by it, carried by the pools of its origins."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from lance_io.runtime import set_done
from lance_io.store.failures import answered_with
from lance_io.store.http.attempt import AGAIN_MAX, DownloadAttempt, failure_of, sent_around
from lance_io.store.http.exchange import Document, Exchange
from lance_io.store.http.pool import join_pool, leave_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_io.store.counters import Operation, StoreStats
    from lance_io.store.http.exchange import Origin, Patience, Sink
    from lance_io.store.http.pool import OriginPool
    from lance_io.store.offers import WantedRange
    from lance_io.store.policies.download import Download

T = TypeVar("T")

OPEN_AHEAD = 8  # connections to have after a question: what was asked about is read next, from several files at once


class Site(Protocol):
    """What a store knows: where its objects are, how requests for them are authorised, what its refusals mean."""

    def is_ready(self, now_s: float) -> bool:
        """Whether `request` can be called: credentials are at hand, and as fresh as they have to be."""

    async def make_ready(self, key: str) -> None:
        """Get what `request` needs. Raises our errors; `key` is named in them."""

    def request(self, download: Download) -> tuple[Origin, bytes]:
        """Where the next attempt of a download goes, and its whole head."""

    def range_requests(self, wanted: Sequence[WantedRange]) -> tuple[Origin, list[bytes]]:
        """The same for the first attempts at some ranges, in less time."""

    def question(self, query: Mapping[str, str]) -> tuple[Origin, bytes]:
        """The same for a question about the objects."""

    def patience(self, num_bytes: int) -> Patience:
        """How long an answer of so many bytes may take."""

    def not_served(self, exchange: Exchange, download: Download) -> bool:
        """Judge an answer that is neither 200 nor 206.

        True when the request has to be made again at once: the site has learnt where it has to go, or how. False when
        the answer is right after all (there are no bytes to read). Everything else is an error of ours, raised.
        """

    def refused(self, exchange: Exchange, name: str, operation: str) -> bool:
        """The same for any other request, about `name`; never False."""


class HttpGets:
    """Sends the downloads of one store on one event loop.

    who              the bucket: all stores of it share `connections_max` to an endpoint
    stats            of the store: counts what goes out once more
    idle_s           seconds until idle connections are closed, and how many there may be; None: as the pool has it
    """

    def __init__(
        self,
        site: Site,
        who: str,
        connections_max: int,
        stats: StoreStats,
        idle_s: float | None = None,
        idle_max: int | None = None,
    ) -> None:
        self.site = site
        self.get_again = partial(stats.sent_again, "get")
        self._stats = stats
        self._who = who
        self._connections_max = connections_max
        self._idle = idle_s, idle_max
        self.loop = asyncio.get_running_loop()
        self._pools: dict[Origin, OriginPool] = {}

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> DownloadAttempt:
        """See `GetTransport`; where a store sends us elsewhere, that is asked, once."""
        attempt = DownloadAttempt(self, download, ended)
        attempt.begin()
        return attempt

    async def ask(self, query: Mapping[str, str], name: str, operation: Operation, read: Callable[[bytes], T]) -> T:
        """The answer to a question about the objects, such as for a list of them.

        Raises our errors only; `Transient` where another attempt may help.

        name, operation  of what it is about, and what is done, for errors
        read             what the document of the answer says; raises our errors
        """
        site, exchange = self.site, None
        for num_before in range(1 + AGAIN_MAX):
            if num_before:
                self._stats.sent_again(operation)
            if not site.is_ready(self.loop.time()):
                await site.make_ready(name)
            document = Document(name, operation)
            origin, head = site.question(query)
            exchange = await self._carry(document, (origin, head), partial(self._stats.sent_again, operation))
            with answered_with(exchange.headers):
                if exchange.error is not None:
                    raise failure_of(exchange.error, name, operation, None) from None
                if exchange.status == 200:
                    self.pool(origin).open_ahead(OPEN_AHEAD)
                    return read(document.body())
            site.refused(exchange, name, operation)
        raise sent_around(exchange, name, operation)

    async def _carry(self, sink: Sink, request: tuple[Origin, bytes], again: Callable[[], None]) -> Exchange:
        """Send a request and wait until it is over."""
        ended = self.loop.create_future()
        exchange = self.send(sink, request, 0, partial(set_done, ended), self.loop.time(), again)
        try:
            await ended
        except asyncio.CancelledError:
            exchange.cancel()
            raise
        return exchange

    def send(
        self,
        sink: Sink,
        request: tuple[Origin, bytes],
        num_bytes: int,
        done: Callable[[Exchange], None],
        now_s: float,
        again: Callable[[], None] | None = None,
    ) -> Exchange:
        """Send a request now; `done` is called when it is over, in a later turn of the loop.

        request    of the site
        num_bytes  that its answer should have, for the time that it may take
        again      called when it goes out once more; None counts it as a GET
        """
        origin, head = request
        exchange = Exchange(head, sink, self.site.patience(num_bytes), done, now_s, again or self.get_again)
        self.pool(origin).send(exchange, now_s)
        return exchange

    def pool(self, origin: Origin) -> OriginPool:
        """The connections to an origin."""
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = join_pool(origin, self._who, self._connections_max, *self._idle)
        return pool

    def detach(self) -> None:
        """The loop is closed already: its connections are no more."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            if pool.leave():
                pool.detach()

    async def close(self) -> None:
        """Leave all connections to other stores, or close them; what is asked for afterwards opens anew."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await leave_pool(pool)
