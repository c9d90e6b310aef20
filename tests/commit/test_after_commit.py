"""What follows a commit and fails, by errors of any class: the version is there, and its writer is told so."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import AccessDenied
from lance_io.table.manifest.paths import HINT_NAME
from lance_io.testing.wrap import Request, WrappedStore
from tests.simulate.world import URI, World, numbers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.store.api import Capabilities, ObjectMeta

ROWS = pa.table({"a": [1, 2, 3]})
CLEANS = {"interval": 1, "older_than_seconds": 0}
ERRORS: list[Exception] = [
    OSError(5, "scripted: the disk failed"),
    MemoryError("scripted: there is no room for it"),
    RuntimeError("scripted: it cannot be"),
    AccessDenied("scripted: not allowed"),
]


def is_of_cleanup(request: Request) -> bool:
    """Requests that no append makes."""
    return request.operation == "delete" or "/.cleanup-" in request.key or request.key.endswith("/_refs/tags/")


class FailingStore(WrappedStore):
    """Raises an error for the requests that a test chooses, or waits there.

    failed  what was asked then
    """

    def __init__(self, inner: Any, error: Exception | None, fails: Callable[[Request], bool]) -> None:
        super().__init__(inner)
        self.error, self.fails = error, fails
        self.failed: list[Request] = []
        self.reached = Future[None]()

    async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        """Fail, wait, or pass on."""
        if not self.fails(request):
            return await send()
        self.failed.append(request)
        if self.error is not None:
            raise self.error
        self.reached.set_result(None)
        return await asyncio.Event().wait()


class Unordered(FailingStore):
    """The same where listings have no order, so that a hint says which version is the newest."""

    @property
    def capabilities(self) -> Capabilities:
        """All of the inner store's but the order."""
        return replace(self.inner.capabilities, ordered_list=False)


def cleaning_world() -> World:
    """A table of two versions that each commit cleans up."""
    world = World()
    lance_io.write_dataset(ROWS, URI, session=world.session(), auto_cleanup_options=CLEANS)
    world.open().insert(ROWS)
    return world


def check_appended(world: World, caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    assert numbers(world.open()) == sorted([1, 2, 3] * 3)
    (told,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert f"version 3 is committed, but the cleanup after it failed: {type(error).__name__}: " in told.message
    assert "scripted" in told.message


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_cleanup_that_fails_leaves_its_commit(face: str, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    world = cleaning_world()
    store = FailingStore(world.place.store, error, is_of_cleanup)
    session = world.session(store)

    async def append() -> None:
        table = await lance_io.AsyncDataset.open(URI, session=session)
        await table.insert(ROWS)
        assert table.version == 3

    if face == "async":
        asyncio.run(append())
    else:
        table = lance_io.dataset(URI, session=session)
        table.insert(ROWS)
        assert table.version == 3
    assert store.failed
    check_appended(world, caplog, error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_so_does_one_in_the_thread_of_its_caller(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = cleaning_world()
    store: Any = world.place.store
    table, list_sync = world.open(), store.list_sync

    def fail(prefix: str, *asked: Any) -> list[ObjectMeta]:
        if is_of_cleanup(Request("list", prefix)):
            raise error
        found: list[ObjectMeta] = list_sync(prefix, *asked)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(store, "list_sync", fail)
        table.insert(ROWS)
        assert table.version == 3
    check_appended(world, caplog, error)


AFTERWARDS: dict[str, tuple[bool, Callable[[Request], bool]]] = {
    "the pin of a restored version is removed": (False, lambda one: one.operation == "delete" and "-pin-" in one.key),
    "the hint is written": (False, lambda one: one.operation == "put" and one.key.endswith(HINT_NAME)),
    "the manifest of a row is moved": (True, lambda one: one.operation == "put" and one.key.endswith(".manifest")),
    "a staged manifest is removed": (True, lambda one: one.operation == "delete" and ".manifest-" in one.key),
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", AFTERWARDS)
def test_other_steps_behind_a_commit_may_fail(step: str, error: Exception) -> None:
    database, fails = AFTERWARDS[step]
    world = World(rows={} if database else None)
    lance_io.write_dataset(ROWS, URI, session=world.session())
    world.open().insert(ROWS)
    store = Unordered(world.place.store, error, fails)
    table = lance_io.dataset(URI, 1, session=world.session(store))
    table.restore()
    assert store.failed
    assert world.newest() == (3, [1, 2, 3])


def test_a_cleanup_that_is_cancelled_says_so() -> None:
    world = cleaning_world()

    async def cancel() -> None:
        store = FailingStore(world.place.store, None, is_of_cleanup)
        table = await lance_io.AsyncDataset.open(URI, session=world.session(store))
        append = asyncio.ensure_future(table.insert(ROWS))
        await asyncio.wrap_future(store.reached)
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append

    asyncio.run(cancel())
    assert numbers(world.open()) == sorted([1, 2, 3] * 3)
