"""Planning a scan: rows of fragments, early columns, late columns.

Without a filter, `limit` and `offset` select row ranges by arithmetic, and nothing is read in vain. With a filter, its
columns are read first. The others are read with them or, if they are wide, only for the rows that pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UsageError
from lance_io.file.open.leaf_projection import Projection as FileProjection
from lance_io.gil import MANY, yielding
from lance_io.lazy_names import lazy_module
from lance_io.limits import KIB
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import Import
from lance_io.reads.checks.validation import check_unread
from lance_io.reads.rows.deletions_and_ids import load_live, load_live_counts, load_row_columns
from lance_io.reads.rows.row_arithmetic import LiveRows, live_starts
from lance_io.reads.rows.row_columns import RowColumns
from lance_io.reads.scan.late_plan import late_columns, stages
from lance_io.reads.scan.pipeline import ScanPlan, SecondStage, Span
from lance_io.reads.version.column_lists import COMPILER, MOMENT, columns_key, project
from lance_io.reads.version.system_columns import SYSTEM_COLUMNS
from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.filters import Predicate, compiled
    from lance_io.filters.compiled import FilterShape
    from lance_io.filters.syntax import literal_shapes
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan import index_scan as index_scans
    from lance_io.reads.scan.index_scan import ColumnsFor, IndexForm, PlanSpans
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.scan.text import score_columns
    from lance_io.reads.takes import take_rows
    from lance_io.reads.takes.take_rows import PreparedTake
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState
else:
    compiled = lazy_module("lance_io.filters.compiled")  # for filters only
    literal_shapes = lazy_module("lance_io.filters.syntax.literal_shapes")
    index_scans = lazy_plans("lance_io.reads.scan.index_scan")  # for tables with indices only
    score_columns = lazy_module("lance_io.reads.scan.text.score_columns")  # for searches only
    take_rows = lazy_module("lance_io.reads.takes.take_rows")  # for rows that indices name

ANSWER_BYTES_MAX: Final = 128 * KIB  # of a kept plan: larger ones would push out many others


def scan_projection(state: DatasetState, options: ScanOptions) -> Projection:
    """The output columns of a scan; errors as `project`, for a search as `nearest_projection`."""
    if options.full_text_query is not None:
        return score_columns.text_projection(state, options)
    if options.nearest is not None:
        from lance_io.reads.scan.search_columns import nearest_projection  # for searches only

        return nearest_projection(state, options)
    key = ("scan", columns_key(options.columns), options.with_row_id, options.with_row_address, options.blob_handling)
    projection: Projection | None = state.prepared.get(key)
    if projection is None:
        plain = project(
            state.schema,
            options.columns,
            with_row_id=bool(options.with_row_id),
            with_row_address=bool(options.with_row_address),
        )
        projection = state.shown(plain, options.blob_handling)
        state.prepared.put(key, projection)
    return projection


def plan_scan(
    state: DatasetState, options: ScanOptions, projection: Projection | None = None, *, ahead: bool = False
) -> Plan[ScanPlan]:
    """Plan a scan up to its first row; loads deletion vectors and row ids as needed.

    projection  output columns, if they differ from those of the options
    ahead       whether few rows that no index covers may be read meanwhile
    """
    if options.include_deleted_rows and not options.with_row_id:
        raise UsageError("include_deleted_rows is set but with_row_id is false")
    if options.filter is not None and not (state.is_local and options.timeout is None):  # it may run on a loop
        yield Import(COMPILER)
    projection = projection or scan_projection(state, options)
    columns = plan_columns(state, options, projection)
    fragment_indexes = state.scanned_fragment_indexes(options.fragments)
    if uses_indices(state, options, columns):
        indexed = yield from _by_indices(state, options, columns, projection, fragment_indexes, ahead=ahead)
        if indexed is not None:
            return indexed
    first, last = (0, None) if columns.predicate is not None else _row_window(options)
    spans, live = yield from _spans(state, fragment_indexes, first, last, keep_deleted=columns.keep_deleted)
    return (yield from plan_rows(state, (yield from pruned(state, columns, spans, options)), live))


def plan_or_known(state: DatasetState, options: ScanOptions) -> Plan[ScanPlan]:
    """The plan of a scan as `plan_scan` makes it: that of the same scan before, if indices answered it with few rows.

    An open version never changes, and neither do the files of an index, so their answer is the same.
    """
    key = options.plan_key if state.has_index else None
    if key is None:
        return (yield from plan_scan(state, options, ahead=True))
    plan: ScanPlan | None = state.answers.get(key)
    if plan is None:
        plan = yield from _plan_or_alike(state, options, key)
        num_bytes = None if plan.index is None else plan.kept_bytes
        if num_bytes is not None and num_bytes <= ANSWER_BYTES_MAX:
            state.answers.put(key, plan, num_bytes)
    return plan


def _plan_or_alike(state: DatasetState, options: ScanOptions, key: tuple[Any, ...]) -> Plan[ScanPlan]:
    """The plan of a scan; by the form of one before, if only the values of its filter differ and indices answer alone.

    key  of the options
    """
    is_formed = state.is_local and options.timeout is None and options.limit is None and options.offset is None
    shaped = literal_shapes.shape_of(options.filter) if is_formed else None
    if shaped is None:
        return (yield from plan_scan(state, options, ahead=True))
    slot = "form", shaped.shape, key[0], *key[2:]  # without the filter
    known: tuple[FilterShape, IndexForm] | None = state.prepared.get(slot)
    predicate = None if known is None else known[0].fill(shaped.values)
    if known is not None and predicate is not None:
        finish, _ = plan_steps(state, options, known[1].columns.projection)
        alike: ScanPlan | None = yield from index_scans.plan_alike(state, options, known[1], predicate, finish)
        if alike is not None:
            return alike
    plan = yield from plan_scan(state, options, ahead=True)
    if known is None and plan.form is not None and plan.predicate is not None:
        shape = compiled.FilterShape.of(plan.predicate, shaped.values)
        if shape is not None:
            state.prepared.put(slot, (shape, plan.form))
    return plan


def take_named(state: DatasetState, options: ScanOptions, plan: ScanPlan) -> Plan[pa.Table | None]:
    """The rows of a plan by one take, if indices name them all and nothing is left to compute; else None."""
    grouped = plan.named_rows()
    if grouped is None or isinstance(options.columns, dict):
        return None
    key = ("taken", columns_key(options.columns), options.with_row_id, options.with_row_address, options.blob_handling)
    take: PreparedTake | None = state.prepared.get(key)
    if take is None:
        take = take_rows.prepare(state, plan.projection)
        state.prepared.put(key, take)
    return (yield from take_rows.take_grouped(state, grouped, take))


def uses_indices(state: DatasetState, options: ScanOptions, columns: ScanPlan) -> bool:
    """Whether indices may answer the filter of a scan."""
    if columns.predicate is None or not state.has_index or options.hints.get("use_scalar_index") is False:
        return False
    return columns.predicate.is_whole and not columns.keep_deleted


def _by_indices(
    state: DatasetState,
    options: ScanOptions,
    columns: ScanPlan,
    projection: Projection,
    fragment_indexes: Sequence[int],
    *,
    ahead: bool,
) -> Plan[ScanPlan | None]:
    finish, columns_for = plan_steps(state, options, projection)
    return (
        yield from index_scans.plan_indexed(
            state, options, columns, fragment_indexes, columns_for, finish, reads_ahead=ahead
        )
    )


def plan_steps(state: DatasetState, options: ScanOptions, projection: Projection) -> tuple[PlanSpans, ColumnsFor]:
    """The last and the first step of the plan of a scan by indices: see `plan_indexed`."""

    def finish(columns: ScanPlan, spans: tuple[Span, ...], live: dict[int, LiveRows]) -> Plan[ScanPlan]:
        is_whole = columns.chosen is None
        plan = (yield from pruned(state, columns, spans, options)) if is_whole else replace(columns, spans=spans)
        return (yield from plan_rows(state, plan, live))

    def columns_for(predicate: Predicate | None, options: ScanOptions) -> ScanPlan:
        return _columns_with(state, options, projection, predicate)

    return finish, columns_for


def plan_columns(state: DatasetState, options: ScanOptions, projection: Projection) -> ScanPlan:
    """The plan of a scan before it has rows, valid for any fragment.

    projection  output columns
    """
    predicate = None if options.filter is None else bind_filter(state, options.filter)
    return _columns_with(state, options, projection, predicate)


def _columns_with(
    state: DatasetState, options: ScanOptions, projection: Projection, predicate: Predicate | None
) -> ScanPlan:
    paths = {*projection.data_paths}
    if predicate is not None:
        paths |= {path for path in predicate.paths if path[0] not in SYSTEM_COLUMNS}
    late, costs = late_columns(state, projection, predicate, options)
    first, second = _stages(state, predicate, options, paths)
    late_names, late_read = _reads(state, {path for path in paths if path[0] in late})
    behind = {*late, *(() if second is None else second.names)}
    early_names, early_read = _reads(state, {path for path in paths if path[0] not in behind})
    return ScanPlan(
        spans=(),
        live={},
        row_columns=RowColumns(state.fragment_ids, {}),
        projection=projection,
        early=early_names,
        early_read=early_read,
        late=late_names,
        late_read=late_read,
        predicate=predicate,
        first=first,
        second=second,
        skip=0 if predicate is None else options.offset or 0,
        limit=None if predicate is None else options.limit,
        keep_deleted=bool(options.include_deleted_rows),
        late_costs=costs,
    )


def _stages(
    state: DatasetState, predicate: Predicate | None, options: ScanOptions, paths: set[tuple[str, ...]]
) -> tuple[Predicate | None, SecondStage | None]:
    """The two stages of a filter; None for a filter of one stage."""
    chosen = None if predicate is None else stages(state, predicate, options)
    if chosen is None:
        return None, None
    first, second, later, costs = chosen
    names, read = _reads(state, {path for path in paths if path[0] in later})
    assert read is not None, "its columns are stored"
    return first, SecondStage(second, names, read, costs)


def _reads(state: DatasetState, paths: set[tuple[str, ...]]) -> tuple[tuple[str, ...], FileProjection | None]:
    """The top-level columns of these paths, and their stored columns, which cache file lookups of scans."""
    if not paths:
        return (), None
    key = "read", frozenset(paths)
    projection: FileProjection | None = state.prepared.get(key)
    if projection is None:
        fields = state.pruned_fields(paths)
        if not fields:
            return (), None
        projection = FileProjection(fields)
        state.prepared.put(key, projection)
    return tuple(each.name for each in projection.fields), projection.again()


def pruned(state: DatasetState, columns: ScanPlan, spans: tuple[Span, ...], options: ScanOptions) -> Plan[ScanPlan]:
    """The plan with these rows, without those that file statistics exclude.

    columns  from `plan_columns`
    """
    plan = replace(columns, spans=spans)
    if plan.predicate is None or not state.has_batches or options.hints.get("use_stats") is False:
        return plan
    from lance_io.reads.scan.zone_pruning import without_excluded  # for tables of version 0.1 only

    return (yield from without_excluded(state, plan))


def plan_rows(state: DatasetState, columns: ScanPlan, live: dict[int, LiveRows]) -> Plan[ScanPlan]:
    """The complete plan of a scan; loads row ids as needed.

    columns  from `pruned`
    live     live rows, by fragment index, for every fragment that it reads
    """
    predicate = columns.predicate
    system = {*columns.projection.system_names, *(() if predicate is None else predicate.columns)} & {*SYSTEM_COLUMNS}
    row_columns = yield from load_row_columns(state, list(live), system)
    if columns.early_read is None and columns.late_read is None:
        yield from check_unread(state, list(live))
    return replace(columns, live=live, row_columns=row_columns)


def bind_filter(state: DatasetState, filter: Any) -> Predicate:
    """Bind the filter to the schema; compiled texts are cached, but for those that show the current time."""
    if hasattr(filter, "expression"):  # bound before
        return filter  # type: ignore[no-any-return]
    if hasattr(filter, "mask"):
        from lance_io.filters.mask_filter import MaskPredicate

        return MaskPredicate(filter, None if filter.within is None else bind_filter(state, filter.within))
    key = ("filter", filter if isinstance(filter, str) else None)
    predicate: Predicate | None = state.prepared.get(key)
    if predicate is None:
        from lance_io.filters import compile_filter  # loads the parser: only for filters

        predicate = compile_filter(filter, state.stored_schema)
        if isinstance(filter, str) and not MOMENT.search(filter):
            state.prepared.put(key, predicate)
    return predicate


def plan_count(state: DatasetState, options: ScanOptions, *, is_watched: bool = False) -> Plan[int | ScanPlan]:
    """The number of rows of a scan if arithmetic gives it, else the scan whose rows to count.

    is_watched  whether reads of indices are counted, so that an answer of before does not do
    Raises the scan's errors for its columns, and `UsageError` for a scan with a limit or an offset.
    """
    if options.columns is not None:  # reads none, but reports unknown names
        scan_projection(state, options)
    if options.limit is not None or options.offset is not None:
        raise UsageError("Cannot use limit/offset with aggregate. Apply limit to the result instead.")
    if options.filter is not None:
        counted = replace(options, columns=[], order_by=None, blob_handling=None)
        if is_watched:
            return (yield from plan_scan(state, counted, ahead=True))
        return (yield from plan_or_known(state, counted))
    fragment_indexes = state.scanned_fragment_indexes(options.fragments)
    if options.include_deleted_rows:
        return int(state.physical_rows[fragment_indexes].sum())
    counts = yield from load_live_counts(state, fragment_indexes)
    return sum(counts)


def _row_window(options: ScanOptions) -> tuple[int, int | None]:
    first = options.offset or 0
    return first, None if options.limit is None else first + options.limit


def _spans(
    state: DatasetState, fragment_indexes: Sequence[int], first: int, last: int | None, *, keep_deleted: bool
) -> Plan[tuple[tuple[Span, ...], dict[int, LiveRows]]]:
    """Physical ranges of rows `first .. last` of the fragments in the order given."""
    counts: list[int]
    if keep_deleted:
        counts = state.physical_rows[list(fragment_indexes)].tolist()
    else:
        counts = yield from load_live_counts(state, fragment_indexes)
    starts = live_starts(counts)
    total = int(starts[-1])
    end = total if last is None else min(last, total)
    turns = iter if len(fragment_indexes) < MANY else yielding
    touched = [
        (fragment_index, max(first, before) - before, min(end, after) - before)
        for fragment_index, before, after in turns(
            zip(fragment_indexes, starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        )
        if max(first, before) < min(end, after)
    ]
    live = yield from load_live(state, list(dict.fromkeys(fragment_index for fragment_index, _, _ in touched)))
    spans = []
    for fragment_index, begin, stop in turns(touched):
        start, finish = (begin, stop) if keep_deleted else live[fragment_index].span(begin, stop)
        spans.append(Span(fragment_index, start, finish))
    return tuple(spans), live


def explain(state: DatasetState, plan: ScanPlan, options: ScanOptions) -> str:
    """The plan as text, outermost step first."""
    lines: list[str] = []
    if options.order_by:
        keys = ", ".join(
            f"{ordering.column_name} {'asc' if ordering.ascending else 'desc'}" for ordering in options.order_by
        )
        lines.append(f"Sort: [{keys}]")
    parts = plan.parts or (plan,)
    late = [*dict.fromkeys(name for part in parts for name in part.late)]
    if late:
        lines.append(f"ReadLate: projection=[{', '.join(late)}]")
    if plan.predicate is not None and (plan.skip or plan.limit is not None):
        lines.append(f"Limit: skip={plan.skip}, fetch={plan.limit}")
    if plan.second is not None:
        lines.append(f"Filter: {plan.second.predicate}")
        lines.append(f"ReadLate: projection=[{', '.join(plan.second.names)}]")
    if plan.predicate is not None and any(part.predicate is not None for part in parts):
        lines.append(f"Filter: {plan.first or plan.predicate}")
    if plan.num_batches:
        lines.append(f"Statistics: batches={plan.num_batches}, skipped={plan.num_batches_skipped}")
    system = ", ".join(plan.projection.system_names) or "none"
    early = [*dict.fromkeys(name for part in parts for name in part.early)] if plan.parts else plan.early
    num_fragments = len({span.fragment_index for span in plan.spans}) if plan.parts else len(plan.spans)
    lines.append(
        f"LanceRead: uri={hide_secrets(state.location.uri)}, projection=[{', '.join(early)}], "
        f"num_fragments={num_fragments}, num_rows={plan.num_rows}, system_columns={system}"
    )
    if plan.index is not None:
        lines.append(f"ScalarIndexQuery: query={plan.index()}")
    return "".join("  " * depth + line + "\n" for depth, line in enumerate(lines))
