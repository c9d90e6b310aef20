"""The group `shapes` of the benchmark: its cases and goals, its tables, and what a fresh process measures."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from rich.console import Console

from benchmarks import cases, measure
from benchmarks.catalogue import chosen_cases
from benchmarks.report import Finding, Report, fill_in, goals_table
from benchmarks.run import DOCUMENT, measured, run
from benchmarks.shapes import cold_probe, shape_tables, shape_writes
from benchmarks.tables import Tables

SCALE = 0.002
VERSIONS = ("2.2", "2.1", "2.0", "0.1")
ONE_FILE_KINDS = [f"{version}/{columns}" for version in VERSIONS for columns in ("all", "id")]
# Per case: how many times as fast as pylance, with how many times less processor time, and seconds at most.
GOALS: dict[str, tuple[float | None, float | None, float | None]] = {
    "wide/take/2": (1, None, None),
    "wide/take/1": (None, 1, None),
    "wide/scan/3": (1, None, None),
    "wide/scan/all": (2, None, None),
    **{f"cold/1000x{rows}/{kind}": (1, 2, None) for rows in (100, 1000) for kind in ONE_FILE_KINDS},
    "cold/10000x1/all": (1, 2, None),
    **{f"open/{table}": (1, 1, None) for table in ("five", "vectors", "many")},
    **{f"lag/wide/{read}": (None, None, 0.005) for read in ("take/2", "scan/3", "scan/all")},
    **{f"lag/1000x1000/{kind}": (None, None, 0.005) for kind in ONE_FILE_KINDS},
    "lag/10000x1/all": (None, None, 0.005),
    **{f"warm/{files}x1000/{scan}": (2, None, None) for files in (64, 1000) for scan in ("all", "id", "filter")},
    **{f"warm/{files}x1000/take": (3, None, None) for files in (64, 1000)},
    **{f"warm/10000x1/{scan}": (1, 2, None) for scan in ("all", "filter")},
    "growth/1000x1000": (1, None, None),
    **{f"{change}/{columns}": (1, None, None) for change in ("write", "append") for columns in (30, 100, 300)},
    "append/3000": (None, None, 0.25),
    "writers/8": (1, None, None),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shapes")


def test_every_case_has_its_goal() -> None:
    found = chosen_cases(Tables(Path("nowhere"), 1.0), ["shapes"])
    assert {case.name: (case.goal, case.cpu_goal, case.limit_s) for case in found} == {
        f"shapes/{name}": goals for name, goals in GOALS.items()
    }
    assert len(found) == len(GOALS)


def test_other_patterns_do_not_choose_them() -> None:
    found = chosen_cases(Tables(Path("nowhere"), 1.0), ["take", "open", "write", "growth"])
    assert found and not any(case.name.startswith("shapes") for case in found)


def test_a_tiny_run_measures_each_kind_of_case(cache: Path) -> None:
    names = [
        *("shapes/cold/1000x100/0.1/id", "shapes/lag/wide/take/2"),
        *("shapes/warm/64x1000/take", "shapes/warm/10000x1/filter", "shapes/write/30", "shapes/append/3000"),
    ]
    arguments = ["--scale", str(SCALE), "--repeat", "1", "--cache", str(cache), *names]
    report = run(arguments, Console(file=io.StringIO(), width=200))
    assert report is not None
    assert [finding.name for finding in report.findings] == names
    compared = [set(finding.values) for finding in report.findings]
    assert compared == [{"lance_io"} if "/lag/" in name else {"lance_io", "pylance"} for name in names]
    assert all(spread.median > 0 for finding in report.findings for spread in finding.values.values())


@pytest.mark.parametrize("name", shape_tables.SHAPES)
def test_tables_are_what_their_names_say(cache: Path, name: str) -> None:
    shape = shape_tables.SHAPES[name]
    table, small = shape.ready(cache, SCALE), shape.small(cache, SCALE)
    stored = lance.dataset(table.lance_uri)
    fragments = stored.get_fragments()
    assert [one.count_rows() for one in fragments] == [shape.file_rows] * table.num_fragments
    assert stored.schema.names == list(table.columns)
    assert stored.data_storage_version == shape.version == (name.partition("_")[2] or "2.2")
    assert (stored.count_rows(), len(fragments)) == (table.num_rows, max(2, round(shape.num_files * SCALE)))
    assert set(small.columns) <= set(table.columns)
    assert len(lance.dataset(small.lance_uri).get_fragments()) == 3


def test_columns_that_are_asked_for_are_spread_and_in_the_small_table(cache: Path) -> None:
    table, small = (
        make(cache, 0.02) for make in (shape_tables.SHAPES["wide"].ready, shape_tables.SHAPES["wide"].small)
    )
    assert len(table.columns) == 100
    assert shape_tables.spread_columns(table.columns, 2) == ["c25", "c75"]
    for count in (1, 2, 3):
        assert set(shape_tables.spread_columns(table.columns, count)) <= set(small.columns)


def test_a_ticker_sees_how_long_its_loop_was_held() -> None:
    held_s = 0.02

    def hold() -> None:
        time.sleep(held_s)

    async def watch() -> float:
        ticker = cold_probe.Ticker()
        ticking = asyncio.ensure_future(ticker.run())
        await asyncio.sleep(0)
        hold()
        await asyncio.sleep(2 * cold_probe.TICK_S)
        ticking.cancel()
        return ticker.longest_s

    assert asyncio.run(watch()) >= held_s - cold_probe.TICK_S


def test_a_cold_read_travels_as_text_and_asks_both_libraries(cache: Path) -> None:
    table = shape_tables.SHAPES["64x1000"].ready(cache, SCALE)
    for row, columns in ((5, ["id"]), (None, ["text", "id"]), (5, None)):
        read = cold_probe.ColdRead.of_text(cold_probe.ColdRead(table.lance_uri, row, columns).as_text())
        answers = {who: read.ask(cases.OPENERS[who](table)) for who in ("lance_io", "pylance")}
        cases.require_equal(answers)
        assert answers["pylance"].num_rows == (1 if row else 2000)
        assert answers["pylance"].column_names == (columns or ["id", "text", "double"])


def test_writers_are_judged_by_all_their_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight processes with 20 appends each in eight seconds need 0.05 s for one; with 10 each 0.1 s."""
    crowds: list[list[str]] = []

    def said(libraries: list[str], path: Path, seconds: float) -> list[dict[str, Any]]:
        crowds.append(libraries)
        return [{"appends": 20 if who == "lance_io" else 10, "cpu_s": 1.0} for who in libraries]

    monkeypatch.setattr(shape_writes, "append_together", said)
    (case,) = chosen_cases(Tables(tmp_path, 1.0), ["shapes/writers"])
    finding = measured(case, rounds=1)
    assert sorted(crowds) == [["lance_io"] * 8, ["pylance"] * 8]
    assert {who: spread.median for who, spread in finding.values.items()} == {"lance_io": 0.05, "pylance": 0.1}
    assert finding.against["pylance"].median == 2


def test_appends_that_are_not_read_as_written_are_not_measured(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2]})
    lance.write_dataset(rows, tmp_path / "t")
    assert shape_writes.append_turn("lance_io", rows, tmp_path / "t", -1).value > 0
    with pytest.raises(cases.WrongAnswerError, match="lance_io has appended"):
        shape_writes.append_turn("lance_io", pa.table({"x": [3, 4]}), tmp_path / "t", -1)


def found(name: str, ours: tuple[float, float], pylance: tuple[float, float] | None, **goals: float) -> Finding:
    """A case of one round: seconds, and those of the processor."""
    samples = {"lance_io": measure.Samples([ours[0]], [ours[1]])}
    if pylance is not None:
        samples["pylance"] = measure.Samples([pylance[0]], [pylance[1]])
    return Finding.of(cases.Case(name, dict, **goals), samples)


def test_the_table_of_shapes_is_filled_into_the_document() -> None:
    report = Report(scale=1.0, rounds=1)
    report.findings = [
        found("shapes/cold/1000x100/2.2/all", (2.0, 1.0), (3.0, 1.5), goal=1.0, cpu_goal=2.0),
        found("shapes/lag/wide/take/2", (0.004, 1.0), None, limit_s=0.005),
        found("take/five/1", (1.0, 1.0), (1.0, 1.0)),
    ]
    table = goals_table(report, ["shapes"])
    assert table.splitlines()[2:] == [
        "| `shapes/cold/1000x100/2.2/all` | 2,000.0 ms | 3,000.0 ms | 1.50 | 1 "
        "| 1,000.0 ms | 1,500.0 ms | 1.50 | **2** |",
        "| `shapes/lag/wide/take/2` | 4.000 ms |  |  | at most 5.000 ms |  |  |  |  |",
    ]
    document = DOCUMENT.read_text()
    filled = fill_in(document, "shapes", table)
    assert table in filled and fill_in(filled, "shapes", table) == filled
    assert filled.startswith(document.split("<!-- shapes -->")[0])
