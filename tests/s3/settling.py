"""Waiting for what goes on by itself when its caller has left."""

from __future__ import annotations

import asyncio

from lance_io.io.budget import process_pool

WAITS = 3000  # of 10 ms


async def all_bytes_are_back() -> None:
    """Wait until no scan of this process holds any: one that was cancelled or dropped ends on the engine."""
    pool = process_pool()
    for _ in range(WAITS):
        if pool.avail_bytes == pool.capacity_bytes:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{pool.capacity_bytes - pool.avail_bytes} bytes are still held")
