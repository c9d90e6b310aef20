"""How far a scan goes ahead: pieces decoded and fragments begun before the consumer wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io import limits
from lance_io.file.scan import scan_async as scan_async
from lance_io.file.scan.readahead import PIECES_AHEAD, Readahead, readahead
from lance_io.file.scan.scan_sync import _PieceQueue
from lance_io.file.scan.templates import small_files
from lance_io.file.table_reader import TableReader
from lance_io.io.budget import process_pool
from lance_io.plans.plan import drive_sync
from lance_io.reads.scan.read_spans import SpanReader
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.store.profile import CLOUD
from lance_io.testing.latency import LatencyStore, run_virtual

if TYPE_CHECKING:
    from pathlib import Path

FRAGMENTS = 6
ROWS = 2000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six fragments of one page per column."""
    path = str(tmp_path_factory.mktemp("ahead") / "table.lance")
    columns = pa.table({"a": range(FRAGMENTS * ROWS), "b": [f"{i}" for i in range(FRAGMENTS * ROWS)]})
    lance.write_dataset(columns, path, max_rows_per_file=ROWS)
    return path


@pytest.mark.parametrize(
    ("pieces", "spans", "begun"),
    [(1, 8, [0]), (3, 8, [0, 0, 1]), (7, 2, [0, 0, 1, 1, 2, 2]), (100, 1, [0, 0, 1, 1]), (100, 100, None)],
)
def test_pieces_and_fragments_ahead(uri: str, pieces: int, spans: int, begun: list[int] | None) -> None:
    state = lance_io.dataset(uri)._state
    options = scan_options()
    reader = SpanReader(state, drive_sync(plan_scan(state, options)), options, None)
    assert reader._reader is not None
    ahead = _PieceQueue(state.context, reader._reader.projection, reader._spans, readahead(pieces, spans))
    expected = begun or [index for index in range(FRAGMENTS) for _ in "ab"]
    assert [job.first[0] for job in ahead._jobs] == expected
    ahead.pop()
    ahead.pop()
    assert ahead._jobs[0].first[0] == 1
    assert len(ahead._jobs) <= pieces
    ahead.close()


def test_defaults() -> None:
    assert readahead(None, None) == Readahead()
    assert readahead(2, None).pieces == 2
    assert readahead(None, 3) == Readahead(PIECES_AHEAD, 3)


@pytest.mark.parametrize(("pieces", "spans"), [(1, 1), (1, 4), (50, 1), (50, 50)])
async def test_the_rows_are_the_same(uri: str, pieces: int, spans: int) -> None:
    table = lance_io.dataset(uri)
    options: dict[str, Any] = {"batch_readahead": pieces, "fragment_readahead": spans, "batch_size": 700}
    expected = table.to_table()
    assert pa.Table.from_batches(table.to_batches(**options)) == expected
    assert table.to_table(**options) == expected
    twin = lance_io.AsyncDataset.of(table)
    assert pa.Table.from_batches([batch async for batch in twin.to_batches(**options)]) == expected


class SlowCloud(LatencyStore):
    """Plans as for a bucket: small files are read whole, in one round."""

    profile = CLOUD


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Forty files of a kilobyte or so each."""
    path = str(tmp_path_factory.mktemp("ahead") / "many.lance")
    lance.write_dataset(pa.table({"a": range(400)}), path, max_rows_per_file=10)
    return path


@pytest.mark.parametrize(
    ("spans_ahead", "room_files", "rounds_min"),
    [(None, 0, 1), (None, 100, 1), (None, 12, 4), (8, 0, 5), (20, 0, 2)],
    ids=["no bound", "room for all", "room for twelve", "eight asked for", "twenty asked for"],
)
def test_small_files_are_opened_together(many: str, spans_ahead: int | None, room_files: int, rounds_min: int) -> None:
    """By an ordered scan on a store whose answers take a second each; so many files fit what may be read ahead."""
    state = lance_io.dataset(many, session=lance_io.Session())._state
    sizes = [file.size_bytes or 0 for place in state.all_fragment_indexes for file in state.sources[place].files]
    store = SlowCloud(state.location.store)
    context = replace(state.context, store=store, io_buffer_bytes=room_files * max(sizes))
    reader = TableReader(context, state.schema.fields)
    spans = [(state.sources[place], 0, 10) for place in state.all_fragment_indexes]

    async def scan() -> list[int]:
        found = [batch async for batch in reader.scan(spans, 100, in_order=True, spans_ahead=spans_ahead)]
        return [value for batch in found for value in batch.arrays[0].to_pylist()]

    values, took_s = run_virtual(scan)
    assert values == list(range(400))
    assert took_s == 1 if rounds_min == 1 else took_s >= rounds_min


@pytest.mark.parametrize(
    ("columns", "pieces_asked_for", "bytes_max", "jobs"),
    [
        (4, None, limits.SCAN_GROUP_BYTES, FRAGMENTS),  # those of a file go together
        (4, 3, limits.SCAN_GROUP_BYTES, 4 * FRAGMENTS),  # so many are to be decoded ahead: each counts
        (4, None, 1, 4 * FRAGMENTS),
        (1, None, limits.SCAN_GROUP_BYTES, FRAGMENTS),
    ],
    ids=["small", "asked for", "large", "one column"],
)
async def test_small_pages_of_a_file_are_one_job_on_the_loop(
    columns: int,
    pieces_asked_for: int | None,
    bytes_max: int,
    jobs: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = pa.table({"id": range(FRAGMENTS * ROWS), "none": pa.nulls(FRAGMENTS * ROWS, pa.int8())})
    whole = whole.append_column("text", pa.array([f"text {i}" for i in range(FRAGMENTS * ROWS)]))
    whole = whole.append_column("list", pa.array([[i, None] * (i % 3) for i in range(FRAGMENTS * ROWS)]))
    rows = whole.select(whole.column_names[:columns])
    lance.write_dataset(rows, tmp_path / "t.lance", max_rows_per_file=ROWS)
    made: list[int] = []
    real = scan_async._Job.__init__

    def counted(self: Any, group: Any, *arguments: Any) -> None:
        made.append(len(group))
        real(self, group, *arguments)

    monkeypatch.setattr(scan_async._Job, "__init__", counted)
    monkeypatch.setattr(small_files, "RUN_PAGES_MIN", 1000)  # files that look alike go another way
    monkeypatch.setattr(limits, "SCAN_GROUP_BYTES", bytes_max)
    monkeypatch.setattr(limits, "SCAN_JOB_BYTES", bytes_max)  # where there is one processor
    table = lance_io.AsyncDataset.of(lance_io.dataset(tmp_path / "t.lance", session=lance_io.Session()))
    held_bytes = process_pool().capacity_bytes - process_pool().avail_bytes
    assert await table.to_table(batch_readahead=pieces_asked_for, timeout=100) == rows  # which needs the loop
    assert (len(made), sum(made)) == (jobs, columns * FRAGMENTS)
    assert process_pool().capacity_bytes - process_pool().avail_bytes == held_bytes
    batches = [batch async for batch in table.to_batches(batch_readahead=pieces_asked_for, batch_size=700)]
    assert pa.Table.from_batches(batches) == rows
