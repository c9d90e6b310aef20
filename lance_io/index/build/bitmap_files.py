"""The file of a BITMAP (spec: indices, 3.2): each distinct value with the bitmap of its rows, ascending.

LABEL_LIST and NGRAM have such a file over items and trigrams. Pairs of a value and a row come sorted; a key whose rows
are not complete is carried on in containers, so that one frequent value takes little memory.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.index.build.index_file import NewIndexFile
from lance_io.index.build.label_items import LabelItems
from lance_io.index.build.map_bytes import RowMap, containers_of, encode_maps, join_containers
from lance_io.index.build.row_sorter import RowSorter
from lance_io.index.build.sort_keys import Comparable, changes, take
from lance_io.index.build.trigrams import trigrams
from lance_io.index.details import FILES, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lance_io.index.build.index_file import RowArray, RunStore
    from lance_io.index.build.map_bytes import Containers
    from lance_io.index.build.row_sorter import Pairs
    from lance_io.spans import IntArray

_UNCOMPRESSED: Final = {b"lance-encoding:compression": b"none"}


class BitmapBuilder:
    """Builds a BITMAP; parameters as for `RowSorter`."""

    def __init__(self, value_type: pa.DataType, store: RunStore, limit_bytes: int) -> None:
        self._type = value_type
        self._sorter = RowSorter(value_type, store, limit_bytes)

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """See `IndexBuilder`."""
        self._sorter.add(values, rows)

    def files(self) -> Iterator[NewIndexFile]:
        """See `IndexBuilder`."""
        return bitmap_files(self._type, self._sorter.sorted(), dict)

    def close(self) -> None:
        """See `IndexBuilder`."""
        self._sorter.close()


class LabelListBuilder:
    """Builds a LABEL_LIST: a BITMAP over the items of lists, and the rows whose list is null.

    value_type  of the lists; the other parameters are as for `RowSorter`
    """

    def __init__(self, value_type: pa.DataType, store: RunStore, limit_bytes: int) -> None:
        self._type = value_type.value_type
        self._sorter = RowSorter(self._type, store, limit_bytes)
        self._labels = LabelItems()
        self._null_rows = RowMap()

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """See `IndexBuilder`."""
        items, item_rows, null_rows = self._labels.split(values, rows)
        self._null_rows.add(null_rows)
        self._sorter.add(items, item_rows)

    def files(self) -> Iterator[NewIndexFile]:
        """See `IndexBuilder`."""
        return bitmap_files(
            self._type, self._sorter.sorted(), lambda: {"lance:label_list_nulls": self._null_rows.encode()}
        )

    def close(self) -> None:
        """See `IndexBuilder`."""
        self._sorter.close()


class NgramBuilder:
    """Builds an NGRAM: a bitmap over the trigrams of texts (spec: indices, 3.6); parameters as for `RowSorter`."""

    def __init__(self, store: RunStore, limit_bytes: int) -> None:
        self._sorter = RowSorter(pa.uint32(), store, limit_bytes)

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """See `IndexBuilder`."""
        for tokens, positions in trigrams(values):
            self._sorter.add(tokens, rows[positions])

    def files(self) -> Iterator[NewIndexFile]:
        """See `IndexBuilder`."""
        return ngram_files(self._sorter.sorted())

    def close(self) -> None:
        """See `IndexBuilder`."""
        self._sorter.close()


def bitmap_files(
    value_type: pa.DataType, pairs: Iterator[Pairs], metadata: Callable[[], Mapping[str, str | bytes]]
) -> Iterator[NewIndexFile]:
    """The file of sorted pairs. metadata: returns more metadata, after all pairs."""
    schema = pa.schema([pa.field("keys", value_type), pa.field("bitmaps", pa.binary())])
    bitmaps = _Bitmaps(schema, sized=True)

    def described() -> dict[str, str | bytes]:
        return {**metadata(), "lance:index_stats": json.dumps({"num_bitmaps": bitmaps.num_keys}, separators=(",", ":"))}

    (name,) = FILES[Kind.BITMAP]
    yield NewIndexFile(name, schema, bitmaps.batches(pairs), described)


def ngram_files(pairs: Iterator[Pairs]) -> Iterator[NewIndexFile]:
    """The file of sorted pairs of a trigram and a row."""
    schema = pa.schema(
        [
            pa.field("tokens", pa.uint32()),
            pa.field("posting_list", pa.binary(), nullable=False, metadata=_UNCOMPRESSED),
        ]
    )
    (name,) = FILES[Kind.NGRAM]
    yield NewIndexFile(name, schema, _Bitmaps(schema, sized=False).batches(pairs), dict)


class _Bitmaps:
    """Keys and their bitmaps, from sorted pairs.

    sized  as for `encode_maps`
    """

    def __init__(self, schema: pa.Schema, *, sized: bool) -> None:
        self._schema = schema
        self._sized = sized
        self.num_keys = 0
        self._open: list[pa.Array] = []  # at most one: the key that may get more rows
        self._held: list[Containers] = []  # its containers
        self._rest = np.empty(0, np.uint64)  # its last rows, whose container may get more rows

    def batches(self, pairs: Iterator[Pairs]) -> Iterator[pa.RecordBatch]:
        """The batches of the file."""
        for values, rows in pairs:
            batch = self._add(values, rows) if len(values) else None
            if batch is not None:
                yield batch
        if self._open:
            rest = containers_of(self._rest, np.zeros(len(self._rest), np.int64))
            held, self._held = self._held, []
            yield self._batch(self._open, join_containers([*held, rest]))

    def _add(self, values: pa.Array, rows: RowArray) -> pa.RecordBatch | None:
        """Take sorted pairs; returns the keys that are complete."""
        starts = np.flatnonzero(np.r_[True, changes(values)])
        goes_on = bool(self._open) and Comparable(self._open[0])[0] == Comparable(values.slice(0, 1))[0]
        known = [*self._open, take(values, starts[goes_on:])]
        keys = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values))) + (len(self._open) - goes_on)
        rows = np.concatenate((self._rest, rows))
        rows, keys = _distinct(rows, np.concatenate((np.zeros(len(self._rest), np.int64), keys)))
        last_key = int(keys[-1])
        highs = rows >> np.uint64(16)
        is_rest = (keys == last_key) & (highs == highs[-1])
        num_done = len(rows) - int(is_rest.sum())
        containers = join_containers([*self._held, containers_of(rows[:num_done], keys[:num_done])])
        complete, held = containers.split(int(np.searchsorted(containers.keys, last_key)))
        self._held = [replace(held, keys=np.zeros(len(held), np.int64))]
        self._rest = rows[num_done:]
        values = pa.concat_arrays(known)
        self._open = [values.slice(last_key)]
        return self._batch([values.slice(0, last_key)], complete) if last_key else None

    def _batch(self, keys: list[pa.Array], containers: Containers) -> pa.RecordBatch:
        self.num_keys += len(keys[0])
        return pa.RecordBatch.from_arrays([keys[0], encode_maps(containers, sized=self._sized)], schema=self._schema)


def _distinct(rows: RowArray, keys: IntArray) -> tuple[RowArray, IntArray]:
    """Pairs of a row and a key, each once; equal ones are adjacent."""
    differs = np.r_[True, (rows[1:] != rows[:-1]) | (keys[1:] != keys[:-1])]
    return (rows, keys) if differs.all() else (rows[differs], keys[differs])
