"""Many small files in a bucket: one request for each, decoded together by what they have in common."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import limits
from lance_io.errors import FormatError
from lance_io.file.scan import scan_async
from lance_io.file.scan.templates import remote_files
from lance_io.file.scan.templates.file_templates import FileTemplates
from lance_io.io.budget import process
from lance_io.runtime import pool
from tests.dataset.test_late_choice import InlinePool
from tests.file.test_rounds import Bench, Lap, ranges_of
from tests.file.test_small_files import FILES, ROWS, VERSIONS, _rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lance_io.dataset.lance_dataset import AsyncDataset
    from lance_io.file.open.file_source import FileRef

NAMES = ["plain", "nullable", "flag", "text", "word", "list", "texts", "struct", "vector"]


def objects_of(folder: Path) -> dict[str, bytes]:
    return {f"t/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module", params=VERSIONS)
def objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A table that pylance wrote, without columns that have dictionaries of their own."""
    folder = tmp_path_factory.mktemp("small") / "t"
    whole = pa.concat_tables([_rows(number) for number in range(FILES)]).select(NAMES)
    lance.write_dataset(whole, folder, max_rows_per_file=ROWS, data_storage_version=request.param)
    return objects_of(folder)


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many spans each general scan has read."""
    seen: list[int] = []
    scan_pieces = scan_async._scan_pieces

    def noted(*given: Any) -> Any:
        seen.append(given[4] - given[3])
        return scan_pieces(*given)

    monkeypatch.setattr(scan_async, "_scan_pieces", noted)
    return seen


@pytest.fixture(autouse=True)
def nothing_is_held() -> Iterator[None]:
    before = process.pool.avail_bytes
    yield
    assert process.pool.avail_bytes == before


def run(objects: dict[str, bytes], work: Callable[[AsyncDataset, Lap], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_pool", InlinePool())
    bench = Bench(objects)

    async def opened(lap: Lap) -> None:
        async with lance_io.AsyncDataset.open("t", session=bench.session) as ds:
            lap()
            await work(ds, lap)

    bench.run(opened)


def test_each_file_is_one_request(
    objects: dict[str, bytes], general: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold and warm, of all columns, of one, with a filter, and in batches; as pylance reads them."""
    for key, data in objects.items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    theirs = lance.dataset(str(tmp_path / "t"))
    sizes = sorted((key, 0, len(data)) for key, data in objects.items() if key.startswith("t/data/"))
    assert len(sizes) == FILES

    async def work(ds: AsyncDataset, lap: Lap) -> None:
        wanted: list[dict[str, Any]] = [
            {},
            {},
            {"columns": ["list"]},
            {"columns": ["text", "struct"], "filter": "plain % 7 < 3"},
            {"filter": "text like '%7%' and nullable is not null"},
        ]
        for options in wanted:
            assert (await ds.to_table(**options)).equals(theirs.to_table(**options)), options
            rounds, log = lap()
            assert rounds == 1 and sorted(ranges_of(log)) == sizes, options
        batches = [batch async for batch in ds.to_batches(batch_size=77)]
        assert pa.Table.from_batches(batches) == theirs.to_table()
        assert await ds.count_rows("plain % 7 < 3") == theirs.count_rows("plain % 7 < 3")
        assert sorted(ranges_of(lap()[1])) == sorted(sizes + sizes)

    run(objects, work, monkeypatch)
    assert general == []


def test_short_runs_of_files_of_a_kind_are_read_in_the_general_way(
    tmp_path: Path, general: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run waits for the one before: of three kinds in turns, that would be many rounds."""
    whole = pa.concat_tables([_rows(number) for number in range(FILES)]).select(NAMES)
    for number, version in enumerate(["2.0", "2.1", "2.0", "2.2"]):
        rows, mode = whole.slice(number * 10 * ROWS, 10 * ROWS), "append" if number else "create"
        lance.write_dataset(rows, tmp_path / "t", mode=mode, max_rows_per_file=ROWS, data_storage_version=version)

    async def work(ds: AsyncDataset, lap: Lap) -> None:
        assert (await ds.to_table()).equals(lance.dataset(tmp_path / "t").to_table())
        rounds, log = lap()
        assert rounds <= 3 and len(log) <= 2 * FILES

    run(objects_of(tmp_path / "t"), work, monkeypatch)
    assert general == [FILES]


def test_deleted_rows_limits_and_parts(
    objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for key, data in objects.items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    lance.dataset(str(tmp_path / "t")).delete("plain % 5 = 0 or plain < 100 or (plain > 1000 and plain < 1300)")
    theirs = lance.dataset(str(tmp_path / "t"))
    part: dict[str, Any] = {"offset": 3 * ROWS + 5, "limit": 20 * ROWS, "filter": "plain % 7 < 3"}

    async def work(ds: AsyncDataset, lap: Lap) -> None:
        assert (await ds.to_table()).equals(theirs.to_table())
        assert (await ds.to_table(**part)).equals(theirs.to_table(**part))
        lap()
        first = await ds.to_table(limit=5, filter="plain >= 0")
        assert first.equals(theirs.to_table(limit=5, filter="plain >= 0"))
        unordered = await ds.to_table(scan_in_order=False, columns=["plain"])
        assert sorted(unordered["plain"].to_pylist()) == theirs.to_table(["plain"])["plain"].to_pylist()

    run(objects_of(tmp_path / "t"), work, monkeypatch)


def test_a_file_without_a_template_is_read_by_itself(
    objects: dict[str, bytes], general: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    add, odd = FileTemplates.add, sorted(key for key in objects if key.startswith("t/data/"))[11]

    def refuse(templates: FileTemplates, ref: FileRef, *given: Any) -> bool:
        return ref.key != odd and add(templates, ref, *given)

    read = FileTemplates.read

    def stopped(templates: FileTemplates, files: Any) -> Any:
        ends = [number for number, (data, _) in enumerate(files) if bytes(data) == objects[odd]]
        return read(templates, files[: ends[0]] if ends else files)

    monkeypatch.setattr(FileTemplates, "add", refuse)
    monkeypatch.setattr(FileTemplates, "read", stopped)
    seen: list[tuple[pa.Table, list[str]]] = []

    async def work(ds: AsyncDataset, lap: Lap) -> None:
        table = await ds.to_table(["plain", "list", "struct"])
        seen.append((table, sorted([key for key, _, _ in ranges_of(lap()[1])])))

    run(objects, work, monkeypatch)
    assert general == []  # from the bytes that are there
    monkeypatch.setattr(remote_files.RemoteFiles, "_read_alone", lambda _, index, *given: [index])
    run(objects, work, monkeypatch)
    assert general == [1]
    monkeypatch.undo()
    run(objects, work, monkeypatch)
    (alone, keys), (again, more_keys), (together, _) = seen
    assert alone == again == together
    assert keys == sorted(key for key in objects if key.startswith("t/data/"))
    assert set(more_keys) == set(keys) and {key for key in keys if more_keys.count(key) > 1} == {odd}


def test_files_that_grow_much_are_not_decoded_together(
    tmp_path: Path, general: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them alone decodes to less than a job may, all of them to more."""
    dice = np.random.default_rng(1)
    for number in range(24):
        text = bytes(dice.integers(97, 123, 1000).astype("u1")).decode()
        rows = pa.table({"text": pa.repeat(text, 4000)})
        lance_io.write_dataset(rows, str(tmp_path / "t"), mode="append" if number else "create")
    decoded, sums = remote_files.RemoteFiles._decoded, []

    def noted(*given: Any) -> Any:
        parts = decoded(*given)
        sums.append(sum(map(remote_files._decoded_bytes, parts)))
        return parts

    monkeypatch.setattr(remote_files.RemoteFiles, "_decoded", noted)
    monkeypatch.setattr(FileTemplates, "add", lambda *_: False)

    async def work(ds: AsyncDataset, lap: Lap) -> None:
        assert (await ds.to_table()).equals(lance.dataset(tmp_path / "t").to_table())

    run(objects_of(tmp_path / "t"), work, monkeypatch)
    assert 0 < max(sums) <= limits.SCAN_DECODED_BYTES
    assert general


def test_where_few_files_have_templates_the_rest_is_read_in_the_general_way(
    objects: dict[str, bytes], general: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileTemplates, "add", lambda *_: False)
    monkeypatch.setattr(remote_files, "JOB_FILES_MAX", 2)
    monkeypatch.setattr(remote_files, "FILES_AHEAD_MAX", 4)

    async def work(ds: AsyncDataset, lap: Lap) -> None:
        assert (await ds.to_table(["plain"]))["plain"].to_pylist() == list(range(FILES * ROWS))

    run(objects, work, monkeypatch)
    assert len(general) == 1 and 20 <= general[0] < FILES


@pytest.mark.parametrize("damage", ["cut", "footer", "metadata", "missing"])
def test_damage_is_reported_with_the_file(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({name: range(100) for name in "abcd"})
    for number in range(12):
        lance_io.write_dataset(rows, str(tmp_path / "t"), mode="append" if number else "create")
    objects = objects_of(tmp_path / "t")
    key = sorted(key for key in objects if key.startswith("t/data/"))[7]
    data = bytearray(objects[key])
    if damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "footer":
        data[-4:] = b"ABCD"
    else:
        data[-120:-40] = bytes(80)
    objects[key] = bytes(data)
    if damage == "missing":
        del objects[key]

    async def work(ds: AsyncDataset, lap: Lap) -> None:
        error: type[Exception] = FileNotFoundError if damage == "missing" else FormatError
        with pytest.raises(error) as raised:
            await ds.to_table()
        assert key.rpartition("/")[2] in str(raised.value)

    run(objects, work, monkeypatch)


def test_a_scan_that_ends_early_leaves_nothing(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(ds: AsyncDataset, lap: Lap) -> None:
        others = asyncio.all_tasks()
        batches: Any = ds.to_batches(batch_size=50)
        await anext(batches)
        await batches.aclose()
        assert asyncio.all_tasks() == others
        for rounds in (0.0, 0.5):
            scan = asyncio.ensure_future(ds.to_table())
            await asyncio.sleep(rounds)
            scan.cancel()
            await asyncio.gather(scan, return_exceptions=True)
            assert asyncio.all_tasks() == others

    run(objects, work, monkeypatch)


def test_larger_files_are_read_whole_for_all_their_columns_only(
    tmp_path: Path, general: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files of some 100 kB, a warm scan of one column reads this column alone."""
    names = [f"c{number}" for number in range(12)]
    for number in range(8):
        dice = np.random.default_rng(number)
        rows = pa.table({name: dice.integers(0, 1 << 62, 1000) for name in names})
        lance_io.write_dataset(rows, str(tmp_path / "t"), mode="append" if number else "create")
    objects = objects_of(tmp_path / "t")
    sizes = sorted((key, 0, len(data)) for key, data in objects.items() if key.startswith("t/data/"))

    async def work(ds: AsyncDataset, lap: Lap) -> None:
        await ds.to_table()
        assert sorted(ranges_of(lap()[1])) == sizes
        assert general == []
        await ds.to_table(["c3"])
        lap()
        await ds.to_table(["c3"])
        rounds, log = lap()
        assert rounds == 1 and len(log) == 8
        assert sum([end - start for _, start, end in ranges_of(log)]) < 0.8 * sum([size for _, _, size in sizes])

    run(objects, work, monkeypatch)
    assert general == [8, 8]
