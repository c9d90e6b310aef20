"""Creates an index: a new segment over the table's fragments, committed in place of the index of its name.

The bitmap of the segment is the set of fragments that were read, so rows that others append meanwhile stay uncovered,
and are scanned. A compaction of a covered fragment is a conflict: the index is then built on the newest version.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lance_io.changes.edits.change_plans import change, repeat_on_conflict
from lance_io.changes.index.build_segment import build_segment
from lance_io.changes.index.index_request import checked_uuid, index_request, limit_bytes
from lance_io.changes.index.vectors.vector_request import vector_request
from lance_io.commit.commit_files import CommitFiles
from lance_io.errors import OperationError, UsageError
from lance_io.plans.plan import RollBackOnError
from lance_io.reads.version.index_entries import load_indices
from lance_io.table.transaction.operations import CreateIndex

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.changes.index.build_progress import BuildProgress
    from lance_io.changes.index.build_segment import AnyRequest, NewSegment
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

NO_OPTIONS: Final[Mapping[str, Any]] = {}
_REPEATS: Final = 2  # builds after the first one, each on the newest version
_REPEATS_UNTIL: Final = timedelta(days=7)


class NameTaken(OperationError, RuntimeError):
    """There is an index of this name; pylance raises `RuntimeError`, for scalar indices `OSError`."""


def create_index(
    state: DatasetState,
    column: Any,
    index_type: Any,
    name: str | None,
    *,
    replace: bool,
    train: bool,
    uuid: str | None,
    memory_limit: int | None,
    progress: BuildProgress | None,
    options: Mapping[str, Any] = NO_OPTIONS,
    vectors: Mapping[str, Any] | None = None,
) -> Plan[DatasetState]:
    """Build and commit an index; parameters as for `LanceDataset.create_scalar_index`.

    vectors  for an index of vectors: the other arguments of `LanceDataset.create_index`
    """
    limit = limit_bytes(memory_limit)
    uuid = None if uuid is None else checked_uuid(uuid)
    attempt = partial(
        _create,
        column=column,
        index_type=index_type,
        name=name,
        replace=replace,
        train=train,
        uuid=uuid,
        limit=limit,
        progress=progress,
        options=options,
        vectors=vectors,
    )
    return (yield from repeat_on_conflict(state, attempt, _REPEATS, _REPEATS_UNTIL))


def create_vector_index(
    state: DatasetState,
    column: Any,
    index_type: Any,
    name: str | None,
    given: Mapping[str, Any],
    *,
    fragment_ids: Sequence[int] | None,
    **options: Any,
) -> Plan[DatasetState]:
    """Build and commit an index of vectors; parameters as for `LanceDataset.create_index`.

    given    the arguments that say how
    options  of `create_index`
    """
    if fragment_ids is not None:
        raise UsageError(
            "create_index covers all fragments: build over some by create_index_uncommitted(..., fragment_ids=...), "
            "and commit with commit_existing_index_segments"
        )
    return create_index(state, column, index_type, name, vectors=given, **options)


def _create(
    state: DatasetState,
    *,
    column: Any,
    index_type: Any,
    name: str | None,
    replace: bool,
    train: bool,
    uuid: str | None,
    limit: int,
    progress: BuildProgress | None,
    options: Mapping[str, Any],
    vectors: Mapping[str, Any] | None,
) -> Plan[DatasetState]:
    request: AnyRequest
    if vectors is None:
        request = index_request(state, column, index_type, name, options)
    else:
        request = vector_request(state, column, index_type, name, vectors)
    before = yield from segments_to_replace(state, request, replace=replace)
    fragment_ids = state.fragment_ids if train else []
    segment = yield from build_segment(state, request, fragment_ids, uuid, limit, progress)
    return (yield from commit_segments(state, [segment], before))


def segments_to_replace(state: DatasetState, request: AnyRequest, *, replace: bool) -> Plan[tuple[IndexMetadata, ...]]:
    """The present segments of the index. Raises `OperationError` unless they may be replaced."""
    present = tuple(entry for entry in (yield from load_indices(state)) if entry.name == request.name)
    if present and any(entry.fields != (request.field.id,) for entry in present):
        raise OperationError(
            f"Index name {request.name!r} already exists with different fields, please specify a different name",
            path=state.location.uri,
        )
    if present and not replace:
        raise NameTaken(
            f"Index name {request.name!r} already exists, please specify a different name or use replace=True",
            path=state.location.uri,
        )
    return present


def commit_segments(
    state: DatasetState, new: Sequence[NewSegment], removed: Sequence[IndexMetadata]
) -> Plan[DatasetState]:
    """Commit new segments in place of others. If the commit fails, the new files go, unless it may have succeeded."""
    commit_files = CommitFiles()
    for segment in new:
        commit_files.add_data(segment.files.keys)
    operation = CreateIndex(tuple(segment.entry for segment in new), tuple(removed))

    def roll_back(cause: BaseException) -> Plan[None]:
        if commit_files.may_remove:
            for segment in new:
                commit_files.drop_data(segment.files.keys)
                yield from segment.files.remove(cause)

    after: DatasetState = yield RollBackOnError(change(state, operation, files=commit_files), roll_back)
    return after
