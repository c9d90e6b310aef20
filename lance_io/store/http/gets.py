"""One attempt of a download: authorised by the store, carried by a pool, judged in our errors."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lance_io.errors import LanceError
from lance_io.store.failures import StoreFailure, Transient
from lance_io.store.http.connection import BadAnswer
from lance_io.store.http.exchange import Exchange
from lance_io.store.http.pool import join_pool, leave_pool
from lance_io.store.http.tls import NoTrust

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.store.download import Download
    from lance_io.store.http.exchange import Origin, Patience
    from lance_io.store.http.pool import OriginPool

AGAIN_MAX = 1  # times that a store sends us elsewhere


class Site(Protocol):
    """What a store knows: where its objects are, how requests for them are authorised, what its refusals mean."""

    def is_ready(self, now_s: float) -> bool:
        """Whether `request` can be called: credentials are at hand, and as fresh as they have to be."""

    async def make_ready(self, key: str) -> None:
        """Get what `request` needs. Raises our errors; `key` is named in them."""

    def request(self, download: Download) -> tuple[Origin, bytes]:
        """Where the next attempt of a download goes, and its whole head."""

    def patience(self, download: Download) -> Patience:
        """How long it may take."""

    def not_served(self, exchange: Exchange) -> bool:
        """Judge an answer that is neither 200 nor 206.

        True when the request has to be made again at once: the site has learnt where it has to go, or how. False when
        the answer is right after all (there are no bytes to read). Everything else is an error of ours, raised.
        """


class HttpGets:
    """Sends the downloads of one store on one event loop.

    who              the bucket: all stores of it share `connections_max` to an endpoint
    """

    def __init__(self, site: Site, who: str, connections_max: int) -> None:
        self._site = site
        self._who = who
        self._connections_max = connections_max
        self._loop = asyncio.get_running_loop()
        self._pools: dict[Origin, OriginPool] = {}

    async def attempt(self, download: Download) -> None:
        """Ask once for what the download still misses and feed it the answer.

        Raises our errors only; `Transient` where another attempt may help.
        """
        loop, site = self._loop, self._site
        for _ in range(1 + AGAIN_MAX):
            if not site.is_ready(loop.time()):
                await site.make_ready(download.key)
            ended = loop.create_future()
            exchange = self.start(download, partial(_wake, ended))
            try:
                await ended
            except asyncio.CancelledError:
                exchange.cancel()
                raise
            if exchange.error is not None:
                raise _failure(download, exchange.error) from None
            if exchange.status in (200, 206) or not site.not_served(exchange):
                return
        raise StoreFailure(
            f"the store sends us elsewhere, again and again (HTTP {exchange.status})",
            path=download.key,
            operation="get",
            status=exchange.status,
        )

    def start(self, download: Download, done: Callable[[Exchange], None]) -> Exchange:
        """Send the next request of a download now; the site must be ready. `done` is called when it is over."""
        origin, head = self._site.request(download)
        now_s = self._loop.time()
        exchange = Exchange(head, download, self._site.patience(download), done, now_s)
        self.pool(origin).send(exchange, now_s)
        return exchange

    def pool(self, origin: Origin) -> OriginPool:
        """The connections to an origin."""
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = join_pool(origin, self._who, self._connections_max)
        return pool

    async def close(self) -> None:
        """Leave all connections to other stores, or close them; what is asked for afterwards opens anew."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await leave_pool(pool)


def _wake(ended: asyncio.Future[None], _: Exchange) -> None:
    if not ended.done():
        ended.set_result(None)


def _failure(download: Download, error: BaseException) -> LanceError:
    """What an exchange ended with, as an error of ours."""
    if isinstance(error, LanceError):
        return error
    received = f"{download.received} of {download.num_bytes} bytes"
    name = type(error).__name__
    if _is_distrust(error):  # a certificate that is not trusted stays so
        return StoreFailure(f"cannot connect ({name}: {error})", path=download.key, operation="get")
    if isinstance(error, MemoryError):
        return StoreFailure(f"no memory for {download.num_bytes} bytes", path=download.key, operation="get")
    if isinstance(error, TimeoutError):
        text = f"no answer in time, {received} are here"
    elif isinstance(error, BadAnswer):
        text = f"no answer in HTTP/1.1 ({error}), {received} are here"
    elif download.received:
        text = f"the answer broke off after {received} ({name}: {error})"
    else:
        text = f"no answer ({name}: {error}), {received} are here"
    return Transient(text, path=download.key, operation="get")


def _is_distrust(error: BaseException) -> bool:
    import ssl

    return isinstance(error, (ssl.SSLCertVerificationError, NoTrust))
