"""The worked examples of encoding-2.1.md, section 11, byte by byte as the reference wrote them."""

from __future__ import annotations

import numpy as np
import pytest

from lance_io import _kernels
from lance_io._kernels import DamagedError
from tests.kernels.pages import bools, decode_fullzip, decode_miniblock, i64, longs, strings, uints
from tests.reference import codecs as ref

U16, U32 = ref.flat(16), ref.flat(32)


def unhex(text: str) -> bytes:
    """Hex with `fe*6` for repetition and `|` for the eye."""
    parts = [part.split("*") for part in text.replace("|", " ").split()]
    return b"".join(bytes.fromhex(part[0]) * (int(part[1]) if len(part) > 1 else 1) for part in parts)


def test_a_nullable_ints() -> None:
    chunk = unhex("0300 0600 0c00 fefe 0000 0100 0000 fefe 0a000000 00000000 1e000000 fe*4")
    program = ref.miniblock([3], U32, definition=U16)
    num_items, [data], [layer] = decode_miniblock(program, [chunk], [3])
    assert (num_items, longs(data, "<i4")) == (3, [10, 0, 30])
    assert (layer[0], bools(layer[1], 3), layer[2], layer[3]) == (3, [True, False, True], 1, None)
    num_items, [data], [layer] = decode_miniblock(program, [chunk], [3], [(0, 1), (2, 3)])
    assert (num_items, longs(data, "<i4"), layer) == (2, [10, 30], (2, None, 0, None))


def test_b_lists() -> None:
    chunk = unhex(
        "0500 0a00 0a00 0c00 0100 0000 0100 0100 0100 fe*6 | 0000 0000 0100 0200 0000 fe*6 |"
        "01000000 02000000 03000000 fe*4"
    )
    program = ref.miniblock([1, 6], U32, rep=U16, definition=U16)
    num_items, [data], layers = decode_miniblock(program, [chunk], [3], chunk_rows=[0, 4])
    assert (num_items, longs(data, "<i4")) == (3, [1, 2, 3])
    assert longs(layers[1][3], "<i4") == [0, 2, 2, 2, 3]
    assert (bools(layers[1][1], 4), layers[1][2]) == ([True, False, True, True], 1)
    _, [data], layers = decode_miniblock(program, [chunk], [3], [(1, 2), (3, 4)], chunk_rows=[0, 4])
    assert (longs(data, "<i4"), longs(layers[1][3], "<i4")) == ([3], [0, 0, 1])


def test_c_rle_under_a_nullable_struct() -> None:
    chunk = unhex("0300 0600 0800 0200 | 0000 0200 0100 fefe | 01000000 00000000 | 0102 fe*6")
    program = ref.miniblock([3, 3], ref.rle(32), num_buffers=2, definition=U16)
    _, [data], layers = decode_miniblock(program, [chunk], [3])
    assert longs(data, "<i4") == [1, 0, 0]
    assert [bools(layer[1], 3) for layer in layers] == [[True, False, False], [True, False, True]]


def test_d_fullzip_strings() -> None:
    data = unhex("00 2c010000 78*300 01 00 00000000")
    program = ref.fullzip([3], ref.variable(), 32, definition=1, var=True)
    num_items, values, [layer] = decode_fullzip(program, [data], [3])
    assert (num_items, strings(*values)) == (3, [b"x" * 300, b"", b""])
    assert bools(layer[1], 3) == [True, False, True]


def test_e_fixed_size_lists() -> None:
    chunk = unhex("0300 0600 0100 1800 | 0000 0100 0000 fefe | 31 fe*7") + ref.ints([1, 0, 0, 0, 3, 4], 32)
    program = ref.miniblock([3], ref.fixed_size_list(2, True, U32), num_buffers=2, definition=U16)
    _, [validity, items], [layer] = decode_miniblock(program, [chunk], [3])
    assert bools(validity, 6) == [True, False, False, False, True, True]
    assert longs(items, "<i4") == [1, 0, 0, 0, 3, 4]
    assert bools(layer[1], 3) == [True, False, True]


def test_f_dictionary() -> None:
    block = unhex("20000000 18000000 00000000 03000000 08000000 08000000") + b"redgreen"
    dictionary = _kernels.decode_dictionary(ref.variable(), block, 3)
    assert strings(*dictionary) == [b"red", b"green", b""]
    indices = [0, 1, 2, 0] * 30
    program = ref.miniblock([1], ref.inline_bitpacking(32), dictionary=b"\x02")
    chunk = ref.chunk([ref.inline_packed(indices, 32, 2)])
    _, values, _ = decode_miniblock(program, [chunk], [120], dictionary=(dictionary[0], dictionary[1]))
    assert strings(*values) == [b"red", b"green", b"", b"red"] * 30
    _, [data], _ = decode_miniblock(program, [chunk], [120])
    assert longs(data, "<u4") == indices
    with pytest.raises(DamagedError, match="dictionary of 2 items"):
        decode_miniblock(program, [chunk], [120], dictionary=(np.zeros(3, np.int32), b""))


def test_g_runs_longer_than_a_length() -> None:
    chunk = unhex("0000 2000 0400 fefe") + ref.ints([7, 7, 7, 9], 64) + unhex("ffff5a03 fe*4")
    _, [data], _ = decode_miniblock(ref.miniblock([1], ref.rle(64), num_buffers=2), [chunk], [603])
    assert longs(data) == [7] * 600 + [9] * 3


def test_h_inline_bitpacking() -> None:
    chunk = ref.chunk([ref.inline_packed([i % 5 for i in range(1024)], 32, 3)])
    assert chunk.startswith(unhex("0000 8401 fe*4 03000000 5828 2c14"))
    _, [data], _ = decode_miniblock(ref.miniblock([1], ref.inline_bitpacking(32)), [chunk], [1024])
    assert longs(data, "<u4") == [i % 5 for i in range(1024)]


def test_i_bools() -> None:
    _, [data], _ = decode_miniblock(ref.miniblock([1], ref.flat(1)), [ref.chunk([b"\x09"])], [4])
    assert bools(data, 4) == [True, False, False, True]


def test_j_packed_struct() -> None:
    rows = unhex("01000000 0000000000000040 03000000 0000000000001040")
    program = ref.miniblock([1], ref.packed_struct(32, 64))
    _, [a, b], _ = decode_miniblock(program, [ref.chunk([rows])], [2])
    assert (longs(a, "<i4"), longs(b, "<f8")) == ([1, 3], [2.0, 4.0])


def test_prerelease_dictionary_header() -> None:
    offsets = ref.ints([0, 3, 8], 32)
    block = b"\x20" + ref.ints([2, 9 + len(offsets)], 32) + offsets + b"redgreen"
    assert strings(*_kernels.decode_dictionary(ref.variable(), block, 2)) == [b"red", b"green"]


def test_rows_that_run_over_chunks() -> None:
    """One row over three chunks, between two short ones: only the chunks that hold it are asked for."""
    rows = [[1], [2, 3, 4, 5, 6], [7]]
    levels = [[1, 1], [0, 0], [0, 0, 1]]
    items = [[1, 2], [3, 4], [5, 6, 7]]
    program = ref.miniblock([1, 2], ref.flat(8), rep=U16)
    chunks = [
        ref.chunk([bytes(item)], num_levels=len(rep), rep=ref.ints(rep, 16))
        for rep, item in zip(levels, items, strict=True)
    ]
    for start, end in ((0, 3), (0, 1), (1, 2), (2, 3), (1, 3)):
        _, [data], layers = decode_miniblock(
            program, chunks, [2, 2, 3], [(start, end)], chunk_rows=[0, 2, 2, 3], preamble=b"\0\1\1"
        )
        assert uints(data, 8) == [item for row in rows[start:end] for item in row]
        ends = np.cumsum([0, *map(len, rows[start:end])])
        assert longs(layers[1][3], "<i4") == ends.tolist()


def test_a_row_whose_rest_was_not_fetched_is_the_callers_fault() -> None:
    program = ref.miniblock([1, 2], ref.flat(8), rep=U16)
    chunks = [ref.chunk([b"\1\2"], num_levels=2, rep=ref.ints(rep, 16)) for rep in ([1, 0], [0, 0])]
    tables = i64([0, len(chunks[0]), 2 * len(chunks[0])]), i64([0, 2, 4]), i64([0, 1, 1])
    flags = np.array([0, 1], np.uint8)
    page = _kernels.IndexedPage(program, 0, *tables, flags, None)
    with pytest.raises(ValueError, match="not given"):
        _kernels.decode_miniblock(page, b"".join(chunks), i64([0]), i64([0]), i64([0]), i64([0]), None)
