"""`IndicesBuilder`: the steps of a build of vectors that several processes share. Names are pylance's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance_io.lazy_names import lazy_module
from lance_io.not_offered import NotOffered
from lance_io.plans.lazy_module import lazy_plans

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_io.changes.index.vectors import model_plans, vector_request
    from lance_io.changes.index.vectors.trained_models import IvfModel, PqModel
    from lance_io.reads.run_plan import SyncFace
else:
    model_plans = lazy_plans("lance_io.changes.index.vectors.model_plans")
    vector_request = lazy_module("lance_io.changes.index.vectors.vector_request")

_SEGMENTS: Final = (
    "`create_index_uncommitted(..., fragment_ids=..., ivf_centroids=..., pq_codebook=...)` builds a segment in each "
    "process, `commit_existing_index_segments` commits all"
)


class IndicesBuilder:
    """Learns models that the segments of an index can share.

    Args:
        dataset: The dataset.
        column: Name or dotted path of a column of vectors.

    Raises:
        KeyError: The column does not exist.
        TypeError: The column has no vectors.
    """

    def __init__(self, dataset: Any, column: str) -> None:
        self.dataset: SyncFace = dataset
        self.column = [column] if isinstance(column, str) else [*column]
        self.dimension: int = vector_request.vector_column(dataset._state, column)[2].list_size

    def train_ivf(
        self,
        num_partitions: int | None = None,
        *,
        distance_type: str = "l2",
        accelerator: Any = None,
        sample_rate: int = 256,
        max_iters: int = 50,
        fragment_ids: list[int] | None = None,
    ) -> IvfModel:
        """Learn the centroids of partitions.

        Args:
            num_partitions: Number of partitions; None for the root of the number of rows.
            distance_type: "l2", "cosine", "dot" or "hamming".
            accelerator: Not offered: only None.
            sample_rate: Vectors for each partition, in the sample.
            max_iters: Rounds of k-means at most.
            fragment_ids: Ids of the fragments to learn from; None for all.

        Returns:
            The model.

        Raises:
            ValueError: There are too few rows.
        """
        plan = model_plans.train_ivf(
            self.dataset._state,
            self.column,
            num_partitions,
            distance_type,
            sample_rate,
            max_iters,
            fragment_ids,
            accelerator,
        )
        return self.dataset._run(plan)

    def train_pq(
        self,
        ivf_model: IvfModel,
        num_subvectors: int | None = None,
        *,
        sample_rate: int = 256,
        max_iters: int = 50,
        num_bits: int = 8,
        fragment_ids: list[int] | None = None,
    ) -> PqModel:
        """Learn a codebook of product codes.

        Args:
            ivf_model: The centroids, from which residuals are coded.
            num_subvectors: Parts of a vector; None for the dimension over 16, or over 8.
            sample_rate: Vectors for each codeword, in the sample.
            max_iters: Rounds of k-means at most.
            num_bits: Bits of a code, 8 or 4.
            fragment_ids: Ids of the fragments to learn from; None for all.

        Returns:
            The model.

        Raises:
            ValueError: There are too few rows.
        """
        plan = model_plans.train_pq(
            self.dataset._state,
            self.column,
            ivf_model,
            num_subvectors,
            sample_rate,
            max_iters,
            num_bits,
            fragment_ids,
        )
        return self.dataset._run(plan)

    def prepare_global_ivf_pq(
        self,
        num_partitions: int | None,
        num_subvectors: int | None,
        *,
        distance_type: str = "l2",
        accelerator: Any = None,
        sample_rate: int = 256,
        max_iters: int = 50,
        num_bits: int = 8,
        fragment_ids: list[int] | None = None,
    ) -> dict[str, pa.FixedSizeListArray]:
        """Learn centroids and a codebook.

        Args:
            num_partitions: See `train_ivf`.
            num_subvectors: See `train_pq`.
            distance_type: See `train_ivf`.
            accelerator: Not offered: only None.
            sample_rate: See both.
            max_iters: See both.
            num_bits: See `train_pq`.
            fragment_ids: Ids of the fragments to learn from; None for all.

        Returns:
            `ivf_centroids` and `pq_codebook`, as `create_index_uncommitted` takes them.

        Raises:
            ValueError: There are too few rows.
        """
        ivf = self.train_ivf(
            num_partitions,
            distance_type=distance_type,
            accelerator=accelerator,
            sample_rate=sample_rate,
            max_iters=max_iters,
            fragment_ids=fragment_ids,
        )
        pq = self.train_pq(
            ivf,
            num_subvectors,
            sample_rate=sample_rate,
            max_iters=max_iters,
            num_bits=num_bits,
            fragment_ids=fragment_ids,
        )
        return {"ivf_centroids": ivf.centroids, "pq_codebook": pq.codebook}

    assign_ivf_partitions = NotOffered("a build assigns partitions itself, while it reads the vectors")
    transform_vectors = NotOffered(_SEGMENTS)
    shuffle_transformed_vectors = NotOffered(_SEGMENTS)
    load_shuffled_vectors = NotOffered(_SEGMENTS)
