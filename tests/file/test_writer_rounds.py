"""Cold random access to files that we write, as exact numbers: rounds and requests over a store that plans as on S3.

What a take has to know before it can locate rows lies together right before the file's metadata, so the read that opens
the file brings it along.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from lance_io import runtime
from lance_io.file.file_requests import read_file_sync
from lance_io.file.open.file_source import FileRef, FragmentSource, ReadContext
from lance_io.file.open.open_file import open_standalone
from lance_io.file.table_reader import TableReader
from lance_io.file.write.file_writing import FileWriting
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_1, V2_2
from lance_io.io.cache import SearchCache
from lance_io.limits import KIB, MIB
from lance_io.plans.plan import drive_async, drive_sync
from lance_io.store.memory import MemoryStore
from lance_io.store.profile import CLOUD
from lance_io.testing.latency import LatencyStore, run_virtual
from lance_io.testing.record import RecordingStore

KEY = "t/data/one.lance"


@dataclass
class Written:
    """A file in memory, and the fields of its schema."""

    store: MemoryStore
    size_bytes: int
    fields: tuple
    leaves: tuple[int, ...]

    def cold_take(self, rows: list[int]) -> tuple[list[pa.Array], int, list[tuple[int, int]]]:
        """The rows, and by how many rounds and which ranges they were read."""
        recording = RecordingStore(LatencyStore(self.store))
        context = ReadContext(recording, SearchCache(1 << 28))
        ref = FileRef(KEY, self.size_bytes, self.leaves, tuple(range(len(self.leaves))))
        source = FragmentSource(1 << 40, (ref,))
        reader = TableReader(context, self.fields)

        async def take() -> list[pa.Array]:
            with runtime.use_loop(asyncio.get_running_loop()):
                return await drive_async(reader.take([(source, np.array(rows, dtype=np.int64))]))

        arrays, rounds = run_virtual(take)
        spans = [line.split(" ")[2].split("-") for line in recording.take_log()]
        return arrays, round(rounds), [(int(start), int(end)) for start, end in spans]

    @property
    def metadata_bytes(self) -> int:
        """From the descriptor to the end."""
        ref = FileRef(KEY, self.size_bytes, (), ())
        context = ReadContext(self.store, SearchCache(1 << 28))
        file = read_file_sync(open_standalone(context, ref), context, KEY)
        return self.size_bytes - int(file.global_buffers.positions[0])


def written(table: pa.Table, page_bytes: int, version=V2_1) -> Written:
    store = MemoryStore(profile=CLOUD)
    schema = schema_from_arrow(table.schema)
    writing = FileWriting(store, KEY, schema, version, page_bytes=page_bytes)
    for batch in table.to_batches():
        drive_sync(writing.write(batch))
    result = drive_sync(writing.close())
    return Written(store, result.size_bytes, schema.fields, result.field_ids)


def columns(rows: int) -> pa.Table:
    """Columns with every kind of initialisation data: chunk metadata, dictionaries, repetition indexes."""
    dice = np.random.default_rng(0)
    lists = pa.ListArray.from_arrays(np.arange(0, 2 * rows + 1, 2, dtype=np.int32), dice.integers(0, 1 << 50, 2 * rows))
    words = pa.array(np.array([f"word {i}" for i in range(50)])[dice.integers(0, 50, rows)])
    return pa.table({"a": dice.integers(0, 1 << 60, rows), "w": words, "l": lists})


@pytest.mark.parametrize("version", [V2_1, V2_2], ids=str)
@pytest.mark.parametrize(("rows", "page_bytes"), [(200_000, 8 * MIB), (200_000, 128 * KIB), (200_000, 64 * KIB)])
def test_two_rounds_when_index_and_metadata_fit_the_probe(rows: int, page_bytes: int, version) -> None:
    """However many pages the file has: one read opens it, one per column brings the row."""
    table = columns(rows)
    file = written(table, page_bytes, version)
    arrays, rounds, reads = file.cold_take([123_456])
    assert [array.to_pylist() for array in arrays] == [c.slice(123_456, 1).to_pylist() for c in table.columns]
    assert rounds == 2
    assert len(reads) == 1 + 3
    assert reads[0] == (file.size_bytes - 64 * KIB, file.size_bytes)


def test_three_rounds_when_they_do_not() -> None:
    """On both sides of the border: one page more than fits makes it three rounds, and no more requests than that."""
    dice = np.random.default_rng(0)
    seen = {}
    for pages in (180, 200, 260, 280, 300, 320, 360, 400, 600, 1200):
        table = pa.table({"a": dice.integers(0, 1 << 60, pages * 1024)})
        file = written(table, 8 * KIB)
        row = 3 * 1024 + 5
        arrays, rounds, reads = file.cold_take([row])
        assert arrays[0].to_pylist() == table["a"].slice(row, 1).to_pylist()
        fits = file.metadata_bytes + 64 * pages <= 64 * KIB
        assert rounds == (2 if fits else 3), (pages, file.metadata_bytes)
        assert len(reads) == rounds
        seen[fits] = True
    assert seen == {True: True, False: True}


def test_the_probe_grows_with_the_file() -> None:
    rows = 5_000_000
    table = pa.table({"a": np.random.default_rng(0).integers(0, 1 << 60, rows)})
    file = written(table, 48 * KIB)  # a 256th of it is what metadata and index take
    assert file.metadata_bytes > 64 * KIB
    arrays, rounds, reads = file.cold_take([4_000_000])
    assert arrays[0].to_pylist() == table["a"].slice(4_000_000, 1).to_pylist()
    assert reads[0] == (file.size_bytes - file.size_bytes // 256, file.size_bytes)
    assert rounds == 2
