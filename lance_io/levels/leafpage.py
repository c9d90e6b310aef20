"""The levels and visible values of one leaf column's page.

`shred.py` creates it for the encodings. `assemble.py` is the reverse.
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
    layers      RepDefLayer numbers, innermost first, as in the page message
    repetition  u16[num_levels], or None without lists on the path
    definition  u16[num_levels], or None if no layer has nulls or empty lists
    values      one slot per visible item, including null items (their bytes are arbitrary; those that we fill repeat
                their neighbour's). Storage type of the leaf; no validity except inside fixed-size lists; no garbage
    """

    num_rows: int
    layers: tuple[int, ...]
    repetition: Levels | None
    definition: Levels | None
    values: pa.Array

    @property
    def num_levels(self) -> int:
        """Entries of the level vectors; without levels, the number of visible items."""
        for levels in (self.repetition, self.definition):
            if levels is not None:
                return len(levels)
        return len(self.values)
