"""What the index section of a version says about its indices; index files are not read (spec: table, section 9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UnsupportedError
from lance_io.format.wire import parse_message
from lance_io.proto import table_pb2
from lance_io.reads.version.index_entries import load_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VECTOR: Final = "VectorIndexDetails"
_INVERTED: Final = "InvertedIndexDetails"
_METRICS: Final = ("L2", "COSINE", "DOT", "HAMMING")
_SUFFIX: Final = "IndexDetails"


@dataclass(frozen=True)
class IndexSegmentDescription:
    """One segment of an index, as the manifest has it.

    uuid             names its folder
    dataset_version_at_last_update  version that it was built from
    fragment_ids     fragments that it covers, also those that are gone
    index_version    of its format
    created_at       None when not recorded
    size_bytes       of its files, None when not recorded
    base_id          base path that it lies below, None for the table's own folder
    covering_fields  ids of fields whose values it stores
    """

    uuid: str
    dataset_version_at_last_update: int
    fragment_ids: set[int]
    index_version: int
    created_at: datetime | None
    size_bytes: int | None
    base_id: int | None
    covering_fields: list[int]


@dataclass(frozen=True)
class IndexDescription:
    """An index: its segments, and what they have in common.

    index_type        such as "BTree" or "IVF_PQ"
    type_url          of its details message
    fields            ids of the indexed fields; field_names: their paths
    num_rows_indexed  rows of this version that a segment covers, without those that are deleted
    total_size_bytes  of the files of all segments, None when not recorded
    """

    name: str
    index_type: str
    type_url: str
    fields: list[int]
    field_names: list[str]
    num_rows_indexed: int
    total_size_bytes: int | None
    segments: list[IndexSegmentDescription]
    _details: bytes = field(default=b"", repr=False)

    @property
    def details(self) -> dict[str, Any]:
        """Settings of a vector index, nothing of the other kinds.

        Raises `UnsupportedError` for full text indices, whose settings are not read.
        """
        kind = _kind(self.type_url)
        if kind == _INVERTED:
            raise UnsupportedError("this release does not read the settings of full text indices; pylance does")
        return _vector_details(self._details) if kind == _VECTOR else {}


def describe_indices(state: DatasetState) -> Plan[list[IndexDescription]]:
    """The indices of the open version by name; one request at most."""
    by_name: dict[str, list[IndexMetadata]] = {}
    for one in (yield from load_indices(state)):
        by_name.setdefault(one.name, []).append(one)
    paths = _paths(state.schema.fields)
    return [_describe(state, name, by_name[name], paths) for name in sorted(by_name)]


def index_segments(described: Sequence[IndexDescription]) -> list[dict[str, Any]]:
    """The segments of all indices, as `LanceDataset.list_indices` shows them."""
    return [
        {
            "name": one.name,
            "type": one.index_type,
            "uuid": segment.uuid,
            "fields": one.field_names,
            "version": segment.dataset_version_at_last_update,
            "fragment_ids": segment.fragment_ids,
            "base_id": segment.base_id,
        }
        for one in described
        for segment in one.segments
    ]


def _describe(
    state: DatasetState, name: str, entries: Sequence[IndexMetadata], paths: dict[int, str]
) -> IndexDescription:
    covered = frozenset[int]().union(*(one.fragment_ids or () for one in entries))
    live = [place for fragment_id, place in state.place_by_id.items() if fragment_id in covered]
    deleted = state.manifest.fragments.deleted_rows
    segments = [_describe_segment(one) for one in entries]
    sizes = [one.size_bytes for one in segments]
    details = entries[0].message.index_details if entries[0].message is not None else None
    url, value = (details.type_url, details.value) if details is not None else ("", b"")
    return IndexDescription(
        name=name,
        index_type=_index_type(url, value),
        type_url=url,
        fields=[*entries[0].fields],
        field_names=[paths[one] for one in entries[0].fields if one in paths],
        num_rows_indexed=sum(int(state.physical_rows[place]) - (deleted.get(place) or 0) for place in live),
        total_size_bytes=None if None in sizes else sum(one or 0 for one in sizes),
        segments=segments,
        _details=value,
    )


def _describe_segment(one: IndexMetadata) -> IndexSegmentDescription:
    message = one.message
    assert message is not None, "it was read"
    has_time = message.HasField("created_at")
    return IndexSegmentDescription(
        uuid=one.uuid,
        dataset_version_at_last_update=one.dataset_version,
        fragment_ids=set(one.fragment_ids or ()),
        index_version=message.index_version,
        created_at=_EPOCH + timedelta(milliseconds=message.created_at) if has_time else None,
        size_bytes=sum(file.size_bytes for file in message.files) if message.files else None,
        base_id=one.base_id,
        covering_fields=[*one.covering_fields],
    )


def _paths(fields: Sequence[Field], above: str = "") -> dict[int, str]:
    """Paths of all fields by id."""
    found: dict[int, str] = {}
    for one in fields:
        path = f"{above}{one.name}"
        found |= {one.id: path, **_paths(one.children, f"{path}.")}
    return found


# -- kinds -------------------------------------------------------------------------------------------------------------


def _kind(type_url: str) -> str:
    return type_url.rpartition("/")[2].rpartition(".")[2]


def _index_type(type_url: str, details: bytes) -> str:
    kind = _kind(type_url)
    if kind != _VECTOR:
        return kind.removesuffix(_SUFFIX) or "Unknown"
    message = parse_message(table_pb2.VectorIndexDetails, details, "index details")
    compression = (message.WhichOneof("compression") or "flat").upper()
    return f"IVF_{'HNSW_' if message.HasField('hnsw') else ''}{compression}"


def _vector_details(details: bytes) -> dict[str, Any]:
    message = parse_message(table_pb2.VectorIndexDetails, details, "index details")
    metric = _METRICS[message.metric] if message.metric < len(_METRICS) else str(message.metric)
    found: dict[str, Any] = {"metric_type": metric}
    if message.HasField("hnsw"):
        graph = message.hnsw
        found["hnsw"] = {
            "max_connections": graph.max_connections,
            "construction_ef": graph.construction_ef,
            "max_level": graph.max_level,
        }
    compression = message.WhichOneof("compression")
    if compression == "pq":
        found["compression"] = {
            "type": "pq",
            "num_bits": message.pq.num_bits,
            "num_sub_vectors": message.pq.num_sub_vectors,
        }
    elif compression == "sq":
        found["compression"] = {"type": "sq", "num_bits": message.sq.num_bits}
    elif compression == "rq":
        rotation = "matrix" if message.rq.rotation_type else "fast"
        found["compression"] = {"type": "rq", "num_bits": message.rq.num_bits, "rotation_type": rotation}
    if message.runtime_hints:
        found["runtime_hints"] = dict(message.runtime_hints)
    return found
