"""The face of the scheduler: files to submit ranges to, and handles of what is to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io._kernels import measure_ranges
from lance_io.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lance_io.io.budget import Priority
    from lance_io.io.dispatch import Dispatcher
    from lance_io.io.reads import Merging, Request
    from lance_io.io.scheduler import ReadScheduler
    from lance_io.spans import Ranges


class FileReads:
    """One object, as a scheduler reads it; `ReadScheduler.file` makes it."""

    __slots__ = ("_merging", "_prefix", "_scheduler", "key", "size_bytes")

    def __init__(
        self, scheduler: ReadScheduler, key: str, size_bytes: int | None, merging: Merging, prefix: Priority
    ) -> None:
        self._scheduler = scheduler
        self._merging = merging
        self._prefix = prefix
        self.key = key
        self.size_bytes = size_bytes

    def submit(self, wanted: Ranges, priority: int = 0) -> Handle:
        """Ask for ranges without waiting.

        wanted    byte ranges of the object in any order; `purpose` "metadata" goes ahead of everything else
        priority  usually the first row that needs them: smaller is more urgent

        Raises `FormatError` for a range that is none or ends behind the file.
        """
        num_bytes = check_ranges(wanted, self.size_bytes, self.key)
        return self._scheduler._submit(self.key, wanted, num_bytes, self._merging, (*self._prefix, priority))

    async def suffix(self, num_bytes: int) -> tuple[Any, int, str | None]:
        """The last `num_bytes` of the object, its size in bytes, its etag; see `ReadScheduler.suffix`."""
        return await self._scheduler.suffix(self.key, num_bytes)


class Handle:
    """An answer to come. `await handle` gives it once, as `Fetched` in the order of the ranges asked for.

    Awaiting demands it: never await, gather or wrap in a task before its data is the next thing needed. The first
    error of any of its reads is raised. Cancelling the awaiting task, `cancel`, or dropping the handle un-awaited
    gives its bytes back and cancels what nobody else needs.
    """

    __slots__ = ("__weakref__", "_dispatcher", "_request")

    def __init__(self, dispatcher: Dispatcher, request: Request) -> None:
        self._dispatcher = dispatcher
        self._request = request

    @property
    def done(self) -> bool:
        """True when awaiting would not wait: the answer is there, or an error."""
        return self._request.ended

    def __await__(self) -> Generator[Any, None, Any]:
        request = self._request
        try:
            if not request.ended:
                self._dispatcher.demand(request)
                yield from request.waiting()
            if request.error is not None:
                raise request.error
            if request.answer is None:
                raise RuntimeError("a read's handle gives its answer once, and it has been taken")
            answer, request.answer = request.answer, None
            return answer
        finally:
            self._dispatcher.leave(request)

    def demand(self) -> None:
        """Say that this is the next thing needed, as awaiting does, without waiting."""
        if not self._request.ended:
            self._dispatcher.demand(self._request)

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call this in a turn of the loop when awaiting would no longer wait."""
        if self._request.ended:
            self._dispatcher.loop.call_soon(callback)
        else:
            self._request.waiting().add_done_callback(lambda _: callback())

    async def arrived(self) -> None:
        """Wait until the answer is there, or an error, without demanding it: that is for awaiting the handle."""
        if not self._request.ended:
            await self._request.waiting()

    def cancel(self) -> None:
        """Give the request up; whoever awaits it, now or later, gets a `RuntimeError`. Harmless once it was taken."""
        if not self._request.left:
            self._dispatcher.fail(self._request, RuntimeError("this read was cancelled"))

    close = cancel

    def __del__(self) -> None:
        if not self._request.left:
            self._dispatcher.dropped(self._request)


def check_ranges(wanted: Ranges, size_bytes: int | None, path: str) -> int:
    """The sum of the lengths; `FormatError` unless every range has `0 <= start <= end <= size_bytes` (None: any)."""
    num_bytes, _, _, bad = measure_ranges(wanted.starts, wanted.ends, size_bytes)
    if bad is None:
        return num_bytes
    start, end = int(wanted.starts[bad]), int(wanted.ends[bad])
    if 0 <= start <= end:
        raise FormatError(
            f"expected bytes {start} to {end}, but the file has {size_bytes}; it is damaged or cut short", path=path
        )
    raise FormatError(f"expected a range of bytes, found {start} to {end}; the file is damaged", path=path)
