"""Interface of the transports that send GETs: our own HTTP client, another library, or one in another language."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from lance_io.store.offers import StartedRead, WantedRange
    from lance_io.store.policies.download import Download


class Attempt(Protocol):
    """A request in flight."""

    def cancel(self) -> None:
        """Cancel it: nothing is written to its download any more. A no-op after its end."""


class GetTransport(Protocol):
    """Sends GETs, one at a time."""

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> Attempt:
        """Request the missing bytes of the download once, and pass it the answer.

        ended  called at the end: with None after an answer, else with an error of ours, `Transient` if a retry may
               help
        """

    async def close(self) -> None:
        """Close this transport's own connections; later requests open new ones."""


class BatchTransport(Protocol):
    """Sends many GETs of ranges in one call."""

    def begin(self, wanted: Sequence[WantedRange]) -> Sequence[StartedRead]:
        """Send the first requests, as many as need not wait; returns those in flight."""


class TaskAttempt:
    """An attempt that is a coroutine; the end of its task ends it."""

    def __init__(self, attempt: Coroutine[Any, Any, None], ended: Callable[[BaseException | None], None]) -> None:
        self._ended: Callable[[BaseException | None], None] | None = ended
        self._task = asyncio.ensure_future(attempt)
        self._task.add_done_callback(self._call_ended)

    def cancel(self) -> None:
        """See `Attempt`."""
        self._ended = None
        self._task.cancel()

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        ended, self._ended = self._ended, None
        if task.cancelled():
            error: BaseException | None = RuntimeError("the request was cancelled: its event loop is shutting down")
        else:
            error = task.exception()  # retrieved in any case: asyncio logs errors that are not
        if ended is not None:
            ended(error)
