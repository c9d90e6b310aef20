"""Indices of a version, from its index section; index files are not read (spec: table, section 9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from lance_io.format.wire import parse_message
from lance_io.index.details import names_text_index
from lance_io.index.text.text_parameters import text_details
from lance_io.proto import table_pb2
from lance_io.reads.version.index_entries import group_by_name, load_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VECTOR: Final = "VectorIndexDetails"
_METRICS: Final = ("L2", "COSINE", "DOT", "HAMMING")
_SUFFIX: Final = "IndexDetails"


@dataclass(frozen=True)
class IndexSegmentDescription:
    """One segment of an index, from the manifest.

    Attributes:
        uuid: Name of its folder.
        dataset_version_at_last_update: Version that it was built from.
        fragment_ids: Ids of the fragments that it covers, including removed ones.
        index_version: Version of its format.
        created_at: Time of creation; None if not recorded.
        size_bytes: Bytes of its files; None if not recorded.
        base_id: Id of the base path that it lies below; None for the table's own folder.
        covering_fields: Ids of fields whose values it stores.
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
    """An index and its segments.

    Attributes:
        name: Name of the index.
        index_type: Type, such as "BTree" or "IVF_PQ".
        type_url: Type of its details message.
        fields: Ids of the indexed fields.
        field_names: Paths of the indexed fields.
        num_rows_indexed: Rows of this version that a segment covers, without deleted ones.
        total_size_bytes: Bytes of the files of all segments; None if not recorded.
        segments: Its segments.
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
        """Settings of a vector index, or of a full text index; empty for the other kinds."""
        if names_text_index(self.type_url):
            return text_details(self._details)
        return _vector_details(self._details) if _kind(self.type_url) == _VECTOR else {}


def is_text_segment(entry: IndexMetadata) -> bool:
    """Whether it is a segment of a full text index."""
    return names_text_index(entry.type_url)


def describe_indices(state: DatasetState) -> Plan[list[IndexDescription]]:
    """The indices of the open version by name; at most one request."""
    indices = group_by_name((yield from load_indices(state)))
    paths = _paths(state.schema.fields)
    return [_describe(state, name, indices[name], paths) for name in sorted(indices)]


def index_segments(described: Sequence[IndexDescription]) -> list[dict[str, Any]]:
    """The segments of all indices, as `LanceDataset.list_indices` shows them."""
    return [
        {
            "name": index.name,
            "type": index.index_type,
            "uuid": segment.uuid,
            "fields": index.field_names,
            "version": segment.dataset_version_at_last_update,
            "fragment_ids": segment.fragment_ids,
            "base_id": segment.base_id,
        }
        for index in described
        for segment in index.segments
    ]


def _describe(
    state: DatasetState, name: str, entries: Sequence[IndexMetadata], paths: dict[int, str]
) -> IndexDescription:
    covered = frozenset[int]().union(*(entry.fragment_ids or () for entry in entries))
    live = [
        fragment_index for fragment_id, fragment_index in state.fragment_index_by_id.items() if fragment_id in covered
    ]
    deleted = state.manifest.fragments.deleted_rows
    segments = [_describe_segment(entry) for entry in entries]
    sizes = [segment.size_bytes for segment in segments]
    details = entries[0].message.index_details if entries[0].message is not None else None
    url, value = (details.type_url, details.value) if details is not None else ("", b"")
    return IndexDescription(
        name=name,
        index_type=_index_type(url, value),
        type_url=url,
        fields=[*entries[0].fields],
        field_names=[paths[field_id] for field_id in entries[0].fields if field_id in paths],
        num_rows_indexed=sum(
            int(state.physical_rows[fragment_index]) - (deleted.get(fragment_index) or 0) for fragment_index in live
        ),
        total_size_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        segments=segments,
        _details=value,
    )


def _describe_segment(entry: IndexMetadata) -> IndexSegmentDescription:
    message = entry.message
    assert message is not None, "it was read"
    has_time = message.HasField("created_at")
    return IndexSegmentDescription(
        uuid=entry.uuid,
        dataset_version_at_last_update=entry.dataset_version,
        fragment_ids=set(entry.fragment_ids or ()),
        index_version=message.index_version,
        created_at=_EPOCH + timedelta(milliseconds=message.created_at) if has_time else None,
        size_bytes=sum(file.size_bytes for file in message.files) if message.files else None,
        base_id=entry.base_id,
        covering_fields=[*entry.covering_fields],
    )


def _paths(fields: Sequence[Field], above: str = "") -> dict[int, str]:
    """Paths of all fields by id."""
    paths: dict[int, str] = {}
    for node in fields:
        path = f"{above}{node.name}"
        paths |= {node.id: path, **_paths(node.children, f"{path}.")}
    return paths


# -- kinds -------------------------------------------------------------------------------------------------------------


def _kind(type_url: str) -> str:
    return type_url.rpartition("/")[2].rpartition(".")[2]


def shown_kind(type_url: str) -> str:
    """The name of a kind, from the type URL of its details message."""
    return _kind(type_url).removesuffix(_SUFFIX) or "Unknown"


def _index_type(type_url: str, details: bytes) -> str:
    kind = _kind(type_url)
    if kind != _VECTOR:
        return shown_kind(type_url)
    message = parse_message(table_pb2.VectorIndexDetails, details, "index details")
    compression = (message.WhichOneof("compression") or "flat").upper()
    return f"IVF_{'HNSW_' if message.HasField('hnsw') else ''}{compression}"


def _vector_details(details: bytes) -> dict[str, Any]:
    message = parse_message(table_pb2.VectorIndexDetails, details, "index details")
    metric = _METRICS[message.metric] if message.metric < len(_METRICS) else str(message.metric)
    settings: dict[str, Any] = {"metric_type": metric}
    if message.HasField("hnsw"):
        graph = message.hnsw
        settings["hnsw"] = {
            "max_connections": graph.max_connections,
            "construction_ef": graph.construction_ef,
            "max_level": graph.max_level,
        }
    compression = message.WhichOneof("compression")
    if compression == "pq":
        settings["compression"] = {
            "type": "pq",
            "num_bits": message.pq.num_bits,
            "num_sub_vectors": message.pq.num_sub_vectors,
        }
    elif compression == "sq":
        settings["compression"] = {"type": "sq", "num_bits": message.sq.num_bits}
    elif compression == "rq":
        rotation = "matrix" if message.rq.rotation_type else "fast"
        settings["compression"] = {"type": "rq", "num_bits": message.rq.num_bits, "rotation_type": rotation}
    if message.runtime_hints:
        settings["runtime_hints"] = dict(message.runtime_hints)
    return settings
