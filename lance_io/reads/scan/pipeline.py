"""From decoded rows of fragments to the batches of a scan, without I/O of its own.

    batch of a fragment -> deleted rows dropped -> filter -> limit -> remaining columns -> output columns
                                                   first stage -> columns of the second one -> second stage

Batches of small fragments stay together where they were decoded together, and are always filtered together: computing a
filter costs the same for ten rows and for a thousand. Columns that a selective filter makes superfluous are read late:
the pipeline collects the rows that pass and requests the rest of their columns in one take (`LateColumns`). A filter of
cheap and dear conditions has two stages: the columns of the dear ones are read late, too. The drivers are in `stream`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import compute as pc
from lance_io.file.scan.batches import JoinedBatch, ScanBatch
from lance_io.levels.arrays import booleans, memory_bytes
from lance_io.levels.join import holds_dictionary
from lance_io.levels.retype import batch_as, concat
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.streams import Items
from lance_io.reads.rows.rebatch import empty_columns
from lance_io.reads.rows.row_arithmetic import Grouped, kept_runs
from lance_io.reads.scan.span_rows import ChosenBatch, Joined, Rows, Spans
from lance_io.reads.version.system_columns import SYSTEM_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lance_io.file.open.leaf_projection import Projection as FileProjection
    from lance_io.filters import Predicate
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.blobs.blob_values import BlobBinaries
    from lance_io.reads.rows.row_arithmetic import LiveRows
    from lance_io.reads.rows.row_columns import RowColumns
    from lance_io.reads.scan.index_scan import IndexForm
    from lance_io.reads.scan.late_choice import LateCosts
    from lance_io.reads.scan.late_columns import LateColumns
    from lance_io.reads.version.column_lists import Projection
    from lance_io.spans import IntArray

    Batch = ScanBatch | JoinedBatch | ChosenBatch
    Cut = Callable[[list[tuple[int, pa.RecordBatch]]], Iterable[Any]]

PLAN_BYTES: Final = 1024  # of a plan and of each part, about
SPAN_BYTES: Final = 256  # of a span and its live rows, about
RUN_ROWS_MIN = 1024  # average rows between two deleted ones below which copying beats slicing


@dataclass(frozen=True, slots=True)
class Span:
    """A physical row range of one fragment.

    fragment_index  index of the fragment in the manifest
    start, end      offsets
    """

    fragment_index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SecondStage:
    """The conditions of a filter that are computed after others.

    predicate  for rows that the first stage leaves
    names      top-level columns that are read for it, in schema order
    read       their stored columns
    costs      by which the scan decides how they are read
    """

    predicate: Predicate
    names: tuple[str, ...]
    read: FileProjection
    costs: LateCosts


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The reads and outputs of a scan.

    spans          row ranges, in the order of the result
    live           live rows, by fragment index, for every fragment of `spans`
    row_columns    builds the system columns that the scan needs
    projection     output columns
    early, late    top-level columns read for all rows, and for the rows that pass the filter; names in schema order
    early_read, late_read  their stored columns, None where there are none
    predicate      the filter, or None
    first          its first stage: the part that is computed for all rows; None: the whole filter
    second         its second stage, None where there is one
    skip, limit    rows to leave out of those that pass the filter, and how many to return after that (None: all)
    keep_deleted   deleted rows are part of the result, with a null row id
    late_costs     by which the scan decides how late columns are read; None where each row is taken
    chosen         offsets of the rows to read of each span, ascending, without deleted rows; None for whole spans
    parts          the plans that the scan runs one after the other, if indices answer it for some fragments
    ready          the rows of a part that were read beside the rounds of indices; None for a part that is read later
    num_matches    rows of the result before skip and limit, if known without reading any
    index          describes the indices that answer the filter; None without one
    num_batches, num_batches_skipped  batches of files of version 0.1 whose statistics were checked, and those of them
                   that are not read
    form           plans scans that differ only in the values of the filter; None where it does not suit them
    """

    spans: tuple[Span, ...]
    live: dict[int, LiveRows]
    row_columns: RowColumns
    projection: Projection
    early: tuple[str, ...]
    early_read: FileProjection | None
    late: tuple[str, ...] = ()
    late_read: FileProjection | None = None
    predicate: Predicate | None = None
    first: Predicate | None = None
    second: SecondStage | None = None
    skip: int = 0
    limit: int | None = None
    keep_deleted: bool = False
    late_costs: LateCosts | None = None
    chosen: tuple[IntArray, ...] | None = None
    parts: tuple[ScanPlan, ...] = ()
    ready: tuple[pa.RecordBatch, ...] | None = None
    num_matches: int | None = None
    index: Callable[[], str] | None = None
    num_batches: int = 0
    num_batches_skipped: int = 0
    form: IndexForm | None = None

    @property
    def num_rows(self) -> int:
        """Rows to read: physical rows of all spans, or the chosen ones."""
        if self.parts:
            return sum(part.num_rows for part in self.parts)
        if self.chosen is not None:
            return sum(map(len, self.chosen))
        return sum(span.end - span.start for span in self.spans)

    @property
    def kept_bytes(self) -> int | None:
        """Memory of the plan of a scan by indices, about; None for one with rows, which is not kept."""
        if any([part.ready is not None for part in self.parts]):
            return None
        chosen = [rows.nbytes for part in self.parts for rows in part.chosen or ()]
        deleted = [live.deleted.nbytes for live in self.live.values() if live.deleted is not None]
        return PLAN_BYTES * (1 + len(self.parts)) + SPAN_BYTES * len(self.spans) + sum(chosen) + sum(deleted)

    def named_rows(self) -> Grouped | None:
        """The rows of a plan that is no more than rows that indices name, and columns; None for another plan."""
        if self.index is None or len(self.parts) > 1 or self.skip or self.limit is not None:
            return None
        if not self.parts:
            return Grouped((), None)
        (part,) = self.parts
        is_more = part.predicate is not None or part.ready is not None or part.late_read is not None
        if part.chosen is None or is_more:
            return None
        pairs = zip(part.spans, part.chosen, strict=True)
        groups = tuple([(span.fragment_index, rows) for span, rows in pairs if len(rows)])
        is_ascending = all([first[0] < second[0] for first, second in pairwise(groups)])
        return Grouped(groups, None) if is_ascending else None

    def again(self) -> ScanPlan:
        """The same plan for another scan: stored columns cache the lookups of a scan."""
        second = self.second
        return replace(
            self,
            early_read=self.early_read and self.early_read.again(),
            late_read=self.late_read and self.late_read.again(),
            second=second and replace(second, read=second.read.again()),
        )


def windowed(plan: ScanPlan, skip: int, limit: int | None) -> ScanPlan:
    """The part of a scan with what is left to skip and to return; reads no row in vain if its rows are known."""
    if plan.predicate is None and plan.chosen is not None and (skip or limit is not None):
        starts = np.cumsum([0, *map(len, plan.chosen)]).tolist()
        end = starts[-1] if limit is None else skip + limit
        chosen = [rows[: max(0, end - before)] for rows, before in zip(plan.chosen, starts[:-1], strict=True)]
        if skip >= starts[-1]:
            chosen = [rows[:0] for rows in chosen]
            return replace(plan, chosen=tuple(chosen), skip=skip - starts[-1], limit=limit)
        chosen = [rows[max(0, skip - before) :] for rows, before in zip(chosen, starts[:-1], strict=True)]
        return replace(plan, chosen=tuple(chosen), skip=0, limit=limit)
    return replace(plan, skip=skip, limit=limit)


class Pipeline:
    """The state of one scan. Feed it batches by `prepare` and `push`, then call `finish`; stop when `done`.

    late      reads `plan.late` of rows that pass the filter; None when there are none
    second    reads the columns of the second stage for rows that pass the first; None when there is one stage
    binaries  reads the bytes of blob columns in binary form; None when there are none
    apart     whether unfiltered rows of several spans are delivered span by span
    """

    def __init__(
        self,
        plan: ScanPlan,
        late: LateColumns | None,
        second: LateColumns | None,
        binaries: BlobBinaries | None,
        *,
        apart: bool = False,
    ) -> None:
        self._plan = plan
        self._apart = apart
        self._late = late
        self._second = second
        self._binaries = binaries
        self._skip = plan.skip
        self._left = plan.limit
        self._schema = plan.projection.arrow_schema
        self._retype = plan.projection.is_retyped
        wanted = set(plan.projection.system_names)
        self._shown = plan.projection.source_names  # other columns are for the filter only
        self._predicate = plan.first or plan.predicate
        self._filter_names = _names_in(self._predicate)
        self._filter_system = {name for name in self._filter_names if name in SYSTEM_COLUMNS}
        self._second_names = [] if plan.second is None else _names_in(plan.second.predicate)
        self._second_system = {name for name in self._second_names if name in SYSTEM_COLUMNS} - self._filter_system
        self._kept = {*self._shown, *self._second_names}
        self._output_system = wanted - self._filter_system - self._second_system
        self._order = self._order_of_all()

    def _order_of_all(self) -> list[int] | None:
        """The early column of each output, if all rows that are read are the result, unchanged; otherwise None."""
        plan, names = self._plan, self._plan.projection.plain_names
        is_read = not (plan.predicate is not None or plan.skip or plan.chosen is not None or self._output_system)
        if not (is_read and names) or plan.limit is not None or self._late is not None or self._binaries is not None:
            return None
        if not plan.keep_deleted and any([live.deleted is not None for live in plan.live.values()]):
            return None
        positions = {name: at for at, name in enumerate(plan.early)}
        return [positions[name] for name in names]

    @property
    def gives_all(self) -> bool:
        """Whether `whole` makes the result."""
        return self._order is not None

    def whole(self, batch: ScanBatch | JoinedBatch) -> list[tuple[int, pa.RecordBatch]]:
        """All rows of a batch as output columns, where `gives_all`, each batch with the number of its first span."""
        if not batch.num_rows:
            return []
        assert self._order is not None, "see gives_all"
        arrays = [batch.arrays[at] for at in self._order]
        output = batch_as(arrays, self._schema, retype=self._retype)
        if self._apart and isinstance(batch, JoinedBatch):
            return [*_apart(output, [*enumerate(batch.row_counts, batch.span_index)])]
        return [(batch.span_index, output)]

    def done(self) -> bool:
        """True when the limit is reached."""
        return self._left == 0

    @property
    def window(self) -> tuple[int, int | None]:
        """Rows still to skip, and to return (None: all)."""
        return self._skip, self._left

    @property
    def is_filtered(self) -> bool:
        """Whether `prepare` computes a filter."""
        return self._plan.predicate is not None

    @property
    def is_limited(self) -> bool:
        """Whether the scan may be done before all batches are in."""
        return self._plan.limit is not None

    @property
    def joins(self) -> bool:
        """Whether several batches may be prepared together.

        This needs a scan of all rows without dictionaries: fragments have dictionaries of their own, and the indices of
        a column may not reach the values of several.
        """
        if not self.is_filtered or self.is_limited or self._plan.skip:
            return False
        read = self._plan.early_read
        return read is None or not any([holds_dictionary(field.arrow_type) for field in read.fields])

    def prepare(self, batches: list[Batch]) -> Sequence[Rows | Spans | Joined]:
        """The rows of batches, with the columns of `plan.early`, that pass the filter. Runs in any thread.

        batches  one, or several where `joins`
        Returns the input of `push`.
        """
        first = batches[0]
        if len(batches) == 1 and not isinstance(first, JoinedBatch):
            return [rows if mask is None else rows.keep(mask) for rows, mask in self._passing(self._rows(first))]
        if self._predicate is None:
            assert isinstance(first, JoinedBatch), "others come one by one"
            if not self._has_deleted(first):
                return [self._spans_of(first)]
            return [rows for part in first.split() for rows, _ in self._passing(self._rows(part))]
        sources = self._left_of(batches)
        if not sources:
            return []
        mask = self._mask_of(sources)
        return [Joined.of(sources, mask, [name for name in sources[0].columns if name in self._kept])]

    def push(self, prepared: Sequence[Rows | Spans | Joined], cut: Cut) -> Stream:
        """Take the next prepared rows and deliver the batches that are ready.

        cut  turns `[(span, record batch)]` into the delivered items

        A batch with rows of several spans has the number of the first.
        """
        for rows in prepared:
            if self._second is None:
                yield from self._pass(rows, cut)
            else:
                assert not isinstance(rows, Spans), "there is a filter"
                yield from self._second.add(rows, partial(self._pass_second, cut=cut), is_last=False)

    def finish(self, cut: Cut) -> Stream:
        """Deliver the rest when all batches are in; as `push`."""
        if self._second is not None:
            yield from self._second.finish(partial(self._pass_second, cut=cut))
        if self._late is not None:
            yield from self._late.finish(partial(self._give_rows, cut=cut))

    def _pass(self, rows: Rows | Spans | Joined, cut: Cut) -> Stream:
        """Rows that pass the filter go on to the limit and their late columns."""
        kept = rows if isinstance(rows, Spans) else self._limit(rows)
        if kept.num_rows:
            self._add_system(kept, self._output_system)
        elif self._late is None:
            return
        if self._late is None:
            yield from self._give(kept.columns, kept.counts, cut, is_split=self._apart and isinstance(kept, Spans))
            return
        assert not isinstance(kept, Spans), "there is a filter"
        yield from self._late.add(kept, partial(self._give_rows, cut=cut), is_last=self.done())

    def _pass_second(self, rows: Rows | Joined, cut: Cut) -> Stream:
        """Compute the second stage for rows that have its columns."""
        mask = yield self._second_mask(rows)
        joined = rows if isinstance(rows, Joined) else Joined(rows.columns, rows.parts, rows.num_rows)
        yield from self._pass(joined.keep(mask, [name for name in joined.columns if name in self._shown]), cut)

    def _second_mask(self, rows: Rows | Joined) -> Compute[pa.BooleanArray]:
        assert self._plan.second is not None, "it reads the rows"
        self._add_system(rows, self._second_system)
        columns = [rows.columns[name] for name in self._second_names]
        batch = pa.RecordBatch.from_arrays(columns, self._second_names)
        return Compute(partial(self._plan.second.predicate.mask, batch), lambda: sum(map(memory_bytes, columns)))

    def push_counts(self, prepared: Sequence[Rows | Spans | Joined] | None) -> Stream:
        """Deliver numbers of rows that pass a filter of two stages; None at the end."""
        assert self._second is not None, "asked for where there are two"
        if prepared is None:
            yield from self._second.finish(self._count_second)
            return
        for rows in prepared:
            assert not isinstance(rows, Spans), "there is a filter"
            yield from self._second.add(rows, self._count_second, is_last=False)

    def _count_second(self, rows: Rows | Joined) -> Stream:
        mask = yield self._second_mask(rows)
        yield Items((mask.true_count,))

    @property
    def has_stages(self) -> bool:
        """Whether the filter has two stages, so that `push_counts` counts its rows."""
        return self._second is not None

    def count(self, batches: list[Batch]) -> int:
        """Number of rows of batches that pass a filter of one stage, ignoring the limit; as `prepare`."""
        first = batches[0]
        if len(batches) == 1 and not isinstance(first, JoinedBatch):
            passing = self._passing(self._rows(first))
            return sum(rows.num_rows if mask is None else mask.true_count for rows, mask in passing)
        sources = self._left_of(batches)
        return self._mask_of(sources).true_count if sources else 0

    def _rows(self, batch: ScanBatch | ChosenBatch) -> Rows:
        columns = dict(zip(self._plan.early, batch.arrays, strict=True))
        if isinstance(batch, ChosenBatch):
            first, end = int(batch.offsets[0]), int(batch.offsets[-1]) + 1
            return Rows(batch.span_index, first, batch.num_rows, batch.offsets, columns, end=end)
        return Rows(batch.span_index, batch.row_start, batch.num_rows, None, columns)

    def _spans_of(self, batch: JoinedBatch) -> Spans:
        columns = dict(zip(self._plan.early, batch.arrays, strict=True))
        return Spans(batch.span_index, batch.row_counts, batch.num_rows, columns)

    def count_left(self, batch: Batch) -> int:
        """Live rows of a batch, or all if deleted rows are part of the result."""
        if self._plan.keep_deleted or isinstance(batch, ChosenBatch):
            return batch.num_rows
        live, spans = self._plan.live, self._plan.spans
        if not isinstance(batch, JoinedBatch):
            first, fragment_index = batch.row_start, spans[batch.span_index].fragment_index
            return batch.num_rows - len(live[fragment_index].deleted_between(first, first + batch.num_rows))
        counts = enumerate(batch.row_counts, batch.span_index)
        return batch.num_rows - sum(
            len(live[spans[span].fragment_index].deleted_between(0, count)) for span, count in counts
        )

    def _has_deleted(self, batch: JoinedBatch) -> bool:
        """Whether it has deleted rows that are not part of the result."""
        live, spans, first = self._plan.live, self._plan.spans, batch.span_index
        if self._plan.keep_deleted:
            return False
        return any(
            [live[span.fragment_index].deleted is not None for span in spans[first : first + len(batch.row_counts)]]
        )

    def _passing(self, rows: Rows) -> Iterator[tuple[Rows, pa.BooleanArray | None]]:
        """Live rows in order, and which of them pass the filter (None: all)."""
        predicate, dropped = self._predicate, self._dropped(rows)
        if dropped is None:
            yield rows, None if predicate is None else self._mask(rows)
        elif predicate is None:
            yield from ((left, None) for left in _left(rows, dropped))
        elif predicate.cannot_fail:
            yield rows, pc.and_(self._mask(rows), _mask_without(rows.num_rows, dropped))
        else:  # deleted rows must not make the filter fail
            left = rows.keep(_mask_without(rows.num_rows, dropped))
            yield left, self._mask(left)

    def _mask(self, rows: Rows) -> pa.BooleanArray:
        mask = self._mask_of([rows])
        rows.columns = {name: column for name, column in rows.columns.items() if name in self._kept}
        return mask

    def _dropped(self, rows: Rows) -> IntArray | None:
        """Offsets of deleted rows that are not part of the result; None if there are none."""
        if self._plan.chosen is not None:
            return None
        live = self._plan.live[self._plan.spans[rows.span].fragment_index]
        if self._plan.keep_deleted or live.deleted is None:
            return None
        dropped = live.deleted_between(rows.first, rows.first + rows.num_rows)
        return dropped if len(dropped) else None

    def _left_of(self, batches: list[Batch]) -> list[Rows | Spans]:
        """The live rows of batches, without empty parts."""
        sources: list[Rows | Spans] = []
        for batch in batches:
            if isinstance(batch, JoinedBatch):
                sources += self._left_of([*batch.split()]) if self._has_deleted(batch) else [self._spans_of(batch)]
                continue
            rows = self._rows(batch)
            dropped = self._dropped(rows)
            if dropped is not None:
                rows = rows.keep(_mask_without(rows.num_rows, dropped))
            if rows.num_rows:
                sources.append(rows)
        return sources

    def _mask_of(self, sources: Sequence[Rows | Spans]) -> pa.BooleanArray:
        """Which of their rows, one after the other, pass the filter."""
        for rows in sources:
            self._add_system(rows, self._filter_system)
        names = self._filter_names
        if names:
            columns = [concat([rows.columns[name] for rows in sources]) for name in names]
            batch = pa.RecordBatch.from_arrays(columns, names)
        else:
            batch = empty_columns(sum(rows.num_rows for rows in sources), pa.schema([]))
        assert self._predicate is not None, "asked for where there is one"
        return self._predicate.mask(batch)

    def _limit(self, rows: Rows | Joined) -> Rows | Joined:
        start = min(self._skip, rows.num_rows)
        end = rows.num_rows if self._left is None else min(rows.num_rows, start + self._left)
        self._skip -= start
        if self._left is not None:
            self._left -= end - start
        return rows.slice(start, end)

    def _add_system(self, rows: Rows | Spans | Joined, names: set[str]) -> None:
        if not names:
            return
        make, spans, with_deleted = self._plan.row_columns.make, self._plan.spans, self._plan.keep_deleted
        parts = rows.parts
        for name in names:
            arrays = [make(name, spans[span].fragment_index, offsets, with_deleted) for span, offsets in parts]
            rows.columns[name] = concat(arrays)

    def _give_rows(self, rows: Rows | Joined, cut: Cut) -> Stream:
        yield from self._give(rows.columns, rows.counts, cut)

    def _give(
        self, columns: dict[str, pa.Array], counts: list[tuple[int, int]], cut: Cut, *, is_split: bool = False
    ) -> Stream:
        """Deliver rows as output columns, in parts if their blobs are many bytes. Empties `columns`.

        counts    the spans, and their number of rows
        is_split  whether each span's rows are delivered separately
        """
        borders = None if self._binaries is None else (yield from self._binaries.cuts(columns, self._runs(counts)))
        if borders is None or len(borders) <= 2:
            batch = yield from self._assemble(columns, self._runs(counts))
            columns.clear()
            yield Items(cut([*_apart(batch, counts)] if is_split else [(counts[0][0], batch)]))
            return
        for start, end in pairwise(borders):
            part = {name: column.slice(start, end - start) for name, column in columns.items()}
            its_counts = _counts_between(counts, start, end)
            batch = yield from self._assemble(part, self._runs(its_counts))
            yield Items(cut([*_apart(batch, its_counts)] if is_split else [(its_counts[0][0], batch)]))
            del part, batch  # freed while the next ones are read

    def _runs(self, counts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Fragment indexes of spans, and their number of rows."""
        return [(self._plan.spans[span].fragment_index, num_rows) for span, num_rows in counts]

    def _assemble(self, columns: dict[str, pa.Array], runs: list[tuple[int, int]]) -> Plan[pa.RecordBatch]:
        """The output columns; `runs` are `(fragment index, number of rows)`, in order."""
        num_rows = sum(num_rows for _, num_rows in runs)
        if not self._plan.projection.outputs:
            return empty_columns(num_rows, self._schema)
        if self._binaries is not None:
            yield from self._binaries.replace(columns, runs)
        arrays = [output.values(columns, num_rows) for output in self._plan.projection.outputs]
        return batch_as(arrays, self._schema, retype=self._retype)


def _names_in(predicate: Predicate | None) -> list[str]:
    """The top-level columns that it reads, in order of first use."""
    return [] if predicate is None else list(dict.fromkeys(path[0] for path in predicate.paths))


def _counts_between(counts: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """The spans of rows `start` to `end`, and how many of them each has."""
    parts, before = [], 0
    for span, num_rows in counts:
        kept = min(end, before + num_rows) - max(start, before)
        before += num_rows
        if kept > 0:
            parts.append((span, kept))
    return parts


def _apart(batch: pa.RecordBatch, counts: list[tuple[int, int]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each span separately."""
    before = 0
    for span, num_rows in counts:
        yield span, batch.slice(before, num_rows)
        before += num_rows


def _left(rows: Rows, dropped: IntArray) -> Iterator[Rows]:
    """The rows without those at `dropped` (relative to the first): slices, or a copy if slices would be short."""
    starts, ends = kept_runs(rows.num_rows, dropped)
    if len(starts) <= 1 or len(starts) * RUN_ROWS_MIN <= rows.num_rows:
        yield from map(rows.slice, starts.tolist(), ends.tolist())
    else:
        yield rows.keep(_mask_without(rows.num_rows, dropped))


def _mask_without(num_rows: int, dropped: IntArray) -> pa.BooleanArray:
    kept = np.ones(num_rows, dtype=np.bool_)
    kept[dropped] = False
    return booleans(kept)
