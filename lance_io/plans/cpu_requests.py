"""What plans ask of the CPU: work that may run in another thread, beside whatever the plan does meanwhile.

Results are asked for in the order in which the work was begun, so that what a plan writes does not depend on how fast
the work was done.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from lance_io.limits import KIB
from lance_io.records import dataclass
from lance_io.runtime import cpu_count, cpu_pool, in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
INLINE_WORK_BYTES_MAX: Final = 128 * KIB  # encoding less takes about as long as handing it to another thread


@dataclass(frozen=True, slots=True, eq=False)
class Done(Generic[T]):
    """What a future is where the work was done at once."""

    value: T

    def result(self) -> T:
        """The result of the work."""
        return self.value

    def cancel(self) -> None:
        """It is done."""


@dataclass(frozen=True, slots=True, eq=False)
class Begin(Generic[T]):
    """Work to be done in any thread; answered by what `Result` takes.

    num_bytes  what it touches, about: little is done at once; None for much
    """

    work: Callable[[], T]
    num_bytes: int | None = None

    def answer_sync(self) -> Future[T] | Done[T]:
        """See `Request`."""
        return Done(self.work()) if self._is_little or cpu_count() == 1 else cpu_pool().submit(self.work)

    async def answer_async(self) -> Future[T] | Done[T]:
        """See `Request`."""
        return Done(self.work()) if self._is_little else cpu_pool().submit(self.work)

    @property
    def _is_little(self) -> bool:
        return self.num_bytes is not None and self.num_bytes <= INLINE_WORK_BYTES_MAX


@dataclass(frozen=True, slots=True, eq=False)
class Result(Generic[T]):
    """The result of work that was begun, or its error."""

    begun: Future[T] | Done[T]

    def answer_sync(self) -> T:
        """See `Request`."""
        return self.begun.result()

    async def answer_async(self) -> T:
        """See `Request`."""
        return await asyncio.wrap_future(self.begun) if isinstance(self.begun, Future) else self.begun.value


@dataclass(frozen=True, slots=True, eq=False)
class Compute(Generic[T]):
    """Work whose result is needed next: a loop has it done elsewhere, if it is much.

    num_bytes  gives what it touches, about
    """

    work: Callable[[], T]
    num_bytes: Callable[[], int]

    def answer_sync(self) -> T:
        """See `Request`."""
        return self.work()

    async def answer_async(self) -> T:
        """See `Request`."""
        if self.num_bytes() <= INLINE_WORK_BYTES_MAX:
            return self.work()
        return await asyncio.get_running_loop().run_in_executor(cpu_pool(), self.work)


@dataclass(frozen=True, slots=True, eq=False)
class Call(Generic[T]):
    """Something that may wait or take long, such as a function of the caller's: never done on a loop."""

    work: Callable[[], T]

    def answer_sync(self) -> T:
        """See `Request`."""
        return self.work()

    async def answer_async(self) -> T:
        """See `Request`."""
        return await in_thread(self.work)
