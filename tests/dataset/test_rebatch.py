"""Batches of the wanted size: exact by rows, about by bytes, and without a copy where there is none to be made."""

from __future__ import annotations

import sys
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.reads.rows.rebatch import JOINED_PART, Rebatcher

SIZES = st.lists(st.lists(st.integers(0, 300), max_size=30), max_size=10)
MANY = 1_000_000


def batch_of(sizes: list[int], first: int = 0) -> pa.RecordBatch:
    """A row for each of the sizes, with so many bytes, numbered from `first`."""
    values = pa.array([b"x" * size for size in sizes], pa.binary())
    return pa.record_batch({"b": values, "n": pa.array(range(first, first + len(sizes)), pa.int64())})


def rebatched(
    batches: list[pa.RecordBatch], rebatcher: Rebatcher, spans: list[int] | None = None
) -> list[pa.RecordBatch]:
    found = [
        one
        for number, batch in enumerate(batches)
        for one in rebatcher.push(batch, 0 if spans is None else spans[number])
    ]
    return [*found, *rebatcher.flush()]


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch["n"].to_pylist()]


def batches_of(sizes: list[list[int]]) -> list[pa.RecordBatch]:
    firsts = [sum(map(len, sizes[:number])) for number in range(len(sizes))]
    return [batch_of(one, first) for one, first in zip(sizes, firsts, strict=True)]


@given(SIZES, st.integers(1, 50))
def test_batches_are_full_to_the_row(sizes: list[list[int]], rows_max: int) -> None:
    found = rebatched(batches_of(sizes), Rebatcher(rows_max))
    num_rows = sum(map(len, sizes))
    assert numbers(found) == list(range(num_rows))
    assert [batch.num_rows for batch in found] == [min(rows_max, num_rows - at) for at in range(0, num_rows, rows_max)]


@given(SIZES, st.integers(1, 50), st.data())
def test_batches_end_with_their_fragment(sizes: list[list[int]], rows_max: int, data: st.DataObject) -> None:
    steps = st.lists(st.integers(0, 1), min_size=len(sizes), max_size=len(sizes))
    spans = [sum(steps[: number + 1]) for steps in [data.draw(steps)] for number in range(len(sizes))]
    found = rebatched(batches_of(sizes), Rebatcher(rows_max, across=False), spans)
    of_row = [span for span, one in zip(spans, sizes, strict=True) for _ in one]
    assert numbers(found) == list(range(len(of_row)))
    for batch in found:
        assert len({of_row[number] for number in batch["n"].to_pylist()}) == 1
    for batch, following in pairwise(found):
        same = of_row[batch["n"][-1].as_py()] == of_row[following["n"][0].as_py()]
        assert batch.num_rows == rows_max or not same


@given(SIZES, st.integers(1, 2000), st.none() | st.integers(1, 50))
def test_batches_have_about_the_wanted_bytes(sizes: list[list[int]], bytes_max: int, rows_max: int | None) -> None:
    found = rebatched(batches_of(sizes), Rebatcher(rows_max, bytes_max))
    assert numbers(found) == list(range(sum(map(len, sizes))))
    for batch in found:
        assert 0 < batch.num_rows <= (rows_max or batch.num_rows)
        assert batch.num_rows == 1 or batch.nbytes <= 2 * bytes_max


def test_small_batches_are_joined_and_others_are_not() -> None:
    small, large = [batch_of([10] * 20) for _ in range(8)], batch_of([1000] * 20)
    (joined,) = rebatched(small, Rebatcher(None, MANY))
    assert joined.num_rows == 160
    found = rebatched([*small[:2], large, *small[2:]], Rebatcher(None, JOINED_PART * 20_000))
    assert [batch.num_rows for batch in found] == [40, 20, 120]
    assert found[1]["b"].buffers()[2].address == large["b"].buffers()[2].address


@pytest.mark.parametrize("bytes_max", [None, MANY])
def test_full_batches_are_not_copied(bytes_max: int | None) -> None:
    batches = [batch_of([10] * 20), batch_of([10] * 20)]
    found = rebatched(batches, Rebatcher(20, bytes_max))
    assert [one["b"].buffers()[2].address for one in found] == [one["b"].buffers()[2].address for one in batches]
    later = rebatched([batch_of([10] * 5), *batches], Rebatcher(20, bytes_max))
    assert [one.num_rows for one in later] == ([20, 20, 5] if bytes_max is None else [5, 20, 20])


def test_batches_without_columns_count_their_rows() -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(7)], ["n"]).select([])
    assert [one.num_rows for one in rebatched([batch] * 3, Rebatcher(5))] == [5, 5, 5, 5, 1]
    assert [one.num_rows for one in rebatched([batch] * 3, Rebatcher(None, MANY))] == [21]


@pytest.mark.parametrize("num_rows", [[6, 10], [10], [4, 20]], ids=["joined", "whole", "joined and slices"])
def test_no_batch_is_held_while_it_is_used(num_rows: list[int]) -> None:
    rebatcher = Rebatcher(10, None)
    *few, last = [pa.record_batch({"a": pa.array(range(count))}) for count in num_rows]
    for batch in few:
        assert not list(rebatcher.push(batch))
    batches = rebatcher.push(last)
    del last
    complete = next(batches)
    assert complete.num_rows == 10
    assert sys.getrefcount(complete) == 2, "this variable, and the argument"
