"""Which indices stay unchanged when fragments are compacted and the fragment reuse index records the moved rows.

Another library may read the record later, and must not get wrong results from an index then. So unless a compaction
leaves all indices unchanged (`defers`):

    kinds that pylance reads through the record, also after its own next compaction, stay (`follows_moves`)
    an index that already needs the record stays: omitting this step would not make it safer
    other indices no longer cover the fragments, as without a record
    if rows are deleted and there is a graph of vectors, the group is not recorded: one missing row makes the whole
        graph useless, no matter which fragments it covers
    moves that would make the record larger than `RECORD_BYTES` are not recorded: every version stores the record
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lance_io.table.manifest.fragment_reuse import (
    find_reuse,
    record_moves,
    segments_needing_record,
    size_bytes,
    trim_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.index_section import IndexMetadata
    from lance_io.table.transaction.operations import Rewrite, RewriteGroup

RECORD_BYTES: Final = 200_000  # from here on pylance stores it in a separate file

_Recorded = tuple[bytes, "Sequence[Fragment]", "Sequence[Fragment]"]


def with_recorded(
    indices: Sequence[IndexMetadata], operation: Rewrite, new_ids: Sequence[frozenset[int]], version: int
) -> list[IndexMetadata]:
    """The entries after a compaction with known addresses of its moved rows.

    indices  with the fragments that they cover now
    new_ids  ids of the new fragments, by group
    version  of the table before
    """
    known = find_reuse(indices)
    may_need = operation.segments_then
    needing = segments_needing_record(known, indices, may_need)
    left = [*indices]
    groups: list[_Recorded] = []
    is_needed = operation.defers or known is not None
    for addresses, group, ids in zip(operation.moved_rows or (), operation.groups, new_ids, strict=True):
        old = frozenset(fragment.id for fragment in group.old_fragments)
        recorded = addresses if operation.defers or not _breaks_graphs(group, indices) else None
        stay = {
            index.uuid
            for index in indices
            if recorded is not None and (operation.defers or index.follows_moves or index.uuid in needing)
        }
        left = [index if index.uuid in stay and _covers_all(index, old) else _without(index, old) for index in left]
        is_needed = is_needed or any(index.uuid in stay and _covers_some(index, old) for index in left)
        if recorded is not None:
            groups.append((recorded, group.old_fragments, _numbered(group, ids)))
    if not groups or not is_needed:
        return left
    others = [index for index in left if index is not known]
    record = trim_record(record_moves(known, version, groups), others, may_need)
    if not operation.defers and size_bytes(record) > RECORD_BYTES:
        gone = frozenset(fragment.id for group in operation.groups for fragment in group.old_fragments)
        return [_without(index, gone) for index in indices]
    return others if record is None else [*others, record]


def _breaks_graphs(group: RewriteGroup, indices: Iterable[IndexMetadata]) -> bool:
    """Whether rows of the fragments are deleted, and a graph of vectors may have them."""
    loses_rows = any(fragment.deletion_file is not None for fragment in group.old_fragments)
    return loses_rows and any(index.may_be_graph and index.fragment_ids != frozenset() for index in indices)


def _numbered(group: RewriteGroup, ids: frozenset[int]) -> list[Fragment]:
    return [replace(fragment, id=number) for fragment, number in zip(group.new_fragments, sorted(ids), strict=True)]


def _covers_some(index: IndexMetadata, fragment_ids: frozenset[int]) -> bool:
    return not index.is_system and (index.fragment_ids is None or not index.fragment_ids.isdisjoint(fragment_ids))


def _covers_all(index: IndexMetadata, fragment_ids: frozenset[int]) -> bool:
    return index.fragment_ids is None or index.fragment_ids >= fragment_ids


def _without(index: IndexMetadata, fragment_ids: frozenset[int]) -> IndexMetadata:
    """The entry without fragments whose row addresses are gone."""
    if index.is_system or index.fragment_ids is None or index.fragment_ids.isdisjoint(fragment_ids):
        return index
    return replace(index, fragment_ids=index.fragment_ids - fragment_ids)
