"""All cases of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.shapes.cold_reads import cold_cases
from benchmarks.shapes.shape_writes import shape_write_cases
from benchmarks.shapes.warm_reads import warm_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.cases import Case
    from benchmarks.tables import Tables


def shape_cases(tables: Tables) -> Iterator[Case]:
    """Every case of the group."""
    yield from cold_cases(tables)
    yield from warm_cases(tables)
    yield from shape_write_cases(tables)
