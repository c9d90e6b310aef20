"""Rows with their keys as numbers, and further columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.changes.join.row_keys import has_key, row_keys
from lance_io.levels.arrays import numbers
from lance_io.levels.join import join_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

KEY: Final = "#key"


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRows:
    """Rows with keys.

    keys     u64[n] or u64[n, 2]
    columns  further columns
    """

    keys: npt.NDArray[np.uint64]
    columns: pa.RecordBatch

    @classmethod
    def of(cls, key_arrays: Sequence[pa.Array], columns: pa.RecordBatch) -> tuple[KeyedRows, pa.RecordBatch | None]:
        """Rows with a key, and the columns of rows without one, None if all have a key."""
        known = has_key(key_arrays)
        if known is None:
            return cls(row_keys(key_arrays), columns), None
        positions = numbers(np.flatnonzero(known))
        keyed = cls(row_keys([array.take(positions) for array in key_arrays]), columns.take(positions))
        return keyed, columns.take(numbers(np.flatnonzero(~known)))

    @classmethod
    def joined(cls, parts: Sequence[KeyedRows]) -> KeyedRows:
        """Concatenate parts."""
        if len(parts) == 1:
            return parts[0]
        return cls(np.concatenate([part.keys for part in parts]), join_batches([part.columns for part in parts]))

    def kept(self) -> KeyedRows:
        """A copy that shares no memory with the batch of its rows, so that this can be freed."""
        every = numbers(np.arange(self.columns.num_rows))
        return KeyedRows(self.keys.copy(), self.columns.take(every))

    def packed(self) -> pa.RecordBatch:
        """Keys and columns as one batch; the first column is the key."""
        width = 8 * (1 if self.keys.ndim == 1 else 2)
        data = pa.py_buffer(np.ascontiguousarray(self.keys))
        key = pa.Array.from_buffers(pa.binary(width), len(self.keys), [None, data])
        arrays = [key, *self.columns.columns]
        return pa.RecordBatch.from_arrays(arrays, [KEY, *self.columns.schema.names])

    @classmethod
    def unpacked(cls, batch: pa.RecordBatch) -> KeyedRows:
        """The inverse of `packed`."""
        key = batch.column(0)
        num_words = key.type.byte_width // 8
        words = np.frombuffer(key.buffers()[1], np.uint64, num_words * len(key), num_words * key.offset * 8)
        return cls(words if num_words == 1 else words.reshape(-1, 2), batch.drop_columns([KEY]))
