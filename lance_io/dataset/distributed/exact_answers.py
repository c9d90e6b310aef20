"""Counts and extremes that the manifest or indices say exactly, so that no data is read.

An index says the least value of a column if it covers all fragments, and has a row with its least value that was not
deleted. What it cannot say is left to a scan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.dataset.distributed.named_rows import live_named_rows, load_named_rows, pack_rows
from lance_io.filters.compiled import Predicate
from lance_io.filters.expressions.expression_tree import Column, Comparison, Literal
from lance_io.index.details import Kind
from lance_io.index.scalar.bitmap import Bitmap
from lance_io.index.scalar.btree import BTree
from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.rows.deletions_and_ids import load_live, load_live_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.dataset.distributed.named_rows import NamedRows
    from lance_io.index.scalar.key_order import SortedKeys
    from lance_io.plans.plan import Plan
    from lance_io.reads.index import segments as opened_segments
    from lance_io.reads.index import table_indices
    from lance_io.reads.version.state import DatasetState
else:
    opened_segments = lazy_plans("lance_io.reads.index.segments")
    table_indices = lazy_plans("lance_io.reads.index.table_indices")


def exact_count(state: DatasetState, filter: str | None) -> Plan[int | None]:
    """The number of rows that pass a filter; None if data had to be read. Raises `FormatError` for a damaged index."""
    if filter is None:
        return sum((yield from load_live_counts(state, state.all_fragment_indexes)))
    named = yield from load_named_rows(state, filter)
    if named is None or not named.is_exact or not _covers_all(state, named.covered):
        return None
    return (yield from _live_rows(state, named))


def _covers_all(state: DatasetState, covered: frozenset[int]) -> bool:
    return covered.issuperset(state.fragment_ids)


def _live_rows(state: DatasetState, named: NamedRows) -> Plan[int]:
    ids = np.array([*named.runs], np.int64)
    indexes = state.find_fragment_indexes(ids).tolist()
    live = yield from load_live(state, indexes)
    return sum(
        live_named_rows(pack_rows(rows), live[index]) for rows, index in zip(named.runs.values(), indexes, strict=True)
    )


def exact_extreme(state: DatasetState, path: tuple[str, ...], greatest: bool) -> Plan[pa.Scalar | None]:
    """The least or greatest value of a column; see `TableVersion.exact_extreme`."""
    if not state.has_index:
        return None
    known = yield from table_indices.load_table_indices(state)
    for index in known.indices:
        if index.path != path or index.kind not in (Kind.BTREE, Kind.BITMAP) or not _covers_all(state, index.covered):
            continue
        segments = yield from opened_segments.open_segments(state, [(index, part) for part in index.parts])
        value = _extreme([_ends(segment) for segment in segments], greatest)
        if value is None:
            continue
        equal = Predicate(Comparison("=", Column(path), Literal(value)))
        named = yield from load_named_rows(state, equal)
        if named is not None and named.is_exact and (yield from _live_rows(state, named)):
            return value
    return None


def _ends(segment: Any) -> tuple[pa.Scalar, pa.Scalar] | None:
    """The least and greatest value of a segment; None for one of nulls only."""
    least: SortedKeys
    greatest: SortedKeys
    match segment:
        case BTree():
            least, greatest = segment.least, segment.greatest
        case Bitmap():
            least = greatest = segment.keys
        case _:
            return None
    return (least.values[0], greatest.values[-1]) if len(least) and len(greatest) else None


def _extreme(ends: Sequence[tuple[pa.Scalar, pa.Scalar] | None], greatest: bool) -> pa.Scalar | None:
    """The least or greatest value of some segments; None if floats have NaN or zero there, which compare otherwise."""
    known = [pair for pair in ends if pair is not None]
    if not known:
        return None
    values = [(low.as_py(), high.as_py(), low, high) for low, high in known]
    if any(low != low or high != high for low, high, _, _ in values):
        return None
    extreme = max(values, key=lambda pair: pair[1])[3] if greatest else min(values, key=lambda pair: pair[0])[2]
    return None if pa.types.is_floating(extreme.type) and extreme.as_py() == 0 else extreme
