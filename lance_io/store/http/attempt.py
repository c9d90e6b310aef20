"""One request of a download; maps its outcome to our errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.errors import LanceError
from lance_io.store.failures import StoreFailure, Transient, request_id_of
from lance_io.store.http.connection import BadAnswer
from lance_io.store.http.exchange import Exchange
from lance_io.store.http.tls import UnreadableCertificates

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from lance_io.store.http.exchange import Patience
    from lance_io.store.http.gets import HttpGets
    from lance_io.store.policies.download import Download

AGAIN_MAX: Final = 1  # redirects of a store


class DownloadAttempt:
    """A GET in flight; see `Attempt` in `store/policies/transport.py`."""

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
        """Send the request as soon as the site can authorise it."""
        gets = self._gets
        now_s = gets.loop.time()
        if self._site.is_ready(now_s):
            self._send(now_s)
        else:
            self._preparing = gets.loop.create_task(self._site.make_ready(self._download.key))
            self._preparing.add_done_callback(self._end_preparing)

    def take_over(self, head: bytes, patience: Patience, began_s: float) -> Exchange:
        """Adopt a request that is already sent; returns its exchange."""
        self._num_sent = 1
        self._exchange = Exchange(head, self._download, patience, self._end_answered, began_s, self._gets.count_resend)
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
            self._end(error_of(exchange.error, download.key, "get", download))
        elif exchange.status in (200, 206):
            self._end(None)
        else:
            self._on_failed_get(exchange)

    def _on_failed_get(self, exchange: Exchange) -> None:
        download = self._download
        download.request_id = request_id_of(exchange.headers)
        try:
            again = self._site.on_failed_get(exchange, download)
        except LanceError as error:
            self._end(error)
            return
        if not again:
            self._end(None)
        elif self._num_sent > AGAIN_MAX:
            self._end(too_many_redirects(exchange, download.key, "get"))
        else:
            self._gets.count_resend()
            self.begin()

    def _end(self, error: BaseException | None) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(error)


def too_many_redirects(exchange: Exchange | None, name: str, operation: str) -> StoreFailure:
    """The error after another redirect."""
    status = None if exchange is None else exchange.status
    text = f"too many redirects of the store (HTTP {status})"
    failure = StoreFailure(text, path=name, operation=operation, status=status)
    failure.request_id = None if exchange is None else request_id_of(exchange.headers)
    return failure


def error_of(error: BaseException, name: str, operation: str, download: Download | None) -> LanceError:
    """Maps the error of an exchange to one of ours."""
    if isinstance(error, LanceError):
        return error
    kind = type(error).__name__
    if _is_untrusted(error):  # no retry: the certificate stays untrusted
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
            else f"{text}, {download.so_far} received"
        )
    return Transient(text, path=name, operation=operation)


def _is_untrusted(error: BaseException) -> bool:
    import ssl

    return isinstance(error, (ssl.SSLCertVerificationError, UnreadableCertificates))
