"""Counts of what a scan reads of indices, as pylance's statistics of a scan name them.

indices_loaded      segments that were opened, and not found in memory
index_cache_hits    parts of them found in memory: pages of a B-tree, bitmaps of a value, lists of a trigram
index_cache_misses  parts that were read; `parts_loaded` is the same
index_comparisons   values of the pages, bitmaps, lists and zones that were examined
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True, eq=False)
class IndexCounts:
    """See the module."""

    indices_loaded: int = 0
    index_cache_hits: int = 0
    index_cache_misses: int = 0
    index_comparisons: int = 0


_CURRENT: ContextVar[IndexCounts | None] = ContextVar("index counts", default=None)


@contextmanager
def counting_indices(counts: IndexCounts) -> Iterator[None]:
    """Count reads of indices inside the block, in tasks that it starts, too."""
    token = _CURRENT.set(counts)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def record_opened(num_segments: int) -> None:
    """Record segments that were opened."""
    counts = _CURRENT.get()
    if counts is not None:
        counts.indices_loaded += num_segments


def record_parts(num_cached: int, num_read: int) -> None:
    """Record parts of segments."""
    counts = _CURRENT.get()
    if counts is not None:
        counts.index_cache_hits += num_cached
        counts.index_cache_misses += num_read


def record_comparisons(count: int) -> None:
    """Record values that were examined."""
    counts = _CURRENT.get()
    if counts is not None:
        counts.index_comparisons += count
