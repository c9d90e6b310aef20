"""Sequences whose items are made when they are first asked for.

A column may have thousands of pages, and a take touches a few of them: their metadata is decoded page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """`count` items, each made by `make(number)` at most once a thread and then kept.

    What `make` raises comes out of the access that needed the item, and out of each further one.
    """

    __slots__ = ("_items", "_make")

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._items: list[Any] = [None] * count
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> list[T]: ...

    def __getitem__(self, number: int | slice) -> T | list[T]:
        if type(number) is slice:
            return [self[one] for one in range(*number.indices(len(self._items)))]
        item: T | None = self._items[number]
        if item is None:
            item = self._items[number] = self._make(number if number >= 0 else number + len(self._items))
        return item

    def __iter__(self) -> Iterator[T]:
        return (self[number] for number in range(len(self._items)))
