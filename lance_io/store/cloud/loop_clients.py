"""Clients of one event loop, which stores of the same options share: making them costs more than a write does.

Sockets and client sessions belong to the loop that made them, so each loop gets its own; it opens what is asked for,
once, and closes all of it on its loop.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lance_io.store.cloud.renewal import Generations
from lance_io.store.forking import never_finalize

if TYPE_CHECKING:
    from lance_io.store.cloud.client_options import ClientOptions

FOUND_SHARED_S = 15.0  # after which a new store looks for credentials itself: files may say something else by now
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "HOME")


class LoopClients:
    """What a store has open on one event loop beside connections for GETs; every method runs on that loop.

    connections_max  of its clients
    credentials      asked for again where the store refuses them
    """

    store: ClassVar[str]
    """Whose they are, for metrics."""
    variables: ClassVar[tuple[str, ...]] = ()
    """How the names of the environment's variables begin on which it depends, beside those of proxies."""

    def __init__(self, options: ClientOptions, connections_max: int) -> None:
        self._given = options, connections_max
        self._environment = self._read_environment()
        self._loop = asyncio.get_running_loop()
        self._made_s = self._loop.time()
        self._users: set[object] = set()
        self.credentials = Generations(self.ask_again, self.store)

    async def ask_again(self) -> bool:
        """Drop the credentials and ask for some where they came from: whether these are others.

        False also where they were given. Raises our errors.
        """
        raise NotImplementedError

    def is_known(self) -> bool:
        """Whether credentials were given, so that looking for them again would find the same."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close everything; what is asked for afterwards opens anew."""
        raise NotImplementedError

    def let_go(self) -> None:
        """The loop is closed already: let go without a word."""
        raise NotImplementedError

    @classmethod
    def _read_environment(cls) -> list[tuple[str, str]]:
        names = (*cls.variables, *_PROXIES)
        return [(name, value) for name, value in os.environ.items() if name.upper().startswith(names)]

    def fits(self, kind: type, options: ClientOptions, connections_max: int) -> bool:
        """Whether a new store on the running loop may share this, which then is as good as one of its own."""
        if type(self) is not kind or self._loop is not asyncio.get_running_loop():
            return False
        is_new = self.is_known() or self._loop.time() - self._made_s < FOUND_SHARED_S
        return is_new and self._given == (options, connections_max) and self._environment == self._read_environment()

    def join(self, user: object) -> None:
        """One more uses this, until it leaves."""
        self._users.add(user)

    async def leave(self, user: object) -> None:
        """Close everything if nobody else uses it."""
        self._users.discard(user)
        if not self._users:
            with suppress(ValueError):
                _shared.remove(self)
            await self.credentials.close()
            await self.close()

    def detach(self) -> None:
        """The loop is closed already."""
        with suppress(ValueError):
            _shared.remove(self)
        self.let_go()


Clients = TypeVar("Clients", bound=LoopClients)

_shared: list[LoopClients] = []  # few: a process knows few buckets


def share_clients(kind: type[Clients], options: Any, connections_max: int, user: object) -> Clients:
    """The clients of a store on the running loop: those of another one which was told the same, or new ones.

    user  leaves them again
    """
    for clients in _shared:
        if isinstance(clients, kind) and clients.fits(kind, options, connections_max):
            break
    else:
        clients = kind(options, connections_max)
        _shared.append(clients)
    clients.join(user)
    return clients


def _forget_all() -> None:
    """In a forked child: they are the parent's."""
    never_finalize(list(_shared))
    _shared.clear()


os.register_at_fork(after_in_child=_forget_all)
