"""Scans of a process with one processor: the caller decodes what it waits for, the pool what it does not need yet."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.file.scan import scan_sync as scan_sync
from lance_io.file.scan.readahead import Readahead
from lance_io.plans.plan import drive_sync
from lance_io.reads.scan.read_spans import SpanReader
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.scan.scan_plan import plan_scan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 40_000
ROWS_PER_FILE = 10_000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("one") / "table.lance")
    rows = pa.table({"a": range(ROWS), "b": [f"row {i}" for i in range(ROWS)]})
    lance.write_dataset(rows, path, max_rows_per_file=ROWS_PER_FILE)
    return path


@pytest.fixture(autouse=True)
def one_processor() -> Iterator[None]:
    runtime.use_cpus(1)
    yield
    runtime.use_cpus(None)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Which thread has done each job, in the order of their beginnings."""
    found: list[threading.Thread] = []
    decode = scan_sync._PieceQueue._decode

    def noted(self: Any, job: Any) -> list[pa.Array]:
        found.append(threading.current_thread())
        return decode(self, job)

    monkeypatch.setattr(scan_sync._PieceQueue, "_decode", noted)
    return found


@pytest.fixture
def ahead(uri: str) -> Iterator[scan_sync._PieceQueue]:
    """The pieces of the table, a job for each; closed at the end, as scans close theirs."""
    state, options = lance_io.dataset(uri)._state, scan_options()
    reader = SpanReader(state, drive_sync(plan_scan(state, options)), options, None)
    assert reader._reader is not None
    readahead = Readahead(6, 8, is_explicit=True)
    pieces = scan_sync._PieceQueue(state.context, reader._reader.projection, reader._spans, readahead)
    yield pieces
    pieces.close()


def test_the_caller_does_what_it_waits_for(threads: list[threading.Thread], ahead: scan_sync._PieceQueue) -> None:
    for _ in range(8):
        ahead.pop()
    assert threads == [threading.current_thread()] * 8
    assert ahead._held._held_bytes == 0


def test_the_pool_does_what_is_not_needed_yet(threads: list[threading.Thread], ahead: scan_sync._PieceQueue) -> None:
    ahead.pop()
    ahead.submit_all()
    futures = [job._future for job in ahead._jobs]
    for future in futures:
        assert future is not None
        future.result()
    for _ in futures:
        ahead.pop()
    assert threads[0] is threading.current_thread()
    assert threading.current_thread() not in threads[1 : 1 + len(futures)]
    ahead.close()
    assert ahead._held._held_bytes == 0


def test_what_was_not_begun_is_taken_back(threads: list[threading.Thread], ahead: scan_sync._PieceQueue) -> None:
    may_end = threading.Event()
    busy = runtime.cpu_pool().submit(may_end.wait)
    ahead.submit_all()
    for _ in range(3):
        ahead.pop()
    assert threads == [threading.current_thread()] * 3
    ahead.close()
    assert ahead._held._held_bytes == 0
    may_end.set()
    busy.result()
    assert len(threads) == 3


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_a_failure_gives_back_what_it_held(
    ahead: scan_sync._PieceQueue, is_handed_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(group: Any, allowance: Any) -> Any:
        raise OSError("the disk is gone")

    monkeypatch.setattr(scan_sync, "read_group", failing)
    if is_handed_over:
        ahead.submit_all()
    with pytest.raises(OSError, match="gone"):
        ahead.pop()
    ahead.close()
    runtime.cpu_pool().submit(int).result()  # what the pool had begun has ended
    assert ahead._held._held_bytes == 0


def test_a_caller_who_is_interrupted_while_it_hands_over_gives_back_once(
    ahead: scan_sync._PieceQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool has the job by then, and the caller does not know."""
    pool = runtime.cpu_pool()
    submit = pool.submit

    def interrupted(*arguments: Any) -> Any:
        submit(*arguments).result()
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ahead.submit_all()
    ahead.close()
    assert ahead._held._held_bytes == 0


@pytest.mark.parametrize("filter", [None, "a % 3 = 1"])
def test_the_rows_are_those_of_pylance(uri: str, filter: str | None) -> None:
    ours, theirs = lance_io.dataset(uri), lance.dataset(uri)
    expected = theirs.to_table(filter=filter)
    assert ours.to_table(filter=filter) == expected
    assert pa.Table.from_batches(ours.to_batches(filter=filter, batch_size=700)) == expected


def test_what_is_written_is_the_same(uri: str, tmp_path: Path) -> None:
    rows = lance.dataset(uri).to_table()
    lance_io.write_dataset(rows, tmp_path / "alone.lance", max_rows_per_file=ROWS_PER_FILE)
    assert lance.dataset(str(tmp_path / "alone.lance")).to_table() == rows
