"""The rows of an index for a search of several columns as one: their lengths, and how often they have each word."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lance_io._kernels import DamagedError
from lance_io.errors import FormatError
from lance_io.index.text.combined_fields import FieldRows
from lance_io.index.text.text_partition import POSTINGS, partition_file
from lance_io.plans.cpu_requests import Compute
from lance_io.reads.index.index_files import file_ref
from lance_io.reads.index.text_match import partition_rows
from lance_io.reads.index.text_segments import WITHOUT
from lance_io.reads.version.index_errors import in_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io._kernels import TermPostings
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.row_filter import LiveEntries
    from lance_io.reads.index.text_match import MatchedTokens, OpenedText
    from lance_io.reads.version.state import DatasetState

_ROW_BYTES = 48  # of a document in memory: address, id, length, and places while columns are joined


def field_rows(
    state: DatasetState, opened: OpenedText, matched: MatchedTokens, entries: LiveEntries
) -> Plan[list[FieldRows]]:
    """The rows that count, of each partition. Raises `FormatError` naming index and file."""
    parts: list[FieldRows] = []
    for part, segment in enumerate(opened.segments):
        for number, partition in enumerate(segment.partitions):
            lists = [
                next((matched.postings[key] for key in keys if (key.part, key.partition) == (part, number)), None)
                for keys in matched.keys
            ]
            count = partial(_rows_of, state, opened, (part, number), lists, entries)
            num_bytes = _ROW_BYTES * len(partition.rows)
            try:
                parts.append((yield Compute(count, lambda num_bytes=num_bytes: num_bytes)))  # type: ignore[misc]
            except DamagedError as error:
                ref = file_ref(state, opened.index.parts[part], partition_file(partition.number, POSTINGS))
                raise in_index(FormatError(str(error)), opened.index.name, ref.key, WITHOUT) from error
    return parts


def _rows_of(
    state: DatasetState,
    opened: OpenedText,
    where: tuple[int, int],
    lists: Sequence[TermPostings | None],
    entries: LiveEntries,
) -> FieldRows:
    part, number = where
    partition = opened.segments[part].partitions[number]
    rows = partition_rows(state, opened, where, entries)
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
            at = np.searchsorted(live, docs)
            kept = np.flatnonzero(at < len(live))
            kept = kept[live[at[kept]] == docs[kept]]
            docs, counts = at[kept], counts[kept]
        hits.append((docs, counts))
    addresses = rows.addresses[live]
    ids = partition.rows[live] if entries.row_ids is not None else addresses.view(np.uint64)
    return FieldRows(addresses, ids, partition.lengths[live], hits)
