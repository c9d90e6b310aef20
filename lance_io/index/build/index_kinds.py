"""The kinds of scalar indices that are built: names, details messages, and the rows that they name (spec: indices, 1)."""

from __future__ import annotations

from typing import Final

from lance_io.records import dataclass


@dataclass(frozen=True, slots=True)
class IndexKind:
    """A kind of index.

    name         as `create_scalar_index` takes it
    label        as `describe_indices` shows it
    type_url     of its details message
    version      of its format
    names_ids    whether it names rows by row id where these are stable; else by address
    version_of_addresses  the version where rows have stable ids; differs from `version` only for BTREE
    config_name  as `IndexConfig` takes it, None where it does not
    """

    name: str
    label: str
    type_url: str
    version: int = 0
    names_ids: bool = False
    version_of_addresses: int = 0
    config_name: str | None = None

    def index_version(self, *, stable: bool) -> int:
        """The version of a new segment. stable: whether the table has stable row ids."""
        return self.version_of_addresses if stable else self.version


BTREE: Final = IndexKind("BTREE", "BTree", "/lance.table.BTreeIndexDetails", 0, False, 1, "btree")
BITMAP: Final = IndexKind("BITMAP", "Bitmap", "/lance.table.BitmapIndexDetails", 0, True, 0, "bitmap")
LABEL_LIST: Final = IndexKind("LABEL_LIST", "LabelList", "/lance.table.LabelListIndexDetails", 1, True, 1)
ZONEMAP: Final = IndexKind("ZONEMAP", "ZoneMap", "/lance.table.ZoneMapIndexDetails", 0, False, 0, "zonemap")
BLOOMFILTER: Final = IndexKind(
    "BLOOMFILTER", "BloomFilter", "/lance.index.pb.BloomFilterIndexDetails", 0, False, 0, "bloomfilter"
)
NGRAM: Final = IndexKind("NGRAM", "NGram", "/lance.table.NGramIndexDetails", 0, True, 0, "ngram")
KINDS: Final = {kind.name: kind for kind in (BTREE, BITMAP, LABEL_LIST, ZONEMAP, BLOOMFILTER, NGRAM)}
JSON_URL: Final = "/lance.index.pb.JsonIndexDetails"


def kind_of_url(type_url: str) -> IndexKind | None:
    """The kind of a details message; pylance compares the part behind the last slash, in any case."""
    wanted = type_url.rpartition("/")[2].lower()
    return next((kind for kind in KINDS.values() if kind.type_url.rpartition("/")[2].lower() == wanted), None)
