"""The connections to one origin on one event loop, shared by all stores that read there.

    idle       the one used last is used next, so that those which are not needed grow old and are closed
    waiting    requests in order of arrival; as many connections are opened as there are requests that wait, no more
               than `OPENING_MAX` at a time
    the sweep  one timer for all deadlines and for idle connections; it looks at all of them every so often

A request whose reused connection turns out to be closed goes out once more, over a new one: the server closed it while
the request was on its way. A connection that cannot be opened fails the requests that wait only if no other one can
serve them.
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
from lance_io.store.http.socket_group import IS_THERE, SocketGroup
from lance_io.store.http.tcp import Dial, TcpTransport, tcp_socket
from lance_io.store.http.tls import tls_context

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Sequence

    from lance_io.store.http.connection import HandedGet
    from lance_io.store.http.exchange import Exchange, Origin, Patience
    from lance_io.store.http.range_get import RangeGet

IDLE_S: Final = 15.0  # idle connections are closed before S3 closes them (20 s)
IDLE_MAX: Final = 1024  # and those beyond so many, at once
OPENING_MAX: Final = 256  # a server refuses connections that come faster than it takes them
OPENED_AT_ONCE_MAX: Final = 16  # takes a millisecond; answers that come meanwhile may free what the next would be for
AHEAD_MAX: Final = 16  # of those that nobody waits for yet
SWEEP_S: Final = 1.0  # between two looks at deadlines, or an eighth of the shortest silence that is waited for
PAUSE_FIRST_S: Final = 0.1  # after a connection could not be opened; doubled each time
PAUSE_MAX_S: Final = 5.0
CONNECT_S: Final = 5.0  # for connections that are opened ahead


class OriginPool:
    """See the module's description; every method is called on its loop."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.loop = asyncio.get_running_loop()
        self._num_users = 0
        self._asked: dict[str, int] = {}  # connections, by who asked for them
        self._idle_s: float | None = None  # the shortest of what users want, of all that were here
        self._idle_max = IDLE_MAX
        self._addresses = Addresses(origin.host, origin.port)
        self._scratch = Scratch()
        self._group: SocketGroup | None = None  # of plain connections, while there are any
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._opening: set[asyncio.Task[None] | Dial] = set()
        self._waiting: deque[Exchange | RangeGet] = deque()
        self._resent: deque[Exchange | RangeGet] = deque()  # these wait for a connection that is new
        self._ahead = 0  # connections to have open, whether they are needed yet or not
        self._pause_s = PAUSE_FIRST_S
        self._paused_until_s = 0.0
        self._begun_in_turn = 0  # of the loop: connections
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
        """Connections, idle ones among them."""
        return len(self._open)

    @property
    def num_idle(self) -> int:
        """Connections that carry no request."""
        return len(self._idle)

    @property
    def num_waiting(self) -> int:
        """Requests without a connection, some of them perhaps cancelled."""
        return len(self._waiting) + len(self._resent)

    @property
    def connections_max(self) -> int:
        """How many connections there may be."""
        return max(1, sum(self._asked.values()))

    def join(self, who: str, connections_max: int, idle_s: float | None = None, idle_max: int | None = None) -> None:
        """One user more, see `join_pool`."""
        if idle_s is not None:
            self._idle_s = idle_s if self._idle_s is None else min(idle_s, self._idle_s)
        if idle_max is not None:
            self._idle_max = min(idle_max, self._idle_max)
        self._num_users += 1
        self._asked[who] = max(connections_max, self._asked.get(who, 0))

    def leave(self) -> bool:
        """One user less; True when nobody is left."""
        self._num_users -= 1
        return self._num_users == 0

    # -- requests ----------------------------------------------------------------------------------------------------

    def send(self, exchange: Exchange | RangeGet, now_s: float) -> None:
        """Send a request as soon as there is a connection for it."""
        self.send_all([exchange], now_s)

    def send_all(self, exchanges: Sequence[Exchange | RangeGet], now_s: float) -> None:
        """The same for several, which are equally patient."""
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
        """Send requests, each over a connection that is idle: those that a kernel can carry by one call."""
        handed: list[HandedGet] = []
        for connection, exchange in carried:
            get, slot = exchange.plain, connection.slot
            if get is None or slot < 0:
                connection.start(exchange, now_s)
            else:
                handed.append(connection.hand(get, slot, now_s))
        if handed:
            assert self._group is not None
            self._group.send(handed, now_s)

    def resend(self, exchange: Exchange | RangeGet) -> None:
        """The connection was closed before it carried an answer: once more, over a new one."""
        if self._is_closed:
            exchange.end(ConnectionResetError("the server closed the connection"))
            return
        exchange.connection = None
        exchange.heard_s = self.loop.time()
        self._resent.append(exchange)
        self._open_more()

    def open_ahead(self, num_connections: int) -> None:
        """Have so many connections, idle ones included, as fast as is polite; they grow old like all others."""
        self._ahead = min(num_connections, self.connections_max)
        if self._sweeping is None:
            self._sweep_by(SWEEP_S)
        self._open_more()

    def group_ended(self) -> None:
        """The last of the plain connections is gone."""
        self._group = None

    # -- connections come and go ---------------------------------------------------------------------------------------

    def free(self, connection: Connection) -> None:
        """A connection has carried an answer and may carry the next request."""
        self.free_all([connection], self.loop.time())

    def free_all(self, connections: Sequence[Connection], now_s: float) -> None:
        """The same for several."""
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

    def unusable(self, connection: Connection) -> None:
        """A connection is being closed."""
        if connection.exchange is None and connection in self._idle:
            self._idle.remove(connection)

    def lost(self, connection: Connection) -> None:
        """A connection is closed."""
        if connection not in self._open:
            return
        self.unusable(connection)
        self._open.remove(connection)
        count_sockets(-1)
        if self._all_lost is not None and not self._open and not self._all_lost.done():
            self._all_lost.set_result(None)
        if self._waiting or self._resent:
            self.loop.call_soon(self._open_more)

    def _open_more(self) -> None:
        """Open what is missing, within all bounds, some of it in a later turn of the loop."""
        if self._is_closed or self.loop.time() < self._paused_until_s:
            return
        opening = len(self._opening)
        wanted = self._missing()
        if wanted > opening:
            self._drop_cancelled()
            wanted = self._missing()
        for _ in range(wanted - opening):
            if self._begun_in_turn == OPENED_AT_ONCE_MAX:
                return
            if not may_open_socket() and (self._open or self._opening):  # without one, nothing would go on
                return
            if not self._begun_in_turn:
                self.loop.call_soon(self._turn_over)
            self._begun_in_turn += 1
            count_sockets(1)
            self._begin_opening(self._connect_s())

    def _turn_over(self) -> None:
        self._begun_in_turn = 0
        self._open_more()

    def _missing(self) -> int:
        """How many connections should be on their way."""
        num_open = len(self._open)
        wanted = max(self.num_waiting, min(AHEAD_MAX, self._ahead - num_open))
        return min(wanted, OPENING_MAX, self.connections_max - num_open)

    def _drop_cancelled(self) -> None:
        self._waiting = deque(exchange for exchange in self._waiting if not exchange.is_over)
        self._resent = deque(exchange for exchange in self._resent if not exchange.is_over)

    def _connect_s(self) -> float:
        """The patience of who waits."""
        first: Patience | None = None
        for queue in (self._resent, self._waiting):
            if queue:
                first = queue[0].patience
        return CONNECT_S if first is None else first.connect_s

    def _begin_opening(self, connect_s: float) -> None:
        """Open a connection: the short way, to one address that is at hand, or the long one."""
        addresses = self._addresses
        address = None if self.origin.tls is not None else addresses.next_one()
        if address is None:
            self._open_by_task(connect_s)
            return
        limit_s = connect_s if addresses.is_only(address) else connect_s / 2  # the others are to have some, too
        now_s = self.loop.time()
        done = partial(self._end_dial, now_s, now_s + connect_s)
        self._opening.add(Dial(self.loop, address, self.origin.port, limit_s, done))

    def _open_by_task(self, connect_s: float) -> None:
        task = self.loop.create_task(self._open_one(connect_s))
        self._opening.add(task)
        task.add_done_callback(self._end_opening)

    def _end_dial(self, began_s: float, ends_s: float, dial: Dial, outcome: socket.socket | OSError) -> None:
        """The short way has ended; the long one tries the other addresses, too, in what is left of the time."""
        self._opening.discard(dial)
        if not isinstance(outcome, OSError):
            self._take_socket(outcome, dial.address, began_s)
            self._opening_ended(None)
            return
        self._addresses.shun(dial.address)
        if is_out_of_descriptors(outcome) or self._addresses.is_only(dial.address):
            self._opening_ended(outcome)
        else:
            self._open_by_task(ends_s - self.loop.time())

    def _take_socket(self, made: socket.socket, address: str, began_s: float) -> None:
        connection = Connection(self, self._scratch, address)
        if self._group is None and IS_THERE:
            self._group = SocketGroup(self.loop, self)
        TcpTransport(self.loop, made, connection, self._group)
        self._take(connection, began_s)

    async def _open_one(self, connect_s: float) -> None:
        tls = self.origin.tls
        async with asyncio.timeout(connect_s) as scope:
            context = None if tls is None else await tls_context(tls)
            addresses = await self._addresses.in_turn()
            for index, address in enumerate(addresses):
                is_last = index == len(addresses) - 1
                try:
                    async with asyncio.timeout(None if is_last else _share(scope, self.loop)):
                        await self._open_at(address, context)
                    return
                except OSError as error:  # TimeoutError among them
                    self._addresses.shun(address)
                    if is_last or is_out_of_descriptors(error):
                        raise

    async def _open_at(self, address: str, context: ssl.SSLContext | None) -> None:
        began_s = self.loop.time()
        if context is not None:
            _, connection = await self.loop.create_connection(
                lambda: Connection(self, self._scratch, address),
                address,
                self.origin.port,
                ssl=context,
                server_hostname=self.origin.host,
            )
            self._take(connection, began_s)
            return
        made = tcp_socket(address)
        try:
            await self.loop.sock_connect(made, (address, self.origin.port))
        except BaseException:
            made.close()
            raise
        self._take_socket(made, address, began_s)

    def _take(self, connection: Connection, began_s: float) -> None:
        """A connection is open, whose opening began at `began_s`: requests that need a new one come first."""
        CONNECTIONS.opened(self.loop.time() - began_s)
        count_sockets(1)
        self._open.add(connection)
        self._pause_s = PAUSE_FIRST_S
        while self._resent:
            exchange = self._resent.popleft()
            if not exchange.is_over:
                exchange.again()
                self._start([(connection, exchange)], self.loop.time())
                return
        self.free(connection)

    def _end_opening(self, task: asyncio.Task[None]) -> None:
        """The long way has ended."""
        self._opening.discard(task)
        if task.cancelled():  # with the pool
            count_sockets(-1)
        else:
            self._opening_ended(task.exception())

    def _opening_ended(self, error: BaseException | None) -> None:
        """A connection is open, or it cannot be."""
        count_sockets(-1)  # what had been reserved
        if error is None:
            self._open_more()
            return
        self._ahead = 0
        if not self._open and not self._opening:
            for queue in (self._resent, self._waiting):
                while queue:
                    queue.popleft().end(_same(error))
        self._paused_until_s = self.loop.time() + self._pause_s if self._open else 0.0
        self._pause_s = min(PAUSE_MAX_S, 2 * self._pause_s) if self._open else PAUSE_FIRST_S

    # -- time ----------------------------------------------------------------------------------------------------------

    def _sweep_by(self, sweep_s: float) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._sweep_s = sweep_s
        self._sweeping = self.loop.call_later(sweep_s, self._sweep)

    def _sweep(self) -> None:
        """Look at all deadlines."""
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
        """The loop is closed: nothing of it can be closed any more, and nothing of it counts."""
        self._is_closed = True
        self._hang_up()
        count_sockets(-len(self._open) - len(self._opening))
        self._open.clear()
        self._opening.clear()

    def _hang_up(self) -> None:
        """End what goes the short way."""
        for dial in [one for one in self._opening if isinstance(one, Dial)]:
            dial.cancel()
            self._opening.discard(dial)
            count_sockets(-1)

    async def close(self) -> None:
        """Close all connections and wait until they are; requests that wait or are under way end with an error."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._addresses.close()
        self._hang_up()
        opening = [one for one in self._opening if not isinstance(one, Dial)]
        for task in opening:
            task.cancel()
        error = ConnectionError("the connections of this store were closed")
        for queue in (self._resent, self._waiting):
            while queue:
                queue.popleft().end(error)
        for connection in list(self._open):
            connection.fail(error)
        if opening:
            await asyncio.wait(opening)
        for connection in list(self._open):  # one that was opened in this moment
            connection.close()
        if self._open:
            self._all_lost = self.loop.create_future()
            await self._all_lost


def _share(scope: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> float | None:
    """Half of what is left of the time: the next address is to have some, too."""
    ends_s = scope.when()
    return None if ends_s is None else max(0.0, ends_s - loop.time()) / 2


def _same(error: BaseException) -> BaseException:
    """An error for each who is told of it: a raised one gets a traceback of its own."""
    try:
        return type(error)(*error.args)
    except TypeError:
        return error


_pools: weakref.WeakValueDictionary[tuple[int, Origin], OriginPool] = weakref.WeakValueDictionary()  # by loop


def join_pool(
    origin: Origin, who: str, connections_max: int, idle_s: float | None = None, idle_max: int | None = None
) -> OriginPool:
    """The pool of an origin on the running loop, for one more user, who leaves it in the end.

    who              what reads there, such as a bucket: each has connections of its own number at most
    connections_max  that number
    idle_s           connections that carry nothing are closed after that; of several users the shortest counts
    idle_max         and those beyond so many, at once; of several users the smallest counts
    """
    place = (id(asyncio.get_running_loop()), origin)  # a pool keeps its loop, whose number is nobody else's meanwhile
    pool = _pools.get(place)
    if pool is None:
        pool = _pools[place] = OriginPool(origin)
    pool.join(who, connections_max, idle_s, idle_max)
    return pool


async def leave_pool(pool: OriginPool) -> None:
    """One user less; with the last one go the connections."""
    if pool.leave():
        place = (id(pool.loop), pool.origin)
        if _pools.get(place) is pool:
            del _pools[place]
        await pool.close()


def _forget_pools() -> None:
    """In a forked child: the connections are the parent's, which still uses them."""
    global _pools
    never_finalize(list(_pools.values()))
    _pools = weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_forget_pools)
