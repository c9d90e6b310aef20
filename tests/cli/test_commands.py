"""What the commands say, compared with what pylance says about the same tables."""

from __future__ import annotations

import io
import json
import math
import os
import shlex
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from rich.progress import Progress

from lance_io.cli import output
from lance_io.cli.main import app
from lance_io.cli.option_texts import column_names, row_numbers, storage_options
from lance_io.cli.output import plain
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_START = Progress.start
LOADED = """
import atexit, sys
from lance_io.cli.main import main
atexit.register(lambda: print(*sys.modules))
main()
"""
COMMANDS = ["info", "schema", "versions", "log", "fragments", "pages", "head", "count", "explain", "bench"]


def local(time: str) -> datetime:
    """An ISO time in UTC as pylance gives it: local, naive."""
    return datetime.fromisoformat(time).astimezone().replace(tzinfo=None)


def test_info(run: Any, table: lance.LanceDataset) -> None:
    report = run("info", table.uri, "--json").report
    stats = table.stats.dataset_stats()
    files = [file for fragment in table.get_fragments() for file in fragment.data_files()]
    assert report["version"] == report["latest_version"] == report["num_versions"] == table.version == 4
    assert report["num_rows"] == table.count_rows()
    assert report["num_deleted_rows"] == stats["num_deleted_rows"]
    assert report["num_fragments"] == stats["num_fragments"]
    assert report["num_deletion_files"] == 2
    assert report["data_bytes"] == sum(file.file_size_bytes for file in files)
    assert report["data_storage_version"] == table.data_storage_version
    assert report["tags"] == {"second": 2}
    assert report["writer"].endswith(lance.__version__)
    assert datetime.fromisoformat(report["timestamp"]).tzinfo is not None


def test_schema(run: Any, table: lance.LanceDataset) -> None:
    def described(field: Any) -> tuple[Any, ...]:
        return field.id(), field.name(), [described(child) for child in field.children()]

    def reported(field: Any) -> tuple[Any, ...]:
        return field["id"], field["name"], [reported(child) for child in field["children"]]

    fields = run("schema", table.uri, "--json").report["fields"]
    assert [reported(field) for field in fields] == [described(field) for field in table.lance_schema.fields()]
    assert [field["type"] for field in fields] == [str(field.type) for field in table.schema]


def test_versions(run: Any, table: lance.LanceDataset) -> None:
    found = run("versions", table.uri, "--json").report["versions"]
    expected = table.versions()
    assert [one["version"] for one in found] == [one["version"] for one in expected]
    assert [one["tags"] for one in found] == [[], ["second"], [], []]
    for mine, theirs in zip(found, expected, strict=True):
        assert {name: str(mine[name]) for name in theirs["metadata"]} == theirs["metadata"]
        assert abs(local(mine["timestamp"]) - theirs["timestamp"]) < timedelta(microseconds=2)  # they round
    assert [one["version"] for one in run("versions", table.uri, "--tag", "second", "--json").report["versions"]] == [2]
    shown = run("versions", table.uri).out
    assert "second" in shown and not shown.lstrip().startswith("{")  # for people, unless asked for otherwise


def test_fragments(run: Any, table: lance.LanceDataset) -> None:
    found = run("fragments", table.uri, "--json").report["fragments"]
    for mine, theirs in zip(found, table.get_fragments(), strict=True):
        assert (mine["id"], mine["num_rows"]) == (theirs.fragment_id, theirs.count_rows())
        assert (mine["physical_rows"], mine["num_deleted_rows"]) == (theirs.physical_rows, theirs.num_deletions)
        for file, known in zip(mine["files"], theirs.data_files(), strict=True):
            assert file["path"] == f"data/{known.path}"
            assert (file["size_bytes"], file["field_ids"]) == (known.file_size_bytes, list(known.fields))
        deletions = mine["deletion_file"]
        assert (deletions is None) == (theirs.deletion_file() is None)
        assert deletions is None or (Path(table.uri) / deletions["path"]).exists()


def test_pages_of_a_file(run: Any, table: lance.LanceDataset, data_file: Path) -> None:
    (file,) = run("pages", data_file, "--json").report["files"]
    reader = LanceFileReader(str(data_file))
    statistics = reader.file_statistics().columns
    assert (file["path"], file["num_rows"], file["size_bytes"]) == (
        data_file.name,
        reader.num_rows(),
        data_file.stat().st_size,
    )
    assert [(one["num_pages"], one["num_bytes"]) for one in file["columns"]] == [
        (one.num_pages, one.size_bytes) for one in statistics
    ]
    by_name = {one["name"]: one for one in file["columns"]}
    assert by_name["id"]["layouts"] == ["mini-block"]
    assert by_name["wide"]["layouts"] == ["full-zip"]
    assert "dictionary" in by_name["word"]["codecs"][0]
    assert math.isclose(by_name["vector"]["bits_per_value"], 64 * 32, rel_tol=0.02)
    num_items = sum(len(one) for one in table.get_fragments()[0].to_table(["items"])["items"].to_pylist() if one)
    assert by_name["items.item"]["num_values"] >= num_items  # deleted rows are in the file


def test_pages_tell_how_levels_are_stored(run: Any, table: lance.LanceDataset, data_file: Path) -> None:
    (file,) = run("pages", data_file, "--json").report["files"]
    pages = [page for column in file["columns"] for page in column["pages"]]
    theirs = [page.encoding for column in LanceFileReader(str(data_file)).metadata().columns for page in column.pages]
    for mine, text in zip(pages, theirs, strict=True):
        if mine["layout"] == "mini-block":
            assert ("rep_compression: Some" in text, "def_compression: Some" in text) == (
                "repetition" in mine["levels"],
                "definition" in mine["levels"],
            )
        if mine["layout"] == "full-zip":
            bits = {"repetition": "bits_rep: 0", "definition": "bits_def: 0"}
            assert set(mine["levels"]) == {name for name, none in bits.items() if none not in text}
    by_name = {one["name"]: one for one in file["columns"]}
    assert by_name["id"]["levels"] == []
    assert by_name["items.item"]["levels"][0].startswith("repetition ")
    assert "+ repetition " in run("pages", table.uri).out
    assert "+ repetition " in run("pages", table.uri, "--each-page").out


def test_pages_of_a_dataset(run: Any, table: lance.LanceDataset) -> None:
    report = run("pages", table.uri, "--columns", "id,point", "--json").report
    assert len(report["files"]) == 3
    assert [one["name"] for one in report["columns"]] == ["id", "point.x", "point.y"]
    assert all(one["num_rows"] == 9000 and one["num_files"] == 3 for one in report["columns"])
    shown = run("pages", table.uri)
    assert shown.code == 0
    assert "3 data files" in shown.out
    assert "mini-block" in run("pages", table.uri, "--each-page").out


def test_search(run: Any, tmp_path: Path) -> None:
    rows = pa.table({"id": range(4), "t": ["cat dog", "dog cat", "bird", "cat"], "u": ["x", "bird", "y", "z"]})
    table = lance.write_dataset(rows, tmp_path / "texts.lance")
    for column in ("t", "u"):
        table.create_scalar_index(column, "INVERTED", with_position=True)

    def ids(*arguments: Any) -> list[int]:
        report = run("search", table.uri, *arguments, "--json").report
        return [row["id"] for row in report["rows"]]

    assert sorted(ids("bird")) == [1, 2]
    assert ids("bird", "--in", "u") == [1]
    assert sorted(ids("cat dog", "--in", "t", "--all")) == [0, 1]
    assert ids("cat dog", "--in", "t", "--phrase") == [0]
    assert ids("cat", "-n", 1, "--filter", "id = 3", "-c", "id") == [3]
    assert "cat dog" in run("search", table.uri, "cat").out
    assert run("search", table.uri, "cat dog", "--all").code == 2


def test_head(run: Any, table: lance.LanceDataset) -> None:
    report = run("head", table.uri, "-n", 5, "-c", "id,word", "-c", "point.x", "--json").report
    expected = table.head(5, columns=["id", "word", "point.x"])
    assert report["rows"] == expected.to_pylist()
    assert [one["type"] for one in report["columns"]] == [str(field.type) for field in expected.schema]
    everything = run("head", table.uri, "--json").report["rows"]
    assert everything == plain(table.head(10).to_pylist())
    shown = run("head", table.uri, "-n", 1).out
    assert "400 bytes" in shown
    assert "null" in shown


def test_long_cells_are_cut(run: Any, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"fits": ["f" * 60], "long": ["l" * 61]}), tmp_path / "t")
    shown = run("head", tmp_path / "t").out
    assert "f" * 60 in shown
    assert "l" * 59 + "…" in shown and "l" * 60 not in shown


def test_head_of_nanoseconds(run: Any, tmp_path: Path) -> None:
    time = pa.timestamp("ns")
    columns = {
        "at": pa.array([1, None], time),
        "many": pa.array([[1_000_000_001], []], pa.list_(time)),
        "inside": pa.array([{"d": 5}, None], pa.struct([("d", pa.duration("ns"))])),
    }
    lance.write_dataset(pa.table(columns), tmp_path / "t")
    assert run("head", tmp_path / "t", "--json").report["rows"] == [
        {"at": "1970-01-01 00:00:00.000000001", "many": ["1970-01-01 00:00:01.000000001"], "inside": {"d": 5}},
        {"at": None, "many": [], "inside": None},
    ]


def test_head_of_days_beyond_those_of_python(run: Any, tmp_path: Path) -> None:
    columns = {
        "row": pa.array([0, 1]),
        "at": pa.array([2**41, 0], pa.timestamp("s")),
        "days": pa.array([[2**25], [1]], pa.list_(pa.date32())),
        "span": pa.array([2**50, 60], pa.duration("s")),
        "day": pa.array([1, None], pa.date32()),
    }
    lance.write_dataset(pa.table(columns), tmp_path / "t")
    first, second = run("head", tmp_path / "t", "--json").report["rows"]
    assert str(2**41) in first["at"]
    assert str(2**25) in first["days"][0]
    assert (first["span"], first["day"]) == (2**50, "1970-01-02")
    assert second == {"row": 1, "at": "1970-01-01 00:00:00", "days": ["1970-01-02"], "span": 60, "day": None}
    assert run("head", tmp_path / "t").code == 0


def test_count_of_versions(run: Any, table: lance.LanceDataset) -> None:
    assert run("count", table.uri).out == f"{table.count_rows()}\n"
    assert run("count", table.uri, "--version", 1, "--json").report == {"version": 1, "num_rows": 3000}
    assert run("count", table.uri, "--tag", "second", "--json").report == {"version": 2, "num_rows": 6000}


def test_filters(run: Any, table: lance.LanceDataset) -> None:
    chosen = "id % 7 = 3 and word is not null"
    assert run("count", table.uri, "--filter", chosen).out == f"{table.count_rows(chosen)}\n"
    report = run("head", table.uri, "-n", 4, "-c", "id", "-f", chosen, "--json").report
    assert report["rows"] == table.to_table(["id"], chosen, limit=4).to_pylist()


def test_bench(run: Any, table: lance.LanceDataset) -> None:
    report = run("bench", table.uri, "-c", "id,text", "--take-rows", "1,10,1000000", "--json").report
    assert [one["columns"] for one in report["scans"]] == ["id", "text", "all columns"]
    assert all(one["num_rows"] == table.count_rows() for one in report["scans"])
    assert [(one["num_rows"], one["cold"]) for one in report["takes"]] == [
        (1, True),
        (1, False),
        (10, True),
        (10, False),
    ]
    assert all(one["num_requests"] > 0 and one["num_bytes"] > 0 for one in report["scans"] + report["takes"])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_draws_and_gives_json(run: Any, table: lance.LanceDataset, command: str) -> None:
    few = ["--take-rows", "1", "--no-scan"] if command == "bench" else []
    drawn, written = run(command, table.uri, *few), run(command, table.uri, *few, "--version", 2, "--json")
    assert drawn.code == 0
    assert drawn.out.strip()
    assert drawn.err == ""
    assert json.loads(written.out)


def test_of_an_empty_table(run: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "empty")
    lance.write_dataset(pa.table({"a": pa.array([], pa.int32())}), uri)
    assert run("count", uri).out == "0\n"
    assert run("head", uri, "--json").report["rows"] == []
    assert run("pages", uri).code == run("explain", uri).code == run("bench", uri).code == 0


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_missing_dataset_is_one_line(run: Any, tmp_path: Path, command: str) -> None:
    ran = run(command, tmp_path / "nothing")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ")
    assert len(ran.err.splitlines()) == 1
    assert "nothing" in ran.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--version", "1", "--tag", "second"], "--tag"),
        (["--storage-option", "hunter2"], "KEY=VALUE"),
        (["--frobnicate"], "--frobnicate"),
    ],
)
def test_senseless_calls_exit_with_2(run: Any, table: lance.LanceDataset, arguments: list[str], word: str) -> None:
    ran = run("info", table.uri, *arguments)
    assert ran.code == 2
    assert word in ran.err
    assert "hunter2" not in ran.err


def test_other_failures(run: Any, table: lance.LanceDataset, tmp_path: Path) -> None:
    assert run("head", table.uri, "-c", "Id").code == 1
    assert "Did you mean 'id'" in run("head", table.uri, "-c", "Id").err
    assert "No column named zz" in run("pages", table.uri, "-c", "zz").err
    assert "version 99" in run("count", table.uri, "-v", 99).err
    assert "tag nope" in run("count", table.uri, "--tag", "nope").err
    assert "no store provider" in run("count", "no-such-scheme://x/y").err.lower().replace("object store", "store")
    (tmp_path / "not.lance").write_bytes(b"this is no data file at all, but long enough to have a footer")
    assert run("pages", tmp_path / "not.lance").code == 1
    assert run("explain", table.uri, "--take", "9000000").code != 0


@pytest.mark.parametrize("rows", ["0-99999999999", "9" * 30, "0-" + "9" * 5000, "5,0-9999999"])
def test_rows_beyond_any_bound(run: Any, table: lance.LanceDataset, rows: str) -> None:
    ran = run("explain", table.uri, "--take", rows)
    assert (ran.code, ran.err.startswith("error: --take: ")) == (2, True)


def test_control_characters_do_not_reach_the_terminal(run: Any, tmp_path: Path) -> None:
    text = "a\x1b[31mred\nb\tc\u202e\x9b"
    lance.write_dataset(pa.table({text: [text]}), tmp_path / "t")
    ran = run("head", tmp_path / "t")
    assert r"a\x1b[31mred\nb\tc\u202e\x9b" in ran.out
    assert run("head", tmp_path / "t", "--json").report["rows"] == [{text: text}]
    for command in COMMANDS:
        assert not {"\x1b", "\u202e", "\x9b"} & set(run(command, tmp_path / "t").out)
    assert r"\x1b[2J" in run("info", tmp_path / "\x1b[2J").err


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_output_that_is_not_utf8_lacks_no_rows(tmp_path: Path, options: tuple[str, ...]) -> None:
    lance.write_dataset(pa.table({"s": ["grün 日本"]}), tmp_path / "t")
    program = [sys.executable, "-m", "lance_io.cli.main", "head", tmp_path / "t", *options]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(program, check=True, capture_output=True, env=environment, timeout=60)
    if options:
        assert json.loads(done.stdout)["rows"] == [{"s": "grün 日本"}]
    else:
        assert r"grün \u65e5\u672c" in done.stdout.decode("latin-1")


def test_standard_streams_may_be_closed(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    program = f"{sys.executable} -m lance_io.cli.main"
    for arguments in ("head {} >&- 2>&-", "head {} --json >&-", "delete {} 'a = 2' <&-"):
        command = f"{program} {arguments.format(shlex.quote(str(tmp_path / 't')))}"
        done = subprocess.run(command, shell=True, check=False, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_secrets_stay_secret(run: Any, table: lance.LanceDataset, tmp_path: Path) -> None:
    secret = "aws_secret_access_key=s3cr3t-value"
    for uri in (table.uri, tmp_path / "nothing", "s3://no-such-bucket.invalid"):
        options = ["-o", secret, "-o", "aws_endpoint=http://127.0.0.1:1", "-o", "allow_http=true"]
        options += ["-o", "aws_access_key_id=AKIDSECRET", "-o", "client_max_retries=0", "-o", "aws_region=x"]
        ran = run("info", uri, *options)
        assert "s3cr3t" not in ran.out + ran.err
        assert "AKIDSECRET" not in ran.out + ran.err


def test_debug_shows_the_traceback(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_IO_DEBUG", "1")
    with pytest.raises(FileNotFoundError, match="not found"):
        run("info", tmp_path / "nothing")


def test_bugs_are_not_hidden(run: Any, table: lance.LanceDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr("lance_io.cli.inspect._info", broken)
    with pytest.raises(AssertionError, match="planted"):
        run("info", table.uri)


# -- small parts -------------------------------------------------------------------------------------------------------


def test_texts_of_options() -> None:
    assert column_names(["a, b", "`x,y`.z"]) == ["a", "b", "`x,y`.z"]
    assert column_names(None) is None
    assert row_numbers("0,5,7-9") == [0, 5, 7, 8, 9]
    assert storage_options(["a=b=c", "k="]) == {"a": "b=c", "k": ""}
    refused: list[tuple[Callable[[Any], object], Any]] = [
        (row_numbers, "1,x"),
        (row_numbers, "9-2"),
        (storage_options, ["=x"]),
    ]
    for function, text in refused:
        with pytest.raises(UsageError):
            function(text)


def test_version_and_help(run: Any) -> None:
    assert run("--version").out.startswith("lance-io ")
    shown = run("--help").out
    assert all(command in shown for command in COMMANDS)
    assert app.info.name == "lance-io"


def test_progress_shows_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown: dict[float, str] = {}
    for delay in (0.0, 3600.0):
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        monkeypatch.setattr(output, "PROGRESS_AFTER_SECONDS", delay)
        started = threading.Event()
        monkeypatch.setattr(Progress, "start", lambda self, event=started: (_START(self), event.set()))
        with output.progress("counting sheep", 2) as step:
            step()
            assert delay or started.wait(10)
        shown[delay] = terminal.getvalue()
    assert "counting sheep" in shown[0.0]
    assert shown[3600.0] == ""


def test_a_closed_pipe_is_no_failure(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": range(50_000)}), tmp_path / "t")
    program = [sys.executable, "-m", "lance_io.cli.main", "head", tmp_path / "t", "-n", "50000", "--json"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "{\n"
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, lance_io.cli.main; print(sorted({'numpy', 'pyarrow', 'asyncio'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--help"], "Usage"),
        (["head", "--help"], "Usage"),
        (["head"], "Missing argument"),
        (["head", "t", "--bogus"], "No such option"),
        (["restore", "t"], "restore needs --version or --tag"),
        (["tag", "t", "create"], "tag create needs the name of a tag"),
        (["cleanup", "t", "--dry-run", "--yes"], "contradict each other"),
        (["explain", "t", "--take", "1", "--limit", "2"], "belong to a scan"),
        (["bench", "t", "--take-rows", "many"], "expected numbers"),
    ],
)
def test_what_arguments_alone_show_loads_nothing_heavy(arguments: list[str], told: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, timeout=60)
    assert told in done.stdout + done.stderr
    assert not {"numpy", "pyarrow", "asyncio", "lance_io.store"} & {*done.stdout.splitlines()[-1].split()}


def test_json_for_programs_is_not_drawn(table: lance.LanceDataset) -> None:
    command = [sys.executable, "-c", LOADED, "count", table.uri, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    loaded = done.stdout.splitlines()[-1].split()
    assert "pyarrow" in loaded
    assert not {"rich.table", "rich.progress"} & {*loaded}


def test_plain_values() -> None:
    assert plain({"x": [b"\x00\xff", math.nan, datetime(2020, 1, 2, tzinfo=UTC)]}) == {
        "x": ["AP8=", "nan", "2020-01-02T00:00:00+00:00"]
    }
