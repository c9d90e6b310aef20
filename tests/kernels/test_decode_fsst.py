"""FSST streams of any codes: symbols short and long, few and many, escapes at every place (spec: encodings, 8.3)."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from lance_io._kernels import DamagedError
from tests.kernels.pages import decode_miniblock, strings
from tests.reference import codecs as ref

ESCAPE = 255


def random_symbols(count: int, longest: int, rng: random.Random) -> list[bytes]:
    symbols = [rng.randbytes(rng.randint(1, longest)) for _ in range(count)]
    return [rng.randbytes(longest), *symbols[1:]] if count else []


def random_codes(count: int, num_symbols: int, escaped: float, rng: random.Random) -> list[bytes]:
    """Codes as units that belong together: a symbol's, or an escape with the byte behind it."""

    def unit() -> bytes:
        is_escape = not num_symbols or rng.random() < escaped
        return (
            bytes([ESCAPE, rng.choice([0, ESCAPE, rng.randrange(256)])])
            if is_escape
            else bytes([rng.randrange(num_symbols)])
        )

    return [unit() for _ in range(count)]


def decode(symbols: list[bytes], values: list[bytes], rows: list[tuple[int, int]] | None = None) -> Any:
    buffer = ref.variable_values(values)
    program = ref.miniblock([1], ref.fsst(ref.symbol_table(symbols)), wide=True)
    _, [offsets, data], _ = decode_miniblock(program, [ref.chunk([buffer], wide=True)], [len(values)], rows)
    return strings(offsets, data)


@pytest.mark.parametrize("longest", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(
    ("num_symbols", "escaped"), [(0, 1), (1, 0.5), (127, 0), (128, 0.02), (129, 0.1), (255, 0.001)]
)
def test_random_streams(longest: int, num_symbols: int, escaped: float) -> None:
    rng = random.Random(longest * 1000 + num_symbols)
    symbols = random_symbols(num_symbols, longest, rng)
    for count in (0, 1, 8, 15, 100, 9000):
        units = random_codes(count, num_symbols, escaped, rng)
        plain = [unit[1:] if unit[0] == ESCAPE else symbols[unit[0]] for unit in units]
        borders = sorted(rng.choices(range(count + 1), k=rng.choice([0, count // 12])))
        pairs = list(itertools.pairwise([0, *borders, count]))
        coded = [b"".join(units[start:end]) for start, end in pairs]
        values = [b"".join(plain[start:end]) for start, end in pairs]
        assert decode(symbols, coded) == values
        for step, first in ((2, 0), (2, 1), (5, 0)):  # values by themselves, the last one among them
            alone = range(len(values) - 1 - first, -1, -step)[::-1]
            assert decode(symbols, coded, [(one, one + 1) for one in alone]) == [values[one] for one in alone]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 20])
@pytest.mark.parametrize("behind", [b"\x02" * 9, b"\xff", b"\xff\x00" * 5, b"", b"\x00"], ids=bytes.hex)
def test_what_lies_behind_a_value_does_not_matter(length: int, behind: bytes) -> None:
    values = [b"\x01", b"\x00\x01" * (length // 2) + b"\x00" * (length % 2), behind]
    plain = values[1].replace(b"\x01", b"xyz").replace(b"\x00", b"ab")
    assert decode([b"ab", b"xyz"], values, [(1, 2)]) == [plain]


@pytest.mark.parametrize("before", [0, 7, 8, 30, 2046, 2047, 2048, 4095])
def test_values_that_end_inside_an_escape(before: int) -> None:
    with pytest.raises(DamagedError, match="chunk 0: an FSST value ends in an escape"):
        decode([b"ab"], [b"", bytes(before) + b"\xff", bytes(20)])
    with pytest.raises(DamagedError, match="chunk 0: an FSST value ends in an escape"):
        decode([b"ab"], [bytes(before) + b"\xff"])
    with pytest.raises(DamagedError, match="chunk 0: an FSST value ends in an escape"):
        decode([b"ab"], [b"", bytes(before) + b"\xff", bytes(20)], [(1, 2)])


@pytest.mark.parametrize("num_symbols", [0, 1, 127, 128, 129, 200, 254])
@pytest.mark.parametrize("at", [0, 3, 8, 2047, 2999])
def test_codes_without_a_symbol(num_symbols: int, at: int) -> None:
    symbols = [bytes([number]) for number in range(num_symbols)]
    for code in {num_symbols, 128, 254} - set(range(num_symbols)):
        filler = b"\xff\x00" if num_symbols == 0 else b"\x00\x00"
        codes = bytearray(filler * 1500)
        codes[at - at % 2] = code
        with pytest.raises(DamagedError, match="chunk 0: an FSST value holds a code without a symbol"):
            decode(symbols, [bytes(codes)])
