"""Segments for the fragments of a compaction, so that indices that name rows by address keep covering them.

A segment that would lose fragments is built again from the column: over the fragments that it covers, with the new
fragments of the compaction in place of the old ones. It is a part of the same commit. A segment of vectors is copied,
with the addresses that its rows have then. Segments stay as they are that name rows by stable ids, and those that find
moved rows through the record of moves (`deferred_moves.py`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from lance_io.changes.index.build_segment import build_segment
from lance_io.changes.index.known_segments import is_built_here, names_ids, request_of
from lance_io.changes.index.vectors.vector_settings import VectorRequest
from lance_io.index.details import Space
from lance_io.index.rows.moves import Move
from lance_io.index.rows.row_set import RowSet
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import RollBackOnError
from lance_io.proto import table_pb2, transaction_pb2
from lance_io.reads.rows.deletions_and_ids import load_live
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS, kept_runs
from lance_io.reads.version.index_entries import load_indices
from lance_io.table.manifest.fragment import encode_fragment
from lance_io.table.manifest.fragment_reuse import find_reuse, is_readable, segments_needing_record
from lance_io.table.manifest.manifest import VERSION_MAX, from_message
from lance_io.table.transaction.index_coverage import with_current_coverage
from lance_io.table.transaction.operations import RewrittenIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.changes.index.build_segment import NewSegment
    from lance_io.changes.index.vectors import copied_rows as copies
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata
    from lance_io.table.transaction.operations import RewriteGroup
else:
    copies = lazy_plans("lance_io.changes.index.vectors.copied_rows")

Remapped = tuple[RewrittenIndex, "NewSegment"]


def remap_indices(
    state: DatasetState, groups: Sequence[RewriteGroup], limit_bytes: int, *, defers: bool | None, records: bool
) -> Plan[list[Remapped]]:
    """Build the segments. If one fails, the files of all go.

    state    the version before, with the fragments of the groups
    groups   with the ids of the new fragments, whose files are there
    defers   True leaves all indices as they are; None those that find moved rows through the record
    records  whether the compaction records the moves
    """
    if defers:
        return []
    stored = yield from load_indices(state)
    record = find_reuse(stored)
    needing = segments_needing_record(record, stored) if record is not None and is_readable(record) else frozenset()
    after = _compacted(state, groups)
    built: list[Remapped] = []

    def build() -> Plan[None]:
        for entry in with_current_coverage(stored):
            if defers is None and records and (entry.follows_moves or entry.uuid in needing):
                continue
            covered = _covered_then(state, entry, groups)
            if covered is not None:
                request = yield from request_of(state, [entry])
                fragment_ids = [fragment_id for fragment_id in after.fragment_ids if fragment_id in covered]
                sources: Sequence[VectorIndex] = ()
                if isinstance(request, VectorRequest):
                    sources = yield from _moved_sources(state, entry, groups, covered)
                segment = yield from build_segment(after, request, fragment_ids, None, limit_bytes, sources=sources)
                built.append((_rewritten(entry, segment), segment))

    yield RollBackOnError(build(), partial(remove_remapped, built))
    return built


def remove_remapped(built: Sequence[Remapped], cause: BaseException) -> Plan[None]:
    """Remove the files of new segments."""
    for _, segment in built:
        yield from segment.files.remove(cause)


def _covered_then(state: DatasetState, entry: IndexMetadata, groups: Sequence[RewriteGroup]) -> frozenset[int] | None:
    """The fragments that a segment covers after the compaction; None if it is not built again."""
    covered = entry.fragment_ids
    if not covered or not is_built_here(state, entry) or (state.has_stable_row_ids and names_ids(state, entry)):
        return None
    is_touched = False
    for group in groups:
        old = frozenset(fragment.id for fragment in group.old_fragments)
        if old <= covered:
            covered, is_touched = covered - old | {fragment.id for fragment in group.new_fragments}, True
        elif not old.isdisjoint(covered):
            return None
    return covered if is_touched else None


def _moved_sources(
    state: DatasetState, entry: IndexMetadata, groups: Sequence[RewriteGroup], covered: frozenset[int]
) -> Plan[Sequence[VectorIndex]]:
    """A segment of vectors after the compaction; none if it is not known which rows became which."""
    moves = []
    for group in groups:
        move = yield from _move(state, group)
        if move is None:
            return ()
        moves.append(move)
    sources: Sequence[VectorIndex] = yield from copies.moved_sources(state, entry.uuid, moves, covered)
    return sources


def _move(state: DatasetState, group: RewriteGroup) -> Plan[Move | None]:
    """The move of a group: its live rows, in order, are those of the new fragments. None if they are not as many."""
    old = [fragment.id for fragment in group.old_fragments]
    if old != sorted(old):
        return None
    indexes = state.fragment_indexes_of(old)
    live = yield from load_live(state, indexes)
    runs = [kept_runs(live[index].num_rows, live[index].deleted_between(0, live[index].num_rows)) for index in indexes]
    firsts = [np.uint64(fragment_id << OFFSET_BITS) for fragment_id in old]
    starts, ends = (
        np.concatenate([each[side].astype(np.uint64) + first for each, first in zip(runs, firsts, strict=True)])
        for side in (0, 1)
    )
    new = tuple((fragment.id, fragment.physical_rows or 0) for fragment in group.new_fragments)
    move = Move(frozenset(old), RowSet.of_runs(Space.ADDRESSES, starts, ends), new)
    return move if move.rows.num_rows == sum(num_rows for _, num_rows in new) else None


def _compacted(state: DatasetState, groups: Sequence[RewriteGroup]) -> DatasetState:
    """The version as the compaction will leave it."""
    gone = {fragment.id for group in groups for fragment in group.old_fragments}
    message = table_pb2.Manifest()
    message.CopyFrom(state.manifest.message)
    kept = [fragment for fragment in message.fragments if fragment.id not in gone]
    new = [encode_fragment(fragment) for group in groups for fragment in group.new_fragments]
    fragments = table_pb2.Manifest(fragments=sorted([*kept, *new], key=lambda fragment: fragment.id)).fragments
    message.ClearField("fragments")
    message.fragments.extend(fragments)
    message.transaction_file = f"{uuid4()}.txn"  # caches distinguish versions by it
    return replace(state, manifest=from_message(message, VERSION_MAX))


def _rewritten(entry: IndexMetadata, segment: NewSegment) -> RewrittenIndex:
    message = transaction_pb2.Rewrite.RewrittenIndex()
    new = segment.entry.message
    assert new is not None
    message.new_index_details.CopyFrom(new.index_details)
    message.new_index_version = new.index_version
    message.new_index_files.extend(new.files)
    return RewrittenIndex(entry.uuid, segment.entry.uuid, message, names_new_rows=True)
