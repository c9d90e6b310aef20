"""Statistics of segments of vector indices: partitions, centroids, codes, mean distance from the centroids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import FormatError
from lance_io.file.file_requests import ReadFile
from lance_io.file.take.side_file import SideFile
from lance_io.format.wire import parse_message
from lance_io.index.vector.ivf import INDEX_FILE, LAYOUT, ROWS_FILE, STORAGE
from lance_io.index.vector.storage_metadata import parse_json, storage_of
from lance_io.index.vector.vector_codes import read_tensor
from lance_io.index.vector.vector_details import decode_vector_details, mean_distance_of
from lance_io.plans.plan import Together
from lance_io.proto import index_pb2
from lance_io.reads.version.index_errors import INDEX_ERRORS, in_index
from lance_io.table.manifest.paths import INDICES, check_relative

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.file.file_steps import FileSteps
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

_INTERNAL: Final = ("codebook_position", "codebook_tensor")
_DECIMALS: Final = 6


def is_vector_segment(entry: IndexMetadata) -> bool:
    """Whether a segment is of a vector index, and has files."""
    if entry.message is None or not (entry.file_paths or entry.fragment_ids):
        return False
    details = entry.message.index_details
    return decode_vector_details(details.type_url, details.value, entry.message.index_version) is not None


def vector_segment(state: DatasetState, entry: IndexMetadata) -> Plan[dict[str, Any]]:
    """Statistics of a segment, in pylance's form. Raises `FormatError` naming index and file.

    `mean_distance` is the mean squared distance (for hamming, bits) of its vectors from their centroids, None where the
    files do not say it.
    """
    (index, layout), (rows, ranges) = yield Together([_open(state, entry, name) for name in (INDEX_FILE, ROWS_FILE)])
    try:
        about = parse_json(index.get("lance:index"), "lance:index")
        if not isinstance(about, dict):
            raise FormatError("lance:index: expected a JSON object")
        storage = {key: value for key, value in storage_of(rows.get(STORAGE)).items() if key not in _INTERNAL}
        message = parse_message(index_pb2.Ivf, layout, LAYOUT)
        centroids = read_tensor(message.centroids, "centroids")
        sizes = parse_message(index_pb2.Ivf, ranges, LAYOUT).lengths
    except INDEX_ERRORS as error:
        raise in_index(error, entry.name, _folder(state, entry, INDEX_FILE)[1]) from error
    kind, metric = str(about.get("type")), str(about.get("distance_type"))
    sub_kind = kind.removeprefix("IVF_")
    sub_metric = "l2" if metric == "cosine" and sub_kind.endswith("PQ") else metric
    return {
        "index_type": kind,
        "uuid": entry.uuid,
        "uri": f"{state.location.uri.rstrip('/')}/{INDICES}/{entry.uuid}/{INDEX_FILE}",
        "metric_type": metric,
        "num_partitions": len(centroids),
        "sub_index": {**storage, "index_type": sub_kind, "metric_type": sub_metric},
        "partitions": [{"size": size} for size in sizes],
        "centroids": centroids.tolist(),
        "loss": message.loss if message.HasField("loss") else None,
        "index_file_version": "V3",
        "mean_distance": mean_distance_of(index),
    }


def with_drift(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The segments with their `drift`: `mean_distance` over that of the first one; None where it is not known."""
    known = [segment["mean_distance"] for segment in segments if segment.get("mean_distance")]

    def drift(distance: float | None) -> float | None:
        return round(distance / known[0], _DECIMALS) if known and distance is not None else None

    return [
        {**segment, "drift": drift(segment["mean_distance"])} if "mean_distance" in segment else segment
        for segment in segments
    ]


def _folder(state: DatasetState, entry: IndexMetadata, name: str) -> tuple[Any, str]:
    folder = state.location
    if entry.base_id is not None:
        folder = state.object_keys.base_folder(state.manifest.base_paths[entry.base_id])
    return folder, folder.key(INDICES, check_relative(entry.uuid, "index"), name)


def _open(state: DatasetState, entry: IndexMetadata, name: str) -> Plan[tuple[Mapping[str, str], bytes]]:
    """Metadata of a file, and the buffer with its partitions."""
    folder, key = _folder(state, entry, name)
    assert entry.message is not None, "its kind is known"
    size_bytes = {file.path: file.size_bytes for file in entry.message.files}.get(name, 0)
    context = state.context_of(folder.store)

    def steps() -> FileSteps[tuple[Mapping[str, str], bytes]]:
        file = yield from SideFile.open(context, key, size_bytes)
        text = file.metadata.get(LAYOUT, "")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise FormatError(f"{LAYOUT}: expected the number of a global buffer, found {text[:40]!r}", path=key)
        return file.metadata, bytes((yield from file.read_buffer(int(text))))

    try:
        opened: tuple[Mapping[str, str], bytes] = yield ReadFile(context, key, steps(), size_bytes or None)
    except INDEX_ERRORS as error:
        raise in_index(error, entry.name, key) from error
    return opened
