"""Which module reads which kind of index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.types as pt

from lance_io.index.details import Kind
from lance_io.index.scalar import bitmap, btree, ngram, zone_maps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from lance_io.index.questions import FileUse, OpenSegment, Question, Segment


class KindReader(NamedTuple):
    """How segments of a kind are read.

    uses     the files of a segment
    open     makes a segment of them
    answers  whether a segment may answer a question: at best as `Segment.answers` says then
    """

    uses: tuple[FileUse, ...]
    open: OpenSegment
    answers: Callable[[Question], bool | None]


READERS: Final[Mapping[Kind, KindReader]] = {
    Kind.BTREE: KindReader(btree.USES, btree.open_btree, btree.answers),
    Kind.BITMAP: KindReader(bitmap.USES, bitmap.open_bitmap, bitmap.answers),
    Kind.LABEL_LIST: KindReader(bitmap.LABEL_USES, bitmap.open_label_list, bitmap.answers_labels),
    Kind.ZONE_MAP: KindReader(zone_maps.ZONE_MAP_USES, zone_maps.open_zone_map, zone_maps.zone_map_answers),
    Kind.BLOOM_FILTER: KindReader(zone_maps.BLOOM_USES, zone_maps.open_bloom_filters, zone_maps.bloom_answers),
    Kind.NGRAM: KindReader(ngram.USES, ngram.open_ngram, ngram.answers),
}


def value_type(segment: Segment) -> pa.DataType | None:
    """The type of the values of a B-tree or bitmap index; None for texts if there are no values, and for other kinds.

    An index on a path of JSON documents that have no value there is one of texts.
    """
    keys = segment.greatest if isinstance(segment, btree.BTree) else None
    keys = segment.keys if isinstance(segment, bitmap.Bitmap) else keys
    return None if keys is None or (not len(keys) and pt.is_string(keys.type)) else keys.type


def num_zones(segment: Segment) -> int:
    """The zones that a search examines; 0 for other kinds."""
    return len(segment.zones.starts) if isinstance(segment, zone_maps.ZoneMap | zone_maps.BloomZones) else 0
