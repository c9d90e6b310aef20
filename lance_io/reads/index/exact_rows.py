"""Exact distances of chosen rows: those that an index proposes, or the few that a filter allows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.index.vector.flat_search import FlatSearch
from lance_io.levels.arrays import distinct, numbers
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.index.partitions import GROUP_BYTES
from lance_io.reads.rows.row_arithmetic import OFFSET_BITS, OFFSET_MASK, group_rows
from lance_io.reads.takes.take_rows import prepare, take_grouped
from lance_io.reads.version.column_lists import Projection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.index.vector.flat_search import SearchTerms
    from lance_io.index.vector.nearest_rows import Scored
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.column_lists import OutputColumn
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray


def nearest_of_rows(
    state: DatasetState, vectors: OutputColumn, terms: SearchTerms, rows: Sequence[Scored]
) -> Plan[list[Scored]]:
    """The nearest of some rows by their exact distances; their vectors are read in one round.

    vectors  the column
    rows     of each query; their distances do not matter
    """
    searches = [
        FlatSearch(replace(terms, queries=terms.queries[number : number + 1])) for number in range(len(terms.queries))
    ]
    addresses = distinct(np.concatenate([each.addresses for each in rows]))
    prepared = prepare(state, Projection((vectors,), None))
    dtype: Any = vectors.field.type
    step = max(1, GROUP_BYTES // max(1, dtype.list_size * dtype.value_type.bit_width // 8))
    for start in range(0, len(addresses), step):
        part: IntArray = addresses[start : start + step]
        grouped = group_rows(state.find_fragment_indexes(part >> OFFSET_BITS), part & OFFSET_MASK)
        table: pa.Table = yield from take_grouped(state, grouped, prepared)
        array = table.column(0).combine_chunks()
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        num_bytes = array.nbytes
        yield Compute(partial(_compare, searches, rows, part, array), lambda num_bytes=num_bytes: num_bytes)  # type: ignore[misc]
    return [search.results()[0] for search in searches]


def _compare(searches: Sequence[FlatSearch], rows: Sequence[Scored], addresses: IntArray, vectors: pa.Array) -> None:
    for search, its in zip(searches, rows, strict=True):
        at = np.searchsorted(addresses, its.addresses)
        here = np.flatnonzero(addresses[np.minimum(at, len(addresses) - 1)] == its.addresses)
        if len(here):
            chosen = its[here]
            search.add(vectors.take(numbers(at[here].astype(np.int64))), chosen.ids, chosen.addresses)
