"""Finds a text in the texts of a column.

The texts of a column are contiguous in memory, so they are searched as one buffer: the offsets at which the first two
bytes occur, filtered by each further byte, then mapped to rows. Matches across two rows do not count. In UTF-8 the
bytes of a character never occur inside of another, so comparing bytes is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.levels.arrays import booleans

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.filters.elementwise import Value

    Bytes = npt.NDArray[np.uint8]
    Positions = npt.NDArray[np.int64]

DENSITY_MAX: Final = 1 / 16  # occurrences of the first two bytes per byte of text; above, a search by row is faster

_OFFSETS: Final = {pa.string(): np.int32, pa.large_string(): np.int64}


def contains(value: Value, wanted: str) -> Value:
    """Whether texts contain `wanted`; null for null texts."""
    needle = wanted.encode()
    if len(needle) > 1 and isinstance(value, pa.Array) and value.type in _OFFSETS and len(value):
        matches = _rows_with(value, needle)
        if matches is not None:
            return pc.if_else(value.is_valid(), matches, None) if value.null_count else matches
    return pc.match_substring(value, wanted)


def _rows_with(texts: pa.Array, needle: bytes) -> pa.BooleanArray | None:
    """Whether each text contains `needle`, of two bytes and more; None if a search by row is faster."""
    _, offset_buffer, data_buffer = texts.buffers()
    ends = np.frombuffer(offset_buffer, _OFFSETS[texts.type])[texts.offset : texts.offset + len(texts) + 1]
    first, last = int(ends[0]), int(ends[-1])
    rows = np.zeros(len(texts), np.bool_)
    if last - first >= len(needle):
        offsets = _match_offsets(np.frombuffer(data_buffer, np.uint8)[first:last], needle)
        if offsets is None:
            return None
        offsets += first
        row_of = np.searchsorted(ends, offsets, side="right") - 1
        rows[row_of[offsets + len(needle) <= ends[row_of + 1]]] = True
    return booleans(rows)


def _match_offsets(data: Bytes, needle: bytes) -> Positions | None:
    """The offsets of `needle` in `data`, which is no shorter; None above `DENSITY_MAX`."""
    num_starts = len(data) - len(needle) + 1
    begins = data[:num_starts] == needle[0]
    begins &= data[1 : num_starts + 1] == needle[1]
    if np.count_nonzero(begins) > len(data) * DENSITY_MAX:
        return None
    offsets = np.flatnonzero(begins)
    for index in range(2, len(needle)):
        offsets = offsets[data[offsets + index] == needle[index]]
    return offsets
