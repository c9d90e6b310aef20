"""Dynamic overwrites: the distinct values of some columns, and the rows of a table that have them.

Values are compared as Arrow groups them: a null equals a null. A task keeps its distinct values only, and so does the
driver, which reads these columns of the table once.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import UnsupportedError
from lance_io.spark.options import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_io.dataset.distributed import TableVersion

KEYS_MAX: Final = 1_000_000  # distinct values that are held; a daily load has a few
ROW_ADDRESS: Final = "_rowaddr"


class Keys:
    """Distinct rows of some columns."""

    def __init__(self) -> None:
        self._table: pa.Table | None = None

    def add(self, rows: pa.Table) -> None:
        """Add rows. Raises `UnsupportedError` for too many distinct ones."""
        rows = _decoded(rows)
        both = rows if self._table is None else pa.concat_tables([self._table, rows])
        self._table = both.group_by(both.schema.names).aggregate([]).select(both.schema.names)
        if self._table.num_rows > KEYS_MAX:
            raise UnsupportedError(
                f"a dynamic overwrite of more than {KEYS_MAX} distinct values of {', '.join(rows.schema.names)}: "
                "choose columns with fewer in lance.overwrite.columns, or use MERGE"
            )

    def add_stream(self, stream: bytes) -> None:
        """Add rows that `to_stream` has packed."""
        self.add(pa.ipc.open_stream(stream).read_all())

    def to_stream(self) -> bytes | None:
        """The rows as an Arrow stream; None if there are none."""
        if self._table is None:
            return None
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_table(self._table)
        return sink.getvalue()

    def values(self) -> set[tuple[Any, ...]]:
        """The rows as tuples."""
        return set() if self._table is None else set(_tuples(self._table))


def _decoded(rows: pa.Table) -> pa.Table:
    """The rows without dictionaries, of which each batch may have its own."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(index, field.name, rows.column(index).cast(field.type.value_type))
    return rows


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [_plain(column).to_pylist() for column in table.columns]
    return [tuple(map(_comparable, row)) for row in zip(*columns, strict=True)]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments as numbers of their unit: Python has no years after 9999."""
    if not pa.types.is_temporal(column.type):
        return column
    dtype = pa.type_for_alias(f"int{column.type.bit_width}")
    return pa.chunked_array([chunk.view(dtype) for chunk in column.chunks], dtype)


def _comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value


def replaced_rows(version: TableVersion, columns: Sequence[str], keys: Keys) -> dict[int, npt.NDArray[np.uint32]]:
    """Offsets of the rows whose values of some columns are among the keys, ascending, by fragment id."""
    wanted = keys.values()
    if not wanted:
        return {}
    scan = version.scan(columns=[(name,) for name in columns], with_row_address=True)
    addresses: list[npt.NDArray[np.int64]] = []
    for part in version.parts(scan, part_bytes=1 << 30):
        for batch in scan.read(version.place, part, batch_bytes=BATCH_BYTES):
            rows = _decoded(pa.table(batch))
            grouped = rows.group_by(list(columns)).aggregate([(ROW_ADDRESS, "list")])
            lists = grouped.column(f"{ROW_ADDRESS}_list").combine_chunks()
            for position, row in enumerate(_tuples(grouped.select(list(columns)))):
                if row in wanted:
                    addresses.append(lists[position].values.to_numpy(zero_copy_only=False).astype(np.int64))
    if not addresses:
        return {}
    joined = np.sort(np.concatenate(addresses))
    fragments, starts = np.unique(joined >> 32, return_index=True)
    parts = np.split((joined & 0xFFFFFFFF).astype(np.uint32), starts[1:])
    return {int(fragment): offsets for fragment, offsets in zip(fragments, parts, strict=True)}
