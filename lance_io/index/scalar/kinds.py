"""Which module reads which kind of index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lance_io.index.details import Kind
from lance_io.index.scalar import btree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.index.api import FileUse, OpenSegment, Question


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
}
