"""Record batches that spill to local disk. All functions block; plans call them with `Compute`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.changes.join.spill_file import SpillFile
from lance_io.levels.arrays import numbers
from lance_io.levels.join import join_rows
from lance_io.levels.retype import as_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.spans import IntArray

BUCKETS_MAX: Final = 256  # with more buckets single writes would become too small


class SpilledBatches:
    """Record batches of one schema in a file; each is an Arrow IPC stream and can be read separately."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._file = SpillFile()
        self._ranges: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._ranges)

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch. Raises `OperationError` if the disk is full or fails."""
        self._schema = batch.schema
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data = np.frombuffer(sink.getvalue(), np.uint8)
        self._ranges.append((self._file.append(data), len(data)))

    def get(self, number: int) -> pa.RecordBatch:
        """A batch, by its number."""
        data = self._file.read(*self._ranges[number])
        return self._with_types(pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch())

    def _with_types(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its original types: IPC returns unregistered extension types as their storage types.

        If two libraries have types of the same name, IPC returns the registered one.
        """
        assert self._schema is not None
        if batch.schema.types == self._schema.types:
            return batch
        arrays = [as_type(column, dtype) for column, dtype in zip(batch.columns, self._schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def close(self) -> None:
        """Free the space on disk."""
        self._file.close()
        self._ranges = []


class Buckets:
    """Rows in buckets; buckets are taken out one by one.

    num_buckets   at most `BUCKETS_MAX`
    memory_bytes  limit for rows in memory; above it, all rows go to local disk
    """

    def __init__(self, num_buckets: int, memory_bytes: int) -> None:
        self.num_buckets = num_buckets
        self._memory_bytes = memory_bytes
        self._held: list[list[pa.RecordBatch]] = [[] for _ in range(num_buckets)]
        self._held_bytes = 0
        self._spilled = SpilledBatches()
        self._spilled_numbers: list[list[int]] = [[] for _ in range(num_buckets)]  # of each bucket's batches on disk

    @property
    def is_spilled(self) -> bool:
        """Whether rows went to local disk."""
        return len(self._spilled) > 0

    def add(self, batch: pa.RecordBatch, buckets: IntArray) -> None:
        """Add rows. buckets: of each row, i64[n]."""
        if not batch.num_rows:
            return
        if self.num_buckets == 1:
            self._held[0].append(batch)
        else:
            order = np.argsort(buckets, kind="stable")
            ordered = batch.take(numbers(order))
            bounds = np.searchsorted(buckets[order], np.arange(self.num_buckets + 1)).tolist()
            for bucket, held in enumerate(self._held):
                if bounds[bucket] < bounds[bucket + 1]:
                    held.append(ordered.slice(bounds[bucket], bounds[bucket + 1] - bounds[bucket]))
        self._held_bytes += batch.nbytes
        if self._held_bytes > self._memory_bytes:
            self._spill()

    def _spill(self) -> None:
        for held, spilled_numbers in zip(self._held, self._spilled_numbers, strict=True):
            if held:
                for batch in join_rows(held):
                    spilled_numbers.append(len(self._spilled))
                    self._spilled.add(batch)
                held.clear()
        self._held_bytes = 0

    def take(self, bucket: int) -> Iterator[pa.RecordBatch]:
        """Take out the rows of a bucket, in the order of `add`."""
        for number in self._spilled_numbers[bucket]:
            yield self._spilled.get(number)
        held, self._held[bucket] = self._held[bucket], []
        yield from held

    def close(self) -> None:
        """Free memory and local disk."""
        self._spilled.close()
        self._held = [[] for _ in self._held]
