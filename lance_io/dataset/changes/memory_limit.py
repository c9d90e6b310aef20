"""How much memory a change of a table may use: what `memory_limit` means everywhere (bytes).

The limit is for what a change itself holds: rows that wait, tables of keys, what is read ahead. Beside it there are the
interpreter, the pages that a writer fills and whatever its caller holds. What does not fit goes to local disk.
"""

from __future__ import annotations

import operator
from typing import Final

from lance_io.errors import UsageError
from lance_io.limits import IO_BUFFER_BYTES, MIB

MEMORY_LIMIT_BYTES: Final = 512 * MIB
MEMORY_LIMIT_BYTES_MIN: Final = 16 * MIB  # below it batches become so small that nothing else is done than cutting them


def check_memory_limit(memory_limit: int | None) -> int:
    """The limit in bytes, the default for None. Raises `TypeError` for no integer, `UsageError` for one too small."""
    if memory_limit is None:
        return MEMORY_LIMIT_BYTES
    num_bytes = operator.index(memory_limit)
    if num_bytes < MEMORY_LIMIT_BYTES_MIN:
        raise UsageError(f"memory_limit: expected at least {MEMORY_LIMIT_BYTES_MIN} bytes, found {num_bytes}")
    return num_bytes


def scan_buffer_bytes(limit_bytes: int) -> int:
    """How much a scan that is a part of a change may read ahead."""
    return min(IO_BUFFER_BYTES, limit_bytes // 8)
