"""Asynchronous faces behind the calls of their synchronous twins, so that one table of calls is made of both.

Nothing here loads a library, `asyncio` included, before something is awaited.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable

TWINS = {
    "AsyncDataset": "LanceDataset",
    "AsyncFragment": "LanceFragment",
    "AsyncScanner": "LanceScanner",
    "AsyncStats": "LanceStats",
    "AsyncDatasetDelta": "DatasetDelta",
    "AsyncDatasetOptimizer": "DatasetOptimizer",
    "AsyncMergeInsertBuilder": "MergeInsertBuilder",
    "AsyncSqlQueryBuilder": "SqlQueryBuilder",
    "AsyncSqlQuery": "SqlQuery",
}
OTHERS = ("AsyncBlobFile", "AsyncFragmentSession")  # of which objects come from these

_loop: AbstractEventLoop | None = None


def wait_for(answer: Awaitable[Any]) -> Any:
    """What is awaited, on the one loop of this process."""
    global _loop
    if _loop is None:
        _loop = import_module("asyncio").new_event_loop()

    async def awaited() -> Any:
        return await answer

    return _loop.run_until_complete(awaited())


class Awaited:
    """An object whose members are those of `face`, awaited."""

    def __init__(self, face: Any) -> None:
        self._face = face

    def __getattr__(self, name: str) -> Any:
        return waited(getattr(self._face, name))

    def __repr__(self) -> str:
        return repr(self._face)


class AwaitedLibrary:
    """`lance_io`, whose functions and classes for tables are the asynchronous ones."""

    def __getattr__(self, name: str) -> Any:
        library = sys.modules["lance_io"]
        if name == "LanceDataset":
            return Awaited(library.AsyncDataset)
        return waited(library.AsyncDataset.write) if name == "write_dataset" else getattr(library, name)


def waited(value: Any) -> Any:
    """A value without anything that is to be awaited."""
    if hasattr(value, "__await__"):
        return waited(wait_for(value))
    if hasattr(value, "__anext__"):
        return iter(wait_for(_listed(value)))
    if type(value).__name__ in (*TWINS, *OTHERS):
        return Awaited(value)
    if type(value) is list:
        return [waited(one) for one in value]
    if type(value) is dict:
        return {name: waited(one) for name, one in value.items()}
    if type(value).__name__ in ("function", "method"):
        return lambda *given, **options: waited(value(*map(bare, given), **options))
    return value


def bare(value: Any) -> Any:
    """The asynchronous face itself, as an argument."""
    return value._face if isinstance(value, Awaited) else value


async def _listed(items: Any) -> list[Any]:
    return [one async for one in items]
