"""The connections of one store in the cloud: one set per event loop, limits that all stores of a bucket share.

A set is made at the first request on a loop and closed on that loop: by the store's `aclose`, when the engine shuts
down, or when the store is no longer referenced.

Buckets that nobody reads from any more stay connected for a moment (`keep_connected`): who opens a table, reads and
drops it, again and again, connects once. Of each bucket the store that was dropped last is kept, of at most
`KEPT_MAX` buckets, and for no longer than its idle connections would be. Only what the engine's loop carries is kept,
and on that loop.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic

from lance_io import runtime
from lance_io.store.cloud.loop_clients import Clients
from lance_io.store.forking import never_finalize
from lance_io.store.policies.hedge import Hedging, Watch
from lance_io.store.policies.logical_read import Sending
from lance_io.store.policies.throttle import AdaptiveLimit, Gate, Rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.store.cloud.cloud_store import CloudStore
    from lance_io.store.http.gets import HttpGets
    from lance_io.store.policies.transport import GetTransport, TogetherTransport
    from lance_io.store.profile import StoreProfile

KEPT_S: Final = 15.0
KEPT_MAX: Final = 16

_limits: weakref.WeakValueDictionary[tuple[str, str], AdaptiveLimit] = weakref.WeakValueDictionary()

_rates: weakref.WeakValueDictionary[tuple[str, int], Rate] = weakref.WeakValueDictionary()

_hedgings: weakref.WeakValueDictionary[tuple[str, int], Hedging] = weakref.WeakValueDictionary()

_kept: OrderedDict[str, tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle]] = OrderedDict()  # the handle holds it


class Connections(Generic[Clients]):
    """Clients, transport and gates of one store on the running event loop.

    state  clients that the store needs, which `user` leaves at the end
    own    our own HTTP client
    gets   what sends GETs where it does not
    """

    def __init__(
        self, store: CloudStore[Clients], state: Clients, user: object, own: HttpGets | None, gets: GetTransport | None
    ) -> None:
        options, identity, profile = store.options, store.identity, store.profile
        transport = own or gets
        assert transport is not None
        self.clock = asyncio.get_running_loop().time
        self.state = state
        self._user = user
        self.own = own
        self.gets: GetTransport = transport
        rate = _rate_of(identity, profile)
        self.gates = {
            name: Gate(_limit_of(identity, name, profile), self.clock, rate) for name in ("read", "list", "write")
        }
        self.sending = Sending(
            self.gets,
            self.gates["read"],
            Watch(_hedging_of(identity, profile)),
            store.stats,
            options.bucket,
            options.retry,
            options.download_retries,
            _range_gets(own),
            state.credentials,
        )
        self._forget = runtime.on_engine_close(self._close_all) if runtime.on_engine_thread() else None

    async def close(self) -> None:
        """Close everything; runs on the loop that it belongs to."""
        if self._forget is not None:
            self._forget()
        await self._close_all()

    def detach(self) -> None:
        """The loop is closed already: let go without a word."""
        if self.own is not None:
            self.own.detach()
        self.state.detach()

    async def _close_all(self) -> None:
        try:
            await self.gets.close()
        finally:
            await self.state.leave(self._user)


def _range_gets(own: HttpGets | None) -> Callable[..., TogetherTransport] | None:
    """How our own client sends GETs of ranges."""
    if own is None:
        return None
    from lance_io.store.http.range_get import RangeGets

    return partial(RangeGets, own)


def _limit_of(identity: str, category: str, profile: StoreProfile) -> AdaptiveLimit:
    """The limit that all stores of one bucket share."""
    limit = _limits.get((identity, category))
    if limit is None:
        limit = _limits[identity, category] = AdaptiveLimit(profile.requests_max)
    return limit


def _rate_of(identity: str, profile: StoreProfile) -> Rate | None:
    """The speed limit that all stores of one bucket share, if it was given one."""
    per_s = profile.max_requests_per_second
    if not per_s:
        return None
    rate = _rates.get((identity, per_s))
    if rate is None:
        rate = _rates[identity, per_s] = Rate(per_s)
    return rate


def _hedging_of(identity: str, profile: StoreProfile) -> Hedging:
    """What all stores of one bucket know of its latency."""
    hedging = _hedgings.get((identity, profile.hedge_percent))
    if hedging is None:
        hedging = _hedgings[identity, profile.hedge_percent] = Hedging(
            profile.hedge_percent, _limit_of(identity, "read", profile).pace
        )
    return hedging


def release(loops: dict[asyncio.AbstractEventLoop, Connections[Any]]) -> None:
    """The store is gone: close its connections on their loops, where those still run."""
    for loop, found in loops.items():
        if not runtime.close_soon(loop, found.close):
            found.detach()


def keep_connected(store: CloudStore[Any]) -> None:
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


def _end(identity: str, _: CloudStore[Any]) -> None:
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
