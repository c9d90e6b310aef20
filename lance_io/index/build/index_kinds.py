"""The kinds of scalar indices that are built: their names and the details of a new segment (spec: indices, 1.1)."""

from __future__ import annotations

from typing import Final

from lance_io.index.details import Kind, Space
from lance_io.records import dataclass


@dataclass(frozen=True, slots=True)
class IndexKind:
    """A kind of index, as it is built.

    kind         of the files
    name         as `create_scalar_index` takes it
    type_url     of its details message
    version      of its format, and `stable_version` where rows have stable ids
    space        the numbers by which it names rows where these have stable ids
    config_name  as `IndexConfig` takes it; None where pylance's does not
    """

    kind: Kind
    name: str
    type_url: str
    version: int
    stable_version: int
    space: Space
    config_name: str | None

    def index_version(self, *, stable: bool) -> int:
        """The version of a new segment. stable: whether the table has stable row ids."""
        return self.stable_version if stable else self.version

    @property
    def names_ids(self) -> bool:
        """Whether it names rows by row id; these are addresses where ids are not stable."""
        return self.space is Space.IDS


BTREE: Final = IndexKind(Kind.BTREE, "BTREE", "/lance.table.BTreeIndexDetails", 0, 1, Space.ADDRESSES, "btree")
BITMAP: Final = IndexKind(Kind.BITMAP, "BITMAP", "/lance.table.BitmapIndexDetails", 0, 0, Space.IDS, "bitmap")
LABEL_LIST: Final = IndexKind(
    Kind.LABEL_LIST, "LABEL_LIST", "/lance.table.LabelListIndexDetails", 1, 1, Space.IDS, None
)
ZONEMAP: Final = IndexKind(
    Kind.ZONE_MAP, "ZONEMAP", "/lance.table.ZoneMapIndexDetails", 0, 0, Space.ADDRESSES, "zonemap"
)
BLOOMFILTER: Final = IndexKind(
    Kind.BLOOM_FILTER, "BLOOMFILTER", "/lance.index.pb.BloomFilterIndexDetails", 0, 0, Space.ADDRESSES, "bloomfilter"
)
NGRAM: Final = IndexKind(Kind.NGRAM, "NGRAM", "/lance.table.NGramIndexDetails", 0, 0, Space.IDS, "ngram")
INVERTED: Final = IndexKind(Kind.INVERTED, "INVERTED", "/lance.table.InvertedIndexDetails", 2, 2, Space.IDS, "inverted")
KINDS: Final = {kind.name: kind for kind in (BTREE, BITMAP, LABEL_LIST, ZONEMAP, BLOOMFILTER, NGRAM, INVERTED)}
BY_KIND: Final = {kind.kind: kind for kind in KINDS.values()}
JSON_URL: Final = "/lance.index.pb.JsonIndexDetails"
