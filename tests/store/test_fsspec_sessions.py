"""Sessions of fsspec's libraries: closed when the calls of their last user are collected, without its help."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from typing import Any

import aiohttp
import pytest
from fsspec.implementations.http import HTTPFileSystem

from lance_io.errors import LanceError
from lance_io.store.filesystem.resolve import open_filesystem
from tests.http_faults import FaultServer, serve, status

CONTENT = b"content"


@pytest.mark.parametrize("fails", [False, True])
async def test_sessions_are_closed_with_their_last_user(fails: bool) -> None:
    sessions: list[aiohttp.ClientSession] = []
    ended = asyncio.Event()

    class Connector(aiohttp.TCPConnector):
        def close(self, **how: Any) -> Any:
            ended.set()
            return super().close(**how)

    async def opened(**_: Any) -> aiohttp.ClientSession:
        sessions.append(aiohttp.ClientSession(connector=Connector()))
        return sessions[-1]

    async def read(where: str) -> None:
        store = open_filesystem(HTTPFileSystem(get_client=opened, skip_instance_cache=True), {})
        if fails:
            with pytest.raises(LanceError):
                await store.get(where)
        else:
            assert bytes((await store.get(where))[0]) == CONTENT

    async with FaultServer(CONTENT, [status(403, "No") if fails else serve] * 4) as server:
        await read(f"{server.endpoint}/key")
        (session,) = sessions
        assert not session.closed
        gc.collect()
        await ended.wait()
        assert session.closed


def test_sessions_of_a_loop_that_has_ended_are_left_alone() -> None:
    calls: list[Any] = []

    async def read() -> None:
        async with FaultServer(CONTENT) as server:
            store = open_filesystem(HTTPFileSystem(skip_instance_cache=True), {})
            assert bytes((await store.get(f"{server.endpoint}/key"))[0]) == CONTENT
            calls.append(store)
            await store.aclose()
            assert bytes((await store.get(f"{server.endpoint}/key"))[0]) == CONTENT
            await store.aclose()

    asyncio.run(read())
    calls.clear()
    gc.collect()  # raises nothing, which would fail this test as unraisable


REFUSED = """
import sys, lance_io
kept = []
try:
    lance_io.dataset("http://127.0.0.1:9/t.lance")
except lance_io.errors.LanceError as error:
    kept.append(error)
if sys.argv[1] != "kept":
    kept.clear()
if sys.argv[1] == "collected":
    import gc
    gc.collect()
"""


@pytest.mark.parametrize("what", ["kept", "dropped", "collected"])
def test_a_program_that_ends_leaves_no_session_open(what: str) -> None:
    """Whatever is left of what failed to open a table."""
    done = subprocess.run([sys.executable, "-c", REFUSED, what], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
