"""Tables of unusual shapes, written by pylance once and kept with the others (`benchmarks.tables`).

    name        files   rows of each   columns
    wide            3            100   5,000: int64, double, string in turns
    FILESxROWS   as the name says      int64 `id` that ascends, string `text`, double `double`

They are of the newest file version, but for those whose names say another one, `1000x100_0.1`. The scale of a run
multiplies files and columns, not the rows of a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lance
import numpy as np
import pyarrow as pa

from benchmarks.commits import small_rows
from benchmarks.tables import BenchTable, read_through, written_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.tables import Tables
    from benchmarks.writes import FileVersionName

NEWEST: Final[FileVersionName] = "2.2"
VERSIONS: Final[tuple[FileVersionName, ...]] = (NEWEST, "2.1", "2.0", "0.1")
GENERATION: Final = 1  # counts changes of the content, so that an old cache is not mistaken for the new one
NUM_WIDE_COLUMNS: Final = 5_000
COLUMNS_MIN: Final = 12  # of a wide table at any scale
SMALL_FILES: Final = 3


def wide_rows(numbers: Sequence[int], num_rows: int) -> pa.Table:
    """Columns of these numbers, of three kinds in turns."""
    made: dict[str, pa.Array] = {}
    rows = range(num_rows)
    for number in numbers:
        kind = number % 3
        if kind == 0:
            made[f"c{number}"] = pa.array(np.arange(num_rows) + number)
        elif kind == 1:
            made[f"c{number}"] = pa.array(np.arange(num_rows) / (number + 1))
        else:
            made[f"c{number}"] = pa.array([f"{number} of row {row}" for row in rows])
    return pa.table(made)


def spread_columns(columns: Sequence[str], count: int) -> list[str]:
    """So many of the columns, none at an end."""
    return [columns[len(columns) * (2 * number + 1) // (2 * count)] for number in range(count)]


@dataclass(frozen=True)
class Shape:
    """How a table is made.

    num_columns  of a wide one; 0: three
    """

    name: str
    num_files: int
    file_rows: int
    version: FileVersionName = NEWEST
    num_columns: int = 0

    def ready(self, cache: Path, scale: float) -> BenchTable:
        """The table, found in `cache` or written there."""
        num_files = max(2, round(self.num_files * scale))
        return self._found(cache, num_files, self.file_rows, range(self._num_columns(scale)))

    def small(self, cache: Path, scale: float) -> BenchTable:
        """Another table of its kind, with few files, and of the columns those that are asked for by themselves."""
        columns = [f"c{number}" for number in range(self._num_columns(scale))]
        asked = {int(name[1:]) for count in (1, 2, 3) for name in spread_columns(columns, count)} if columns else set()
        return self._found(cache, SMALL_FILES, self.file_rows, sorted(asked))

    def _num_columns(self, scale: float) -> int:
        return max(COLUMNS_MIN, round(self.num_columns * scale)) if self.num_columns else 0

    def _found(self, cache: Path, num_files: int, file_rows: int, numbers: Sequence[int]) -> BenchTable:
        size = f"{num_files}x{file_rows}x{len(numbers) or 3}"
        folder = cache / f"shape-{size}-{self.version}-pylance{lance.__version__}-{GENERATION}"
        num_rows = num_files * file_rows
        if not folder.exists():
            rows = wide_rows(numbers, num_rows) if numbers else small_rows(num_rows)
            with written_whole(folder) as half_done:
                path = half_done / "table.lance"
                lance.write_dataset(rows, path, max_rows_per_file=file_rows, data_storage_version=self.version)
        names = [f"c{number}" for number in numbers] or small_rows(1).column_names
        return BenchTable(self.name, num_rows, num_files, tuple(names), str(folder / "table.lance"), "")


def _named() -> dict[str, Shape]:
    shapes = [Shape("wide", 3, 100, num_columns=NUM_WIDE_COLUMNS)]
    shapes += [Shape(f"{num_files}x{rows}", num_files, rows) for num_files, rows in ((64, 1_000), (10_000, 1))]
    for version in VERSIONS:
        shapes += [Shape(f"1000x{rows}_{version}", 1_000, rows, version) for rows in (100, 1_000)]
    return {shape.name: shape for shape in shapes}


SHAPES: Final = _named()


def shaped(tables: Tables, name: str) -> BenchTable:
    """A table of `SHAPES`, whose files the page cache has."""
    table = SHAPES[name].ready(tables.cache, tables.scale)
    read_through(Path(table.lance_uri))
    return table


def small_shaped(tables: Tables, name: str) -> BenchTable:
    """A small one of its kind."""
    return SHAPES[name].small(tables.cache, tables.scale)
