"""One request for a download: authorised by the store, carried by a pool, judged in our errors."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lance_io.errors import LanceError
from lance_io.runtime import set_done
from lance_io.store.failures import StoreFailure, Transient
from lance_io.store.http.connection import BadAnswer
from lance_io.store.http.exchange import Document, Exchange
from lance_io.store.http.pool import join_pool, leave_pool
from lance_io.store.http.tls import NoTrust

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.store.download import Download
    from lance_io.store.http.exchange import Origin, Patience, Sink
    from lance_io.store.http.pool import OriginPool

OPEN_AHEAD = 8  # connections to have after a question: what was asked about is read next, from several files at once
AGAIN_MAX = 1  # times that a store sends us elsewhere


class Site(Protocol):
    """What a store knows: where its objects are, how requests for them are authorised, what its refusals mean."""

    def is_ready(self, now_s: float) -> bool:
        """Whether `request` can be called: credentials are at hand, and as fresh as they have to be."""

    async def make_ready(self, key: str) -> None:
        """Get what `request` needs. Raises our errors; `key` is named in them."""

    def request(self, download: Download) -> tuple[Origin, bytes]:
        """Where the next attempt of a download goes, and its whole head."""

    def range_request(self, key: str, start: int, end: int) -> tuple[Origin, bytes]:
        """The same for the first attempt at a range, in less time."""

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
    """

    def __init__(self, site: Site, who: str, connections_max: int) -> None:
        self.site = site
        self._who = who
        self._connections_max = connections_max
        self.loop = asyncio.get_running_loop()
        self._pools: dict[Origin, OriginPool] = {}

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> DownloadAttempt:
        """See `GetTransport`; where a store sends us elsewhere, that is asked, once."""
        attempt = DownloadAttempt(self, download, ended)
        attempt.begin()
        return attempt

    async def ask(self, query: Mapping[str, str], name: str, operation: str) -> bytes:
        """The answer to a question about the objects, such as for a list of them.

        Raises our errors only; `Transient` where another attempt may help.

        name, operation  of what it is about, and what is done, for errors
        """
        site, exchange = self.site, None
        for _ in range(1 + AGAIN_MAX):
            if not site.is_ready(self.loop.time()):
                await site.make_ready(name)
            document = Document(name, operation)
            origin, head = site.question(query)
            exchange = await self._carry(document, (origin, head), 0)
            if exchange.error is not None:
                raise _failure(exchange.error, name, operation, None) from None
            if exchange.status == 200:
                self.pool(origin).open_ahead(OPEN_AHEAD)
                return document.body()
            site.refused(exchange, name, operation)
        raise _sent_around(exchange, name, operation)

    async def _carry(self, sink: Sink, request: tuple[Origin, bytes], num_bytes: int) -> Exchange:
        """Send a request and wait until it is over."""
        ended = self.loop.create_future()
        exchange = self.send(sink, request, num_bytes, partial(set_done, ended), self.loop.time())
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
    ) -> Exchange:
        """Send a request now; `done` is called when it is over, in a later turn of the loop.

        request    of the site
        num_bytes  that its answer should have, for the time that it may take
        """
        origin, head = request
        exchange = Exchange(head, sink, self.site.patience(num_bytes), done, now_s)
        self.pool(origin).send(exchange, now_s)
        return exchange

    def pool(self, origin: Origin) -> OriginPool:
        """The connections to an origin."""
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = join_pool(origin, self._who, self._connections_max)
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


class DownloadAttempt:
    """A GET on its way; see `Attempt` in `store/reading.py`."""

    __slots__ = ("_download", "_ended", "_exchange", "_gets", "_num_sent", "_preparing", "_site")

    def __init__(self, gets: HttpGets, download: Download, ended: Callable[[BaseException | None], None]) -> None:
        self._gets = gets
        self._site = gets.site
        self._download = download
        self._ended: Callable[[BaseException | None], None] | None = ended
        self._exchange: Exchange | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._num_sent = 0

    def begin(self) -> None:
        """Send it as soon as the site can authorise it."""
        gets = self._gets
        now_s = gets.loop.time()
        if self._site.is_ready(now_s):
            self._send(now_s)
        else:
            self._preparing = gets.loop.create_task(self._site.make_ready(self._download.key))
            self._preparing.add_done_callback(self._prepared)

    def goes_on(self, head: bytes, patience: Patience, began_s: float) -> Exchange:
        """The request is under way already: the exchange that it is."""
        self._num_sent = 1
        self._exchange = Exchange(head, self._download, patience, self._answered, began_s)
        return self._exchange

    def _send(self, now_s: float) -> None:
        gets, site, download = self._gets, self._site, self._download
        try:
            request = site.request(download)
        except LanceError as error:
            gets.loop.call_soon(self._end, error)
            return
        self._num_sent += 1
        missing = max(0, download.num_bytes - download.received)
        self._exchange = gets.send(download, request, missing, self._answered, now_s)

    def cancel(self) -> None:
        """See `Attempt`."""
        self._ended = None
        if self._preparing is not None:
            self._preparing.cancel()
        if self._exchange is not None:
            self._exchange.cancel()
            self._exchange = None

    def _prepared(self, preparing: asyncio.Task[None]) -> None:
        self._preparing = None
        if preparing.cancelled():
            self._end(RuntimeError("the request was cancelled: its event loop is shutting down"))
        elif (error := preparing.exception()) is not None:
            self._end(error)
        elif self._ended is not None:
            self._send(self._gets.loop.time())

    def _answered(self, exchange: Exchange) -> None:
        self._exchange = None
        download = self._download
        download.queue_s += exchange.waited_s
        if exchange.error is not None:
            self._end(_failure(exchange.error, download.key, "get", download))
        elif exchange.status in (200, 206):
            self._end(None)
        else:
            self._not_served(exchange)

    def _not_served(self, exchange: Exchange) -> None:
        download = self._download
        try:
            again = self._site.not_served(exchange, download)
        except LanceError as error:
            self._end(error)
            return
        if not again:
            self._end(None)
        elif self._num_sent > AGAIN_MAX:
            self._end(_sent_around(exchange, download.key, "get"))
        else:
            self.begin()

    def _end(self, error: BaseException | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(error)


def _sent_around(exchange: Exchange | None, name: str, operation: str) -> StoreFailure:
    status = None if exchange is None else exchange.status
    text = f"the store sends us elsewhere, again and again (HTTP {status})"
    return StoreFailure(text, path=name, operation=operation, status=status)


def _failure(error: BaseException, name: str, operation: str, download: Download | None) -> LanceError:
    """What an exchange ended with, as an error of ours."""
    if isinstance(error, LanceError):
        return error
    kind = type(error).__name__
    if _is_distrust(error):  # a certificate that is not trusted stays so
        return StoreFailure(f"cannot connect ({kind}: {error})", path=name, operation=operation)
    if isinstance(error, MemoryError):
        return StoreFailure("no memory for the answer", path=name, operation=operation)
    if isinstance(error, TimeoutError):
        text = "no answer in time"
    elif isinstance(error, BadAnswer):
        text = f"no answer in HTTP/1.1 ({error})"
    else:
        text = f"no answer ({kind}: {error})"
    if download is not None:
        received = f"{download.received} of {download.num_bytes} bytes"
        is_broken = download.received and not isinstance(error, (TimeoutError, BadAnswer))
        text = (
            f"the answer broke off after {received} ({kind}: {error})" if is_broken else f"{text}, {received} are here"
        )
    return Transient(text, path=name, operation=operation)


def _is_distrust(error: BaseException) -> bool:
    import ssl

    return isinstance(error, (ssl.SSLCertVerificationError, NoTrust))
