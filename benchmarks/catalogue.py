"""All cases, and those that a command line names."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from benchmarks.changes import change_cases
from benchmarks.commits import commit_cases
from benchmarks.compaction import compaction_cases
from benchmarks.filters import filter_cases
from benchmarks.functions import function_cases
from benchmarks.indices import index_cases
from benchmarks.kinds import kind_cases
from benchmarks.oldversions import old_version_cases
from benchmarks.openings import opening_cases
from benchmarks.passing import passing_cases
from benchmarks.reads import read_cases
from benchmarks.searches import search_cases
from benchmarks.shapes.shape_cases import shape_cases
from benchmarks.shares import share_cases
from benchmarks.spark import spark_cases
from benchmarks.sparksql import sql_cases
from benchmarks.textsearches import text_search_cases
from benchmarks.textsizes import text_size_cases
from benchmarks.vectorsearches import vector_search_cases
from benchmarks.writes import write_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.cases import Case
    from benchmarks.tables import Tables

# Groups whose run at full scale is stored by itself, and the beginnings of the names of their cases.
STORED_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "shapes": ("shapes",),
    "changes": ("change", "bytes", "compact", "cleanup", "delete"),
    "functions": ("functions",),
    "kinds": ("kinds",),
    "late": ("late",),
    "sparksql": ("sparksql",),
}
TABLED_GROUPS: Final = ("shapes", "changes")  # they have a table in the document, and no panel in the picture


def all_cases(tables: Tables) -> Iterator[Case]:
    """Every case, in the order of the report."""
    yield from read_cases(tables)
    yield from opening_cases(tables)
    yield from filter_cases(tables)
    yield from passing_cases(tables)
    yield from search_cases(tables)
    yield from index_cases(tables)
    yield from text_search_cases(tables)
    yield from vector_search_cases(tables)
    yield from function_cases(tables)
    yield from write_cases(tables)
    yield from kind_cases(tables)
    yield from text_size_cases(tables)
    yield from commit_cases(tables)
    yield from compaction_cases(tables)
    yield from change_cases(tables)
    yield from share_cases(tables)
    yield from spark_cases(tables)
    yield from sql_cases(tables)
    yield from old_version_cases(tables)
    yield from shape_cases(tables)


def chosen_cases(tables: Tables, patterns: list[str]) -> list[Case]:
    """The cases that a pattern names, wholly or down to a slash (`scan/five`, `*/many`), or by a group; else all."""
    named = [name for pattern in patterns or ["*"] for name in STORED_GROUPS.get(pattern, (pattern,))]
    wanted = [ending for name in named for ending in (name, f"{name}/*")]
    return [case for case in all_cases(tables) if any(fnmatchcase(case.name, ending) for ending in wanted)]
