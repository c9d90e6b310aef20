"""What sends GETs, as those who decide see it: our own HTTP client, another library's, or one in another language."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from lance_io.store.offers import StartedRead, WantedRange
    from lance_io.store.policies.download import Download


class Attempt(Protocol):
    """A request that is under way."""

    def cancel(self) -> None:
        """Give it up: nothing is written to its download any more. Harmless when it is over."""


class GetTransport(Protocol):
    """Sends GETs, one at a time."""

    def start(self, download: Download, ended: Callable[[BaseException | None], None]) -> Attempt:
        """Ask once for what the download still misses and feed it the answer.

        ended  called when it is over: None for an answer, or an error of ours; `Transient` where another attempt may
               help
        """

    async def close(self) -> None:
        """Close the connections that are its own; what is asked for afterwards opens anew."""


class TogetherTransport(Protocol):
    """Sends many GETs of ranges in one go."""

    def begin(self, wanted: Sequence[WantedRange]) -> Sequence[StartedRead]:
        """Send as many of the first as need not wait; gives those that are under way."""


class TaskAttempt:
    """An attempt that is a coroutine: its task tells how it ended."""

    def __init__(self, attempt: Coroutine[Any, Any, None], ended: Callable[[BaseException | None], None]) -> None:
        self._ended: Callable[[BaseException | None], None] | None = ended
        self._task = asyncio.ensure_future(attempt)
        self._task.add_done_callback(self._tell)

    def cancel(self) -> None:
        """See `Attempt`."""
        self._ended = None
        self._task.cancel()

    def _tell(self, task: asyncio.Task[None]) -> None:
        ended, self._ended = self._ended, None
        if task.cancelled():
            error: BaseException | None = RuntimeError("the request was cancelled: its event loop is shutting down")
        else:
            error = task.exception()  # seen, also where nobody is left to hear of it
        if ended is not None:
            ended(error)
