"""Indices built by many tasks: each builds a segment over its fragments, the planner commits all as one version.

A model of an index of vectors is learned once, by the planner, or is that of the index; so all segments share it. What
an index covers is decided by the planner, too: rows that others append meanwhile stay uncovered, and are scanned.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.changes.index.build_progress import BuildProgress
from lance_io.changes.index.build_segment import NewSegment, build_segment
from lance_io.changes.index.create_index import commit_segments, segments_to_replace
from lance_io.changes.index.index_config import IndexConfig
from lance_io.changes.index.index_request import index_request, limit_bytes
from lance_io.changes.index.known_segments import request_of
from lance_io.changes.index.optimize_indices import changes_due
from lance_io.changes.index.segment_files import SegmentFiles
from lance_io.changes.index.vectors.train_model import train_model
from lance_io.changes.index.vectors.vector_request import is_vector_kind, vector_request
from lance_io.changes.index.vectors.vector_settings import VectorRequest
from lance_io.dataset.distributed.table_jobs import (
    JobPart,
    TableJob,
    cut_fragments,
    new_digits,
    num_parts_of,
    remove_segments,
)
from lance_io.dataset.distributed.table_version import TableVersion
from lance_io.errors import OperationError
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import RollBackOnError
from lance_io.proto import table_pb2
from lance_io.reads.run_plan import run
from lance_io.reads.version.index_entries import load_indices
from lance_io.table.manifest.index_section import decode_index
from lance_io.table.transaction.index_coverage import with_current_coverage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lance_io.changes.index.build_segment import AnyRequest
    from lance_io.changes.index.vectors import copied_rows as copies
    from lance_io.dataset.distributed.table_jobs import Outcome
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.index.build.vectors.vector_models import VectorModel
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.url import Location
    from lance_io.table.manifest.index_section import IndexMetadata
else:
    copies = lazy_plans("lance_io.changes.index.vectors.copied_rows")

SEGMENT_ROWS_MIN: Final = 1_000_000  # by default: a look-up asks each segment
_TEXT_KINDS: Final = ("INVERTED", "FTS")
_OF_BUILD: Final = ("memory_limit", "train")  # options that say nothing about the index


@dataclass(frozen=True)
class NewIndex:
    """An index as its caller asked for it. It holds plain values, so it can be pickled.

    Attributes:
        column: Name or dotted path.
        kind: Kind of the index.
        name: Its name; None for one made of the column's.
        options: Parameters of the kind.
    """

    column: str
    kind: str
    name: str | None
    options: Mapping[str, Any]

    def request(self, state: DatasetState) -> AnyRequest:
        """The checked request; raises as `index_request` and `vector_request` do."""
        kind = self.kind.upper()
        options = {name: value for name, value in self.options.items() if name not in _OF_BUILD}
        if is_vector_kind(kind):
            return vector_request(state, self.column, kind, self.name, options)
        if kind in _TEXT_KINDS or not options:
            return index_request(state, self.column, kind, self.name, options)
        return index_request(state, self.column, IndexConfig(kind.lower(), options), self.name, {})


@dataclass(frozen=True)
class SegmentPart(JobPart):
    """A segment to build. It holds plain values, so it can be pickled.

    Attributes:
        change: Number of the index's change, to which models belong.
        fragment_ids: Fragments that it covers.
        like: UUIDs of segments whose parameters it has; none for a new index.
        copied: UUIDs of segments of vectors whose codes it copies, because it covers all of their fragments.
    """

    change: int
    fragment_ids: tuple[int, ...]
    like: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()


@dataclass(frozen=True)
class IndexJob(TableJob):
    """Segments to build. It holds plain values, so it can be pickled.

    Attributes:
        limit_bytes: Memory limit of a task.
        removed: UUIDs of segments that the new ones replace.
        new: The new index; None if segments are built for present ones.
        models: Models that were learned for this, by change.
    """

    limit_bytes: int
    removed: tuple[str, ...]
    new: NewIndex | None = None
    models: Mapping[int, VectorModel] = field(default_factory=dict)

    @property
    def repeats(self) -> bool:
        """See `TableJob.repeats`: a compaction, or another build, may have replaced fragments or segments."""
        return True

    def _task(self, state: DatasetState, part: SegmentPart) -> Plan[bytes]:
        request = yield from self._request(state, part)
        sources: Sequence[VectorIndex] = ()
        if part.copied:
            sources = yield from copies.committed_sources(state, set(part.copied))
        uuid = self._new_uuid()
        build = build_segment(state, request, part.fragment_ids, uuid, self.limit_bytes, sources=sources)
        segment = yield from build
        assert segment.entry.message is not None, "it was built from one"
        return segment.entry.message.SerializeToString()

    def _request(self, state: DatasetState, part: SegmentPart) -> Plan[AnyRequest]:
        if self.new is not None:
            request = self.new.request(state)
        else:
            stored = with_current_coverage((yield from load_indices(state)))
            by_uuid = {entry.uuid: entry for entry in stored}
            request = yield from request_of(state, [by_uuid[uuid] for uuid in part.like])
        model = self.models.get(part.change)
        if model is None or not isinstance(request, VectorRequest):
            return request
        return replace(request.untrained(), model=model)

    def _commit(self, state: DatasetState, results: Sequence[bytes]) -> Plan[Outcome]:
        if not results:
            return _outcome(state, [], [], self.new)
        new = [decode_index(table_pb2.IndexMetadata.FromString(message)) for message in results]
        removed = [entry for entry in (yield from load_indices(state)) if entry.uuid in self.removed]
        segments = [NewSegment(entry, SegmentFiles.of_entry(state.location, entry)) for entry in new]
        kept = {entry.uuid for entry in new}

        def remove_others(_: BaseException) -> Plan[None]:
            return self._tidy(state.location, kept)  # those of the results went with the commit that failed

        after: DatasetState = yield RollBackOnError(commit_segments(state, segments, removed), remove_others)
        yield from self._tidy(state.location, kept)
        return _outcome(after, new, removed, self.new)

    def _discard(self, state: DatasetState, value: bytes) -> Plan[None]:
        entry = decode_index(table_pb2.IndexMetadata.FromString(value))
        return SegmentFiles.of_entry(state.location, entry).remove(OperationError("the result was not taken"))

    def _remove_files(self, location: Location, kept: Collection[str]) -> Plan[int]:
        return remove_segments(location, self.digits, kept)


def _outcome(
    state: DatasetState, new: Sequence[IndexMetadata], removed: Sequence[IndexMetadata], index: NewIndex | None
) -> Outcome:
    sizes = sum(file.size_bytes for entry in new if entry.message is not None for file in entry.message.files)
    version = state.manifest.version
    if index is not None:
        return {"version": version, "name": new[0].name, "segments": len(new), "bytes": sizes}
    return {"version": version, "segments_removed": len(removed), "segments_added": len(new), "bytes": sizes}


def plan_index(
    table_place: TablePlace,
    column: str,
    index_type: str,
    name: str | None = None,
    *,
    replace: bool = True,
    options: Mapping[str, Any] | None = None,
    num_segments: int | None = None,
    cores: int = 1,
) -> tuple[IndexJob, list[SegmentPart]]:
    """Plan an index. Learns the model of an index of vectors.

    Args:
        table_place: The table.
        column: Name or dotted path.
        index_type: A kind of `create_scalar_index` or `create_index`, or "JSON".
        name: Name of the index; None for `<column>_idx`.
        replace: Whether it replaces an index of this name.
        options: Parameters of the kind, and `memory_limit` and `train`.
        num_segments: Segments to build, at most one for each fragment; None for one for each core, with at least a
            million rows each.
        cores: Tasks that run at once.

    Returns:
        The job, and its parts.

    Raises:
        NotFound: The column does not exist.
        UsageError: An option does not fit.
        OperationError: The name exists with another column, or `replace` is False.
    """
    state = TableVersion.open(table_place).state
    return run(state, _plan_new(state, NewIndex(column, index_type, name, options or {}), replace, num_segments, cores))


def _plan_new(
    state: DatasetState, new: NewIndex, replaces: bool, num_segments: int | None, cores: int
) -> Plan[tuple[IndexJob, list[SegmentPart]]]:
    state.check_commits()
    request, limit = new.request(state), limit_bytes(new.options.get("memory_limit"))
    removed = yield from segments_to_replace(state, request, replace=replaces)
    plan = _Planning(state, limit, num_segments, cores)
    yield from plan.add(request, [*state.fragment_ids] if new.options.get("train", True) else [])
    return plan.job([entry.uuid for entry in removed], new)


def plan_optimized_indices(
    table_place: TablePlace,
    *,
    index_names: Sequence[str] | None = None,
    num_indices_to_merge: int | None = None,
    retrain: bool = False,
    memory_limit: int | None = None,
    num_segments: int | None = None,
    cores: int = 1,
) -> tuple[IndexJob, list[SegmentPart]]:
    """Plan to bring indices up to date.

    Args:
        table_place: The table.
        index_names: As for `DatasetOptimizer.optimize_indices`, like the next three.
        num_indices_to_merge: Segments to merge with the uncovered fragments.
        retrain: Whether all segments of an index are built again.
        memory_limit: MiB of rows that a task may hold in memory.
        num_segments: As for `plan_index`: segments that are built in place of merged ones.
        cores: Tasks that run at once.

    Returns:
        The job, and its parts; none if nothing is to do.

    Raises:
        UnsupportedError: `index_names` names an index of a kind that is not built here.
        OverflowError: `num_indices_to_merge` is negative.
    """
    state = TableVersion.open(table_place).state
    num_merged = 1 if num_indices_to_merge is None else operator.index(num_indices_to_merge)
    if num_merged < 0:
        raise OverflowError("can't convert negative int to unsigned")
    names = None if index_names is None else frozenset(index_names)
    planning = _Planning(state, limit_bytes(memory_limit), num_segments, cores)
    return run(state, _plan_optimized(planning, None if retrain else num_merged, names))


def _plan_optimized(
    plan: _Planning, num_merged: int | None, names: frozenset[str] | None
) -> Plan[tuple[IndexJob, list[SegmentPart]]]:
    state, removed = plan.state, list[str]()
    state.check_commits()
    due = yield from changes_due(state, (yield from load_indices(state)), num_merged, names)
    for entries, each in due:
        like = each.replaced or tuple(entries)
        request = yield from request_of(state, like)
        if num_merged is None and isinstance(request, VectorRequest):
            request = request.untrained()
        fragment_ids = [fragment_id for fragment_id in state.fragment_ids if fragment_id in each.fragment_ids]
        replaced = tuple(entry.uuid for entry in each.replaced)
        yield from plan.add(request, fragment_ids, tuple(entry.uuid for entry in like), replaced)
        removed += replaced
    return plan.job(removed, None)


class _Planning:
    """The parts of a job while it is planned."""

    def __init__(self, state: DatasetState, limit: int, num_segments: int | None, cores: int) -> None:
        self.state = state
        self._limit_bytes = limit
        self._num_segments = num_segments
        self._cores = cores
        self._parts: list[SegmentPart] = []
        self._models: dict[int, VectorModel] = {}
        self._num_changes = 0

    def add(
        self,
        request: AnyRequest,
        fragment_ids: list[int],
        like: tuple[str, ...] = (),
        replaced: tuple[str, ...] = (),
    ) -> Plan[None]:
        """Add the segments of an index over some fragments. Learns its model, if it has none yet.

        like, replaced  UUIDs of segments whose parameters they have, and of those that they replace
        """
        number, state = self._num_changes, self.state
        copied = replaced if isinstance(request, VectorRequest) and request.model is not None else ()
        if isinstance(request, VectorRequest) and request.model is None and fragment_ids:
            model = yield from train_model(state, request, fragment_ids, self._limit_bytes, BuildProgress())
            if model is None:
                fragment_ids = []  # a segment without files, which waits for rows to learn from
            else:
                self._models[number] = model
        count = num_parts_of(state, fragment_ids, self._cores, SEGMENT_ROWS_MIN, self._num_segments)
        runs = cut_fragments(state, fragment_ids, count) or [()]
        for run_of_ids in runs:
            is_whole = len(runs) == 1  # else codes of other fragments would come along
            self._parts.append(SegmentPart(len(self._parts), number, run_of_ids, like, copied if is_whole else ()))
        self._num_changes += 1

    def job(self, removed: Sequence[str], new: NewIndex | None) -> tuple[IndexJob, list[SegmentPart]]:
        """The job and its parts."""
        job = IndexJob(
            new_digits(),
            self.state.manifest.version,
            len(self._parts),
            self._limit_bytes,
            tuple(removed),
            new,
            self._models,
        )
        return job, self._parts
