"""Run the conformance suites and the fault table on all stores, and write `docs/conformance.md` from the outcomes.

    python scripts/conformance.py     some minutes; starts servers as the tests do

Nothing on the page is written by hand. In each run of the suite every test compares its outcome with the page
(`tests/store/test_conformance.py`).
"""

from __future__ import annotations

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest

from lance_io.testing.conformance import StoreConformance

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "conformance.md"
SUITE: Final = "tests/store/test_conformance.py"
TABLES: Final = (
    "tests/s3/test_fault_writes.py::TestMinio",
    "tests/s3/test_versity.py::TestVersity",
    "tests/gcs/test_gcs_tables.py::TestGcs",
    "tests/azure/test_azure_fault_writes.py::TestAzure",
)
FAULT_TABLES: Final = (
    "tests/s3/test_faults.py::test_every_fault",
    "tests/gcs/test_gcs_fault_table.py",
    "tests/azure/test_azure_fault_table.py",
)
INTRODUCTION: Final = """\
# What every store does

All stores pass one suite (`store/test_conformance.py`, `lance_io.testing.conformance`), each with access to its objects
that does not go through the store. `scripts/conformance.py` writes this page from a run of the suite, and every test
compares its outcome with the page. [Promises of stores](store-promises.md) says how a missing promise of a store
matters.

+ as promised, (+) the store does not promise a part of it, - the store does not promise it
"""
ON_TABLES: Final = """\
## Tables in buckets

Promises of tables that tests check on each of the servers (`store/table_conformance.py`): every change through a proxy
that disturbs two of five requests; every kind of change by a process that ends after a request that writes, for each
such request; sixteen writers in four processes; opening, scans and takes that are cancelled while they wait for
answers; a fork during a scan. In brackets: the number of ended processes.
"""
FAULTS: Final = """\
## Faults

Each of {faults} kinds of faults (connections refused, reset, cut and silent at any byte, wrong ranges and sizes,
refusals) meets each operation on a table, at all of its requests and at only one of them. A read recovers or raises an
error of ours; a write happens completely and once, or not at all (`s3/test_faults.py`). Faults injected:
"""


class Outcomes:
    """A pytest plugin that collects the properties that tests record."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], str] = {}  # by store and behaviour
        self.tables: dict[tuple[str, str], str] = {}  # the same of tables, by class and behaviour
        self.ends: Counter[str] = Counter()  # of processes, by class
        self.trials: dict[tuple[str, str], int] = {}  # by scheme and operation

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest."""
        if report.when != "call":
            return
        names = report.nodeid.split("::")
        for name, value in report.user_properties:
            if name == "fault_trials":
                scheme, number = str(value).split()
                self.trials[scheme, names[-1].partition("[")[2].removesuffix("]")] = int(number)
            if name == "process_ends":
                self.ends[names[1]] += int(str(value))
        if len(names) == 3:  # no test of the page itself, nor of a fault
            cells = self.cells if names[0] == SUITE else self.tables
            cell = cell_of([name for name, _ in report.user_properties]) if report.passed else "failed"
            key = names[1], names[2].partition("[")[0]
            cells[key] = worst(cell, cells.get(key, "+"))


def cell_of(noted: Iterable[str]) -> str:
    """The cell of a test that passed, by the properties that it recorded."""
    names = set(noted)
    return "-" if "not promised" in names else "(+)" if "promised in part" in names else "+"


def worst(*cells: str) -> str:
    """The worst cell among the cases of one test."""
    return max(cells, key=("+", "(+)", "-", "failed").index)


def behaviours(suite: type = StoreConformance) -> list[str]:
    """The tests of a suite, in its order."""
    return [name for name in vars(suite) if name.startswith("test_")]


def title_of(name: str) -> str:
    """A test's name as text."""
    return name.removeprefix("test_").replace("_", " ")


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def table_rows(outcomes: Outcomes, servers: Iterable[str]) -> list[list[str]]:
    """The rows of the tests of tables.

    servers  the test classes of the servers
    """
    from tests.store.table_conformance import TableConformance

    rows = []
    for name in behaviours(TableConformance):
        cells = [outcomes.tables.get((server, name), "not run") for server in servers]
        if name == "test_a_process_may_end_at_any_write":
            cells = [f"{cell} ({outcomes.ends[server]})" for server, cell in zip(servers, cells, strict=True)]
        rows.append([title_of(name), *cells])
    return rows


def made_page(outcomes: Outcomes, titles: dict[str, str], servers: dict[str, str], num_faults: int) -> str:
    """The page.

    titles   of the stores, by the classes of their tests
    servers  titles of the servers, by the classes of the tests of tables
    """
    rows = [
        [title_of(name), *(outcomes.cells.get((store, name), "not run") for store in titles)] for name in behaviours()
    ]
    counted = Counter(cell for _, *cells in rows for cell in cells)
    operations = list(dict.fromkeys(operation for _, operation in outcomes.trials))
    schemes = list(dict.fromkeys(scheme for scheme, _ in outcomes.trials))
    faults = [
        [f"`{scheme}://`", *(str(outcomes.trials.get((scheme, operation), 0)) for operation in operations),
         str(sum(number for (where, _), number in outcomes.trials.items() if where == scheme))]
        for scheme in schemes
    ]  # fmt: skip
    counts = f"{len(titles)} stores x {len(rows)} behaviours: " + ", ".join(
        f"{counted[cell]} {cell}" for cell in ("+", "(+)", "-", "failed", "not run") if counted[cell]
    )
    return "\n".join(
        [
            INTRODUCTION,
            f"{counts}\n",
            table(["", *titles.values()], rows),
            ON_TABLES,
            table(["", *servers.values()], table_rows(outcomes, list(servers))),
            FAULTS.format(faults=num_faults),
            table(["", *operations, "all"], faults),
        ]
    )


def page_cells() -> dict[tuple[str, str], str]:
    """The cells of the page, by the titles of store and behaviour."""
    cells: dict[tuple[str, str], str] = {}
    lines = [line for line in PAGE.read_text().split("## ")[0].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if not rows:
        return cells
    _, *stores = rows[0]
    for name, *row in rows[2:]:
        cells |= {(store, name): cell for store, cell in zip(stores, row, strict=True)}
    return cells


def main() -> None:
    outcomes = Outcomes()
    pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", SUITE, *TABLES, *FAULT_TABLES], [outcomes])
    from tests.s3.test_faults import FAULTS as FAULT_KINDS
    from tests.store import test_conformance as suite

    titles = {name: value.TITLE for name, value in vars(suite).items() if name.startswith("Test")}
    servers = {}
    for test_class in TABLES:
        module, _, name = test_class.partition("::")
        servers[name] = getattr(import_module(module.removesuffix(".py").replace("/", ".")), name).TITLE
    PAGE.write_text(made_page(outcomes, titles, servers, len(FAULT_KINDS)))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
