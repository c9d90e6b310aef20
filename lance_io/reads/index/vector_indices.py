"""The vector indices of a version that this release searches, and the fragments that their segments cover."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from lance_io.index.details import Space
from lance_io.index.vector.vector_details import decode_vector_details
from lance_io.reads.index.table_indices import IndexPart, of_one_column, usable_entries
from lance_io.reads.version.index_entries import group_by_name, load_indices
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.index.rows.moves import Move
    from lance_io.index.vector.distances import Metric
    from lance_io.index.vector.vector_details import VectorDetails
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata


@dataclass(frozen=True, slots=True, eq=False)
class VectorIndex:
    """A vector index.

    name      of the index
    field_id  of its column
    parts     its segments that cover fragments
    moves     by which addresses in their files become current ones, oldest first
    """

    name: str
    field_id: int
    parts: tuple[IndexPart[VectorDetails], ...]
    moves: tuple[Move, ...]

    @property
    def metric(self) -> Metric | None:
        """The metric that it measures; None if only its files say it."""
        return self.parts[0].details.metric

    @property
    def covered(self) -> frozenset[int]:
        """Ids of the fragments that one of its segments covers."""
        return frozenset().union(*(part.covered for part in self.parts))

    @property
    def is_readable(self) -> bool:
        """Whether this release searches it, as far as the index section says."""
        return all(part.details.is_readable for part in self.parts)


def load_vector_indices(state: DatasetState) -> Plan[tuple[VectorIndex, ...]]:
    """The vector indices of the version; at most one request, the first time. Raises `FormatError`."""
    known: tuple[VectorIndex, ...] | None = state.__dict__.get("vector_indices")
    if known is None:
        entries = (yield from load_indices(state)) if state.has_index and not state.shared_ids else []
        usable, moves = usable_entries(state, entries)
        known = state.__dict__["vector_indices"] = tuple(_indices(state, usable, moves))
    return known


def _indices(state: DatasetState, entries: Sequence[IndexMetadata], moves: tuple[Move, ...]) -> Iterator[VectorIndex]:
    space = Space.IDS if state.has_stable_row_ids else Space.ADDRESSES
    for name, segments in group_by_name(of_one_column(entries)).items():
        parts: list[IndexPart[VectorDetails]] = []
        seen: set[int] = set()
        for segment in segments:
            message = segment.message
            if message is None or segment.fragment_ids is None or segment.fields != segments[0].fields:
                continue
            details_any = message.index_details
            details = decode_vector_details(details_any.type_url, details_any.value, message.index_version)
            covered = frozenset(segment.fragment_ids.intersection(state.fragment_ids)) - seen
            if details is None or not covered:
                continue
            seen |= covered
            parts.append(IndexPart.of(segment, details, space, covered))
        if parts:
            yield VectorIndex(name, segments[0].fields[0], tuple(parts), moves)


def warn_unused(name: str, reason: str) -> None:
    """Warn that an index is not used; Python shows the same warning once."""
    warnings.warn(f"vector index {name!r} is not used, all vectors are compared: {reason}", stacklevel=2)
