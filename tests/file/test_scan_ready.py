"""Scans without order: what is ready comes, what is not holds nothing up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import StoreError
from lance_io.file.table_reader import TableReader
from lance_io.testing.wrap import Request, WrappedStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.store.api import ObjectStore

FRAGMENTS, ROWS = 5, 400


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("ready") / "table.lance")
    numbers = range(FRAGMENTS * ROWS)
    rows = pa.table({"a": numbers, "b": [f"{i}" * 20 for i in numbers], "l": [[i] * (i % 4) for i in numbers]})
    lance.write_dataset(rows, path, max_rows_per_file=ROWS).delete("a % 7 = 3")
    return path


class HeldStore(WrappedStore):
    """Answers no request for one object before it is released, and then perhaps with an error."""

    def __init__(self, inner: ObjectStore, key: str, error: Exception | None = None) -> None:
        super().__init__(inner)
        self._key = key
        self._error = error
        self.released = asyncio.Event()

    async def request(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        if request.key == self._key:
            await self.released.wait()
            if self._error is not None:
                raise self._error
        return await send()


def held_scan(uri: str, error: Exception | None = None, **options: Any) -> tuple[HeldStore, Any]:
    """A scan of all fragments, of which the first is held."""
    state = lance_io.dataset(uri, session=lance_io.Session())._state
    sources = [state.sources[place] for place in state.all_fragment_indexes]
    store = HeldStore(state.location.store, sources[0].files[0].key, error)
    reader = TableReader(replace(state.context, store=store), state.schema.fields)
    spans = [(source, 10, ROWS) for source in sources]
    return store, reader.scan(spans, 100, in_order=False, **options)


async def test_others_come_while_one_is_held(uri: str) -> None:
    store, batches = held_scan(uri)
    early = [await anext(batches) for _ in range(4 * (FRAGMENTS - 1))]
    assert {batch.span_index for batch in early} == {1, 2, 3, 4}
    store.released.set()
    late = [batch async for batch in batches]
    assert [(batch.span_index, batch.row_start) for batch in late] == [(0, start) for start in (10, 110, 210, 310)]
    for span in range(FRAGMENTS):
        mine = [batch for batch in early + late if batch.span_index == span]
        assert [batch.row_start for batch in mine] == [10, 110, 210, 310]
        values = pa.concat_arrays([batch.arrays[0] for batch in mine]).to_pylist()
        assert values == list(range(span * ROWS + 10, (span + 1) * ROWS))


async def test_no_more_spans_are_begun_than_may_be(uri: str) -> None:
    store, batches = held_scan(uri, spans_ahead=2, pieces_ahead=1)
    assert [(await anext(batches)).span_index for _ in range(16)] == [span for span in (1, 2, 3, 4) for _ in range(4)]
    store.released.set()
    assert [batch.span_index async for batch in batches] == [0] * 4


async def test_one_span_at_a_time(uri: str) -> None:
    store, batches = held_scan(uri, spans_ahead=1, pieces_ahead=1)
    first = asyncio.ensure_future(anext(batches))
    await asyncio.wait({first}, timeout=0.2)  # another span would be here by now
    store.released.set()
    found = [(await first).span_index, *[batch.span_index async for batch in batches]]
    assert found == [span for span in range(FRAGMENTS) for _ in range(4)]


async def test_what_is_under_way_ends_with_the_scan(uri: str) -> None:
    before = asyncio.all_tasks()
    _, batches = held_scan(uri)
    await anext(batches)
    await batches.aclose()
    assert asyncio.all_tasks() == before


async def test_an_error_ends_the_scan(uri: str) -> None:
    before = asyncio.all_tasks()
    store, batches = held_scan(uri, StoreError("refused by the test"))
    store.released.set()
    with pytest.raises(StoreError, match="refused by the test"):
        async for _ in batches:
            pass
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"filter": "a % 3 = 1"},
        {"filter": "a > 100", "late_materialization": True, "batch_size": 50},
        {"limit": 700, "offset": 100},
        {"columns": ["a"], "with_row_id": True, "with_row_address": True},
        {"batch_size": 64, "fragment_readahead": 2, "io_buffer_size": 1000},
    ],
    ids=["all", "filter", "late", "window", "system", "bounded"],
)
async def test_the_rows_are_the_same_in_some_order(uri: str, options: dict[str, Any]) -> None:
    table = lance_io.dataset(uri)
    expected = table.to_table(**options)
    twin = lance_io.AsyncDataset.of(table)
    batches = [batch async for batch in twin.to_batches(scan_in_order=False, **options)]
    assert pa.Table.from_batches(batches, expected.schema).sort_by("a") == expected.combine_chunks()
    assert table.to_table(scan_in_order=False, **options) == expected, "where bytes are at hand the order is kept"
