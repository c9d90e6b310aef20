"""How often a client of aiobotocore's sends a request: it repeats some itself, signed or addressed in another way."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from lance_io.store.failures import StoreFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Sends:
    """Of one call.

    again  called for each request but the first
    times  requests that went out
    """

    def __init__(self, again: Callable[[], None] | None) -> None:
        self.times = 0
        self._again = again
        self._is_searching = False

    def add(self) -> None:
        """One more goes out."""
        self.times += 1
        if self.times > 1 and self._again is not None:
            self._again()

    def search(self) -> None:
        """The client asks where the bucket is, since the store sends it elsewhere. Raises `StoreFailure` if it does so
        about that question, too: the client would ask for ever.
        """
        if self._is_searching:
            raise StoreFailure("the store sends us elsewhere, again and again", operation="head")
        self._is_searching = True


_current: ContextVar[Sends | None] = ContextVar("lance_io.store.s3.sends", default=None)


def follow_sends(events: Any, service: str) -> None:
    """Count what a client sends to a service, for the call within which it does.

    events  of a client of aiobotocore's
    """
    events.register(f"before-send.{service}", _count)
    events.register(f"before-call.{service}.HeadBucket", _search)


@contextmanager
def counted_sends(again: Callable[[], None] | None = None) -> Iterator[Sends]:
    """Count the requests of the call within, see `Sends`."""
    sends = Sends(again)
    token = _current.set(sends)
    try:
        yield sends
    finally:
        _current.reset(token)


def _count(**_: Any) -> None:
    sends = _current.get()
    if sends is not None:
        sends.add()


def _search(**_: Any) -> None:
    sends = _current.get()
    if sends is not None:
        sends.search()
