"""Range checks that the memory and local stores share, and the cost of a merged read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.store.failures import InvalidRange, ShortRead

if TYPE_CHECKING:
    from lance_io.spans import IntArray, Ranges

LINE_BYTES: Final = 64  # padding for aligning each object in a shared buffer


def check_range(key: str, start: int, end: int, size_bytes: int) -> None:
    """Raise `InvalidRange` or `ShortRead` unless the range is in the object of `size_bytes` (empty ones pass)."""
    if start < 0 or end < start:
        raise InvalidRange(f"{start}-{end} is no byte range", path=key)
    if start == end or end <= size_bytes:
        return
    if start >= size_bytes:
        raise InvalidRange(f"range {start}-{end} starts after the end of the object of {size_bytes} bytes", path=key)
    raise ShortRead(f"the object of {size_bytes} bytes ends inside the range {start}-{end}", path=key)


def check_ranges(key: str, starts: IntArray, ends: IntArray, size_bytes: int) -> None:
    """`check_range` for arrays; the error names the first range that is wrong."""
    wrong = (starts < 0) | (ends < starts) | ((ends > size_bytes) & (ends > starts))
    if wrong.any():
        first = int(np.argmax(wrong))
        check_range(key, int(starts[first]), int(ends[first]), size_bytes)


def merge_cost(starts: IntArray, ends: IntArray, gap_bytes: int) -> tuple[int, int]:
    """(reads, bytes) of reading these ranges from a store that merges ranges closer than `gap_bytes`."""
    some = ends > starts
    if not some.any():
        return 0, 0
    order = np.argsort(starts[some], kind="stable")
    lows, highs = starts[some][order], np.maximum.accumulate(ends[some][order])
    first = np.flatnonzero(np.concatenate(([True], lows[1:] - highs[:-1] > gap_bytes)))
    last = np.concatenate((first[1:] - 1, [len(lows) - 1]))
    return len(first), int((highs[last] - lows[first]).sum())


def joined_bytes_max(ranges: Ranges, num_objects: int, gap_bytes: int) -> int:
    """Upper bound for the memory of reading ranges of several objects into one buffer."""
    return ranges.num_bytes + gap_bytes * len(ranges) + LINE_BYTES * num_objects
