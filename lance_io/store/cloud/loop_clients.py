"""Clients of one event loop, shared by stores with the same options because creating them costs more than a write.

Sockets and client sessions belong to the loop that created them, so each loop has its own. Clients are opened once, on
demand, and closed on their loop.
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

FOUND_SHARED_S = 15.0  # after this time a new store searches for credentials itself: files may have changed
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "HOME")


class LoopClients:
    """Clients of a store on one event loop, apart from connections for GETs; call every method on that loop.

    connections_max  limit of connections per client
    credentials      refetches credentials that the store refuses
    """

    store: ClassVar[str]
    """Name of the store in metrics."""
    variables: ClassVar[tuple[str, ...]] = ()
    """Prefixes of the environment variables that the clients depend on, besides those of proxies."""

    def __init__(self, options: ClientOptions, connections_max: int) -> None:
        self._settings = options, connections_max
        self._environment = self._read_environment()
        self._loop = asyncio.get_running_loop()
        self._created_s = self._loop.time()
        self._users: set[object] = set()
        self.credentials = Generations(self.refetch, self.store)

    async def refetch(self) -> bool:
        """Drop the credentials and fetch new ones from their source; returns whether they differ.

        Returns False for fixed credentials. Raises our errors.
        """
        raise NotImplementedError

    def has_fixed_credentials(self) -> bool:
        """Whether the options hold the credentials, so that another search finds the same."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close everything; later calls open new clients."""
        raise NotImplementedError

    def drop(self) -> None:
        """Release everything of a loop that is already closed."""
        raise NotImplementedError

    @classmethod
    def _read_environment(cls) -> list[tuple[str, str]]:
        names = (*cls.variables, *_PROXIES)
        return [(name, value) for name, value in os.environ.items() if name.upper().startswith(names)]

    def can_share(self, kind: type, options: ClientOptions, connections_max: int) -> bool:
        """Whether a new store on the running loop may share these clients."""
        if type(self) is not kind or self._loop is not asyncio.get_running_loop():
            return False
        is_fresh = self.has_fixed_credentials() or self._loop.time() - self._created_s < FOUND_SHARED_S
        is_same = self._settings == (options, connections_max) and self._environment == self._read_environment()
        return is_fresh and is_same

    def join(self, user: object) -> None:
        """Add a user."""
        self._users.add(user)

    async def leave(self, user: object) -> None:
        """Remove a user; the last one closes everything."""
        self._users.discard(user)
        if not self._users:
            with suppress(ValueError):
                _shared.remove(self)
            await self.credentials.close()
            await self.close()

    def detach(self) -> None:
        """Stop sharing and release everything of a loop that is already closed."""
        with suppress(ValueError):
            _shared.remove(self)
        self.drop()


Clients = TypeVar("Clients", bound=LoopClients)

_shared: list[LoopClients] = []  # short: a process uses few buckets


def share_clients(kind: type[Clients], options: Any, connections_max: int, user: object) -> Clients:
    """Clients of a store on the running loop: shared with a store of the same options, or new.

    user  calls `leave` in the end
    """
    for clients in _shared:
        if isinstance(clients, kind) and clients.can_share(kind, options, connections_max):
            break
    else:
        clients = kind(options, connections_max)
        _shared.append(clients)
    clients.join(user)
    return clients


def _forget_all() -> None:
    """In a forked child: drop the clients, which belong to the parent."""
    never_finalize(list(_shared))
    _shared.clear()


os.register_at_fork(after_in_child=_forget_all)
