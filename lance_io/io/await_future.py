"""Waiting on a loop for work that another thread or loop has under way, without taking part in how it ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from lance_io.runtime import set_done

if TYPE_CHECKING:
    from concurrent.futures import Future


async def wait_until_done(future: Future[Any]) -> None:
    """Return when `future` is done, with whatever result or error; that is for the caller to look at.

    Cancelling this leaves the future alone, and an error that it ends with later is nobody's unseen one.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(partial(_wake, loop, done))
    await done


def _wake(loop: asyncio.AbstractEventLoop, done: asyncio.Future[None], _: Future[Any]) -> None:
    with suppress(RuntimeError):  # the loop has been closed: nobody waits there any more
        loop.call_soon_threadsafe(set_done, done)
