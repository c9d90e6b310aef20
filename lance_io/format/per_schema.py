"""What follows from a schema and is worth keeping with it: each room says what it keeps, and of which type.

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
    """One value for each schema, kept as long as that lives; a copy and an equal schema have their own.

    Safe from any thread: of two values that are kept at once the later one stays. Whoever keeps it bounds its size.
    """

    def __init__(self, what: str) -> None:
        self._key = f"{what} ({next(_numbers)})"  # no attribute has such a name

    def get(self, schema: Schema) -> T | None:
        """The value, if there is one."""
        found: T | None = schema.__dict__.get(self._key)
        return found

    def keep(self, schema: Schema, value: T) -> T:
        """Keep a value, and give it back."""
        schema.__dict__[self._key] = value
        return value
