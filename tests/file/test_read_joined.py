"""Ranges of several files in one round: what they bring, against slices of the bytes that were written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.errors import FormatError
from lance_io.file import file_requests
from lance_io.file.file_requests import ReadFiles
from lance_io.file.file_steps import Independent, ReadJoined
from lance_io.file.open.file_source import FileRef, ReadContext
from lance_io.io.cache import SearchCache
from lance_io.io.stats import io_stats
from lance_io.spans import Fetched, Ranges
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.file.file_steps import FilesSteps, FileSteps

FILES, FILE_BYTES = 20, 5000


class Files:
    """Files of random bytes in a store, and ranges of each."""

    def __init__(self, store: LocalStore | MemoryStore, folder: str) -> None:
        rng = np.random.default_rng(FILES)
        self.store = store
        self.contents = [rng.bytes(FILE_BYTES) for _ in range(FILES)]
        self.files = [FileRef(f"{folder}/{number}", FILE_BYTES, (), ()) for number in range(FILES)]
        for file, content in zip(self.files, self.contents, strict=True):
            store.put_sync(file.key, content)
        counts = [1 + number % 4 for number in range(FILES)]
        self.bounds = np.cumsum([0, *counts]).tolist()
        starts = rng.integers(0, 4000, self.bounds[-1])
        self.ranges = Ranges(starts, starts + rng.integers(0, 900, len(starts)))

    def expected(self, at: int) -> list[bytes]:
        """The bytes of the ranges of one file."""
        part = self.ranges.part(self.bounds[at], self.bounds[at + 1])
        return [self.contents[at][start:end] for start, end in zip(part.starts, part.ends, strict=True)]

    def pieces(self, at: int, fetched: Fetched, first: int = 0) -> list[bytes]:
        """What was fetched of the ranges of one file, of which the first has this number there."""
        part = self.ranges.part(self.bounds[at], self.bounds[at + 1])
        lengths = (part.ends - part.starts).tolist()
        return [bytes(fetched.piece(number, length)) for number, length in enumerate(lengths, first)]


@pytest.fixture(params=["local", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return Files(LocalStore(), str(tmp_path)) if request.param == "local" else Files(MemoryStore(), "some")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
def test_ranges_of_several_files(files: Files, monkeypatch: pytest.MonkeyPatch, is_async: bool, is_large: bool) -> None:
    """In one buffer, or in one for each file; where all are much memory, each is used once, and not kept."""
    if is_large:
        monkeypatch.setattr(file_requests, "POOL_BYTES", 1000)
        monkeypatch.setattr(file_requests, "READ_PART_BYTES", 2000)
    used: dict[int, list[bytes]] = {}

    def use(at: int, fetched: Fetched) -> None:
        assert at not in used
        used[at] = files.pieces(at, fetched)

    def read() -> FilesSteps[list[list[bytes]]]:
        found: Fetched | list[Fetched | None] = yield ReadJoined(files.files, files.ranges, files.bounds, use)
        if isinstance(found, Fetched):
            return [files.pieces(at, found, first) for at, first in enumerate(files.bounds[:-1])]
        return [used[at] if one is None else files.pieces(at, one) for at, one in enumerate(found)]

    reading = ReadFiles(ReadContext(files.store, SearchCache(1 << 20)), read())
    with io_stats() as seen:
        found = runtime.run(reading.answer_async()) if is_async else reading.answer_sync()
    assert found == [files.expected(at) for at in range(FILES)]
    assert bool(used) == (is_large and not is_async)
    assert seen.num_ranges == len(files.ranges)
    assert seen.bytes_wanted == files.ranges.num_bytes


@pytest.mark.parametrize("is_async", [False, True])
def test_a_file_that_is_cut_off_is_named(files: Files, is_async: bool) -> None:
    files.store.put_sync(files.files[7].key, bytes(3))

    def read() -> FilesSteps[None]:
        yield ReadJoined(files.files, files.ranges, files.bounds, lambda at, fetched: None)

    reading = ReadFiles(ReadContext(files.store, SearchCache(1 << 20)), read())
    with pytest.raises(FormatError, match="cut off") as caught:
        runtime.run(reading.answer_async()) if is_async else reading.answer_sync()
    assert caught.value.path == files.files[7].key


@pytest.mark.parametrize("is_cut", [False, True])
def test_reads_of_independent_computations_are_charged_until_they_end(
    files: Files, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    """And those of the computation around them until its own end."""
    monkeypatch.setattr(file_requests, "UNCHARGED_BYTES_MAX", 0)
    context = ReadContext(files.store, SearchCache(1 << 20))
    free, parts = context.pool.avail_bytes, [files.files[number] for number in range(3)]
    charged: list[int] = []
    if is_cut:
        files.store.put_sync(parts[1].key, bytes(3))

    def seen() -> None:
        charged.append(free - context.pool.avail_bytes)

    def part() -> FileSteps[bytes]:
        first: Fetched = yield Ranges.of((0, 100))
        seen()
        data = bytes(first.piece(0, 100))
        second: Fetched = yield Ranges.of((4000, 4010))
        seen()
        return data + bytes(second.piece(0, 10))

    def read() -> FilesSteps[list[bytes]]:
        yield [(parts[0], Ranges.of((0, 7)))]
        seen()
        try:
            answers: list[bytes] = yield Independent([(ref, part()) for ref in parts])
        finally:
            seen()
        yield [(parts[2], Ranges.of((0, 5)))]
        seen()
        return answers

    reading = ReadFiles(context, read())
    with io_stats() as counted:
        if is_cut:
            with pytest.raises(FormatError, match="cut off"):
                reading.answer_sync()
            assert charged == [7, 7]
        else:
            assert reading.answer_sync() == [data[:100] + data[4000:4010] for data in files.contents[:3]]
            assert charged == [7, *[7 + 300] * 3, *[7 + 330] * 3, 7, 7 + 5]
            assert (counted.num_ranges, counted.bytes_wanted) == (1 + 6 + 1, 7 + 330 + 5)
    assert context.pool.avail_bytes == free


def test_files_of_which_nothing_need_be_read(tmp_path: Path) -> None:
    """Nulls and constants are in the metadata: such files are as the others, and are not asked again."""
    uri = str(tmp_path / "t")
    values: list[list[int | None]] = [[1, 2, 3], [None, None, None], [4, None, 5], [None], [7, 7, 7, 7], [None] * 3]
    for part in values:
        lance.write_dataset(pa.table({"n": pa.array(part, pa.int64())}), uri, mode="append", data_storage_version="2.1")
    wanted = [0, 2, 3, 5, 6, 7, 9, 10, 12, 15]
    expected = lance.dataset(uri).take(wanted).to_pylist()
    ours = lance_io.dataset(uri)
    for _ in range(2):
        assert ours.take(wanted).to_pylist() == expected

    async def later() -> list[dict[str, int]]:
        async with lance_io.AsyncDataset.open(uri) as dataset:
            found: list[dict[str, int]] = (await dataset.take(wanted)).to_pylist()
            return found

    assert asyncio.run(later()) == expected
