"""What `LanceFileReader` gives, and refuses, for arguments of every kind: as pylance's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as Peer
from lance.file import LanceFileWriter

from lance_io.file import AsyncFileReader, LanceFileReader

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_ROWS: Final = 300
BOUNDS: Final = [0, 5, 299, 300, 301, -1, 1.5, None, "1", 2**40, np.int32(3)]
COUNTS: Final = [0, 1, 10, 295, 300, -1, None, 2.0, 2**64 - 1]
ROWS: Final[list[Any]] = [
    *([0, 1, 2], [2, 1], [299], [300], [], [-1], [1.0], [1.5], ["1"], [None], [True], {1}, {1: 2}, 3, range(0, 9, 3)),
    *(np.arange(0, 300, 7), np.array([1.0]), np.array([False, True]), (1, 4)),
]
COLUMNS: Final[list[Any]] = [
    *(None, ["a"], ["s", "a"], ["zz"], ["A"], ["n.x"], ["n.y.z"], ["n", "n.x"], ["`a`"], [], "a", ("a", "s"), [1]),
    *(["st.p.q"], ["st.r"], ["n.y.`w w`"], ["st.p", "st.r"]),
    *(["n.y.z", "n.x"], ["n.y.`w w`", "a", "n.y.z"], ["st.r", "st.p.q"], ["n.y", "n"], ["n.y.`w w`", "n.y"]),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows: list[dict[str, Any]] = [
        {
            "a": row,
            "s": None if row % 7 == 3 else f"s{row}",
            "n": {"x": row, "y": {"z": str(row), "w w": row}} if row % 5 else None,
            "st": {"p": {"q": [row, row + 1]}, "r": [{"s": row}]} if row % 3 else None,
        }
        for row in range(NUM_ROWS)
    ]
    batch = pa.RecordBatch.from_pylist(rows)
    path = str(tmp_path_factory.mktemp("arguments") / "f.lance")
    with LanceFileWriter(path, batch.schema, version="2.2") as writer:
        writer.write_batch(batch)
    return path


def _outcome(call: Callable[[Any], Any], library: Any, path: str) -> Any:
    try:
        return call(lambda **options: library(path, **options))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # pylance panics for no rows
        return error


def _calls() -> dict[str, Callable[[Any], Any]]:
    calls: dict[str, Callable[[Any], Any]] = {}
    for bound in BOUNDS:
        for count in COUNTS:
            calls[f"range {bound!r} {count!r}"] = lambda r, a=bound, n=count: r().read_range(a, n).to_table()
    for size in (1, 7, 1024, -1, 1.5, "3", np.int64(9)):
        calls[f"size {size!r}"] = lambda r, size=size: [
            [len(batch) for batch in found.to_batches()]
            for found in (r().read_all(batch_size=size), r().take_rows([1, 3, 5], batch_size=size))
        ]
    for rows in ROWS:
        calls[f"rows {rows!r}"] = lambda r, rows=rows: r().take_rows(rows).to_table()
    for columns in COLUMNS:
        calls[f"columns {columns!r}"] = lambda r, columns=columns: [
            r(columns=columns).read_range(5, 9).to_table(),
            r(columns=columns).take_rows([5, 9]).to_table(),
            r(columns=columns).num_rows(),
        ]
    return calls


def test_arguments_of_every_kind_mean_what_they_mean_to_pylance(path: str) -> None:
    different = {}
    for name, call in _calls().items():
        theirs, ours = (_outcome(call, library, path) for library in (Peer, LanceFileReader))
        if isinstance(theirs, Exception):  # where two arguments are wrong, either may be named
            same = isinstance(ours, (type(theirs), TypeError, OverflowError))
        else:
            same = isinstance(theirs, BaseException) or (not isinstance(ours, Exception) and theirs == ours)
        if not same:
            different[name] = (repr(theirs)[:200], repr(ours)[:200])
    assert different == {}


async def test_the_asynchronous_reader_refuses_the_same(path: str) -> None:
    async with AsyncFileReader(path) as reader:
        for rows, error in (([1.5], TypeError), ([-1], OverflowError), ({1}, TypeError), ([300], ValueError)):
            with pytest.raises(error):
                await reader.take_rows(rows)
        for start, count, error in ((-1, 1, OverflowError), (0, 1.5, TypeError), (299, 2, ValueError)):
            with pytest.raises(error):
                await reader.read_range(start, count)
        for size, error in ((0, ValueError), (-1, OverflowError)):
            with pytest.raises(error):
                [batch async for batch in reader.read_all(batch_size=size)]
    for size, error in ((0, ValueError), (-1, OverflowError)):
        with pytest.raises(error):
            LanceFileReader(path).read_all(batch_size=size)
