"""Memory limits of operations that change a table: the parameter `memory_limit`, in bytes.

The limit bounds the data that a change holds itself: queued rows, hash tables of keys, prefetched bytes. Data beyond
the limit is written to temporary files on local disk. The interpreter, the page buffers of the file writer and the
caller's data do not count.
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
MEMORY_LIMIT_BYTES_MIN: Final = 16 * MIB  # below this limit, the overhead of each batch dominates
INTERNAL_BATCH_ROWS_MAX: Final = 1 << 16  # more than BATCH_ROWS, for batches that the caller's code never receives
_BATCH_DIVISOR: Final = 32  # a batch takes this fraction of the limit: 1/32
_READAHEAD_DIVISOR: Final = 8  # readahead takes this fraction of the limit: 1/8
_GROWTH_FACTOR_MAX: Final = 32  # growth of the number of rows from one read to the next


def check_memory_limit(memory_limit: int | None) -> int:
    """The limit in bytes; None for the default.

    Raises `TypeError` for a value that is not an integer, `UsageError` for a value that is too small.
    """
    if memory_limit is None:
        return MEMORY_LIMIT_BYTES
    num_bytes = operator.index(memory_limit)
    if num_bytes < MEMORY_LIMIT_BYTES_MIN:
        raise UsageError(f"memory_limit must be at least {MEMORY_LIMIT_BYTES_MIN:,} bytes, got {num_bytes:,}")
    return num_bytes


def limit_of(state: DatasetState, memory_limit: int | None) -> int:
    """The limit in bytes: the argument of the call, else the option of the open table, else the default.

    Raises the errors of `check_memory_limit`.
    """
    return check_memory_limit(state.memory_limit if memory_limit is None else memory_limit)


def batch_bytes(limit_bytes: int) -> int:
    """Maximum bytes of a batch: small enough that a change with this limit can hold several batches."""
    return limit_bytes // _BATCH_DIVISOR


def scan_memory_options(limit_bytes: int) -> dict[str, Any]:
    """Options that bound the memory of a scan within a change: bytes of readahead, and bytes of a batch."""
    return {
        "io_buffer_size": min(IO_BUFFER_BYTES, limit_bytes // _READAHEAD_DIVISOR),
        "batch_size_bytes": batch_bytes(limit_bytes),
    }


def batch_rows(types: Iterable[pa.DataType], limit_bytes: int, *, rows_max: int = BATCH_ROWS) -> int:
    """Maximum number of rows of a batch, such that the batch takes about `batch_bytes(limit_bytes)`.

    types     types of all columns, stored and computed
    rows_max  upper bound of the result. If a type has values of different sizes, such as text, rows may take more bytes
              than estimated: the result is then at most `BATCH_ROWS`, even if `rows_max` is larger
    """
    column_types = list(types)
    bound = rows_max if all(map(has_fixed_width, column_types)) else min(rows_max, BATCH_ROWS)
    return max(1, min(bound, int(batch_bytes(limit_bytes) / max(1.0, sum(map(width_bytes, column_types))))))


class RowsAtOnce:
    """The number of rows to read next (`num_rows`), estimated from the size of the rows that were read last.

    bytes_max   bytes that the next rows may take together; approximate, because their size is not known in advance
    first_rows  number of rows of the first read
    """

    def __init__(self, bytes_max: int, first_rows: int) -> None:
        self.num_rows = max(1, first_rows)
        self._bytes_max = bytes_max

    def record(self, num_rows: int, num_bytes: int) -> None:
        """Record the size of the rows read last."""
        if num_rows:
            fitting_rows = self._bytes_max * num_rows // max(1, num_bytes)
            self.num_rows = max(1, min(fitting_rows, num_rows * _GROWTH_FACTOR_MAX))


def row_bytes(state: DatasetState, types: Iterable[pa.DataType]) -> float:
    """Approximate bytes of a row in memory, at least 1.

    This is the larger of two estimates: the width of the types, and twice the mean size of a row in the data files.
    """
    num_rows = max(1, int(state.physical_rows.sum()))
    stored_bytes = sum(file.size_bytes or 0 for fragment in state.manifest.fragments for file in fragment.files)
    return max(1.0, sum(map(width_bytes, types)), 2 * stored_bytes / num_rows)


@dataclass(frozen=True, slots=True)
class ScanBounds:
    """Bounds of the scan of a change: rows of a batch, and bytes of memory.

    batch_size   exact number of rows of a batch, from the caller; None for as many rows as the limit allows
    limit_bytes  memory limit of the whole change, in bytes
    """

    batch_size: int | None
    limit_bytes: int

    def options(self, types: Iterable[pa.DataType], *, rows_max: int = INTERNAL_BATCH_ROWS_MAX) -> dict[str, Any]:
        """Options of a scan whose batches have columns of these types; parameters as for `batch_rows`."""
        memory_options = scan_memory_options(self.limit_bytes)
        if self.batch_size is not None:
            return {"batch_size": self.batch_size, "io_buffer_size": memory_options["io_buffer_size"]}
        return {"batch_size": batch_rows(types, self.limit_bytes, rows_max=rows_max), **memory_options}


def has_fixed_width(dtype: pa.DataType) -> bool:
    """Whether all values of a type take the same number of bytes."""
    if isinstance(dtype, pa.BaseExtensionType):
        return has_fixed_width(dtype.storage_type)
    if pt.is_struct(dtype):
        return all(has_fixed_width(dtype.field(index).type) for index in range(dtype.num_fields))
    if pt.is_fixed_size_list(dtype):
        return has_fixed_width(dtype.value_type)
    return bool(pt.is_primitive(dtype) or pt.is_decimal(dtype) or pt.is_fixed_size_binary(dtype) or pt.is_null(dtype))
