"""The rows of a filter's conditions: one round for all segments, then addresses of covered rows (spec: indices, 1.3).

A segment's rows become addresses first, and are then cut to the fragments that this segment covers. With stable row ids
the order matters: an updated row keeps its id, and an old entry leads to its new place in another fragment.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from lance_io.index.details import Space
from lance_io.index.rows.moves import moved_rows
from lance_io.index.rows.row_set import Answer, RowSet, conjunction, disjunction
from lance_io.index.scalar.kinds import READERS, num_zones, value_type
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.index.choose_indices import (
    AllOf,
    AnyOf,
    Choice,
    Condition,
    IsTrue,
    Opposite,
    choose,
    conditions,
)
from lance_io.reads.index.index_counts import record_comparisons
from lance_io.reads.index.segments import TooManyRows, UnreadSegment, open_segments, search_segments
from lance_io.reads.index.table_indices import load_table_indices
from lance_io.reads.rows.deletions_and_ids import load_live_counts, load_row_id_index
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from lance_io.filters.expressions.expression_tree import Expr
    from lance_io.index.details import IndexDetails
    from lance_io.index.questions import Question, Segment
    from lance_io.index.rows.moves import Move
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.choose_indices import Node
    from lance_io.reads.index.table_indices import IndexPart, TableIndex
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.row_ids import RowIdIndex

_ADDRESSES = Space.ADDRESSES


@dataclass(frozen=True, slots=True, eq=False)
class IndexedRows:
    """The rows of a filter in the fragments that its indices cover.

    choice   the conditions that were answered
    covered  ids of these fragments; a scan has to examine the others
    rows     addresses, including those of deleted rows
    """

    choice: Choice
    covered: frozenset[int]
    rows: RowSet


def indexed_rows(
    state: DatasetState,
    expression: Expr,
    rows_max: int | None = None,
    among: Sequence[TableIndex] | None = None,
) -> Plan[IndexedRows | None]:
    """The rows of a filter that indices name; None if no index answers a part of it.

    rows_max  bounds the rows that are read of index files, and the runs of the answer: an index that needs more is not
              asked
    among     the indices that may be asked, if they are known to suit the filter; None for all
    Raises `FormatError` for a damaged index, naming it and its file.
    """
    known = yield from load_table_indices(state)
    if among is None:
        likely = choose(expression, known.indices, _by_kind) if known.indices else None
        if likely is None:
            return None
        among = likely.indices
    parts = [(index, part) for index in among for part in index.parts]
    segments = dict(zip(_uuids(parts), (yield from open_segments(state, parts)), strict=True))
    whole = yield from whole_indices(state, among, segments)
    while (choice := choose(expression, whole, _Opened(segments).answers)) is not None:
        try:
            answer = yield from _answer(state, choice, segments, known.moves, rows_max)
        except TooManyRows as error:
            whole = [index for index in whole if index is not error.index]
        else:
            return answer if rows_max is None or len(answer.rows.starts) <= rows_max else None
    return None


def rows_of_question(state: DatasetState, index: TableIndex, question: Question, rows_max: int) -> Plan[RowSet | None]:
    """The rows of one question, including deleted ones; None if a scan has to find them.

    That is so if the index has lost rows, answers inexactly, or if it needs more than `rows_max` rows of its files, or
    names more. Raises as `indexed_rows`.
    """
    parts = [(index, part) for part in index.parts]
    segments = dict(zip(_uuids(parts), (yield from open_segments(state, parts)), strict=True))
    if not (yield from whole_indices(state, [index], segments)):
        return None
    if not _Opened(segments).answers(index, question, None):
        return None
    known = yield from load_table_indices(state)
    choice = Choice(Condition(index, question), ())
    try:
        rows = (yield from _answer(state, choice, segments, known.moves, rows_max)).rows
    except TooManyRows:
        return None
    return rows if rows.num_rows <= rows_max else None


def likely_covered(state: DatasetState, expression: Expr) -> Plan[frozenset[int] | None]:
    """Ids of the fragments that `indexed_rows` will cover, if it can use the indices; None without an index."""
    known = yield from load_table_indices(state)
    choice = choose(expression, known.indices, _by_kind)
    return None if choice is None else _covered(choice)


def _covered(choice: Choice) -> frozenset[int]:
    return frozenset.intersection(*(index.covered for index in choice.indices))


def whole_indices(
    state: DatasetState, indices: Sequence[TableIndex], segments: Mapping[str, Segment]
) -> Plan[list[TableIndex]]:
    """The indices whose segments have as many rows as they have to: at least those of the fragments that they cover."""
    whole = []
    for index in indices:
        if any(isinstance(segments[part.uuid], UnreadSegment) for part in index.parts):
            warnings.warn(
                f"index {index.name!r} has files of version 0.1, as those of the first releases; it is not used: build "
                "it again, by optimize_indices(retrain=True)",
                stacklevel=2,
            )
            continue
        lost = None
        for part in index.parts:
            num_rows = segments[part.uuid].num_rows
            if num_rows is not None:
                lost = part if num_rows < (yield from _live_rows(state, part.covered)) else lost
        if lost is None:
            whole.append(index)
        else:
            warnings.warn(
                f"index {index.name!r} has fewer rows than the fragments that it covers (segment {lost.uuid}); it is "
                "not used: build it again",
                stacklevel=2,
            )
    return whole


def _live_rows(state: DatasetState, covered: frozenset[int]) -> Plan[int]:
    """Number of live rows of some fragments."""
    key = "live rows", covered
    num_rows: int | None = state.prepared.get(key)
    if num_rows is None:
        ids = np.array([*covered], dtype=np.int64)
        num_rows = sum((yield from load_live_counts(state, state.find_fragment_indexes(ids).tolist())))
        state.prepared.put(key, num_rows)
    return num_rows


def _uuids(parts: Iterable[tuple[TableIndex, IndexPart[IndexDetails]]]) -> list[str]:
    return [part.uuid for _, part in parts]


def _by_kind(index: TableIndex, question: Question, dtype: pa.DataType | None) -> bool | None:
    reader = READERS.get(index.kind)
    return None if reader is None else reader.answers(question)


class _Opened:
    """Opened segments by uuid."""

    def __init__(self, segments: Mapping[str, Segment]) -> None:
        self._segments = segments

    def answers(self, index: TableIndex, question: Question, dtype: pa.DataType | None) -> bool | None:
        """Whether all segments of an index answer a question to values of a type; None for the column's type."""
        segments = [self._segments[part.uuid] for part in index.parts]
        if dtype is not None and any(value_type(segment) not in (None, dtype) for segment in segments):
            return None
        answered = {segment.answers(question) for segment in segments}
        return None if None in answered else all(answered)


def _answer(
    state: DatasetState,
    choice: Choice,
    segments: Mapping[str, Segment],
    moves: Sequence[Move],
    rows_max: int | None,
) -> Plan[IndexedRows]:
    asked = [*conditions(choice.node)]
    searches = [
        ((condition.index, part), segments[part.uuid].search(condition.question, needs_null=needs_null))
        for condition, needs_null in asked
        for part in condition.index.parts
    ]
    record_comparisons(sum([num_zones(segments[part.uuid]) for (_, part), _ in searches]))
    known = yield from search_segments(state, searches, rows_max)
    answers = iter(known)
    uses_ids = any(part.space is Space.IDS for (_, part), _ in searches)
    row_ids = (yield from load_row_id_index(state)) if uses_ids else None
    covered = _covered(choice)

    def combined() -> RowSet:
        by_condition = {
            id(condition): _joined(
                [_to_addresses(state, part, next(answers), row_ids, moves) for part in condition.index.parts]
            )
            for condition, _ in asked
        }
        if isinstance(choice.node, Condition):  # of one index, whose segments are cut to the fragments that they cover
            return by_condition[id(choice.node)].true
        universe = fragment_rows(state, covered)
        return _combined(choice.node, by_condition, universe).true.intersect(universe)

    rows: RowSet = yield Compute(combined, lambda: sum(answer.true.nbytes + answer.null.nbytes for answer in known))
    return IndexedRows(choice, covered, rows)


def _combined(node: Node, answers: Mapping[int, Answer], universe: RowSet) -> Answer:
    match node:
        case Condition():
            return answers[id(node)]
        case AllOf(parts):
            return conjunction([_combined(part, answers, universe) for part in parts])
        case AnyOf(parts):
            return disjunction([_combined(part, answers, universe) for part in parts])
        case Opposite(part):
            return _combined(part, answers, universe).negated(universe)
        case IsTrue(part):
            answer = _combined(part, answers, universe)
            return Answer(answer.true, RowSet.none(_ADDRESSES), answer.is_exact)


def _joined(answers: Sequence[Answer]) -> Answer:
    """The answers of the segments of one index, which cover different fragments."""
    first, *others = answers
    if not others:
        return first
    true = first.true.union(*[answer.true for answer in others])
    null = first.null.union(*[answer.null for answer in others])
    return Answer(true, null, all(answer.is_exact for answer in answers))


def _to_addresses(
    state: DatasetState,
    part: IndexPart[IndexDetails],
    answer: Answer,
    row_ids: RowIdIndex | None,
    moves: Sequence[Move],
) -> Answer:
    """An answer of a segment as addresses of the rows that it covers."""
    covered = fragment_rows(state, part.covered)
    true, null = [
        (moved_rows(rows, moves) if rows.space is _ADDRESSES else _translated(rows, row_ids)).intersect(covered)
        for rows in (answer.true, answer.null)
    ]
    return Answer(true, null, answer.is_exact)


def _translated(rows: RowSet, row_ids: RowIdIndex | None) -> RowSet:
    assert row_ids is not None, "it was loaded for the segments that name row ids"
    if rows.is_empty:
        return RowSet.none(_ADDRESSES)
    addresses, exists = row_ids.lookup(rows.rows())
    return RowSet.of_rows(_ADDRESSES, addresses[exists])


def fragment_rows(state: DatasetState, fragment_ids: frozenset[int]) -> RowSet:
    """The addresses of all rows of some fragments, including deleted ones."""
    key = "fragment rows", fragment_ids
    rows: RowSet | None = state.prepared.get(key)
    if rows is None:
        rows = _fragment_rows(state, fragment_ids)
        state.prepared.put(key, rows)
    return rows


def _fragment_rows(state: DatasetState, fragment_ids: frozenset[int]) -> RowSet:
    ids = np.array(sorted(fragment_ids), dtype=np.int64)
    sizes = state.physical_rows[state.find_fragment_indexes(ids)] if len(ids) else ids
    starts = ids.astype(np.uint64) << np.uint64(32)
    return RowSet.of_runs(_ADDRESSES, starts, starts + sizes.astype(np.uint64))
