"""Scans of pages that become more than a job may decode: the same rows, in parts, and nothing that stays counted.

The sizes that scans go by are made small, so that pages of every layout and codec are decoded in parts.
"""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import limits
from lance_io.encodings import decoded_size
from lance_io.file.scan import decoded_parts, page_slices
from lance_io.limits import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 3000
BUDGET = 64 * MIB


def coded(name: str, dtype: pa.DataType, **options: str) -> pa.Field:
    return pa.field(
        name, dtype, metadata={f"lance-encoding:{key}".replace("_", "-"): one for key, one in options.items()}
    )


def table() -> pa.Table:
    """A column for each way in which a page says what it becomes."""
    dice = np.random.default_rng(5)
    words = [f"word {'x' * int(n)}" for n in dice.integers(0, 60, 20)]
    texts = [None if n % 9 == 4 else f"{n} " * int(n % 40) for n in range(ROWS)]
    large = [None if n % 7 == 3 else bytes([n % 5]) * int(dice.integers(300, 3000)) for n in range(ROWS)]
    columns = {
        coded("plain", pa.int64()): np.arange(ROWS),
        coded("runs", pa.int32()): np.repeat(np.arange(3), ROWS // 3),
        coded("zstd_numbers", pa.int64(), compression="zstd"): np.repeat(np.arange(ROWS // 100), 100),
        coded("text", pa.string()): texts,
        coded("wide_text", pa.large_string(), compression="none"): texts,
        coded("zstd_text", pa.string(), compression="zstd"): texts,
        coded("lz4_text", pa.string(), compression="lz4"): texts,
        coded("word", pa.string()): [words[n % 20] for n in range(ROWS)],
        coded("large", pa.binary()): large,
        coded("zstd_large", pa.large_binary(), compression="zstd"): large,
        coded("lz4_large", pa.binary(), compression="lz4"): large,
        coded("lists", pa.list_(pa.int32())): [None if n % 11 == 2 else list(range(n % 13)) for n in range(ROWS)],
        coded("text_lists", pa.list_(pa.string()), compression="zstd"): [[f"{n}" * 3] * (n % 4) for n in range(ROWS)],
        coded("large_lists", pa.list_(pa.binary()), compression="zstd"): [[b"y" * 900] * (n % 3) for n in range(ROWS)],
        coded("vector", pa.list_(pa.float32(), 8)): [[float(n)] * 8 for n in range(ROWS)],
        coded("nothing", pa.int64()): [None] * ROWS,
        coded("one", pa.int64()): [7] * ROWS,
        coded("one_text", pa.string()): ["always the same"] * ROWS,
        coded("few", pa.dictionary(pa.int32(), pa.string())): pa.array(
            [words[n % 7] for n in range(ROWS)]
        ).dictionary_encode(),
    }
    schema = pa.schema([*columns])
    return pa.table(
        [pa.array(one, field.type) if not isinstance(one, pa.Array) else one for field, one in columns.items()],
        schema=schema,
    )


def plain(rows: pa.Table) -> pa.Table:
    """Rows without dictionaries, which need not be the same."""
    columns = [one.cast(one.type.value_type) if pa.types.is_dictionary(one.type) else one for one in rows.columns]
    return pa.table(columns, rows.column_names)


@pytest.fixture(scope="module", params=["0.1", "2.0", "2.1", "2.2"])
def written(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pa.Table]:
    """A table that pylance wrote, and its rows."""
    uri = str(tmp_path_factory.mktemp("parts") / "t.lance")
    rows = table()
    version = "legacy" if request.param == "0.1" else request.param
    if version == "legacy":
        rows = rows.select([name for name in rows.column_names if "lists" not in name])
    if version in ("legacy", "2.0"):
        rows = rows.select([name for name in rows.column_names if name not in ("few",)])
    lance.write_dataset(rows, uri, data_storage_version=version)
    return uri, lance.dataset(uri).to_table()


@pytest.fixture
def decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sizes so small that nearly every page is decoded in parts; how many rows each part has."""
    monkeypatch.setattr(limits, "SCAN_DECODED_BYTES", 4 * KIB)
    monkeypatch.setattr(limits, "SCAN_BOUND_BYTES", 4 * KIB)
    monkeypatch.setattr(limits, "SCAN_PART_BYTES", 2 * KIB)
    found: list[int] = []
    decode = decoded_parts.decode_at_hand

    def counted(piece: Any) -> pa.Array:
        found.append(piece.row_end - piece.row_start)
        return decode(piece)

    monkeypatch.setattr(decoded_parts, "decode_at_hand", counted)
    yield found


def scheduled() -> tuple[lance_io.Session, lance_io.IoScheduler]:
    shared = lance_io.IoScheduler(io_buffer_size=BUDGET)
    return lance_io.Session(io_scheduler=shared), shared


@pytest.mark.parametrize(
    "options", [{}, {"batch_size": 100}, {"filter": "plain % 3 != 1"}, {"offset": 700, "limit": 1500}]
)
def test_the_same_rows_now(written: tuple[str, pa.Table], decoded_in_parts: list[int], options: dict[str, Any]) -> None:
    uri, rows = written
    session, shared = scheduled()
    found = lance_io.dataset(uri, session=session).to_table(**options)
    assert plain(found).equals(plain(lance.dataset(uri).to_table(**options)))
    assert shared.pool.avail_bytes == BUDGET
    session_batches = lance_io.dataset(uri, session=session).to_batches(**options)
    assert plain(pa.Table.from_batches(session_batches)).equals(plain(found))
    assert shared.pool.avail_bytes == BUDGET
    assert rows.num_rows == ROWS
    if lance.dataset(uri).data_storage_version in ("2.1", "2.2"):
        assert len(decoded_in_parts) > 5


def test_whole_pages_are_measured_as_their_parts(
    written: tuple[str, pa.Table], decoded_in_parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum over all bytes of a page, without its index, is that of the parts that its index names."""
    uri, _ = written
    read, sizes = decoded_size.read_measured, list[tuple[str, int, int]]()

    def noted(page: Any, *arguments: Any, **more: Any) -> Any:
        measured = yield from read(page, *arguments, **more)
        sizes.append((type(page).__name__, measured.num_bytes, measured.find_parts()[1].num_bytes))
        return measured

    monkeypatch.setattr(page_slices, "read_measured", noted)
    version = lance_io.dataset(uri).data_storage_version
    lance_io.dataset(uri).to_table()
    assert [own for _, own, _ in sizes] == [parts for _, _, parts in sizes]
    assert len(sizes) >= {"0.1": 0, "2.0": 1, "2.1": 8, "2.2": 8}[version]


@pytest.mark.parametrize("options", [{}, {"filter": "plain % 3 != 1"}, {"scan_in_order": False}])
def test_the_same_rows_on_a_loop(
    written: tuple[str, pa.Table], decoded_in_parts: list[int], options: dict[str, Any]
) -> None:
    uri, _ = written
    session, shared = scheduled()

    async def scan() -> pa.Table:
        ds = await lance_io.AsyncDataset.open(uri, session=session)
        found = pa.Table.from_batches([batch async for batch in ds.to_batches(**options)])
        await ds.aclose()
        return found

    found = asyncio.run(scan())
    assert plain(found).equals(plain(lance.dataset(uri).to_table(**options)))
    assert shared.pool.avail_bytes == BUDGET
    if lance.dataset(uri).data_storage_version in ("2.1", "2.2"):
        assert len(decoded_in_parts) > 5


def test_a_scan_that_is_given_up_gives_everything_back(
    written: tuple[str, pa.Table], decoded_in_parts: list[int]
) -> None:
    uri, _ = written
    session, shared = scheduled()
    batches: Any = lance_io.dataset(uri, session=session).to_batches(batch_size=7)
    assert next(batches).num_rows == 7
    batches.close()
    while shared.pool.avail_bytes < BUDGET:  # what was begun ends by itself
        time.sleep(0.001)
    assert shared.pool.avail_bytes == BUDGET


@pytest.fixture(scope="module", params=["2.0", "2.1", "2.2"])
def worded(request: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of pylance's whose files have text in dictionaries: long, short, and short beside one long item."""
    uri = str(tmp_path_factory.mktemp("words") / "t.lance")
    long = [f"{n} " * 3000 for n in range(4)]
    odd = [*[f"{n}" for n in range(15)], "odd " * 4000]
    columns = {
        coded("id", pa.int64()): range(ROWS),
        coded("long", pa.string(), compression="zstd"): [long[n % 4] for n in range(ROWS)],
        coded("other", pa.int32()): range(ROWS),
        coded("short", pa.string(), compression="zstd"): [f"word {n % 50}" for n in range(ROWS)],
        coded("odd", pa.string(), compression="zstd"): [odd[n % 16] for n in range(ROWS)],
    }
    rows = pa.table([pa.array(one, field.type) for field, one in columns.items()], pa.schema([*columns]))
    lance.write_dataset(rows, uri, data_storage_version=request.param, max_rows_per_file=ROWS // 3)
    return uri


@pytest.mark.parametrize("columns", [None, ["long"], ["id", "short"]])
@pytest.mark.parametrize("is_on_loop", [False, True])
async def test_only_large_dictionaries_are_decoded_in_parts(
    worded: str, monkeypatch: pytest.MonkeyPatch, columns: list[str] | None, is_on_loop: bool
) -> None:
    """What a dictionary makes of its rows is known when it was read, from its longest item."""
    parts: dict[str, list[int]] = {}
    decode = decoded_parts.decode_at_hand

    def counted(piece: Any) -> pa.Array:
        array = decode(piece)
        parts.setdefault(piece.column.path.leaf.name, []).append(array.nbytes)
        return array

    monkeypatch.setattr(decoded_parts, "decode_at_hand", counted)
    monkeypatch.setattr(limits, "SCAN_DECODED_BYTES", 1 * MIB)
    monkeypatch.setattr(limits, "SCAN_BOUND_BYTES", 2 * MIB)
    monkeypatch.setattr(limits, "SCAN_PART_BYTES", 256 * KIB)
    monkeypatch.setattr(decoded_size, "ITEMS_PART_BYTES", 64 * KIB)
    if is_on_loop:
        dataset = await lance_io.AsyncDataset.open(worded)
        found = await dataset.to_table(columns=columns)
    else:
        found = lance_io.dataset(worded).to_table(columns=columns)
    assert found.equals(lance.dataset(worded).to_table(columns=columns))
    wanted = {"long", "odd"} & set(columns or ["long", "odd"])
    assert {*parts} == wanted
    assert max([size for sizes in parts.values() for size in sizes], default=0) <= 256 * KIB + 16 * KIB


MANY = 200_000
ALIKE = {
    "words": (lambda: pa.array([f"{n}" * 200 for n in range(7)] * (MANY // 7 + 1))[:MANY], ["2.0", "2.1", "2.2"]),
    "one": (lambda: pa.array(["always the same " * 8] * MANY), ["2.2"]),
    "nothing": (lambda: pa.nulls(MANY, pa.int64()), ["2.0", "2.1", "2.2"]),
    "no vectors": (lambda: pa.nulls(MANY, pa.list_(pa.float32(), 4)), ["2.0", "2.1", "2.2"]),
}
ALIKE_CASES = [(kind, version) for kind, (_, versions) in ALIKE.items() for version in versions]


@pytest.fixture
def alike(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pa.Array]:
    """A table of many rows that few bytes stand for, and its values."""
    kind, version = request.param
    values = ALIKE[kind][0]()
    uri = str(tmp_path_factory.mktemp("alike") / "t.lance")
    lance_io.write_dataset(pa.table({"c": values}), uri, data_storage_version=version)
    return uri, values


@pytest.mark.parametrize("alike", ALIKE_CASES, indirect=True)
@pytest.mark.parametrize("is_on_loop", [False, True])
async def test_parts_are_made_as_they_are_needed(
    alike: tuple[str, pa.Array], monkeypatch: pytest.MonkeyPatch, is_on_loop: bool
) -> None:
    """A page may have millions of parts, as a long item that codes of two bytes name; a scan holds a few of them."""
    monkeypatch.setattr(limits, "SCAN_DECODED_BYTES", 4 * KIB)
    monkeypatch.setattr(limits, "SCAN_BOUND_BYTES", 4 * KIB)
    monkeypatch.setattr(limits, "SCAN_PART_BYTES", 16)
    monkeypatch.setattr(decoded_size, "ITEMS_PART_BYTES", 1 * KIB)
    uri, values = alike
    tracemalloc.start()
    try:
        if is_on_loop:
            async with lance_io.AsyncDataset.open(uri) as dataset:
                batches: Any = dataset.to_batches(batch_size=3)
                first = await anext(batches)
                held = tracemalloc.get_traced_memory()[1]
                await batches.aclose()
        else:
            first = next(iter(lance_io.dataset(uri).to_batches(batch_size=3)))
            held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert first.column(0).equals(values[:3])
    assert held < 8 * MIB


@pytest.mark.parametrize("alike", ALIKE_CASES, indirect=True)
@pytest.mark.parametrize("is_on_loop", [False, True])
async def test_many_rows_alike_are_the_same_rows(
    alike: tuple[str, pa.Array], monkeypatch: pytest.MonkeyPatch, is_on_loop: bool
) -> None:
    """Also where pieces of a page are decoded in parts themselves."""
    monkeypatch.setattr(limits, "SCAN_DECODED_BYTES", 64 * KIB)
    monkeypatch.setattr(limits, "SCAN_BOUND_BYTES", 64 * KIB)
    monkeypatch.setattr(limits, "SCAN_PART_BYTES", 100 * 1000)
    monkeypatch.setattr(page_slices, "CONSTANT_PIECES_MAX", 3)
    uri, values = alike
    session, shared = scheduled()
    if is_on_loop:
        async with lance_io.AsyncDataset.open(uri, session=session) as dataset:
            found = await dataset.to_table(offset=5, limit=MANY - 7)
    else:
        found = lance_io.dataset(uri, session=session).to_table(offset=5, limit=MANY - 7)
    assert found["c"].combine_chunks().equals(values[5:-2])
    assert shared.pool.avail_bytes == BUDGET
