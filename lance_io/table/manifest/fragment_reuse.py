"""The fragment reuse index: where rows went by compactions that left indices as they are (spec: indices, 1).

It is an entry of the index section without files. For each such compaction it lists the addresses of the rows that were
moved, and the fragments that they came from and went to: the n-th address is the n-th row of the new fragments. Files
of indices go on naming the old addresses; whoever reads an index maps what it finds. Bitmaps name the old fragments
until the next commit writes the section, which names what became of them, as pylance does: so the bitmap of an index
does not say which compactions its files know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

import numpy as np

from lance_io.errors import UnsupportedError
from lance_io.format.wire import parse_message
from lance_io.proto import table_pb2
from lance_io.table.manifest.index_section import FRAGMENT_REUSE, IndexMetadata
from lance_io.table.manifest.roaring import encode_roaring

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.roaring import U32Array

_TYPE: Final = "/lance.table.FragmentReuseIndexDetails"
_TRIMMED_BYTES: Final = 1024  # a record of fewer bytes keeps, as pylance's, what no index needs beside what one does
_NOTHING: Final[Mapping[int, frozenset[str]]] = {}

Details = table_pb2.FragmentReuseIndexDetails


def find_reuse(indices: Iterable[IndexMetadata]) -> IndexMetadata | None:
    """The entry, None where there is none."""
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
    """The entry with one compaction more.

    known       the entry that there is
    version     that the compaction was committed on
    groups      addresses of moved rows (a treemap), the fragments that they came from and went to (with their ids)
    Raises `UnsupportedError` for an entry whose content is in a file of its own.
    """
    details = _decode(known)
    made = details.inline.versions.add(dataset_version=version)
    for addresses, old, new in groups:
        group = made.groups.add(changed_row_addrs=addresses)
        for side, fragments in ((group.old_fragments, old), (group.new_fragments, new)):
            for one in fragments:
                side.add(id=one.id, physical_rows=one.physical_rows or 0, num_deleted_rows=one.num_deleted_rows or 0)
    return _entry(known, details, version)


def _entry(known: IndexMetadata | None, details: Details, version: int) -> IndexMetadata:
    """The entry of a record; changed content has a name of its own."""
    listed = (group for one in details.inline.versions for group in one.groups)
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
    """The fragments that an index knows by now: what became of those that its bitmap names.

    A group of which it knows a part is one of which it knows nothing. Raises as `record_moves`.
    """
    for version in _decode(reuse).inline.versions:
        for group in version.groups:
            old = {one.id for one in group.old_fragments}
            if old <= fragment_ids:
                fragment_ids = fragment_ids - old | {one.id for one in group.new_fragments}
            else:
                fragment_ids -= old
    return fragment_ids


def is_readable(entry: IndexMetadata | None) -> bool:
    """Whether what the entry says is in the entry; else it is in a file of its own."""
    if entry is None or entry.message is None:
        return True
    details = parse_message(Details, entry.message.index_details.value, "fragment reuse index")
    return not details.HasField("external")


def size_bytes(entry: IndexMetadata | None) -> int:
    """What the record takes in each manifest."""
    return 0 if entry is None or entry.message is None else len(entry.message.index_details.value)


def relying(
    entry: IndexMetadata | None, indices: Iterable[IndexMetadata], then: Mapping[int, frozenset[str]] = _NOTHING
) -> frozenset[str]:
    """The segments (by UUID) that may find rows only by the record. then: as in `trimmed`. Raises as `record_moves`."""
    groups = _destinations(_decode(entry))
    known = _covered_by_now(entry, indices)
    return frozenset(
        one.uuid for one, covered in known if any(_needs(one, covered, *group, then) for group, _, _ in groups)
    )


def moved_on(entry: IndexMetadata) -> list[int]:
    """The versions that the recorded compactions were committed on, oldest first. Raises as `record_moves`."""
    return [one.dataset_version for one in _decode(entry).inline.versions]


def is_roomy(entry: IndexMetadata | None) -> bool:
    """Whether the record is so large that what no index needs is taken out of it."""
    return size_bytes(entry) > _TRIMMED_BYTES


def trimmed(
    entry: IndexMetadata, indices: Sequence[IndexMetadata], then: Mapping[int, frozenset[str]] = _NOTHING
) -> IndexMetadata | None:
    """The record without what no index needs; None where none needs any of it. Raises as `record_moves`.

    then  of some compactions, by the version that they were committed on: the segments that may need their record
    """
    details = _decode(entry)
    known = _covered_by_now(entry, indices)
    kept = [
        (place, group)
        for key, place, group in _destinations(details)
        if any(_needs(one, covered, *key, then) for one, covered in known)
    ]
    if not kept:
        return None
    num_groups = sum(len(one.groups) for one in details.inline.versions)
    if not is_roomy(entry) or len(kept) == num_groups:
        return entry
    left = Details()
    for place, one in enumerate(details.inline.versions):
        groups = [group for at, group in kept if at == place]
        if groups:
            left.inline.versions.add(dataset_version=one.dataset_version, groups=groups)
    return _entry(entry, left, entry.dataset_version)


def _covered_by_now(
    entry: IndexMetadata | None, indices: Iterable[IndexMetadata]
) -> list[tuple[IndexMetadata, frozenset[int] | None]]:
    """The segments of indices, and the fragments that each covers; None where it does not say."""
    return [
        (one, None if one.fragment_ids is None else map_coverage(one.fragment_ids, entry))
        for one in indices
        if not one.is_system
    ]


def _destinations(details: Details) -> list[tuple[tuple[int, frozenset[int]], int, Details.Group]]:
    """All groups, oldest first: the version that it was committed on and where its rows are by now; its place; itself.

    place  of the version in the record
    """
    found = []
    became: dict[int, frozenset[int]] = {}
    for place in reversed(range(len(details.inline.versions))):
        version = details.inline.versions[place]
        groups = []
        for group in version.groups:
            new = (one.id for one in group.new_fragments)
            ids = frozenset[int]().union(*(became.get(one, frozenset((one,))) for one in new))
            groups.append(((version.dataset_version, ids), place, group))
        became.update((old.id, key[1]) for key, _, group in groups for old in group.old_fragments)
        found += groups[::-1]
    return found[::-1]


def _needs(
    index: IndexMetadata,
    covered: frozenset[int] | None,
    version: int,
    fragment_ids: frozenset[int],
    then: Mapping[int, frozenset[str]],
) -> bool:
    """Whether the files of a segment may name rows as they were before a compaction.

    version       that the compaction was committed on
    fragment_ids  fragments that hold its rows by now
    A segment that was built from a later version does not. A merge of segments and new rows keeps the version of the
    first of them, so that of others it is not known, but by `then`.
    """
    is_later = index.maps_when_merged and version in then and index.uuid not in then[version]
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
            "the fragment reuse index of this table is in a file of its own, which this release does not read: "
            "bring the indices up to date with pylance first"
        )
    return details


def addresses_of(num_rows: int, deleted: np.ndarray[tuple[int], np.dtype[np.int64]] | None) -> U32Array:
    """Offsets of the rows of a fragment that are left."""
    offsets = np.arange(num_rows, dtype=np.uint32)
    return offsets if deleted is None else np.delete(offsets, deleted)
