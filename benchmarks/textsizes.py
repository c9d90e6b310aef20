"""Bytes of texts of nineteen kinds, in few rows and many, and of the rows that an update writes anew.

    kinds/size/KIND/VERSION/ROWS    bytes of the data files of a table of one column
    kinds/size/KIND/VERSION/update  bytes of the data files that an update adds, of every hundredth of a million rows

pylance samples at random what it compresses by, and its files differ by up to three percent from time to time: fifteen
rounds, on the same rows. An update changes a number beside the text, so that both write the texts of its rows again.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow as pa

import lance_io
from benchmarks import writes
from benchmarks.cases import OURS, PYLANCE, Case
from benchmarks.measure import Sample
from benchmarks.textkinds import KINDS, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.measure import Turn
    from benchmarks.tables import Tables
    from benchmarks.writes import FileVersionName

LIBRARIES: Final = (OURS, PYLANCE)
NUM_ROWS: Final = (1_000, 20_000, 1_000_000)
UPDATED_ROWS: Final = 1_000_000
UPDATED_SHARE: Final = 100
ROUNDS: Final = 15
SECONDS: Final = 120.0


def text_size_cases(tables: Tables) -> Iterator[Case]:
    """See the module."""
    for kind in KINDS:
        rows_of = cache(partial(_rows, kind))
        for version in writes.VERSIONS:
            for num_rows in NUM_ROWS:
                make = partial(_written_sizes, tables, rows_of, version, num_rows)
                yield _case(f"{kind}/{version}/{num_rows}", make)
            yield _case(f"{kind}/{version}/update", partial(_updated_sizes, tables, rows_of, version))


def _case(name: str, make: Callable[[], dict[str, Turn]]) -> Case:
    return Case(f"kinds/size/{name}", make, "bytes", writes.SIZE_GOAL, rounds_max=ROUNDS, seconds=SECONDS)


def _rows(kind: str, num_rows: int) -> pa.Table:
    return pa.table({"value": texts(kind, num_rows)})


def _written_sizes(
    tables: Tables, rows_of: Callable[[int], pa.Table], version: FileVersionName, num_rows: int
) -> dict[str, Turn]:
    contenders = {who: write for who, write in writes.writers(version).items() if who in LIBRARIES}
    rows, folder = rows_of(_scaled(tables, num_rows)), tables.new_folder()
    writes.require_same_rows(rows, contenders, folder)

    def turn(who: str, number: int) -> Sample:
        sample, num_bytes = writes.written(contenders[who], rows, folder / f"{who}-{number}")
        return Sample(float(num_bytes), sample.cpu_s)

    return {who: partial(turn, who) for who in LIBRARIES}


def _updated_sizes(tables: Tables, rows_of: Callable[[int], pa.Table], version: FileVersionName) -> dict[str, Turn]:
    """Each round another hundredth of the rows."""
    rows, folder = rows_of(_scaled(tables, UPDATED_ROWS)), tables.new_folder()
    rows = rows.append_column("id", pa.array(np.arange(rows.num_rows)))
    rows = rows.append_column("number", pa.array(np.zeros(rows.num_rows, np.int32)))
    opened: dict[str, Any] = {
        OURS: lance_io.write_dataset(rows, folder / OURS, data_storage_version=version, durability="none"),
        PYLANCE: lance.write_dataset(rows, folder / PYLANCE, data_storage_version=version),
    }

    def turn(who: str, number: int) -> Sample:
        before = _data_bytes(folder / who)
        opened[who].update({"number": "number + 1"}, where=f"id % {UPDATED_SHARE} = {number % UPDATED_SHARE}")
        return Sample(float(_data_bytes(folder / who) - before), 0.0)

    return {who: partial(turn, who) for who in LIBRARIES}


def _scaled(tables: Tables, num_rows: int) -> int:
    return max(UPDATED_SHARE, round(num_rows * tables.scale))


def _data_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.lance"))
