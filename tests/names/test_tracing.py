"""`lance_io.tracing`: events of the same calls, compared with those that pylance tells in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io import tracing
from lance_io.io import trace_events

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import contextlib, importlib, json, sys
from datetime import timedelta
import pyarrow as pa
name, uri, out = sys.argv[1:]
library, tracing = importlib.import_module(name), importlib.import_module(name + ".tracing")
seen, steps = [], []
tracing.capture_trace_events(seen.append)
def step(what):
    steps.append(what)
    with contextlib.suppress(Exception):
        library.dataset(uri + "/mark_" + what)  # an event that says how far it is, whenever it comes
rows = pa.table({"a": range(100)})
table = library.write_dataset(rows, uri); step("create")
table = library.dataset(uri); step("open")
table.to_table(); step("scan")
table.to_table(filter="a > 90"); step("filter")
list(table.to_batches(columns=["a"])); step("batches")
list(table.get_fragments()[0].to_batches()); step("fragment")
table.take([1]); table.count_rows(); step("told_of_nothing")
table.insert(rows); step("append")
table.delete("a = 4"); step("delete")
table.update({"a": "a + 1"}, where="a = 5"); step("update")
table.optimize.compact_files(); step("compact")
table.tags.create("t", 1); step("tag")
library.dataset(uri, version=1); library.dataset(uri, version="t"); step("versions")
with contextlib.suppress(Exception): library.dataset(uri, version=99)
with contextlib.suppress(Exception): library.dataset(uri, version="nope")
step("failing")
table.tags.delete("t"); step("untag")
table.cleanup_old_versions(timedelta(0), delete_unverified=True); step("cleanup")
table.cleanup_old_versions(timedelta(0)); step("again")
library.write_dataset(rows, uri, mode="overwrite"); step("overwrite")
library.fragment.write_fragments(rows, uri); step("fragments")
import atexit
def save():
    with open(out, "w") as file: json.dump([[one.target, one.args] for one in seen], file)
if name == "lance":
    from lance.lance import shutdown_tracing
    shutdown_tracing()
    save(); import os; os._exit(0)
atexit._run_exitfuncs(); save()
"""


def events_by_step(library: str, folder: Path) -> dict[str, list[tuple[str, dict[str, str]]]]:
    """What a library tells of each step, run in a process of its own: pylance captures once in each."""
    uri, out = str(folder / library), folder / f"{library}.json"
    environment = os.environ | {"PYTHONPATH": str(Path(lance_io.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", PROGRAM, library, uri, str(out)], check=True, env=environment, timeout=100)
    steps: dict[str, list[tuple[str, dict[str, str]]]] = {}
    now: list[tuple[str, dict[str, str]]] = []
    for target, args in json.loads(out.read_text()):
        if "/mark_" in args.get("uri", ""):
            steps[args["uri"].partition("/mark_")[2]] = now
            now = []
        else:
            now.append((target, {name: value.replace(str(folder / library), "TABLE") for name, value in args.items()}))
    return steps


VARYING = ("timestamp", "client_version", "path", "plan_summary", "iops", "requests", "bytes_read")


def comparable(events: list[tuple[str, dict[str, str]]], *, commits: bool) -> list[tuple[str, Any]]:
    """Events without what differs from run to run, and without what only one of the libraries tells."""
    found = []
    for target, args in events:
        if not commits and (args.get("event") == "committed" or args.get("type") == "manifest"):
            continue
        found.append((target, sorted((name, value) for name, value in args.items() if name not in VARYING)))
    return sorted(found)


def test_events_are_those_of_pylance(tmp_path: Path) -> None:
    ours, theirs = (events_by_step(library, tmp_path) for library in ("lance_io", "lance"))
    assert ours.keys() == theirs.keys()
    assert len(ours) == 19
    inner = {"create": "loading", "overwrite": "loading", "fragments": "loading"}  # openings by the write itself
    for step, events in theirs.items():
        if step in inner:
            events = [one for one in events if one[1].get("event") != inner[step]]
        if step in ("delete", "update", "compact"):  # scans by the change itself
            events = [one for one in events if one[0] != "lance::execution"]
        commits = step != "compact"
        assert comparable(ours[step], commits=commits) == comparable(events, commits=commits), step
    for step in ("scan", "append", "delete", "cleanup"):
        keys = {(target, *sorted(args)) for target, args in ours[step]}
        expected = {(target, *sorted(args)) for target, args in theirs[step]}
        assert keys == {one for one in expected if step != "delete" or one[0] != "lance::execution"}


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """What happens from here on."""
    found: list[Any] = []
    stop = trace_events.listen(found.append)
    yield found
    stop()


def test_paths_are_those_of_files(tmp_path: Path, events: list[Any]) -> None:
    uri = str(tmp_path / "t")
    table = lance_io.write_dataset(pa.table({"a": range(10)}), uri)
    table.delete("a = 1")
    made = [one.args for one in events if one.target == trace_events.FILES]
    assert [one["type"] for one in made] == ["data", "manifest", "deletion", "manifest"]
    assert (tmp_path / "t" / "data" / made[0]["path"]).exists()
    assert all(Path("/", one["path"]).exists() for one in made[1:])
    events.clear()
    lance_io.write_dataset(pa.table({"a": range(10)}), uri, mode="overwrite").cleanup_old_versions(timedelta(0))
    gone = [one.args for one in events if one.args.get("mode", "").startswith("delete")]
    assert sorted(one["type"] for one in gone) == ["data", "deletion", "manifest", "manifest"]
    assert {one["mode"] for one in gone} == {"delete"}
    assert not any(Path("/", one["path"]).exists() for one in gone)


def test_scans_from_a_coroutine_and_by_other_ways(tmp_path: Path, events: list[Any]) -> None:
    uri = str(tmp_path / "t")
    lance_io.write_dataset(pa.table({"a": range(10)}), uri)
    events.clear()

    async def work() -> None:
        async with lance_io.AsyncDataset.open(uri) as table:
            await table.to_table(filter="a > 4")
            async for _ in table.to_batches():
                pass

    asyncio.run(work())
    lance_io.dataset(uri).scanner(limit=3).to_reader().read_all()
    assert [one.args.get("output_rows", one.args.get("event")) for one in events] == [
        "loading",
        "5",
        "10",
        "loading",
        "3",
    ]
    assert {one.args["client_version"] for one in events} == {lance_io.__version__}


def test_a_callback_is_called_by_a_thread_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen, uri = [], str(tmp_path / "t")

    def note(event: Any) -> None:
        seen.append((event.target, event.args["event"], threading.current_thread()))
        raise ValueError("not our problem")

    lance_io.write_dataset(pa.table({"a": [1]}), uri)
    stop = tracing.capture_trace_events(note)
    lance_io.dataset(uri)
    stop()
    stop_other = tracing.capture_trace_events(lambda _: None)
    lance_io.dataset(uri)
    stop_other()
    assert [one[:2] for one in seen] == [(trace_events.DATASET, "loading")]
    assert seen[0][2] is not threading.current_thread()
    (record,) = caplog.records
    assert record.exc_info is not None and str(record.exc_info[1]) == "not our problem"
    assert trace_events.listeners == ()


def test_chrome_gets_a_slice_for_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, path = str(tmp_path / "t"), tmp_path / "trace.json"
    finish = tracing.trace_to_chrome(file=str(path))
    lance_io.write_dataset(pa.table({"a": [1]}), uri).to_table()
    with pytest.raises(ValueError):
        lance_io.dataset(uri, version=9)
    finish()
    finish()
    lance_io.dataset(uri)
    slices = [one for one in json.loads(path.read_text()) if one["ph"] == "X"]
    assert [(one["name"], one["args"]["failed"]) for one in slices] == [
        ("write", False),
        ("scan", False),
        ("open", True),
    ]
    assert all(one["ts"] >= 0 and one["dur"] > 0 for one in slices)
    assert [one["ts"] for one in slices] == sorted(one["ts"] for one in slices)
    monkeypatch.chdir(tmp_path)
    tracing.trace_to_chrome()()
    (made,) = tmp_path.glob("trace-*.json")
    assert len(json.loads(made.read_text())) == 1


def test_a_forked_child_tells_nobody(tmp_path: Path, events: list[Any]) -> None:
    child = os.fork()
    if not child:
        os._exit(len(trace_events.listeners))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert trace_events.listeners


def test_events_for_a_slow_callback_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "WAITING_MAX", 10)
    begun, may_go_on = threading.Event(), threading.Event()
    given: list[str] = []

    def slow(event: Any) -> None:
        begun.set()
        assert may_go_on.wait(60)
        given.append(event.args["event"])

    stop = tracing.capture_trace_events(slow)
    trace_events.emit_dataset("first", "t")
    assert begun.wait(60)  # the queue is empty now
    for number in range(15):
        trace_events.emit_dataset(str(number), "t")
    may_go_on.set()
    stop()
    assert given == ["first", *map(str, range(10))]
    assert [one.getMessage().split(": ")[1] for one in caplog.records] == [
        f"{left} dropped so far" for left in (1, 2, 4)
    ]
