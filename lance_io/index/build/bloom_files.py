"""The file of a BLOOMFILTER (spec: indices, 3.5): a Bloom filter of the values of each zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.index.build.bloom_blocks import filter_bytes, filter_of, value_hashes
from lance_io.index.build.index_file import NewIndexFile
from lance_io.index.build.map_bytes import RowMap
from lance_io.index.build.zone_cuts import ZoneCutter, place_columns
from lance_io.index.details import FILES, Kind
from lance_io.levels.arrays import booleans, true_positions
from lance_io.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.index.build.bloom_blocks import Hashes
    from lance_io.index.build.index_file import RowArray, RunStore
    from lance_io.index.build.zone_cuts import Zone

ITEMS: Final = 8192
PROBABILITY: Final = 0.00057
_BATCH_BYTES: Final = 4 * MIB
_HASH_BYTES: Final = 8
_HASHES_MAX: Final = 1 << 17  # that wait for a filter; for a larger filter as many as take its bytes


class BloomFilterBuilder:
    """Builds a BLOOMFILTER, zone by zone. Finished filters wait in the store until the file is written.

    num_items    live rows of a zone, for which a filter is made
    probability  of a false positive in a full zone
    store        takes the filters
    """

    def __init__(self, num_items: int, probability: float, store: RunStore) -> None:
        places = [pa.field(name, pa.uint64(), nullable=False) for name in ("fragment_id", "zone_start", "zone_length")]
        self._schema = pa.schema(
            [
                *places,
                pa.field("has_null", pa.bool_(), nullable=False),
                pa.field("bloom_filter_data", pa.binary(), nullable=False),
            ]
        )
        self._num_items = num_items
        self._probability = probability
        self._num_bytes = filter_bytes(num_items, probability)
        self._cutter = ZoneCutter(num_items, self._hash)
        self._hashes: list[Hashes] = []  # of values of the open zone
        self._num_hashes = self._num_nulls = 0
        self._filter = np.zeros(0, np.uint8)  # of its earlier values
        self._zones: list[Zone] = []
        self._has_null: list[bool] = []
        self._filters: list[bytes] = []
        self._batch_zones = max(1, _BATCH_BYTES // self._num_bytes)
        self._store = store
        self._null_rows = RowMap()

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """See `IndexBuilder`."""
        if values.null_count:
            self._null_rows.add(rows[true_positions(values.is_null())])
        for zone in self._cutter.add(values, rows):
            self._note(zone)

    def _hash(self, values: pa.Array) -> None:
        """Take values of the open zone. Those of a large zone go into its filter now and then."""
        present = values.drop_null() if values.null_count else values
        self._num_nulls += values.null_count
        self._hashes.append(value_hashes(present))
        self._num_hashes += len(present)
        if self._num_hashes > max(_HASHES_MAX, self._num_bytes // _HASH_BYTES):
            self._fill()

    def _fill(self) -> None:
        if not self._hashes:  # the last values have just gone into the filter
            return
        bits = np.frombuffer(filter_of(np.concatenate(self._hashes), self._num_bytes), np.uint8)
        self._filter = bits | self._filter if len(self._filter) else bits
        self._hashes, self._num_hashes = [], 0

    def _note(self, zone: Zone) -> None:
        self._fill()
        self._filters.append(self._filter.tobytes())
        self._has_null.append(self._num_nulls > 0)
        self._filter, self._num_nulls = self._filter[:0], 0
        self._zones.append(zone)
        if len(self._zones) >= self._batch_zones:
            self._store.add(self._take_batch())

    def _take_batch(self) -> pa.RecordBatch:
        columns = [
            *place_columns(self._zones),
            booleans(np.array(self._has_null, np.bool_)),
            pa.array(self._filters, pa.binary()),
        ]
        self._zones, self._has_null, self._filters = [], [], []
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def files(self) -> Iterator[NewIndexFile]:
        """See `IndexBuilder`."""
        for zone in self._cutter.finish():
            self._note(zone)
        (name,) = FILES[Kind.BLOOM_FILTER]
        yield NewIndexFile(name, self._schema, self._batches(), self._metadata)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for number in range(len(self._store)):
            yield pa.RecordBatch.from_arrays(self._store.get(number).columns, schema=self._schema)
        if self._zones:
            yield self._take_batch()

    def _metadata(self) -> dict[str, str | bytes]:
        return {
            "bloomfilter_item": str(self._num_items),
            "bloomfilter_probability": str(self._probability),
            "null_bitmap": self._null_rows.encode(),
        }

    def close(self) -> None:
        """See `IndexBuilder`."""
        self._zones, self._filters, self._has_null, self._hashes = [], [], [], []
        self._store.close()
