"""`find_invalid_text` against Python's decoder: characters of every length, cut ones, and what only looks like one."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_io import _kernels

NO_TEXT = [b"\xff", b"\xc3", b"\xa4", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\xe2\x82"]
pieces = st.one_of(st.text(max_size=5).map(str.encode), st.sampled_from([*NO_TEXT, b"a" * 70, "ä".encode() * 40]))
values = st.lists(st.one_of(st.none(), st.lists(pieces, max_size=4).map(b"".join)), max_size=40)


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def find(given: list[bytes | None], wide: bool, first_bit: int, lead: bytes, hidden: bytes) -> int | None:
    """With `lead` in front of the first, and `hidden` where there is none."""
    filled = [hidden if one is None else one for one in given]
    offsets = np.array([*accumulate(map(len, filled), initial=len(lead))], np.int64 if wide else np.int32)
    bits = np.packbits(np.array([True] * first_bit + [one is not None for one in given], bool), bitorder="little")
    return _kernels.find_invalid_text(lead + b"".join(filled) + b"\xff", offsets, wide, bits, first_bit)


@given(values, st.booleans(), st.integers(0, 9), pieces, pieces)
def test_the_first_that_is_no_text(
    given: list[bytes | None], wide: bool, first_bit: int, lead: bytes, hidden: bytes
) -> None:
    expected = next((place for place, one in enumerate(given) if one is not None and not is_text(one)), None)
    assert find(given, wide, first_bit, lead, hidden) == expected


@pytest.mark.parametrize("wide", [False, True])
def test_characters_that_go_on_in_the_next_text(wide: bool) -> None:
    """All bytes together are text."""
    assert find([b"a", "ä".encode()[:1], "ä".encode()[1:]], wide, 0, b"", b"") == 1
    assert find([b"x" * 5000, b"y", "ä".encode(), b"", "ä".encode()], wide, 3, b"", b"") is None


def test_sizes_that_do_not_fit() -> None:
    offsets = np.array([0, 1, 9], np.int32)
    with pytest.raises(ValueError, match="text 1 does not lie within the data"):
        _kernels.find_invalid_text(b"abc", offsets, False, None, 0)
    with pytest.raises(ValueError, match="offsets"):
        _kernels.find_invalid_text(b"abc", b"", False, None, 0)
    with pytest.raises(ValueError, match="from bit 7 on"):
        _kernels.find_invalid_text(b"abc", offsets[:2], False, b"", 7)
    with pytest.raises(ValueError, match="text 0 does not lie within the data"):
        _kernels.find_invalid_text(b"a\xff", np.array([2, 1, 0], np.int32), False, None, 0)
