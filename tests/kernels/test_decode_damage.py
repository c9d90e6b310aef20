"""Damaged bytes: a right answer or DamagedError (ValueError for a program), never a crash, never unjustified memory."""

from __future__ import annotations

import random
import resource
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io._kernels import DamagedError
from tests.kernels.pages import decode_fullzip, decode_miniblock, i64
from tests.reference import codecs as ref

SYMBOLS = [b"lance", b"col", b"umn", b" "]
VALUES = [b"lance columns", b"", b"x", b"column " * 9]
CODED = [ref.fsst_coded(value, SYMBOLS) for value in VALUES]
PLAIN = ref.variable_values(VALUES)

PAGES: dict[str, tuple[bytes, list[bytes], int]] = {
    "flat": (ref.flat(32), [ref.ints(range(40), 32)], 40),
    "bits": (ref.flat(1), [bytes(5)], 40),
    "inline": (ref.inline_bitpacking(32), [ref.inline_packed(range(40), 32, 6)], 40),
    "rle": (ref.rle(16), [ref.ints([1, 2], 16), b"\x14\x14"], 40),
    "variable": (ref.variable(), [PLAIN], 4),
    "variable 64": (ref.variable(64), [ref.variable_values(VALUES, 64)], 4),
    "fsst": (ref.fsst(ref.symbol_table(SYMBOLS)), [ref.variable_values(CODED)], 4),
    "zstd": (ref.general("zstd", ref.variable()), [ref.ints([len(PLAIN)], 64) + zstandard.compress(PLAIN)], 4),
    "list": (ref.fixed_size_list(3, True, ref.flat(8)), [bytes(5), bytes(39)], 13),
    "packed": (ref.packed_struct(8, 32), [bytes(50)], 10),
}


def page(name: str) -> tuple[bytes, bytes, int]:
    """Program, chunk and number of items of a nullable page."""
    codec, buffers, count = PAGES[name]
    program = ref.miniblock([3], codec, num_buffers=len(buffers), definition=ref.inline_bitpacking(16))
    levels = ref.inline_packed([index % 2 for index in range(count)], 16, 1)
    return program, ref.chunk(buffers, num_levels=count, definition=levels), count


@pytest.mark.parametrize("name", PAGES)
def test_cut_short(name: str) -> None:
    program, chunk, count = page(name)
    needed = len(chunk.rstrip(ref.PAD + b"H"))  # padding at the end is not read
    for length in {*range(0, min(needed, 64)), needed - 1}:
        with pytest.raises(DamagedError, match="chunk 0: "):
            decode_miniblock(program, [chunk[:length]], [count])
    with pytest.raises(DamagedError):
        decode_miniblock(program, [chunk], [count + 1])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(PAGES)), st.integers(0, 2**32))
def test_changed_bytes(name: str, seed: int) -> None:
    program, chunk, count = page(name)
    rng = random.Random(seed)
    broken = bytearray(chunk)
    for _ in range(rng.randint(1, 4)):
        broken[rng.randrange(len(broken))] = rng.choice([0, 1, 255, rng.randrange(256)])
    rows = rng.choice([None, [(1, 2)], [(0, 2), (3, 4)]])
    try:
        num_items, buffers, _ = decode_miniblock(program, [bytes(broken)], [count], rows)
    except DamagedError:
        return
    assert num_items == (count if rows is None else sum(end - start for start, end in rows))
    assert sum(buffer.nbytes for buffer in buffers if buffer is not None) < 4096


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(PAGES)), st.integers(0, 2**32))
def test_changed_programs(name: str, seed: int) -> None:
    program, chunk, count = page(name)
    rng = random.Random(seed)
    broken = bytearray(program)
    for _ in range(rng.randint(1, 3)):
        broken[rng.randrange(min(len(broken), 40))] = rng.randrange(256)
    try:
        decode_miniblock(bytes(broken[: rng.choice([len(broken), rng.randrange(len(broken))])]), [chunk], [count])
    except ValueError:  # DamagedError is one
        return


@pytest.mark.parametrize("bits", [24, 128, 8 << 27])
def test_runs_are_of_words(bits: int) -> None:
    """A few bytes would ask for gigabytes."""
    program = ref.miniblock([1], ref.rle(bits), num_buffers=2)
    chunk = ref.chunk([bytes(2 * 16), b"\xff\xff"])
    with pytest.raises(ValueError, match=f"RLE of {bits}-bit values"):
        decode_miniblock(program, [chunk], [510])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.sampled_from([32, 64]), st.integers(0, 3), st.integers(0, 3))
def test_any_bytes_as_fullzip(data: bytes, bits: int, rep: int, definition: int) -> None:
    layers = [3] if rep == 0 else [3, 6]
    for codec in (
        ref.variable(bits),
        ref.general("zstd", ref.variable(bits)),
        ref.fsst(ref.symbol_table(SYMBOLS), bits),
    ):
        try:
            decode_fullzip(ref.fullzip(layers, codec, bits, rep=rep, definition=definition, var=True), [data], [2])
        except DamagedError:
            continue


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 20))
def test_any_bytes_as_blocks(data: bytes, count: int) -> None:
    for codec in (
        ref.variable(),
        ref.variable(64),
        ref.rle(64),
        ref.out_of_line(32, 3),
        ref.general("lz4", ref.flat(64)),
    ):
        try:
            _kernels.decode_dictionary(codec, data, count)
        except DamagedError:
            continue


def test_codes_without_a_symbol_and_escapes_at_the_end() -> None:
    program = ref.miniblock([1], ref.fsst(ref.symbol_table(SYMBOLS)))
    for codes in (b"\x00\x04", b"\x04" * 9, b"\xff", b"\x00" * 8 + b"\xff"):
        with pytest.raises(DamagedError, match="FSST"):
            decode_miniblock(program, [ref.chunk([ref.variable_values([codes])])], [1])


@pytest.mark.parametrize(
    ("values", "lengths", "count"),
    [(b"\1\2", b"\2\0", 2), (b"\1\2", b"\2\2", 5), (b"\1\2", b"\2", 2), (b"\1\2", b"\2\2", 2)],
    ids=["zero length", "shortfall", "counts differ", "runs behind the end"],
)
def test_wrong_runs(values: bytes, lengths: bytes, count: int) -> None:
    with pytest.raises(DamagedError, match="RLE"):
        decode_miniblock(ref.miniblock([1], ref.rle(8), num_buffers=2), [ref.chunk([values, lengths])], [count])


def announced(size: int, scheme: str) -> bytes:
    """A buffer that claims to hold `size` bytes and does not."""
    head = ref.ints([size], 64 if scheme == "zstd" else 32)
    return head + (zstandard.compress(b"abc") if scheme == "zstd" else b"\x30abc")


@pytest.mark.parametrize("scheme", ["lz4", "zstd"])
def test_announced_sizes_are_not_believed(scheme: str) -> None:
    before = peak_bytes()
    for codec, count in ((ref.variable(), 1), (ref.flat(64), 1)):
        program = ref.miniblock([1], ref.general(scheme, codec))
        with pytest.raises(DamagedError, match=r"announce|max_decoded_bytes"):
            decode_miniblock(program, [ref.chunk([announced(2**32 - 1, scheme)])], [count])
    with pytest.raises(DamagedError):
        _kernels.decode_dictionary(ref.general(scheme, ref.flat(64)), announced(2**31, scheme), 2)
    assert peak_bytes() - before < 64 << 20


def test_announced_counts_are_not_believed() -> None:
    before = peak_bytes()
    packed = ref.inline_packed([1], 64, 1)
    for codec, block in (
        (ref.flat(64), b"abc"),
        (ref.out_of_line(64, 1), b"abc"),
        (ref.out_of_line(64, 0), b""),
        (ref.inline_bitpacking(64), packed),
        (ref.rle(64), ref.ints([8, 5], 64) + b"\xff"),
    ):
        for count in (2**33, 2**60):
            with pytest.raises(DamagedError):
                _kernels.decode_dictionary(codec, block, count)
            with pytest.raises(DamagedError):
                decode_miniblock(ref.miniblock([1], codec), [ref.chunk([block])], [count])
    with pytest.raises(DamagedError):
        _kernels.decode_dictionary(ref.variable(64), ref.ints([64, 16, 0], 64), 2**61)
    with pytest.raises(DamagedError):
        _kernels.decode_levels(ref.flat(16), b"", 2**61)
    assert peak_bytes() - before < 64 << 20


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_levels_above_the_layers() -> None:
    program = ref.miniblock([3], ref.flat(8), definition=ref.flat(16))
    chunk = ref.chunk([b"ab"], num_levels=2, definition=ref.ints([0, 2], 16))
    with pytest.raises(DamagedError, match="definition level"):
        decode_miniblock(program, [chunk], [2])


def arguments() -> dict[str, Any]:
    chunk = ref.chunk([b"abcd"])
    tables = {"byte_offsets": i64([0, len(chunk)]), "item_starts": i64([0, 4]), "row_starts": i64([0])}
    return {"buffer": chunk, "offsets": i64([0]), "firsts": i64([0]), "ids": i64([0]), "ends": i64([4]), **tables}


@pytest.mark.parametrize(
    "wrong",
    [
        {"ids": i64([1])},
        {"ids": i64([-1])},
        {"firsts": i64([1])},
        {"firsts": i64([0, 0])},
        {"offsets": i64([8])},
        {"offsets": i64([-8])},
        {"offsets": i64([2**63 - 1])},
        {"byte_offsets": i64([0])},
        {"byte_offsets": i64([-(2**63), 2**63 - 1])},
        {"item_starts": i64([4, 0])},
        {"item_starts": i64([0, 2**62])},
        {"row_starts": i64([3]), "ends": i64([2])},
        {"row_starts": i64([-1])},
        {"row_starts": i64([5]), "ends": i64([6])},
        {"ends": i64([5])},
        {"ends": i64([2**63 - 1])},
        {"buffer": b""},
    ],
    ids=str,
)
def test_arguments_that_do_not_fit(wrong: dict[str, Any]) -> None:
    given_ = arguments() | wrong
    tables = given_["byte_offsets"], given_["item_starts"], None, None
    page = _kernels.IndexedPage(ref.miniblock([1], ref.flat(8)), 0, *tables, None)
    names = ("buffer", "offsets", "firsts", "ids", "row_starts", "ends")
    with pytest.raises(ValueError):
        _kernels.decode_miniblock(page, *(given_[name] for name in names))
