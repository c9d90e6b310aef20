"""The models of segments that exist, so that more rows get the same centroids and codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.changes.index.vectors.vector_settings import Training, VectorRequest
from lance_io.errors import FormatError, UnsupportedError
from lance_io.index.build.vectors.vector_models import VectorKind, VectorModel
from lance_io.index.details import Space
from lance_io.index.vector.vector_codes import ProductCodes, ScalarCodes
from lance_io.index.vector.vector_details import Coding, decode_vector_details
from lance_io.proto import table_pb2
from lance_io.reads.index.partitions import Unread, open_vector_segments
from lance_io.reads.index.table_indices import IndexPart
from lance_io.reads.index.vector_indices import VectorIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.format.schema import Field
    from lance_io.index.vector.ivf import Ivf
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

_CODINGS: Final = (Coding.FLAT, Coding.PQ, Coding.SQ)


def vector_kind(entry: IndexMetadata) -> VectorKind | None:
    """The kind of a segment; None for a kind that this release does not build."""
    if entry.message is None:
        return None
    about = entry.message.index_details
    details = decode_vector_details(about.type_url, about.value, entry.message.index_version)
    if details is None or details.coding not in _CODINGS or details.metric is None or not details.is_readable:
        return None
    message = table_pb2.VectorIndexDetails.FromString(about.value)
    if message.HasField("hnsw"):
        return None
    size = message.target_partition_size or None
    if details.coding is Coding.PQ:
        return VectorKind(Coding.PQ, details.metric, message.pq.num_sub_vectors, message.pq.num_bits, size)
    return VectorKind(details.coding, details.metric, partition_rows=size)


def has_centroids(entry: IndexMetadata) -> bool:
    """Whether a segment of vectors has files with centroids, of any kind that this release searches."""
    if entry.message is None or not is_trained(entry):
        return False
    about = entry.message.index_details
    details = decode_vector_details(about.type_url, about.value, entry.message.index_version)
    return details is not None and details.is_readable


def is_trained(entry: IndexMetadata) -> bool:
    """Whether a segment has files: an empty one waits for rows."""
    return bool(entry.fragment_ids) or bool(entry.file_paths)


def open_segment(state: DatasetState, entry: IndexMetadata, vectors: pa.FixedSizeListType) -> Plan[Ivf]:
    """A segment. Raises `FormatError` or `UnsupportedError` naming index and file."""
    assert entry.message is not None, "its kind is known"
    about = entry.message.index_details
    details = decode_vector_details(about.type_url, about.value, entry.message.index_version)
    assert details is not None, "its kind is known"
    part = IndexPart.of(entry, details, Space.IDS, frozenset(entry.fragment_ids or ()))
    index = VectorIndex(entry.name, entry.fields[0], (part,), ())
    (segment,) = yield from open_vector_segments(state, index, vectors.list_size, vectors.value_type)
    if isinstance(segment, Unread):
        raise UnsupportedError(f"index {entry.name!r}: {segment.reason}", path=segment.path)
    return segment


def stored_model(
    state: DatasetState, entry: IndexMetadata, kind: VectorKind, vectors: pa.FixedSizeListType
) -> Plan[VectorModel]:
    """The model of a segment."""
    segment = yield from open_segment(state, entry, vectors)
    codes = segment.codes
    if segment.coding is not kind.coding or segment.metric is not kind.metric or segment.kind != kind.name:
        raise FormatError(
            f"index {entry.name!r}: its files hold {segment.kind} with the metric {segment.metric}, the manifest says "
            f"{kind.name} with {kind.metric}",
            path=state.location.uri,
        )
    if isinstance(codes, ProductCodes):
        kind = VectorKind(kind.coding, kind.metric, len(codes.codebook), codes.bits, kind.partition_rows)
        return VectorModel(kind, vectors.value_type, segment.centroids, codes.codebook, transposed=codes.transposed)
    bounds = (codes.start, codes.end) if isinstance(codes, ScalarCodes) else None
    return VectorModel(kind, vectors.value_type, segment.centroids, bounds=bounds)


def stored_request(
    state: DatasetState, entries: Sequence[IndexMetadata], path: str, field: Field, vectors: pa.FixedSizeListType
) -> Plan[VectorRequest]:
    """The request for a segment like the first of these that has files."""
    kind = vector_kind(entries[0])
    assert kind is not None, "built here"
    trained = next((entry for entry in entries if is_trained(entry)), None)
    model = None if trained is None else (yield from stored_model(state, trained, kind, vectors))
    kind = kind if model is None else model.kind
    return VectorRequest(path, field, entries[0].name, vectors, kind, Training(), model)
