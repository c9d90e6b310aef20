"""Rows for training: samples of a table, and the share of each of many processes, under pylance's names.

    for batch in ShardedFragmentSampler(rank, world_size, randomize=True)(dataset, batch_size=256): ...

A sampler is called with a dataset and gives record batches. Orders for a seed are pylance's, in the first epoch; later
epochs have orders of their own, where pylance's fragments and batches come in the same order in each.
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

_SHUFFLED_BATCHES_MAX: Final = 256  # of a filtered scan, whose batches are not known before


def _opened(source: Source) -> LanceDataset:
    return open_dataset(source) if isinstance(source, (str, PathLike)) else source


# -- samples -----------------------------------------------------------------------------------------------------------


def reservoir_sampling(stream: Iterable[T], k: int) -> list[T]:
    """`k` items of a stream, each set of them with the same probability; all, if there are fewer."""
    kept: list[T] = []
    for number, item in enumerate(stream):
        if number < k:
            kept.append(item)
        elif (place := random.randrange(number + 1)) < k:
            kept[place] = item
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
    """Rows chosen at random, or all of them where there are no more than asked for.

    dataset     or where it is
    n           rows
    columns     names, one name, or expressions by name
    batch_size  rows of a batch, but for the last
    max_takes   more rows than that come as so many runs of neighbours, one from each part of the table
    filt        only rows that pass this filter

    Raises `ValueError` for fewer than no rows.
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
    """Runs of neighbouring rows, as (first row, rows): one at random in each of so many parts of the table."""
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
    """Its rows as one batch, as several where the values of dictionaries do not fit together, as none without rows."""
    batches = table.to_batches()
    return join_rows(batches) if batches else []


# -- samplers ----------------------------------------------------------------------------------------------------------


class Sampler(ABC):
    """What gives the rows of a dataset, or some of them, in an order of its own."""

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
        """The batches; parameters as for `LanceDataset.to_batches`."""


class FragmentSampler(Sampler):
    """Whole fragments; a subclass says which, and in which order."""

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
        """The batches of these fragments, one after the other."""
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
        """The fragments."""


class FullScanSampler(FragmentSampler):
    """All rows, in their order."""

    def iter_fragments(self, dataset: LanceDataset, *args: Any, **kwargs: Any) -> Iterator[LanceFragment]:
        """All fragments."""
        yield from dataset.get_fragments()


class _Share:
    """The share of one of many processes.

    rank        number of this process, from 0
    world_size  how many there are
    randomize   whether the order is one for `seed` and epoch
    """

    def __init__(self, rank: int, world_size: int, randomize: bool = False, seed: int = 0) -> None:
        self._rank = rank
        self._world_size = world_size
        self._randomize = randomize
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Another order, the same one in all processes that set the same epoch."""
        self._epoch = epoch

    def _random(self) -> random.Random:
        return random.Random(self._seed + self._epoch)


def _torch_rank() -> tuple[int, int]:
    """Rank and number of the processes of `torch.distributed`."""
    import torch.distributed as processes

    return processes.get_rank(), processes.get_world_size()


class ShardedFragmentSampler(_Share, FragmentSampler):
    """Every `world_size`th fragment: the fastest way to share a table of many.

    rank, world_size  this process, of so many
    randomize, seed   mix the fragments, in the same way in all processes, before they are shared
    """

    @staticmethod
    def from_torch(randomize: bool = False, seed: int = 0) -> ShardedFragmentSampler:
        """For this process of `torch.distributed`."""
        return ShardedFragmentSampler(*_torch_rank(), randomize=randomize, seed=seed)

    def iter_fragments(self, dataset: LanceDataset, *args: Any, **kwargs: Any) -> Iterator[LanceFragment]:
        """The fragments of this process."""
        fragments = dataset.get_fragments()
        if self._randomize:
            self._random().shuffle(fragments)
        yield from fragments[self._rank :: self._world_size]


class ShardedBatchSampler(_Share, Sampler):
    """Every `world_size`th batch: shares are alike even where there are few fragments, or these differ in size.

    With a filter, it is every `world_size`th row that passes, so that shares are alike there, too.

    rank, world_size  this process, of so many
    randomize, seed   mix the batches of each process; with a filter, at most 256 of them are held for that
    """

    @staticmethod
    def from_torch(randomize: bool = False, seed: int = 0) -> ShardedBatchSampler:
        """For this process of `torch.distributed`."""
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
        """The batches of this process; `with_row_id` is not supported, as in pylance, which warns."""
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
                held = [one for one in (joined.slice(batch_size), *others) if one.num_rows]
        if sum(map(len, held)):
            yield from _as_one_batch(pa.Table.from_batches(held))

    def _shuffle_some(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chance, held = self._random(), list[pa.RecordBatch]()
        for batch in batches:
            held.append(batch)
            if len(held) > _SHUFFLED_BATCHES_MAX:
                place = chance.randrange(len(held))
                held[place], held[-1] = held[-1], held[place]
                yield held.pop()
        chance.shuffle(held)
        yield from held


class ShardedFixedBatchSampler(ShardedBatchSampler):
    """Lists of positions, batch by batch, of the rows of this process: a run of neighbours, `world_size` of which make
    the table. What loaders of PyTorch take as their batch sampler.

    batch_size      positions in a list, but for the last
    total_num_rows  of the table; 0 where the sampler is only called, with a `batch_size` then

    Called with a dataset it gives the batches of `ShardedBatchSampler`. Raises `ValueError` for batches of no rows.
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
        self._batch_size = batch_size or 1  # where there are no rows any size will do
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
        """For this process of `torch.distributed`."""
        return ShardedFixedBatchSampler(*_torch_rank(), randomize, seed, batch_size, total_num_rows)


class ShardedBatchIterator:
    """The batches of one of many processes. Deprecated: use a sampler.

    data         a dataset, or where it is
    granularity  whether "fragment"s or "batch"es are shared
    Raises `ValueError` for another granularity, `NotImplementedError` for row ids of batches.
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
        """For this process of `torch.distributed`; keywords as for the class."""
        return ShardedBatchIterator(data, *_torch_rank(), **options)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._sampler(self._dataset, **self._options)
