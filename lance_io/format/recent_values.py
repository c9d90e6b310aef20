"""Values that were made of long byte strings, the last few of them.

What is long is found by comparing, which takes a fraction of the time of hashing it, and ends at the first difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class RecentValues(Generic[T]):
    """Calls `make(content, *others)`, and remembers its last results; what it raises is not remembered.

    count  how many results are kept
    """

    def __init__(self, make: Callable[..., T], count: int) -> None:
        self._make = make
        self._count = count
        self._entries: list[tuple[bytes, tuple[Any, ...], T]] = []  # never changed: threads may be reading it

    def __call__(self, content: bytes, *others: Any) -> T:
        for entry in self._entries:
            if entry[0] == content and entry[1] == others:
                if entry is not self._entries[0]:
                    self._put_first(entry)
                return entry[2]
        made = self._make(content, *others)
        self._put_first((content, others, made))
        return made

    def _put_first(self, entry: tuple[bytes, tuple[Any, ...], T]) -> None:
        others = [one for one in self._entries if one is not entry]
        self._entries = [entry, *others[: self._count - 1]]

    def cache_clear(self) -> None:
        """Forget all."""
        self._entries = []
