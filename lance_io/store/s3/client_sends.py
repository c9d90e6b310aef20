"""Counts the requests of aiobotocore's clients, which resend some themselves with another signature or address."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from lance_io.store.failures import StoreFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SendCounter:
    """Counts the requests of one call.

    on_resend  called for each request after the first
    num_sent   number of sent requests
    """

    def __init__(self, on_resend: Callable[[], None] | None) -> None:
        self.num_sent = 0
        self._on_resend = on_resend
        self._has_looked_up = False

    def add(self) -> None:
        """Count a request."""
        self.num_sent += 1
        if self.num_sent > 1 and self._on_resend is not None:
            self._on_resend()

    def note_bucket_lookup(self) -> None:
        """The client looks up the bucket's region after a redirect.

        Raises `StoreFailure` if that lookup is redirected, too: the client would repeat it forever.
        """
        if self._has_looked_up:
            raise StoreFailure("too many redirects of the store", operation="head")
        self._has_looked_up = True


_current: ContextVar[SendCounter | None] = ContextVar("lance_io.store.s3.sends", default=None)


def follow_sends(events: Any, service: str) -> None:
    """Count a client's requests to a service within `counted_sends`.

    events  of an aiobotocore client
    """
    events.register(f"before-send.{service}", _count_send)
    events.register(f"before-call.{service}.HeadBucket", _note_bucket_lookup)


@contextmanager
def counted_sends(on_resend: Callable[[], None] | None = None) -> Iterator[SendCounter]:
    """Count the requests of the call in the `with` block, see `SendCounter`."""
    sends = SendCounter(on_resend)
    token = _current.set(sends)
    try:
        yield sends
    finally:
        _current.reset(token)


def _count_send(**_: Any) -> None:
    sends = _current.get()
    if sends is not None:
        sends.add()


def _note_bucket_lookup(**_: Any) -> None:
    sends = _current.get()
    if sends is not None:
        sends.note_bucket_lookup()
