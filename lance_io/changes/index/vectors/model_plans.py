"""Plans that learn models for builds in several processes, and that read the models of indices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow.types as pt

from lance_io.changes.index.index_request import find_column, limit_bytes, storage_type
from lance_io.changes.index.known_segments import path_of
from lance_io.changes.index.vectors.sample_vectors import sample_vectors
from lance_io.changes.index.vectors.stored_models import has_centroids, open_segment
from lance_io.changes.index.vectors.train_model import sample_rows, train_centroids, train_codebook
from lance_io.changes.index.vectors.trained_models import IvfModel, PqModel, as_lists
from lance_io.changes.index.vectors.vector_request import given_centroids, vector_column, vector_request
from lance_io.errors import UsageError
from lance_io.index.build.vectors.vector_models import VectorModel
from lance_io.reads.metadata.index_statistics import NoSuchIndex
from lance_io.reads.rows.deletions_and_ids import load_live_counts
from lance_io.reads.version.index_entries import load_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState


def ivf_model(state: DatasetState, name: str) -> Plan[IvfModel]:
    """The centroids of an index: those of its first segment. Raises `NoSuchIndex`."""
    entries = [entry for entry in (yield from load_indices(state)) if entry.name == name]
    trained = [entry for entry in entries if has_centroids(entry)]
    if not trained or not pt.is_fixed_size_list(storage_type(path_of(state, trained[0].fields[0])[1].arrow_type)):
        raise NoSuchIndex(f'Index "{name}" not found among the IVF indices with rows', path=state.location.uri)
    _, field = path_of(state, trained[0].fields[0])
    vectors = storage_type(field.arrow_type)
    segment = yield from open_segment(state, trained[0], vectors)
    return IvfModel(as_lists(segment.centroids, vectors.value_type), segment.metric.value)


def column_centroids(state: DatasetState, index_name: str | None, column: str | None) -> Plan[Any]:
    """The centroids of an index, or of the first IVF index of a column. Raises `NoSuchIndex`."""
    if index_name is None:
        if column is None:
            raise UsageError("Must provide 'index_name' or 'column'.")
        _, field = find_column(state, column)
        entries = yield from load_indices(state)
        names = [entry.name for entry in entries if entry.fields == (field.id,) and has_centroids(entry)]
        if not names:
            raise NoSuchIndex(f"No IVF index for column '{column}'", path=state.location.uri)
        index_name = names[0]
    return (yield from ivf_model(state, index_name)).centroids


def train_ivf(
    state: DatasetState,
    column: Any,
    num_partitions: int | None,
    metric: str,
    sample_rate: int,
    max_iters: int,
    fragment_ids: Sequence[int] | None,
    accelerator: Any,
) -> Plan[IvfModel]:
    """Learn centroids; parameters as for `IndicesBuilder.train_ivf`."""
    chosen = _fragments(state, fragment_ids)
    num_rows = sum((yield from load_live_counts(state, state.fragment_indexes_of(chosen))))
    count = round(math.sqrt(num_rows)) if num_partitions is None else num_partitions
    _check_rows(num_rows, count, sample_rate, f"IVF centroids with {count} partitions and")
    given: dict[str, Any] = {
        "num_partitions": count,
        "metric": metric,
        "sample_rate": sample_rate,
        "max_iters": max_iters,
    }
    given["accelerator"] = accelerator
    request = vector_request(state, column, "IVF_FLAT", None, given)
    limit = limit_bytes(None)
    sample, _ = yield from sample_vectors(state, request, chosen, sample_rows(request, count, limit), limit)
    if len(sample) < count:
        raise UsageError(f"{count} centroids need as many vectors, the sample has {len(sample)}")
    centroids, _ = yield from train_centroids(request.vector_kind.metric, sample, count, max_iters)
    return IvfModel(as_lists(centroids, request.vectors.value_type), request.vector_kind.metric.value)


def train_pq(
    state: DatasetState,
    column: Any,
    ivf: IvfModel,
    num_subvectors: int | None,
    sample_rate: int,
    max_iters: int,
    num_bits: int,
    fragment_ids: Sequence[int] | None,
) -> Plan[PqModel]:
    """Learn a codebook; parameters as for `IndicesBuilder.train_pq`."""
    chosen = _fragments(state, fragment_ids)
    num_rows = sum((yield from load_live_counts(state, state.fragment_indexes_of(chosen))))
    dim = vector_column(state, column)[2].list_size
    num_parts = _num_parts(dim) if num_subvectors is None else num_subvectors
    if num_parts < 1 or dim % num_parts:
        raise UsageError(f"dimension ({dim}) must be divisible by num_subvectors ({num_parts}) without remainder")
    _check_rows(num_rows, 1 << num_bits, sample_rate, f"PQ codebook with num_bits of {num_bits} and")
    given: dict[str, Any] = {
        "metric": ivf.distance_type,
        "num_sub_vectors": num_parts,
        "num_bits": num_bits,
        "sample_rate": sample_rate,
        "max_iters": max_iters,
        "ivf_centroids": ivf.centroids,
    }
    request = vector_request(state, column, "IVF_PQ", None, given)
    kind, item, limit = request.vector_kind, request.vectors.value_type, limit_bytes(None)
    sample, _ = yield from sample_vectors(state, request, chosen, sample_rows(request, 0, limit), limit)
    if len(sample) < 1 << num_bits:
        raise UsageError(f"a codebook of {num_bits} bits needs {1 << num_bits} vectors, the sample has {len(sample)}")
    model = VectorModel(kind, item, given_centroids(ivf.centroids, request.vectors))
    codebook = yield from train_codebook(model, sample, max_iters)
    return PqModel(num_parts, as_lists(codebook.reshape(1 << num_bits, dim), item), num_bits=num_bits)


def _num_parts(dim: int) -> int:
    for width in (16, 8):
        if dim % width == 0:
            return dim // width
    raise UsageError(
        f"vector dimension {dim} is not divisible by 16 or 8. PQ performance will be poor. Please specify "
        "num_subvectors manually."
    )


def _fragments(state: DatasetState, fragment_ids: Sequence[int] | None) -> list[int]:
    if fragment_ids is None:
        return [*state.fragment_ids]
    for fragment_id in fragment_ids:
        if state.fragment_index_of(fragment_id) is None:
            raise UsageError(f"Fragment id does not exist: {fragment_id}", path=state.location.uri)
    return sorted({*fragment_ids})


def _check_rows(num_rows: int, count: int, sample_rate: int, what: str) -> None:
    if not isinstance(sample_rate, int) or sample_rate < 2:
        raise UsageError(f"The sample_rate must be an int greater than 1, got {sample_rate}")
    if count * sample_rate > num_rows:
        raise UsageError(
            f"There are not enough rows in the dataset to create {what} a sample rate of {sample_rate}. "
            f"{count * sample_rate} rows needed and there are {num_rows}"
        )
