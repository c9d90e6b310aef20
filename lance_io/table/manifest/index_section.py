"""The index section of a manifest file: the indices and the fragments they cover (spec: table, section 9).

Index files are not read. A commit must keep the section true for them, so entries keep the message they were parsed
from, and fields unknown to this release are written back.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final
from uuid import UUID

import numpy as np

from lance_io.codecs.roaring import decode_roaring, encode_roaring
from lance_io.errors import FormatError
from lance_io.format.wire import parse_message
from lance_io.proto import table_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.format.wire import Buffer

SYSTEM_PREFIX: Final = "__lance"
FRAGMENT_REUSE: Final = "__lance_frag_reuse"
MEM_WAL: Final = "__lance_mem_wal"
_ROW_ID_DETAILS: Final = frozenset(  # kinds of index that find rows by row id; zone maps and others find addresses
    {"BitmapIndexDetails", "LabelListIndexDetails", "NGramIndexDetails", "InvertedIndexDetails", "VectorIndexDetails"}
)
_MOVED_DETAILS: Final = (
    frozenset(  # kinds by which pylance keeps finding rows after a record of moves, also after later operations
        {
            "BitmapIndexDetails",
            "LabelListIndexDetails",
            "NGramIndexDetails",
            "ZoneMapIndexDetails",
            "BloomFilterIndexDetails",
            "VectorIndexDetails",
        }
    )
)
_MERGED_DETAILS: Final = frozenset(  # kinds whose merges write current row addresses; merges of zones keep the old ones
    {"BitmapIndexDetails", "LabelListIndexDetails", "NGramIndexDetails", "VectorIndexDetails"}
)
_SCALAR_DETAILS: Final = frozenset({"BTreeIndexDetails", "BitmapIndexDetails"})  # pylance's merges find keys by these
_BITMAP_VALUES_MAX: Final = 1 << 26  # fragments; far above any table, far below the count in a hostile bitmap


@dataclass(frozen=True)
class IndexMetadata:
    """One segment of an index.

    uuid             name of its folder, as text
    name             the index that it is a part of
    fields           ids of the indexed fields
    dataset_version  version that it was built from
    fragment_ids     fragments that it covers; None if it does not say
    covering_fields  ids of fields whose values it stores
    message          the message that it was parsed from, not to be changed; None for a new segment
    inferred_url     type URL of the details that its files tell, for an entry without details
    """

    uuid: str
    name: str
    fields: tuple[int, ...]
    dataset_version: int = 0
    fragment_ids: frozenset[int] | None = None
    covering_fields: tuple[int, ...] = ()
    message: table_pb2.IndexMetadata | None = field(default=None, repr=False, compare=False)
    inferred_url: str = field(default="", repr=False, compare=False)

    @property
    def is_system(self) -> bool:
        """True for entries that are not indices, such as the record of moved rows."""
        return self.name.startswith(SYSTEM_PREFIX)

    @property
    def is_scalar(self) -> bool:
        """Whether its kind finds rows by the value of a column."""
        return self.message is not None and self._kind in _SCALAR_DETAILS

    @property
    def type_url(self) -> str:
        """Type URL of its details message, which names its kind; empty if neither the entry nor its files tell."""
        return (self.message is not None and self.message.index_details.type_url) or self.inferred_url

    @property
    def lacks_kind(self) -> bool:
        """Whether it is an index of one column, of version 0, and has no details message."""
        if self.message is None or self.message.index_version or self.is_system:
            return False
        return not self.type_url and len(self.fields) == 1

    @property
    def _kind(self) -> str:
        return self.type_url.rpartition("/")[2].rpartition(".")[2]

    @property
    def base_id(self) -> int | None:
        """Base path that it is below, None for the table's own folder."""
        return self.message.base_id if self.message is not None and self.message.HasField("base_id") else None

    @property
    def file_paths(self) -> tuple[str, ...]:
        """Its files below its folder; empty if it does not say (older releases)."""
        return () if self.message is None else tuple(file.path for file in self.message.files)

    @property
    def follows_moves(self) -> bool:
        """Whether its kind finds moved rows through the record, also after later operations of pylance.

        B-trees and full text indices do not: pylance 14's next compaction rewrites their files without the record, and
        then they find nothing any more.
        """
        return self._kind in _MOVED_DETAILS

    @property
    def maps_when_merged(self) -> bool:
        """Whether pylance's merge of its segments writes the current row addresses."""
        return self._kind in _MERGED_DETAILS

    @property
    def may_be_graph(self) -> bool:
        """Whether it may be a graph of vectors (HNSW), in which pylance 14 finds nothing once a row of it is gone.

        Older releases do not record it for any vector index.
        """
        if self.message is None or self._kind != "VectorIndexDetails":
            return False
        value = self.message.index_details.value
        return not value or parse_message(table_pb2.VectorIndexDetails, value, "vector index").HasField("hnsw")

    @property
    def names_rows_by_id(self) -> bool:
        """Whether its kind is known to find rows by row id, independent of their addresses."""
        if self.message is None:
            return False
        return self._kind in _ROW_ID_DETAILS or (self._kind == "BTreeIndexDetails" and not self.message.index_version)


def decode_indices(section: Buffer) -> list[IndexMetadata]:
    """The entries of an index section. Raises `FormatError`."""
    message = parse_message(table_pb2.IndexSection, section, "index section")
    return [decode_index(each) for each in message.indices]


def decode_index(message: table_pb2.IndexMetadata) -> IndexMetadata:
    """Decode one entry. Raises `FormatError`."""
    bitmap = message.fragment_bitmap
    ids = decode_roaring(bitmap, num_values_max=_BITMAP_VALUES_MAX) if bitmap else None
    return IndexMetadata(
        uuid=decode_uuid(message.uuid),
        name=message.name,
        fields=tuple(message.fields),
        dataset_version=message.dataset_version,
        fragment_ids=None if ids is None else frozenset(ids.tolist()),
        covering_fields=tuple(message.covering_fields),
        message=message,
    )


def encode_index(index: IndexMetadata) -> table_pb2.IndexMetadata:
    """The message of an entry; unknown fields of its original message are kept."""
    message = table_pb2.IndexMetadata()
    if index.message is not None:
        message.CopyFrom(index.message)
    message.uuid.uuid = UUID(index.uuid).bytes
    message.name = index.name
    message.fields[:] = index.fields
    message.covering_fields[:] = index.covering_fields
    message.dataset_version = index.dataset_version
    if index.message is None or decode_index(index.message).fragment_ids != index.fragment_ids:
        message.fragment_bitmap = encode_fragment_ids(index.fragment_ids)
    return message


def encode_indices(indices: Iterable[IndexMetadata]) -> bytes:
    """An index section."""
    return table_pb2.IndexSection(indices=[encode_index(index) for index in indices]).SerializeToString()


def encode_fragment_ids(ids: Iterable[int] | None) -> bytes:
    """The bitmap of covered fragments; empty for None (unknown coverage)."""
    return b"" if ids is None else encode_roaring(np.array(sorted(ids), dtype=np.uint32))


def decode_uuid(message: table_pb2.UUID) -> str:
    """A UUID as hyphenated text. Raises `FormatError` unless it has 16 bytes."""
    if len(message.uuid) != 16:
        raise FormatError(f"a UUID of {len(message.uuid)} bytes, expected 16")
    return str(UUID(bytes=message.uuid))
