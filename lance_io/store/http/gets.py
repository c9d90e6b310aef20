"""GETs of one store: authorised by its `Site`, sent through the pools of its origins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from lance_io.runtime import set_done
from lance_io.store.failures import answered_with
from lance_io.store.http.attempt import AGAIN_MAX, DownloadAttempt, error_of, too_many_redirects
from lance_io.store.http.exchange import Document, Exchange
from lance_io.store.http.pool import join_pool, leave_pool
from lance_io.store.http.proxy import absolute_form

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_io.store.counters import Operation, StoreStats
    from lance_io.store.http.exchange import Origin, Patience, Sink
    from lance_io.store.http.pool import OriginPool
    from lance_io.store.http.proxy import Proxy
    from lance_io.store.offers import WantedRange
    from lance_io.store.policies.download import Download

T = TypeVar("T")

OPEN_AHEAD = 8  # connections to open after a query: reads of several files at once usually follow


class Site(Protocol):
    """Specifics of one store: locations of objects, authorisation of requests, meaning of error answers."""

    def is_ready(self, now_s: float) -> bool:
        """Whether `request` can be called: valid credentials are available."""

    async def make_ready(self, key: str) -> None:
        """Fetch the credentials that `request` needs. Raises our errors, which name `key`."""

    def request(self, download: Download) -> tuple[Origin, bytes]:
        """Origin and complete head of the next request of a download."""

    def range_requests(self, requests: Sequence[WantedRange]) -> tuple[Origin, list[bytes]]:
        """Like `request` for the first request of each range, faster."""

    def query_request(self, query: Mapping[str, str]) -> tuple[Origin, bytes]:
        """Like `request` for a query about the bucket, such as a listing."""

    def patience(self, num_bytes: int) -> Patience:
        """Timeouts of an answer of `num_bytes`."""

    def on_failed_get(self, exchange: Exchange, download: Download) -> bool:
        """Handle an answer to a download that is neither 200 nor 206.

        Returns True to send the request again at once, because the site has learnt its right origin or form; False if
        the answer is a success after all (no bytes to read). Raises our errors otherwise.
        """

    def on_failed_query(self, exchange: Exchange, name: str, operation: str) -> bool:
        """Like `on_failed_get` for any other request, about `name`; never returns False."""


class HttpGets:
    """Sends the GETs of one store on one event loop.

    bucket    all stores of a bucket share `connections_max` per origin
    stats     of the store; counts resent requests
    find_proxy  the proxy of an origin, or None; without it, all connections are direct
    idle_s      idle timeout of connections; None for the pool's default
    idle_max    limit of idle connections; None for the pool's default
    """

    def __init__(
        self,
        site: Site,
        bucket: str,
        connections_max: int,
        stats: StoreStats,
        find_proxy: Callable[[Origin], Proxy | None] | None = None,
        idle_s: float | None = None,
        idle_max: int | None = None,
    ) -> None:
        self.site = site
        self.count_resend = partial(stats.sent_again, "get")
        self._stats = stats
        self._bucket = bucket
        self._connections_max = connections_max
        self._find_proxy = find_proxy
        self._routes: dict[Origin, Origin] = {}
        self._idle = idle_s, idle_max
        self.loop = asyncio.get_running_loop()
        self._pools: dict[Origin, OriginPool] = {}

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> DownloadAttempt:
        """See `GetTransport`; follows one redirect of the store."""
        attempt = DownloadAttempt(self, download, ended)
        attempt.begin()
        return attempt

    async def query(self, query: Mapping[str, str], name: str, operation: Operation, read: Callable[[bytes], T]) -> T:
        """The answer to a query about the bucket, such as a listing.

        Raises only our errors; `Transient` where a retry may help.

        name, operation  subject and operation, for errors
        read             parses the answer's body; raises our errors
        """
        site, exchange = self.site, None
        for num_before in range(1 + AGAIN_MAX):
            if num_before:
                self._stats.sent_again(operation)
            if not site.is_ready(self.loop.time()):
                await site.make_ready(name)
            document = Document(name, operation)
            origin, head = site.query_request(query)
            exchange = await self._carry(document, (origin, head), partial(self._stats.sent_again, operation))
            with answered_with(exchange.headers):
                if exchange.error is not None:
                    raise error_of(exchange.error, name, operation, None) from None
                if exchange.status == 200:
                    self.pool(self.route(origin, [])[0]).open_ahead(OPEN_AHEAD)
                    return read(document.body())
            site.on_failed_query(exchange, name, operation)
        raise too_many_redirects(exchange, name, operation)

    async def _carry(self, sink: Sink, request: tuple[Origin, bytes], on_resend: Callable[[], None]) -> Exchange:
        """Send a request and wait until it ends."""
        ended = self.loop.create_future()
        exchange = self.send(sink, request, 0, partial(set_done, ended), self.loop.time(), on_resend)
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
        on_resend: Callable[[], None] | None = None,
    ) -> Exchange:
        """Send a request now; `done` is called in a later turn of the loop when it ends.

        request    from the site
        num_bytes  expected size of the answer, for its timeouts
        on_resend  called when it is sent again; None counts a resent GET
        """
        origin, (head,) = self.route(request[0], [request[1]])
        exchange = Exchange(head, sink, self.site.patience(num_bytes), done, now_s, on_resend or self.count_resend)
        self.pool(origin).send(exchange, now_s)
        return exchange

    def route(self, origin: Origin, heads: list[bytes]) -> tuple[Origin, list[bytes]]:
        """The origin with its proxy, and the heads as that expects them."""
        if self._find_proxy is None:
            return origin, heads
        route = self._routes.get(origin)
        if route is None:
            route = self._routes[origin] = replace(origin, proxy=self._find_proxy(origin))
        if route.proxy is not None and route.tls is None:
            heads = [absolute_form(head, route) for head in heads]
        return route, heads

    def pool(self, origin: Origin) -> OriginPool:
        """Connection pool of an origin, with its proxy."""
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = join_pool(origin, self._bucket, self._connections_max, *self._idle)
        return pool

    def detach(self) -> None:
        """Drop the pools of a loop that is already closed."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            if pool.leave():
                pool.detach()

    async def close(self) -> None:
        """Leave all pools, and close those without other users; later requests open new ones."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await leave_pool(pool)
