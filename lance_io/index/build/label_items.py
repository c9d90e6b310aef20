"""Lists to their items, for LABEL_LIST (spec: indices, 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io import compute as pc
from lance_io.levels.arrays import true_positions, values_of

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.index.build.index_file import RowArray


class LabelItems:
    """Splits arrays of lists."""

    def split(self, values: pa.Array, rows: RowArray) -> tuple[pa.Array, RowArray, RowArray]:
        """Of lists: the items, the row of each item, and the rows whose list is null.

        Empty lists have no items; a null item is an item.
        """
        parents = values_of(pc.list_parent_indices(values))
        items = pc.list_flatten(values)
        return items, rows[parents], rows[true_positions(values.is_null())]
