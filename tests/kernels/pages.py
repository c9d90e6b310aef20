"""Calls of the decode kernels on pages made by hand, with answers as plain Python."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io import _kernels

if TYPE_CHECKING:
    from collections.abc import Sequence


def i64(values: Sequence[int]) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.int64)


def decode_miniblock(
    program: bytes,
    chunks: Sequence[bytes],
    counts: Sequence[int],
    rows: Sequence[tuple[int, int]] | None = None,
    *,
    chunk_rows: Sequence[int] | None = None,
    preamble: bytes | None = None,
    dictionary: tuple[Any, Any] | None = None,
) -> Any:
    """Decode rows (all if None) of a page whose chunks hold `counts` items, fetching exactly the chunks needed.

    The fetched bytes lie at an odd offset, as a read may put them anywhere.
    """
    byte_offsets = i64([0, *np.cumsum([len(chunk) for chunk in chunks])])
    item_starts = i64([0, *np.cumsum(counts)])
    row_starts = item_starts if chunk_rows is None else i64(chunk_rows)
    rows = [(0, int(row_starts[-1]))] if rows is None else rows
    starts, ends = i64([start for start, _ in rows]), i64([end for _, end in rows])
    flags = None if chunk_rows is None else np.frombuffer(preamble or bytes(len(chunks)), dtype=np.uint8)
    ids, firsts, range_starts, range_ends = _kernels.plan_chunks(starts, ends, byte_offsets, row_starts, flags, 0)
    page = b"".join(chunks)
    pieces = [page[a:b] for a, b in zip(longs(range_starts), longs(range_ends), strict=True)]
    offsets = i64([1, *np.cumsum([len(piece) for piece in pieces]) + 1][:-1] if pieces else [])
    chunk_row_starts = None if chunk_rows is None else row_starts
    indexed = _kernels.IndexedPage(program, 0, byte_offsets, item_starts, chunk_row_starts, flags, dictionary)
    return _kernels.decode_miniblock(indexed, b"?" + b"".join(pieces), offsets, firsts, ids, starts, ends)


def chunk_table(words: Any, wide: bool, num_items: int, chunks_bytes: int) -> tuple[Any, Any]:
    """Where the chunks of a page begin: their bytes, and their items."""
    data = memoryview(words).cast("B")
    page = (b"", 0, wide, num_items, None, None, 0, [len(data), chunks_bytes])
    byte_offsets, item_starts, *_ = _kernels.index_pages([page], data, i64([0]))[0]
    return byte_offsets, item_starts


def repetition_table(index: Any, num_chunks: int, num_rows: int) -> tuple[Any, Any]:
    """Where the rows of a page of `num_chunks` begin, and which chunks open with the rest of one."""
    words, rows = np.full(num_chunks, 1, "<u2").tobytes(), bytes(memoryview(index).cast("B"))
    page = (b"", 0, False, 2 * num_chunks, num_rows, None, 0, [len(words), 8 * num_chunks, len(rows)])
    _, _, row_starts, preamble, _ = _kernels.index_pages([page], words + rows, i64([0, len(words)]))[0]
    return row_starts, preamble


def decode_fullzip(program: bytes, pieces: Sequence[bytes], rows: Sequence[int]) -> Any:
    offsets = i64([1, *np.cumsum([len(piece) for piece in pieces]) + 1][:-1])
    return _kernels.decode_fullzip(program, b"?" + b"".join(pieces), offsets, i64(list(map(len, pieces))), i64(rows))


def longs(buffer: Any, dtype: str = "<i8") -> list[int]:
    values: list[int] = np.frombuffer(buffer, dtype).tolist()
    return values


def uints(buffer: Any, bits: int) -> list[int]:
    """Values of any width in whole bytes."""
    data, size = bytes(buffer), bits // 8
    return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]


def bools(buffer: Any, count: int) -> list[bool]:
    assert len(buffer) == (count + 7) // 8
    return [bool(bit) for bit in np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")[:count]]


def strings(offsets: Any, data: Any, offset_bits: int = 32) -> list[bytes]:
    """Values between offsets, which must begin at 0 and end with the data."""
    ends, raw = longs(offsets, f"<i{offset_bits // 8}"), bytes(data)
    assert ends[0] == 0 and ends[-1] == len(raw)
    return [raw[a:b] for a, b in itertools.pairwise(ends)]


def wanted(values: Sequence[Any], rows: Sequence[tuple[int, int]]) -> list[Any]:
    return [value for start, end in rows for value in values[start:end]]
