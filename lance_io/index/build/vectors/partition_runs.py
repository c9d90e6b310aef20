"""Rows by partition, more than fit into memory.

    rows as they come --a share of the limit--> ordered by partition: a run --> local disk
    all runs --partitions that fit together--> the next rows, partition after partition

A run is two ranges of a file, row numbers and row bytes, so that any partitions of it are two reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from lance_io.index.build.vectors.clustering import as_small
from lance_io.limits import MIB
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from lance_io.index.build.index_file import RowArray
    from lance_io.spans import IntArray

    Bytes = npt.NDArray[np.uint8]

GROUP_BYTES: Final = 8 * MIB  # of partitions that are read together
_RUN_SHARE: Final = 5  # of the limit: the rows of a run, the same in order, and those of the next batch
_ROW_BYTES: Final = 8


class ByteStore(Protocol):
    """Keeps bytes outside of memory; `lance_io.changes.join.spill_file` does."""

    def append(self, data: npt.NDArray[Any]) -> int:
        """Append an array; returns the offset of its bytes."""

    def read(self, offset: int, num_bytes: int) -> npt.NDArray[np.uint8]:
        """Bytes at an offset."""

    def close(self) -> None:
        """Free the space."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Rows of consecutive partitions, or a part of the rows of one.

    first   the first partition
    counts  rows of each partition
    rows    row numbers, ordered by partition
    codes   [n, width]
    """

    first: int
    counts: IntArray
    rows: RowArray
    codes: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Rows ordered by partition.

    starts  first row of each partition, and the end
    rows, codes  arrays, or their offsets in the store
    """

    starts: IntArray
    rows: RowArray | int
    codes: Bytes | int


class PartitionRuns:
    """Takes rows, and gives them ordered by partition; those of a partition in the order in which they came.

    store           takes rows that do not fit into memory
    num_partitions  number of partitions
    width           bytes of a row
    limit_bytes     of memory
    """

    def __init__(self, store: ByteStore, num_partitions: int, width: int, limit_bytes: int) -> None:
        self._store = store
        self._num_partitions = num_partitions
        self._width = width
        self._run_bytes = limit_bytes // _RUN_SHARE
        self._held: list[tuple[IntArray, RowArray, Bytes]] = []
        self._held_bytes = 0
        self._runs: list[_Run] = []
        self.lengths: IntArray = np.zeros(num_partitions, np.int64)

    @property
    def num_runs(self) -> int:
        """Number of runs on disk."""
        return len(self._runs)

    def add(self, partitions: IntArray, rows: RowArray, codes: Bytes) -> None:
        """Take rows: the partition, the number and the bytes of each."""
        if not len(rows):
            return
        self.lengths += np.bincount(partitions, minlength=self._num_partitions)
        self._held.append((partitions, rows, codes))
        self._held_bytes += len(rows) * (2 * _ROW_BYTES + self._width)
        if self._held_bytes > self._run_bytes:
            run = self._sorted_run()
            assert isinstance(run.rows, np.ndarray) and isinstance(run.codes, np.ndarray), "a run in memory"
            self._runs.append(_Run(run.starts, self._store.append(run.rows), self._store.append(run.codes)))

    def _sorted_run(self) -> _Run:
        partitions = np.concatenate([held[0] for held in self._held])
        rows = np.concatenate([held[1] for held in self._held])
        codes = np.concatenate([held[2] for held in self._held])
        self._held, self._held_bytes = [], 0
        order = np.argsort(as_small(partitions, self._num_partitions), kind="stable")
        counts = np.bincount(partitions, minlength=self._num_partitions)
        return _Run(np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))), rows[order], codes[order])

    def groups(self, group_bytes: int = GROUP_BYTES, *, whole: bool) -> Iterator[Group]:
        """All rows, partition after partition. To be called once.

        whole  whether the rows of a partition stay in one group; else a large partition comes in parts
        """
        runs = self._runs if not self._held else [*self._runs, self._sorted_run()]
        for first, last in self._bounds(group_bytes):
            if last - first > 1 or whole or self.lengths[first] * (self._width + _ROW_BYTES) <= group_bytes:
                yield self._joined(runs, first, last)
            else:
                yield from self._parts(runs, first, group_bytes)

    def _bounds(self, group_bytes: int) -> Iterator[tuple[int, int]]:
        """Consecutive partitions that fit together; at least one."""
        first, held = 0, 0
        for number, length in enumerate(self.lengths.tolist()):
            num_bytes = length * (self._width + _ROW_BYTES)
            if number > first and held + num_bytes > group_bytes:
                yield first, number
                first, held = number, 0
            held += num_bytes
        if held:
            yield first, self._num_partitions

    def _joined(self, runs: Sequence[_Run], first: int, last: int) -> Group:
        bounds = [(run, int(run.starts[first]), int(run.starts[last])) for run in runs]
        parts = [self._load(run, start, end) for run, start, end in bounds if end > start]
        numbers = [
            np.repeat(np.arange(last - first), np.diff(run.starts[first : last + 1]))
            for run, start, end in bounds
            if end > start
        ]
        rows, codes = _concatenated([part[0] for part in parts]), _concatenated([part[1] for part in parts])
        if len(parts) > 1:
            order = np.argsort(as_small(np.concatenate(numbers), last - first), kind="stable")
            rows, codes = rows[order], codes[order]
        return Group(first, self.lengths[first:last], rows, codes)

    def _parts(self, runs: Sequence[_Run], partition: int, group_bytes: int) -> Iterator[Group]:
        step = max(1, group_bytes // (self._width + _ROW_BYTES))
        for run in runs:
            end = int(run.starts[partition + 1])
            for start in range(int(run.starts[partition]), end, step):
                rows, codes = self._load(run, start, min(end, start + step))
                yield Group(partition, np.array([len(rows)]), rows, codes)

    def _load(self, run: _Run, start: int, end: int) -> tuple[RowArray, Bytes]:
        rows, codes, width = run.rows, run.codes, self._width
        if isinstance(rows, np.ndarray) and isinstance(codes, np.ndarray):
            return rows[start:end], codes[start:end]
        assert isinstance(rows, int) and isinstance(codes, int), "a run on disk"
        numbers = self._store.read(rows + start * _ROW_BYTES, (end - start) * _ROW_BYTES).view(np.uint64)
        stored = self._store.read(codes + start * width, (end - start) * width)
        return numbers, stored.reshape(end - start, width)

    def close(self) -> None:
        """Free memory and local disk."""
        self._held, self._runs = [], []
        self._store.close()


def _concatenated(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
