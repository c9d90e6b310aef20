"""One read of a table by a process that has not opened it, but that has done the same to another; run by `cold_reads`:

    python -m benchmarks.shapes.cold_probe time LIBRARY READ SMALL_READ
    python -m benchmarks.shapes.cold_probe lag lance_io READ SMALL_READ

The small read is done before: it imports and starts what the read needs. `time` gives the seconds of opening and
reading, `lag` the seconds by which a coroutine of the caller's loop was late at most while it was awaited. Prints a
`Sample` as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import Sample
from benchmarks.probe import open_table

if TYPE_CHECKING:
    import pyarrow as pa

TICK_S: Final = 0.001


@dataclass(frozen=True)
class ColdRead:
    """What is asked of a table after opening it.

    row      number of the row that is taken; None: all are read
    columns  None: all
    """

    uri: str
    row: int | None
    columns: list[str] | None

    def ask(self, dataset: Any) -> pa.Table:
        """The answer; of an asynchronous dataset something to await."""
        if self.row is None:
            return dataset.to_table(columns=self.columns)
        return dataset.take([self.row], columns=self.columns)

    def as_text(self) -> str:
        """JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> ColdRead:
        """What `as_text` made."""
        return cls(**json.loads(text))


class Ticker:
    """Sleeps again and again; `longest_s` is by how much it woke up late at most."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            started = time.perf_counter()
            await asyncio.sleep(TICK_S)
            self.longest_s = max(self.longest_s, time.perf_counter() - started - TICK_S)


async def read_beside_a_ticker(read: ColdRead) -> float:
    """Open and read on this loop; gives by how much the ticker was late at most, in seconds."""
    import lance_io

    ticker = Ticker()
    ticking = asyncio.ensure_future(ticker.run())
    await asyncio.sleep(TICK_S)
    dataset = await lance_io.AsyncDataset.open(read.uri)
    table = await read.ask(dataset)
    await asyncio.sleep(2 * TICK_S)  # it shall see the last hold, too
    ticking.cancel()
    del table
    await dataset.aclose()
    return ticker.longest_s


async def longest_lag(read: ColdRead, small_read: ColdRead) -> float:
    """The lag of the second of two reads."""
    await read_beside_a_ticker(small_read)
    gc.collect()
    return await read_beside_a_ticker(read)


def time_of(library: str, read: ColdRead, small_read: ColdRead) -> Sample:
    """The time of the second of two reads."""
    small_read.ask(open_table(library, small_read.uri))
    gc.collect()
    cpu_before = time.process_time()
    started = time.perf_counter()
    answer = read.ask(open_table(library, read.uri))
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_before
    del answer
    return Sample(wall_s, cpu_s)


def measured(what: str, library: str, read: ColdRead, small_read: ColdRead) -> Sample:
    """What the command line asks for."""
    if what == "time":
        return time_of(library, read, small_read)
    return Sample(asyncio.run(longest_lag(read, small_read)), time.process_time())


if __name__ == "__main__":
    reads = [ColdRead.of_text(text) for text in sys.argv[3:]]
    print(json.dumps(asdict(measured(sys.argv[1], sys.argv[2], *reads))))
