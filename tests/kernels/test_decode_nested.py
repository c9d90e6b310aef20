"""Pages of lists: levels in every codec and width, chunks cut anywhere, rows in whole and in part (spec: 2, 3)."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from lance_io._kernels import DamagedError
from tests.kernels.pages import bools, decode_miniblock, longs, uints
from tests.reference import codecs as ref

# A row: None (a null list), or its items, each a definition level of 0 (valid) to `num_nullable`.
Row = list[int] | None


@dataclass(frozen=True)
class Packing:
    """How levels are stored: a codec's name, and for packed ones by how many bits they are wider than need be."""

    codec: str
    extra_bits: int = 0
    pack_tail: bool = False

    def encode(self, levels: list[int], highest: int) -> tuple[bytes, bytes]:
        """`(codec program, block)` of one chunk of a page whose levels go up to `highest`."""
        width = min(highest.bit_length() + self.extra_bits, 16)
        match self.codec:
            case "flat":
                return ref.flat(16), ref.ints(levels, 16)
            case "rle":
                values, lengths = ref.rle_encoded(levels, 16)
                return ref.rle(16), len(values).to_bytes(8, "little") + values + lengths
            case "inline":
                return ref.inline_bitpacking(16), ref.inline_packed(levels, 16, width)
        block = ref.out_of_line_packed(levels, 16, width, pack_tail=self.pack_tail)
        return ref.out_of_line(16, width), block


def random_rows(count: int, num_nullable: int, rng: random.Random) -> list[Row]:
    def row() -> Row:
        items = rng.choice([0, 1, 1, 2, 5, 40])
        return None if rng.random() < 0.1 else [rng.choice([0, 0, rng.randint(0, num_nullable)]) for _ in range(items)]

    return [row() for _ in range(count)]


def levels_of(rows: list[Row], num_nullable: int) -> list[tuple[int, int]]:
    """`(rep, def)` of one list around items with `num_nullable` nullable layers: null is the next level, then empty."""
    levels = []
    for row in rows:
        entries = [num_nullable + 1] if row is None else row or [num_nullable + 2]
        levels += [(int(at == 0), definition) for at, definition in enumerate(entries)]
    return levels


def page_of(
    rows: list[Row], num_nullable: int, packing: Packing, cuts: list[int]
) -> tuple[bytes, list[bytes], list[int], list[int], bytes]:
    """A page cut into chunks before the levels `cuts`: program, chunks, items and first rows of each, preambles.

    The value of an item is its number, so that it can be found again.
    """
    levels = levels_of(rows, num_nullable)
    chunks, counts, row_starts, preambles, item = [], [], [0], [], 0
    for start, end in itertools.pairwise([0, *cuts, len(levels)]):
        part = levels[start:end]
        rep_codec, rep = packing.encode([rep for rep, _ in part], 1)
        def_codec, definition = packing.encode([definition for _, definition in part], num_nullable + 2)
        count = sum(definition <= num_nullable for _, definition in part)
        values = ref.ints(range(item, item + count), 32)
        chunks.append(ref.chunk([values], num_levels=len(part), rep=rep, definition=definition))
        counts.append(count)
        item += count
        preambles.append(int(part[0][0] == 0))
        row_starts.append(row_starts[-1] + sum(rep for rep, _ in part))
    layers = [3] * num_nullable + [6] if num_nullable else [1, 6]
    program = ref.miniblock(layers, ref.flat(32), rep=rep_codec, definition=def_codec)
    return program, chunks, counts, row_starts, bytes(preambles)


def validity(layer: tuple[Any, ...]) -> list[bool]:
    length, bitmap, null_count, _ = layer
    valid = [True] * length if bitmap is None else bools(bitmap, length)
    assert null_count == valid.count(False) and (bitmap is None) == (null_count == 0)
    return valid


def check(rows: list[Row], num_nullable: int, wanted: list[tuple[int, int]], leaf: Any) -> None:
    num_items, [data], layers = leaf
    firsts = np.cumsum([0, *(len(row or []) for row in rows)]).tolist()
    chosen = [row for start, end in wanted for row in range(start, end)]
    assert uints(data, 32) == [item for row in chosen for item in range(firsts[row], firsts[row + 1])]
    items = [item for row in chosen for item in rows[row] or []]
    assert num_items == len(items)
    for depth, layer in enumerate(layers[:-1]):
        assert validity(layer) == [item <= depth for item in items]
    assert validity(layers[-1]) == [rows[row] is not None for row in chosen]
    lengths = [len(rows[row] or []) for row in chosen]
    assert longs(layers[-1][3], "<i4") == np.cumsum([0, *lengths]).tolist()


PACKINGS = [
    Packing("flat"),
    Packing("rle"),
    Packing("inline"),
    Packing("packed"),
    Packing("packed", extra_bits=1, pack_tail=True),
    Packing("packed", extra_bits=3),
    Packing("packed", extra_bits=16, pack_tail=True),
]


@pytest.mark.parametrize("num_nullable", [0, 1, 2, 6, 14, 200])
@pytest.mark.parametrize("packing", PACKINGS, ids=str)
def test_lists(num_nullable: int, packing: Packing) -> None:
    rng = random.Random(num_nullable)
    rows = random_rows(500, num_nullable, rng)
    num_levels = len(levels_of(rows, num_nullable))
    steps = [1, 5, 63, 64, 200, 1000] if packing.codec == "inline" else [1, 64, 1100, 2049]
    cuts = sorted({cut for cut in itertools.accumulate(rng.choices(steps, k=20)) if cut < num_levels})
    cuts += range(cuts[-1] + 1000, num_levels, 1000)  # a group of 1024 is all that inline packing holds
    program, chunks, counts, row_starts, preambles = page_of(rows, num_nullable, packing, cuts)
    borders = sorted(rng.sample(range(len(rows) + 1), 8))
    pairs = list(zip(borders[::2], borders[1::2], strict=True))
    for wanted in ([(0, len(rows))], [(3, 4)], [(row, row + 1) for row in borders[:-1]], pairs):
        leaf = decode_miniblock(program, chunks, counts, wanted, chunk_rows=row_starts, preamble=preambles)
        check(rows, num_nullable, wanted, leaf)


@pytest.mark.parametrize("at", [0, 1, 63, 64, 500, 1023, 1024, 1063])
@pytest.mark.parametrize(("packing"), PACKINGS, ids=str)
def test_an_empty_list_that_goes_on(at: int, packing: Packing) -> None:
    levels = [(1, 0)] * 1065
    levels[at : at + 2] = [(1, 2), (0, 0)]
    if packing.codec == "inline":
        levels = levels[max(at - 500, 0) : at + 500]
    rep_codec, rep = packing.encode([rep for rep, _ in levels], 1)
    def_codec, definition = packing.encode([definition for _, definition in levels], 2)
    count = len(levels) - 1
    chunk = ref.chunk([bytes(count)], num_levels=len(levels), rep=rep, definition=definition)
    program = ref.miniblock([1, 6], ref.flat(8), rep=rep_codec, definition=def_codec)
    with pytest.raises(DamagedError, match="null, empty or missing goes on"):
        decode_miniblock(program, [chunk], [count], chunk_rows=[0, count])


@pytest.mark.parametrize(("level", "text"), [(4, "definition level 4 is above 2"), (0xFFFF, "65535 is above 2")])
def test_levels_beyond_the_layers(level: int, text: str) -> None:
    for codec, width in ((ref.flat(16), 0), (ref.out_of_line(16, 16), 16)):
        levels = [0] * 1023 + [level]
        definition = ref.pack_group(levels, 16, width) if width else ref.ints(levels, 16)
        rep = ref.ints([1] * 1024, 16)
        chunk = ref.chunk([bytes(1023)], num_levels=1024, rep=rep, definition=definition)
        program = ref.miniblock([1, 6], ref.flat(8), rep=ref.flat(16), definition=codec)
        with pytest.raises(DamagedError, match=text):
            decode_miniblock(program, [chunk], [1023], chunk_rows=[0, 1024])
