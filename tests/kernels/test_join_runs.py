"""`join_bits`, `join_lists` and `join_strings` against plain loops, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from lance_io._kernels import DamagedError, join_bits, join_lists, join_strings


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("seed", range(20))
def test_bits(seed: int) -> None:
    dice = np.random.default_rng(seed)
    bits = dice.integers(0, 2, 800)
    starts = dice.integers(0, 700, seed)
    counts = dice.integers(0, 100, seed)
    joined = join_bits(np.packbits(bits, bitorder="little"), starts, counts)
    expected = [bit for start, count in zip(starts, counts, strict=True) for bit in bits[start : start + count]]
    found = np.frombuffer(joined, np.uint8)
    assert len(found) == -(-len(expected) // 8)
    unpacked = np.unpackbits(found, bitorder="little")
    assert unpacked[: len(expected)].tolist() == expected
    assert not unpacked[len(expected) :].any()


@pytest.mark.parametrize(
    ("starts", "counts"), [((0,), (81,)), ((-1,), (1,)), ((80,), (1,)), ((0,), (-1,)), ((0, 1), (1,))]
)
def test_bits_that_are_not_there(starts: tuple[int, ...], counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"are not within|starts but"):
        join_bits(bytes(10), i64(*starts), i64(*counts))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_lists(seed: int, wide: bool) -> None:
    dice = np.random.default_rng(seed)
    dtype = np.dtype("<i8" if wide else "<i4")
    tables, places, counts, items = b"", [], [], []
    lengths: list[int] = []
    bounds = []
    for _ in range(seed):
        of_run = dice.integers(0, 5, dice.integers(1, 9))
        offsets = int(dice.integers(0, 50)) + np.cumsum([0, *of_run])
        tables += b"x" * int(dice.integers(0, 9))  # runs may begin anywhere
        places.append(len(tables))
        counts.append(len(of_run))
        items.append(int(offsets[-1] + dice.integers(0, 3)))
        tables += offsets.astype(dtype).tobytes()
        lengths += of_run.tolist()
        bounds.append((int(offsets[0]), int(offsets[-1])))
    found, firsts, ends = join_lists(tables, i64(*places), i64(*counts), i64(*items), wide)
    assert np.frombuffer(found, dtype).tolist() == np.cumsum([0, *lengths]).tolist()
    pairs = zip(np.frombuffer(firsts, np.int64).tolist(), np.frombuffer(ends, np.int64).tolist(), strict=True)
    assert list(pairs) == bounds


@pytest.mark.parametrize("offsets", [(0, 2, 1), (0, 2, 5), (-1, 0, 1), (3, 2, 4)])
def test_damaged_lists_are_told_by_their_run(offsets: tuple[int, ...]) -> None:
    table = np.array([0, 1, 1, *offsets], "<i4").tobytes()
    with pytest.raises(DamagedError, match="do not ascend") as told:
        join_lists(table, i64(0, 12), i64(2, 2), i64(1, 4), False)
    assert told.value.args[1] == 1


def test_more_items_than_offsets_reach() -> None:
    table = np.array([0, 2**31 - 1], "<i4").tobytes()
    with pytest.raises(DamagedError, match="exceed what 32-bit offsets reach"):
        join_lists(table, i64(0, 0), i64(1, 1), i64(2**31 - 1, 2**31 - 1), False)


@pytest.mark.parametrize(("wide", "nullable"), [(False, True), (True, False)])
@pytest.mark.parametrize("seed", range(10))
def test_strings(seed: int, wide: bool, nullable: bool) -> None:
    dice = np.random.default_rng(seed)
    tables, buffer, values = b"", b"", []
    places, counts, data_places, starts, ends = [], [], [], [], []
    for _ in range(seed):
        texts = [bytes(dice.integers(97, 123, dice.integers(0, 6)).tolist()) for _ in range(dice.integers(1, 9))]
        at = int(dice.integers(0, 1 << 40))  # in the file
        tables += b"x" * int(dice.integers(0, 9))
        places.append(len(tables))
        counts.append(len(texts))
        tables += (at + np.cumsum([0, *map(len, texts)])).astype("<i8").tobytes()
        before, behind = b"before"[: int(dice.integers(0, min(7, at + 1)))], b"behind"
        starts.append(at - len(before))
        ends.append(at + sum(map(len, texts)) + len(behind))
        data_places.append(len(buffer))
        buffer += before + b"".join(texts) + behind
        values += texts
    runs = i64(*data_places), i64(*starts), i64(*ends)
    offsets, data, validity, nulls = join_strings(tables, i64(*places), i64(*counts), buffer, *runs, wide, nullable)
    assert bytes(data) == b"".join(values)
    dtype = np.int64 if wide else np.int32
    assert np.frombuffer(offsets, dtype).tolist() == np.cumsum([0, *map(len, values)]).tolist()
    empty = [not value for value in values]
    assert nulls == (sum(empty) if nullable else 0)
    if nulls:
        is_valid = np.unpackbits(np.frombuffer(validity, np.uint8), count=len(values), bitorder="little")
        assert is_valid.tolist() == [not one for one in empty]
    else:
        assert validity is None


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ((10, 9, 12), "do not ascend"),
        ((9, 10, 12), "within bytes 10 to 20"),
        ((10, 12, 21), "within bytes 10 to 20"),
        ((-1, 10, 12), "do not ascend"),
        ((10, 12, 19), "not within the bytes read"),
    ],
)
def test_damaged_strings_are_told_by_their_run(offsets: tuple[int, ...], words: str) -> None:
    table = np.array([10, 11, 11, *offsets], "<i8").tobytes()
    runs = i64(0, 4), i64(10, 10), i64(12, 20)  # the second run's bytes are not all there
    with pytest.raises(DamagedError, match=words) as told:
        join_strings(table, i64(0, 24), i64(2, 2), bytes(12), *runs, False, True)
    assert told.value.args[1] == 1


def test_lists_of_arguments_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="places"):
        join_strings(b"", i64(0), i64(1, 2), b"", i64(0), i64(0), i64(0), False, True)
    with pytest.raises(ValueError, match="places"):
        join_lists(b"", i64(0), i64(1, 2), i64(0), False)
