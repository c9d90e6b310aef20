"""Rows of segments that exist, copied into a new segment with the same model: their codes are read, not their vectors.

A row is copied if it exists in a fragment that its segment covers, under the address or id that it has now. A segment
with another model, whose rows have to be coded again, is left to the scan of the column.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lance_io.index.details import Space
from lance_io.index.vector.vector_codes import ProductCodes, ScalarCodes
from lance_io.index.vector.vector_details import decode_vector_details
from lance_io.limits import MIB
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.index.partitions import Unread, groups_of, open_vector_segments, pieces_of, read_apart
from lance_io.reads.index.row_filter import load_live_entries
from lance_io.reads.index.table_indices import IndexPart
from lance_io.reads.index.vector_indices import VectorIndex, load_vector_indices

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt

    from lance_io.changes.index.vectors.vector_settings import VectorRequest
    from lance_io.index.build.vectors.ivf_files import IvfBuilder
    from lance_io.index.build.vectors.vector_models import VectorModel
    from lance_io.index.rows.moves import Move
    from lance_io.index.vector.ivf import Ivf, Partition
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.row_filter import LiveEntries
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

GROUP_BYTES: Final = 8 * MIB  # of partitions that are read at once


def committed_sources(state: DatasetState, uuids: Collection[str]) -> Plan[list[VectorIndex]]:
    """Segments of the version, each as an index of its own; those that cover no fragment are left out."""
    known = yield from load_vector_indices(state)
    return [
        replace(index, parts=(part,))
        for index in known
        for part in index.parts
        if part.uuid in uuids and part.details.is_readable
    ]


def new_sources(state: DatasetState, entries: Sequence[IndexMetadata]) -> Plan[list[VectorIndex]]:
    """Segments that no version may name yet, of those whose rows are known to be as they were when they were built."""
    sources = yield from committed_sources(state, {entry.uuid for entry in entries})
    committed = {source.parts[0].uuid for source in sources}
    space = Space.IDS if state.has_stable_row_ids else Space.ADDRESSES
    for entry in entries:
        message = entry.message
        if message is None or entry.uuid in committed or entry.dataset_version != state.manifest.version:
            continue
        about = message.index_details
        details = decode_vector_details(about.type_url, about.value, message.index_version)
        if details is not None and details.is_readable:
            part = IndexPart.of(entry, details, space, frozenset(entry.fragment_ids or ()))
            sources.append(VectorIndex(entry.name, entry.fields[0], (part,), ()))
    return sources


def moved_sources(
    state: DatasetState, uuid: str, moves: Sequence[Move], covered: frozenset[int]
) -> Plan[list[VectorIndex]]:
    """A segment of the version after its rows have moved.

    moves    that no version records yet
    covered  ids of the fragments that it covers then
    """
    sources = yield from committed_sources(state, {uuid})
    return [
        replace(source, parts=(replace(source.parts[0], covered=covered),), moves=(*source.moves, *moves))
        for source in sources
    ]


def copy_rows(
    state: DatasetState, request: VectorRequest, builder: IvfBuilder, sources: Sequence[VectorIndex]
) -> Plan[frozenset[int]]:
    """Copy the rows of segments that have the model of the request; returns the ids of the fragments that they cover.

    state    the version with the fragments of the new segment
    sources  indices of one segment each
    """
    done: set[int] = set()
    for source in sources:
        vectors = request.vectors
        (segment,) = yield from open_vector_segments(state, source, vectors.list_size, vectors.value_type)
        if request.model is None or isinstance(segment, Unread) or not _has_model(segment, request.model):
            continue
        yield from _copy_segment(state, builder, source, segment)
        done |= source.covered
    return frozenset(done)


def _has_model(segment: Ivf, model: VectorModel) -> bool:
    """Whether the rows of a segment are coded as a model says."""
    codes, centroids = segment.codes, model.centroids
    if segment.kind != model.kind.name or segment.metric is not model.kind.metric:
        return False
    if segment.centroids.dtype != centroids.dtype or not np.array_equal(segment.centroids, centroids):
        return False
    if isinstance(codes, ProductCodes):
        return model.codebook is not None and np.array_equal(codes.codebook, model.codebook)
    if isinstance(codes, ScalarCodes):
        return model.bounds == (codes.start, codes.end)
    return codes is None


def _copy_segment(state: DatasetState, builder: IvfBuilder, source: VectorIndex, segment: Ivf) -> Plan[None]:
    entries = yield from load_live_entries(state, source, state.fragment_indexes_of(sorted(source.covered)))
    filled = np.flatnonzero(segment.lengths)
    ordered = filled[np.argsort(segment.offsets[filled], kind="stable")].tolist()
    pieces = pieces_of(segment, 0, ordered, GROUP_BYTES)
    for group in groups_of([segment], pieces, GROUP_BYTES):
        partitions = yield from read_apart(state, source, segment, group)
        for piece, partition in zip(group, partitions, strict=True):
            add = partial(_add, builder, entries, source, segment, piece.partition, partition)
            yield Compute(add, lambda partition=partition: partition.nbytes)  # type: ignore[misc]


def _add(
    builder: IvfBuilder,
    entries: LiveEntries,
    source: VectorIndex,
    segment: Ivf,
    number: int,
    partition: Partition,
) -> None:
    counts, addresses = entries.find(source.parts[0], partition.rows)
    rows = partition.rows if entries.row_ids is not None else addresses.view(np.uint64)
    builder.add_coded(number, rows[counts], _row_bytes(segment, partition.values, counts), segment.mean_distance)


def _row_bytes(segment: Ivf, values: npt.NDArray[Any], chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    rows = np.ascontiguousarray((values.T if isinstance(segment.codes, ProductCodes) else values)[chosen])
    return rows.view(np.uint8).reshape(len(rows), -1) if len(rows) else np.empty((0, segment.row_bytes - 8), np.uint8)
