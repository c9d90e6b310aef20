"""The fragment reuse index: where rows went by compactions that left indices as they are (spec: indices, 1).

It is an entry of the index section without files. For each such compaction it lists the addresses of the rows that were
moved, and the fragments that they came from and went to: the n-th address is the n-th row of the new fragments. Bitmaps
of indices go on naming the old fragments; whoever reads an index maps what it finds.
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
