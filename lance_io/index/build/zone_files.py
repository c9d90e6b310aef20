"""The file of a ZONEMAP (spec: indices, 3.4): the smallest and the largest value of each zone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io import compute as pc
from lance_io.index.build.index_file import NewIndexFile
from lance_io.index.build.map_bytes import RowMap
from lance_io.index.build.sort_keys import number_keys, sorted_order
from lance_io.index.build.zone_cuts import ZoneCutter, place_columns
from lance_io.index.details import FILES, Kind
from lance_io.levels.arrays import numbers, true_positions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.index.build.index_file import RowArray
    from lance_io.index.build.zone_cuts import Zone

ZONE_ROWS: Final = 8192
_ONLY: Final = numbers(np.zeros(1, np.int64))  # without pandas, which `pyarrow.array` imports


class ZoneMapBuilder:
    """Builds a ZONEMAP. Lists and dictionaries have no bounds, as in pylance's; their nulls are counted.

    zone_rows  live rows of a zone
    """

    def __init__(self, value_type: pa.DataType, zone_rows: int) -> None:
        self._schema = pa.schema(
            [
                pa.field("min", value_type),
                pa.field("max", value_type),
                pa.field("null_count", pa.uint32(), nullable=False),
                pa.field("nan_count", pa.uint32(), nullable=False),
                *(pa.field(name, pa.uint64(), nullable=False) for name in ("fragment_id", "zone_start", "zone_length")),
            ]
        )
        self._type = value_type
        self._zone_rows = zone_rows
        self._bounds = _Bounds(value_type)
        self._cutter = ZoneCutter(zone_rows, lambda values: self._bounds.add(values))
        self._zones: list[Zone] = []
        self._ends: tuple[list[pa.Array], list[pa.Array]] = ([], [])
        self._counts: list[tuple[int, int]] = []
        self._null_rows = RowMap()

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """See `IndexBuilder`."""
        if values.null_count:
            self._null_rows.add(rows[true_positions(values.is_null())])
        for zone in self._cutter.add(values, rows):
            self._note(zone)

    def _note(self, zone: Zone) -> None:
        bounds, self._bounds = self._bounds, _Bounds(self._type)
        for ends, value in zip(self._ends, (bounds.low, bounds.high), strict=True):
            ends.append(value.take(_ONLY))  # a slice would keep its neighbours
        self._counts.append((bounds.num_nulls, bounds.num_nan))
        self._zones.append(zone)

    def files(self) -> Iterator[NewIndexFile]:
        """See `IndexBuilder`."""
        for zone in self._cutter.finish():
            self._note(zone)
        (name,) = FILES[Kind.ZONE_MAP]
        yield NewIndexFile(name, self._schema, self._batches(), self._metadata)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if not self._zones:
            return
        counts = np.array(self._counts, np.uint32)
        columns = [
            *(pa.concat_arrays(ends) for ends in self._ends),
            *(pa.array(counts[:, number]) for number in range(2)),
            *place_columns(self._zones),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _metadata(self) -> dict[str, str | bytes]:
        return {"rows_per_zone": str(self._zone_rows), "null_bitmap": self._null_rows.encode()}

    def close(self) -> None:
        """See `IndexBuilder`."""
        self._ends = ([], [])
        self._zones, self._counts = [], []


class _Bounds:
    """Bounds of the values of one zone, and counts. It keeps none of the memory of the values.

    low, high  the least and the greatest value, one each; null if there is none
    """

    def __init__(self, value_type: pa.DataType) -> None:
        self._is_ordered = not (pt.is_nested(value_type) or pt.is_dictionary(value_type))
        self.low = self.high = pa.nulls(1, value_type)
        self.num_nulls = self.num_nan = 0

    def add(self, values: pa.Array) -> None:
        """Add values of the zone."""
        self.num_nulls += values.null_count
        if self._is_ordered:
            low, high, num_nan = value_bounds(values)
            self.low = value_bounds(pa.concat_arrays([self.low, low]))[0]
            self.high = value_bounds(pa.concat_arrays([self.high, high]))[1]
            self.num_nan += num_nan


def value_bounds(values: pa.Array) -> tuple[pa.Array, pa.Array, int]:
    """The smallest and the largest value, one each, and the number of NaNs.

    NaN is the largest value if there is one, and never the smallest. Both are null if there is no value.
    """
    if pt.is_floating(values.type):
        return _float_bounds(values)
    present = values.drop_null() if values.null_count else values
    if not len(present):
        nothing = pa.nulls(1, values.type)
        return nothing, nothing, 0
    keys = number_keys(present)
    if keys is None:
        order = sorted_order(present)
        low, high = (0, len(present) - 1) if order is None else (int(order[0]), int(order[-1]))
    else:
        low, high = int(keys.argmin()), int(keys.argmax())
    return present.slice(low, 1), present.slice(high, 1), 0


def _float_bounds(values: pa.Array) -> tuple[pa.Array, pa.Array, int]:
    present = values.drop_null() if values.null_count else values
    is_nan = pc.is_nan(present)
    num_nan = int(pc.sum(is_nan).as_py() or 0)
    nothing = pa.nulls(1, values.type)
    known = present.filter(pc.invert(is_nan)) if num_nan else present
    low = high = nothing
    if len(known):
        keys = number_keys(known)
        assert keys is not None
        low, high = known.slice(int(keys.argmin()), 1), known.slice(int(keys.argmax()), 1)
    if num_nan:  # positive, as pylance's, whatever the signs of the zone's
        high = pa.array([math.nan]).cast(values.type)
    return low, high, num_nan
