"""How much memory a change may take for rows that are under way, in bytes."""

from __future__ import annotations

import operator
from typing import Final

from lance_io.errors import UsageError
from lance_io.limits import MIB

MEMORY_LIMIT_BYTES: Final = 512 * MIB
MEMORY_LIMIT_BYTES_MIN: Final = 16 * MIB  # less does not hold a page of each of a few columns


def check_memory_limit(memory_limit: int | None) -> int:
    """The limit that is meant, in bytes; None is the default. Raises `UsageError` for one that nothing would fit in."""
    if memory_limit is None:
        return MEMORY_LIMIT_BYTES
    limit = operator.index(memory_limit)
    if limit < MEMORY_LIMIT_BYTES_MIN:
        raise UsageError(f"memory_limit must be at least {MEMORY_LIMIT_BYTES_MIN:,} bytes, got {limit:,}")
    return limit
