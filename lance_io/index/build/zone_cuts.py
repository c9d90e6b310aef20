"""Zones: runs of rows of one fragment, closed after a number of live rows (spec: indices, 2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_io.levels.arrays import numbers
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lance_io.index.build.index_file import RowArray

_OFFSET_BITS = 32


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone: the offsets that it spans, deleted rows in between included."""

    fragment_id: int
    start: int
    length: int


class ZoneCutter:
    """Cuts rows in the order of their addresses into zones.

    zone_rows  live rows of a full zone
    look       gets the values of the open zone, piece by piece; nothing else keeps them, as a zone may be large
    """

    def __init__(self, zone_rows: int, look: Callable[[pa.Array], object]) -> None:
        self._zone_rows = zone_rows
        self._look = look
        self._num_rows = 0
        self._first = self._last = 0  # addresses of the open zone

    def add(self, values: pa.Array, addresses: RowArray) -> Iterator[Zone]:
        """Take rows; gives the zones that they complete."""
        fragments = addresses >> np.uint64(_OFFSET_BITS)
        borders = [*(np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist(), len(addresses)]
        start = 0
        for border in borders:
            while start < border:
                if self._num_rows and int(addresses[start]) >> _OFFSET_BITS != self._last >> _OFFSET_BITS:
                    yield self._close()
                end = min(border, start + self._zone_rows - self._num_rows)
                if not self._num_rows:
                    self._first = int(addresses[start])
                self._look(values.slice(start, end - start))
                self._num_rows += end - start
                self._last = int(addresses[end - 1])
                start = end
                if self._num_rows == self._zone_rows:
                    yield self._close()

    def finish(self) -> Iterator[Zone]:
        """The last zone, after all rows."""
        if self._num_rows:
            yield self._close()

    def _close(self) -> Zone:
        self._num_rows = 0
        start = self._first & ((1 << _OFFSET_BITS) - 1)
        return Zone(self._first >> _OFFSET_BITS, start, self._last - self._first + 1)


def place_columns(zones: Sequence[Zone]) -> list[pa.Array]:
    """The columns `fragment_id`, `zone_start` and `zone_length`."""
    places = np.array([(zone.fragment_id, zone.start, zone.length) for zone in zones], np.uint64).reshape(-1, 3)
    return [numbers(np.ascontiguousarray(places[:, number])) for number in range(3)]
