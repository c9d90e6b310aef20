"""Decoded leaves as one Arrow batch: only where their buffers are what the types want, and freed however it ends."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from lance_io._kernels import ArrowBatch, Layouts, PageRows, PagesPlan, PlainPage
from lance_io.levels.layout import BatchLayout
from tests.kernels.pages import i64

WIDTH = 8
WORDS = struct.pack("<cI", b"f", 64)


def plan_of(num_rows: int, num_columns: int = 1, num_layers: int = 1, num_bitmaps: int = 0) -> PagesPlan:
    """Columns of 8 bytes a row, all in one file, behind each other."""
    pages: list[Any] = [
        PlainPage(at * num_rows * WIDTH, WIDTH, num_rows, num_layers, num_bitmaps) for at in range(num_columns)
    ]
    rows = PageRows(
        i64(range(num_rows)), i64([0, num_rows] * num_columns), [2 * at for at in range(1, num_columns + 1)]
    )
    return PagesPlan([(rows, pages, list(range(num_columns)))], num_columns)


def decoded(num_rows: int, programs: list[bytes] | None, **kind: int) -> Any:
    plan = plan_of(num_rows, **kind)
    num_columns = kind.get("num_columns", 1)
    fetched = b"".join(struct.pack("<q", row) for row in range(num_rows * num_columns))
    offsets = i64([at * num_rows * WIDTH for at in range(num_columns)])
    return plan.decode([(fetched, offsets)], lambda: 1, None if programs is None else Layouts(programs))


def test_columns_become_a_batch_that_is_imported_once() -> None:
    layout = BatchLayout.of(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    assert layout is not None
    found = plan_of(3, 2).decode(
        [(b"".join(struct.pack("<q", row) for row in range(6)), i64([0, 24]))], lambda: 1, layout.columns
    )
    assert isinstance(found, ArrowBatch)
    batch = layout.batch(found)
    del found
    batch.validate(full=True)
    assert batch.to_pydict() == {"a": [0, 1, 2], "b": [3, 4, 5]}
    again = decoded(3, [WORDS, WORDS], num_columns=2)
    layout.batch(again)
    with pytest.raises(pa.ArrowInvalid, match="released"):
        layout.batch(again)


@pytest.mark.parametrize(
    ("programs", "kind"),
    [
        ([struct.pack("<cI", b"f", 65)], {}),
        ([struct.pack("<cI", b"f", 2**32 - 1)], {}),
        ([struct.pack("<cI", b"f", 0)], {}),
        ([b"v"], {}),
        ([b"V"], {}),
        ([b"s" + WORDS], {}),
        ([b"l" + WORDS], {"num_layers": 2}),
        ([b"L" + WORDS], {"num_layers": 2}),
        ([WORDS], {"num_layers": 2}),
        ([WORDS], {"num_layers": 0}),
        ([WORDS], {"num_bitmaps": 1}),
        ([struct.pack("<cI", b"i", 2) + WORDS], {"num_bitmaps": 1}),
        ([struct.pack("<cI", b"i", 2**32 - 1) * 2 + WORDS], {"num_bitmaps": 2}),
        ([struct.pack("<cI", b"i", 1) + WORDS], {}),
    ],
    ids=str,
)
def test_leaves_that_are_laid_out_otherwise_stay_leaves(programs: list[bytes], kind: dict[str, int]) -> None:
    found = decoded(3, programs, **kind)
    assert isinstance(found, list)
    assert [bytes(leaf[1][-1]) for leaf in found] == [bytes(leaf[1][-1]) for leaf in decoded(3, None, **kind)]


@pytest.mark.parametrize(
    ("dtype", "kind", "expected"),
    [
        (pa.int64(), {}, [0, 1]),
        (pa.binary(8), {}, [bytes(8), b"\1" + bytes(7)]),
        (pa.int32(), {}, [0, 0]),
        (pa.struct([("m", pa.int64())]), {"num_layers": 2}, [{"m": 0}, {"m": 1}]),
        (pa.list_(pa.int32(), 2), {"num_bitmaps": 1}, [[0, 0], [1, 0]]),
        (pa.list_(pa.list_(pa.uint8(), 4), 2), {"num_bitmaps": 2}, [[[0] * 4] * 2, [[1, 0, 0, 0], [0] * 4]]),
    ],
    ids=str,
)
def test_layouts_of_types(dtype: pa.DataType, kind: dict[str, int], expected: list[Any]) -> None:
    layout = BatchLayout.of(pa.schema([("c", dtype)]))
    assert layout is not None
    found = plan_of(2, **kind).decode([(struct.pack("<qq", 0, 1), i64([0]))], lambda: 1, layout.columns)
    assert isinstance(found, ArrowBatch)
    batch = layout.batch(found)
    batch.validate(full=True)
    assert batch.column(0).to_pylist() == expected


@pytest.mark.parametrize(
    "dtype",
    [
        pa.null(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.struct([("a", pa.int64()), ("b", pa.int64())]),
        pa.struct([]),
        pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.string(), 2),
        pa.list_(pa.struct([("a", pa.int64())]), 2),
        pa.list_(pa.null()),
        pa.string_view(),
        pa.uuid(),
        pa.list_(pa.uuid()),
    ],
    ids=str,
)
def test_types_that_have_no_layout(dtype: pa.DataType) -> None:
    assert BatchLayout.of(pa.schema([("c", dtype)])) is None
    assert BatchLayout.of(pa.schema([("a", pa.int64()), ("c", dtype)])) is None


def test_few_bytes_share_their_memory_and_many_do_not() -> None:
    assert isinstance(decoded(1 << 12, [WORDS, WORDS], num_columns=2), ArrowBatch)
    assert isinstance(decoded((1 << 12) + 1, [WORDS, WORDS], num_columns=2), list)


@pytest.mark.parametrize("program", [b"", b"x", b"f", b"f123", WORDS + b"v", b"s", b"i\1\0\0\0s" + WORDS], ids=str)
def test_programs_that_mean_nothing(program: bytes) -> None:
    with pytest.raises(ValueError):
        Layouts([program])


def test_layouts_and_columns_go_together() -> None:
    for programs in ([WORDS], [WORDS] * 3):
        with pytest.raises(ValueError):
            decoded(3, programs, num_columns=2)


def test_columns_of_different_lengths_make_no_batch() -> None:
    pages: list[Any] = [PlainPage(0, WIDTH, 2, 1, 0), PlainPage(16, WIDTH, 2, 1, 0)]
    both = PageRows(i64([0, 1]), i64([0, 2, 0, 2]), [2, 4])
    plan = PagesPlan([(both, pages, [0, 1]), (both, pages, [0, None])], 2)
    fetched = [(bytes(32), i64([0, 16])), (bytes(32), i64([0]))]
    assert isinstance(plan.decode(fetched, lambda: 1, None), list)
    with pytest.raises(ValueError):
        plan.decode(fetched, lambda: 1, Layouts([WORDS, WORDS]))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("is_imported", [False, True])
def test_a_batch_is_freed_with_the_last_that_holds_it(is_imported: bool) -> None:
    layout = BatchLayout.of(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    assert layout is not None

    def once() -> None:
        found = decoded(4096, [WORDS, WORDS], num_columns=2)
        assert isinstance(found, ArrowBatch)
        if is_imported:
            column = layout.batch(found).column(1)
            del found
            assert column[4095].as_py() == 8191  # held by the column alone

    for _ in range(50):
        once()
    before = resident_bytes()
    for _ in range(1000):  # 64 MiB
        once()
    assert resident_bytes() - before < 16 << 20
