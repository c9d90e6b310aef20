"""Which module reads which kind of index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lance_io.index.details import Kind
from lance_io.index.scalar import bitmap, btree, ngram, zone_maps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.index.questions import FileUse, OpenSegment, Question


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
