"""Connection pool of one origin on one event loop, shared by all stores that read there.

    idle       last in, first out: surplus connections stay idle, expire and are closed
    waiting    requests, first in, first out; the pool opens one connection per waiting request, at most `OPENING_MAX`
               at a time
    the sweep  one timer for all deadlines and idle connections; it checks all of them periodically

If the server closes a reused connection while a request is on its way, the request is sent again over a new one. A
failed connect fails the waiting requests only if no other connection can serve them.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from lance_io.store.counters import CONNECTIONS
from lance_io.store.descriptors import count_sockets, is_out_of_descriptors, may_open_socket
from lance_io.store.forking import never_finalize
from lance_io.store.http.addresses import Addresses
from lance_io.store.http.connection import Connection, Scratch
from lance_io.store.http.proxy import open_tunnel
from lance_io.store.http.socket_group import IS_SUPPORTED, SocketGroup
from lance_io.store.http.tcp import Dial, TcpTransport, tcp_socket
from lance_io.store.http.tls import tls_context

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Sequence

    from lance_io.store.http.connection import KernelGet
    from lance_io.store.http.exchange import Exchange, Origin, Patience
    from lance_io.store.http.range_get import RangeGet

IDLE_S: Final = 15.0  # idle timeout, shorter than that of S3 (20 s)
IDLE_MAX: Final = 1024  # idle connections beyond this number are closed at once
OPENING_MAX: Final = 256  # a server refuses connections that arrive faster than it accepts them
OPENED_AT_ONCE_MAX: Final = 16  # takes a millisecond; answers that arrive meanwhile may free connections
AHEAD_MAX: Final = 16  # connections opened at a time before any request needs them
SWEEP_S: Final = 1.0  # sweep interval, or an eighth of the shortest `silence_s` if that is less
PAUSE_FIRST_S: Final = 0.1  # pause after a failed connect, doubled each time
PAUSE_MAX_S: Final = 5.0
CONNECT_S: Final = 5.0  # connect timeout of connections opened ahead


class OriginPool:
    """See the module's docstring; call every method on its loop."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.loop = asyncio.get_running_loop()
        self._num_users = 0
        self._maxima: dict[str, int] = {}  # connections, by bucket
        self._idle_s: float | None = None  # the shortest one of all users so far
        self._idle_max = IDLE_MAX
        self._addresses = Addresses(*origin.first_hop)
        self._scratch = Scratch()
        self._group: SocketGroup | None = None  # while there are plain connections
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._opening: set[asyncio.Task[None] | Dial] = set()
        self._waiting: deque[Exchange | RangeGet] = deque()
        self._resent: deque[Exchange | RangeGet] = deque()  # these wait for a new connection
        self._ahead = 0  # connections to keep open, needed or not
        self._pause_s = PAUSE_FIRST_S
        self._paused_until_s = 0.0
        self._begun_in_turn = 0  # connects started in this turn of the loop
        self._sweep_s = SWEEP_S
        self._sweeping: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._all_lost: asyncio.Future[None] | None = None
        CONNECTIONS.follow(self)

    def __repr__(self) -> str:
        where = f"{self.origin.host}:{self.origin.port}"
        return f"OriginPool({where!r}, open={len(self._open)}, idle={self.num_idle}, waiting={self.num_waiting})"

    @property
    def num_open(self) -> int:
        """Open connections, including idle ones."""
        return len(self._open)

    @property
    def num_idle(self) -> int:
        """Connections without a request."""
        return len(self._idle)

    @property
    def num_waiting(self) -> int:
        """Requests without a connection; may include cancelled ones."""
        return len(self._waiting) + len(self._resent)

    @property
    def connections_max(self) -> int:
        """Limit of connections."""
        return max(1, sum(self._maxima.values()))

    def join(self, bucket: str, connections_max: int, idle_s: float | None = None, idle_max: int | None = None) -> None:
        """Add a user, see `join_pool`."""
        if idle_s is not None:
            self._idle_s = idle_s if self._idle_s is None else min(idle_s, self._idle_s)
        if idle_max is not None:
            self._idle_max = min(idle_max, self._idle_max)
        self._num_users += 1
        self._maxima[bucket] = max(connections_max, self._maxima.get(bucket, 0))

    def leave(self) -> bool:
        """Remove a user; returns whether it was the last one."""
        self._num_users -= 1
        return self._num_users == 0

    # -- requests ----------------------------------------------------------------------------------------------------

    def send(self, exchange: Exchange | RangeGet, now_s: float) -> None:
        """Send a request as soon as a connection is free."""
        self.send_all([exchange], now_s)

    def send_all(self, exchanges: Sequence[Exchange | RangeGet], now_s: float) -> None:
        """Like `send` for several requests, which share one `Patience`."""
        if self._is_closed:
            for exchange in exchanges:
                self.loop.call_soon(exchange.end, ConnectionError("the connections of this store were closed"))
            return
        sweep_s = exchanges[0].patience.silence_s / 8
        if self._sweeping is None or sweep_s < self._sweep_s:
            self._sweep_by(min(SWEEP_S, sweep_s))
        idle = self._idle
        served: list[Connection] = []
        while idle and len(served) < len(exchanges):
            connection = idle.pop()
            if connection.is_open:
                served.append(connection)
        self._start(list(zip(served, exchanges, strict=False)), now_s)
        if len(served) < len(exchanges):
            self._waiting.extend(exchanges[len(served) :])
            self._open_more()

    def _start(self, carried: Sequence[tuple[Connection, Exchange | RangeGet]], now_s: float) -> None:
        """Send each request over its idle connection; one kernel call sends those that it supports."""
        kernel_gets: list[KernelGet] = []
        for connection, exchange in carried:
            get, slot = exchange.plain, connection.slot
            if get is None or slot < 0:
                connection.start(exchange, now_s)
            else:
                kernel_gets.append(connection.kernel_request(get, slot, now_s))
        if kernel_gets:
            assert self._group is not None
            self._group.send(kernel_gets, now_s)

    def resend(self, exchange: Exchange | RangeGet) -> None:
        """Send a request over a new connection after its own was closed before an answer."""
        if self._is_closed:
            exchange.end(ConnectionResetError("the server closed the connection"))
            return
        exchange.connection = None
        exchange.heard_s = self.loop.time()
        self._resent.append(exchange)
        self._open_more()

    def open_ahead(self, num_connections: int) -> None:
        """Open connections until there are `num_connections`, gradually; the idle timeout applies to them, too."""
        self._ahead = min(num_connections, self.connections_max)
        if self._sweeping is None:
            self._sweep_by(SWEEP_S)
        self._open_more()

    def on_group_empty(self) -> None:
        """The last plain connection is closed."""
        self._group = None

    # -- connections come and go ---------------------------------------------------------------------------------------

    def free(self, connection: Connection) -> None:
        """Reuse a connection whose answer is complete."""
        self.free_all([connection], self.loop.time())

    def free_all(self, connections: Sequence[Connection], now_s: float) -> None:
        """Like `free` for several connections."""
        waiting, carried = self._waiting, []
        for connection in connections:
            while waiting:
                exchange = waiting.popleft()
                if not exchange.is_over:
                    carried.append((connection, exchange))
                    break
            else:
                connection.idle_since_s = now_s
                if self._is_closed or len(self._open) > self.connections_max or len(self._idle) >= self._idle_max:
                    connection.close()
                else:
                    self._idle.append(connection)
        if carried:
            self._start(carried, now_s)

    def remove_idle(self, connection: Connection) -> None:
        """A connection is being closed."""
        if connection.exchange is None and connection in self._idle:
            self._idle.remove(connection)

    def lost(self, connection: Connection) -> None:
        """A connection is closed."""
        if connection not in self._open:
            return
        self.remove_idle(connection)
        self._open.remove(connection)
        count_sockets(-1)
        if self._all_lost is not None and not self._open and not self._all_lost.done():
            self._all_lost.set_result(None)
        if self._waiting or self._resent:
            self.loop.call_soon(self._open_more)

    def _open_more(self) -> None:
        """Open missing connections within all limits, some in a later turn of the loop."""
        if self._is_closed or self.loop.time() < self._paused_until_s:
            return
        opening = len(self._opening)
        wanted = self._num_missing()
        if wanted > opening:
            self._drop_cancelled()
            wanted = self._num_missing()
        for _ in range(wanted - opening):
            if self._begun_in_turn == OPENED_AT_ONCE_MAX:
                return
            if not may_open_socket() and (self._open or self._opening):  # at least one is needed
                return
            if not self._begun_in_turn:
                self.loop.call_soon(self._on_next_turn)
            self._begun_in_turn += 1
            count_sockets(1)
            self._begin_opening(self._connect_s())

    def _on_next_turn(self) -> None:
        self._begun_in_turn = 0
        self._open_more()

    def _num_missing(self) -> int:
        """How many connects should be in progress."""
        num_open = len(self._open)
        wanted = max(self.num_waiting, min(AHEAD_MAX, self._ahead - num_open))
        return min(wanted, OPENING_MAX, self.connections_max - num_open)

    def _drop_cancelled(self) -> None:
        self._waiting = deque(exchange for exchange in self._waiting if not exchange.is_over)
        self._resent = deque(exchange for exchange in self._resent if not exchange.is_over)

    def _connect_s(self) -> float:
        """Connect timeout of the first waiting request."""
        first: Patience | None = None
        for queue in (self._resent, self._waiting):
            if queue:
                first = queue[0].patience
        return CONNECT_S if first is None else first.connect_s

    def _begin_opening(self, connect_s: float) -> None:
        """Open a connection: by `Dial` (fast path) if an address is resolved, else by a task."""
        addresses = self._addresses
        address = addresses.next_resolved() if self.origin.is_plain else None
        if address is None:
            self._start_open_task(connect_s)
            return
        limit_s = connect_s if addresses.is_only(address) else connect_s / 2  # leaves time for the other addresses
        now_s = self.loop.time()
        done = partial(self._end_dial, now_s, now_s + connect_s)
        self._opening.add(Dial(self.loop, address, self.origin.first_hop[1], limit_s, done))

    def _start_open_task(self, connect_s: float) -> None:
        task = self.loop.create_task(self._open_any(connect_s))
        self._opening.add(task)
        task.add_done_callback(self._end_opening)

    def _end_dial(self, began_s: float, ends_s: float, dial: Dial, outcome: socket.socket | OSError) -> None:
        """The fast path has ended; on failure a task tries all addresses in the rest of the time."""
        self._opening.discard(dial)
        if not isinstance(outcome, OSError):
            self._add_socket(outcome, dial.address, began_s)
            self._opening_ended(None)
            return
        self._addresses.mark_unhealthy(dial.address)
        if is_out_of_descriptors(outcome) or self._addresses.is_only(dial.address):
            self._opening_ended(outcome)
        else:
            self._start_open_task(ends_s - self.loop.time())

    def _add_socket(self, sock: socket.socket, address: str, began_s: float) -> None:
        connection = Connection(self, self._scratch, address)
        if self._group is None and IS_SUPPORTED:
            self._group = SocketGroup(self.loop, self)
        TcpTransport(self.loop, sock, connection, self._group)
        self._add_open(connection, began_s)

    async def _open_any(self, connect_s: float) -> None:
        tls, proxy = self.origin.tls, self.origin.proxy
        async with asyncio.timeout(connect_s) as scope:
            context = None if tls is None else await tls_context(tls)
            proxy_context = None if proxy is None or proxy.tls is None else await tls_context(proxy.tls)
            addresses = await self._addresses.in_turn()
            for index, address in enumerate(addresses):
                is_last = index == len(addresses) - 1
                try:
                    async with asyncio.timeout(None if is_last else _half_of_rest(scope, self.loop)):
                        await self._open_at(address, context, proxy_context)
                    return
                except OSError as error:  # includes `TimeoutError`
                    self._addresses.mark_unhealthy(address)
                    if is_last or is_out_of_descriptors(error):
                        raise

    async def _open_at(
        self, address: str, context: ssl.SSLContext | None, proxy_context: ssl.SSLContext | None
    ) -> None:
        """Connect to an address of the first hop.

        context        of the connection to the origin; None for plain HTTP
        proxy_context  of the connection to the proxy; None for plain TCP, or no proxy
        """
        began_s = self.loop.time()
        if context is not None and self.origin.proxy is not None:
            connection = Connection(self, self._scratch, address)
            await open_tunnel(self.origin, connection, address, proxy_context, context)
            self._add_open(connection, began_s)
            return
        host, port = self.origin.first_hop
        encryption = context or proxy_context
        if encryption is not None:
            _, connection = await self.loop.create_connection(
                lambda: Connection(self, self._scratch, address), address, port, ssl=encryption, server_hostname=host
            )
            self._add_open(connection, began_s)
            return
        sock = tcp_socket(address)
        try:
            await self.loop.sock_connect(sock, (address, port))
        except BaseException:
            sock.close()
            raise
        self._add_socket(sock, address, began_s)

    def _add_open(self, connection: Connection, began_s: float) -> None:
        """Add a connection whose connect began at `began_s`; requests that need a new one come first."""
        CONNECTIONS.opened(self.loop.time() - began_s)
        count_sockets(1)
        self._open.add(connection)
        self._pause_s = PAUSE_FIRST_S
        while self._resent:
            exchange = self._resent.popleft()
            if not exchange.is_over:
                exchange.on_resend()
                self._start([(connection, exchange)], self.loop.time())
                return
        self.free(connection)

    def _end_opening(self, task: asyncio.Task[None]) -> None:
        """The connect task has ended."""
        self._opening.discard(task)
        if task.cancelled():  # by `close`
            count_sockets(-1)
        else:
            self._opening_ended(task.exception())

    def _opening_ended(self, error: BaseException | None) -> None:
        """A connect has succeeded or failed."""
        count_sockets(-1)  # the reservation
        if error is None:
            self._open_more()
            return
        self._ahead = 0
        if not self._open and not self._opening:
            for queue in (self._resent, self._waiting):
                while queue:
                    queue.popleft().end(_copy_error(error))
        self._paused_until_s = self.loop.time() + self._pause_s if self._open else 0.0
        self._pause_s = min(PAUSE_MAX_S, 2 * self._pause_s) if self._open else PAUSE_FIRST_S

    # -- time ----------------------------------------------------------------------------------------------------------

    def _sweep_by(self, sweep_s: float) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._sweep_s = sweep_s
        self._sweeping = self.loop.call_later(sweep_s, self._sweep)

    def _sweep(self) -> None:
        """Check all deadlines."""
        self._sweeping = None
        now_s = self.loop.time()
        idle_s = IDLE_S if self._idle_s is None else self._idle_s
        shortest_s = 8 * min(SWEEP_S, max(idle_s, SWEEP_S / 8))
        for connection in list(self._open):
            exchange = connection.exchange
            if exchange is None:
                if now_s - connection.idle_since_s >= idle_s:
                    connection.close()
                continue
            shortest_s = min(shortest_s, exchange.patience.silence_s)
            if now_s - connection.heard_s() >= exchange.patience.silence_s or now_s >= exchange.ends_s:
                connection.fail(TimeoutError())
        self._drop_cancelled()
        for queue in (self._resent, self._waiting):
            for exchange in list(queue):
                shortest_s = min(shortest_s, exchange.patience.silence_s)
                if now_s >= exchange.ends_s:
                    exchange.end(TimeoutError())
        self._drop_cancelled()
        if self.num_waiting:
            self._open_more()
        if (self._open or self._opening or self.num_waiting) and not self._is_closed and self._sweeping is None:
            self._sweep_by(shortest_s / 8)

    # -- the end -------------------------------------------------------------------------------------------------------

    def detach(self) -> None:
        """The loop is closed: its sockets cannot be closed any more and no longer count."""
        self._is_closed = True
        self._cancel_dials()
        count_sockets(-len(self._open) - len(self._opening))
        self._open.clear()
        self._opening.clear()

    def _cancel_dials(self) -> None:
        """Cancel connects of the fast path."""
        for dial in [opening for opening in self._opening if isinstance(opening, Dial)]:
            dial.cancel()
            self._opening.discard(dial)
            count_sockets(-1)

    async def close(self) -> None:
        """Close all connections and wait for that; requests in flight or waiting end with an error."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._addresses.close()
        self._cancel_dials()
        tasks = [opening for opening in self._opening if not isinstance(opening, Dial)]
        for task in tasks:
            task.cancel()
        error = ConnectionError("the connections of this store were closed")
        for queue in (self._resent, self._waiting):
            while queue:
                queue.popleft().end(error)
        for connection in list(self._open):
            connection.fail(error)
        if tasks:
            await asyncio.wait(tasks)
        for connection in list(self._open):  # opened just before the cancellation
            connection.close()
        if self._open:
            self._all_lost = self.loop.create_future()
            await self._all_lost


def _half_of_rest(scope: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> float | None:
    """Half of the remaining time; leaves the rest for the next addresses."""
    ends_s = scope.when()
    return None if ends_s is None else max(0.0, ends_s - loop.time()) / 2


def _copy_error(error: BaseException) -> BaseException:
    """A copy for each waiter: raising adds a traceback to an error."""
    try:
        return type(error)(*error.args)
    except TypeError:
        return error


_pools: weakref.WeakValueDictionary[tuple[int, Origin], OriginPool] = weakref.WeakValueDictionary()  # by loop


def join_pool(
    origin: Origin, bucket: str, connections_max: int, idle_s: float | None = None, idle_max: int | None = None
) -> OriginPool:
    """The pool of an origin on the running loop, with a new user; pair it with `leave_pool`.

    bucket           the stores of each bucket share `connections_max`
    connections_max  limit of connections of the bucket
    idle_s           idle timeout; the shortest one of all users applies
    idle_max         idle connections beyond this number are closed at once; the smallest one of all users applies
    """
    pool_key = (id(asyncio.get_running_loop()), origin)  # a pool keeps its loop alive, so the id stays unique
    pool = _pools.get(pool_key)
    if pool is None:
        pool = _pools[pool_key] = OriginPool(origin)
    pool.join(bucket, connections_max, idle_s, idle_max)
    return pool


async def leave_pool(pool: OriginPool) -> None:
    """Remove a user; the last one closes the connections."""
    if pool.leave():
        pool_key = (id(pool.loop), pool.origin)
        if _pools.get(pool_key) is pool:
            del _pools[pool_key]
        await pool.close()


def _forget_pools() -> None:
    """In a forked child: drop the connections, which the parent still uses."""
    global _pools
    never_finalize(list(_pools.values()))
    _pools = weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_forget_pools)
