"""Counts and extremes that the manifest or indices say exactly, so that no data is read.

They may read files of indices and deletion files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.dataset.distributed.named_rows import live_named_rows, load_named_rows, pack_rows
from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.rows.deletions_and_ids import load_live, load_live_counts

if TYPE_CHECKING:
    from lance_io.dataset.distributed.named_rows import NamedRows
    from lance_io.plans.plan import Plan
    from lance_io.reads.index import extremes
    from lance_io.reads.version.state import DatasetState
else:
    extremes = lazy_plans("lance_io.reads.index.extremes")


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


def exact_extremes(state: DatasetState, path: tuple[str, ...]) -> Plan[tuple[Any, Any] | None]:
    """The least and the greatest value of a column; see `TableVersion.exact_extremes`."""
    if not state.has_index:
        return None
    known = yield from extremes.column_extremes(state, path)
    return None if known is None else (known.least, known.greatest)
