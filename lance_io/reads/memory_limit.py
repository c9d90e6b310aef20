"""Memory limits of changes: the meaning of `memory_limit` (bytes) everywhere.

The limit covers data that a change itself holds: waiting rows, tables of keys, readahead. It does not cover the
interpreter, the writer's page buffers and the caller's data. The rest goes to local disk.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as pt

from lance_io.errors import UsageError
from lance_io.limits import BATCH_ROWS, IO_BUFFER_BYTES, MIB
from lance_io.reads.rows.value_widths import width_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.reads.version.state import DatasetState

MEMORY_LIMIT_BYTES: Final = 512 * MIB
UNSEEN_ROWS_MAX: Final = 1 << 16  # of a batch that the caller's code does not see: large batches have less overhead
_BATCH_SHARE: Final = 32  # share of the limit for a batch
_ROWS_GROWTH: Final = 32
MEMORY_LIMIT_BYTES_MIN: Final = 16 * MIB  # with less, batches become so small that cutting them dominates


def check_memory_limit(memory_limit: int | None) -> int:
    """The limit in bytes, the default for None. Raises `TypeError` for a non-integer, `UsageError` for a value that is
    too small.
    """
    if memory_limit is None:
        return MEMORY_LIMIT_BYTES
    num_bytes = operator.index(memory_limit)
    if num_bytes < MEMORY_LIMIT_BYTES_MIN:
        raise UsageError(f"memory_limit must be at least {MEMORY_LIMIT_BYTES_MIN:,} bytes, got {num_bytes:,}")
    return num_bytes


def limit_of(state: DatasetState, memory_limit: int | None) -> int:
    """The limit of a call in bytes: its own, the open table's, or the default. Raises as `check_memory_limit`."""
    return check_memory_limit(state.memory_limit if memory_limit is None else memory_limit)


def batch_bytes(limit_bytes: int) -> int:
    """Bytes of values at which batches are cut; a change with this limit holds a few batches at a time."""
    return limit_bytes // _BATCH_SHARE


def scan_bounds(limit_bytes: int) -> dict[str, Any]:
    """Options of a scan within a change: readahead and bytes of values per batch."""
    return {
        "io_buffer_size": min(IO_BUFFER_BYTES, limit_bytes // 8),
        "batch_size_bytes": batch_bytes(limit_bytes),
    }


def batch_rows(types: Iterable[pa.DataType], limit_bytes: int, *, rows_max: int = BATCH_ROWS) -> int:
    """Maximum rows of a batch; a batch ends earlier if its values reach their share of the limit.

    types     of the columns, stored or computed
    rows_max  limit if all types have a width; otherwise `BATCH_ROWS` is a limit, too
    """
    known = list(types)
    most = rows_max if all(map(has_width, known)) else min(rows_max, BATCH_ROWS)
    return max(1, min(most, int(batch_bytes(limit_bytes) / max(1.0, sum(map(width_bytes, known))))))


class RowsAtOnce:
    """Number of rows to read next when their size is unknown, estimated from the last ones.

    bytes_max   approximate bytes of the rows together
    first_rows  number of rows before anything is known
    """

    def __init__(self, bytes_max: int, first_rows: int) -> None:
        self.num_rows = max(1, first_rows)
        self._bytes_max = bytes_max

    def record(self, num_rows: int, num_bytes: int) -> None:
        """Record the size of the rows read last."""
        if num_rows:
            fitting = self._bytes_max * num_rows // max(1, num_bytes)
            self.num_rows = max(1, min(fitting, num_rows * _ROWS_GROWTH))


def row_bytes(state: DatasetState, types: Iterable[pa.DataType]) -> float:
    """Approximate memory of a row: the larger of the width of these types and twice the mean stored size of a row."""
    num_rows = max(1, int(state.physical_rows.sum()))
    stored = sum(file.size_bytes or 0 for fragment in state.manifest.fragments for file in fragment.files)
    return max(1.0, sum(map(width_bytes, types)), 2 * stored / num_rows)


@dataclass(frozen=True, slots=True)
class ScanBounds:
    """How much a change reads of columns at once.

    batch_size   rows of a batch, as given by the caller; None for as many as the limit allows
    limit_bytes  of the whole change
    """

    batch_size: int | None
    limit_bytes: int

    def options(self, types: Iterable[pa.DataType], *, rows_max: int = UNSEEN_ROWS_MAX) -> dict[str, Any]:
        """Options of a scan for batches of columns of these types, stored or computed.

        rows_max  of a batch, as for `batch_rows`
        """
        bounds = scan_bounds(self.limit_bytes)
        if self.batch_size is not None:  # exact to the row
            return {"batch_size": self.batch_size, "io_buffer_size": bounds["io_buffer_size"]}
        return {"batch_size": batch_rows(types, self.limit_bytes, rows_max=rows_max), **bounds}


def has_width(dtype: pa.DataType) -> bool:
    """Whether all values of a type take the same number of bytes."""
    if isinstance(dtype, pa.BaseExtensionType):
        return has_width(dtype.storage_type)
    if pt.is_struct(dtype):
        return all(has_width(dtype.field(index).type) for index in range(dtype.num_fields))
    if pt.is_fixed_size_list(dtype):
        return has_width(dtype.value_type)
    return bool(pt.is_primitive(dtype) or pt.is_decimal(dtype) or pt.is_fixed_size_binary(dtype) or pt.is_null(dtype))
