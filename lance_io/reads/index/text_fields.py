"""The rows of an index for a search of several columns as one: their lengths, and how often they have each word."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lance_io._kernels import DamagedError
from lance_io.index.text.combined_fields import FieldRows
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.index.text_match import segment_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io._kernels import TermPostings
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.row_filter import LiveEntries
    from lance_io.reads.index.text_match import MatchedTokens
    from lance_io.reads.index.text_segments import OpenedText
    from lance_io.reads.version.state import DatasetState

_ROW_BYTES = 48  # of a document in memory: address, id, length, and places while columns are joined


def field_rows(
    state: DatasetState, opened: OpenedText, matched: MatchedTokens, entries: LiveEntries
) -> Plan[list[FieldRows]]:
    """The rows that count, of each partition. Raises `FormatError` naming index and file."""
    parts: list[FieldRows] = []
    for at, (each, its) in enumerate(zip(opened.partitions, matched.lists, strict=True)):
        by_number = dict(its)
        lists = [by_number.get(number) for number in range(len(matched.terms))]
        count = partial(_rows_of, state, opened, at, lists, entries)
        num_bytes = _ROW_BYTES * len(each.partition.rows)
        try:
            parts.append((yield Compute(count, lambda num_bytes=num_bytes: num_bytes)))  # type: ignore[misc]
        except DamagedError as error:
            raise opened.damage(state, at, error) from error
    return parts


def _rows_of(
    state: DatasetState,
    opened: OpenedText,
    at: int,
    lists: Sequence[TermPostings | None],
    entries: LiveEntries,
) -> FieldRows:
    part, number, partition = opened.partitions[at]
    rows = segment_rows(state, opened, part, entries).partitions[number]
    live = np.arange(len(partition.rows)) if rows.counts is None else np.flatnonzero(rows.counts)
    hits = []
    for postings in lists:
        docs, counts = np.empty(0, np.int64), np.empty(0, np.uint32)
        if postings is not None:
            found_docs, found_counts = postings.documents()
            docs, counts = (
                np.frombuffer(memoryview(found_docs), np.int64),
                np.frombuffer(memoryview(found_counts), np.uint32),
            )
            places = np.searchsorted(live, docs)
            kept = np.flatnonzero(places < len(live))
            kept = kept[live[places[kept]] == docs[kept]]
            docs, counts = places[kept], counts[kept]
        hits.append((docs, counts))
    addresses = rows.addresses[live]
    ids = partition.rows[live] if entries.row_ids is not None else addresses.view(np.uint64)
    return FieldRows(addresses, ids, partition.lengths[live], hits)
