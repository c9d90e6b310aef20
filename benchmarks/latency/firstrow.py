"""A new process up to its first row, with nothing imported before.

    python -m benchmarks.latency.firstrow CONTENDER URI ROW OPTIONS

Prints one line, when the row is there: the processor time of the process until then, in seconds. `imports` only imports
numpy and pyarrow, which every contender needs.
"""

from __future__ import annotations

import sys
import time


def first_row(contender: str, uri: str, row: int, options: str) -> None:
    """Open the table and take the row; imports are part of it."""
    if contender == "imports":
        import numpy
        import pyarrow

        assert numpy.__name__ and pyarrow.__name__
        return
    import json

    if contender == "lancedb":
        _by_lancedb(uri, row, json.loads(options))
        return
    if contender == "lance_io":
        import lance_io

        table = lance_io.dataset(uri, storage_options=json.loads(options)).take([row])
    else:
        import lance

        table = lance.dataset(uri, storage_options=json.loads(options)).take([row])
    assert table.num_rows == 1


def _by_lancedb(uri: str, row: int, options: dict[str, str]) -> None:
    import asyncio

    import lancedb

    async def take() -> None:
        folder, name = uri.rsplit("/", 1)
        database = await lancedb.connect_async(folder, storage_options=options)
        table = await database.open_table(name.removesuffix(".lance"))
        assert (await table.take_offsets([row]).to_arrow()).num_rows == 1

    asyncio.run(take())


if __name__ == "__main__":
    first_row(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    print(time.process_time(), flush=True)
