"""Updates of the index section by a commit (spec: commit, section 2.3; table, section 9).

An entry must never claim more than its index covers. In doubt a fragment leaves the bitmap: the index then covers fewer
rows, and queries scan the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lance_io.errors import OperationError
from lance_io.proto import table_pb2
from lance_io.table.manifest import fragment_reuse as reuse_record
from lance_io.table.manifest.fragment_reuse import find_reuse, map_coverage
from lance_io.table.transaction.deferred_moves import with_recorded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lance_io.table.manifest.index_section import IndexMetadata
    from lance_io.table.transaction.operations import CreateIndex, Rewrite, RewrittenIndex, Update


def with_known_fields(indices: Iterable[IndexMetadata], field_ids: Collection[int]) -> list[IndexMetadata]:
    """The entries whose fields are all in the schema, and system entries."""
    return [index for index in indices if _has_known_fields(index, field_ids)]


def without_known_fields(indices: Iterable[IndexMetadata], field_ids: Collection[int]) -> list[IndexMetadata]:
    """The entries with a field that is not in the schema."""
    return [index for index in indices if not _has_known_fields(index, field_ids)]


def _has_known_fields(index: IndexMetadata, field_ids: Collection[int]) -> bool:
    return index.is_system or all(field_id in field_ids for field_id in index.fields)


def with_current_coverage(indices: Sequence[IndexMetadata]) -> list[IndexMetadata]:
    """The entries with the fragments they cover now: bitmaps may still name fragments that were compacted.

    If the record of moved rows cannot be read, the bitmaps stay as they are.
    """
    reuse = find_reuse(indices)
    if reuse is None or not reuse_record.is_readable(reuse):
        return [*indices]
    mapped = []
    for index in indices:
        ids = None if index.is_system or index.fragment_ids is None else map_coverage(index.fragment_ids, reuse)
        mapped.append(index if ids is None or ids == index.fragment_ids else replace(index, fragment_ids=ids))
    return mapped


def with_trimmed_record(indices: Sequence[IndexMetadata]) -> list[IndexMetadata]:
    """The entries with the record of moved rows trimmed to what indices still need."""
    reuse = find_reuse(indices)
    if reuse is None or not reuse_record.is_readable(reuse):
        return [*indices]
    left = reuse_record.trim_record(reuse, indices)
    return [entry for entry in (left if index is reuse else index for index in indices) if entry is not None]


def with_created(indices: Iterable[IndexMetadata], operation: CreateIndex) -> list[IndexMetadata]:
    """The entries after an index was built: without the removed segments, and with the new ones at the end.

    Raises `OperationError` for a segment that already exists, or that covers a fragment of another segment of its name.
    """
    removed = {index.uuid for index in operation.removed_indices}
    kept = [index for index in indices if index.uuid not in removed]
    _check_segments(kept, operation.new_indices)
    return [*kept, *operation.new_indices]


def _check_segments(kept: Sequence[IndexMetadata], new: Sequence[IndexMetadata]) -> None:
    """Check that segments of an index cover different fragments (section 9); pylance's process crashes otherwise.

    Overlaps among existing segments are ignored, so that a commit can still drop them. System entries cover nothing,
    and the coverage of segments without a bitmap is unknown.
    """
    uuids = {index.uuid for index in kept}
    for index in new:
        if index.uuid in uuids:
            raise OperationError(f"index {index.name!r}: there is a segment {index.uuid} already")
        uuids.add(index.uuid)
    reuse = find_reuse((*kept, *new))
    for name in sorted({index.name for index in new if not index.is_system}):
        known = [index for index in (*kept, *new) if index.name == name and index.fragment_ids is not None]
        covered = [map_coverage(index.fragment_ids or frozenset(), reuse) for index in known if len(known) > 1]
        for second in range(len(covered)):
            for first in range(second if known[second] in new else 0):
                both = covered[first] & covered[second]
                if both:
                    raise OperationError(
                        f"index {name!r}: its segments {known[first].uuid} and {known[second].uuid} both cover "
                        f"fragment {min(both)}. Remove the replaced segment in the same commit (removed_indices)"
                    )


def without_fragments(
    indices: Sequence[IndexMetadata], fields: Collection[int], fragment_ids: Collection[int]
) -> list[IndexMetadata]:
    """Drop fragments whose columns `fields` were rewritten from the coverage of indices over these columns."""
    gone = frozenset(fragment_ids)
    touched = frozenset(fields)
    is_known = reuse_record.is_readable(find_reuse(indices))  # else bitmaps may name older fragments instead
    return [
        replace(index, fragment_ids=index.fragment_ids - gone if is_known else frozenset())
        if index.fragment_ids is not None and not touched.isdisjoint(index.fields)
        else index
        for index in indices
    ]


def with_moved(
    indices: Iterable[IndexMetadata], operation: Update, moved: Collection[int], sources: Collection[int]
) -> list[IndexMetadata]:
    """Keep rows covered that were rewritten under their old row ids, in indices over unchanged values.

    moved    ids of new fragments with only such rows
    sources  ids of the fragments that these rows came from
    """
    changed = frozenset(operation.fields_for_preserving_frag_bitmap)
    return [
        replace(index, fragment_ids=index.fragment_ids.union(moved))
        if index.fragment_ids is not None
        and index.names_rows_by_id
        and changed.isdisjoint(index.fields + index.covering_fields)
        and index.fragment_ids.issuperset(sources)
        else index
        for index in indices
    ]


def with_rewritten(
    indices: Sequence[IndexMetadata],
    operation: Rewrite,
    new_ids: Sequence[frozenset[int]],
    *,
    stable: bool,
    version: int,
) -> list[IndexMetadata]:
    """The entries after a compaction: indices by stable row ids and rebuilt indices cover the new fragments.

    new_ids  ids of the new fragments, by group
    version  of the table before
    Raises `OperationError` for an index that covers a part of a group.
    """
    rebuilt = {rewritten.old_id: rewritten for rewritten in operation.rewritten_indices}
    new = {
        index.uuid: _rebuilt(_carry(index, operation, new_ids), rebuilt[index.uuid], version)
        for index in indices
        if index.uuid in rebuilt
    }
    others = [index for index in indices if index.uuid not in new]
    if operation.moved_rows is not None:
        left = with_recorded(others, operation, new_ids, version)
    else:
        left = [_after_moves(index, operation, new_ids, stable=stable) for index in others]
    kept = {index.uuid: index for index in left}
    known = {index.uuid for index in indices}
    ordered = [new.get(index.uuid) or kept.get(index.uuid) for index in indices]
    return [*filter(None, ordered), *(index for index in left if index.uuid not in known)]


def _after_moves(
    index: IndexMetadata, operation: Rewrite, new_ids: Sequence[frozenset[int]], *, stable: bool
) -> IndexMetadata:
    """An entry whose files stay, without a record of the moves."""
    if index.is_system:
        return index
    if stable and index.names_rows_by_id:
        return _carry(index, operation, new_ids)
    return _shrunk(index, operation)


def _carry(index: IndexMetadata, operation: Rewrite, new_ids: Sequence[frozenset[int]]) -> IndexMetadata:
    """The entry with the new fragments of each group in place of the old ones."""
    covered = index.fragment_ids
    if covered is None:
        return index
    for group, new in zip(operation.groups, new_ids, strict=True):
        old = frozenset(fragment.id for fragment in group.old_fragments)
        if old <= covered:
            covered = covered - old | new
        elif not old.isdisjoint(covered):
            raise OperationError(
                f"index {index.name!r} covers fragments {sorted(old & covered)} of a rewritten group, but not "
                f"{sorted(old - covered)}. Rewrite only fragments with the same coverage together"
            )
    return replace(index, fragment_ids=covered)


def _rebuilt(index: IndexMetadata, rewritten: RewrittenIndex, version: int) -> IndexMetadata:
    """The entry of an index whose files were rewritten. version: of the table before."""
    message = table_pb2.IndexMetadata()
    if index.message is not None:
        message.CopyFrom(index.message)
    known = rewritten.message
    if known is not None:
        message.index_version = known.new_index_version
        if known.HasField("new_index_details"):
            message.index_details.CopyFrom(known.new_index_details)
        message.ClearField("files")
        message.files.extend(known.new_index_files)
        message.ClearField("base_id")  # the new files are in the table's own folder
    built_from = version + 1 if rewritten.names_new_rows else index.dataset_version  # pylance keeps it
    return replace(index, uuid=rewritten.new_id, dataset_version=built_from, message=message)


def _shrunk(index: IndexMetadata, operation: Rewrite) -> IndexMetadata:
    """The entry without the old fragments, whose row addresses are gone."""
    if index.fragment_ids is None:
        return index
    old = {fragment.id for group in operation.groups for fragment in group.old_fragments}
    return replace(index, fragment_ids=index.fragment_ids - old)
