"""Kernels of file version 2.0 beside plain Python."""

from __future__ import annotations

import struct
from typing import Any

import lz4.block
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io._kernels import DamagedError
from tests.encodings.v2_0.handmade_cases import fastlanes


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def runs_of(total: int, seed: int) -> list[tuple[int, int]]:
    """Some ascending, disjoint ranges within a length, empty ones among them."""
    dice = np.random.default_rng(seed)
    borders = np.sort(dice.integers(0, total + 1, 2 * int(dice.integers(1, 6)))).tolist()
    return list(zip(borders[::2], borders[1::2], strict=True))


@given(st.lists(st.booleans(), min_size=1, max_size=200), st.integers(0, 1000))
def test_bits_are_gathered(flags: list[bool], seed: int) -> None:
    runs = runs_of(len(flags), seed)
    data = np.packbits(flags, bitorder="little").tobytes()
    expected = [flag for start, end in runs for flag in flags[start:end]]
    starts, ends = i64(*[one[0] for one in runs]), i64(*[one[1] for one in runs])
    bits, num_set = _kernels.gather_bits(data, starts >> 3, starts & 7, ends - starts)
    found = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    assert found[: len(expected)].tolist() == expected and not found[len(expected) :].any()
    assert num_set == sum(expected)


@given(st.integers(1, 64), st.booleans(), st.integers(0, 1000))
def test_streams_of_bits_are_unpacked(packed: int, signed: bool, seed: int) -> None:
    dice = np.random.default_rng(seed)
    values = [int(dice.integers(0, 1 << 62)) & ((1 << packed) - 1) for _ in range(50)]
    whole = sum(value << (at * packed) for at, value in enumerate(values))
    data = whole.to_bytes((50 * packed + 7) // 8, "little")
    width = next(bits for bits in (8, 16, 32, 64) if bits >= packed)
    runs = runs_of(50, seed)
    first = i64(*[start * packed for start, _ in runs])
    counts = i64(*[end - start for start, end in runs])
    found = _kernels.unpack_bits(data, first >> 3, first & 7, counts, packed, width, signed)
    kind = f"<{'i' if signed else 'u'}{width // 8}"
    wrapped = [value - (1 << packed) if signed and value >> (packed - 1) else value for value in values]
    assert np.frombuffer(found, kind).tolist() == [value for start, end in runs for value in wrapped[start:end]]


@pytest.mark.parametrize(("packed", "width"), [(3, 8), (8, 8), (7, 16), (16, 16), (11, 32), (33, 64), (64, 64)])
def test_groups_are_unpacked(packed: int, width: int) -> None:
    dice = np.random.default_rng(packed)
    values = [int(dice.integers(0, 1 << 62)) & ((1 << packed) - 1) for _ in range(2100)]
    data, group_bytes = fastlanes(values, packed, width), 128 * packed
    for start, end in [(0, 2100), (5, 6), (1000, 1030), (1024, 2048), (2099, 2100), (7, 7)]:
        at = i64(start // 1024 * group_bytes)
        found = _kernels.unpack_groups(data, at, i64(start % 1024), i64(end - start), packed, width)
        assert np.frombuffer(found, f"<u{width // 8}").tolist() == values[start:end]


@given(st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=60), st.booleans(), st.integers(0, 1000))
def test_ends_are_decoded(lengths: list[int | None], wide: bool, seed: int) -> None:
    """A null has hidden bytes where the number before it is odd."""
    hidden = [3 if length is None and at % 2 else length or 0 for at, length in enumerate(lengths)]
    ends = np.cumsum(hidden)
    adjustment = int(ends[-1]) + 1
    stored = [int(end) + adjustment * (length is None) for end, length in zip(ends, lengths, strict=True)]
    data = np.array(stored, "<u8").tobytes()
    runs = runs_of(len(lengths), seed)
    firsts = i64(*[start for start, _ in runs])
    counts = i64(*[end - start for start, end in runs])
    found = _kernels.decode_ends(data, np.maximum(firsts - 1, 0) * 8, firsts, counts, adjustment, adjustment - 1, wide)
    starts, last, offsets, validity, null_count = found
    borders = [0, *ends.tolist()]
    assert np.frombuffer(starts, np.int64).tolist() == [borders[start] for start, _ in runs]
    assert np.frombuffer(last, np.int64).tolist() == [borders[max(start, end)] for start, end in runs]
    picked = [at for start, end in runs for at in range(start, end)]
    expected = np.cumsum([0, *[hidden[at] for at in picked]]).tolist()
    assert np.frombuffer(offsets, np.int64 if wide else np.int32).tolist() == expected
    nulls = [lengths[at] is None for at in picked]
    assert null_count == sum(nulls) and (validity is None) == (not any(nulls))
    if validity is not None:
        bits = np.unpackbits(np.frombuffer(validity, np.uint8), count=len(nulls), bitorder="little")
        assert bits.tolist() == [not null for null in nulls]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("nulls", [[], [700], [0, 511, 512, 1999]])
def test_ends_of_many_values_are_decoded(nulls: list[int], wide: bool) -> None:
    """More than are looked at together, with and without nulls among them."""
    lengths = np.random.default_rng(5).integers(0, 9, 2000)
    ends = np.cumsum(lengths)
    stored, adjustment = ends.astype("<u8"), int(ends[-1]) + 1
    stored[nulls] += np.uint64(adjustment)
    where = stored.tobytes(), i64(8 * 99), i64(100), i64(1900)
    starts, last, offsets, validity, null_count = _kernels.decode_ends(*where, adjustment, adjustment - 1, wide)
    assert [int(np.frombuffer(one, np.int64)[0]) for one in (starts, last)] == [ends[99], ends[-1]]
    assert np.frombuffer(offsets, np.int64 if wide else np.int32).tolist() == [0, *np.cumsum(lengths[100:]).tolist()]
    expected = [at - 100 for at in nulls if at >= 100]
    assert null_count == len(expected)
    bits = [] if validity is None else np.unpackbits(np.frombuffer(validity, np.uint8), count=1900, bitorder="little")
    assert np.flatnonzero(np.array(bits) == 0).tolist() == expected
    stored[1500] = stored[1499] - np.uint64(1)
    with pytest.raises(DamagedError, match="an end of"):
        _kernels.decode_ends(stored.tobytes(), i64(0), i64(0), i64(2000), adjustment, adjustment - 1, wide)


@given(st.lists(st.integers(0, 4), max_size=70), st.booleans(), st.sampled_from([b"green", b"longer than sixteen"]))
def test_codes_are_looked_up(codes: list[int], wide: bool, longest: bytes) -> None:
    items = [b"", b"red", longest, b"blue"]
    kind = np.int64 if wide else np.int32
    table = np.cumsum([0, *map(len, items)]).astype(kind)
    found = _kernels.look_up_codes(bytes(codes), table, b"".join(items), wide)
    buffers = [None if each is None else pa.py_buffer(each) for each in (found[2], found[0], found[1])]
    array = pa.Array.from_buffers(pa.large_binary() if wide else pa.binary(), len(codes), buffers, found[3])
    array.validate(full=True)
    assert array.to_pylist() == [items[code - 1] if code else None for code in codes]
    assert found[3] == codes.count(0)
    with pytest.raises(DamagedError, match="code 5 in a page whose dictionary has 4 items"):
        _kernels.look_up_codes(bytes([*codes, 5]), table, b"".join(items), wide)


@pytest.mark.parametrize("stored", [(3, 2), (5,), (1 << 63,), (2, 4, 11)])
def test_ends_that_cannot_be(stored: tuple[int, ...]) -> None:
    data = np.array(stored, "<u8").tobytes()
    with pytest.raises(DamagedError, match="an end of"):
        _kernels.decode_ends(data, i64(0), i64(0), i64(len(stored)), 6, 4, False)
    with pytest.raises(DamagedError, match="an end of"):
        _kernels.ArrayPage(len(stored), b"", 0, 0, None, 0, (data, 6, 4, False), None, None)


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=5)), max_size=40),
    st.lists(st.integers(0, 3), max_size=40),
    st.lists(st.one_of(st.none(), st.lists(st.booleans(), max_size=4)), max_size=30),
    st.integers(0, 9),
    st.booleans(),
)
def test_whole_pages_of_two_files(
    strings: list[bytes | None], codes: list[int], lists: list[list[bool] | None], first: int, wide: bool
) -> None:
    """Strings; strings of a dictionary with a null item; lists of bits, which begin anywhere, some of them null."""
    item_offset = 64
    ends = _stored([None if one is None else len(one) for one in strings])
    data = b"".join(one or b"" for one in strings)
    adjustment = len(data) + 1
    texts = _kernels.WholeArray(
        len(strings),
        b"s",
        0,
        False,
        0,
        (adjustment, len(data), wide),
        None,
        None,
        [(0, len(ends)), (200, 200 + len(data))],
    )
    items = [b"red", None, b"longer than sixteen bytes"]
    item_bytes = b"".join(one or b"" for one in items)
    item_ends = _stored([None if one is None else len(one) for one in items])
    where = [(0, len(codes)), (50, 50 + len(item_ends)), (99, 99 + len(item_bytes))]
    coding = len(item_bytes) + 1, len(item_bytes), False
    words = _kernels.WholeArray(len(codes), b"", 0, False, 0, None, (len(items), coding), None, where)
    flags = [flag for one in lists for flag in one or []]
    present = [at % 3 > 0 for at in range(len(flags))]
    list_ends = _stored([None if one is None else len(one) for one in lists])
    bits = [
        np.packbits(np.array([False] * first + some, bool), bitorder="little").tobytes()[first // 8 :]
        for some in (present, flags)
    ]
    where = [(0, len(list_ends)), *[(item_offset, item_offset + len(one)) for one in bits]]
    ranges = (len(flags) + 1, len(flags), wide), first
    nested = _kernels.WholeArray(len(lists), b"L" if wide else b"l", 1, True, 0, None, None, ranges, where)

    starts, stops = (np.frombuffer(one, np.int64) for one in _kernels.whole_ranges([texts, words, nested]))
    lengths = (stops - starts).tolist()
    parts = [ends, data, bytes(codes), item_ends, item_bytes, list_ends, *bits]
    assert lengths == [len(part) for part in parts]
    at = np.cumsum([0, *lengths])[:-1]
    found = _kernels.scan_arrays(
        [([texts], ends + data, i64(0, len(ends))), ([words, nested], b"".join(parts), at[2:])]
    )

    assert _variable(found[0], wide) == strings and found[0][2][1] == (len(strings), None, 0, None)
    assert _variable(found[1], False) == [items[code - 1] if code else None for code in codes]
    count, [values], [leaf, layer] = found[2]
    assert count == len(flags)
    kept = pa.Array.from_buffers(pa.bool_(), count, [_buffer(leaf[1]), _buffer(values)], leaf[2])
    kept.validate(full=True)
    kind = pa.large_list(pa.bool_()) if wide else pa.list_(pa.bool_())
    array = pa.Array.from_buffers(kind, len(lists), [_buffer(layer[1]), _buffer(layer[3])], layer[2], children=[kept])
    array.validate(full=True)
    shown = iter([flag if there else None for flag, there in zip(flags, present, strict=True)])
    assert array.to_pylist() == [None if one is None else [next(shown) for _ in one] for one in lists]


def _stored(lengths: list[int | None]) -> bytes:
    """Ends of values that have these lengths, as files have them."""
    total, end, stored = sum(length or 0 for length in lengths), 0, []
    for length in lengths:
        end += length or 0
        stored.append(end if length is not None else end + total + 1)
    return np.array(stored, "<u8").tobytes()


def _buffer(memory: Any) -> pa.Buffer | None:
    return None if memory is None else pa.py_buffer(memory)


def _variable(leaf: Any, wide: bool) -> list[bytes | None]:
    count, values, layers = leaf
    buffers = [_buffer(layers[0][1]), *map(_buffer, values)]
    array = pa.Array.from_buffers(pa.large_binary() if wide else pa.binary(), count, buffers, layers[0][2])
    array.validate(full=True)
    return array.to_pylist()


def test_damage_in_one_of_many_whole_pages() -> None:
    good, bad = (_kernels.WholeArray(2, b"", 0, False, 0, (9, 4, False), None, None, [(0, 16), (16, 20)]) for _ in "ab")
    data = np.array([1, 4], "<u8").tobytes() + b"abcd"
    damaged = np.array([4, 1], "<u8").tobytes() + b"abcd"
    with pytest.raises(DamagedError, match="an end of 1 behind one of 4") as caught:
        _kernels.scan_arrays([([good, good], data, i64(0, 16, 0, 16)), ([bad], damaged, i64(0, 16))])
    assert caught.value.args[1] == 2


@given(st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=40), st.booleans())
def test_located_pages_give_their_ends_back(lengths: list[int | None], is_wide: bool) -> None:
    stored, end_max = _stored(lengths), (1 << 40) if is_wide else sum(length or 0 for length in lengths)
    adjustment = sum(length or 0 for length in lengths) + 1
    page = _kernels.ArrayPage(len(lengths), b"", 0, 0, None, 0, (stored, adjustment, end_max, False), None, None)
    ends = page.stored_ends()
    assert ends is not None and bytes(ends) == stored
    bitmap_bytes = (len(lengths) + 7) // 8 if None in lengths else 0
    own_bytes = _kernels.ArrayPage(0, b"", 0, 8, None, 0, None, None, None).nbytes
    assert page.nbytes == own_bytes + (8 if is_wide else 4) * (len(lengths) + 1) + bitmap_bytes
    assert _kernels.ArrayPage(3, b"", 0, 8, None, 0, None, None, None).stored_ends() is None


def test_more_than_32_bit_offsets_reach() -> None:
    data = np.array([1 << 30, 1 << 31, 3 << 30], "<u8").tobytes()
    where = data, i64(0), i64(0), i64(3)
    with pytest.raises(DamagedError, match="32-bit offsets"):
        _kernels.decode_ends(*where, 1 << 40, 1 << 39, False)
    assert _kernels.decode_ends(*where, 1 << 40, 1 << 39, True)[4] == 0


def test_buffers_are_inflated() -> None:
    raw = b"lance " * 1000
    shut = struct.pack("<Q", len(raw)) + zstandard.ZstdCompressor().compress(raw)
    block = struct.pack("<I", len(raw)) + lz4.block.compress(raw, store_size=False)
    for scheme, data in ((2, shut), (1, block)):
        assert bytes(_kernels.inflate(data, scheme, len(raw))) == raw
        with pytest.raises(DamagedError):
            _kernels.inflate(data, scheme, len(raw) - 1)
        with pytest.raises(DamagedError):
            _kernels.inflate(data[:-1], scheme, len(raw))


def test_symbols_are_decoded() -> None:
    values = [b"", *[f"http://example.org/{i % 17}/{i}".encode() for i in range(5000)], b"\xff\xfe"]
    data = b"".join(values)
    for kind, wide in ((np.int32, False), (np.int64, True)):
        offsets = np.cumsum([0, *map(len, values)]).astype(kind)
        table, coded, codes = _kernels.encode_fsst(offsets, data, wide, len(values))
        assert len(bytes(codes)) < len(data) / 2
        found_offsets, found = _kernels.decode_symbols(table, coded, codes, wide)
        assert bytes(found) == data and np.frombuffer(found_offsets, kind).tolist() == offsets.tolist()


_WHOLE = _kernels.WholeArray(3, b"", 8, False, 0, None, None, None, [(0, 3)])
_SHORT = _kernels.WholeArray(3, b"", 8, False, 0, None, None, None, [(0, 2)])


@pytest.mark.parametrize(
    "call",
    [
        lambda: _kernels.gather_bits(b"abc", i64(0), i64(20), i64(5)),
        lambda: _kernels.gather_bits(b"abc", i64(4), i64(0), i64(0)),
        lambda: _kernels.gather_bits(b"abc", i64(0, 1), i64(0), i64(1)),
        lambda: _kernels.gather_bits(b"abc", i64(0), i64(0), i64(-1)),
        lambda: _kernels.unpack_bits(b"abc", i64(0), i64(0), i64(5), 5, 8, False),
        lambda: _kernels.unpack_bits(b"abc", i64(0), i64(0), i64(1), 9, 8, False),
        lambda: _kernels.unpack_bits(b"abc", i64(0), i64(0), i64(1), 0, 8, False),
        lambda: _kernels.unpack_groups(bytes(383), i64(0), i64(0), i64(1), 3, 8),
        lambda: _kernels.unpack_groups(bytes(384), i64(0), i64(1024), i64(1), 3, 8),
        lambda: _kernels.decode_ends(bytes(8), i64(0), i64(1), i64(1), 5, 4, False),
        lambda: _kernels.decode_ends(bytes(8), i64(-8), i64(0), i64(1), 5, 4, False),
        lambda: _kernels.inflate(b"", 3, 5),
        lambda: _kernels.look_up_codes(b"", b"", b"", False),
        lambda: _kernels.look_up_codes(b"", bytes(4), b"", True),
        lambda: _kernels.decode_symbols(bytes(2312), np.zeros(1, np.int32), b"", False),
        lambda: _kernels.WholeArray(3, b"x", 8, False, 0, None, None, None, [(0, 3)]),
        lambda: _kernels.WholeArray(3, b"", 7, False, 0, None, None, None, [(0, 3)]),
        lambda: _kernels.WholeArray(3, b"", 8, True, 0, None, None, None, [(0, 3)]),
        lambda: _kernels.WholeArray(3, b"l", 8, False, 0, None, None, None, [(0, 3)]),
        lambda: _kernels.WholeArray(3, b"", 0, False, 0, None, (1, (2, 1, True)), None, [(0, 3), (0, 8), (0, 1)]),
        lambda: _kernels.scan_arrays([([_WHOLE], b"abc", i64(1))]),
        lambda: _kernels.scan_arrays([([_WHOLE], b"abc", i64())]),
        lambda: _kernels.scan_arrays([([_WHOLE], b"abc", i64(0, 0))]),
        lambda: _kernels.scan_arrays([([_SHORT], b"abc", i64(0))]),
        lambda: _kernels.ArrayPage(3, b"x", 0, 8, None, 0, None, None, None),
        lambda: _kernels.ArrayPage(3, b"", -1, 8, None, 0, None, None, None),
        lambda: _kernels.ArrayPage(3, b"", 0, 7, None, 0, None, None, None),
        lambda: _kernels.ArrayPage(1 << 62, b"", 0, 64, None, 0, None, None, None),
        lambda: _kernels.ArrayPage(3, b"l", 0, 8, None, 0, None, None, None),
        lambda: _kernels.ArrayPage(3, b"", 0, 0, None, 0, (bytes(16), 1, 0, False), None, None),
        lambda: _kernels.ArrayPage(3, b"", 0, 0, None, 0, None, (np.array([0, 5], np.int32), b"abc"), None),
    ],
)
def test_what_does_not_fit_together_is_refused(call: Any) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    assert not isinstance(caught.value, DamagedError)
