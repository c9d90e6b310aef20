"""The first rows of a part in an order: sort keys of all its rows are read, other columns of the first ones only.

The order is that of Spark and of SQL: one NaN, above all other floats. Of equal rows any may be among the first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io import compute as pc
from lance_io.dataset.distributed import read_part as reading
from lance_io.dataset.distributed.named_rows import pack_rows
from lance_io.filters.value_order import sortable
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS
from lance_io.reads.version.system_columns import ROW_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from lance_io.dataset.distributed.scan_request import ScanPart, SortKey
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.dataset.distributed.table_scan import TableScan
    from lance_io.spans import IntArray


def read_top(
    scan: TableScan, key_scan: TableScan, table: TablePlace, part: ScanPart, how: Mapping[str, Any]
) -> Generator[pa.RecordBatch, None, None]:
    """The first rows of a part, in the order of the table; see `TableVersion.scan`.

    how  further arguments of `read_part`
    """
    request = scan.request
    best: pa.Table | None = None
    keys = reading.read_part(key_scan, scan.state(table, part), part, **how, first_rows=0, skip_rows=0)
    for batch in keys:
        rows = pa.Table.from_batches([batch])
        best = first_rows(rows if best is None else pa.concat_tables([best, rows]), request.order, request.limit)
    if best is None or not best.num_rows:
        return
    addresses = np.sort(best.column(ROW_ADDRESS).to_numpy().astype(np.int64))
    rest = replace(scan, request=replace(request, filter=None, limit=None, order=()), key_scan=None)
    chosen = _part_of(part, addresses)
    yield from reading.read_part(rest, rest.state(table, chosen), chosen, **how, first_rows=0, skip_rows=0)


def first_rows(table: pa.Table, order: Sequence[SortKey], limit: int | None) -> pa.Table:
    """The first rows of a table of sort keys, which are called by their dotted paths."""
    keys: dict[str, Any] = {}
    sort_keys = []
    for path, ascends, nulls_first in order:
        name = ".".join(path)
        if name in keys:
            continue  # it decides nothing a second time
        keys[name] = sortable(_one_nan(table.column(name)), nulls_below=nulls_first is ascends)
        sort_keys.append((name, "ascending" if ascends else "descending", "at_start" if nulls_first else "at_end"))
    return table.take(pc.sort_indices(pa.table(keys), sort_keys=sort_keys).slice(0, limit)).combine_chunks()


def _one_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose NaNs all have the greatest bits."""
    if not pa.types.is_floating(column.type):
        return column
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)


def _part_of(part: ScanPart, addresses: IntArray) -> ScanPart:
    """The part with only the rows at some addresses, which ascend."""
    by_fragment = {
        int(rows[0] >> OFFSET_BITS): rows & ((1 << OFFSET_BITS) - 1)
        for rows in np.split(addresses, np.flatnonzero(np.diff(addresses >> OFFSET_BITS)) + 1)
    }
    kept = [number for number, (fragment_id, _, _) in enumerate(part.ranges) if fragment_id in by_fragment]
    offsets = [by_fragment[part.ranges[number][0]] for number in kept]
    return replace(
        part,
        ranges=tuple(
            (part.ranges[number][0], int(rows[0]), int(rows[-1] + 1 - rows[0]))
            for number, rows in zip(kept, offsets, strict=True)
        ),
        fragments=tuple(part.fragments[number] for number in kept),
        named=tuple(pack_rows(np.stack([rows, rows + 1], axis=1)) for rows in offsets),
        is_exact=True,
    )
