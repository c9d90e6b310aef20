"""How much memory a change of a table may use: what `memory_limit` means everywhere (bytes).

The limit is for what a change itself holds: rows that wait, tables of keys, what is read ahead. Beside it there are the
interpreter, the pages that a writer fills and whatever its caller holds. What does not fit goes to local disk.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as pt

from lance_io.dataset.scan.scan_plan import width_bytes
from lance_io.errors import UsageError
from lance_io.limits import BATCH_ROWS, IO_BUFFER_BYTES, MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.dataset.version.state import DatasetState

MEMORY_LIMIT_BYTES: Final = 512 * MIB
UNSEEN_ROWS_MAX: Final = (
    1 << 16
)  # of a batch that no code of the caller's is given: more than is usual cost less to handle
MEMORY_LIMIT_BYTES_MIN: Final = 16 * MIB  # below it batches become so small that nothing else is done than cutting them


def check_memory_limit(memory_limit: int | None) -> int:
    """The limit in bytes, the default for None. Raises `TypeError` for no integer, `UsageError` for one too small."""
    if memory_limit is None:
        return MEMORY_LIMIT_BYTES
    num_bytes = operator.index(memory_limit)
    if num_bytes < MEMORY_LIMIT_BYTES_MIN:
        raise UsageError(f"memory_limit must be at least {MEMORY_LIMIT_BYTES_MIN:,} bytes, got {num_bytes:,}")
    return num_bytes


def limit_of(state: DatasetState, memory_limit: int | None) -> int:
    """The limit of a call in bytes: what it says, what the table was opened with, or the default. Raises as above."""
    return check_memory_limit(state.memory_limit if memory_limit is None else memory_limit)


def scan_bounds(limit_bytes: int) -> dict[str, Any]:
    """Options of a scan that is a part of a change: how much it may read ahead."""
    return {"io_buffer_size": min(IO_BUFFER_BYTES, limit_bytes // 8)}


def batch_rows(state: DatasetState, types: Iterable[pa.DataType], limit_bytes: int) -> int:
    """Rows of a batch of columns of these types, of which a change holds a few at a time.

    limit_bytes  of the whole change
    """
    return max(1, min(BATCH_ROWS, int(limit_bytes / 32 / row_bytes(state, types))))


def row_bytes(state: DatasetState, types: Iterable[pa.DataType]) -> float:
    """What a row of columns takes in memory, about: by their types where these say, and by the files of the table."""
    num_rows = max(1, int(state.physical_rows.sum()))
    stored = sum(file.size_bytes or 0 for fragment in state.manifest.fragments for file in fragment.files)
    return max(1.0, sum(map(width_bytes, types)), 2 * stored / num_rows)


@dataclass(frozen=True, slots=True)
class ScanBounds:
    """How much a change reads of columns at once.

    batch_size   rows of a batch, as the caller says; None for as many as the limit allows
    limit_bytes  of the whole change
    """

    batch_size: int | None
    limit_bytes: int

    def options(
        self, state: DatasetState, types: Iterable[pa.DataType], *, rows_max: int = UNSEEN_ROWS_MAX
    ) -> dict[str, Any]:
        """Options of a scan for batches of columns of these types, whether they are read or made of what is read.

        rows_max  of a batch, where nothing else bounds it and all columns have a width
        """
        known = list(types)
        if self.batch_size is not None:
            num_rows = self.batch_size
        elif all(map(_has_width, known)):  # whatever else the files have beside these columns
            width = max(1.0, sum(map(width_bytes, known)))
            num_rows = max(1, min(rows_max, int(self.limit_bytes / 32 / width)))
        else:
            num_rows = batch_rows(state, known, self.limit_bytes)
        return {"batch_size": num_rows, **scan_bounds(self.limit_bytes)}


def _has_width(dtype: pa.DataType) -> bool:
    """Whether all values of a type take the same room."""
    if isinstance(dtype, pa.BaseExtensionType):
        return _has_width(dtype.storage_type)
    if pt.is_struct(dtype):
        return all(_has_width(dtype.field(place).type) for place in range(dtype.num_fields))
    if pt.is_fixed_size_list(dtype):
        return _has_width(dtype.value_type)
    return bool(pt.is_primitive(dtype) or pt.is_decimal(dtype) or pt.is_fixed_size_binary(dtype) or pt.is_null(dtype))
