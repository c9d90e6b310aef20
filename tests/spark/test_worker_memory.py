"""The memory of a worker whose readers take one batch and then wait, as many of them as an executor has slots.

Options are the defaults. `LANCE_IO_SPARK_SLOTS=full` has 128 MiB for each task, on local disk and on S3.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.limits import IO_BUFFER_BYTES, IO_BUFFER_PROCESS_BYTES, MIB
from tests.spark.worker_client import Worker, read_answer, read_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import S3Server

IS_FULL = os.environ.get("LANCE_IO_SPARK_SLOTS") == "full"
SLOTS_MAX: Final = 16 if IS_FULL else 4
SLOTS = (1, 4, SLOTS_MAX) if IS_FULL else (SLOTS_MAX,)
PART_BYTES = 128 * MIB if IS_FULL else 64 * MIB
BATCH_BYTES: Final = 16 * MIB  # the default
LOCAL_MIB = 128, 44  # on local disk: for the process, and for each slot
BASE_MIB = 96  # loaded modules, stacks, the metadata of files
SETTLED: Final = 20  # times that nothing was read since the time before
CASES = [
    *(pytest.param(kind, "local disk") for kind in ("vectors", "texts")),
    *(pytest.param(kind, "S3", marks=pytest.mark.server) for kind in ("vectors", "texts")),
]

pytestmark = pytest.mark.timeout(900)


def batches_of(kind: str) -> Iterator[pa.RecordBatch]:
    """Random rows for all parts, which compress little."""
    random = np.random.default_rng(16)
    piece_bytes = 4 * MIB
    for _ in range(SLOTS_MAX * PART_BYTES // piece_bytes):
        if kind == "vectors":
            values = pa.array(random.random(piece_bytes // 4, dtype=np.float32))
            column: pa.Array = pa.FixedSizeListArray.from_arrays(values, 256)
        else:
            texts = random.integers(32, 127, piece_bytes, dtype=np.uint8)
            offsets = pa.py_buffer(np.arange(0, piece_bytes + 1, 256, dtype=np.int32))
            column = pa.StringArray.from_buffers(piece_bytes // 256, offsets, pa.py_buffer(texts))
        yield pa.record_batch({"v": column})


@pytest.fixture(scope="module")
def table(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str, str], tuple[str, dict[str, str]]]:
    """A function that gives a table and its options."""

    @cache
    def give(kind: str, where: str) -> tuple[str, dict[str, str]]:
        root = str(tmp_path_factory.mktemp("slots"))
        storage: dict[str, str] = {}
        if where == "S3":
            s3: S3Server = request.getfixturevalue("s3")
            root, storage = f"s3://{s3.bucket}/test-spark-slots", s3.options()
        batches = batches_of(kind)
        first = next(batches)
        reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
        uri = f"{root}/{kind}.lance"
        lance_io.write_dataset(reader, uri, mode="overwrite", storage_options=storage or None)
        return uri, {f"storage.{name}": text for name, text in storage.items()}

    return give


def status_mib(worker: Worker, name: str) -> int:
    """A number of `/proc/PID/status`."""
    lines = Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith(f"{name}:"))


def settle(worker: Worker) -> None:
    """Wait until the worker reads nothing more: its readers wait, too."""
    path, before, same = Path(f"/proc/{worker.process.pid}/io"), "", 0
    while same < SETTLED:
        now = path.read_text()
        same, before = (same + 1 if now == before else 0), now
        time.sleep(0.05)


def at_most_mib(slots: int, where: str) -> int:
    """On S3 the buffers of all scans, which share a bound, and for each a piece and batches on their way."""
    if where == "local disk":
        return LOCAL_MIB[0] + slots * LOCAL_MIB[1]
    buffers = min(slots * IO_BUFFER_BYTES, IO_BUFFER_PROCESS_BYTES) // MIB
    return BASE_MIB + buffers + slots * (8 + 3 * BATCH_BYTES // MIB)


@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize(("kind", "where"), CASES if IS_FULL else CASES[:1])
def test_memory_with_slow_readers(
    table: Callable[[str, str], tuple[str, dict[str, str]]],
    kind: str,
    where: str,
    slots: int,
    request: pytest.FixtureRequest,
) -> None:
    uri, options = table(kind, where)
    with Worker.start() as worker, ExitStack() as stack:
        loaded = worker.load(uri, num_partitions=str(SLOTS_MAX), **options)
        planned = worker.plan(loaded)
        taken = []
        for part in planned["parts"][:slots]:
            connected = stack.enter_context(worker.request("read", job=planned["job"], part=part))
            answers = stack.enter_context(connected.makefile("rb"))
            read_answer(answers)
            batches = read_batches(answers)
            assert next(batches).num_rows > 0
            taken.append(batches)
        settle(worker)
        waiting = status_mib(worker, "VmRSS")
        num_rows = sum(batch.num_rows for batches in taken for batch in batches)  # one after the other
        peak = status_mib(worker, "VmHWM")
        assert num_rows > slots * (PART_BYTES - 2 * BATCH_BYTES) // 1024 // (4 if kind == "texts" else 1)
        at_most = at_most_mib(slots, where)
        line = f"{kind}, {where} | {slots} slots, {waiting:,} MiB while all wait | {peak:,} MiB | {at_most:,} MiB"
        request.node.user_properties.append(("measured", line))
        assert peak <= at_most
