"""The asynchronous dataset: same results as the synchronous one, from any loop; early ends leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_io

if TYPE_CHECKING:
    from pathlib import Path


async def test_everything_equals_the_synchronous_dataset(mixed_uri: str) -> None:
    sync = lance_io.dataset(mixed_uri)
    async with lance_io.AsyncDataset.open(mixed_uri) as table:
        assert (table.version, table.schema, table.uri) == (sync.version, sync.schema, sync.uri)
        assert table.data_storage_version == "2.1"
        assert await table.to_table() == sync.to_table()
        chosen = pc.field("doubled") > 100
        assert await table.to_table(["s"], chosen, limit=5, offset=2) == sync.to_table(["s"], chosen, limit=5, offset=2)
        assert await table.to_table(["s"], order_by=["a"], limit=9) == sync.to_table(["s"], order_by=["a"], limit=9)
        assert await table.take([90, 3, 3], ["s", "_rowid"]) == sync.take([90, 3, 3], ["s", "_rowid"])
        assert await table._take_rows([1, 6], ["s"]) == sync._take_rows([1, 6], ["s"])
        assert await table.count_rows() == await table.scanner().count_rows() == len(sync)
        assert await table.count_rows(chosen) == sync.count_rows(chosen)
        assert await table.head(3, columns=["s"]) == sync.head(3, columns=["s"])
        assert await table.slice(5, 9, ["s"]) == sync.slice(5, 9, ["s"])
        assert (await table.sample(7, ["s"])).num_rows == 7
        assert await table.versions() == sync.versions()
        assert await table.version_refs() == sync.version_refs()
        assert await table.tags() == await table.branches() == {}
        assert await table.latest_version() == sync.latest_version
        assert (await table.checkout_version(1)).version == 1
        assert table.to_sync().to_table() == await lance_io.AsyncDataset.of(sync).to_table()
        assert await table.scanner(["s"]).explain_plan() == sync.scanner(["s"]).explain_plan()


async def open_in_a_task(uri: str) -> list[lance_io.AsyncDataset]:
    """Opened in all the ways in which a loop takes a coroutine."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(lance_io.AsyncDataset.open(uri)) for _ in range(2)]
    named = loop.create_task(lance_io.AsyncDataset.open(uri), name="opening")
    within = await asyncio.wait_for(lance_io.AsyncDataset.open(uri), 60)
    gathered = await asyncio.gather(lance_io.AsyncDataset.open(uri, 1), lance_io.AsyncDataset.open(uri))
    return [*(task.result() for task in tasks), await named, within, *gathered]


def test_loops_take_an_opening_for_a_coroutine(mixed_uri: str) -> None:
    num_rows = lance_io.dataset(mixed_uri).count_rows()
    table = asyncio.run(lance_io.AsyncDataset.open(mixed_uri))
    assert asyncio.run(table.count_rows()) == num_rows
    opened = asyncio.run(open_in_a_task(mixed_uri), debug=True)
    assert [one.version for one in opened] == [table.version] * 4 + [1, table.version]
    with pytest.raises(ValueError, match="was not found"):
        asyncio.run(lance_io.AsyncDataset.open(mixed_uri, version=99))
    once = lance_io.AsyncDataset.open(mixed_uri)
    asyncio.run(once)
    with pytest.raises(RuntimeError, match="already awaited"):
        asyncio.run(once)


def test_an_opening_that_nobody_awaits_does_nothing(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Nothing is looked for, nothing is left to be collected, and Python does not warn."""
    opening = lance_io.AsyncDataset.open(tmp_path / "nothing")
    gone = weakref.ref(opening)
    opening.close()
    with pytest.raises(RuntimeError, match="already awaited"):
        opening.send(None)
    del opening
    assert gone() is None

    async def cancel() -> None:
        task = asyncio.get_running_loop().create_task(lance_io.AsyncDataset.open(tmp_path / "nothing"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    lance_io.AsyncDataset.open(tmp_path / "nothing")
    gc.collect()
    assert not recwarn.list


async def test_batches_are_those_of_the_synchronous_scan(mixed_uri: str) -> None:
    table = await lance_io.AsyncDataset.open(mixed_uri, version=1)
    sync = lance_io.dataset(mixed_uri, version=1)
    for options in ({"batch_size": 7}, {"batch_size": 30, "strict_batch_size": True}, {"order_by": ["s"]}):
        got = [batch async for batch in table.to_batches(["s", "l"], **options)]
        assert got == list(sync.to_batches(["s", "l"], **options))
    first = await anext(aiter(table.scanner(["s"], fragments=sync.get_fragments()[2:])))
    assert first.column(0)[0].as_py() == "s50"


async def test_leaving_early_stops_the_scan(mixed_uri: str) -> None:
    table = await lance_io.AsyncDataset.open(mixed_uri)
    seen: list[object] = []
    batches = table.to_batches(["s"], batch_size=1, scan_stats_callback=seen.append)
    async for _ in batches:
        break
    await batches.aclose()  # type: ignore[attr-defined]
    assert len(seen) == 1
    with pytest.raises(RuntimeError, match="mine"):
        async for _ in table.to_batches(["s"], batch_size=1):
            raise RuntimeError("mine")
    assert await table.count_rows() == 93


async def test_many_callers_at_once(mixed_uri: str) -> None:
    table = await lance_io.AsyncDataset.open(mixed_uri)
    takes = await asyncio.gather(*(table.take([i, 92 - i], ["_rowoffset", "s"]) for i in range(40)))
    assert [one.column(0).to_pylist() for one in takes] == [[i, 92 - i] for i in range(40)]


async def test_errors_come_as_themselves(mixed_uri: str) -> None:
    with pytest.raises(ValueError, match="was not found"):
        await lance_io.AsyncDataset.open(mixed_uri, version=99)
    table = await lance_io.AsyncDataset.open(mixed_uri)
    with pytest.raises(OSError, match="93 rows"):
        await table.take([1000])
    with pytest.raises(ValueError, match="No field named zz"):
        await table.to_table(["zz"])
    with pytest.raises(ValueError, match="No field named zz"):
        async for _ in table.to_batches(["zz"]):
            pass


async def test_the_synchronous_dataset_works_inside_a_running_loop(mixed_uri: str) -> None:
    assert lance_io.dataset(mixed_uri).take([5], ["s"]).column(0).to_pylist() == ["s9"]


async def test_cancelling_a_caller_cancels_its_read(mixed_uri: str) -> None:
    table = await lance_io.AsyncDataset.open(mixed_uri)
    task = asyncio.ensure_future(table.to_table())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(await table.to_table(), pa.Table)


async def test_fragments_are_those_of_the_synchronous_dataset(mixed_uri: str) -> None:
    sync, table = lance_io.dataset(mixed_uri), await lance_io.AsyncDataset.open(mixed_uri)
    assert table.fragment_ids() == sync.fragment_ids()
    assert table.get_fragment(99) is None
    chosen = pc.field("doubled") > 100
    for one, twin in zip(sync.get_fragments(), table.get_fragments(), strict=True):
        assert (twin.fragment_id, twin.metadata) == (one.fragment_id, one.metadata)
        assert twin.data_files() == one.data_files()
        assert await twin.num_deletions() == one.num_deletions
        assert await twin.count_rows(chosen) == one.count_rows(chosen)
        assert await twin.to_table(["s"], chosen, limit=3) == one.to_table(["s"], chosen, limit=3)
        assert [b async for b in twin.to_batches(columns=["s"])] == list(one.to_batches(columns=["s"]))
        assert await twin.take([0, 2], ["s"]) == one.take([0, 2], ["s"])
        assert await twin.head(2) == one.head(2)
        assert (await twin.to_pandas(["s"], limit=2)).equals(one.to_pandas(["s"], limit=2))
    last_first = table.get_fragments()[::-1]
    expected = sync.to_table(["s"], fragments=sync.get_fragments()[::-1])
    assert await table.to_table(["s"], fragments=last_first) == expected
    first = table.get_fragments()[0]
    assert await first.scanner(columns=["s"]).head(3) == sync.head(3, columns=["s"])
    with pytest.raises(OSError, match=r"ascend|increas|order"):
        await first.take([2, 1])


async def test_facts_and_statistics(mixed_uri: str) -> None:
    sync, table = lance_io.dataset(mixed_uri), await lance_io.AsyncDataset.open(mixed_uri)
    for name in ("max_field_id", "has_stable_row_ids", "has_index", "metadata", "schema_metadata"):
        assert getattr(table, name) == getattr(sync, name)
    assert table.config() == sync.config()
    assert table.get_version() == sync.get_version()
    assert table.lance_schema.to_pyarrow() == sync.lance_schema.to_pyarrow()
    assert await table.stats.dataset_stats() == sync.stats.dataset_stats()
    assert await table.stats.data_stats() == sync.stats.data_stats()
    assert (await table.to_pandas(["s"], limit=4)).equals(sync.to_pandas(["s"], limit=4))
    assert "output_rows=93" in await table.scanner(["s"]).analyze_plan()
    default = await lance_io.AsyncDataset.open(mixed_uri, default_scan_options={"with_row_id": True})
    assert default.schema.names[-1] == "_rowid"
    assert (await default.to_table(["s"])).column_names == ["s", "_rowid"]
    assert (await default.get_fragments()[0].to_table(["s"])).column_names == ["s"]
    limited = await lance_io.AsyncDataset.open(mixed_uri, default_scan_options={"limit": 5})
    assert await limited.count_rows() == sync.count_rows()
    assert await limited.count_rows("a < 40") == sync.count_rows("a < 40")
    assert (await limited.sample(7)).num_rows == 7


async def test_closing_waits_for_a_call_in_a_thread(mixed_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call on local disk cannot be cancelled while the system reads: it ends, and says that the table is closed."""
    table = await lance_io.AsyncDataset.open(mixed_uri)
    came, go_on, ended = threading.Event(), threading.Event(), []
    store: Any = table._state.location.store
    real = type(store).read_sync

    def slow(*arguments: Any, **options: Any) -> Any:
        came.set()
        assert go_on.wait(30)
        found = real(*arguments, **options)
        ended.append("read")
        return found

    monkeypatch.setattr(type(store), "read_sync", slow)
    call = asyncio.ensure_future(table.take([1], ["s"]))
    assert await asyncio.to_thread(came.wait, 30)
    closing = asyncio.ensure_future(table.aclose())
    done, _ = await asyncio.wait({closing}, timeout=0.05)
    assert not done and not ended
    go_on.set()
    await closing
    assert ended
    with pytest.raises(RuntimeError, match="closed"):
        await call
    with pytest.raises(RuntimeError, match="closed"):
        await table.take([1], ["s"])
    with pytest.raises(RuntimeError, match="closed"):
        await table.to_table()
