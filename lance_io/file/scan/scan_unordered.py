"""Scans on the engine's loop whose spans need no order: the next batch is that of whichever span has one first.

Every span is a scan by itself (`scan_async`), in row order. Some are under way at once, each with a share of what may
be decoded and read ahead; each has at most one batch waiting for the consumer. Where the process holds all that it may,
no further one is begun beside them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from lance_io.file.scan.scan_async import scan

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lance_io.file.open.file_source import ReadContext
    from lance_io.file.open.leaf_projection import Projection
    from lance_io.file.scan.batches import ScanBatch
    from lance_io.file.scan.readahead import Readahead, Span

    Lane = AsyncGenerator[ScanBatch, None]


async def scan_unordered(
    context: ReadContext, projection: Projection, spans: Sequence[Span], batch_rows: int | None, ahead: Readahead
) -> AsyncGenerator[ScanBatch, None]:
    """See `TableReader.scan`, without order."""
    at_once = max(1, min(ahead.spans_on_loop, len(spans)))
    share = replace(context, io_buffer_bytes=-(-context.io_buffer_bytes // at_once))  # 0, for no bound, stays 0
    lane_ahead = replace(ahead, pieces=-(-ahead.pieces // at_once), spans=1)
    waiting = deque(enumerate(spans))
    lanes: list[Lane] = []
    under_way: dict[asyncio.Future[ScanBatch | None], tuple[int, Lane]] = {}

    def proceed(index: int, lane: Lane) -> None:
        under_way[asyncio.ensure_future(anext(lane, None))] = index, lane

    try:
        while waiting or under_way:
            while waiting and len(under_way) < at_once and (not under_way or context.pool.avail_bytes > 0):
                index, span = waiting.popleft()
                lanes.append(scan(share, projection, [span], batch_rows, lane_ahead))
                proceed(index, lanes[-1])
            done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                index, lane = under_way.pop(future)
                batch = future.result()
                if batch is None:
                    lanes.remove(lane)
                else:
                    yield replace(batch, span_index=index)
                    proceed(index, lane)
    finally:
        for future in under_way:
            future.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        for lane in lanes:
            await lane.aclose()
