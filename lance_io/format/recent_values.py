"""A cache of the most recent values that were computed from long byte strings.

Lookup compares the strings instead of hashing them: a comparison ends at the first difference and takes a fraction of
the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class RecentValues(Generic[T]):
    """Calls `make(content, *others)` and caches its last results; exceptions are not cached.

    count  number of cached results
    """

    def __init__(self, make: Callable[..., T], count: int) -> None:
        self._make = make
        self._count = count
        self._entries: list[
            tuple[bytes, tuple[Any, ...], T]
        ] = []  # replaced, never modified: threads may be reading it

    def __call__(self, content: bytes, *others: Any) -> T:
        for entry in self._entries:
            if entry[0] == content and entry[1] == others:
                if entry is not self._entries[0]:
                    self._put_first(entry)
                return entry[2]
        value = self._make(content, *others)
        self._put_first((content, others, value))
        return value

    def _put_first(self, entry: tuple[bytes, tuple[Any, ...], T]) -> None:
        others = [each for each in self._entries if each is not entry]
        self._entries = [entry, *others[: self._count - 1]]

    def cache_clear(self) -> None:
        """Remove all cached values."""
        self._entries = []
