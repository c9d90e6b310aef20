"""Compaction in steps, under the module name that pylance gives it."""

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
