"""Which indices stay as they are when fragments are compacted, for the fragment reuse index to say where rows went.

A record that is read later by another library must not make an index lie there. So, unless a compaction is to leave all
indices as they are:

    kinds that pylance reads by the record, also after its own next compaction, stay    `IndexMetadata.follows_moves`
    one that needs the record already stays: it is no safer without this step of it
    others no longer cover the fragments, as if nothing was recorded
    where rows are deleted and there is a graph of vectors, nothing of the group is recorded: one row that is gone
        makes all of the graph useless, whatever it covers
    what would make the record larger than `RECORD_BYTES` is not recorded, as every version of the table carries it
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lance_io.table.manifest.fragment_reuse import find_reuse, record_moves, relying, size_bytes, trimmed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.index_section import IndexMetadata
    from lance_io.table.transaction.operations import Rewrite, RewriteGroup

RECORD_BYTES: Final = 200_000  # from here on pylance puts it into a file of its own

_Recorded = tuple[bytes, "Sequence[Fragment]", "Sequence[Fragment]"]


def with_recorded(
    indices: Sequence[IndexMetadata], operation: Rewrite, new_ids: Sequence[frozenset[int]], version: int
) -> list[IndexMetadata]:
    """The entries after a compaction that knows where its rows were.

    indices  with the fragments that they cover by now
    new_ids  ids of the new fragments, by group
    version  of the table before
    """
    known = find_reuse(indices)
    then = operation.segments_then
    relies = relying(known, indices, then)
    left = [*indices]
    groups: list[_Recorded] = []
    is_needed = operation.defers or known is not None
    for addresses, group, ids in zip(operation.moved_rows or (), operation.groups, new_ids, strict=True):
        old = frozenset(fragment.id for fragment in group.old_fragments)
        recorded = addresses if operation.defers or not _breaks_graphs(group, indices) else None
        stay = {
            index.uuid
            for index in indices
            if recorded is not None and (operation.defers or index.follows_moves or index.uuid in relies)
        }
        left = [index if index.uuid in stay and _knows_all(index, old) else _without(index, old) for index in left]
        is_needed = is_needed or any(index.uuid in stay and _knows_some(index, old) for index in left)
        if recorded is not None:
            groups.append((recorded, group.old_fragments, _numbered(group, ids)))
    if not groups or not is_needed:
        return left
    others = [index for index in left if index is not known]
    record = trimmed(record_moves(known, version, groups), others, then)
    if not operation.defers and size_bytes(record) > RECORD_BYTES:
        gone = frozenset(one.id for group in operation.groups for one in group.old_fragments)
        return [_without(index, gone) for index in indices]
    return others if record is None else [*others, record]


def _breaks_graphs(group: RewriteGroup, indices: Iterable[IndexMetadata]) -> bool:
    """Whether rows of the fragments are deleted, and a graph is searched that may have them."""
    loses_rows = any(one.deletion_file is not None for one in group.old_fragments)
    return loses_rows and any(index.may_be_graph and index.fragment_ids != frozenset() for index in indices)


def _numbered(group: RewriteGroup, ids: frozenset[int]) -> list[Fragment]:
    return [replace(one, id=number) for one, number in zip(group.new_fragments, sorted(ids), strict=True)]


def _knows_some(index: IndexMetadata, fragment_ids: frozenset[int]) -> bool:
    return not index.is_system and (index.fragment_ids is None or not index.fragment_ids.isdisjoint(fragment_ids))


def _knows_all(index: IndexMetadata, fragment_ids: frozenset[int]) -> bool:
    return index.fragment_ids is None or index.fragment_ids >= fragment_ids


def _without(index: IndexMetadata, fragment_ids: frozenset[int]) -> IndexMetadata:
    """The entry without fragments whose row addresses are gone."""
    if index.is_system or index.fragment_ids is None or index.fragment_ids.isdisjoint(fragment_ids):
        return index
    return replace(index, fragment_ids=index.fragment_ids - fragment_ids)
