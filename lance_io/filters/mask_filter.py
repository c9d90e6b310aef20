"""Filters computed outside of this package: a scan requests a mask for each batch, and reads other columns late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lance_io.filters.compiled import Predicate
from lance_io.filters.expressions.expression_tree import Literal

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, eq=False)
class MaskFilter:
    """A filter that another engine computes.

    names   top-level columns that it reads, whose values are stored as they are shown
    mask    true for the rows to keep, without nulls, given a batch of these columns; any thread may call it
    within  a user's filter that rows pass first; None for none
    """

    names: tuple[str, ...]
    mask: Callable[[pa.RecordBatch], pa.BooleanArray]
    within: Any = None


class MaskPredicate(Predicate):
    """A `MaskFilter` whose inner filter was checked against a schema."""

    __slots__ = ("_filter", "_within")
    is_whole = False

    def __init__(self, filter: MaskFilter, within: Predicate | None) -> None:
        super().__init__(Literal(pa.scalar(True)) if within is None else within.expression)
        self._filter = filter
        self._within = within
        paths = [(name,) for name in filter.names]
        self.paths = tuple(dict.fromkeys([*self.paths, *paths]))
        self.columns = tuple(dict.fromkeys([*self.columns, *filter.names]))
        self.cannot_fail = False

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """See `Predicate`; rows that the inner filter drops are skipped."""
        columns = batch.select(list(self._filter.names))
        if self._within is None:
            return self._filter.mask(columns)
        kept = self._within.mask(batch)
        if kept.true_count == len(kept):
            return self._filter.mask(columns)
        return pc.replace_with_mask(kept, kept, self._filter.mask(columns.filter(kept)))
