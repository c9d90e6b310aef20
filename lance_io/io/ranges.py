"""Which few reads serve many ranges, and where each range then lies. Pure arithmetic, whole batches at a time.

Three steps from wanted ranges to answers, for any number of requests on one file that were asked for together:

    plan_reads   all ranges of all requests -> reads: ascending, disjoint, ranges with small gaps share one
    lay_out      reads -> segments: the part of a read that one request needs, and its place in the answer
    (scheduler)  each read that comes in is cut into its segments; a request with one segment gets a view of the
                 read's buffer without a copy, one with several gets a buffer of its own, filled piece by piece

A segment spans everything from the first to the last byte that its request wants in that read, so a range that runs
over the border of two reads lies unbroken in the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lance_io import _kernels
from lance_io.errors import FormatError

if TYPE_CHECKING:
    from lance_io._kernels import Buffer
    from lance_io.spans import IntArray, Ranges


@dataclass(frozen=True, slots=True, eq=False)
class ReadPlan:
    """Reads that cover a list of ranges.

    starts, ends   i64[num_reads], ascending, disjoint, none empty
    firsts, lasts  i64[num_ranges], the reads that range i begins and ends in; an empty range has -1 and -2
    """

    starts: IntArray
    ends: IntArray
    firsts: IntArray
    lasts: IntArray

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How the reads of a plan are cut up among the requests that caused them.

    owners, reads  i64[num_segments], ascending by (owner, read): which request needs a part of which read
    starts, ends   i64[num_segments], that part, as offsets in the file
    places         i64[num_segments], where it goes in the answer of its owner
    sizes          i64[num_owners], length of the answers
    offsets        i64[num_ranges], where range i starts in the answer of its owner; 0 if it is empty
    """

    owners: IntArray
    reads: IntArray
    starts: IntArray
    ends: IntArray
    places: IntArray
    sizes: IntArray
    offsets: IntArray


def check_ranges(wanted: Ranges, size_bytes: int | None, path: str) -> int:
    """The sum of the lengths; `FormatError` unless every range has `0 <= start <= end <= size_bytes` (None: any)."""
    starts, ends = wanted.starts, wanted.ends
    if len(starts) != len(ends):
        raise ValueError(f"{len(starts)} starts do not go with {len(ends)} ends")
    if not len(starts):
        return 0
    if len(starts) == 1:  # the commonest case, without a numpy call
        start, end = int(starts[0]), int(ends[0])
        if 0 <= start <= end and (size_bytes is None or end <= size_bytes):
            return end - start
    lengths = ends - starts
    if starts.min() < 0 or lengths.min() < 0:
        bad = int(np.argmax((starts < 0) | (lengths < 0)))
        raise FormatError(
            f"expected a range of bytes, found {starts[bad]} to {ends[bad]}; the file is damaged", path=path
        )
    if size_bytes is not None and ends.max() > size_bytes:
        bad = int(np.argmax(ends > size_bytes))
        raise FormatError(
            f"expected bytes {starts[bad]} to {ends[bad]}, but the file has {size_bytes}; it is damaged or cut short",
            path=path,
        )
    return int(lengths.sum())


def plan_reads(starts: IntArray, ends: IntArray, gap_bytes_max: int, read_bytes_max: int) -> ReadPlan:
    """Few reads for many ranges, which may come in any order, overlap, repeat and be empty.

    starts, ends    i64[num_ranges], `0 <= start <= end`
    gap_bytes_max   ranges no further apart than this share a read
    read_bytes_max  a read does not grow beyond this by merging, and a longer range is cut
    """
    planned = _kernels.plan_reads(starts, ends, gap_bytes_max, read_bytes_max)
    read_starts, read_ends, firsts = (_int64(part) for part in planned)
    lasts = np.searchsorted(read_starts, ends) - 1  # the last read that starts before the range ends
    return ReadPlan(read_starts, read_ends, firsts, np.where(firsts < 0, -2, lasts))


def lay_out(plan: ReadPlan, starts: IntArray, ends: IntArray, owners: IntArray, num_owners: int) -> Layout:
    """Cut the reads of a plan up among requests.

    starts, ends  i64[num_ranges], the ranges that the plan was made for
    owners        i64[num_ranges], ascending, `< num_owners`: which request each belongs to
    """
    counts = plan.lasts - plan.firsts + 1  # reads that each range touches: 0 for an empty one, rarely more than 1
    begins = np.cumsum(counts) - counts
    ranges = np.repeat(np.arange(len(starts)), counts)
    reads = plan.firsts[ranges] + np.arange(len(ranges)) - begins[ranges]
    part_starts = np.maximum(starts[ranges], plan.starts[reads])
    part_ends = np.minimum(ends[ranges], plan.ends[reads])

    # parts of one owner in one read make one segment
    keys = owners[ranges] * max(1, len(plan)) + reads
    order = np.argsort(keys, kind="stable")
    is_first = np.ones(len(keys), dtype=bool)
    is_first[1:] = np.diff(keys[order]) != 0
    heads = np.flatnonzero(is_first)
    segment_starts = _reduce(np.minimum, part_starts[order], heads)
    segment_ends = _reduce(np.maximum, part_ends[order], heads)
    segment_owners = owners[ranges][order][heads]

    # segments of one owner lie back to back
    lengths = segment_ends - segment_starts
    sizes = np.zeros(num_owners, dtype=np.int64)
    np.add.at(sizes, segment_owners, lengths)
    owner_begins = np.cumsum(sizes) - sizes
    places = np.cumsum(lengths) - lengths - owner_begins[segment_owners]

    segment_of_part = np.empty(len(keys), dtype=np.int64)
    segment_of_part[order] = np.cumsum(is_first) - 1
    offsets = np.zeros(len(starts), dtype=np.int64)
    full = np.flatnonzero(counts)
    first_segments = segment_of_part[begins[full]]
    offsets[full] = places[first_segments] + starts[full] - segment_starts[first_segments]
    return Layout(segment_owners, reads[order][heads], segment_starts, segment_ends, places, sizes, offsets)


def _int64(buffer: Buffer) -> IntArray:
    return np.frombuffer(buffer, dtype=np.int64)


def _reduce(function: np.ufunc, values: IntArray, heads: IntArray) -> IntArray:
    """`function.reduceat`, which does not take an empty list of groups."""
    if not len(heads):
        return values
    reduced: IntArray = function.reduceat(values, heads)
    return reduced
