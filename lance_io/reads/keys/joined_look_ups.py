"""Look-ups of keys that asynchronous callers make in one turn of their loop, joined to one look-up of all their keys.

    callers of a turn -> the keys of all, in one plan -> each caller's rows, or its error

Each caller waits for its own result. A caller that is cancelled leaves the others alone; the look-up is cancelled when
the last one has left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    import pyarrow as pa

    Results = Sequence[pa.Table | Exception]
    Run = Callable[[Sequence[Any]], Awaitable[Results]]

CALL_KEYS_MAX: Final = 64  # a call with more keys is a look-up of its own
TURN_KEYS_MAX: Final = 1024  # of a joined look-up, which holds the rows of all its callers


def may_join(keys: Any) -> bool:
    """Whether a call has so few keys that it joins others."""
    return hasattr(keys, "__len__") and not isinstance(keys, (str, bytes)) and 0 < len(keys) <= CALL_KEYS_MAX


async def join(turns: dict[Hashable, Turn], kind: Hashable, keys: Any, run: Run) -> pa.Table:
    """The rows of a caller's keys.

    turns  the look-ups that wait for the end of a turn
    kind   equal for look-ups that `run` can answer together
    run    looks up the keys of several callers, and returns the rows or the error of each
    """
    loop = asyncio.get_running_loop()
    turn = turns.get((loop, kind))
    if turn is None or turn.num_keys + len(keys) > TURN_KEYS_MAX:
        turn = turns[loop, kind] = Turn(run)
        loop.call_soon(_begin, turns, (loop, kind), turn)
    return await turn.wait(loop, keys)


def _begin(turns: dict[Hashable, Turn], slot: Hashable, turn: Turn) -> None:
    if turns.get(slot) is turn:
        del turns[slot]
    turn.begin()


class Turn:
    """The look-ups of one kind that wait for the end of a turn of their loop, or for their result.

    num_keys  of all callers
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._keys: list[Any] = []
        self._waiters: list[asyncio.Future[pa.Table]] = []
        self._num_waiting = 0
        self._task: asyncio.Task[None] | None = None
        self.num_keys = 0

    async def wait(self, loop: asyncio.AbstractEventLoop, keys: Any) -> pa.Table:
        """Add the keys of a caller, and wait for its rows."""
        waiter: asyncio.Future[pa.Table] = loop.create_future()
        self._keys.append(keys)
        self._waiters.append(waiter)
        self.num_keys += len(keys)
        self._num_waiting += 1
        try:
            return await waiter
        finally:
            self._num_waiting -= 1
            if not self._num_waiting and self._task is not None:
                self._task.cancel()  # without effect once it has ended

    def begin(self) -> None:
        """Look up the keys, unless all callers have left."""
        if self._num_waiting:
            self._task = asyncio.ensure_future(self._answer())

    async def _answer(self) -> None:
        try:
            results = await self._run(self._keys)
        except asyncio.CancelledError:
            for waiter in self._waiters:
                waiter.cancel()
            raise
        except Exception as error:
            results = [error] * len(self._waiters)
        for waiter, result in zip(self._waiters, results, strict=True):
            if waiter.done():  # its caller was cancelled
                continue
            if isinstance(result, Exception):
                waiter.set_exception(result)
            else:
                waiter.set_result(result)
