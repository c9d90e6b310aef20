"""Kernels that look at many whole pages in one call, against those that look at one, and damage in one of many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lance_io import _kernels
from lance_io._kernels import DamagedError
from tests.kernels.pages import i64, longs, strings
from tests.reference import codecs as ref

U16, U32 = ref.flat(16), ref.flat(32)


class Pages:
    """Pages laid one behind the other into one buffer, and where their buffers are in it."""

    def __init__(self) -> None:
        self.described: list[tuple[Any, ...]] = []
        self.buffers: list[list[bytes]] = []

    def add(
        self, program: bytes, buffers: list[bytes], num_items: int, num_rows: int | None = None, *dictionary: Any
    ) -> None:
        codec, num_dictionary_items = dictionary or (None, 0)
        sizes = [len(buffer) for buffer in buffers]
        self.described.append((program, 640, False, num_items, num_rows, codec, num_dictionary_items, sizes))
        self.buffers.append(buffers)

    def fetched(self, *, with_chunks: bool) -> tuple[bytes, Any]:
        chosen = [one for page in self.buffers for at, one in enumerate(page) if with_chunks or at != 1]
        starts = np.cumsum([3, *map(len, chosen)])[:-1]
        return b"???" + b"".join(chosen), i64(starts.tolist())


def word(chunk: bytes, log2: int) -> bytes:
    return ((len(chunk) // 8 - 1) << 4 | log2).to_bytes(2, "little")


@pytest.fixture
def pages() -> Pages:
    """Plain numbers in two chunks; lists; strings by way of a dictionary."""
    found = Pages()
    first, second = ref.chunk([ref.ints([1, 2, 3, 4], 32)]), ref.chunk([ref.ints([5], 32)])
    found.add(ref.miniblock([1], U32), [word(first, 2) + word(second, 0), first + second], 5)
    lists = ref.chunk([ref.ints([7, 8, 9], 32)], num_levels=3, rep=ref.ints([1, 0, 1], 16))
    index = (2).to_bytes(8, "little") + bytes(8)
    found.add(ref.miniblock([1, 2], U32, rep=U16), [word(lists, 0), lists, index], 3, 2)
    indices = ref.chunk([ref.ints([1, 0, 1], 32)])
    block = ref.variable_block([b"red", b"blue"])
    program = ref.miniblock([1], U32, dictionary=b"\x02")
    found.add(program, [word(indices, 0), indices, block], 3, None, ref.variable(), 2)
    return found


def test_each_page_has_its_index(pages: Pages) -> None:
    numbers, lists, texts = _kernels.index_pages(pages.described, *pages.fetched(with_chunks=False))
    first = (pages.buffers[0][0][0] // 16 + 1) * 8  # by its word
    assert [longs(one) for one in numbers[:2]] == [[0, first, len(pages.buffers[0][1])], [0, 4, 5]]
    assert [longs(one) for one in lists[:2]] == [[0, len(pages.buffers[1][1])], [0, 3]]
    assert [longs(one) for one in texts[:2]] == [[0, len(pages.buffers[2][1])], [0, 3]]
    assert numbers[2:] == (None, None, None)
    assert (longs(lists[2]), bytes(lists[3])) == ([0, 2], b"\0")
    assert strings(*texts[4]) == [b"red", b"blue"]


def test_all_rows_of_all_pages(pages: Pages) -> None:
    numbers, lists, texts = _kernels.scan_pages([(pages.described, *pages.fetched(with_chunks=True))])
    assert (numbers[0], longs(numbers[1][0], "<i4")) == (5, [1, 2, 3, 4, 5])
    assert (lists[0], longs(lists[1][0], "<i4"), longs(lists[2][1][3], "<i4")) == (3, [7, 8, 9], [0, 2, 3])
    assert (texts[0], strings(*texts[1])) == (3, [b"blue", b"red", b"blue"])


def _scan(*file: Any) -> Any:
    """All rows of the pages of one file."""
    return _kernels.scan_pages([file])


@pytest.mark.parametrize("with_chunks", [False, True])
def test_damage_names_its_page(pages: Pages, *, with_chunks: bool) -> None:
    pages.buffers[1][2] = bytes(16)  # no rows end in the chunk
    kernel = _scan if with_chunks else _kernels.index_pages
    with pytest.raises(DamagedError) as caught:
        kernel(pages.described, *pages.fetched(with_chunks=with_chunks))
    assert caught.value.args[1] == 1


@pytest.mark.parametrize("with_chunks", [False, True])
def test_callers_mistakes_are_no_damage(pages: Pages, *, with_chunks: bool) -> None:
    kernel = _scan if with_chunks else _kernels.index_pages
    buffer, offsets = pages.fetched(with_chunks=with_chunks)
    fewer_buffers = [(*one[:7], one[7][:1]) for one in pages.described]
    for described, data, places in (
        (pages.described, buffer, offsets[:-1]),
        (pages.described, buffer, i64([*offsets.tolist(), 0])),
        (pages.described, buffer[:-1], offsets),
        (pages.described, buffer, offsets - 4),
        (fewer_buffers, buffer, offsets),
    ):
        with pytest.raises(ValueError, match=r"page|offsets|bytes") as caught:
            kernel(described, data, places)
        assert type(caught.value) is ValueError
