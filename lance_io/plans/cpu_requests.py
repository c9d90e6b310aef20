"""Requests for CPU work, which may run in other threads while the plan goes on.

Plans take results in the order in which they began the work, so that the files they write do not depend on timing.
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
INLINE_WORK_BYTES_MAX: Final = 128 * KIB  # encoding less takes about as long as passing it to another thread


@dataclass(frozen=True, slots=True, eq=False)
class Done(Generic[T]):
    """A finished future, for work that was done inline."""

    value: T

    def result(self) -> T:
        """The result of the work."""
        return self.value

    def cancel(self) -> None:
        """Do nothing: the work is done."""


@dataclass(frozen=True, slots=True, eq=False)
class Begin(Generic[T]):
    """Begin work in any thread; answered by a future for `Result`.

    num_bytes  approximate bytes that it processes: small work is done inline; None for large work
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
    """The result of work from `Begin`, or its error."""

    begun: Future[T] | Done[T]

    def answer_sync(self) -> T:
        """See `Request`."""
        return self.begun.result()

    async def answer_async(self) -> T:
        """See `Request`."""
        return await asyncio.wrap_future(self.begun) if isinstance(self.begun, Future) else self.begun.value


@dataclass(frozen=True, slots=True, eq=False)
class Compute(Generic[T]):
    """Work whose result is needed next. On a loop large work runs in the CPU pool.

    num_bytes  returns the approximate bytes that it processes
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
    """A call that may block or take long, such as a user's function: never run on a loop."""

    work: Callable[[], T]

    def answer_sync(self) -> T:
        """See `Request`."""
        return self.work()

    async def answer_async(self) -> T:
        """See `Request`."""
        return await in_thread(self.work)
