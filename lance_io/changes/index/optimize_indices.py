"""Brings indices up to date: fragments that no segment covers, and rows that moved since their segments were built.

    0 segments to merge  a new segment over the uncovered fragments; the present ones are not read
    k                    the last k segments and the uncovered fragments become one segment
    retrain              all segments become one

Merged segments are built again from the column, over the fragments that they cover, so that dead rows and old values
go. Those of vectors keep the centroids and codes of the first of them, but for `retrain`, which learns them again. Rows
that have these codes are copied from their segments, without those that are dead or out of date.
Segments that find their rows only through the record of a deferred compaction are built again in any case. All new
segments of all indices are one commit.
"""

from __future__ import annotations

import operator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from lance_io.changes.edits.change_plans import repeat_on_conflict
from lance_io.changes.index.build_segment import build_segment
from lance_io.changes.index.create_index import commit_segments
from lance_io.changes.index.index_request import limit_bytes
from lance_io.changes.index.known_segments import (
    is_built_here,
    may_hold_old_values,
    may_hold_updated_rows,
    names_ids,
    request_of,
)
from lance_io.changes.index.vectors.vector_settings import VectorRequest
from lance_io.errors import UnsupportedError
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import RollBackOnError
from lance_io.reads.version.index_entries import group_by_name, load_indices
from lance_io.records import dataclass
from lance_io.redaction import get_logger
from lance_io.table.manifest.fragment_reuse import find_reuse, is_readable, segments_needing_record
from lance_io.table.transaction.index_coverage import with_current_coverage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lance_io.changes.index.build_progress import BuildProgress
    from lance_io.changes.index.build_segment import NewSegment
    from lance_io.changes.index.vectors import copied_rows as copies
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata
else:
    copies = lazy_plans("lance_io.changes.index.vectors.copied_rows")

_REPEATS: Final = 2
_REPEATS_UNTIL: Final = timedelta(days=7)
_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """A segment to build: the segments that it replaces, and the fragments that it covers."""

    replaced: tuple[IndexMetadata, ...]
    fragment_ids: frozenset[int]


def optimize_indices(
    state: DatasetState,
    *,
    num_indices_to_merge: int | None,
    index_names: Sequence[str] | None,
    retrain: bool,
    memory_limit: int | None = None,
    progress: BuildProgress | None = None,
) -> Plan[DatasetState]:
    """Bring indices up to date; no commit if nothing is to do. See `DatasetOptimizer.optimize_indices`."""
    num_merged = 1 if num_indices_to_merge is None else operator.index(num_indices_to_merge)
    if num_merged < 0:
        raise OverflowError("can't convert negative int to unsigned")
    attempt = partial(
        _optimize,
        num_merged=None if retrain else num_merged,
        names=None if index_names is None else frozenset(index_names),
        limit=limit_bytes(memory_limit),
        progress=progress,
    )
    return (yield from repeat_on_conflict(state, attempt, _REPEATS, _REPEATS_UNTIL))


def _optimize(
    state: DatasetState,
    *,
    num_merged: int | None,
    names: frozenset[str] | None,
    limit: int,
    progress: BuildProgress | None,
) -> Plan[DatasetState]:
    stored = yield from load_indices(state)
    by_uuid = {entry.uuid: entry for entry in stored}
    built: list[NewSegment] = []
    removed: list[IndexMetadata] = []

    def build_all() -> Plan[None]:
        for entries, each in (yield from changes_due(state, stored, num_merged, names)):
            request = yield from request_of(state, each.replaced or entries)
            sources: Sequence[VectorIndex] = ()
            if isinstance(request, VectorRequest):
                if num_merged is None:
                    request = request.untrained()
                else:
                    sources = yield from copies.committed_sources(state, {entry.uuid for entry in each.replaced})
            fragment_ids = [fragment_id for fragment_id in state.fragment_ids if fragment_id in each.fragment_ids]
            build = build_segment(state, request, fragment_ids, None, limit, progress, sources)
            built.append((yield from build))
            removed.extend(by_uuid[entry.uuid] for entry in each.replaced)
        _logger.debug("%d segments built", len(built))

    def roll_back(cause: BaseException) -> Plan[None]:
        for segment in built:
            yield from segment.files.remove(cause)

    yield RollBackOnError(build_all(), roll_back)
    if not built:
        return state
    return (yield from commit_segments(state, built, removed))


def changes_due(
    state: DatasetState, stored: Sequence[IndexMetadata], num_merged: int | None, names: frozenset[str] | None
) -> Plan[list[tuple[list[IndexMetadata], SegmentChange]]]:
    """The segments to build, each with all segments of its index, in whose entries is what they cover now.

    stored      the index section of the version
    num_merged  segments to merge with the uncovered fragments; None for all
    names       of the indices; None for all
    """
    moved = _moved(stored)
    current = {entry.uuid: entry for entry in with_current_coverage(stored)}
    due: list[tuple[list[IndexMetadata], SegmentChange]] = []
    for entries in _of_names(state, current.values(), names):
        extent = yield from _extent(state, entries, num_merged)
        due += [(entries, each) for each in segment_changes(entries, *extent, moved)]
    return due


def _extent(
    state: DatasetState, entries: Sequence[IndexMetadata], num_merged: int | None
) -> Plan[tuple[frozenset[int], int | None]]:
    """The fragments of the version, and the number of segments to merge.

    All are merged where one has old values of rows that another one would cover: pylance finds such a row by the old
    value, too. These are rows that were updated under their ids, and those whose column was rewritten in place.
    """
    live = frozenset(state.fragment_ids)
    uncovered = live.difference(*(entry.fragment_ids or () for entry in entries))
    if num_merged is None or num_merged >= len(entries) or not uncovered:
        return live, num_merged
    if state.has_stable_row_ids and any(names_ids(state, entry) for entry in entries):
        if may_hold_updated_rows(state, uncovered):
            return live, None
    if (yield from may_hold_old_values(state, entries, uncovered)):
        return live, None
    return live, num_merged


def _moved(stored: Sequence[IndexMetadata]) -> frozenset[str]:
    """Segments (UUIDs) that find rows only through the record of deferred compactions."""
    record = find_reuse(stored)
    if record is None or not is_readable(record):
        return frozenset()
    return segments_needing_record(record, stored)


def _of_names(
    state: DatasetState, entries: Collection[IndexMetadata], names: frozenset[str] | None
) -> Iterator[list[IndexMetadata]]:
    """The segments of each wanted index. Raises `UnsupportedError` for a named index of another kind."""
    wanted = [entry for entry in entries if not entry.is_system and (names is None or entry.name in names)]
    for name, segments in group_by_name(wanted).items():
        if all(is_built_here(state, entry) for entry in segments):
            yield segments
        elif names is not None:
            raise UnsupportedError(
                f"index {name!r} is of a kind that this release does not build; bring it up to date with pylance",
                path=state.location.uri,
            )
        else:
            _logger.warning("index %s is of a kind that this release does not build: it stays as it is", name)


def segment_changes(
    entries: Sequence[IndexMetadata], live: frozenset[int], num_merged: int | None, moved: Collection[str]
) -> list[SegmentChange]:
    """The segments to build for one index.

    entries     its segments, in their order, with the fragments that they cover now
    live        ids of the fragments of the version
    num_merged  segments to merge with the uncovered fragments; None for all
    moved       segments (UUIDs) to build again in any case
    """
    covered = [live & (entry.fragment_ids or frozenset()) for entry in entries]
    uncovered = live.difference(*covered)
    count = len(entries) if num_merged is None else min(num_merged, len(entries))
    merges = bool(uncovered) or num_merged is None or (num_merged > 1 and count > 1)
    first = len(entries) - count if merges else len(entries)
    changes = [
        SegmentChange((entry,), fragment_ids)
        for entry, fragment_ids in zip(entries[:first], covered[:first], strict=True)
        if entry.uuid in moved
    ]
    if merges and (uncovered or first < len(entries)):
        changes.append(SegmentChange(tuple(entries[first:]), uncovered.union(*covered[first:])))
    return changes
