"""Kernels for functions of filters: hostile offsets, limits and sizes, and answers against plain Python."""

from __future__ import annotations

import hashlib
import uuid
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io import _kernels
from lance_io._kernels import DamagedError

GIB = 1 << 30
TEXTS = st.lists(st.text("ab é漢😀", max_size=6), min_size=2, max_size=6)


def column(texts: list[str] | list[bytes], wide: bool = False) -> tuple[bytes, bytes, bool]:
    """Texts as kernels take them."""
    values = [one.encode() if isinstance(one, str) else one for one in texts]
    ends = np.cumsum([0, *map(len, values)]).astype(np.int64 if wide else np.int32)
    return b"".join(values), ends.tobytes(), wide


def texts_of(offsets: Any, data: Any, wide: bool = False) -> list[str]:
    ends = np.frombuffer(offsets, np.int64 if wide else np.int32).tolist()
    return [bytes(data)[a:b].decode() for a, b in pairwise(ends)]


def change(function: str, num_rows: int, *arguments: Any, wide: bool = False) -> list[str]:
    return texts_of(*_kernels.change_texts(function, num_rows, list(arguments), None, wide, GIB), wide)


def numbers(*values: int) -> bytes:
    return np.array(values, np.int64).tobytes()


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.text("ab é", min_size=1, max_size=3), st.integers(-7, 7), st.booleans())
def test_texts_as_python_changes_them(texts: list[str], part: str, count: int, wide: bool) -> None:
    given_texts, literal, rows = column(texts, wide), column([part]), len(texts)
    number = numbers(count)
    assert change("left", rows, given_texts, number, wide=wide) == [one[:count] for one in texts]
    assert change("right", rows, given_texts, number, wide=wide) == [one[-count:] if count else "" for one in texts]
    assert change("replace", rows, given_texts, literal, column(["X"]), wide=wide) == [
        one.replace(part, "X") for one in texts
    ]
    assert change("trim", rows, given_texts, literal, wide=wide) == [one.strip(part) for one in texts]
    assert change("repeat", rows, given_texts, number, wide=wide) == [one * max(count, 0) for one in texts]
    assert change("to_hex", rows, given_texts, wide=wide) == [one.encode().hex() for one in texts]
    found = np.frombuffer(_kernels.measure_texts("position", rows, [given_texts, literal], None), np.int64)
    assert found.tolist() == [one.find(part) + 1 for one in texts]
    lists, ends, data = _kernels.split_texts(rows, [given_texts, literal], None, wide)
    parts, bounds = texts_of(ends, data, wide), np.frombuffer(lists, np.int32).tolist()
    assert [parts[a:b] for a, b in pairwise(bounds)] == [one.split(part) if one else [] for one in texts]


@given(st.lists(st.binary(max_size=300), min_size=2, max_size=5))
@settings(max_examples=50, deadline=None)
def test_digests_as_hashlib_makes_them(values: list[bytes]) -> None:
    for name in ("md5", "sha224", "sha256", "sha384", "sha512", "blake2s", "blake2b"):
        found = bytes(_kernels.digest_texts(name, len(values), column(values), None))
        assert found == b"".join(hashlib.new(name, one).digest() for one in values)


def test_uuids_differ_by_seed_and_place() -> None:
    made = bytes(_kernels.random_uuids(500, b"s" * 32)).decode()
    found = [made[place : place + 36] for place in range(0, len(made), 36)]
    assert len(set(found)) == 500
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in found} == {(4, uuid.RFC_4122)}
    assert bytes(_kernels.random_uuids(500, b"t" * 32)).decode() != made


HOSTILE = {
    "beyond the bytes": [0, 3, 99],
    "not ascending": [0, 9, 3],
    "negative": [-1, 2, 3],
    "inside of a character": [0, 1, 3],
    "huge": [0, 2**31 - 1, 3],
}


@pytest.mark.parametrize("offsets", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("wide", [False, True])
def test_offsets_that_lie(offsets: list[int], wide: bool) -> None:
    texts = ("é漢".encode()[:4], np.array(offsets, np.int64 if wide else np.int32).tobytes(), wide)
    other = column(["a", "b"])
    for call in (
        lambda: _kernels.change_texts("capitalize", 2, [texts], None, wide, GIB),
        lambda: _kernels.measure_texts("position", 2, [texts, other], None),
        lambda: _kernels.measure_texts("edit_distance", 2, [other, texts], None),
        lambda: _kernels.split_texts(2, [texts, other], None, wide),
        lambda: _kernels.read_times(2, texts, None, [[("Y", "")]], False),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("offsets", [[0, 3, 99], [0, 9, 3], [-1, 2, 3], [0, 2**31 - 1, 3]])
def test_digests_of_offsets_that_lie(offsets: list[int]) -> None:
    with pytest.raises(ValueError):
        _kernels.digest_texts("md5", 2, (b"abc", np.array(offsets, np.int32).tobytes(), False), None)


def test_what_does_not_fit_together() -> None:
    texts = column(["a", "b"])
    for call in (
        lambda: _kernels.change_texts("nothing", 2, [texts], None, False, GIB),
        lambda: _kernels.change_texts("left", 2, [texts], None, False, GIB),  # an argument is missing
        lambda: _kernels.change_texts("left", 3, [texts, numbers(1)], None, False, GIB),
        lambda: _kernels.change_texts("left", 2, [texts, numbers(1, 2, 3)], None, False, GIB),
        lambda: _kernels.change_texts("left", 2, [texts, texts], None, False, GIB),
        lambda: _kernels.change_texts("left", 2, [texts, numbers(1)], b"\1", False, GIB),
        lambda: _kernels.change_texts("capitalize", 2, [(b"", b"", False)], None, False, GIB),
        lambda: _kernels.change_texts("capitalize", 2, [(b"ab", b"123", False)], None, False, GIB),
        lambda: _kernels.measure_texts("nothing", 2, [texts], None),
        lambda: _kernels.digest_texts("nothing", 2, texts, None),
        lambda: _kernels.random_uuids(2, b"short"),
    ):
        with pytest.raises(ValueError):
            call()


def test_texts_too_long() -> None:
    with pytest.raises(ValueError, match="at most 7 are allowed"):
        _kernels.change_texts("repeat", 2, [column(["ab", "c"]), numbers(4)], None, False, 7)
    many = 600
    with pytest.raises(DamagedError, match="32-bit offsets"):
        _kernels.change_texts("pad_left", many, [column(["a"]), numbers(4 << 20), column([" "])], None, False, GIB)


def test_rows_that_are_not_present_are_not_computed() -> None:
    made = _kernels.change_texts("from_hex", 2, [column(["xx", "6162"])], b"\0\1", False, GIB)
    assert texts_of(*made) == ["", "ab"]
    assert bytes(_kernels.digest_texts("md5", 2, column(["a", "b"]), b"\0\1"))[:16] == bytes(16)


# -- lists ------------------------------------------------------------------------------------------------------------


def lists_of(made: tuple[Any, Any, Any]) -> list[list[int] | None]:
    offsets, places = (
        np.frombuffer(one, dtype).tolist() for one, dtype in zip(made, (np.int32, np.int64), strict=False)
    )
    rows = zip(offsets, offsets[1:], bytes(made[2]), strict=False)
    return [places[a:b] if there else None for a, b, there in rows]


LISTS = st.lists(st.lists(st.integers(0, 4), max_size=40), min_size=2, max_size=5)


@settings(max_examples=200, deadline=None)
@given(LISTS, st.data())
def test_lists_as_python_edits_them(ours: list[list[int]], data: st.DataObject) -> None:
    rows = len(ours)
    theirs = data.draw(st.lists(st.lists(st.integers(0, 4), max_size=40), min_size=rows, max_size=rows))
    first = np.cumsum([0, *map(len, ours)])
    second = first[-1] + np.cumsum([0, *map(len, theirs)])
    codes = np.array([*chain(*ours, *theirs)], np.int64)
    given_lists = [(first, None), (second, None)]

    def edited(name: str) -> list[list[int] | None]:
        arguments = given_lists[:1] if name in ("distinct", "reverse") else given_lists
        places = lists_of(_kernels.edit_lists(name, rows, arguments, len(codes), codes, 10**6))
        return [None if one is None else codes[one].tolist() for one in places]

    pairs = list(zip(ours, theirs, strict=True))
    assert edited("concatenate") == [a + b for a, b in pairs]
    assert edited("union") == [list(dict.fromkeys(a + b)) for a, b in pairs]
    assert edited("except") == [[x for x in dict.fromkeys(a) if x not in b] for a, b in pairs]
    assert edited("distinct") == [list(dict.fromkeys(a)) for a in ours]
    assert edited("reverse") == [a[::-1] for a in ours]
    longer = [(a, b) if len(a) >= len(b) else (b, a) for a, b in pairs]
    assert edited("intersect") == [[x for x in dict.fromkeys(a) if x in b] for a, b in longer]
    in_order = lists_of(_kernels.sort_lists(rows, given_lists[0], len(codes), codes, None, True, True))
    assert [codes[one].tolist() for one in in_order if one is not None] == [sorted(a, reverse=True) for a in ours]


@pytest.mark.parametrize("offsets", [[0, 2, 9], [0, 3, 2], [-1, 2, 3], [0, 4]])
def test_lists_that_lie(offsets: list[int]) -> None:
    lists, codes = (np.array(offsets, np.int64), None), np.zeros(3, np.int64)
    item = (0, True)
    for call in (
        lambda: _kernels.edit_lists("reverse", 3, [lists], 3, None, 99),
        lambda: _kernels.find_in_lists(3, [lists, item], codes),
        lambda: _kernels.positions_in_lists(3, [lists, item], codes),
        lambda: _kernels.first_valid_items(3, lists, b"\1\1\1"),
        lambda: _kernels.sort_lists(3, lists, 3, codes, None, False, True),
        lambda: _kernels.extremes_of_lists(3, lists, 3, codes, None, False),
    ):
        with pytest.raises(ValueError):
            call()


def test_lists_that_do_not_fit_together() -> None:
    lists, codes = (np.array([0, 1, 3]), None), np.zeros(3, np.int64)
    for call in (
        lambda: _kernels.edit_lists("nothing", 2, [lists], 3, codes, 99),
        lambda: _kernels.edit_lists("union", 2, [lists, lists], 3, None, 99),
        lambda: _kernels.edit_lists("union", 2, [lists, lists], 3, codes[:2], 99),
        lambda: _kernels.edit_lists("union", 2, [lists], 3, codes, 99),
        lambda: _kernels.edit_lists("concatenate", 2, [lists, (2, False)], 3, None, 99),
        lambda: _kernels.edit_lists("concatenate", 2, [lists, (2**63, False)], 3, None, 99),
        lambda: _kernels.edit_lists("concatenate", 2, [lists, lists], 3, None, 5),
        lambda: _kernels.edit_lists("resize", 2, [lists, numbers(2**40)], 3, None, 99),
        lambda: _kernels.edit_lists("reverse", 2, [(np.array([0, 1, 3]), b"\1")], 3, None, 99),
        lambda: _kernels.sort_lists(2, lists, 3, codes[:2], None, False, True),
        lambda: _kernels.sort_lists(2, lists, 3, codes, b"\1", False, True),
        lambda: _kernels.sort_lists(2, lists, 3, column(["a", "b"]), None, False, True),
    ):
        with pytest.raises(ValueError):
            call()


# -- JSON -------------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 3))
def test_damaged_documents_are_refused_or_read(noise: bytes, kind: int) -> None:
    """Nothing but the kernel's own errors, whatever the bytes are."""
    document = bytes([0x80, 0x40, 0x20, noise[0] if noise else 0][kind : kind + 1]) + b"\0\0" + noise
    for steps in (
        [("member", "a")],
        [("all items", "")],
        [("all members", "")],
        [[(False, 0, True, 0)]],
        [("key", "0")],
    ):
        for answer in ("exists", "text", "string", "stored", "integer", "float", "boolean", "length", "contains"):
            try:
                _kernels.select_json(2, column([document, b""], True), None, steps, answer, "a", 50)
            except (DamagedError, NotImplementedError):
                continue
