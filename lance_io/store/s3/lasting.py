"""Buckets that nobody reads from any more stay connected for a moment: who opens a table, reads and drops it, again and
again, connects once.

Of each bucket the store that was dropped last is kept, of at most `KEPT_MAX` buckets, and for no longer than its idle
connections would be. Only what the engine's loop carries is kept; all of this runs there.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from lance_io import runtime
from lance_io.store.forking import never_finalize

if TYPE_CHECKING:
    from lance_io.store.s3.bucket import S3Store

KEPT_S: Final = 15.0
KEPT_MAX: Final = 16

_kept: OrderedDict[str, tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle]] = OrderedDict()  # the handle holds it


def keep(store: S3Store) -> None:
    """Let a store live on for a moment."""
    if not runtime.on_engine_thread():
        return
    _let_go(store.identity)
    for identity, (loop, _) in list(_kept.items()):
        if loop.is_closed():
            _let_go(identity)
    while len(_kept) >= KEPT_MAX:
        _let_go(next(iter(_kept)))
    loop = asyncio.get_running_loop()
    _kept[store.identity] = loop, loop.call_later(KEPT_S, _end, store.identity, store)


def _end(identity: str, _: S3Store) -> None:
    _let_go(identity)


def _let_go(identity: str) -> None:
    found = _kept.pop(identity, None)
    if found is not None:
        found[1].cancel()


def _forget_all() -> None:
    """In a forked child: they are the parent's."""
    never_finalize(dict(_kept))
    _kept.clear()


os.register_at_fork(after_in_child=_forget_all)
