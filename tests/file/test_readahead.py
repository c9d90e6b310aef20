"""How far a scan goes ahead: pieces decoded and fragments begun before the consumer wants them."""

from __future__ import annotations

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
