"""A process of writers: told by its argument what to do, it says on its standard output what came of it.

    {"uri", "options", "kind": "ours" | "pylance", "first", "writers", "appends", "deletes", "compactions"}

Writer w appends the rows first + w * appends + 0, 1, ... one by one; `deletes` names rows to be deleted one by one.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def row(number: int) -> pa.Table:
    """A table of one row."""
    return pa.table({"a": pa.array([number], pa.int64())})


def run_all(tasks: Sequence[dict[str, Any]]) -> None:
    """Run a process for each task at once. Raises `AssertionError` with the errors of any; none outlives the call."""
    with ExitStack() as stack:
        processes = []
        for task in tasks:
            command = [sys.executable, "-m", "tests.simulate.writers", json.dumps(task)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        for process in processes:
            said, complaints = process.communicate()
            assert process.returncode == 0, complaints
            assert json.loads(said.splitlines()[-1]) == [], said


async def ours(task: dict[str, Any]) -> list[str]:
    """Writers of this library, all on one loop; gives their errors."""
    from lance_io.dataset.lance_dataset import AsyncDataset
    from lance_io.reads.version.session import Session

    uri, options, session = task["uri"], task["options"], Session()

    async def append(writer: int) -> None:
        for number in range(task["appends"]):
            wanted = task["first"] + writer * task["appends"] + number
            await AsyncDataset.write(row(wanted), uri, mode="append", storage_options=options, session=session)

    async def delete() -> None:
        for number in task["deletes"]:
            table = await AsyncDataset.open(uri, storage_options=options, session=session)
            result = await table.delete(f"a = {number}", conflict_retries=100, retry_timeout=timedelta(hours=1))
            if result != {"num_deleted_rows": 1}:
                raise AssertionError(f"row {number}: {result}")

    done = await asyncio.gather(delete(), *map(append, range(task["writers"])), return_exceptions=True)
    return [repr(error) for error in done if error is not None]


def pylance(task: dict[str, Any]) -> list[str]:
    """Writers of pylance in threads, and one that compacts; gives their errors."""
    import lance

    # with its three tries, one of very many requests through a proxy that spoils some is spoiled each time
    uri, options = task["uri"], {**task["options"], "client_max_retries": "20"}

    def append(writer: int) -> None:
        for number in range(task["appends"]):
            wanted = row(task["first"] + writer * task["appends"] + number)
            until_it_goes(
                lambda wanted=wanted: lance.write_dataset(wanted, uri, mode="append", storage_options=options)
            )

    def compact() -> None:
        for _ in range(task["compactions"]):
            until_it_goes(lambda: lance.dataset(uri, storage_options=options).optimize.compact_files())

    with ThreadPoolExecutor(task["writers"] + 1) as threads:
        works = [threads.submit(compact), *(threads.submit(append, writer) for writer in range(task["writers"]))]
    return [repr(work.exception()) for work in works if work.exception() is not None]


def until_it_goes(work: Callable[[], Any]) -> None:
    """pylance gives up a contended commit after some attempts, and a compaction when rows of its were deleted."""
    for attempt in range(100):
        try:
            work()
            return
        except OSError as error:
            if attempt == 99 or not any(each in str(error) for each in ("onflict", "contention", "concurrent writers")):
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    work = json.loads(sys.argv[1])
    errors = asyncio.run(ours(work)) if work["kind"] == "ours" else pylance(work)
    print(json.dumps(errors))
