"""A read-only view of several stores as one, for tables whose files lie in more than one store.

key                    of an object in the table's own store
<identity>/<key>       of an object in the mounted store with that identity
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.store.offers import offers_sync_reads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.store.api import Buffer, ObjectMeta, ObjectReads


def mounted_key(store: ObjectReads, key: str) -> str:
    """The key of another store's object in a `MountedStore`."""
    return f"{store.identity}/{key}"


class MountedStore:
    """Reads from the store that a key names. Never offers synchronous reads, even if all its stores do.

    home    store of keys without an identity
    others  the other stores

    Reads are planned by the profile of a store with round trips, if there is one. Requests count in the statistics
    of the store that they go to.
    """

    def __init__(self, home: ObjectReads, others: Iterable[ObjectReads]) -> None:
        self._home = home
        self._others = {mounted_key(store, ""): store for store in others}
        stores = [home, *self._others.values()]
        self.identity = " + ".join(store.identity for store in stores)
        self.profile = next((store for store in stores if not offers_sync_reads(store)), home).profile

    def _resolve(self, key: str) -> tuple[ObjectReads, str]:
        for prefix, store in self._others.items():
            if key.startswith(prefix):
                return store, key[len(prefix) :]
        return self._home, key

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """See `ObjectReads`, like all methods."""
        store, key = self._resolve(key)
        return await store.get_range(key, start, end)

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Any, int, str | None]:
        """The end of an object."""
        store, key = self._resolve(key)
        return await store.get_suffix(key, num_bytes)

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object."""
        store, key = self._resolve(key)
        return await store.get(key)
