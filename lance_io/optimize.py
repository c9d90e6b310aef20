"""Compaction in steps. Module and names are those of pylance."""

from __future__ import annotations

from lance_io.dataset.optimizer import (
    AsyncCompaction,
    Compaction,
    CompactionMetrics,
    CompactionOptions,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
)

__all__ = [
    "AsyncCompaction",
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
]
