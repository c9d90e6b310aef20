"""Wide tables and many files: the group `shapes`.

    shapes/wide/...                 a new dataset of 5,000 columns in 3 files, and one read
    shapes/cold/FILESxROWS/...      a new dataset of so many files of so many rows, and a scan, for each file version
    shapes/open/TABLE               a new dataset of a table of few files, and one row
    shapes/lag/...                  how long these reads keep a caller's event loop waiting at most
    shapes/warm/FILESxROWS/...      scans, a filter and a take of an open dataset
    shapes/growth/FILESxROWS        by how much a fresh process grows that goes through all batches
    shapes/write/COLUMNS            a new table of 1,000 rows of so many columns, nothing flushed
    shapes/append/COLUMNS           the same rows appended; 3 rows of 3,000 columns
    shapes/writers/8                appends of eight processes to one table

shape_tables   the tables
cold_reads     what is asked of a dataset that nobody has opened; cold_probe asks it in a process of its own
warm_reads     what is asked of an open dataset, and memory
shape_writes   writes, appends, and many processes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.shapes.cold_reads import cold_cases
from benchmarks.shapes.shape_writes import shape_write_cases
from benchmarks.shapes.warm_reads import warm_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.cases import Case
    from benchmarks.tables import Tables

__all__ = ["shape_cases"]


def shape_cases(tables: Tables) -> Iterator[Case]:
    """Every case of the group."""
    yield from cold_cases(tables)
    yield from warm_cases(tables)
    yield from shape_write_cases(tables)
