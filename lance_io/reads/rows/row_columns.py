"""System columns as arrays, from loaded fragment data. Pure."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from lance_io.levels.arrays import numbers
from lance_io.reads.rows.row_arithmetic import UIntArray, addresses
from lance_io.reads.version.system_columns import CREATED_AT, ROW_ADDRESS, ROW_ID, ROW_OFFSET
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lance_io.reads.rows.row_arithmetic import LiveRows
    from lance_io.spans import IntArray


@dataclass(frozen=True, slots=True)
class Lineage:
    """Stable row ids and versions of the physical rows of one fragment; u64 arrays, or None for "1".

    row_ids     stable row ids
    created_at  version that inserted the row
    updated_at  version that last changed it
    """

    row_ids: UIntArray
    created_at: UIntArray | None
    updated_at: UIntArray | None

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return sum(values.nbytes for values in (self.row_ids, self.created_at, self.updated_at) if values is not None)


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Builds system columns.

    fragment_ids  id of every fragment, by index
    live          live rows, by fragment index
    starts        i64, live rows before each fragment; None unless `_rowoffset` is needed
    lineages      stable row ids, by fragment index; empty in a table without
    """

    fragment_ids: Sequence[int]
    live: Mapping[int, LiveRows]
    starts: IntArray | None = None
    lineages: Mapping[int, Lineage] = field(default_factory=dict)

    def make(self, name: str, fragment_index: int, offsets: IntArray, with_deleted: bool = False) -> pa.Array:
        """System column `name` for rows of one fragment.

        with_deleted  deleted rows are among them; their id and address are null
        """
        mask = self.live[fragment_index].is_deleted(offsets) if with_deleted and name in (ROW_ID, ROW_ADDRESS) else None
        return numbers(self._values(name, fragment_index, offsets), mask)

    def _values(self, name: str, fragment_index: int, offsets: IntArray) -> UIntArray:
        lineage = self.lineages.get(fragment_index)
        if name == ROW_ADDRESS or (name == ROW_ID and lineage is None):
            return addresses(self.fragment_ids[fragment_index], offsets)
        if name == ROW_OFFSET:
            assert self.starts is not None
            return (self.live[fragment_index].positions(offsets) + int(self.starts[fragment_index])).astype(np.uint64)
        if lineage is not None and name == ROW_ID:
            return lineage.row_ids[offsets]
        versions = None if lineage is None else lineage.created_at if name == CREATED_AT else lineage.updated_at
        return np.ones(len(offsets), dtype=np.uint64) if versions is None else versions[offsets]
