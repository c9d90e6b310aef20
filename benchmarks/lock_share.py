"""The share of a scan's processor time under the interpreter's lock, in the worker of Spark's JAR.

    python -m benchmarks.lock_share [--rounds 5] [--gb 1]

The system sends the worker a signal whenever it has used so much processor time (a tick of the system, 1 to 10 ms), in
the thread that used it. The handler, in C, counts these signals, and among them those whose thread holds the lock
(`PyGILState_Check`). It is loaded before Python by `LD_PRELOAD`, and counts into a file that this program reads. So
other programs on the machine change nothing, and neither does waiting. Slots read their parts at the same time, as
tasks of an executor do; what a scan takes is that of reading, without the plan.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

import lance_io
from tests.spark.worker_client import HELLO, Worker, read_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static volatile uint64_t *counts;
static int (*holds_lock)(void);

static void count(int number) {
    (void)number;
    __atomic_fetch_add(&counts[0], 1, __ATOMIC_RELAXED);
    if (holds_lock && holds_lock())
        __atomic_fetch_add(&counts[1], 1, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("LOCK_COUNTS");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0)
        return;
    counts = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    holds_lock = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &every, NULL);
}
"""
ROW_BYTES: Final = {"narrow": 36, "vectors": 1040}
SLOTS: Final = (1, 4, 16)


class Counter:
    """A library that counts, and its file."""

    def __init__(self, folder: Path) -> None:
        self.library, self.file = folder / "count.so", folder / "counts"
        (folder / "count.c").write_text(SOURCE)
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self.library), str(folder / "count.c"), "-ldl"]
        subprocess.run(command, check=True)
        self.file.write_bytes(bytes(16))

    def environment(self) -> dict[str, str]:
        """Variables of the process that is counted."""
        return {"LD_PRELOAD": str(self.library), "LOCK_COUNTS": str(self.file)}

    def counted(self) -> tuple[int, int]:
        """Signals so far, and those under the lock."""
        all_signals, locked = struct.unpack("=QQ", self.file.read_bytes())
        return all_signals, locked


def batches_of(kind: str, all_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a table: numbers, a time and a short text, or a vector."""
    random, num_rows = np.random.default_rng(5), 100_000 if kind == "narrow" else 10_000
    for start in range(0, all_rows, num_rows):
        ids = np.arange(start, start + num_rows)
        columns: dict[str, object] = {"id": ids, "score": random.random(num_rows)}
        if kind == "narrow":
            columns["day"] = pa.array((ids % 3000).astype("i4")).cast(pa.date32())
            columns["text"] = pa.array(random.integers(0, 1 << 40, num_rows)).cast(pa.string())
        else:
            values = pa.array(random.random(num_rows * 256, dtype=np.float32))
            columns["vector"] = pa.FixedSizeListArray.from_arrays(values, 256)
        yield pa.record_batch(columns)


def make_table(kind: str, folder: Path, gigabytes: float) -> str:
    """Write a table of four fragments."""
    all_rows = int(gigabytes * 1e9 / ROW_BYTES[kind])
    uri, batches = str(folder / f"{kind}.lance"), batches_of(kind, all_rows)
    first = next(batches)

    def rows() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    reader = pa.RecordBatchReader.from_batches(first.schema, rows())
    lance_io.write_dataset(reader, uri, max_rows_per_file=all_rows // 4 + 1)
    return uri


def read_all(worker: Worker, planned: Mapping[str, object], part: str) -> None:
    """Take the bytes of a part, and nothing of them: the processor time is the worker's."""
    with worker.request("read", job=planned["job"], part=part) as connected, connected.makefile("rb") as answers:
        read_answer(answers)
        while answers.read(1 << 20):
            pass


def measure(worker: Worker, counter: Counter, uri: str, slots: int, filter: str | None) -> tuple[int, int]:
    """Signals of a scan in so many parts at once, and those under the lock."""
    loaded = worker.load(uri, num_partitions=str(slots))
    planned = worker.plan(loaded, filter=filter)
    before = counter.counted()
    threads = [threading.Thread(target=read_all, args=(worker, planned, part)) for part in planned["parts"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = counter.counted()
    return after[0] - before[0], after[1] - before[1]


def main() -> None:
    """Measure, and print a table."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rounds", type=int, default=5)
    given.add_argument("--gb", type=float, default=1.0, help="size of each table")
    rounds, gigabytes = given.parse_args().rounds, given.parse_args().gb
    with tempfile.TemporaryDirectory() as name:
        counter = Counter(Path(name))
        print("| Table | Slots | Signals | Under the lock |\n|---|---|---|---|")
        for kind in ROW_BYTES:
            uri = make_table(kind, Path(name), gigabytes)
            with Worker.start(HELLO, **counter.environment()) as worker:
                for filter in (None, "score < 0.01"):
                    for slots in SLOTS:
                        measure(worker, counter, uri, slots, filter)
                        spent = [measure(worker, counter, uri, slots, filter) for _ in range(rounds)]
                        total, locked = (sum(column) for column in zip(*spent, strict=True))
                        shown = f"{kind}, 1 % of the rows" if filter else kind
                        print(f"| {shown} | {slots} | {total:,} | {locked / total:.2f} |", flush=True)


if __name__ == "__main__":
    main()
