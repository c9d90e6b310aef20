"""How much of a product of cases is tried: in a campaign all, otherwise a part with every value of each dimension.

`LANCE_IO_PRODUCTS` says that all combinations are wanted (`scripts/campaign.py`, products).
"""

from __future__ import annotations

import os
from itertools import product
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ALL: Final = bool(os.environ.get("LANCE_IO_PRODUCTS"))


def thinned(*dimensions: Iterable[Any], share: int = 2, first: int = 0) -> list[tuple[Any, ...]]:
    """One in `share` combinations of values of independent dimensions.

    Neighbours take turns: each value of a dimension meets one in `share` combinations of the others, so that it is
    there whenever any other dimension has `share` values. Calls with each `first` below `share` have all combinations.
    """
    return [
        tuple(value for _, value in combination)
        for combination in product(*map(enumerate, dimensions))
        if ALL or sum(number for number, _ in combination) % share == first
    ]
