"""Learns the model of an IVF index from a sample of a column."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.changes.index.vectors.sample_vectors import sample_vectors
from lance_io.changes.index.vectors.vector_settings import PARTITION_ROWS
from lance_io.index.build.vectors.clustering import Clustering, Partitioner, bits_of, bytes_of
from lance_io.index.build.vectors.coded_vectors import residuals
from lance_io.index.build.vectors.product_training import ROWS_MAX, CodebookTraining
from lance_io.index.build.vectors.vector_models import VectorModel, computing_type
from lance_io.index.vector.distances import Metric
from lance_io.index.vector.vector_details import Coding
from lance_io.limits import MIB
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.rows.deletions_and_ids import load_live_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from lance_io.changes.index.build_progress import BuildProgress
    from lance_io.changes.index.vectors.vector_settings import VectorRequest
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState

_SAMPLE_SHARE: Final = 2  # of the memory limit, for the sample
_SEED: Final = 20  # of the training; a build can be repeated
_BITS: Final = 32  # bytes of a byte as bits


def train_model(
    state: DatasetState,
    request: VectorRequest,
    fragment_ids: Sequence[int],
    limit_bytes: int,
    progress: BuildProgress,
) -> Plan[VectorModel | None]:
    """The model of a request over fragments; None if there are too few vectors, which makes an empty segment."""
    kind, training = request.vector_kind, request.training
    counts = yield from load_live_counts(state, state.fragment_indexes_of(fragment_ids))
    num_rows = sum(counts)
    num_partitions = wanted_partitions(request, num_rows)
    wanted = sample_rows(request, num_partitions, limit_bytes)
    if not wanted:
        return _given(request)
    progress.begin("train_ivf")
    sample, num_vectors = yield from sample_vectors(state, request, fragment_ids, wanted, limit_bytes)
    if len(sample) < (1 << kind.bits if kind.coding is Coding.PQ else 1):
        progress.end()
        return None
    centroids, distance = training.centroids, None
    if centroids is None:
        count = fitting_partitions(request, num_partitions, num_vectors)
        count = min(count, len(sample))
        centroids, distance = yield from train_centroids(kind.metric, sample, count, training.max_rounds)
    progress.end()
    model = VectorModel(kind, request.vectors.value_type, centroids, transposed=training.transposed, distance=distance)
    if kind.coding is Coding.PQ:
        codebook = training.codebook
        if codebook is None:
            progress.begin("train_quantizer")
            codebook = yield from train_codebook(model, sample, training.max_rounds)
            progress.end()
        return replace(model, codebook=codebook)
    if kind.coding is Coding.SQ:
        return replace(model, bounds=(float(sample.min()), float(sample.max())))
    return model


def _given(request: VectorRequest) -> VectorModel | None:
    """The model of which nothing has to be learned."""
    training = request.training
    if training.centroids is None:
        return None
    return VectorModel(
        request.vector_kind,
        request.vectors.value_type,
        training.centroids,
        training.codebook,
        transposed=training.transposed,
    )


def wanted_partitions(request: VectorRequest, num_rows: int) -> int:
    """The number of partitions that a request wants for a table."""
    training = request.training
    if training.centroids is not None:
        return len(training.centroids)
    if training.num_partitions is not None:
        return training.num_partitions
    kind = request.vector_kind
    return max(1, num_rows // (kind.partition_rows or PARTITION_ROWS[kind.coding]))


def fitting_partitions(request: VectorRequest, num_partitions: int, num_vectors: int) -> int:
    """As many partitions as vectors can train: pylance's rule. It bounds the numbers that callers ask for."""
    if request.vector_kind.coding is Coding.PQ and request.training.num_partitions is not None:
        return max(1, min(num_partitions, num_vectors // request.training.sample_rate))
    return min(num_partitions, num_vectors)


def sample_rows(request: VectorRequest, num_partitions: int, limit_bytes: int) -> int:
    """The size of the sample: 0 if nothing has to be learned."""
    training, kind = request.training, request.vector_kind
    needs_codes = kind.coding is Coding.SQ or (kind.coding is Coding.PQ and training.codebook is None)
    rows = 0 if training.centroids is not None else num_partitions * training.sample_rate
    if needs_codes:
        rows = max(rows, min(training.sample_rate << kind.bits, ROWS_MAX))
    dtype = computing_type(request.vectors.value_type)
    row_bytes = request.vectors.list_size * dtype.itemsize * (_BITS if kind.metric is Metric.HAMMING else 1)
    fitting = limit_bytes // _SAMPLE_SHARE // max(1, row_bytes)
    return min(rows, max(fitting, num_partitions, 1 << kind.bits)) if rows else 0


def train_centroids(
    metric: Metric, sample: npt.NDArray[Any], count: int, max_rounds: int
) -> Plan[tuple[npt.NDArray[Any], float]]:
    """Centroids of a sample, and its mean squared distance from them."""
    is_bits = metric is Metric.HAMMING
    vectors = bits_of(sample) if is_bits else sample
    clustering = Clustering(vectors, count, np.random.default_rng(_SEED), is_bits=is_bits)
    yield from _rounds(clustering.rounds(max_rounds))
    centroids = bytes_of(clustering.centroids) if is_bits else clustering.centroids
    return centroids, clustering.distance


def train_codebook(model: VectorModel, sample: npt.NDArray[Any], max_rounds: int) -> Plan[npt.NDArray[Any]]:
    """The codebook for a model's centroids."""
    kind = model.kind
    vectors = sample[: max(1 << kind.bits, ROWS_MAX >> (8 - kind.bits))]

    def codable() -> npt.NDArray[Any]:
        partitions, _ = Partitioner.of(kind.metric, model.centroids).of_vectors(vectors)
        return residuals(model, vectors, partitions)

    targets: npt.NDArray[Any] = yield Compute(codable, lambda: MIB)
    training = CodebookTraining(targets, kind.num_parts, kind.bits, np.random.default_rng(_SEED))
    yield from _rounds(training.rounds(max_rounds))
    return training.codebook


def _rounds(rounds: Iterator[None]) -> Plan[None]:
    """Run rounds, each as a work of its own, between which the plan can be cancelled."""
    done = object()
    while (yield Compute(partial(next, rounds, done), lambda: MIB)) is not done:
        pass
