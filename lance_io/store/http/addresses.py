"""Addresses of a host: resolved once a minute and used round-robin, so that connections spread over all servers."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

RESOLVED_S: Final = 60.0  # how long a DNS answer is used
UNHEALTHY_S: Final = 30.0  # an unreachable address is tried last for this time


class Addresses:
    """Addresses of one host and port, for one event loop."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._resolved: list[tuple[int, str]] = []  # family, address
        self._expires_s = 0.0
        self._lookup: asyncio.Task[None] | None = None
        self._turn = 0
        self._unhealthy_until_s: dict[str, float] = {}  # by address

    def next_resolved(self) -> str | None:
        """The next address. None if a lookup is needed, or the address is unhealthy."""
        now_s = asyncio.get_running_loop().time()
        if not self._resolved or now_s >= self._expires_s:
            return None
        preferred = self._preferred_family()
        address = preferred[self._turn % len(preferred)]
        if self._unhealthy_until_s.get(address, 0.0) > now_s:
            return None
        self._turn += 1
        return address

    def is_only(self, address: str) -> bool:
        """Whether the host has no other address."""
        return all(resolved == address for _, resolved in self._resolved)

    async def in_turn(self) -> list[str]:
        """All addresses in the order to try them; the next call starts with the next address.

        Addresses of the system's preferred family come first. Raises `OSError` for an unknown name.
        """
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if not self._resolved or now_s >= self._expires_s:
            if self._lookup is None or self._lookup.done():
                self._lookup = loop.create_task(self._resolve())
                self._lookup.add_done_callback(_retrieve_error)
            await asyncio.shield(self._lookup)
        preferred = self._preferred_family()
        others = [address for _, address in self._resolved if address not in preferred]
        start = self._turn % len(preferred)
        self._turn += 1
        ordered = preferred[start:] + preferred[:start] + others
        return sorted(ordered, key=lambda address: self._unhealthy_until_s.get(address, 0.0) > now_s)

    def _preferred_family(self) -> list[str]:
        """Addresses of the system's preferred family."""
        first = self._resolved[0][0]
        return [address for family, address in self._resolved if family == first]

    def mark_unhealthy(self, address: str) -> None:
        """Try an unreachable address last for a while, and resolve the name again."""
        now_s = asyncio.get_running_loop().time()
        unhealthy = {other: until_s for other, until_s in self._unhealthy_until_s.items() if until_s > now_s}
        unhealthy[address] = now_s + UNHEALTHY_S
        self._unhealthy_until_s = unhealthy
        self._expires_s = now_s

    def close(self) -> None:
        """Cancel the lookup."""
        if self._lookup is not None:
            self._lookup.cancel()

    async def _resolve(self) -> None:
        loop = asyncio.get_running_loop()
        entries = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        self._resolved = list(dict.fromkeys((int(family), str(address[0])) for family, _, _, _, address in entries))
        if not self._resolved:
            raise OSError(f"the name {self._host} has no address")
        self._expires_s = loop.time() + RESOLVED_S


def _retrieve_error(lookup: asyncio.Task[None]) -> None:
    """Mark the task's error as retrieved: waiters have raised it, and without waiters it is irrelevant."""
    if not lookup.cancelled():
        lookup.exception()
