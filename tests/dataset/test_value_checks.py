"""`read_params={"validate_on_decode": True}`: values that their type has not are refused, wherever they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 3000
BAD_ROW = 2217
CHECKED = {"validate_on_decode": True}


def text(values: list[bytes]) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def lists(values: list[bytes]) -> pa.Array:
    return pa.ListArray.from_arrays(list(range(len(values) + 1)), text(values))


def times(values: list[int]) -> pa.Array:
    return pa.array(values, pa.int32()).view(pa.time32("s"))


def decimals(values: list[int]) -> pa.Array:
    words = b"".join(value.to_bytes(16, "little") for value in values)
    return pa.Array.from_buffers(pa.decimal128(3, 0), len(values), [None, pa.py_buffer(words)])


BAD = {
    "text": (text, b"fine %d", b"not \xff utf-8"),
    "long-text": (text, b"fine %d" + b"." * 600, b"\xff" * 600),
    "few-texts": (text, b"fine", b"\xc3\x28"),
    "texts-in-lists": (lists, b"fine %d", b"\xa0\xa1"),
    "time-of-day": (times, 5, 86_400),
    "decimal": (decimals, 999, 1000),
}


def bad_table(kind: str) -> pa.Table:
    """One row of the column cannot be."""
    make, good, bad = BAD[kind]
    values = [good % row if isinstance(good, bytes) and b"%d" in good else good for row in range(ROWS)]
    values[BAD_ROW] = bad
    return pa.table({"row": range(ROWS), "odd": make(values)})


@pytest.fixture(params=[(kind, version) for kind in BAD for version in ("2.1", "2.2")], ids="-".join)
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind, version = request.param
    place = str(tmp_path / "t.lance")
    lance.write_dataset(bad_table(kind), place, data_storage_version=version, max_rows_per_file=1000)
    return place


def is_refused(error: pytest.ExceptionInfo[FormatError], table: Any) -> None:
    """The message has the column and the file."""
    [file] = table.get_fragment(BAD_ROW // 1000).data_files()
    assert 'column "odd"' in str(error.value)
    assert file.path in str(error.value)


def test_values_are_checked_where_that_is_asked_for(uri: str) -> None:
    plain, checked = lance_io.dataset(uri), lance_io.dataset(uri, read_params=CHECKED)
    assert plain.to_table().num_rows == ROWS
    assert plain.take([BAD_ROW]).num_rows == 1
    for call in (
        lambda: checked.to_table(),
        lambda: list(checked.to_batches(["odd"], batch_size=100)),
        lambda: checked.take([BAD_ROW, 4, BAD_ROW]),
        lambda: checked.to_table(["row"], "odd IS NOT NULL"),
        lambda: checked.get_fragment(2).take([BAD_ROW % 1000]),
        lambda: checked.checkout_version(1).to_table(["odd"], offset=BAD_ROW - 1, limit=3),
    ):
        with pytest.raises(FormatError) as error:
            call()
        is_refused(error, plain)
    assert checked.to_table(["row"])["row"].to_pylist() == list(range(ROWS))
    assert checked.take([BAD_ROW - 1, 0]) == plain.take([BAD_ROW - 1, 0])
    assert checked.to_table(limit=2000) == plain.to_table(limit=2000)
    assert len(list(checked.to_batches(limit=500, batch_size=100))) == 5


async def test_values_are_checked_for_awaiting_callers(uri: str) -> None:
    checked = await lance_io.AsyncDataset.open(uri, read_params=CHECKED)
    for call in (checked.to_table(), checked.take([BAD_ROW]), _read_all(checked)):
        with pytest.raises(FormatError) as error:
            await call
        is_refused(error, lance_io.dataset(uri))
    assert (await checked.to_table(limit=2000)).num_rows == 2000
    async for batch in checked.to_batches(batch_size=10):
        assert batch.num_rows == 10
        break


async def _read_all(table: lance_io.AsyncDataset) -> list[pa.RecordBatch]:
    return [batch async for batch in table.to_batches(["odd"], batch_size=64)]
