"""Segments of an index: built without a commit, merged, and committed together; for builds in several processes.

    create_index_uncommitted        a segment over some fragments, in each process
    merge_existing_index_segments   one segment in place of several
    commit_existing_index_segments  the version that has them

A merge builds its segment again from the column, over the fragments of all, at the open version: it needs none of the
values that the merged segments hold, and so none of their rows can be out of date. Codes of vectors are copied, where
the segments have the same model and are known to be up to date: those of the open version, and those built at it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_io.changes.edits.change_plans import change
from lance_io.changes.index.build_segment import build_segment
from lance_io.changes.index.create_index import NO_OPTIONS
from lance_io.changes.index.index_request import find_column, index_request, limit_bytes
from lance_io.changes.index.known_segments import column_files, request_of
from lance_io.changes.index.vectors.vector_request import is_vector_kind, vector_request
from lance_io.changes.index.vectors.vector_settings import VectorRequest
from lance_io.changes.operations.convert import public_index, stored_index
from lance_io.errors import NotFound, UsageError
from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.open_version import check_out
from lance_io.reads.version.index_entries import load_indices
from lance_io.table.transaction.index_coverage import with_current_coverage
from lance_io.table.transaction.operations import CreateIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_io.changes.index.build_progress import BuildProgress
    from lance_io.changes.index.build_segment import AnyRequest
    from lance_io.changes.index.vectors import copied_rows as copies
    from lance_io.changes.operations.lance_operation import Index
    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata
else:
    copies = lazy_plans("lance_io.changes.index.vectors.copied_rows")


def create_uncommitted(
    state: DatasetState,
    column: Any,
    index_type: Any,
    name: str | None,
    *,
    train: bool,
    fragment_ids: Iterable[int] | None,
    uuid: str | None,
    memory_limit: int | None,
    progress: BuildProgress | None,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> Plan[Index]:
    """Build a segment over some fragments; no version names it yet.

    options  other arguments of the kind
    """
    if fragment_ids is None:
        raise UsageError("create_index_uncommitted requires fragment_ids for distributed index build")
    request: AnyRequest
    if is_vector_kind(index_type):
        request = vector_request(state, column, index_type, name, options)
    else:
        request = index_request(state, column, index_type, name, options)
    wanted = sorted(set(fragment_ids))
    for fragment_id in wanted:
        if state.fragment_index_of(fragment_id) is None:
            raise UsageError(f"No fragment with id {fragment_id}", path=state.location.uri)
    limit = limit_bytes(memory_limit)
    segment = yield from build_segment(state, request, wanted if train else [], uuid, limit, progress)
    return public_index(segment.entry)


def merge_segments(state: DatasetState, segments: Sequence[Index]) -> Plan[Index]:
    """One new segment over the fragments of several."""
    entries = _checked(segments, "uncommitted")
    request = yield from request_of(state, entries)
    covered = frozenset[int]().union(*(entry.fragment_ids or () for entry in entries))
    gone = sorted(covered - frozenset(state.fragment_ids))
    if gone:
        raise UsageError(
            f"fragment {gone[0]} of a segment is not in version {state.manifest.version}: build its segment again",
            path=state.location.uri,
        )
    sources: Sequence[VectorIndex] = ()
    if isinstance(request, VectorRequest):
        sources = yield from copies.new_sources(state, entries)
    built = yield from build_segment(state, request, sorted(covered), None, limit_bytes(None), sources=sources)
    return public_index(built.entry)


def commit_segments_as(
    state: DatasetState, index_name: str, column: str, segments: Sequence[Index]
) -> Plan[DatasetState]:
    """Commit built segments as one index. They replace segments of this name that cover any of their fragments."""
    entries = [replace(entry, name=index_name) for entry in _checked(segments, index_name)]
    _, field = find_column(state, column)
    for entry in entries:
        if entry.fields != (field.id,):
            raise UsageError(
                f"CreateIndex: segment {entry.uuid} was built for fields {list(entry.fields)}, expected field "
                f"[{field.id}]"
            )
    entries = yield from _with_unchanged(state, field, entries)
    covered = frozenset[int]().union(*(entry.fragment_ids or () for entry in entries))
    present = [entry for entry in (yield from load_indices(state)) if entry.name == index_name]
    for entry in present:
        if entry.fields != (field.id,):
            raise UsageError(f"Index name {index_name!r} already exists with different fields")
    current = {entry.uuid: entry.fragment_ids for entry in with_current_coverage(present)}
    new = {entry.uuid for entry in entries}
    removed = [
        entry for entry in present if entry.uuid in new or not covered.isdisjoint(current[entry.uuid] or frozenset())
    ]
    return (yield from change(state, CreateIndex(tuple(entries), tuple(removed))))


def _with_unchanged(state: DatasetState, field: Field, entries: Sequence[IndexMetadata]) -> Plan[list[IndexMetadata]]:
    """The segments without the fragments whose values were written again since they were built.

    The commit itself looks for conflicts since the open version only.
    """
    kept = []
    for entry in entries:
        if entry.fragment_ids and entry.dataset_version != state.manifest.version:
            before = yield from _version_of(state, entry)
            same = frozenset(
                each
                for each in entry.fragment_ids.intersection(state.fragment_ids)
                if column_files(state, field, each) == column_files(before, field, each)
            )
            entry = replace(entry, fragment_ids=same)
        kept.append(entry)
    return kept


def _version_of(state: DatasetState, entry: IndexMetadata) -> Plan[DatasetState]:
    """The version that a segment was built from."""
    try:
        return (yield from check_out(state, entry.dataset_version))
    except NotFound as error:
        raise UsageError(
            f"segment {entry.uuid} was built from version {entry.dataset_version}, which is gone: nothing says which "
            "of its rows have changed. Build it again",
            path=state.location.uri,
        ) from error


def _checked(segments: Sequence[Index], name: str) -> list[IndexMetadata]:
    """The stored form of segments. Raises `UsageError` for none, and for two that cover a fragment."""
    entries = [stored_index(segment) for segment in segments]
    if not entries:
        raise UsageError("CreateIndex: at least one index segment is required")
    seen: set[int] = set()
    for entry in entries:
        if not seen.isdisjoint(entry.fragment_ids or ()):
            raise UsageError(f"CreateIndex: overlapping fragment coverage in segment set for index {name!r}")
        seen.update(entry.fragment_ids or ())
    if len({(entry.fields, entry.message and entry.message.index_details.type_url) for entry in entries}) > 1:
        raise UsageError(f"CreateIndex: the segments of index {name!r} differ in their column or their kind")
    return entries
