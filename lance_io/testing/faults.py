"""A store that fails by script: "the third write is applied, but its answer is lost".

A run is a mapping from request numbers to faults, so a failing test names its case; `count_requests` says how many
there are to enumerate. Which requests are numbered is up to `counts` (writes only, by default). Whether a create
never arrived or only its answer was lost looks the same to its caller, as on a real store: `OutcomeUnknown`.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lance_io.store.failures import OutcomeUnknown, Throttled, Transient
from lance_io.testing.wrap import Request, WrappedStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from lance_io.store.api import ObjectStore

T = TypeVar("T")


class Fault(Enum):
    """What happens to a request."""

    REFUSED = "it never arrives"
    LOST_ANSWER = "it is applied, the answer is lost"
    CRASH = "it is applied, then this process is gone"
    SHORT_BODY = "the answer has half of its bytes"
    SLOW = "it takes a minute"
    THROTTLED = "503: fewer requests, please"
    STALE_LIST = "the listing does not show what was written through this store"


SLOW_S = 60.0
FAULTS_OF_WRITES = (Fault.REFUSED, Fault.LOST_ANSWER, Fault.CRASH, Fault.THROTTLED)


class Crashed(BaseException):
    """The process that used the store is gone; nothing that handles errors shall handle this."""


def is_write(request: Request) -> bool:
    """The requests that are numbered unless the test says otherwise."""
    return request.is_write


class FaultyStore(WrappedStore):
    """Does to the n-th counted request (from 0) what `script[n]` says, and the right thing to all others.

    seen  the counted requests so far
    """

    def __init__(
        self,
        inner: ObjectStore,
        script: Mapping[int, Fault] | None = None,
        counts: Callable[[Request], bool] = is_write,
    ) -> None:
        super().__init__(inner)
        self._script = dict(script or {})
        self._counts = counts
        self._crashed = False
        self._written: set[str] = set()
        self.seen: list[Request] = []

    @property
    def is_crashed(self) -> bool:
        """Whether the process is gone."""
        return self._crashed

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """Carry out a request, or what the script says."""
        if self._crashed:
            raise Crashed(str(request))
        fault = None
        if self._counts(request):
            fault = self._script.get(len(self.seen))
            self.seen.append(request)
        match fault:
            case Fault.REFUSED:
                raise _failure(request, "scripted: the request was refused")
            case Fault.THROTTLED:
                raise _failure(request, "scripted: slow down", Throttled, status=503)
            case Fault.SLOW:
                await asyncio.sleep(SLOW_S)
        result = await send()
        if request.is_write:
            self._written.add(request.key)
        match fault:
            case Fault.LOST_ANSWER:
                raise _failure(request, "scripted: the answer was lost")
            case Fault.CRASH:
                self._crashed = True
                raise Crashed(str(request))
            case Fault.SHORT_BODY:
                return cast("T", _halved(result))
            case Fault.STALE_LIST if isinstance(result, list):
                return cast("T", [meta for meta in result if meta.key not in self._written])
        return result


def _failure(request: Request, message: str, kind: type[Transient] = Transient, status: int | None = None) -> Transient:
    """The error of a request; of a create the one that real stores raise: they cannot tell whether it was applied."""
    if request.operation == "put_create":
        kind = OutcomeUnknown
    return kind(message, path=request.key, operation=request.operation, status=status)


def _halved(result: Any) -> Any:
    """A result with half of its buffer."""
    if isinstance(result, tuple):
        return (_halved(result[0]), *result[1:])
    return memoryview(result)[: len(result) // 2]


async def count_requests(
    store: ObjectStore,
    work: Callable[[ObjectStore], Coroutine[Any, Any, Any]],
    counts: Callable[[Request], bool] = is_write,
) -> int:
    """How many counted requests a piece of work makes when nothing fails."""
    counting = FaultyStore(store, counts=counts)
    await work(counting)
    return len(counting.seen)
