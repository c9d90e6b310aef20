"""Searching texts: the same rows as Arrow's own kernel and Python's `in`, whatever the layout of the array."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io.filters import compile_filter
from lance_io.filters.functions import text_search

TEXTS = st.lists(st.none() | st.text(alphabet="abä€", max_size=9), max_size=30)
NEEDLES = st.text(alphabet="abä€", min_size=1, max_size=4)


@given(texts=TEXTS, wanted=NEEDLES, start=st.integers(0, 5), large=st.booleans())
def test_rows_are_those_of_a_plain_search(texts: list[str | None], wanted: str, start: int, large: bool) -> None:
    column = pa.array(texts, pa.large_string() if large else pa.string()).slice(start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_search, "DENSITY_MAX", 1.0)  # never give up
        found = text_search.contains(column, wanted)
    assert found.to_pylist() == [None if text is None else wanted in text for text in texts[start:]]
    assert found.equals(pc.match_substring(column, wanted))


def test_what_lies_across_two_rows_does_not_count() -> None:
    column = pa.array(["xxxxxxxxxxxxxa", "bxxxxxxxxxxxxx", None, "xxxxxxxxxxxxab"])
    assert text_search.contains(column, "ab").to_pylist() == [False, False, None, True]


def test_many_places_are_searched_row_by_row() -> None:
    column = pa.array(["aaaaaaaa", "aaaa", "aaab"])
    assert text_search.contains(column, "aaaab").to_pylist() == [False, False, False]
    assert text_search.contains(column, "aaab").to_pylist() == [False, False, True]


def test_bytes_under_nulls_are_not_looked_at() -> None:
    offsets, data = pa.array([0, 2, 4], pa.int32()).buffers()[1], pa.py_buffer(b"abab")
    column = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x01"), offsets, data])
    assert text_search.contains(column, "ab").to_pylist() == [True, None]


@pytest.mark.parametrize("pattern", ["%ab%", "%%ab%", "%a%b%", "%a_b%", "ab%", "%ab", r"%a\%b%", "%", "%\n%"])
def test_like_finds_what_the_general_matcher_finds(pattern: str) -> None:
    texts = ["ab", "xxabxx", "a%b", "a_b", "axb", "ba", "", "a\nb", "xxxxxxxxxxxxxxxxxxxxab"]
    batch = pa.record_batch({"s": texts})
    predicate = compile_filter(f"s LIKE '{pattern}'", batch.schema)
    assert predicate.mask(batch).equals(pc.match_like(batch["s"], pattern))
