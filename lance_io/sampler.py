"""Rows for training: random samples of a table, and shards for distributed processes. Names are those of pylance.

    for batch in ShardedFragmentSampler(rank, world_size, randomize=True)(dataset, batch_size=256): ...

Call a sampler with a dataset to get record batches. In the first epoch the order for a seed is that of pylance; each
later epoch has another order, while pylance repeats the first one.
"""

from __future__ import annotations

import random
import warnings
from abc import ABC, abstractmethod
from math import ceil
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import pyarrow as pa

from lance_io.dataset.open_dataset import dataset as open_dataset
from lance_io.errors import UsageError
from lance_io.levels.join import join_rows
from lance_io.plans.streams import SharedItems, shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_io.dataset.fragment import LanceFragment
    from lance_io.dataset.lance_dataset import LanceDataset

    Columns = list[str] | dict[str, str] | None
    Source = str | PathLike[str] | LanceDataset

__all__ = ["FragmentSampler", "FullScanSampler", "Sampler", "ShardedBatchIterator", "ShardedBatchSampler"]
__all__ += ["ShardedFixedBatchSampler", "ShardedFragmentSampler", "maybe_sample", "reservoir_sampling"]

T = TypeVar("T")

_SHUFFLED_BATCHES_MAX: Final = 256  # batches of a filtered scan that are held for shuffling


def _opened(source: Source) -> LanceDataset:
    return open_dataset(source) if isinstance(source, (str, PathLike)) else source


# -- samples -----------------------------------------------------------------------------------------------------------


def reservoir_sampling(stream: Iterable[T], k: int) -> list[T]:
    """Choose items of a stream at random; each set of `k` items has the same probability.

    Args:
        stream: The items; only `k` are held in memory.
        k: Number of items to choose.

    Returns:
        The chosen items in random order; all, if there are fewer than `k`.
    """
    kept: list[T] = []
    for number, item in enumerate(stream):
        if number < k:
            kept.append(item)
        elif (slot := random.randrange(number + 1)) < k:
            kept[slot] = item
    random.shuffle(kept)
    return kept


@shared
def maybe_sample(
    dataset: Source,
    n: int,
    columns: list[str] | dict[str, str] | str,
    batch_size: int = 10240,
    max_takes: int = 2048,
    filt: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Choose rows at random; all rows if the table has no more than `n`.

    Args:
        dataset: The table or its URI.
        n: Number of rows.
        columns: Column names, a single name, or expressions by name.
        batch_size: Rows in a batch; the last one may have fewer.
        max_takes: If `n` is larger, choose this many runs of consecutive rows, one from each part of the table.
        filt: Filter that the rows must pass; None for all rows.

    Yields:
        Batches with `n` rows in total, or fewer.

    Raises:
        ValueError: `n` is negative.
    """
    if n < 0:
        raise UsageError(f"the number of rows is at least 0, not {n}")
    table = _opened(dataset)
    wanted = [columns] if isinstance(columns, str) else columns
    if filt is not None:
        yield from _sample_filtered(table, n, wanted, batch_size, filt)
        return
    num_rows = table.count_rows()
    if n >= num_rows:
        yield from table.to_batches(columns=wanted, batch_size=batch_size)
        return
    if n <= max_takes:
        chosen = random.sample(range(num_rows), n)
    else:
        chosen = [row for start, size in _runs(num_rows, n, max_takes) for row in range(start, start + size)]
    for start in range(0, n, batch_size):
        yield from _as_one_batch(table.take(chosen[start : start + batch_size], wanted))


def _runs(num_rows: int, n: int, num_runs: int) -> Iterator[tuple[int, int]]:
    """Runs of consecutive rows, as (first row, rows): one at a random position in each of `num_runs` equal parts."""
    for part in range(num_runs):
        first, last = num_rows * part // num_runs, num_rows * (part + 1) // num_runs
        size = n * (part + 1) // num_runs - n * part // num_runs
        size = min(size, last - first)
        yield random.randint(first, last - size), size


def _sample_filtered(
    table: LanceDataset, n: int, columns: Columns, batch_size: int, filt: str
) -> Iterator[pa.RecordBatch]:
    passing = table.to_batches(columns=[], filter=filt, with_row_id=True)
    chosen = reservoir_sampling((row_id for batch in passing for row_id in batch["_rowid"].to_pylist()), n)
    for start in range(0, len(chosen), batch_size):
        yield from _as_one_batch(table._take_rows(chosen[start : start + batch_size], columns))


def _as_one_batch(table: pa.Table) -> list[pa.RecordBatch]:
    """The rows as one batch; several if dictionary values cannot be merged, none for an empty table."""
    batches = table.to_batches()
    return join_rows(batches) if batches else []


# -- samplers ----------------------------------------------------------------------------------------------------------


class Sampler(ABC):
    """Base class of samplers, which yield all or some rows of a dataset in a certain order."""

    @abstractmethod
    def __call__(
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = 128,
        columns: Columns = None,
        filter: str | None = None,
        batch_readahead: int = 16,
        with_row_id: bool | None = False,
        **kwargs: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Read the batches.

        Args:
            dataset: The table.
            args: Passed to `iter_fragments` of fragment samplers; ignored by others.
            batch_size: Maximum number of rows in a batch.
            columns: Column names, or expressions by name; None for all.
            filter: Filter that the rows must pass; None for all rows.
            batch_readahead: Number of batches to prefetch.
            with_row_id: Whether to add the column `_rowid`.
            kwargs: Passed to `iter_fragments` of fragment samplers; ignored by others.

        Returns:
            An iterator over the batches, which threads can share.
        """


class FragmentSampler(Sampler):
    """Base class of samplers of whole fragments; subclasses define which ones, and their order."""

    @shared
    def __call__(
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = 128,
        columns: Columns = None,
        filter: str | None = None,
        batch_readahead: int = 16,
        with_row_id: bool | None = False,
        **kwargs: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Read the batches of the fragments, one fragment after the other. See `Sampler.__call__`."""
        for fragment in self.iter_fragments(dataset, *args, **kwargs):
            yield from fragment.to_batches(
                columns=columns,
                filter=filter,
                batch_size=batch_size,
                batch_readahead=batch_readahead,
                with_row_id=bool(with_row_id),
            )

    @abstractmethod
    def iter_fragments(self, dataset: LanceDataset, *args: Any, **kwargs: Any) -> Iterator[LanceFragment]:
        """Choose the fragments.

        Args:
            dataset: The table.
            args: Positional arguments of the call of the sampler.
            kwargs: Other keywords of the call of the sampler.

        Yields:
            The fragments, in the order in which they are read.
        """


class FullScanSampler(FragmentSampler):
    """All rows, in the order of the table."""

    def iter_fragments(self, dataset: LanceDataset, *args: Any, **kwargs: Any) -> Iterator[LanceFragment]:
        """All fragments, in the order of the table. See `FragmentSampler.iter_fragments`."""
        yield from dataset.get_fragments()


class _Share:
    """The shard of one of many processes.

    rank        number of this process, from 0
    world_size  number of processes
    randomize   whether to shuffle, by `seed` and epoch
    """

    def __init__(self, rank: int, world_size: int, randomize: bool = False, seed: int = 0) -> None:
        self._rank = rank
        self._world_size = world_size
        self._randomize = randomize
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Change the random order. Set the same epoch in all processes, so that their shards stay disjoint.

        Args:
            epoch: Number of the epoch.
        """
        self._epoch = epoch

    def _random(self) -> random.Random:
        return random.Random(self._seed + self._epoch)


def _torch_rank() -> tuple[int, int]:
    """Rank and world size of `torch.distributed`."""
    import torch.distributed as processes

    return processes.get_rank(), processes.get_world_size()


class ShardedFragmentSampler(_Share, FragmentSampler):
    """Every `world_size`th fragment: the fastest way to shard a table with many fragments.

    Args:
        rank: Number of this process, from 0.
        world_size: Number of processes.
        randomize: Whether to shuffle the fragments before they are distributed.
        seed: Seed of the order; must be the same in all processes.
    """

    @staticmethod
    def from_torch(randomize: bool = False, seed: int = 0) -> ShardedFragmentSampler:
        """Create a sampler for this process of `torch.distributed`.

        Args:
            randomize: See `ShardedFragmentSampler`.
            seed: See `ShardedFragmentSampler`.

        Returns:
            A sampler with the rank and world size of `torch.distributed`.
        """
        return ShardedFragmentSampler(*_torch_rank(), randomize=randomize, seed=seed)

    def iter_fragments(self, dataset: LanceDataset, *args: Any, **kwargs: Any) -> Iterator[LanceFragment]:
        """The fragments of this process. See `FragmentSampler.iter_fragments`."""
        fragments = dataset.get_fragments()
        if self._randomize:
            self._random().shuffle(fragments)
        yield from fragments[self._rank :: self._world_size]


class ShardedBatchSampler(_Share, Sampler):
    """Every `world_size`th batch: shards have equal size even if there are few fragments, or fragments differ in size.

    With a filter, every `world_size`th row that passes, so that shards have equal size, too.

    Args:
        rank: Number of this process, from 0.
        world_size: Number of processes.
        randomize: Whether to shuffle the batches of each process; with a filter, within a buffer of 256 batches.
        seed: Seed of the order.
    """

    @staticmethod
    def from_torch(randomize: bool = False, seed: int = 0) -> ShardedBatchSampler:
        """Create a sampler for this process of `torch.distributed`.

        Args:
            randomize: See `ShardedBatchSampler`.
            seed: See `ShardedBatchSampler`.

        Returns:
            A sampler with the rank and world size of `torch.distributed`.
        """
        return ShardedBatchSampler(*_torch_rank(), randomize=randomize, seed=seed)

    def __call__(
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = 128,
        columns: Columns = None,
        filter: str | None = None,
        batch_readahead: int = 16,
        with_row_id: bool | None = None,
        **kwargs: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Read the batches of this process. See `Sampler.__call__`; `with_row_id` causes a warning, as in pylance."""
        if with_row_id is not None:
            warnings.warn("with_row_id is not supported for ShardedBatchSampler", stacklevel=2)
        if filter is not None:
            batches = self._filtered(dataset, columns, filter, batch_size, batch_readahead)
            return SharedItems(self._shuffle_some(batches) if self._randomize else batches)
        return SharedItems(self._unfiltered(dataset, columns, batch_size))

    def _unfiltered(self, dataset: LanceDataset, columns: Columns, batch_size: int) -> Iterator[pa.RecordBatch]:
        num_rows = dataset.count_rows()
        starts = list(range(self._rank * batch_size, num_rows, self._world_size * batch_size))
        if self._randomize:
            self._random().shuffle(starts)
        names = dataset.schema.names if columns is None else columns
        for start in starts:
            yield from _as_one_batch(dataset.take(range(start, min(start + batch_size, num_rows)), names))

    def _filtered(
        self, dataset: LanceDataset, columns: Columns, filter: str, batch_size: int, batch_readahead: int
    ) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        skip = self._rank
        for batch in dataset.to_batches(
            columns=columns, filter=filter, batch_size=batch_size, batch_readahead=batch_readahead
        ):
            rows = pa.array(range(skip, batch.num_rows, self._world_size), pa.int64())
            skip = (skip - batch.num_rows) % self._world_size
            held.append(batch.take(rows))
            while sum(map(len, held)) >= batch_size:
                joined, *others = join_rows(held)
                yield joined.slice(0, batch_size)
                held = [rest for rest in (joined.slice(batch_size), *others) if rest.num_rows]
        if sum(map(len, held)):
            yield from _as_one_batch(pa.Table.from_batches(held))

    def _shuffle_some(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rng, held = self._random(), list[pa.RecordBatch]()
        for batch in batches:
            held.append(batch)
            if len(held) > _SHUFFLED_BATCHES_MAX:
                index = rng.randrange(len(held))
                held[index], held[-1] = held[-1], held[index]
                yield held.pop()
        rng.shuffle(held)
        yield from held


class ShardedFixedBatchSampler(ShardedBatchSampler):
    """A batch sampler for PyTorch data loaders: iterating yields lists of row positions, one for each batch.

    Each process has a run of consecutive rows. Calling the sampler with a dataset returns the batches of
    `ShardedBatchSampler` instead.

    Args:
        rank: Number of this process, from 0.
        world_size: Number of processes.
        randomize: Whether to shuffle the batches of each process.
        seed: Seed of the order.
        batch_size: Positions in a list; the last one may have fewer.
        total_num_rows: Number of rows of the table; 0 if you only call the sampler, then with a `batch_size`.

    Raises:
        ValueError: `batch_size` is negative, or 0 although `total_num_rows` is not.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        randomize: bool = False,
        seed: int = 0,
        batch_size: int = 0,
        total_num_rows: int = 0,
    ) -> None:
        super().__init__(rank, world_size, randomize, seed)
        if batch_size < 0 or (total_num_rows and not batch_size):
            raise UsageError(f"batch_size is the number of rows in a batch and at least 1, not {batch_size}")
        share = ceil(total_num_rows / world_size)
        self._batch_size = batch_size or 1  # 0 is possible only without rows
        self._rows = range(min(rank * share, total_num_rows), min((rank + 1) * share, total_num_rows))

    def __len__(self) -> int:
        return ceil(len(self._rows) / self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        batches = [
            list(self._rows[start : start + self._batch_size]) for start in range(0, len(self._rows), self._batch_size)
        ]
        if self._randomize:
            self._random().shuffle(batches)
        return iter(batches)

    @staticmethod
    def from_torch(  # type: ignore[override]
        batch_size: int, total_num_rows: int, randomize: bool = False, seed: int = 0
    ) -> ShardedFixedBatchSampler:
        """Create a sampler for this process of `torch.distributed`.

        Args:
            batch_size: See `ShardedFixedBatchSampler`.
            total_num_rows: See `ShardedFixedBatchSampler`.
            randomize: See `ShardedFixedBatchSampler`.
            seed: See `ShardedFixedBatchSampler`.

        Returns:
            A sampler with the rank and world size of `torch.distributed`.
        """
        return ShardedFixedBatchSampler(*_torch_rank(), randomize, seed, batch_size, total_num_rows)


class ShardedBatchIterator:
    """Iterates over the batches of one of many processes. Deprecated: use a sampler.

    Args:
        data: The table or its URI.
        rank: Number of this process, from 0.
        world_size: Number of processes.
        columns: Column names, or expressions by name; None for all.
        batch_size: Maximum number of rows in a batch.
        granularity: Whether processes share the table by "fragment" or by "batch".
        batch_readahead: Number of batches to prefetch.
        with_row_id: Whether to add the column `_rowid`; only for fragments.

    Raises:
        ValueError: `granularity` is unknown.
        NotImplementedError: `with_row_id` is set for batches.
    """

    def __init__(
        self,
        data: Source,
        rank: int,
        world_size: int,
        *,
        columns: Columns = None,
        batch_size: int = 10240,
        granularity: Literal["fragment", "batch"] = "fragment",
        batch_readahead: int = 8,
        with_row_id: bool = False,
    ) -> None:
        warnings.warn("ShardedBatchIterator is deprecated, use Sampler instead", UserWarning, stacklevel=2)
        if granularity not in ("fragment", "batch"):
            raise UsageError(f"Unrecognized granularity: {granularity}")
        if granularity == "batch" and with_row_id:
            raise NotImplementedError("with_row_id is not supported for batch sharding yet")
        kind = ShardedFragmentSampler if granularity == "fragment" else ShardedBatchSampler
        self._sampler: Sampler = kind(rank, world_size)
        self._dataset = _opened(data)
        self._options: dict[str, Any] = {"columns": columns, "batch_size": batch_size}
        self._options["batch_readahead"] = batch_readahead
        if granularity == "fragment":
            self._options["with_row_id"] = with_row_id

    @staticmethod
    def from_torch(data: Source, **options: Any) -> ShardedBatchIterator:
        """Create an iterator for this process of `torch.distributed`.

        Args:
            data: The table or its URI.
            options: Other keywords of `ShardedBatchIterator`.

        Returns:
            An iterator with the rank and world size of `torch.distributed`.
        """
        return ShardedBatchIterator(data, *_torch_rank(), **options)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._sampler(self._dataset, **self._options)
