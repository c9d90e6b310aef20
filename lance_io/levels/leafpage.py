"""One leaf column's share of a page, taken apart: levels and visible values.

This is what the writing side hands from the nesting (`shred.py`) to the encodings. It is the reverse of what
`assemble.py` puts together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_io.records import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

Levels: TypeAlias = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class LeafPage:
    """Rows of one leaf column, ready to be encoded (spec: structural encodings 2.1, section 2).

    num_rows    rows of the page (slots, below a fixed-size list of structs)
    layers      RepDefLayer numbers, innermost first, as the page message lists them
    repetition  u16[num_levels], or None when no list is on the way
    definition  u16[num_levels], or None when no layer has nulls or empty lists
    values      one slot per visible item, null items included (their bytes mean nothing; where we fill them, they
                repeat their neighbour's); storage type of the leaf, no validity of its own except inside fixed-size
                lists, no garbage
    """

    num_rows: int
    layers: tuple[int, ...]
    repetition: Levels | None
    definition: Levels | None
    values: pa.Array

    @property
    def num_levels(self) -> int:
        """Entries of the level vectors; the number of visible items where there are none."""
        for levels in (self.repetition, self.definition):
            if levels is not None:
                return len(levels)
        return len(self.values)
