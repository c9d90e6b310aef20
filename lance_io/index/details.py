"""Kinds of index: from the details in the index section to the files that a segment has (spec: indices, 1.1).

A kind that this release does not know, and a format version newer than those that it knows, is carried by commits and
never used.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Final

from lance_io.errors import FormatError
from lance_io.format.wire import parse_message
from lance_io.proto import table_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Kind(Enum):
    """A kind of index that finds rows by values of a column; the value is the type that `describe_indices` shows."""

    BTREE = "BTree"
    BITMAP = "Bitmap"
    LABEL_LIST = "LabelList"
    ZONE_MAP = "ZoneMap"
    BLOOM_FILTER = "BloomFilter"
    NGRAM = "NGram"
    JSON = "Json"
    INVERTED = "Inverted"


class Space(Enum):
    """The numbers by which an index names rows."""

    ADDRESSES = "row addresses"
    IDS = "row ids"


_MESSAGES: Final[Mapping[str, Kind]] = {
    "lance.table.btreeindexdetails": Kind.BTREE,
    "lance.table.bitmapindexdetails": Kind.BITMAP,
    "lance.table.labellistindexdetails": Kind.LABEL_LIST,
    "lance.table.zonemapindexdetails": Kind.ZONE_MAP,
    "lance.index.pb.bloomfilterindexdetails": Kind.BLOOM_FILTER,
    "lance.table.ngramindexdetails": Kind.NGRAM,
    "lance.index.pb.jsonindexdetails": Kind.JSON,
    # as pylance 0.36 named them
    "lance.index.pb.btreeindexdetails": Kind.BTREE,
    "lance.index.pb.bitmapindexdetails": Kind.BITMAP,
    "lance.index.pb.labellistindexdetails": Kind.LABEL_LIST,
    "lance.index.pb.zonemapindexdetails": Kind.ZONE_MAP,
    "lance.index.pb.ngramindexdetails": Kind.NGRAM,
}
VERSIONS: Final[Mapping[Kind, int]] = {
    Kind.BTREE: 1,
    Kind.BITMAP: 0,
    Kind.LABEL_LIST: 1,
    Kind.ZONE_MAP: 0,
    Kind.BLOOM_FILTER: 0,
    Kind.NGRAM: 0,
    Kind.JSON: 0,
}
"""The newest version of each kind that this release reads."""
FILES: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.BTREE: ("page_lookup.lance", "page_data.lance"),
    Kind.BITMAP: ("bitmap_page_lookup.lance",),
    Kind.LABEL_LIST: ("bitmap_page_lookup.lance",),
    Kind.ZONE_MAP: ("zonemap.lance",),
    Kind.BLOOM_FILTER: ("bloomfilter.lance",),
    Kind.NGRAM: ("ngram_postings.lance",),
}
"""The files in a segment's folder. An index on a path of JSON documents has those of its inner kind."""


@dataclass(frozen=True, slots=True)
class IndexDetails:
    """The kind and the settings of a segment.

    kind          of the index; for an index on a path of JSON documents the kind that its files have
    version       of its format
    json_path     the path whose values are indexed; None for an index on the column's own values
    has_null_bitmap  whether a zone map says that it lists its nulls
    """

    kind: Kind
    version: int
    json_path: str | None = None
    has_null_bitmap: bool = False
    files: tuple[str, ...] = field(default=())

    def space(self, *, stable_row_ids: bool) -> Space:
        """The numbers by which a segment names rows (spec: indices, 1.2)."""
        if self.kind in (Kind.ZONE_MAP, Kind.BLOOM_FILTER) or not stable_row_ids:
            return Space.ADDRESSES
        if self.kind is Kind.BTREE and self.json_path is None and self.version >= 1:
            return Space.ADDRESSES
        return Space.IDS


def decode_details(type_url: str, value: bytes, version: int) -> IndexDetails | None:
    """The details of a segment; None for a kind or a version that this release does not read.

    Raises `FormatError` for damaged details.
    """
    kind = _kind_of(type_url)
    if kind is None or version > VERSIONS[kind]:
        return None
    if kind is Kind.JSON:
        message = parse_message(table_pb2.JsonIndexDetails, value, "details of a JSON index")
        inner = _kind_of(message.target_details.type_url)
        if inner not in (Kind.BTREE, Kind.BITMAP):
            return None
        if not message.path:
            raise FormatError("details of a JSON index: no path")
        return IndexDetails(inner, version, message.path, files=FILES[inner])
    has_null_bitmap = False
    if kind is Kind.ZONE_MAP:
        zones = parse_message(table_pb2.ZoneMapIndexDetails, value, "details of a zone map")
        has_null_bitmap = zones.has_null_bitmap
    return IndexDetails(kind, version, has_null_bitmap=has_null_bitmap, files=FILES[kind])


def infer_type_url(names: Collection[str], *, is_list: bool) -> str:
    """The type URL of a segment without details, from the names of its files; empty if they tell none.

    is_list  whether its column holds lists
    """
    if "bitmap_page_lookup.lance" in names:
        return f"/lance.table.{'LabelList' if is_list else 'Bitmap'}IndexDetails"
    if "metadata.lance" in names or "tokens.lance" in names:
        return "/lance.table.InvertedIndexDetails"
    return "/lance.table.BTreeIndexDetails" if "page_lookup.lance" in names else ""


def names_text_index(type_url: str) -> bool:
    """Whether a details message is that of a full text index, in whichever package a release has it."""
    return type_url.rpartition("/")[2].rpartition(".")[2].lower() == "invertedindexdetails"


def _kind_of(type_url: str) -> Kind | None:
    """The kind of a details message; pylance compares the part after the last `/` without regard to case."""
    return _MESSAGES.get(type_url.rpartition("/")[2].lower())
