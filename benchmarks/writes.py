"""Writing: how long, how large, how much memory.

    write/COLUMN/VERSION    a table of one column (or `all`, or the vectors) of a million rows, in a new folder; nothing
                            is flushed to the disk, as pylance never does
    write/all/durable       the same with `durability="full"`, our default, against pylance without
    size/COLUMN/VERSION     bytes of the data files of the same tables
    writing/vectors/SIZE    by how much a fresh process grows that writes SIZE of vectors, batch by batch

Parquet is written by pyarrow, compressed as by default (snappy) and with zstd.
"""

from __future__ import annotations

import shutil
import time
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import lance
import pyarrow.parquet as pq

import lance_io
from benchmarks.cases import OURS, PARQUET, PYLANCE, ZSTD, Case, fresh
from benchmarks.measure import Sample
from benchmarks.tables import RECIPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import Tables
    from lance_io.store.api import Durability

    Write = Callable[[pa.Table, Path], object]

FileVersionName: TypeAlias = Literal["0.1", "2.0", "2.1", "2.2"]
VERSIONS: tuple[FileVersionName, ...] = ("2.1", "2.2")
TIME_GOAL, SIZE_GOAL = 1.0, 1 / 1.01
SIZE_ROUNDS = 3  # tables of string compression are sampled: sizes differ a little from time to time
STREAMED_BYTES = 4 << 30
STREAMED_SHARES = {"1/16": 16, "1": 1}  # of `STREAMED_BYTES`


def writers(version: FileVersionName, durability: Durability = "none", group_rows: int = 1024) -> dict[str, Write]:
    """How each contender writes a table into a folder.

    group_rows  rows of a batch of files of version 0.1
    """

    def ours(rows: pa.Table, folder: Path) -> object:
        return lance_io.write_dataset(
            rows, folder, data_storage_version=version, durability=durability, max_rows_per_group=group_rows
        )

    def theirs(rows: pa.Table, folder: Path) -> object:
        return lance.write_dataset(rows, folder, data_storage_version=version, max_rows_per_group=group_rows)

    def parquet(rows: pa.Table, folder: Path, **options: Any) -> None:
        folder.mkdir()
        pq.write_table(rows, folder / "0.parquet", **options)

    return {OURS: ours, PYLANCE: theirs, PARQUET: parquet, ZSTD: partial(parquet, compression="zstd")}


def written(write: Write, rows: pa.Table, folder: Path) -> tuple[Sample, int]:
    """Write once: the time that it took, and the size of the data files in bytes. The folder is gone afterwards."""
    cpu_before = time.process_time()
    started = time.perf_counter()
    write(rows, folder)
    sample = Sample(time.perf_counter() - started, time.process_time() - cpu_before)
    num_bytes = sum(path.stat().st_size for ending in ("lance", "parquet") for path in folder.rglob(f"*.{ending}"))
    shutil.rmtree(folder)
    return sample, num_bytes


def turns(tables: Tables, rows: pa.Table, contenders: Mapping[str, Write], *, sizes: bool = False) -> dict[str, Turn]:
    """Turns that write and take the time, or the size; each contender has written once before."""
    folder = tables.new_folder()

    def turn(who: str, write: Write, number: int) -> Sample:
        sample, num_bytes = written(write, rows, folder / f"{who}-{number}")
        return Sample(float(num_bytes), sample.cpu_s) if sizes else sample

    made: dict[str, Turn] = {who: partial(turn, who, write) for who, write in contenders.items()}
    if not sizes:
        require_same_rows(rows, contenders, folder)
    return made


def require_same_rows(rows: pa.Table, contenders: Mapping[str, Write], folder: Path) -> None:
    """Raise `AssertionError` unless pylance reads from each Lance table what was written."""
    for who in (OURS, PYLANCE):
        contenders[who](rows, folder / who)
        if lance.dataset(folder / who).to_table() != rows:
            raise AssertionError(f"pylance does not read what {who} has written")
        shutil.rmtree(folder / who)


def table_case(
    tables: Tables, name: str, rows: Callable[[], pa.Table], version: FileVersionName, durability: Durability = "none"
) -> Case:
    """The time of a write."""
    amounts: dict[str, float] = {}

    def make() -> dict[str, Turn]:
        table = rows()
        amounts.update(rows=table.num_rows, bytes=table.nbytes)
        return turns(tables, table, writers(version, durability))

    def ours() -> Operation:
        table, folder = rows(), tables.new_folder()
        return lambda number: written(writers(version, durability)[OURS], table, folder / str(number))

    goal = TIME_GOAL if durability == "none" else None
    return Case(f"write/{name}", make, goal=goal, profiled=ours, amounts=amounts)


def size_case(tables: Tables, name: str, rows: Callable[[], pa.Table], version: FileVersionName) -> Case:
    """The size of what was written."""

    def make() -> dict[str, Turn]:
        return turns(tables, rows(), writers(version), sizes=True)

    return Case(f"size/{name}", make, "bytes", SIZE_GOAL, rounds_max=SIZE_ROUNDS)


def streaming_case(tables: Tables, label: str, share: int) -> Case:
    """Memory that a write of any size needs."""

    def make() -> dict[str, Turn]:
        num_bytes = round(STREAMED_BYTES * tables.scale / share)
        return fresh(
            "write", (OURS, PYLANCE, PARQUET), lambda who: f"{tables.new_folder()}:{num_bytes}", is_timed=False
        )

    return Case(f"writing/vectors/{label}", make, "bytes", 1.0, rounds_max=1)


def write_cases(tables: Tables) -> Iterator[Case]:
    """Every case of writing."""

    @cache
    def rows_of(name: str) -> pa.Table:
        return tables.rows(name)

    def one(column: str) -> Callable[[], pa.Table]:
        if column == "vector":
            return lambda: rows_of("vectors")
        return lambda: rows_of("one") if column == "all" else rows_of("one").select([column])

    names = ["all", *RECIPES["one"].columns, "vector"]
    for version in VERSIONS:
        for name in names:
            yield table_case(tables, f"{name}/{version}", one(name), version)
    yield table_case(tables, "all/durable", one("all"), VERSIONS[-1], "full")
    for version in VERSIONS:
        for name in names:
            yield size_case(tables, f"{name}/{version}", one(name), version)
    for label, share in STREAMED_SHARES.items():
        yield streaming_case(tables, label, share)
