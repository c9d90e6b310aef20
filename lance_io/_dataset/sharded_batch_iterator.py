"""`ShardedBatchIterator` under the module name that pylance gives it."""

from __future__ import annotations

from lance_io.sampler import ShardedBatchIterator

__all__ = ["ShardedBatchIterator"]
