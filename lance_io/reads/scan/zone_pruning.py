"""Which batches of a table of file version 0.1 a filter may match, by the statistics in its files.

Excluded batches are not read: the spans of a scan shrink to the remaining batches. Files of one fragment need not have
the same batches; a zone here is a run of rows that lies within one batch of each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.file.file_requests import ReadFiles
from lance_io.file.file_steps import FilesSteps, Independent
from lance_io.file.open.batch_statistics import batch_zones
from lance_io.file.open.leaf_projection import Projection
from lance_io.filters.zones import ColumnZones, may_match, zone_columns
from lance_io.levels.arrays import numbers
from lance_io.reads.scan.pipeline import Span
from lance_io.reads.version.column_lists import fields_along
from lance_io.reads.version.system_columns import SYSTEM_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.open.batch_statistics import BatchZones
    from lance_io.filters import Predicate
    from lance_io.filters.zones import Path
    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.pipeline import ScanPlan
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray


def without_excluded(state: DatasetState, plan: ScanPlan) -> Plan[ScanPlan]:
    """The plan without the batches whose statistics exclude a match.

    Reads the statistics of the files, unless the filter can use none. Raises FormatError for damaged statistics.
    """
    predicate = plan.predicate
    leaves = {} if predicate is None else _leaves(state, predicate)
    if predicate is None or not leaves:
        return plan
    projection = Projection(state.pruned_fields(leaves))
    fragment_indexes = list(dict.fromkeys(span.fragment_index for span in plan.spans))
    files = [
        (fragment_index, here)
        for fragment_index in fragment_indexes
        for here in projection.locate(state.sources[fragment_index])
    ]
    read = yield ReadFiles(state.context, _all([(here.ref, batch_zones(state.context, here)) for _, here in files]))
    zones_by_fragment: dict[int, list[BatchZones]] = {}
    for (fragment_index, _), zones in zip(files, read, strict=True):
        if zones is not None:
            zones_by_fragment.setdefault(fragment_index, []).append(zones)
    spans: list[Span] = []
    num_zones = num_skipped = 0
    for span in plan.spans:
        fragment_zones = zones_by_fragment.get(span.fragment_index)
        if not fragment_zones:
            spans.append(span)
            continue
        starts, kept = _kept(predicate, leaves, fragment_zones)
        zones_here = (starts[:-1] < span.end) & (starts[1:] > span.start)
        num_zones += int(zones_here.sum())
        num_skipped += int((zones_here & ~kept).sum())
        spans += _runs(span, starts, zones_here & kept)
    return replace(plan, spans=tuple(spans), num_batches=num_zones, num_batches_skipped=num_skipped)


def _all(steps: Sequence[Any]) -> FilesSteps[list[BatchZones | None]]:
    results: list[BatchZones | None] = yield Independent(steps)
    return results


def _leaves(state: DatasetState, predicate: Predicate) -> dict[Path, int]:
    """Columns that the filter compares with values: field ids by path, for columns that are leaves."""
    ids = {}
    for path in zone_columns(predicate.expression):
        if path[0] not in SYSTEM_COLUMNS and path in predicate.paths:
            field = fields_along(state.schema, path)[-1]
            if field.has_column:
                ids[path] = field.id
    return ids


def _kept(predicate: Predicate, leaves: dict[Path, int], files: list[BatchZones]) -> tuple[IntArray, Any]:
    """Start rows of a fragment's zones, i64[zones + 1], and which of them the filter may match."""
    starts = np.unique(np.concatenate([zones.row_starts for zones in files]))
    columns: dict[Path, ColumnZones] = {}
    for path, field_id in leaves.items():
        for file in files:
            zones = file.columns.get(field_id)
            if zones is not None:
                batches = np.searchsorted(file.row_starts, starts[:-1], side="right") - 1
                at = numbers(batches.astype(np.int64))
                columns[path] = ColumnZones(zones.least.take(at), zones.greatest.take(at))
    return starts, may_match(predicate.expression, columns, len(starts) - 1)


def _runs(span: Span, starts: IntArray, kept: Any) -> list[Span]:
    """The parts of a span in kept zones, neighbours together."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], kept.astype(np.int8), [0]))))
    return [
        Span(span.fragment_index, max(span.start, int(starts[first])), min(span.end, int(starts[end])))
        for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    ]
