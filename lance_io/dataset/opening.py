"""`Opening`: a coroutine that opens an object. `await` returns the object, `async with` also closes it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType


class Closable(Protocol):
    """An object with `aclose`."""

    async def aclose(self) -> None:
        """Close the object."""


T = TypeVar("T", bound=Closable)


class Opening(Coroutine[Any, Any, T]):
    """A coroutine that opens an object; `async with` works as well.

    Event loops treat it like a coroutine of `async def`: `asyncio.run` and tasks accept it. Before it runs,
    it has created nothing. So an `Opening` that never runs needs no closing, and Python does not warn of it.
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
        """Run up to the next suspension. Event loops call this.

        Args:
            value: Value for the suspended expression.
        """
        return self._begin().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error at the suspension. Event loops call this.

        Args:
            error: The error.
        """
        return self._begin().throw(*error)

    def close(self) -> None:
        """Drop the coroutine."""
        self._begin().close()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.aclose()
