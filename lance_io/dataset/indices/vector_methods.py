"""Methods of datasets that build indices of vectors, synchronous and asynchronous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.dataset.metadata_methods import AsyncMetadataChanges, MetadataChanges
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    import pyarrow as pa

    from lance_io.changes.index import build_progress, create_index
    from lance_io.changes.index.build_progress import IndexProgress
    from lance_io.changes.index.vectors import model_plans
    from lance_io.changes.index.vectors.trained_models import IvfModel
    from lance_io.reads.metadata.file_listing import Progress
else:
    create_index = lazy_plans("lance_io.changes.index.create_index")
    model_plans = lazy_plans("lance_io.changes.index.vectors.model_plans")
    build_progress = lazy_module("lance_io.changes.index.build_progress")


class DatasetVectorIndices(MetadataChanges):
    """Indices of vectors of `LanceDataset`."""

    def create_index(
        self,
        column: str,
        index_type: str,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: int | None = None,
        ivf_centroids: Any = None,
        pq_codebook: Any = None,
        num_sub_vectors: int | None = None,
        accelerator: Any = None,
        index_cache_size: int | None = None,
        shuffle_partition_batches: int | None = None,
        shuffle_partition_concurrency: int | None = None,
        ivf_centroids_file: str | None = None,
        precomputed_partition_dataset: str | None = None,
        storage_options: dict[str, str] | None = None,
        filter_nan: bool = True,
        train: bool = True,
        fragment_ids: list[int] | None = None,
        index_uuid: str | None = None,
        *,
        target_partition_size: int | None = None,
        streaming_sample_rate: int | None = None,
        streaming_coreset_rate: int | None = None,
        streaming_refine_passes: int | None = None,
        skip_transpose: bool = False,
        progress_callback: Callable[[IndexProgress], object] | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> Self:
        """Build an IVF index over a column of vectors, and commit it. Both libraries use it for `nearest`.

        The build learns centroids from a sample, then reads each vector once. The index covers the fragments of this
        version; later rows are compared one by one until `optimize.optimize_indices` adds them. After an error nothing
        has changed. Rows whose vector is null, or has a number that is not finite, are not in the index, nor are
        vectors of zeros with the metric cosine: a search finds none of these. With too few vectors to learn from
        (none; for IVF_PQ fewer than codewords) the index covers no row yet.

        Args:
            column: Name or dotted path of a column of fixed-size lists of floats, or of uint8 for hamming.
            index_type: "IVF_FLAT", "IVF_PQ" or "IVF_SQ".
            name: Name of the index; None for `<column>_idx`.
            metric: "l2" (or "euclidean"), "cosine", "dot" or "hamming".
            replace: Whether it replaces an index of this name.
            num_partitions: Number of partitions; None for as many as `target_partition_size` gives. There are fewer
                if the table has too few vectors.
            ivf_centroids: Centroids to use instead of learned ones: numpy array [partitions, dim], or Arrow array of
                fixed-size lists.
            pq_codebook: Codebook to use, with `ivf_centroids`: numpy array [sub-vectors, codewords, width], or an
                Arrow array of fixed-size lists with the same numbers.
            num_sub_vectors: Number of parts of a product code, which divides the dimension; needed for IVF_PQ.
            accelerator: Not offered: only None.
            index_cache_size: Ignored with a warning, as by pylance.
            shuffle_partition_batches: Ignored: `memory_limit` bounds the build.
            shuffle_partition_concurrency: Ignored.
            ivf_centroids_file: Not offered: only None.
            precomputed_partition_dataset: Not offered: only None.
            storage_options: Ignored: the table's own count.
            filter_nan: Ignored: vectors with NaN are always left out.
            train: False makes an index that covers no rows yet, and learns from the first ones.
            fragment_ids: Not here: `create_index_uncommitted` builds over some fragments.
            index_uuid: UUID of the new segment; None for a random one.
            target_partition_size: Rows that a partition should have; 4,096 by default for IVF_FLAT, else 8,192.
            streaming_sample_rate: Not offered: only None.
            streaming_coreset_rate: Not offered: only None.
            streaming_refine_passes: Not offered: only None.
            skip_transpose: Whether product codes are stored row by row.
            progress_callback: Called with `IndexProgress` events.
            memory_limit: MiB of rows that the build may hold in memory; the rest goes to local disk. 256 by default.
                Not in pylance.
            progress: `progress(rows_read, rows_total)` is called repeatedly. Not in pylance.
            kwargs: `num_bits` of a product code (8 or 4), `sample_rate` (vectors for each partition, 256 by default)
                and `max_iters` (50); others are ignored, as by pylance.

        Returns:
            This dataset, at the new version.

        Raises:
            KeyError: The column does not exist.
            TypeError: The column has no vectors.
            NotImplementedError: The kind is unknown, or this release does not build it.
            ValueError: An argument does not fit the column or another argument.
            RuntimeError: The name exists, and `replace` is False.
            CommitConflictError: Other writers changed the table in ways that exclude the index.
        """
        given = {name: value for name, value in locals().items() if name not in _OTHERS} | kwargs
        plan = create_index.create_vector_index(
            self._state,
            column,
            index_type,
            name,
            given,
            replace=replace,
            train=train,
            fragment_ids=fragment_ids,
            uuid=index_uuid,
            memory_limit=memory_limit,
            progress=build_progress.BuildProgress(progress, progress_callback),
        )
        self._change(plan)
        return self

    def get_ivf_model(self, index_name: str) -> IvfModel:
        """The centroids of an IVF index; those of its first segment, if there are several.

        Args:
            index_name: Name of the index.

        Returns:
            The model.

        Raises:
            KeyError: No such index has rows.
        """
        return self._run(model_plans.ivf_model(self._state, index_name))

    def centroids(self, *, index_name: str | None = None, column: str | None = None) -> pa.FixedSizeListArray:
        """The centroids of an IVF index.

        Args:
            index_name: Name of the index.
            column: Instead of a name: the column, whose first IVF index is meant.

        Returns:
            The centroids.

        Raises:
            KeyError: There is no such index.
            ValueError: Neither is given.
        """
        return self._run(model_plans.column_centroids(self._state, index_name, column))


class AsyncDatasetVectorIndices(AsyncMetadataChanges):
    """Indices of vectors of `AsyncDataset`: the same names and parameters, awaitable."""

    async def create_index(
        self,
        column: str,
        index_type: str,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: int | None = None,
        ivf_centroids: Any = None,
        pq_codebook: Any = None,
        num_sub_vectors: int | None = None,
        accelerator: Any = None,
        index_cache_size: int | None = None,
        shuffle_partition_batches: int | None = None,
        shuffle_partition_concurrency: int | None = None,
        ivf_centroids_file: str | None = None,
        precomputed_partition_dataset: str | None = None,
        storage_options: dict[str, str] | None = None,
        filter_nan: bool = True,
        train: bool = True,
        fragment_ids: list[int] | None = None,
        index_uuid: str | None = None,
        *,
        target_partition_size: int | None = None,
        streaming_sample_rate: int | None = None,
        streaming_coreset_rate: int | None = None,
        streaming_refine_passes: int | None = None,
        skip_transpose: bool = False,
        progress_callback: Callable[[IndexProgress], object] | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> Self:
        """Build an IVF index over a column of vectors, and commit it. See `LanceDataset.create_index`."""
        given = {name: value for name, value in locals().items() if name not in _OTHERS} | kwargs
        plan = create_index.create_vector_index(
            self._state,
            column,
            index_type,
            name,
            given,
            replace=replace,
            train=train,
            fragment_ids=fragment_ids,
            uuid=index_uuid,
            memory_limit=memory_limit,
            progress=build_progress.BuildProgress(progress, progress_callback),
        )
        await self._change(plan)
        return self

    async def get_ivf_model(self, index_name: str) -> IvfModel:
        """The centroids of an IVF index. See `LanceDataset.get_ivf_model`."""
        return await self._run(model_plans.ivf_model(self._state, index_name))

    async def centroids(self, *, index_name: str | None = None, column: str | None = None) -> pa.FixedSizeListArray:
        """The centroids of an IVF index. See `LanceDataset.centroids`."""
        return await self._run(model_plans.column_centroids(self._state, index_name, column))


_OTHERS = frozenset(
    (
        *("self", "column", "index_type", "name", "replace", "train", "fragment_ids", "index_uuid"),
        *("progress_callback", "memory_limit", "progress", "kwargs"),
    )
)
