"""One request for a download: sent once, judged in our errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.errors import LanceError
from lance_io.store.failures import StoreFailure, Transient, request_id_of
from lance_io.store.http.connection import BadAnswer
from lance_io.store.http.exchange import Exchange
from lance_io.store.http.tls import NoTrust

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from lance_io.store.http.exchange import Patience
    from lance_io.store.http.gets import HttpGets
    from lance_io.store.policies.download import Download

AGAIN_MAX: Final = 1  # times that a store sends us elsewhere


class DownloadAttempt:
    """A GET on its way; see `Attempt` in `store/policies/transport.py`."""

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
            self._preparing.add_done_callback(self._end_preparing)

    def goes_on(self, head: bytes, patience: Patience, began_s: float) -> Exchange:
        """The request is under way already: the exchange that it is."""
        self._num_sent = 1
        self._exchange = Exchange(head, self._download, patience, self._end_answered, began_s, self._gets.get_again)
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
        self._exchange = gets.send(download, request, missing, self._end_answered, now_s)

    def cancel(self) -> None:
        """See `Attempt`."""
        self._ended = None
        if self._preparing is not None:
            self._preparing.cancel()
        if self._exchange is not None:
            self._exchange.cancel()
            self._exchange = None

    def _end_preparing(self, preparing: asyncio.Task[None]) -> None:
        self._preparing = None
        if preparing.cancelled():
            self._end(RuntimeError("the request was cancelled: its event loop is shutting down"))
        elif (error := preparing.exception()) is not None:
            self._end(error)
        elif self._ended is not None:
            self._send(self._gets.loop.time())

    def _end_answered(self, exchange: Exchange) -> None:
        self._exchange = None
        download = self._download
        download.queue_s += exchange.waited_s
        if exchange.error is not None:
            self._end(failure_of(exchange.error, download.key, "get", download))
        elif exchange.status in (200, 206):
            self._end(None)
        else:
            self._not_served(exchange)

    def _not_served(self, exchange: Exchange) -> None:
        download = self._download
        download.request_id = request_id_of(exchange.headers)
        try:
            again = self._site.not_served(exchange, download)
        except LanceError as error:
            self._end(error)
            return
        if not again:
            self._end(None)
        elif self._num_sent > AGAIN_MAX:
            self._end(sent_around(exchange, download.key, "get"))
        else:
            self._gets.get_again()
            self.begin()

    def _end(self, error: BaseException | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(error)


def sent_around(exchange: Exchange | None, name: str, operation: str) -> StoreFailure:
    """What it ends with when a store sends us elsewhere again."""
    status = None if exchange is None else exchange.status
    text = f"the store sends us elsewhere, again and again (HTTP {status})"
    failure = StoreFailure(text, path=name, operation=operation, status=status)
    failure.request_id = None if exchange is None else request_id_of(exchange.headers)
    return failure


def failure_of(error: BaseException, name: str, operation: str, download: Download | None) -> LanceError:
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
        is_broken = download.received and not isinstance(error, (TimeoutError, BadAnswer))
        text = (
            f"the answer broke off after {download.so_far} ({kind}: {error})"
            if is_broken
            else f"{text}, {download.so_far} are here"
        )
    return Transient(text, path=name, operation=operation)


def _is_distrust(error: BaseException) -> bool:
    import ssl

    return isinstance(error, (ssl.SSLCertVerificationError, NoTrust))
