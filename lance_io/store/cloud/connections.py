"""Connections of one cloud store: one set per event loop, with limits shared by all stores of a bucket.

A set is created at the first request on a loop and closed on that loop: by the store's `aclose`, when the engine shuts
down, or when the store is no longer referenced.

Unused buckets stay connected briefly (`keep_connected`), so that a program that repeatedly opens, reads and drops a
table connects once. The last dropped store of each bucket is kept, for at most `KEPT_MAX` buckets and no longer than
idle connections are. Only stores on the engine's loop are kept, on that loop.
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
    from lance_io.store.policies.transport import BatchTransport, GetTransport
    from lance_io.store.profile import StoreProfile

KEPT_S: Final = 15.0
KEPT_MAX: Final = 16

_limits: weakref.WeakValueDictionary[tuple[str, str], AdaptiveLimit] = weakref.WeakValueDictionary()

_rates: weakref.WeakValueDictionary[tuple[str, int], Rate] = weakref.WeakValueDictionary()

_hedgings: weakref.WeakValueDictionary[tuple[str, int], Hedging] = weakref.WeakValueDictionary()

_kept: OrderedDict[str, tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle]] = OrderedDict()  # handles hold stores


class Connections(Generic[Clients]):
    """Clients, transport and gates of one store on the running event loop.

    state      the store's clients; `user` leaves them on `close`
    http_gets  our own HTTP client; None for another transport
    gets       another transport for GETs, used if `http_gets` is None
    """

    def __init__(
        self,
        store: CloudStore[Clients],
        state: Clients,
        user: object,
        http_gets: HttpGets | None,
        gets: GetTransport | None,
    ) -> None:
        options, identity, profile = store.options, store.identity, store.profile
        transport = http_gets or gets
        assert transport is not None
        self.clock = asyncio.get_running_loop().time
        self.state = state
        self._user = user
        self.http_gets = http_gets
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
            _range_gets(http_gets),
            state.credentials,
        )
        self._forget = runtime.on_engine_close(self._close_all) if runtime.on_engine_thread() else None

    async def close(self) -> None:
        """Close everything; call it on the loop of these connections."""
        if self._forget is not None:
            self._forget()
        await self._close_all()

    def detach(self) -> None:
        """Release everything of a loop that is already closed."""
        if self.http_gets is not None:
            self.http_gets.detach()
        self.state.detach()

    async def _close_all(self) -> None:
        try:
            await self.gets.close()
        finally:
            await self.state.leave(self._user)


def _range_gets(http_gets: HttpGets | None) -> Callable[..., BatchTransport] | None:
    """The fast path of our own client for GETs of ranges."""
    if http_gets is None:
        return None
    from lance_io.store.http.range_get import RangeGets

    return partial(RangeGets, http_gets)


def _limit_of(identity: str, category: str, profile: StoreProfile) -> AdaptiveLimit:
    """The concurrency limit shared by all stores of one bucket."""
    limit = _limits.get((identity, category))
    if limit is None:
        limit = _limits[identity, category] = AdaptiveLimit(profile.requests_max)
    return limit


def _rate_of(identity: str, profile: StoreProfile) -> Rate | None:
    """The request rate limit shared by all stores of one bucket; None without a limit."""
    per_s = profile.max_requests_per_second
    if not per_s:
        return None
    rate = _rates.get((identity, per_s))
    if rate is None:
        rate = _rates[identity, per_s] = Rate(per_s)
    return rate


def _hedging_of(identity: str, profile: StoreProfile) -> Hedging:
    """The latency statistics shared by all stores of one bucket."""
    hedging = _hedgings.get((identity, profile.hedge_percent))
    if hedging is None:
        hedging = _hedgings[identity, profile.hedge_percent] = Hedging(
            profile.hedge_percent, _limit_of(identity, "read", profile).pace
        )
    return hedging


def release(loops: dict[asyncio.AbstractEventLoop, Connections[Any]]) -> None:
    """Close the connections of a finalized store on their loops, as far as those still run."""
    for loop, connections in loops.items():
        if not runtime.close_soon(loop, connections.close):
            connections.detach()


def keep_connected(store: CloudStore[Any]) -> None:
    """Keep a store alive for `KEPT_S`."""
    if not runtime.on_engine_thread():
        return
    _drop_kept(store.identity)
    for identity, (loop, _) in list(_kept.items()):
        if loop.is_closed():
            _drop_kept(identity)
    while len(_kept) >= KEPT_MAX:
        _drop_kept(next(iter(_kept)))
    loop = asyncio.get_running_loop()
    _kept[store.identity] = loop, loop.call_later(KEPT_S, _on_timer, store.identity, store)


def _on_timer(identity: str, _: CloudStore[Any]) -> None:
    _drop_kept(identity)


def _drop_kept(identity: str) -> None:
    entry = _kept.pop(identity, None)
    if entry is not None:
        entry[1].cancel()


def _forget_all() -> None:
    """In a forked child: drop the kept stores, which belong to the parent."""
    never_finalize(dict(_kept))
    _kept.clear()


os.register_at_fork(after_in_child=_forget_all)
