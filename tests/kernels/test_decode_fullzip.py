"""Full-zip entries, zipped here one by one as section 5 says, against the kernel."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io._kernels import DamagedError, announced_entries
from tests.kernels.pages import bools, decode_fullzip, i64, longs, strings, uints
from tests.reference import codecs as ref
from tests.reference import levels as shredding

SYMBOLS = [b"lance", b"col", b"umn", b" "]


def variable_entry(definition: int, value: bytes, prefix_bits: int = 32) -> bytes:
    head = ref.control_word(0, definition, 0, 1)
    return head if definition else head + ref.ints([len(value)], prefix_bits) + value


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.none() | st.lists(st.sampled_from([*SYMBOLS, b"z"]), max_size=9).map(b"".join), min_size=1, max_size=30
    ),
    st.sampled_from(["plain", "fsst", "zstd"]),
    st.sampled_from([32, 64]),
    st.integers(1, 5),
)
def test_variable_values(values: list[bytes | None], kind: str, bits: int, num_pieces: int) -> None:
    codec, encode = {
        "plain": (ref.variable(bits), lambda value: value),
        "fsst": (ref.fsst(ref.symbol_table(SYMBOLS), bits), lambda value: ref.fsst_coded(value, SYMBOLS)),
        "zstd": (ref.general("zstd", ref.variable(bits)), zstandard.compress),
    }[kind]
    entries = [b"\1" if v is None else variable_entry(0, encode(v), bits) for v in values]
    step = len(entries) // num_pieces + 1
    cuts = range(0, len(entries), step)
    pieces = [b"".join(entries[at : at + step]) for at in cuts]
    counts = [len(entries[at : at + step]) for at in cuts]
    program = ref.fullzip([3], codec, bits, definition=1, var=True)
    num_items, found, [layer] = decode_fullzip(program, pieces, counts)
    assert num_items == len(values)
    assert strings(*found, offset_bits=bits) == [value or b"" for value in values]
    assert layer[2] == values.count(None)


@pytest.mark.parametrize("bits", [32, 64])
def test_frames_say_what_they_become(bits: int) -> None:
    values = [b"abc" * n if n % 3 else None for n in range(40)]

    def unsized(value: bytes) -> bytes:
        return zstandard.ZstdCompressor(write_content_size=False).compress(value)

    kinds: dict[str, Any] = {
        "zstd": lambda value: ref.ints([len(value)], 64) + zstandard.compress(value),
        "bare": zstandard.compress,
        "unsized": unsized,
        "lz4": lambda value: ref.ints([len(value)], 32) + value,  # bytes behind the size are not looked at
    }
    for kind, encode in kinds.items():
        entries = [b"\1" if one is None else variable_entry(0, encode(one), bits) for one in values]
        data = b"".join(entries)
        ends = [sum(map(len, entries[:at])) for at in (0, 10, 10, 40)]
        lengths = [end - start for start, end in pairwise(ends)]
        scheme, heads = "lz4" if kind == "lz4" else "zstd", (1, 1, bits // 8)
        found = announced_entries(scheme, heads, 1000, data, i64(ends[:-1]), i64(lengths))
        parts = [[len(one) for one in part if one is not None] for part in (values[:10], [], values[10:])]
        wanted = [1000 * len(part) if kind == "unsized" else sum(part) for part in parts]
        assert memoryview(found).cast("q").tolist() == wanted


def test_what_damaged_entries_announce_is_no_failure() -> None:
    rng = random.Random(3)
    for _ in range(200):
        data = rng.randbytes(rng.randrange(40))
        for scheme in ("zstd", "lz4"):
            found = announced_entries(scheme, (rng.randrange(3), 1, 4), 0, data, i64([0]), i64([len(data)]))
            assert 0 <= memoryview(found).cast("q")[0] <= 40 << 31
    with pytest.raises(ValueError, match="not within"):
        announced_entries("zstd", (1, 1, 4), 0, b"abc", i64([1]), i64([3]))
    with pytest.raises(ValueError, match="heads"):
        announced_entries("zstd", (1, 1, 3), 0, b"abc", i64([0]), i64([3]))


@pytest.mark.parametrize("width_bytes", [1, 3, 16, 500])
def test_fixed_values_with_and_without_nulls(width_bytes: int) -> None:
    rng = random.Random(1)
    values = [rng.randbytes(width_bytes) for _ in range(20)]
    plain = ref.fullzip([1], ref.flat(width_bytes * 8), width_bytes * 8, var=False)
    _, [data], _ = decode_fullzip(plain, [values[2], b"".join(values[5:9])], [1, 4])
    assert bytes(data) == values[2] + b"".join(values[5:9])
    levels = [index % 3 == 0 for index in range(20)]
    zipped = b"".join(bytes([level]) + value for level, value in zip(levels, values, strict=True))
    nullable = ref.fullzip([3], ref.flat(width_bytes * 8), width_bytes * 8, definition=1, var=False)
    _, [data], [layer] = decode_fullzip(nullable, [zipped], [20])
    assert bytes(data) == b"".join(values)
    assert bools(layer[1], 20) == [not level for level in levels]


def test_fixed_size_lists_restart_their_bitmaps_per_row() -> None:
    rows = [[True, False, True, True, False], [False, True, True, False, True]]
    codec = ref.fixed_size_list(5, True, ref.flat(1))
    program = ref.fullzip([1], codec, 16, var=False)
    data = b"".join(ref.bitmap([not bit for bit in row]) + ref.bitmap(row) for row in rows)
    _, [validity, items], _ = decode_fullzip(program, [data], [2])
    assert bools(items, 10) == rows[0] + rows[1]
    assert bools(validity, 10) == [not bit for bit in rows[0] + rows[1]]


def test_variable_packed_structs() -> None:
    rows = [(7, b"seven", 70, 71), None, (8, b"", 80, 81)]
    entries = []
    for row in rows:
        if row is None:
            entries.append(b"\1")
            continue
        body = ref.ints(row[:1], 32) + ref.ints([len(row[1])], 32) + row[1] + ref.ints(row[2:], 16)
        entries.append(variable_entry(0, body))
    children = (
        (False, 32, ref.flat(32)),
        (True, 32, ref.variable()),
        (False, 32, ref.fixed_size_list(2, False, ref.flat(16))),
    )
    program = ref.fullzip([3], ref.variable_packed(*children), 32, definition=1, var=True)
    num_items, buffers, _ = decode_fullzip(program, [b"".join(entries)], [3])
    numbers, offsets, text, validity, pairs = buffers
    assert (num_items, validity) == (3, None)
    assert longs(numbers, "<i4") == [7, 0, 8]
    assert strings(offsets, text) == [b"seven", b"", b""]
    assert longs(pairs, "<u2") == [70, 71, 0, 0, 80, 81]
    with pytest.raises(DamagedError, match="left over"):
        decode_fullzip(program, [variable_entry(0, b"\0" * 13)], [1])


def test_variable_packed_structs_in_one_another() -> None:
    rows = [(b"in", [1, 2], 300), None, (b"", [3, 4], 400)]

    def entry(row: tuple[bytes, list[int], int] | None, extra: bytes = b"") -> bytes:
        if row is None:
            return b"\1"
        text, pair, number = row
        inner = ref.ints([len(text)], 32) + text + ref.ints(pair, 8) + extra
        return variable_entry(0, ref.ints([len(inner)], 64) + inner + ref.ints([number], 16))

    inner = ref.variable_packed((True, 32, ref.variable()), (False, 16, ref.fixed_size_list(2, False, ref.flat(8))))
    outer = ref.variable_packed((True, 64, inner), (False, 16, ref.flat(16)))
    program = ref.fullzip([3], outer, 32, definition=1, var=True)
    num_items, [offsets, text, validity, pairs, numbers], _ = decode_fullzip(program, [b"".join(map(entry, rows))], [3])
    assert (num_items, validity) == (3, None)
    assert strings(offsets, text) == [b"in", b"", b""]
    assert uints(pairs, 8) == [1, 2, 0, 0, 3, 4]
    assert longs(numbers, "<u2") == [300, 0, 400]
    with pytest.raises(DamagedError, match="packed row of 9 bytes has 1 left over"):
        decode_fullzip(program, [entry(rows[0], extra=b"\0")], [1])
    with pytest.raises(DamagedError, match="ends inside a value of 200"):
        decode_fullzip(program, [variable_entry(0, ref.ints([200], 64) + bytes(20))], [1])
    with pytest.raises(DamagedError, match="packed row of 3 bytes ends inside a length"):
        decode_fullzip(program, [variable_entry(0, ref.ints([3], 64) + bytes(5))], [1])


def test_variable_packed_structs_in_one_another_have_lengths() -> None:
    inner = ref.variable_packed((False, 16, ref.flat(16)))
    program = ref.fullzip([3], ref.variable_packed((False, 16, inner)), 32, definition=1, var=True)
    with pytest.raises(ValueError, match="cannot hold values of this codec"):
        decode_fullzip(program, [variable_entry(0, b"\0\0")], [1])


CELL = st.none() | st.lists(st.none() | st.integers(0, 255), max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.lists(CELL, max_size=3), min_size=1, max_size=12))
def test_lists_of_lists(rows: list[Any]) -> None:
    layers = shredding.layers_of(["list", "list", "leaf"], rows, push_down=False)
    rep, definition = shredding.shred(layers, rows)
    max_visible = 1 if layers[-1].null else 0
    bits_def = sum(layer.null + layer.empty for layer in layers).bit_length()
    entries, values = b"", []
    for number, (r, d) in enumerate(zip(rep, definition, strict=True)):
        entries += ref.control_word(r, d, 2, bits_def)
        if d <= max_visible:
            entries += bytes([number % 256])
            values.append(number % 256)
    kinds = shredding.encode_layers(layers)[1:]
    program = ref.fullzip(list(kinds), ref.flat(8), 8, rep=2, definition=bits_def, var=False)
    num_items, [data], found = decode_fullzip(program, [entries], [len(rows)])
    assert (num_items, uints(data, 8)) == (len(values), values)
    slots = list(reversed(shredding.slots_of(layers, rows)))
    for (length, _, null_count, offsets), slot in zip(found, slots, strict=True):
        assert (length, null_count) == (len(slot.validity), slot.validity.count(False))
        assert (None if offsets is None else longs(offsets, "<i4")) == slot.offsets
    with pytest.raises(DamagedError):
        decode_fullzip(program, [entries], [len(rows) + 1])
