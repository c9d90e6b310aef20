"""The same questions asked of a bucket: how many requests, in how many rounds, how many bytes, how long.

    eval "$(python -m servers minio --background)"
    python -m benchmarks.run --s3 "$AWS_ENDPOINT_URL" --latency 0.03

Credentials come from the usual variables (`AWS_ACCESS_KEY_ID` ...), the bucket from `--bucket`. The table is copied
into the bucket when it is not there. Both libraries go through a relay that counts for them (`benchmarks.relay`).
pylance limits its own rate of requests; that limit is lifted as far as its variables allow, or nothing else would be
measured. The first opening of a process is not counted: it imports the clients and the parser of filters.

After the questions about one and the same table, each library writes a table of its own (`own`), and is asked about it:
requests and rounds of creating, cold takes, appending, deleting. A round is a request, or several at once, that waits
for the answer to those before; count them with a `--latency` of 0.02 and more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import lance
import minio
import numpy as np
from rich import box
from rich.table import Table

import lance_io
from benchmarks.cases import OURS, PYLANCE, ROOT

if TYPE_CHECKING:
    import pyarrow as pa

    from benchmarks.tables import BenchTable, Tables

UNLIMITED = {
    "LANCE_AIMD_INITIAL_RATE": "50000",
    "LANCE_AIMD_MAX_RATE": "50000",
    "LANCE_AIMD_BURST_CAPACITY": "5000",
}
TAKES = (1, 100, 1_000)
FEW_ROWS = 100  # that are appended


@dataclass(frozen=True)
class Cost:
    """Of one operation of one library: medians over the rounds; bytes are those on the wire, heads included."""

    case: str
    library: str
    requests: int
    rounds: int
    bytes: int
    seconds: float


class Meter:
    """A running relay: where to connect, and what went through it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"

    def take_counts(self) -> dict[str, int]:
        """Requests, bytes and connections since the last call."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        counts: dict[str, int] = json.loads(self._process.stdout.readline())
        return counts


@contextmanager
def metered(endpoint: str, latency_s: float) -> Iterator[Meter]:
    """A relay in front of `endpoint` for the time of the block."""
    parts = urlsplit(endpoint)
    command = [sys.executable, "-m", "benchmarks.relay", parts.hostname or "", str(parts.port or 80), str(latency_s)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Meter(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def storage_options(endpoint: str) -> dict[str, str]:
    """For both libraries, with the credentials of the environment."""
    return {
        "aws_endpoint": endpoint,
        "allow_http": "true",
        "aws_region": os.environ.get("AWS_REGION", "us-east-1"),
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }


def client_of(endpoint: str) -> minio.Minio:
    """A client that belongs to neither library."""
    return minio.Minio(
        urlsplit(endpoint).netloc,
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        secure=False,
    )


def emptied(endpoint: str, bucket: str, uri: str) -> None:
    """Remove a table from the bucket."""
    client = client_of(endpoint)
    for item in client.list_objects(bucket, prefix=uri.removeprefix(f"s3://{bucket}/") + "/", recursive=True):
        client.remove_object(bucket, str(item.object_name))


def uploaded(table: BenchTable, endpoint: str, bucket: str) -> str:
    """The URI of `table` in the bucket; copies the files that are not there, the newest manifest last."""
    client = client_of(endpoint)
    folder = Path(table.lance_uri)
    prefix = f"bench/{folder.parent.name}"
    present = {item.object_name for item in client.list_objects(bucket, prefix=f"{prefix}/", recursive=True)}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in sorted(files, key=lambda path: "_versions" in path.parts):
        key = f"{prefix}/{path.relative_to(folder).as_posix()}"
        if key not in present:
            client.fput_object(bucket, key, str(path))
    return f"s3://{bucket}/{prefix}"


# -- what is asked ----------------------------------------------------------------------------------------------------

Open = Callable[[], Any]
Steps = Iterator[tuple[str, Callable[[], Any]]]
Counted = tuple[int, int, int, float]  # requests, rounds, bytes, seconds


def openers(uri: str, options: dict[str, str]) -> dict[str, Open]:
    """How each library opens the table with nothing known."""
    return {
        OURS: lambda: lance_io.dataset(uri, storage_options=options, session=lance_io.Session()),
        PYLANCE: lambda: lance.dataset(uri, storage_options=options),
    }


def steps(opener: Open, num_rows: int, seed: int) -> Steps:
    """The operations of a round, in order: each is yielded with its name, and run before the next is asked for."""
    rng = np.random.default_rng(seed)
    opened: list[Any] = []

    def rows(number: int) -> list[int]:
        return [int(row) for row in rng.integers(0, num_rows, number)]

    yield "open", lambda: opened.append(opener())
    yield "count_rows", lambda: opened[0].count_rows()
    for number in (1, 100):
        picks = rows(number)
        yield f"open, take {number}", lambda picks=picks: opener().take(picks)  # type: ignore[misc]
    warm = opened[0]
    warm.take(np.linspace(0, num_rows - 1, 200, dtype=np.int64).tolist())
    for number in TAKES:
        picks = rows(number)
        yield f"warm take {number}", lambda picks=picks: warm.take(picks)  # type: ignore[misc]
    yield "scan all", lambda: [None for _ in opener().to_batches()]
    yield "scan id", lambda: opener().to_table(columns=["id"])


def own_steps(library: str, opener: Open, uri: str, options: dict[str, str], rows: pa.Table, seed: int) -> Steps:
    """The same about a table that the library writes itself, at a place where there is none."""
    write: Any = partial((lance_io if library == OURS else lance).write_dataset, storage_options=options)
    few = rows.slice(0, FEW_ROWS)
    rng = np.random.default_rng(seed)
    yield "own: create", lambda: write(rows, uri)
    for number in (1, 100):
        picks = [int(row) for row in rng.integers(0, rows.num_rows, number)]
        yield f"own: open, take {number}", lambda picks=picks: opener().take(picks)  # type: ignore[misc]
    yield "own: append", lambda: write(few, uri, mode="append")
    held = opener()
    yield "own: append, open", lambda: write(few, held, mode="append")
    yield "own: open, delete", lambda: opener().delete(f"id = {seed}")
    yield "own: overwrite", lambda: write(few, uri, mode="overwrite", data_storage_version="2.2")


def costs(tables: Tables, endpoint: str, bucket: str, latency_s: float, rounds: int) -> list[Cost]:
    """Ask both libraries in turns; returns the medians."""
    os.environ.update(UNLIMITED)
    table, rows = tables("five"), tables.rows("one")
    uri = uploaded(table, endpoint, bucket)
    found: dict[tuple[str, str], list[Counted]] = {}
    with metered(endpoint, latency_s) as meter:
        options = storage_options(meter.endpoint)
        contenders = openers(uri, options)
        for opener in contenders.values():
            opener().to_table(columns=["id"], filter="id = 0", limit=1)
        for number in range(rounds):
            for library in list(contenders)[:: 1 if number % 2 == 0 else -1]:
                own_uri = f"s3://{bucket}/bench/own/{uuid4().hex}"
                own = own_steps(library, openers(own_uri, options)[library], own_uri, options, rows, number)
                for case, operation in chain(steps(contenders[library], table.num_rows, number), own):
                    found.setdefault((case, library), []).append(counted(meter, operation))
                emptied(endpoint, bucket, own_uri)
    return [middle(case, library, turns) for (case, library), turns in found.items()]


def counted(meter: Meter, operation: Callable[[], Any]) -> Counted:
    """Do it, and say what it took."""
    meter.take_counts()
    started = time.perf_counter()
    operation()
    seconds = time.perf_counter() - started
    counts = meter.take_counts()
    return counts["requests"], counts["rounds"], counts["bytes"], seconds


def middle(case: str, library: str, turns: list[Counted]) -> Cost:
    """The medians."""
    requests, rounds, size_bytes, seconds = (median(column) for column in zip(*turns, strict=True))
    return Cost(case, library, round(requests), round(rounds), round(size_bytes), seconds)


def as_table(found: list[Cost], latency_s: float) -> Table:
    """Requests, bytes and times of both, side by side."""
    grid = Table(
        title="From a bucket",
        caption=f"{latency_s * 1e3:g} ms added to each request. Counted on the wire, by a relay.",
        box=box.SIMPLE_HEAD,
    )
    grid.add_column("operation")
    for heading in ("requests", "pylance", "rounds", "pylance", "MB", "pylance", "ms", "pylance", "pylance / ours"):
        grid.add_column(heading, justify="right")
    by_case = {(cost.case, cost.library): cost for cost in found}
    for case in dict.fromkeys(cost.case for cost in found):
        ours, peer = by_case[case, OURS], by_case[case, PYLANCE]
        grid.add_row(
            case,
            *(f"{cost.requests:,}" for cost in (ours, peer)),
            *(f"{cost.rounds:,}" for cost in (ours, peer)),
            *(f"{cost.bytes / 1e6:,.2f}" for cost in (ours, peer)),
            *(f"{cost.seconds * 1e3:,.1f}" for cost in (ours, peer)),
            f"{peer.seconds / max(ours.seconds, 1e-9):.2f}x",
        )
    return grid


def save(found: list[Cost], latency_s: float, path: Path) -> None:
    """Write as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"latency_s": latency_s, "costs": [asdict(cost) for cost in found]}, indent=1) + "\n")
