"""Small files put together, and old versions removed, on the local disk, nothing flushed on either side.

    compact/encode/FILES    so many small files decoded and encoded into one
    compact/copy/FILES      the same by copying pages
    compact/bytes/FILES     bytes of data that compaction by encoding writes
    cleanup/VERSIONS        so many old versions removed, with their transactions
    delete/1%               rows deleted by a filter, in a table of a hundred files

A turn works on a copy of the table (links to its files) that it has opened before; the time is that of the one call.
Before, both contenders do it once, and must leave the same rows.
"""

from __future__ import annotations

import os
import shutil
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa

import lance_io
from benchmarks.cases import OURS, PYLANCE, Case, WrongAnswerError
from benchmarks.measure import Sample
from benchmarks.tables import seven_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.measure import Operation, Turn
    from benchmarks.tables import Tables

FILES: Final = (100, 1_000)
ROWS_PER_FILE: Final = 1_000
OLD_VERSIONS: Final = 10_000
COMPACT_GOAL, GOAL, BYTES_GOAL = 1.5, 1.0, 1 / 1.01
COPY: Final = {"compaction_mode": "force_binary_copy"}

OPENERS: dict[str, Callable[[Path], Any]] = {
    OURS: lambda path: lance_io.dataset(path, session=lance_io.Session(), storage_options={"durability": "none"}),
    PYLANCE: lambda path: lance.dataset(path, session=lance.Session()),
}


def small_files(tables: Tables, num_files: int) -> Path:
    """A table of so many appends, with numbers and texts."""
    path = tables.new_folder() / "t.lance"
    rng = np.random.default_rng(num_files)
    rows = seven_columns(0, num_files * ROWS_PER_FILE, rng)
    lance.write_dataset(rows, path, max_rows_per_file=ROWS_PER_FILE)
    return path


def old_versions(tables: Tables) -> Path:
    """A table whose configuration was changed very often."""
    path = tables.new_folder() / "t.lance"
    ds = lance_io.write_dataset(pa.table({"a": range(10)}), path, durability="none")
    ds = OPENERS[OURS](path)
    for number in range(round(OLD_VERSIONS * tables.scale) or 1):
        ds.update_config({"number": str(number)})
    return path


def copy_of(path: Path, number: int, who: str) -> Path:
    """Another table over the same files, which only adds and removes names."""
    copy = path.with_name(f"{who}-{number}.lance")
    shutil.copytree(path, copy, copy_function=os.link)
    return copy


def turn(path: Path, who: str, work: Callable[[Any], object], sizes: bool, number: int) -> Sample:
    """One call on a copy of the table; with `sizes` what it has written counts instead of the time."""
    copy = copy_of(path, number, who)
    before = {file.name for file in (copy / "data").iterdir()}
    ds = OPENERS[who](copy)
    cpu_before = time.process_time()
    started = time.perf_counter()
    work(ds)
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_before
    written = sum(file.stat().st_size for file in (copy / "data").iterdir() if file.name not in before)
    shutil.rmtree(copy)
    return Sample(float(written) if sizes else wall_s, cpu_s)


def check(path: Path, work: Callable[[Any], object]) -> None:
    """Both do it once, and leave the same rows."""
    left = []
    for who, opened in OPENERS.items():
        copy = copy_of(path, -2, who)
        work(opened(copy))
        left.append(lance.dataset(copy).to_table())
        shutil.rmtree(copy)
    if not left[0].equals(left[1]):
        raise WrongAnswerError(f"lance_io and pylance leave other rows in {path}")


def case(
    name: str,
    make_table: Callable[[], Path],
    work: Callable[[Any], object],
    goal: float,
    *,
    sizes: bool = False,
    rounds_max: int | None = None,
) -> Case:
    """One call of both, on copies of the table."""

    def make() -> dict[str, Turn]:
        path = make_table()
        check(path, work)
        return {who: partial(turn, path, who, work, sizes) for who in OPENERS}

    def ours() -> Operation:
        path = make_table()
        return lambda number: turn(path, OURS, work, False, number)

    return Case(name, make, "bytes" if sizes else "s", goal=goal, rounds_max=rounds_max, profiled=ours)


def compact(ds: Any, **options: Any) -> None:
    """All fragments into one."""
    ds.optimize.compact_files(**options)


def clean_up(ds: Any) -> None:
    """All versions but the newest."""
    ds.cleanup_old_versions(older_than=timedelta(0))


def delete(ds: Any) -> None:
    """Every hundredth row."""
    ds.delete("id % 100 = 7")


def compaction_cases(tables: Tables) -> Iterator[Case]:
    """Every case."""
    for num_files in FILES:
        table = partial(small_files, tables, num_files)
        yield case(f"compact/encode/{num_files}", table, compact, COMPACT_GOAL)
        yield case(f"compact/copy/{num_files}", table, partial(compact, **COPY), COMPACT_GOAL)
        yield case(f"compact/bytes/{num_files}", table, compact, BYTES_GOAL, sizes=True, rounds_max=1)
    yield case(f"cleanup/{OLD_VERSIONS}", partial(old_versions, tables), clean_up, GOAL, rounds_max=3)
    yield case("delete/1%", partial(small_files, tables, FILES[0]), delete, GOAL)
