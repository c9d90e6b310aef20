"""Pages are encoded while the next rows come: how many at once, with which bytes, and what an error leaves."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from lance_io.file.write import file_bytes
from lance_io.file.write.file_writing import FileWriting
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_0, V2_1, V2_2, FileVersion
from lance_io.limits import KIB
from lance_io.plans.plan import drive_sync
from lance_io.runtime import pool
from lance_io.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

CORES = 3
PAGE_BYTES = 256 * KIB  # smaller ones are encoded in the caller's thread
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("s", pa.string())])


class Work(Future[Any]):
    """Work that begins when its result is asked for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            try:
                self.set_result(self._work())
            except BaseException as error:  # is the caller's
                self.set_exception(error)
        return super().result(timeout)


class LatePool(Executor):
    """Does no work before its result is asked for."""

    def __init__(self) -> None:
        self.begun: list[Work] = []

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Work:
        self.begun.append(Work(lambda: work(*arguments, **named)))
        return self.begun[-1]

    @property
    def num_open(self) -> int:
        return sum([not work.done() for work in self.begun])


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> LatePool:
    late = LatePool()
    monkeypatch.setattr(pool, "_pool", late)
    monkeypatch.setenv("LANCE_CPU_THREADS", str(CORES))
    return late


def rows(start: int, count: int) -> pa.RecordBatch:
    numbers = np.random.default_rng(start).integers(0, 1 << 60, count)
    return pa.record_batch([numbers, numbers / 3, [f"row {number}" for number in numbers.tolist()]], schema=SCHEMA)


def written(
    batches: list[pa.RecordBatch], version: FileVersion, *, held: bool, late: LatePool
) -> tuple[Any, list[int]]:
    """The bytes of a file, and how many pages were being encoded after each batch."""
    store = MemoryStore()
    writing = FileWriting(
        store,
        "t/a.lance",
        schema_from_arrow(SCHEMA),
        version,
        page_bytes=PAGE_BYTES,
        checks_rows=True,
        first_row=None,
        overlaps=True,
    )
    under_way = []
    for batch in batches:
        drive_sync(writing.write(batch, held=held))
        under_way.append(late.num_open)
        assert writing.writer.size_bytes >= late.num_open * PAGE_BYTES // 2
    drive_sync(writing.close())
    assert late.num_open == 0
    return bytes(store.get_sync("t/a.lance")), under_way


@pytest.mark.parametrize("version", [V2_0, V2_1, V2_2], ids=str)
def test_pages_are_encoded_while_rows_come(version: FileVersion, late: LatePool) -> None:
    """As many as there are cores, if the rows stay in memory; none otherwise. The bytes are the same."""
    batches = [rows(number, 20_000) for number in range(12)]
    data, under_way = written(batches, version, held=True, late=late)
    assert max(under_way) == CORES
    again, after = written(batches, version, held=False, late=late)
    assert set(after) == {0}
    assert data == again


def test_a_file_ends_at_the_same_row_while_pages_are_encoded(late: LatePool) -> None:
    for num_bytes, is_reached in ((1 << 40, False), (1000, True)):
        writing = FileWriting(
            MemoryStore(),
            "t/a.lance",
            schema_from_arrow(SCHEMA),
            V2_2,
            page_bytes=PAGE_BYTES,
            first_row=None,
            overlaps=True,
        )
        for number in range(4):
            drive_sync(writing.write(rows(number, 20_000), held=True))
        assert late.num_open
        assert drive_sync(writing.reaches(num_bytes)) is is_reached
        assert (late.num_open == 0) is is_reached  # only a limit that may be near waits for them
        drive_sync(writing.abort())
        late.begun.clear()


def test_an_error_of_encoding_ends_the_file(late: LatePool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    writing = FileWriting(store, "t/a.lance", schema_from_arrow(SCHEMA), V2_2, page_bytes=PAGE_BYTES, overlaps=True)

    def fail(*_: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(file_bytes.FileWriter, "_encode", fail)
    with pytest.raises(MemoryError, match="no room"):
        for number in range(12):
            drive_sync(writing.write(rows(number, 20_000), held=True))
    with pytest.raises(ValueError, match="failed"):
        drive_sync(writing.close())
