"""How far a scan goes ahead: pieces decoded and fragments begun before the consumer wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.commit.steps import drive_now
from lance_io.dataset.options import scan_options
from lance_io.dataset.reading import SpanReader
from lance_io.dataset.scan import plan_scan
from lance_io.file.scan import PIECES_AHEAD, Readahead, readahead
from lance_io.file.scan_now import _Ahead
from lance_io.file.table import TableReader
from lance_io.store.api import CLOUD
from lance_io.testing.latency import LatencyStore, run_virtual

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
    reader = SpanReader(state, drive_now(plan_scan(state, options)), options, None)
    assert reader._reader is not None
    ahead = _Ahead(state.context, reader._reader.projection, reader._spans, readahead(pieces, spans))
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
    sizes = [file.size_bytes or 0 for place in state.all_places for file in state.sources[place].files]
    store = SlowCloud(state.location.store)
    context = replace(state.context, store=store, io_buffer_bytes=room_files * max(sizes))
    reader = TableReader(context, state.schema.fields)
    spans = [(state.sources[place], 0, 10) for place in state.all_places]

    async def scan() -> list[int]:
        found = [batch async for batch in reader.scan(spans, 100, in_order=True, spans_ahead=spans_ahead)]
        return [value for batch in found for value in batch.arrays[0].to_pylist()]

    values, took_s = run_virtual(scan)
    assert values == list(range(400))
    assert took_s == 1 if rounds_min == 1 else took_s >= rounds_min
