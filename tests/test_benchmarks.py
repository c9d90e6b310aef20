"""The benchmark harness: a tiny run measures, compares, writes and draws; ratios are those of hand-made rounds."""

from __future__ import annotations

import http.client
import io
import json
import subprocess
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import lance_io
from benchmarks import (
    buckets,
    cases,
    measure,
    passing,
    picture,
    shares,
    sparkchanges,
    sparksource,
    tables,
    textkinds,
    transport,
)
from benchmarks.catalogue import chosen_cases
from benchmarks.profiling import profile_text
from benchmarks.report import Finding, Report, fill_in, spark_table
from benchmarks.run import DOCUMENT, measured, run
from lance_io.spark.source import LanceDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[1]
TINY = ["--scale", "0.0004", "--repeat", "2"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


def run_tiny(cache: Path, *arguments: str) -> tuple[Report | None, str]:
    console = Console(file=io.StringIO(), width=200)
    report = run([*TINY, "--cache", str(cache), *arguments], console)
    assert isinstance(console.file, io.StringIO)
    return report, console.file.getvalue()


def test_a_tiny_run_prints_stores_and_draws(cache: Path, tmp_path: Path) -> None:
    chosen = ["take/five/100", "scan/vectors/all/batches", "open/five"]
    report, text = run_tiny(cache, *chosen, "--output", str(tmp_path))
    assert report is not None
    assert [finding.name for finding in report.findings] == chosen
    assert all(name in text for name in chosen)

    stored = json.loads((tmp_path / "latest.json").read_text())
    assert stored["versions"]["pylance"] == "14.0.2"
    take = stored["findings"][0]
    assert set(take["values"]) == {"lance_io", "pylance", "parquet"}
    assert take["against"]["pylance"]["median"] > 0
    assert Report.load(tmp_path / "latest.json").findings[0].rounds == 2
    assert (tmp_path / "latest.png").read_bytes().startswith(b"\x89PNG")


def test_texts_of_every_kind_are_written_and_updated(cache: Path, tmp_path: Path) -> None:
    """Each update rewrites another hundredth; the sizes of what both wrote are told."""
    names = [f"kinds/size/{kind}/2.2/{rows}" for kind in ("keys", "json-1k") for rows in (1000, "update")]
    report, _ = run_tiny(cache, *names, "--output", str(tmp_path))
    assert report is not None
    assert sorted(finding.name for finding in report.findings) == sorted(names)
    for finding in report.findings:
        assert set(finding.values) == {"lance_io", "pylance"}
        assert finding.values["lance_io"].low > 0


def test_texts_depend_on_kind_seed_and_number_alone() -> None:
    assert len(textkinds.KINDS) == 19
    for kind in textkinds.KINDS:
        first, again, other = (textkinds.texts(kind, 30, seed) for seed in (1, 1, 2))
        assert first.equals(again)
        assert first.null_count == 0 and len(first) == 30
        assert kind == "image-paths" or not first.equals(other)


def test_the_picture_has_the_slowest_functions_and_no_group_that_has_a_table() -> None:
    def finding(name: str, times: float) -> Finding:
        samples = {who: measure.Samples([value], [value]) for who, value in (("lance_io", 1.0), ("pylance", times))}
        return Finding.of(cases.Case(name, dict), samples)

    functions = [finding(f"functions/{number}", times) for number, times in enumerate([9.0, 0.5, *[4.0] * 19, 0.6])]
    shapes = [finding("shapes/open/five", 1.0), finding("compact/copy/100", 1.0)]
    drawn = picture.drawn([finding("take/five/1", 2.0), *functions, *shapes])
    assert [*drawn] == ["take", "functions"]
    assert [one.name for one in drawn["functions"]][:3] == ["functions/1", "functions/21", "functions/2"]
    assert "functions/0" not in {one.name for one in drawn["functions"]}
    assert [*picture.drawn(shapes)] == ["shapes", "compact"]


def test_filters_by_what_passes_stand_beside_the_faster_of_two_plans(cache: Path) -> None:
    names = ["late/2k/64/scattered/50", "late/8/1/sorted/one", "late/100/1/clustered/0"]
    report, _ = run_tiny(cache, *names)
    assert report is not None
    assert sorted(finding.name for finding in report.findings) == sorted(names)
    assert all(set(finding.against) == {"pylance", "faster plan"} for finding in report.findings)
    assert len(passing.CELLS) == len({cell.name for cell in passing.CELLS}) == 168


def test_as_many_rows_pass_as_the_name_of_a_cell_says() -> None:
    for width, num_rows in passing.TABLE_ROWS.items():
        rows = passing.keyed_rows(0, 7, np.random.default_rng(1), width=width)
        assert rows["rest"].nbytes == 7 * passing.VALUE_BYTES[width]
        all_keys = passing.keys_of(0, num_rows, passing.cluster_rows(width))
        assert all(np.diff(np.sort(keys)).min() > 0 for keys in all_keys.values())
        for cell in passing.CELLS:
            if cell.width != width or cell.num_files > 1:
                continue
            column, op, number = cell.where(num_rows).split(" ")
            keys = all_keys[column]
            passes = keys < int(number) if op == "<" else keys == int(number)
            wanted = 1 if cell.share == "one" else num_rows * float(cell.share) / 100
            spread = num_rows / passing.CLUSTERS if cell.layout == "clustered" else num_rows / 100 + 2
            assert abs(passes.sum() - wanted) <= (0 if cell.share in ("one", "0", "100") else spread), cell


def test_old_file_versions_are_groups_of_their_own(cache: Path) -> None:
    names = ["2.0/scan/vectors/all/batches", "0.1/take/five/1", "0.1/filter/sorted/id"]
    report, _ = run_tiny(cache, *names)
    assert report is not None
    assert [finding.name for finding in report.findings] == names
    assert [set(finding.against) for finding in report.findings] == [{"pylance", "bare read"}, {"pylance"}, {"pylance"}]


def test_changes_leave_the_rows_that_pylance_leaves(cache: Path) -> None:
    names = ["change/update/1%", "change/merge/int/10%", "change/merge/text/10%", "bytes/merge/int/10%"]
    report, _ = run_tiny(cache, *names)
    assert report is not None
    assert [finding.name for finding in report.findings] == names
    assert all(finding.against["pylance"].median > 0 for finding in report.findings)


def test_a_bare_read_is_another_way_to_a_goal() -> None:
    def reached(pylance: float, bare: float) -> list[bool | None]:
        samples = {
            who: measure.Samples([v], [v]) for who, v in {"lance_io": 1, "pylance": pylance, "bare read": bare}.items()
        }
        found = Finding.of(cases.Case("2.0/scan/five/all/table", dict, goal=1.4, bare_goal=0.75), samples)
        return [found.reached("pylance"), found.reached("bare read")]

    assert [reached(1.5, 0.1), reached(1.0, 0.8), reached(1.0, 0.7)] == [[True, None], [True, None], [False, None]]


def test_processor_time_and_limits_are_goals_of_their_own() -> None:
    def found(case: cases.Case, **turns: tuple[float, float]) -> Finding:
        return Finding.of(case, {who: measure.Samples([wall_s], [cpu_s]) for who, (wall_s, cpu_s) in turns.items()})

    cold = cases.Case("any", dict, goal=1.0, cpu_goal=2.0)
    finding = found(cold, lance_io=(2.0, 1.0), pylance=(4.0, 1.5))
    assert {peer: spread.median for peer, spread in finding.against.items()} == {"pylance": 2.0, "processor time": 1.5}
    assert [finding.reached("pylance"), finding.reached("processor time")] == [True, False]

    limited = cases.Case("any", dict, limit_s=0.005)
    assert [found(limited, lance_io=(wall_s, 1.0)).reached("limit") for wall_s in (0.004, 0.006)] == [True, False]
    assert found(limited, lance_io=(0.004, 1.0)).against["limit"].median == 1.25
    for case in (cold, limited):
        assert found(cases.without_goals(case), lance_io=(1.0, 1.0), pylance=(1.0, 1.0)).goals == {}


def test_tables_are_written_once_and_hold_what_they_promise(cache: Path) -> None:
    recipe = tables.RECIPES["five"]
    table = recipe.ready(cache, 0.0004)
    stamp = Path(table.lance_uri).stat().st_mtime_ns
    assert recipe.ready(cache, 0.0004) == table
    assert Path(table.lance_uri).stat().st_mtime_ns == stamp
    datasets = {name: opener(table) for name, opener in cases.OPENERS.items()}
    assert {name: dataset.count_rows() for name, dataset in datasets.items()} == dict.fromkeys(datasets, 2000)
    assert len(datasets["pylance"].get_fragments()) == len(list(Path(table.parquet_folder).iterdir())) == 5


def test_all_files_of_a_table_are_read_before_it_is_measured(cache: Path) -> None:
    table = tables.Tables(cache, 0.0004)("many")
    folders = [Path(table.lance_uri), Path(table.parquet_folder)]
    sizes = [path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert len(sizes) > 128
    assert tables.read_through(folders[0].parent) == sum(sizes)


def test_memory_is_measured_in_a_fresh_process(cache: Path) -> None:
    table = tables.RECIPES["vectors"].ready(cache, 0.0004)
    sample = cases.probe("peak-table", "lance_io", table.lance_uri)
    assert 20e6 < sample.value < 1e9
    assert sample.cpu_s > 0


def test_a_profile_names_functions_and_no_folders_of_this_machine(cache: Path) -> None:
    (case,) = chosen_cases(tables.Tables(cache, 0.0004), ["take/five/10"])
    text = profile_text(case, seconds=0.1)
    assert "lance_io/reads/" in text
    assert str(ROOT) not in text


def test_the_makefile_may_start_it_as_a_file() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--list", "--only", "scan/five/text"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["scan/five/text/table", "scan/five/text/batches"]


def test_an_unknown_case_is_an_error(cache: Path) -> None:
    with pytest.raises(SystemExit, match="no case is named nonsense"):
        run_tiny(cache, "nonsense")


def test_other_answers_than_ours_are_not_measured() -> None:
    ours, other = pa.table({"x": [1, 2]}), pa.table({"x": [2, 1]})
    cases.require_equal({"lance_io": ours, "pylance": ours, "parquet": other})
    with pytest.raises(cases.WrongAnswerError, match="pylance"):
        cases.require_equal({"lance_io": ours, "pylance": other})
    with pytest.raises(cases.WrongAnswerError, match="parquet"):
        cases.require_equal({"lance_io": ours, "pylance": ours, "parquet": ours.slice(1)})


def test_contenders_take_turns_and_ratios_are_taken_within_a_round() -> None:
    calls: list[tuple[str, int]] = []

    def turn_of(name: str, values: list[float]) -> measure.Turn:
        def turn(number: int) -> measure.Sample:
            calls.append((name, number))
            return measure.Sample(values[number], 0.0)

        return turn

    turns: Mapping[str, Any] = {"ours": turn_of("ours", [1, 10, 1]), "peer": turn_of("peer", [2, 30, 5])}
    samples = measure.alternate(turns, 3)
    assert calls == [("ours", 0), ("peer", 0), ("peer", 1), ("ours", 1), ("ours", 2), ("peer", 2)]
    assert measure.times_better(samples, "ours", "peer") == measure.Spread(median=3, low=2.5, high=4)


def test_no_round_begins_when_the_time_is_over_but_for_the_first_five() -> None:
    now = 0.0

    def turn(number: int) -> measure.Sample:
        nonlocal now
        now += 10.0
        return measure.Sample(float(number), 0.0)

    def num_rounds(rounds: int, seconds: float) -> int:
        return len(measure.alternate({"ours": turn}, rounds, seconds, lambda: now)["ours"].values)

    assert [num_rounds(9, 1), num_rounds(3, 1), num_rounds(9, 70), num_rounds(9, 1000)] == [5, 3, 7, 9]


def test_cases_ask_for_more_or_fewer_rounds() -> None:
    def rounds(**limits: int) -> int:
        return cases.Case("any", dict, **limits).rounds(7)

    assert [rounds(), rounds(rounds_max=3), rounds(rounds_factor=4), rounds(rounds_factor=4, rounds_max=9)] == [
        7,
        3,
        28,
        9,
    ]


def test_the_ceiling_of_spark_hands_over_what_we_would(cache: Path, tmp_path: Path) -> None:
    """The same batches in the same tasks; Spark itself is not started here."""
    table = tables.RECIPES["spark_narrow"].ready(cache, 0.01)
    options = {"path": table.lance_uri, "num_partitions": "3", "filter": "number < 0.5"}
    sparksource.keep_ready(tmp_path, options)
    source = sparksource.ReadySource({"path": str(tmp_path)})
    ready, ours = source.reader(source.schema()), LanceDataSource(options)
    theirs = ours.reader(ours.schema())
    assert source.schema() == ours.schema()
    given = [[*ready.read(one)] for one in ready.partitions()]
    assert given == [[*theirs.read(one)] for one in theirs.partitions()]
    assert len(given) == 3
    num_rows = lance_io.dataset(table.lance_uri).count_rows("number < 0.5")
    assert sparksource.ready_amounts(tmp_path)["rows"] == num_rows


def test_processes_append_to_one_table(tmp_path: Path) -> None:
    said = shares.append_together(["lance_io"] * 2, tmp_path / "t", seconds=0.3)
    assert all(each["appends"] > 0 for each in said)
    assert lance_io.dataset(tmp_path / "t").count_rows() == 1 + sum(each["appends"] for each in said)


def test_the_smallest_share_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 appends in twenty seconds an equal share of three is 20: of these one made half, one each two seconds."""
    said = [{"appends": appends, "cpu_s": 1.0} for appends in (30, 10, 20)]
    monkeypatch.setattr(shares, "append_together", lambda libraries, path, seconds: said)
    monkeypatch.setattr(tables.Tables, "new_folder", lambda self: tmp_path)
    (case,) = chosen_cases(tables.Tables(tmp_path, 1.0), ["share/beside/3"])
    finding = measured(case, rounds=5)
    assert (finding.values["lance_io"].median, finding.values["equal share"].median) == (2.0, 1.0)
    assert (finding.against["equal share"].median, finding.reached("equal share"), finding.rounds) == (0.5, True, 1)


def test_the_transport_is_compared_with_aiohttp() -> None:
    rows = transport.run(rounds=1, num_gets=40)
    assert [(row["way"], row["bytes"]) for row in rows] == list(transport.GOALS)
    assert all(row["ratio"] == pytest.approx(row["own_us"] / row["aiohttp_us"]) for row in rows)
    assert 0 < transport.signature_us(10)


def test_the_group_of_changes_has_a_case_of_each_of_them() -> None:
    names = {case.name for case in chosen_cases(tables.Tables(Path("nowhere"), 1.0), ["changes"])}
    assert {
        *("change/update/1%", "change/add/sql", "change/add/function", "change/drop", "delete/1%", "cleanup/10000"),
        *(
            f"change/{way}/{key}/{share}"
            for way in ("merge", "indexed")
            for key in ("int", "text")
            for share in ("1%", "10%")
        ),
        *(f"compact/{what}/{files}" for what in ("encode", "copy", "bytes") for files in (100, 1000)),
        *("bytes/update/1%", "bytes/add/sql"),
    } <= names


def test_cases_of_spark_have_names() -> None:
    names = {case.name for case in chosen_cases(tables.Tables(Path("nowhere"), 1.0), ["spark"])}
    assert {
        "spark/read/narrow/all",
        "spark/write/vectors",
        "spark/tasks/128",
        "spark/cores/narrow",
        "spark/sockets/narrow",
        "spark/large/tcp",
        "spark/large/unix",
    } <= names


def test_cases_of_sql_have_names_and_goals() -> None:
    sql = {case.name: case for case in chosen_cases(tables.Tables(Path("nowhere"), 1.0), ["sparksql"])}
    kinds = [
        f"{table}/{what}" for table in ("narrow", "vectors") for what in ("select", "percent", "star", "count", "slots")
    ]
    changes = [*("merge/1", "merge/2", "merge/4"), *("compact", "insert", "overwrite")]
    sizes = [f"bytes/{what}" for what in ("merge", "compact", "insert", "overwrite")]
    assert sql.keys() == {f"sparksql/{name}" for name in (*kinds, "tasks", *changes, *sizes)}
    judged = {name for name, case in sql.items() if case.goal or case.parquet_goal or case.peer_goals}
    assert sql.keys() - judged == {"sparksql/merge/4", "sparksql/compact", "sparksql/overwrite"}
    assert all(case.rounds(7) >= 7 for case in sql.values() if case.unit == "s")


def test_statements_that_leave_other_rows_are_not_measured(tmp_path: Path) -> None:
    """Each contender changes a copy of its own; sizes are those of the files that it has added."""
    table = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": [1, 2]}), table)

    def add(number: int) -> sparkchanges.Work:
        rows = pa.table({"id": [number]})
        return partial(sparkchanges.by_pylance, lambda ds: lance.write_dataset(rows, ds, mode="append"))

    turns = sparkchanges.Change(table, {"lance_io": add(3), "pylance": add(3)}).turns(is_sized=True)
    sizes = [turn(number).value for number in range(2) for turn in turns.values()]
    data = next((table / "data").iterdir()).stat().st_size
    assert len(set(sizes)) == 1 and 0.5 * data < sizes[0] < 2 * data
    assert [path.name for path in tmp_path.iterdir()] == ["t.lance"]
    assert lance.dataset(table).count_rows() == 2
    with pytest.raises(cases.WrongAnswerError, match="Spark leaves 3 rows"):
        sparkchanges.Change(table, {"lance_io": add(3), "pylance": add(4)}).turns(is_sized=False)


def test_goals_beside_contenders_by_name() -> None:
    """At most so much more time than another, and a share of our own speed in another way."""
    samples = {
        who: measure.Samples([value], [1.0])
        for who, value in (("lance_io", 2.0), ("allowance", 1.9), ("two slots", 1.9))
    }
    case = cases.Case("any", dict, peer_goals={"allowance": 1.0, "two slots": 0.9})
    finding = Finding.of(case, samples)
    assert [finding.reached(peer) for peer in ("allowance", "two slots")] == [False, True]
    assert Finding.of(cases.without_goals(case), samples).goals == {}


def test_tuned_workers_are_judged_beside_a_ceiling_of_their_own() -> None:
    seconds = {"lance_io": 8.0, "ceiling": 6.0, "tune_worker": 4.0, "tuned ceiling": 3.8}
    samples = {who: measure.Samples([value] * 3, [value] * 3) for who, value in seconds.items()}
    found = Finding.of(cases.Case("spark/read/narrow/all", dict, ceiling_goal=0.9), samples)
    assert {who: spread.median for who, spread in found.against.items()} == {
        "ceiling": 0.75,
        "tune_worker": 0.5,
        "tuned ceiling": 0.95,
    }
    assert [found.reached(peer) for peer in ("ceiling", "tune_worker", "tuned ceiling")] == [False, None, True]


def test_a_complete_run_fills_the_table_of_spark_into_the_document() -> None:
    seconds = {"lance_io": 0.8, "ceiling": 0.6, "tune_worker": 0.4, "tuned ceiling": 0.38}
    samples = {who: measure.Samples([value], [value]) for who, value in seconds.items()}
    report = Report(scale=1.0, rounds=1)
    report.findings = [Finding.of(cases.Case(name, dict), samples) for name in ("spark/tasks/2", "spark/tasks/8")]
    document = DOCUMENT.read_text()
    filled = fill_in(document, "spark", spark_table(report))
    before, after = document.split("<!-- spark -->")[0], document.split("<!-- /spark -->")[1]
    assert filled.startswith(before) and filled.endswith(after)
    assert "| `spark/tasks/8` | 800.0 ms | 0.75 | 400.0 ms | 0.95 |\n\n<!-- /spark -->" in filled
    assert fill_in(filled, "spark", spark_table(report)) == filled
    with pytest.raises(ValueError, match="no lines <!-- other -->"):
        fill_in(document, "other", "")


class Greeter(BaseHTTPRequestHandler):
    """Answers every GET with four bytes, over a connection that stays."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"moin")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_the_relay_counts_what_passes_and_changes_nothing() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Greeter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with buckets.metered(f"http://127.0.0.1:{server.server_port}", latency_s=0.0) as meter:
        client = http.client.HTTPConnection(meter.endpoint.removeprefix("http://"))
        for _ in range(3):
            client.request("GET", "/")
            assert client.getresponse().read() == b"moin"
        counts = meter.take_counts()
        assert (counts["requests"], counts["rounds"], counts["connections"]) == (3, 3, 1)
        assert 3 * 4 < counts["bytes"] < 3 * 500
        assert meter.take_counts() == {"requests": 0, "rounds": 0, "bytes": 0, "connections": 0}
        client.close()
    server.shutdown()
    server.server_close()


def test_a_turn_repeats_short_operations_on_rows_of_their_own() -> None:
    seen: list[int] = []
    turn = measure.timed(seen.append, operations=3)
    turn(0)
    turn(2)
    assert seen == [0, 1, 2, 6, 7, 8]
