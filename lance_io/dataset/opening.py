"""What opening something from a coroutine returns: `await` gives it, `async with` closes it at the end as well."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType


class Closable(Protocol):
    """What is closed by `aclose`."""

    async def aclose(self) -> None:
        """Close it."""


T = TypeVar("T", bound=Closable)


class Opening(Coroutine[Any, Any, T]):
    """A coroutine that gives what it opens, to be entered by `async with` as well.

    To the event loop it is a coroutine as those of `async def` are: `asyncio.run` and tasks take it. But nothing exists
    before it is begun, so that one that is left alone needs no closing and warns of nothing.
    """

    def __init__(self, open_it: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._open = open_it
        self._running: Coroutine[Any, Any, T] | None = None
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    def _begin(self) -> Coroutine[Any, Any, T]:
        if self._running is None:
            self._running = self._open()
        return self._running

    def send(self, value: Any, /) -> Any:
        """Run it up to where it waits; for event loops, as the two below."""
        return self._begin().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where it waits."""
        return self._begin().throw(*error)

    def close(self) -> None:
        """Give it up."""
        self._begin().close()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.aclose()
