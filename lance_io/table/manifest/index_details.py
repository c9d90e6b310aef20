"""What an index entry says beyond what commits need to know of it (spec: table, section 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from lance_io.proto import table_pb2
from lance_io.table.manifest.index_section import IndexMetadata, encode_fragment_ids, encode_index

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class IndexFacts:
    """The rest of an index entry.

    index_version  of the index's own format, 0 when not recorded
    created_at_ms  milliseconds since the epoch, None when not recorded
    base_id        base path that it lies below, None for the table's own folder
    files          path and size in bytes of each of its files
    details        type URL and bytes of what its kind of index says about it
    """

    index_version: int = 0
    created_at_ms: int | None = None
    base_id: int | None = None
    files: tuple[tuple[str, int], ...] = ()
    details: tuple[str, bytes] | None = None


def index_facts(index: IndexMetadata) -> IndexFacts:
    """What the message of an entry says."""
    message = encode_index(index)
    details = message.index_details
    return IndexFacts(
        index_version=message.index_version,
        created_at_ms=message.created_at if message.HasField("created_at") else None,
        base_id=message.base_id if message.HasField("base_id") else None,
        files=tuple((one.path, one.size_bytes) for one in message.files),
        details=(details.type_url, details.value) if message.HasField("index_details") else None,
    )


def new_index(
    uuid: str,
    name: str,
    fields: Iterable[int],
    dataset_version: int,
    fragment_ids: Iterable[int] | None,
    covering_fields: Iterable[int],
    facts: IndexFacts,
) -> IndexMetadata:
    """An entry of its parts; `uuid` as text. Raises `ValueError` for text that is no UUID."""
    ids = None if fragment_ids is None else frozenset(fragment_ids)
    message = table_pb2.IndexMetadata(
        uuid=table_pb2.UUID(uuid=UUID(uuid).bytes),
        name=name,
        fields=list(fields),
        dataset_version=dataset_version,
        fragment_bitmap=encode_fragment_ids(ids),
        index_version=facts.index_version,
        created_at=facts.created_at_ms,
        base_id=facts.base_id,
        files=[table_pb2.IndexFile(path=path, size_bytes=size_bytes) for path, size_bytes in facts.files],
        covering_fields=list(covering_fields),
    )
    if facts.details is not None:
        message.index_details.type_url, message.index_details.value = facts.details
    return IndexMetadata(
        uuid=str(UUID(uuid)),
        name=name,
        fields=tuple(message.fields),
        dataset_version=dataset_version,
        fragment_ids=ids,
        covering_fields=tuple(message.covering_fields),
        message=message,
    )
