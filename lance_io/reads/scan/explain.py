"""The bytes that a scan or a take would request, without reading rows.

The code that reads (opening files, pages, pieces of scans) runs unchanged. Its requests for metadata and page indexes
are answered; at the first range of data it is stopped. Metadata and indexes stay in the search cache, so explaining a
take also warms it up. `cold=True` uses an empty cache and leaves the dataset's alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np

from lance_io.encodings.api import RowSelection
from lance_io.encodings.item_reads import ItemSelection, read_items, reads_items
from lance_io.encodings.rounds import together
from lance_io.errors import FormatError
from lance_io.file.file_requests import ReadFile, ReadFiles, truncation_error
from lance_io.file.file_steps import Independent, Suffix, serve_from_tail, single_request
from lance_io.file.open.leaf_projection import Projection
from lance_io.file.open.open_file import open_cached
from lance_io.file.row_indices import row_numbers
from lance_io.file.scan.page_slices import fits_group
from lance_io.file.scan.readahead import file_pieces, group_bytes
from lance_io.lazy_names import lazy_module
from lance_io.plans.plan import Together
from lance_io.plans.store_requests import Read
from lance_io.reads.rows.deletions_and_ids import load_row_columns
from lance_io.reads.rows.item_columns import split_items
from lance_io.reads.rows.read_rows import read_bytes
from lance_io.reads.scan.io_plan import IoPlan, Ledger, Merging
from lance_io.reads.scan.ordering import Ordering
from lance_io.reads.scan.read_spans import is_taken
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.reads.takes.take_rows import group_positions
from lance_io.reads.version.column_lists import project_taken
from lance_io.reads.version.session import Session
from lance_io.runtime import cpu_count
from lance_io.spans import Ranges
from lance_io.store.costs import costs_of
from lance_io.store.failures import InvalidRange, ShortRead
from lance_io.store.profile import CLOUD

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import pyarrow as pa

    from lance_io.encodings.api import PageIndex, PageLayout
    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.file_source import ReadContext
    from lance_io.file.open.leaf_projection import FileColumns
    from lance_io.file.scan.page_slices import Piece
    from lance_io.file.scan.readahead import Span
    from lance_io.io.cache import SearchCache
    from lance_io.plans.plan import Plan, Request
    from lance_io.reads.scan import nearest as searches
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.text import explain_text as text_explanations
    from lance_io.reads.version.column_lists import Projection as OutputProjection
    from lance_io.reads.version.column_lists import Selection
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray, Steps
    from lance_io.store.costs import RequestCosts
else:
    searches = lazy_module("lance_io.reads.scan.nearest")
    text_explanations = lazy_module("lance_io.reads.scan.text.explain_text")

T = TypeVar("T")
_NO_ITEMS: Final[Mapping[int, IntArray]] = MappingProxyType({})


def explain_take(
    state: DatasetState,
    indices: Any,
    columns: Selection = None,
    *,
    cold: bool = False,
    store: str | RequestCosts | None = None,
) -> Plan[IoPlan]:
    """The requests of `take(indices, columns)`.

    indices  positions of live rows, as for `take`
    cold     assume an empty search cache
    store    as for `explain_scan`
    Raises the errors of `take` before it reads data, and `UsageError` for an unknown store.
    """
    state = _fresh(state) if cold else state
    costs = None if store is None else costs_of(store)
    projection, items = split_items(state.schema, project_taken(state.schema, columns))
    ledger = Ledger(_merging(state, "take", costs))
    grouped, number = yield from _watch(ledger, group_positions(state, row_numbers(indices)))
    fields = Projection(state.pruned_fields(projection.data_paths))
    files = [
        _take_file(ledger, state.context, here, offsets, number, items)
        for fragment_index, offsets in grouped.groups
        for here in fields.locate(state.sources[fragment_index])
    ]
    last: list[int] = yield Together(files)
    if projection.system_names and grouped.groups:
        fragment_indexes = [fragment_index for fragment_index, _ in grouped.groups]
        names = projection.system_names
        yield from _watch(ledger, load_row_columns(state, fragment_indexes, names), max(last, default=number))
    return _plan(state, ledger, costs)


def explain_scan(
    state: DatasetState, options: ScanOptions, *, cold: bool = False, store: str | RequestCosts | None = None
) -> Plan[IoPlan]:
    """The requests of a scan with these options, if it is read to the end.

    cold   assume an empty search cache
    store  plan as if the table were in this store, given by its name or costs: requests merge and cost as there.
           None: its own store
    Raises the errors of the scan before it reads data, and `UsageError` for an unknown store.
    """
    state = _fresh(state) if cold else state
    costs = None if store is None else costs_of(store)
    ledger = Ledger(_merging(state, "scan", costs))
    projection: OutputProjection | None = None
    if options.full_text_query is not None:
        return (yield from _explain_text(state, ledger, options, costs))
    if options.nearest is not None:
        ledger.notes.append("the columns of the rows that are found are read afterwards")
        files = _merging(state, "take", costs)
        (options, projection, notes), _ = yield from _watch(ledger, searches.scan_part(state, options), files=files)
        ledger.notes += notes
    if options.order_by:
        ordering = Ordering(state, options)
        options, projection = ordering.options, ordering.projection
        ledger.notes.append("the rows are sorted when all of them have been read")
    plan, number = yield from _watch(
        ledger, plan_scan(state, options, projection), files=_merging(state, "take", costs)
    )
    if plan.index is not None:
        ledger.notes.append(f"rows by index: {plan.index()}")
    for part in plan.parts or (plan,):
        number = yield from _scan_part(state, ledger, part, number, costs)
    _note_unknown(ledger, plan, options)
    return _plan(state, ledger, costs)


def _explain_text(
    state: DatasetState, ledger: Ledger, options: ScanOptions, costs: RequestCosts | None
) -> Plan[IoPlan]:
    files = _merging(state, "take", costs)
    (scans, notes), first = yield from _watch(ledger, text_explanations.text_reads(state, options), files=files)
    ledger.notes += ["the columns of the rows that are found are read afterwards", *notes]
    for scanned, projection in scans:
        plan, number = yield from _watch(ledger, plan_scan(state, scanned, projection), first, files=files)
        for part in plan.parts or (plan,):
            number = yield from _scan_part(state, ledger, part, number, costs)
    return _plan(state, ledger, costs)


def _scan_part(
    state: DatasetState, ledger: Ledger, plan: ScanPlan, number: int, costs: RequestCosts | None
) -> Plan[int]:
    """The reads of a scan, or of a part of it. Returns the number of its last round."""
    fields = plan.early_read or Projection([])
    if plan.chosen is not None:
        taking = _merging(state, "take", costs)
        taken: list[Plan[int]] = [
            _take_file(ledger, state.context, here, offsets, number, merging=taking)
            for span, offsets in zip(plan.spans, plan.chosen, strict=True)
            for here in fields.locate(state.sources[span.fragment_index])
        ]
        return max((yield Together(taken)), default=number)
    if is_taken(state, plan):
        ledger.merging = _merging(state, "take", costs)
        files: list[Plan[int]] = [
            _take_file(ledger, state.context, here, np.arange(span.start, span.end, dtype=np.int64), number)
            for span in plan.spans
            for here in fields.locate(state.sources[span.fragment_index])
        ]
    else:
        merging = _early_merging(state, plan, costs)
        files = [
            _scan_file(
                ledger,
                state.context,
                here,
                index,
                (state.sources[span.fragment_index], span.start, span.end),
                number,
                merging,
            )
            for index, span in enumerate(plan.spans)
            for here in fields.locate(state.sources[span.fragment_index])
        ]
    return max((yield Together(files)), default=number)


def _early_merging(state: DatasetState, plan: ScanPlan, costs: RequestCosts | None) -> Merging | None:
    """How to merge reads of early columns if others follow, as bytes between may not be needed. None: as any scan."""
    is_now = state.is_local and costs is None
    has_later = plan.late_read is not None or plan.second is not None
    return _merging(state, "take", costs) if has_later and not is_now else None


def _fresh(state: DatasetState) -> DatasetState:
    return replace(state, session=Session())


def _merging(state: DatasetState, kind: Literal["scan", "take"], costs: RequestCosts | None) -> Merging:
    if costs is not None:
        return Merging.of(CLOUD.with_costs(costs), kind, now=False)
    return Merging.of(state.context.store.profile, kind, now=state.is_local)


def _plan(state: DatasetState, ledger: Ledger, costs: RequestCosts | None) -> IoPlan:
    costs = costs or state.context.store.profile.costs
    return IoPlan(ledger.rounds(), state.location.path, tuple(ledger.notes), costs)


def _note_unknown(ledger: Ledger, plan: ScanPlan, options: ScanOptions) -> None:
    parts = plan.parts or (plan,)
    for stage in dict.fromkeys((part.first, part.second) for part in parts if part.second is not None):
        first, second = stage
        assert second is not None
        ledger.notes.append(f"the filter is computed in two stages: first {first}, then {second.predicate}")
        ledger.notes.append(f"{', '.join(second.names)}: read afterwards, for the rows that pass the first stage")
    late = dict.fromkeys(name for part in parts for name in part.late)
    if late:
        ledger.notes.append(f"{', '.join(late)}: read afterwards, for the rows that pass the filter")
        along = dict.fromkeys(name for part in parts for name in _read_along(part))
        if along:
            ledger.notes.append(f"{', '.join(along)}: read with the filter's columns, which costs less than look-ups")
    if plan.limit is not None:
        ledger.notes.append(f"the scan ends as soon as {plan.limit + plan.skip} rows have passed the filter")
    if options.blob_handling == "all_binary":
        ledger.notes.append("the bytes of blobs are read afterwards, where their descriptions say")


def _read_along(plan: ScanPlan) -> list[str]:
    """Columns that are read for all rows, but not for the filter."""
    if plan.predicate is None:
        return []
    needed = {path[0] for path in plan.predicate.paths}
    return [name for name in plan.early if name not in needed]


# -- one file --------------------------------------------------------------------------------------------------------


def _take_file(
    ledger: Ledger,
    context: ReadContext,
    here: FileColumns,
    rows: IntArray,
    number: int,
    items: Mapping[int, IntArray] = _NO_ITEMS,
    merging: Merging | None = None,
) -> Plan[int]:
    """Rows of one file; its pages are independent. Returns the number of the last round.

    items    by leaf id: only these items of each list are needed
    merging  see `Ledger.add`
    """
    key = here.ref.key
    steps = _page_reads(context, here, rows, items)
    reads, number = yield from _until_data(ledger, context, key, steps, number, merging=merging)
    last = number
    for read in reads or []:
        _, reached = yield from _until_data(ledger, context, key, read, number, merging=merging)
        last = max(last, reached)
    return last


def _page_reads(
    context: ReadContext, here: FileColumns, rows: IntArray, items: Mapping[int, IntArray]
) -> FileSteps[list[Steps[pa.Array]]]:
    """The steps of a take before it reads rows: open the file, load page indexes. Returns the reading of each page."""
    file, tail = yield from open_cached(context, here.ref, here.columns)
    if len(rows) and rows[-1] >= file.num_rows:
        raise FormatError(f"row {int(rows[-1])} wanted; the file has {file.num_rows} rows", path=file.key)
    columns = zip(file.view(here).columns, here.leaf_ids, strict=True)
    pages = [page for column, leaf_id in columns for page in _split_rows(column, rows, items.get(leaf_id))]
    try:
        indexes = yield from serve_from_tail(tail, together([_load_index(context.cache, page) for page in pages]))
    except FormatError as error:
        error.path = file.key
        raise
    return [serve_from_tail(tail, page.read(index)) for page, index in zip(pages, indexes, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class _PageRows:
    """Rows needed of one page; `key` is that of its index in the search cache, `items` those needed of its lists."""

    layout: PageLayout
    key: tuple[Any, ...]
    rows: RowSelection
    where: str
    items: ItemSelection | None

    def read(self, index: PageIndex | None) -> Steps[pa.Array]:
        """The reads of a take."""
        if self.items is None:
            return self.layout.read(index, self.rows)
        return read_items(self.layout, index, self.items)


def _split_rows(column: Column, rows: IntArray, items: IntArray | None) -> list[_PageRows]:
    """The rows by page, reduced to items of lists where pages allow it."""
    cuts = rows.searchsorted(column.row_starts)
    slots = column.path.slots_per_row
    pages = []
    for number, (page, key) in enumerate(zip(column.pages, column.keys, strict=True)):
        relative = rows[cuts[number] : cuts[number + 1]] - column.row_starts[number]
        if len(relative):
            selection = RowSelection.of_rows(relative).scale(slots)
            wanted = None
            if items is not None and reads_items(page):
                wanted = ItemSelection(relative.repeat(len(items)), np.tile(items, len(relative)))
            pages.append(_PageRows(page, key, selection, f"{column.where}, page {number}", wanted))
    return pages


def _load_index(cache: SearchCache, page: _PageRows) -> Steps[PageIndex | None]:
    index: PageIndex | None = cache.get(page.key)
    ranges = page.layout.index_ranges() if index is None else None
    if ranges is None:
        return index
    fetched = yield ranges
    try:
        index = page.layout.load_index(fetched)
    except FormatError as error:
        raise error.within(page.where) from error.__cause__
    cache.put(page.key, index, index.nbytes)
    return index


def _scan_file(
    ledger: Ledger,
    context: ReadContext,
    here: FileColumns,
    at: int,
    span: Span,
    number: int,
    merging: Merging | None = None,
) -> Plan[int]:
    """Physical rows of one file; its pieces are independent. Returns the number of the last round.

    at       number of the span
    span     fragment, first row, end row
    merging  see `Ledger.add`
    """
    key = here.ref.key
    pieces, number = yield from _until_data(
        ledger, context, key, _file_pieces(context, here, span), number, merging=merging
    )
    jobs: list[list[Piece]] = []
    for piece in sorted(pieces or [], key=lambda piece: piece.row_start):
        if jobs and fits_group(
            piece, jobs[-1][0], sum(other.num_bytes for other in jobs[-1]), group_bytes(cpu_count())
        ):
            jobs[-1].append(piece)
        else:
            jobs.append([piece])
    last = number
    for index, job in enumerate(jobs):
        group = (at, index if (merging or ledger.merging).apart else None)
        for piece in job:
            _, reached = yield from _until_data(ledger, context, key, piece.steps(), number, group, merging=merging)
            last = max(last, reached)
    return last


def _file_pieces(context: ReadContext, here: FileColumns, span: Span) -> FileSteps[list[Piece]]:
    _, start, end = span
    if start == end:
        return []
    pieces = yield from file_pieces(context, here, span)
    return [piece for _, piece in pieces]


# -- driving ---------------------------------------------------------------------------------------------------------


def _until_data(
    ledger: Ledger,
    context: ReadContext,
    key: str,
    steps: FileSteps[T],
    number: int,
    group: Hashable = None,
    *,
    merging: Merging | None = None,
    answers_data: bool = False,
) -> Plan[tuple[T | None, int]]:
    """Run a file computation and record its ranges until it ends or requests data.

    number        of the last round before it
    merging       see `Ledger.add`
    answers_data  run it to its end
    Returns its result (None if it was stopped), and the number of its last round.
    """
    try:
        request = next(steps)
        while True:
            answer: Any
            if isinstance(request, Ranges):
                number += 1
                ledger.add(number, key, request, group, merging)
                if request.purpose == "data" and not answers_data:
                    return None, number
                answer = yield from read_bytes(context, key, request)
            elif isinstance(request, Suffix):
                number += 1
                answer = yield ReadFile(context, key, single_request(request))
                start = answer.file_bytes - memoryview(answer.buffer).nbytes
                ledger.add(number, key, Ranges.of((start, answer.file_bytes), purpose="metadata"), group, merging)
            else:
                answer = yield ReadFile(context, key, single_request(request))
            request = steps.send(answer)
    except StopIteration as done:
        return done.value, number
    except (ShortRead, InvalidRange) as error:
        raise truncation_error(key, error) from error
    finally:
        steps.close()


def _watch(ledger: Ledger, plan: Plan[T], number: int = 0, *, files: Merging | None = None) -> Plan[tuple[T, int]]:
    """Run a plan, record the objects that it reads whole, and return the number of its last round.

    files  also record what computations on several files read, merged in this way
    """
    try:
        ask: Request[Any] = next(plan)
        while True:
            try:
                if isinstance(ask, Together):
                    results: list[tuple[Any, int]] = yield Together(
                        [_watch(ledger, each, number, files=files) for each in ask.plans]
                    )
                    number = max((reached for _, reached in results), default=number)
                    answer: Any = [value for value, _ in results]
                elif isinstance(ask, ReadFiles) and files is not None:
                    answer, number = yield from _read_files(ledger, ask, number, files)
                else:
                    answer = yield ask
                    if isinstance(ask, Read):
                        number += 1
                        size = memoryview(answer).nbytes
                        ledger.add(number, ask.key, Ranges.of((0, size), purpose="metadata"))
            except Exception as error:  # the plan handles a failed request
                ask = plan.throw(error)
            else:
                ask = plan.send(answer)
    except StopIteration as finished:
        return finished.value, number
    finally:
        plan.close()


def _read_files(ledger: Ledger, asked: ReadFiles[T], number: int, merging: Merging) -> Plan[tuple[T, int]]:
    """Run independent computations on files to their ends, and record their ranges."""
    steps = asked.steps
    try:
        request = next(steps)
        while True:
            assert isinstance(request, Independent), "plans of scans read files independently"
            parts = [
                _until_data(ledger, asked.context, ref.key, each, number, merging=merging, answers_data=True)
                for ref, each in request.steps
            ]
            results: list[tuple[Any, int]] = yield Together(parts)
            number = max((reached for _, reached in results), default=number)
            request = steps.send([value for value, _ in results])
    except StopIteration as done:
        return done.value, number
    finally:
        steps.close()
