"""A store that fails by script: "the third write is applied, but its answer is lost".

A script maps request numbers to faults, so a failing test names its case; `count_requests` returns the number of
requests to enumerate. `counts` selects the numbered requests (writes only, by default). The caller of a create cannot
distinguish a lost request from a lost answer, as on a real store: both raise `OutcomeUnknown`.
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
    """A fault of a request; the value describes it."""

    REFUSED = "it never arrives"
    LOST_ANSWER = "it is applied, the answer is lost"
    CRASH = "it is applied, then this process is gone"
    SHORT_BODY = "the answer has half of its bytes"
    SLOW = "it takes a minute"
    THROTTLED = "503: fewer requests, please"
    STALE_LIST = "the listing omits objects written through this store"


SLOW_S = 60.0
FAULTS_OF_WRITES = (Fault.REFUSED, Fault.LOST_ANSWER, Fault.CRASH, Fault.THROTTLED)


class Crashed(BaseException):
    """The process that used the store has crashed; a `BaseException`, so that error handlers do not catch it."""


def is_write(request: Request) -> bool:
    """Whether a request is a write: the default of `counts`.

    Args:
        request: The request.
    """
    return request.is_write


class FaultyStore(WrappedStore):
    """A store that injects faults into counted requests, and forwards all others.

    Args:
        inner: The store that answers the requests.
        script: Fault of the n-th counted request, from 0.
        counts: Selects the counted requests.

    Attributes:
        seen: Counted requests so far.
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
        """Whether the process has crashed: every later request raises `Crashed`."""
        return self._crashed

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """See `WrappedStore.request`; injects the scripted fault.

        Raises:
            Crashed: During and after a `Fault.CRASH`.
            OutcomeUnknown: For a refused create, or one with a lost answer.
            Throttled: For `Fault.THROTTLED`.
            Transient: For other refused requests and lost answers.
        """
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
    """The error of a request; for a create the one of real stores, which cannot know whether it was applied."""
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
    """Number of counted requests of some work without faults.

    Args:
        store: The store that answers the requests.
        work: Called with the store to use.
        counts: Selects the counted requests.
    """
    counting = FaultyStore(store, counts=counts)
    await work(counting)
    return len(counting.seen)
