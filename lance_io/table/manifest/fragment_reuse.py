"""The fragment reuse index: a record of moved rows, for compactions that do not rewrite indices (spec: indices, 1).

It is an entry of the index section without files. For each such compaction it lists the addresses of the moved rows,
and the old and new fragments: the n-th address is the n-th row of the new fragments. Index files keep the old
addresses, and readers of an index map its results. Bitmaps name the old fragments until the next commit writes the
section, which names the new fragments, as pylance does. So the bitmap of an index does not say which compactions its
files include.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import numpy as np

from lance_io.codecs.roaring import encode_roaring
from lance_io.errors import UnsupportedError
from lance_io.format.wire import parse_message
from lance_io.proto import table_pb2
from lance_io.table.manifest.index_section import FRAGMENT_REUSE, IndexMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_io.codecs.roaring import U32Array
    from lance_io.table.manifest.fragment import Fragment

_TYPE: Final = "/lance.table.FragmentReuseIndexDetails"
_TRIMMED_BYTES: Final = 1024  # a smaller record keeps groups that no index needs, like pylance's
_NOTHING: Final[Mapping[int, frozenset[str]]] = {}

Details = table_pb2.FragmentReuseIndexDetails


def find_reuse(indices: Iterable[IndexMetadata]) -> IndexMetadata | None:
    """The fragment reuse index, None if there is none."""
    return next((index for index in indices if index.name == FRAGMENT_REUSE), None)


def encode_addresses(offsets: Mapping[int, U32Array]) -> bytes:
    """Row addresses as a treemap.

    offsets  of rows, ascending, by fragment id
    """
    parts = [len(offsets).to_bytes(8, "little")]
    for fragment_id in sorted(offsets):
        parts += [fragment_id.to_bytes(4, "little"), encode_roaring(offsets[fragment_id], runs=True)]
    return b"".join(parts)


def record_moves(
    known: IndexMetadata | None,
    version: int,
    groups: Sequence[tuple[bytes, Sequence[Fragment], Sequence[Fragment]]],
) -> IndexMetadata:
    """The entry with one more compaction.

    known       the current entry
    version     that the compaction was committed on
    groups      addresses of moved rows (a treemap), old fragments, new fragments (with their ids)
    Raises `UnsupportedError` if the entry's content is in a separate file.
    """
    details = _decode(known)
    compaction = details.inline.versions.add(dataset_version=version)
    for addresses, old, new in groups:
        group = compaction.groups.add(changed_row_addrs=addresses)
        for side, fragments in ((group.old_fragments, old), (group.new_fragments, new)):
            for fragment in fragments:
                side.add(
                    id=fragment.id,
                    physical_rows=fragment.physical_rows or 0,
                    num_deleted_rows=fragment.num_deleted_rows or 0,
                )
    return _entry(known, details, version)


def _entry(known: IndexMetadata | None, details: Details, version: int) -> IndexMetadata:
    """The entry of a record, with a new UUID for its changed content."""
    listed = (group for compaction in details.inline.versions for group in compaction.groups)
    covered = frozenset(fragment.id for group in listed for fragment in group.new_fragments)
    message = table_pb2.IndexMetadata()
    if known is not None and known.message is not None:
        message.CopyFrom(known.message)
    message.index_details.type_url, message.index_details.value = _TYPE, details.SerializeToString()
    message.index_version = 0
    name = uuid4()
    message.uuid.uuid = name.bytes
    return IndexMetadata(str(name), FRAGMENT_REUSE, (), version, covered, message=message)


def map_coverage(fragment_ids: frozenset[int], reuse: IndexMetadata | None) -> frozenset[int]:
    """The fragments that an index covers now: those of its bitmap, mapped through the recorded compactions.

    An index that covers a part of a group no longer covers any of it. Raises like `record_moves`.
    """
    for version in _decode(reuse).inline.versions:
        for group in version.groups:
            old = {fragment.id for fragment in group.old_fragments}
            if old <= fragment_ids:
                fragment_ids = fragment_ids - old | {fragment.id for fragment in group.new_fragments}
            else:
                fragment_ids -= old
    return fragment_ids


def is_readable(entry: IndexMetadata | None) -> bool:
    """Whether the entry has its content inline; else it is in a separate file."""
    if entry is None or entry.message is None:
        return True
    details = parse_message(Details, entry.message.index_details.value, "fragment reuse index")
    return not details.HasField("external")


def size_bytes(entry: IndexMetadata | None) -> int:
    """The bytes that the record takes in each manifest."""
    return 0 if entry is None or entry.message is None else len(entry.message.index_details.value)


def segments_needing_record(
    entry: IndexMetadata | None, indices: Iterable[IndexMetadata], may_need: Mapping[int, frozenset[str]] = _NOTHING
) -> frozenset[str]:
    """The segments (by UUID) that may find rows only through the record. Arguments and errors as in `trim_record`."""
    groups = _destinations(_decode(entry))
    covered = _current_coverage(entry, indices)
    return frozenset(
        segment.uuid
        for segment, fragment_ids in covered
        if any(_needs(segment, fragment_ids, *group, may_need) for group, _, _ in groups)
    )


class RecordedMove(NamedTuple):
    """Fragments that a compaction replaced.

    addresses  of the moved rows, a treemap
    old        ids of the old fragments
    new        id and number of rows of each new fragment
    """

    addresses: bytes
    old: frozenset[int]
    new: tuple[tuple[int, int], ...]


def recorded_moves(entry: IndexMetadata) -> list[RecordedMove]:
    """The moves of all compactions, oldest first. Raises like `record_moves`."""
    return [
        RecordedMove(
            group.changed_row_addrs,
            frozenset(fragment.id for fragment in group.old_fragments),
            tuple((fragment.id, fragment.physical_rows) for fragment in group.new_fragments),
        )
        for version in _decode(entry).inline.versions
        for group in version.groups
    ]


def compaction_versions(entry: IndexMetadata) -> list[int]:
    """The versions that the recorded compactions were committed on, oldest first. Raises like `record_moves`."""
    return [compaction.dataset_version for compaction in _decode(entry).inline.versions]


def is_large(entry: IndexMetadata | None) -> bool:
    """Whether the record is large enough to trim."""
    return size_bytes(entry) > _TRIMMED_BYTES


def trim_record(
    entry: IndexMetadata, indices: Sequence[IndexMetadata], may_need: Mapping[int, frozenset[str]] = _NOTHING
) -> IndexMetadata | None:
    """The record without groups that no index needs; None if no index needs any. Raises like `record_moves`.

    may_need  for some compactions, by the version that they were committed on: the segments that may need their record
    """
    details = _decode(entry)
    covered = _current_coverage(entry, indices)
    kept = [
        (position, group)
        for key, position, group in _destinations(details)
        if any(_needs(segment, fragment_ids, *key, may_need) for segment, fragment_ids in covered)
    ]
    if not kept:
        return None
    num_groups = sum(len(compaction.groups) for compaction in details.inline.versions)
    if not is_large(entry) or len(kept) == num_groups:
        return entry
    left = Details()
    for number, compaction in enumerate(details.inline.versions):
        groups = [group for position, group in kept if position == number]
        if groups:
            left.inline.versions.add(dataset_version=compaction.dataset_version, groups=groups)
    return _entry(entry, left, entry.dataset_version)


def _current_coverage(
    entry: IndexMetadata | None, indices: Iterable[IndexMetadata]
) -> list[tuple[IndexMetadata, frozenset[int] | None]]:
    """The segments of indices, and the fragments that each covers now; None where a segment does not say."""
    return [
        (segment, None if segment.fragment_ids is None else map_coverage(segment.fragment_ids, entry))
        for segment in indices
        if not segment.is_system
    ]


def _destinations(details: Details) -> list[tuple[tuple[int, frozenset[int]], int, Details.Group]]:
    """All groups, oldest first, as ((version, fragment ids), position, group).

    version       that the compaction was committed on
    fragment ids  of the fragments that have the group's rows now
    position      of the compaction in the record
    """
    destinations = []
    current_ids: dict[int, frozenset[int]] = {}  # by id of an old fragment
    for position in reversed(range(len(details.inline.versions))):
        version = details.inline.versions[position]
        groups = []
        for group in version.groups:
            new = (fragment.id for fragment in group.new_fragments)
            ids = frozenset[int]().union(*(current_ids.get(new_id, frozenset((new_id,))) for new_id in new))
            groups.append(((version.dataset_version, ids), position, group))
        current_ids.update((old.id, key[1]) for key, _, group in groups for old in group.old_fragments)
        destinations += groups[::-1]
    return destinations[::-1]


def _needs(
    index: IndexMetadata,
    covered: frozenset[int] | None,
    version: int,
    fragment_ids: frozenset[int],
    may_need: Mapping[int, frozenset[str]],
) -> bool:
    """Whether the files of a segment may have row addresses from before a compaction.

    version       that the compaction was committed on
    fragment_ids  fragments that have its rows now
    Files of a segment that was built from a later version do not. A merge of segments and new rows keeps the version of
    the first segment, so for the others only `may_need` can rule it out.
    """
    is_later = index.maps_when_merged and version in may_need and index.uuid not in may_need[version]
    if is_later or index.dataset_version > version:
        return False
    return covered is None or not covered.isdisjoint(fragment_ids)


def _decode(entry: IndexMetadata | None) -> Details:
    if entry is None or entry.message is None:
        details = Details()
        details.inline.SetInParent()
        return details
    details = parse_message(Details, entry.message.index_details.value, "fragment reuse index")
    if details.HasField("external"):
        raise UnsupportedError(
            "the fragment reuse index of this table is in a separate file, which this release does not read: "
            "bring the indices up to date with pylance first"
        )
    return details


def live_offsets(num_rows: int, deleted: np.ndarray[tuple[int], np.dtype[np.int64]] | None) -> U32Array:
    """Offsets of the undeleted rows of a fragment."""
    offsets = np.arange(num_rows, dtype=np.uint32)
    return offsets if deleted is None else np.delete(offsets, deleted)
