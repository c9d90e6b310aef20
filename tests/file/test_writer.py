"""The writers of single files: pages, memory, global buffers, errors, and what is left after a failure."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as PeerReader
from lance.file import LanceFileWriter as PeerWriter

import lance_io
from lance_io.errors import SchemaError, StoreError, UnsupportedError, UsageError
from lance_io.file.reader import AsyncFileReader, LanceFileReader
from lance_io.file.write.file_bytes import PAGE_BYTES, FileWriter
from lance_io.file.write.file_layout import INDEX_BYTES_HELD_MAX
from lance_io.file.write.file_writing import FileWriting
from lance_io.file.write.uploads import FileUploads
from lance_io.file.write.writers import AsyncFileWriter, LanceFileWriter
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_1, V2_2
from lance_io.limits import MIB
from lance_io.plans.cpu_requests import Begin, Result
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.store.memory import MemoryStore
from lance_io.testing.wrap import WrappedStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lance_io.store.api import ObjectMeta
    from lance_io.testing.wrap import Request

T = TypeVar("T")

SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("s", pa.string())], metadata={"made": "by hand"})


def batch(start: int, count: int) -> pa.RecordBatch:
    ints = np.arange(start, start + count)
    return pa.record_batch([pa.array(ints), pa.array([f"row {i}" for i in ints])], schema=SCHEMA)


def leftovers(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# -- what files look like ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.1", "2.2", None])
def test_write_and_read_back(version: str | None, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "one.lance"
    with LanceFileWriter(path, SCHEMA, version=version) as writer:
        writer.write_batch(batch(0, 10))
        writer.add_schema_metadata("later", "added")
        assert writer.add_global_buffer(b"extra") == 1
        writer.write_batch(pa.Table.from_batches([batch(10, 5), batch(15, 5)]))
        assert writer.add_global_buffer(b"") == 2
        assert not path.exists()
    assert writer.size_bytes == path.stat().st_size
    peer = PeerReader(str(path))
    expected = batch(0, 20)
    assert peer.read_all().to_table().to_batches() == [expected]
    assert peer.read_all().to_table().schema.metadata == {b"made": b"by hand", b"later": b"added"}
    assert peer.read_global_buffer(1) == b"extra" and peer.read_global_buffer(2) == b""
    assert peer.metadata().major_version == 2
    assert peer.metadata().minor_version == (1 if version == "2.1" else 2)
    assert LanceFileReader(path).read_all().to_table().to_batches() == [expected]


def test_close_gives_the_rows_once(tmp_path: Path) -> None:
    writer = LanceFileWriter(tmp_path / "one.lance")
    assert writer.add_global_buffer(b"before the schema is known") == 1
    writer.write_batch(batch(0, 7))
    assert writer.close() == 7
    assert writer.close() is None
    assert PeerReader(str(tmp_path / "one.lance")).read_global_buffer(1) == b"before the schema is known"
    with pytest.raises(UsageError, match="closed"):
        writer.write_batch(batch(0, 7))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_a_file_without_rows_is_that_of_pylance(version: str, tmp_path: Path) -> None:
    from lance.file import LanceFileWriter as PeerWriter

    schema = pa.schema([pa.field("c", pa.int32()), pa.field("n", pa.list_(pa.string()))], metadata={"k": "v"})
    PeerWriter(str(tmp_path / "theirs.lance"), schema, version=version).close()
    with LanceFileWriter(tmp_path / "ours.lance", schema, version=version) as writer:
        writer.write_batch(pa.record_batch([[], []], schema=schema))
    assert (tmp_path / "ours.lance").read_bytes() == (tmp_path / "theirs.lance").read_bytes()


def test_pages_close_at_their_budget(tmp_path: Path) -> None:
    num_rows = 3 * PAGE_BYTES // 8 + 11
    table = pa.table({"a": np.arange(num_rows), "b": pa.array(np.arange(num_rows) % 2 == 0)})
    with LanceFileWriter(tmp_path / "big.lance", table.schema) as writer:
        writer.write_batch(table)
    pages = [[page.num_rows for page in column.pages] for column in columns_of(tmp_path / "big.lance")]
    assert pages[0] == [PAGE_BYTES // 8] * 3 + [11]
    assert pages[1] == [num_rows]
    assert PeerReader(str(tmp_path / "big.lance")).read_all(batch_size=1 << 20).to_table().equals(table)


def columns_of(path: Path) -> list:
    from tests.encodings.harness import Opened

    file = Opened(path).file
    return [file.info(i) for i in range(len(file.paths))]


def test_large_rows_stay_whole_and_small_ones_share_pages(tmp_path: Path) -> None:
    rows = [b"x" * 100, b"y" * 300_000, b"z" * 50, b"w" * 50, b"v" * 70_000]
    column = pa.array(rows, pa.large_binary())
    with LanceFileWriter(tmp_path / "one.lance", max_page_bytes=65_536) as writer:
        writer.write_batch(pa.record_batch([column], names=["c"]))
    (info,) = columns_of(tmp_path / "one.lance")
    assert [page.num_rows for page in info.pages] == [1, 1, 2, 1]
    assert [page.priority for page in info.pages] == [0, 1, 2, 4]
    assert PeerReader(str(tmp_path / "one.lance")).read_all().to_table()["c"].to_pylist() == rows


def test_a_page_per_batch_when_little_may_wait(tmp_path: Path) -> None:
    with LanceFileWriter(tmp_path / "one.lance", SCHEMA, data_cache_bytes=1) as writer:
        for start in (0, 10, 20):
            writer.write_batch(batch(start, 10))
    assert [[page.num_rows for page in info.pages] for info in columns_of(tmp_path / "one.lance")] == [[10] * 3] * 2


def test_wide_files_have_smaller_pages() -> None:
    schema = schema_from_arrow(pa.schema([pa.field(f"c{i}", pa.int64()) for i in range(128)]))
    writer = FileWriter("wide.lance", schema, V2_2, FileUploads(MemoryStore(), "wide.lance"))
    rows = pa.record_batch([np.zeros(PAGE_BYTES // 4 // 8)] * 128, names=[f"c{i}" for i in range(128)])
    work = [
        request for request in requests_of(writer, rows.cast(pa.schema([(f"c{i}", pa.int64()) for i in range(128)])))
    ]
    assert len(work) == 128


def requests_of(writer: FileWriter, rows: pa.RecordBatch) -> list[Begin]:
    """Add rows, encode nothing: the pages that were closed."""
    from lance_io.encodings.written import EncodedPage

    steps = writer.add(writer.ingest(rows), len(rows))
    begun = []
    answer = None
    try:
        while True:
            request = steps.send(answer)
            if isinstance(request, Begin):
                begun.append(request)
                answer = None
            elif isinstance(request, Result):
                answer = [EncodedPage(1, b"", ())], None
            else:
                answer = request.answer_sync()
    except StopIteration:
        return begun


def test_many_small_batches_are_put_together(tmp_path: Path) -> None:
    dtype = pa.struct([("l", pa.list_(pa.int32())), ("t", pa.string())])
    rows = [None if i % 11 == 0 else {"l": [i] * (i % 3), "t": None if i % 5 == 0 else str(i)} for i in range(3000)]
    column = pa.array(rows, dtype)
    with LanceFileWriter(tmp_path / "one.lance", pa.schema([("c", dtype)])) as writer:
        for start in range(0, 3000, 2):
            writer.write_batch(pa.record_batch([column.slice(start, 2)], names=["c"]))
    assert {len(info.pages) for info in columns_of(tmp_path / "one.lance")} == {1}
    assert PeerReader(str(tmp_path / "one.lance")).read_all().to_table()["c"].to_pylist() == rows


def test_dictionaries_differ_from_batch_to_batch(tmp_path: Path) -> None:
    dtype = pa.dictionary(pa.int8(), pa.string())
    expected = []
    with LanceFileWriter(tmp_path / "one.lance", pa.schema([("c", dtype)])) as writer:
        for number in range(8):
            words = [f"{number // 2} word {i}" for i in range(50)]
            column = pa.DictionaryArray.from_arrays(pa.array([*range(50), None], pa.int8()), pa.array(words))
            writer.write_batch(pa.record_batch([column], names=["c"]))
            expected += [*words, None]
    batches = PeerReader(str(tmp_path / "one.lance")).read_all(batch_size=51).to_batches()  # more do not fit one batch
    assert [word for rows in batches for word in rows.column(0).to_pylist()] == expected
    assert LanceFileReader(tmp_path / "one.lance").take_rows([205]).to_table()["c"].to_pylist() == ["2 word 1"]
    (info,) = columns_of(tmp_path / "one.lance")
    assert [page.num_rows for page in info.pages] == [204, 204]  # 128 words are what an index can name


def test_what_is_held_does_not_grow_with_the_file() -> None:
    """A file of 40 pages per column: the open pages, what is being encoded, and the index are all that is held."""
    store = MemoryStore()
    schema = schema_from_arrow(SCHEMA)
    page_bytes = 256 * 1024
    writing = FileWriting(store, "t/one.lance", schema, V2_1, page_bytes=page_bytes)
    highest = 0
    for start in range(0, 1_300_000, 10_000):
        drive_sync(writing.write(batch(start, 10_000)))
        highest = max(highest, writing.writer.held_bytes)
    written = drive_sync(writing.close())
    assert written.num_rows == 1_300_000
    assert written.size_bytes == len(store.get_sync("t/one.lance"))
    assert (written.field_ids, written.column_indices) == ((0, 1), (0, 1))
    assert highest <= 2 * page_bytes + INDEX_BYTES_HELD_MAX
    assert highest <= 2 * page_bytes + 400_000


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "kind", "words"),
    [
        ("0.1", NotImplementedError, "0.1"),
        ("9", ValueError, "Unknown Lance storage"),
    ],
)
def test_refuses_versions(version: str, kind: type[Exception], words: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=words):
        LanceFileWriter(tmp_path / "one.lance", SCHEMA, version=version)


@pytest.mark.parametrize(
    ("dtype", "version", "words"),
    [
        (pa.map_(pa.string(), pa.int32()), "2.1", "Map data type is not enabled"),
        (pa.list_(pa.struct([("x", pa.int8())]), 2), "2.1", "FixedSizeList<Struct> is not enabled"),
        (pa.list_(pa.list_(pa.struct([("x", pa.int8())]), 2)), "2.2", "inside lists"),
        (pa.decimal32(5, 1), "2.2", "decimal32"),
        (pa.month_day_nano_interval(), "2.2", "interval"),
        (pa.binary(0), "2.1", "no bytes"),
        (pa.list_(pa.binary(0), 2), "2.2", "no bytes"),
        (pa.struct([("x", pa.binary(0))]), "2.2", "a byte at least"),
        (pa.dictionary(pa.int32(), pa.binary(2)), "2.2", "Cannot encode dictionary type"),
        (pa.dictionary(pa.int32(), pa.date32()), "2.1", "Cannot encode dictionary type"),
        (pa.list_view(pa.int8()), "2.2", "list_view"),
        (pa.list_(pa.string(), 2), "2.2", "fixed_size_list:string:2"),
        (pa.list_(pa.list_(pa.int8()), 2), "2.2", "cannot be stored"),
        (pa.map_(pa.string(), pa.int32(), keys_sorted=True), "2.2", "sorted"),
        (pa.list_(pa.struct([])), "2.2", "Empty structs"),
        (pa.struct([("x", pa.list_(pa.int8()))]), "2.2", "no member of type list"),
        (pa.struct([("x", pa.bool_())]), "2.2", "whole bytes"),
        (pa.struct([("x", pa.string())]), "2.1", "Variable packed struct"),
    ],
    ids=str,
)
def test_refuses_types(dtype: pa.DataType, version: str, words: str, tmp_path: Path) -> None:
    field = pa.field("c", dtype, metadata={"packed": "true"} if pa.types.is_struct(dtype) else None)
    with pytest.raises(UnsupportedError, match=words):
        LanceFileWriter(tmp_path / "one.lance", pa.schema([field]), version=version)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_long_rows_of_bits_that_end_within_a_byte(version: str, compression: str, tmp_path: Path) -> None:
    """Full-zip pages cannot hold them; pylance fails to write such pages, and reads them from mini-blocks."""
    dice = np.random.default_rng(5)
    bits = pa.array(dice.integers(0, 2, 300 * 2051) == 1, mask=dice.random(300 * 2051) < 0.1)
    rows = pa.FixedSizeListArray.from_arrays(bits, 2051, mask=pa.array(dice.random(300) < 0.2))
    metadata = {"lance-encoding:structural-encoding": "fullzip", "lance-encoding:compression": compression}
    table = pa.table([rows], pa.schema([pa.field("a", rows.type, metadata=metadata)]))
    path = tmp_path / "one.lance"
    with LanceFileWriter(path, table.schema, version=version) as writer:
        writer.write_batch(table)
    theirs = PeerReader(str(path))
    assert theirs.read_all().to_table().column("a").combine_chunks() == rows
    assert theirs.take_rows([3, 4, 299]).to_table().column("a").combine_chunks() == rows.take([3, 4, 299])
    ours = LanceFileReader(path)
    assert ours.read_all().to_table().column("a").combine_chunks() == rows


def test_refuses_names(tmp_path: Path) -> None:
    for schema, words in (
        (pa.schema([("a.b", pa.int8())]), "cannot contain `.`"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), 'Duplicate field name "a"'),
    ):
        with pytest.raises(SchemaError, match=words):
            LanceFileWriter(tmp_path / "one.lance", schema)
    with pytest.raises(UsageError, match="No schema provided"):
        LanceFileWriter(tmp_path / "one.lance").close()


@pytest.mark.parametrize("limits", [{"max_page_bytes": 0}, {"max_page_bytes": -1}, {"data_cache_bytes": -1}], ids=str)
def test_refuses_limits_that_pylance_refuses(limits: dict[str, int], tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises((ValueError, OverflowError)):
        PeerWriter(str(tmp_path / "theirs.lance"), schema, **limits).write_batch(pa.record_batch({"a": [1]}))
    for writer in (LanceFileWriter, AsyncFileWriter):
        with pytest.raises(UsageError, match=min(limits)):
            writer(tmp_path / "one.lance", schema, **limits)
    with pytest.raises(UsageError, match=min(limits)):
        lance_io.write_dataset(pa.table({"a": [1]}), tmp_path / "t", **limits)


def test_what_is_no_batch_is_refused_at_once_and_costs_nothing(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2]})
    for name, kind in (("theirs", PeerWriter), ("ours", LanceFileWriter)):
        writer = kind(str(tmp_path / name), rows.schema, keep_original_array=True)
        for wrong in (None, {"a": [1]}, rows.to_pandas(), rows.to_reader()):
            with pytest.raises(TypeError):
                writer.write_batch(wrong)
        for key, value in (("k", 5), ("k", b"v"), (5, "v")):
            with pytest.raises(TypeError):
                writer.add_schema_metadata(key, value)
        with pytest.raises(TypeError):
            writer.add_global_buffer("text")
        writer.write_batch(rows.to_struct_array().chunk(0))  # says by __arrow_c_array__ that it is a batch
        writer.add_schema_metadata("k", "v")
        assert writer.close() == 2
        file = PeerReader(str(tmp_path / name))
        assert file.read_all().to_table().equals(rows)
        assert file.metadata().schema.metadata == {b"k": b"v"}


def test_a_batch_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    required = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    writer = LanceFileWriter(tmp_path / "one.lance", required)
    writer.write_batch(pa.record_batch({"a": [1, 2], "ignored": ["x", "y"]}))
    for wrong, words in (
        (pa.record_batch({"b": [1]}), "missing the column `a`"),
        (pa.record_batch({"a": ["x"]}), "`a` does not match the file schema"),
        (pa.record_batch({"a": pa.array([None], pa.int64())}), "marked non-null"),
    ):
        with pytest.raises(SchemaError, match=words):
            writer.write_batch(wrong)
    writer.write_batch(pa.record_batch({"a": [3]}))
    assert writer.close() == 3
    assert PeerReader(str(tmp_path / "one.lance")).read_all().to_table()["a"].to_pylist() == [1, 2, 3]


# -- failures ---------------------------------------------------------------------------------------------------------


class Boom(Exception):
    pass


@pytest.mark.parametrize("rows", [10, 3_000_000])
def test_an_exception_in_the_block_leaves_nothing(rows: int, tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(Boom), LanceFileWriter(tmp_path / "one.lance", schema) as writer:
        writer.write_batch(pa.record_batch([np.arange(rows)], schema=schema))
        raise Boom
    assert leftovers(tmp_path) == []
    with pytest.raises(UsageError):
        writer.write_batch(pa.record_batch([np.arange(rows)], schema=schema))


@pytest.mark.parametrize(("encoder", "num_rows"), [("encode_small_pages", 100), ("encode_pages", 100_000)])
def test_a_failing_encoder_leaves_nothing(
    encoder: str, num_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def failing(*args: object) -> None:
        calls.append(threading.current_thread())
        raise Boom("encoding failed")

    writer = LanceFileWriter(tmp_path / "one.lance", SCHEMA)
    writer.write_batch(batch(0, num_rows))
    monkeypatch.setattr(f"lance_io.file.write.leaf_queues.{encoder}", failing)
    with pytest.raises(Boom):
        writer.close()
    assert calls and leftovers(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(StoreError), LanceFileWriter(tmp_path / "one.lance", SCHEMA) as writer:
        writer.write_batch(batch(0, 100))
    assert leftovers(tmp_path) == []


# -- asynchronously ---------------------------------------------------------------------------------------------------


async def test_async_writer(tmp_path: Path) -> None:
    path = tmp_path / "one.lance"
    async with AsyncFileWriter(path, SCHEMA, version="2.1") as writer:
        await writer.write_batch(batch(0, 10))
        writer.add_schema_metadata("k", "v")
        assert await writer.add_global_buffer(b"extra") == 1
        await writer.write_batch(pa.Table.from_batches([batch(10, 5), batch(15, 5)]))
        assert not path.exists()
    assert writer.size_bytes == path.stat().st_size
    with LanceFileWriter(tmp_path / "two.lance", SCHEMA, version="2.1") as other:
        other.write_batch(batch(0, 10))
        other.add_schema_metadata("k", "v")
        other.add_global_buffer(b"extra")
        other.write_batch(batch(10, 10))
    assert path.read_bytes() == (tmp_path / "two.lance").read_bytes()
    async with AsyncFileReader(path) as reader:
        assert (await reader.read_range(0, 20)).to_batches() == [batch(0, 20)]


async def test_async_exceptions_and_cancellation_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(Boom):
        async with AsyncFileWriter(tmp_path / "one.lance") as writer:
            await writer.write_batch(batch(0, 10))
            raise Boom
    assert leftovers(tmp_path) == []

    schema = pa.schema([("a", pa.int64())])
    big = pa.record_batch([np.random.default_rng(0).integers(0, 1 << 60, 8 * MIB)], schema=schema)

    async def write() -> None:
        async with AsyncFileWriter(tmp_path / "one.lance", schema) as writer:
            await writer.write_batch(big)
            await asyncio.sleep(60)

    task = asyncio.create_task(write())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert leftovers(tmp_path) == []


async def test_a_close_that_is_cancelled_comes_back_when_it_has_ended(tmp_path: Path) -> None:
    for number in range(20):
        writer = AsyncFileWriter(tmp_path / f"{number}.lance", SCHEMA)
        await writer.write_batch(batch(0, 10))
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(0.0005 * number)
        closing.cancel()
        await asyncio.wait([closing])
        assert not [name for name in leftovers(tmp_path) if not name.endswith(".lance")]


class GatedDeletes(WrappedStore):
    """Requests to remove something come to a gate and wait until it is open."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.came, self.gate = asyncio.Event(), asyncio.Event()

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        if request.operation == "delete":
            self.came.set()
            await self.gate.wait()
        return await send()


async def turns() -> None:
    """Everything that can go on does."""
    for _ in range(10):
        await asyncio.sleep(0)


async def abort_twice(writing: FileWriting) -> None:
    await asyncio.gather(drive_async(writing.abort()), drive_async(writing.abort()))


ENDINGS: dict[str, Callable[[FileWriting], Awaitable[object]]] = {
    "abort": lambda writing: drive_async(writing.abort()),
    "failed": lambda writing: drive_async(writing.close()),
    "aborted twice": abort_twice,
}


@pytest.mark.parametrize("num_cancels", [0, 1, 3])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_who_is_cancelled_while_a_file_is_removed_waits_for_its_end(ending: str, num_cancels: int) -> None:
    """If cancelled again it need not wait; what is under way goes on nevertheless."""
    inner = MemoryStore()
    store = GatedDeletes(inner)
    field = lance_io.blob_field("b", inline_size_threshold=1, dedicated_size_threshold=2)
    schema = pa.schema([field])
    writing = FileWriting(store, "data/one.lance", schema_from_arrow(schema), V2_2)
    await drive_async(writing.write(pa.record_batch([lance_io.blob_array([b"blob", b"other"])], schema=schema)))
    assert len(inner.list_sync("")) == 2  # beside the data file, which is not there yet
    if ending == "failed":

        async def refuse(*_: Any, **__: Any) -> ObjectMeta:
            raise StoreError("no more room")

        inner.put = refuse
    task = asyncio.ensure_future(ENDINGS[ending](writing))
    await store.came.wait()
    for number in range(num_cancels):
        assert number > 1 or not task.done()
        task.cancel()
        await turns()
    assert num_cancels > 1 or not task.done()
    assert len(inner.list_sync("")) == 2
    store.gate.set()
    await asyncio.wait([task])
    if num_cancels:
        assert task.cancelled()
    else:
        assert isinstance(task.exception(), StoreError if ending == "failed" else type(None))
    await turns()
    assert inner.list_sync("") == []
    with pytest.raises(UsageError, match="failed" if ending == "failed" else "aborted"):
        await drive_async(writing.finish())


async def test_bytes_do_not_depend_on_the_driver(tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    table = pa.table({f"c{i}": dice.integers(0, 1 << (i * 7), 1_500_000) for i in range(1, 5)})
    async with AsyncFileWriter(tmp_path / "one.lance", table.schema) as writer:
        await writer.write_batch(table)
    with LanceFileWriter(tmp_path / "two.lance", table.schema) as other:
        other.write_batch(table)
    assert (tmp_path / "one.lance").read_bytes() == (tmp_path / "two.lance").read_bytes()


def test_a_small_file_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sizes = os.pwritev, []

    def pwritev(fd: int, views: list[memoryview], offset: int) -> int:
        sizes.append(real(fd, views, offset))
        return sizes[-1]

    monkeypatch.setattr("lance_io.store.local.atomic_writes.os.pwritev", pwritev)
    with LanceFileWriter(tmp_path / "one.lance") as writer:
        writer.write_batch(batch(0, 1000))
    assert sizes == [writer.size_bytes]


@pytest.mark.parametrize("rows", [3, 20_000])
def test_memory_of_a_batch_may_be_filled_again(rows: int, tmp_path: Path) -> None:
    memory = np.empty(rows, dtype=np.int64)
    with LanceFileWriter(tmp_path / "one.lance") as writer:
        for number in range(4):
            memory[:] = np.arange(rows) + number * rows
            writer.write_batch(pa.record_batch({"a": pa.array(memory)}))
        memory[:] = -1
    found = PeerReader(str(tmp_path / "one.lance")).read_all().to_table()["a"].to_numpy()
    assert (found == np.arange(4 * rows)).all()
