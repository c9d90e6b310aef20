"""Finding a text in the texts of a column.

The bytes of a column lie behind one another, so they are searched as one: places where the first two bytes occur,
thinned out by each further byte, then mapped to the rows that they lie in. What straddles two rows does not count.
UTF-8 never has one character's bytes inside of another's, so bytes stand for characters here.
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

DENSITY_MAX: Final = 1 / 16  # places of the first two bytes, per byte of text: with more, a row by row search is faster

_OFFSETS: Final = {pa.string(): np.int32, pa.large_string(): np.int64}


def contains(value: Value, wanted: str) -> Value:
    """Whether texts contain `wanted`; null where they are null."""
    needle = wanted.encode()
    if len(needle) > 1 and isinstance(value, pa.Array) and value.type in _OFFSETS and len(value):
        found = _rows_with(value, needle)
        if found is not None:
            return pc.if_else(value.is_valid(), found, None) if value.null_count else found
    return pc.match_substring(value, wanted)


def _rows_with(texts: pa.Array, needle: bytes) -> pa.BooleanArray | None:
    """True where a text contains `needle`, of two bytes and more; None where that is better found row by row."""
    _, offset_buffer, data_buffer = texts.buffers()
    ends = np.frombuffer(offset_buffer, _OFFSETS[texts.type])[texts.offset : texts.offset + len(texts) + 1]
    first, last = int(ends[0]), int(ends[-1])
    rows = np.zeros(len(texts), np.bool_)
    if last - first >= len(needle):
        places = _places(np.frombuffer(data_buffer, np.uint8)[first:last], needle)
        if places is None:
            return None
        places += first
        lies_in = np.searchsorted(ends, places, side="right") - 1
        rows[lies_in[places + len(needle) <= ends[lies_in + 1]]] = True
    return booleans(rows)


def _places(data: Bytes, needle: bytes) -> Positions | None:
    """Where `needle` begins in `data`, which is no shorter; None for too many places that are worth a look."""
    num_starts = len(data) - len(needle) + 1
    begins = data[:num_starts] == needle[0]
    begins &= data[1 : num_starts + 1] == needle[1]
    if np.count_nonzero(begins) > len(data) * DENSITY_MAX:
        return None
    places = np.flatnonzero(begins)
    for place in range(2, len(needle)):
        places = places[data[places + place] == needle[place]]
    return places
