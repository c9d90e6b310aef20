"""Scans of partitions beside the same sums by numpy in 64 bits; wrong sizes are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lance_io import _kernels as kernels

if TYPE_CHECKING:
    from collections.abc import Sequence


def drawn(seed: int, *shape: int, dtype: str = "f4") -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, shape).astype("u1") if dtype == "u1" else rng.normal(size=shape).astype(dtype)


def pairs_of(counts: Sequence[int], num_queries: int) -> tuple[np.ndarray, int]:
    """Every piece with every query, pieces one after the other, and the number of distances."""
    triples, start = [], 0
    for piece, count in enumerate(counts):
        for query in range(num_queries):
            triples.append((piece, query, start))
            start += count
    return np.array(triples, "i8"), start


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("is_dot", [False, True])
@pytest.mark.parametrize(("parts", "words", "width"), [(1, 256, 1), (5, 256, 3), (8, 256, 8), (2, 16, 1), (12, 16, 5)])
def test_product_codes(dtype: str, is_dot: bool, parts: int, words: int, width: int) -> None:
    counts, num_targets = (0, 1, 1025, 300), 18  # more than have tables at once
    book, targets = drawn(1, parts, words, width, dtype=dtype), drawn(2, num_targets, parts * width, dtype=dtype)
    num_columns = parts if words == 256 else parts // 2
    pieces = [drawn(3 + count, num_columns, count, dtype="u1") for count in counts]
    pairs, num_rows = pairs_of(counts, num_targets)
    out = np.empty(num_rows, "f4")
    kernels.scan_product_codes(book, book.itemsize, book.shape, is_dot, targets, pieces, pairs, out)
    for at, number, start in pairs.tolist():
        piece, target = pieces[at], targets[number].astype("f8")
        codes = piece if words == 256 else np.stack((piece & 15, piece >> 4), axis=1).reshape(parts, -1)
        chosen = book.astype("f8")[np.arange(parts)[:, None], codes]  # [parts, rows, width]
        part = target.reshape(parts, 1, width)
        expected = 1 - (chosen * part).sum((0, 2)) if is_dot else ((chosen - part) ** 2).sum((0, 2))
        np.testing.assert_allclose(out[start : start + counts[at]], expected, rtol=1e-5, atol=1e-5)
    again = np.empty(counts[3] * 2, "f4")
    alone = np.array([(3, 7, counts[3]), (3, 7, 0)], "i8")
    kernels.scan_product_codes(book, book.itemsize, book.shape, is_dot, targets, pieces, alone[:1], again)
    kernels.scan_product_codes(book, book.itemsize, book.shape, is_dot, targets, pieces, alone[1:], again)
    (start,) = pairs[(pairs[:, 0] == 3) & (pairs[:, 1] == 7), 2].tolist()
    assert again.tobytes() == 2 * out[start : start + counts[3]].tobytes()


@pytest.mark.parametrize("dim", [1, 7, 16, 33, 40_000])
@pytest.mark.parametrize("is_dot", [False, True])
def test_scalar_codes(dim: int, is_dot: bool) -> None:
    pieces = [drawn(count, count, dim, dtype="u1") for count in (0, 1, 9)]
    pieces.append(np.full((1, dim), 255, "u1"))
    queries = drawn(5, 3, dim, dtype="f4") if is_dot else np.stack([np.zeros(dim, "u1"), *drawn(6, 2, dim, dtype="u1")])
    bases = np.array([3.0, 0.0, -1.5])
    pairs, num_rows = pairs_of([len(piece) for piece in pieces], 3)
    out = np.empty(num_rows, "f4")
    kernels.scan_scalar_codes(queries, dim, is_dot, 0.25, bases, pieces, pairs, out)
    for at, number, start in pairs.tolist():
        wide, query = pieces[at].astype("f8"), queries[number].astype("f8")
        sums = wide @ query if is_dot else ((wide - query) ** 2).sum(axis=1)
        expected = bases[number] + 0.25 * sums
        np.testing.assert_allclose(out[start : start + len(wide)], expected, rtol=1e-5, atol=0.05 if is_dot else 0)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("dim", [1, 8, 13, 128])
def test_vectors(dtype: str, dim: int) -> None:
    rows, queries = drawn(1, 600, dim, dtype=dtype), drawn(2, 3, dim, dtype="f8")
    rows[7] = 0
    rows[9, 0] = np.nan
    wide = rows.astype("f8")
    pieces = [rows[:20], rows[20:20], rows[20:]]
    pairs, num_rows = pairs_of([len(piece) for piece in pieces], 3)
    out, again = np.empty(num_rows, "f4"), np.empty(571, "f4")
    for metric in ("l2", "dot", "cosine"):
        kernels.scan_vectors(metric, rows.itemsize, dim, queries, pieces, pairs, out)
        for number, query in enumerate(queries):
            with np.errstate(all="ignore"):
                size = np.sqrt((wide * wide).sum(axis=1)) * np.sqrt(query @ query)
                expected = {"l2": ((wide - query) ** 2).sum(axis=1), "dot": 1 - wide @ query}
                expected["cosine"] = 1 - wide @ query / size
            starts = {piece: start for piece, each, start in pairs.tolist() if each == number}
            parts = [out[starts[piece] : starts[piece] + len(pieces[piece])] for piece in (0, 2)]
            np.testing.assert_allclose(np.concatenate(parts), expected[metric], rtol=1e-6, atol=1e-6)
            alone = np.array([[0, number, 0]], "i8")
            kernels.scan_vectors(metric, rows.itemsize, dim, queries, [rows[29:]], alone, again)
            assert again.tobytes() == parts[1][9:].tobytes()  # of the row alone


@pytest.mark.parametrize("name", ["vectors", "scalar", "product"])
def test_several_threads_give_the_same(name: str) -> None:
    """Rows of more bytes than two shares; in the order of the pairs, and in another one, which one thread compares."""
    counts = [137] * 70
    ends = np.cumsum(counts)
    ordered = np.stack((np.arange(70), np.arange(70), ends - counts), axis=1)
    turned = ordered.copy()
    turned[:, 2] = ordered[::-1, 2]
    for pairs in (ordered, turned):
        outs = [np.empty(ends[-1], "f4") for _ in range(3)]
        for out, threads in zip(outs, (1, 2, 5), strict=True):
            if name == "vectors":
                pieces, queries = [drawn(at, 137, 160) for at in range(70)], drawn(99, 70, 160, dtype="f8")
                kernels.scan_vectors("l2", 4, 160, queries, pieces, pairs, out, threads)
            elif name == "scalar":
                pieces, queries = [drawn(at, 137, 700, dtype="u1") for at in range(70)], drawn(99, 70, 700, dtype="u1")
                kernels.scan_scalar_codes(queries, 700, False, 0.5, np.zeros(70), pieces, pairs, out, threads)
            else:
                book, queries = drawn(98, 8, 256, 8), drawn(99, 70, 64)
                pieces = [drawn(at, 8, 137, dtype="u1") for at in range(70)]
                kernels.scan_product_codes(book, 4, book.shape, False, queries, pieces, pairs, out, threads)
        assert outs[0].tobytes() == outs[1].tobytes() == outs[2].tobytes()
        assert len(np.unique(outs[0])) > 1000


PAIR = bytes(24)
REFUSED: list[tuple[str, tuple[Any, ...]]] = [
    ("scan_product_codes", (bytes(4 * 256), 4, (1, 256, 2), False, bytes(8), [bytes(3)], PAIR, bytearray(12))),
    ("scan_product_codes", (bytes(4 * 256), 4, (1, 256, 1), False, bytes(6), [bytes(3)], PAIR, bytearray(12))),
    ("scan_product_codes", (bytes(4 * 256), 4, (1, 256, 1), False, bytes(4), [bytes(3)], PAIR, bytearray(8))),
    ("scan_product_codes", (bytes(4 * 16), 4, (1, 16, 1), False, bytes(4), [bytes(3)], PAIR, bytearray(12))),
    ("scan_product_codes", (bytes(4 * 32), 4, (1, 32, 1), False, bytes(4), [bytes(3)], PAIR, bytearray(12))),
    ("scan_product_codes", (bytes(4 * 256), 2, (1, 256, 1), False, bytes(4), [bytes(3)], PAIR, bytearray(12))),
    ("scan_product_codes", (b"", 4, (0, 256, 1 << 62), False, b"", [], b"", bytearray(0))),
    ("scan_product_codes", (bytes(4 * 256), 4, (1, 256, 1), False, b"", [bytes(3)], PAIR, bytearray(12))),
    ("scan_product_codes", (bytes(4 * 256), 4, (1, 256, 1), False, bytes(4), [], PAIR, bytearray(12))),
    ("scan_scalar_codes", (bytes(4), 4, False, 1.0, bytes(8), [bytes(7)], PAIR, bytearray(8))),
    ("scan_scalar_codes", (bytes(7), 7, True, 1.0, bytes(8), [bytes(7)], PAIR, bytearray(4))),
    ("scan_scalar_codes", (b"", 0, False, 1.0, bytes(8), [b""], PAIR, bytearray(0))),
    ("scan_scalar_codes", (bytes(4), 4, False, 1.0, bytes(16), [bytes(8)], PAIR, bytearray(8))),
    ("scan_scalar_codes", (bytes(4), 4, False, 1.0, bytes(8), [bytes(8)], PAIR[:16], bytearray(8))),
    ("scan_vectors", ("l2", 4, 2, bytes(16), [bytes(12)], PAIR, bytearray(4))),
    ("scan_vectors", ("l2", 4, 2, bytes(16), [bytes(16)], PAIR, bytearray(4))),
    ("scan_vectors", ("l1", 4, 2, bytes(16), [bytes(8)], PAIR, bytearray(4))),
    ("scan_vectors", ("l2", 3, 2, bytes(16), [bytes(8)], PAIR, bytearray(4))),
    ("scan_vectors", ("l2", 4, 0, b"", [bytes(8)], PAIR, bytearray(4))),
    ("scan_vectors", ("l2", 4, 2, bytes(8), [bytes(8)], PAIR, bytearray(4))),
    ("scan_vectors", ("l2", 4, 2, bytes(16), [bytes(8)], np.array([0, 1, 0]), bytearray(4))),
    ("scan_vectors", ("l2", 4, 2, bytes(16), [bytes(8)], np.array([0, 0, 1]), bytearray(4))),
    ("scan_vectors", ("l2", 4, 2, bytes(16), [bytes(8)], np.array([0, 0, -1]), bytearray(4))),
    ("scan_vectors", ("l2", 4, 2, bytes(16), [bytes(8)], np.array([-1, 0, 0]), bytearray(4))),
    ("scan_vectors", ("l2", 4, 2, bytes(16), [bytes(8)], np.array([0, 0, (1 << 63) - 1]), bytearray(4))),
]


@pytest.mark.parametrize(("name", "arguments"), REFUSED)
def test_wrong_sizes_are_refused(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        getattr(kernels, name)(*arguments)
