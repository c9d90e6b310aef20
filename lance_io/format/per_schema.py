"""Derived values that are cached with a schema. Each module declares its own, with a description and a type.

_FITTED: Final[PerSchema[Fit]] = PerSchema("fit of rows to a table")
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from lance_io.format.schema import Schema

T = TypeVar("T")
_numbers = count()


class PerSchema(Generic[T]):
    """One cached value per schema object, which lives as long as the schema; copies and equal schemas have their own.

    Thread-safe: if two threads store a value at once, the later one wins. Callers bound the size of the values.
    """

    def __init__(self, what: str) -> None:
        self._key = f"{what} ({next(_numbers)})"  # no attribute has such a name

    def get(self, schema: Schema) -> T | None:
        """The cached value, or None."""
        value: T | None = schema.__dict__.get(self._key)
        return value

    def keep(self, schema: Schema, value: T) -> T:
        """Store a value and return it."""
        schema.__dict__[self._key] = value
        return value
