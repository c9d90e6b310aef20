"""The addresses of a host: looked up once a minute, taken in turn, so that connections spread over all servers."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

FRESH_S: Final = 60.0  # how long an answer of the name service holds
SHUNNED_S: Final = 30.0  # an address that could not be reached comes last for so long


class Addresses:
    """Of one host and port, for one event loop."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._found: list[tuple[int, str]] = []  # family, address
        self._stale_s = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._turn = 0
        self._shunned: dict[str, float] = {}  # until when

    def next_one(self) -> str | None:
        """The next address, if that needs no looking up, and it could be reached lately."""
        now_s = asyncio.get_running_loop().time()
        if not self._found or now_s >= self._stale_s:
            return None
        preferred = self._preferred_family()
        address = preferred[self._turn % len(preferred)]
        if self._shunned.get(address, 0.0) > now_s:
            return None
        self._turn += 1
        return address

    def is_only(self, address: str) -> bool:
        """Whether there is no other one."""
        return all(found == address for _, found in self._found)

    async def in_turn(self) -> list[str]:
        """All addresses, in the order in which to try them; the next call begins with the next one.

        Those of the family that the system prefers come first. Raises `OSError` if the name is not known.
        """
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if not self._found or now_s >= self._stale_s:
            if self._looking is None or self._looking.done():
                self._looking = loop.create_task(self._look_up())
                self._looking.add_done_callback(_seen)
            await asyncio.shield(self._looking)
        preferred = self._preferred_family()
        others = [address for _, address in self._found if address not in preferred]
        at = self._turn % len(preferred)
        self._turn += 1
        ordered = preferred[at:] + preferred[:at] + others
        return sorted(ordered, key=lambda address: self._shunned.get(address, 0.0) > now_s)

    def _preferred_family(self) -> list[str]:
        """Of the family that the system prefers."""
        first = self._found[0][0]
        return [address for family, address in self._found if family == first]

    def shun(self, address: str) -> None:
        """It could not be reached: try it last for a while, and look the name up again."""
        now_s = asyncio.get_running_loop().time()
        self._shunned = {known: until_s for known, until_s in self._shunned.items() if until_s > now_s}
        self._shunned[address] = now_s + SHUNNED_S
        self._stale_s = now_s

    def close(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look_up(self) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        self._found = list(dict.fromkeys((int(family), str(address[0])) for family, _, _, _, address in found))
        if not self._found:
            raise OSError(f"the name {self._host} has no address")
        self._stale_s = loop.time() + FRESH_S


def _seen(looking: asyncio.Task[None]) -> None:
    """Whoever waited for it was told of its error; if all of them have gone, nobody needs to be."""
    if not looking.cancelled():
        looking.exception()
