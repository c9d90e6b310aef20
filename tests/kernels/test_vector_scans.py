"""Scans of partitions beside the same sums by numpy in 64 bits; wrong sizes are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lance_io import _kernels as kernels


def drawn(seed: int, *shape: int, dtype: str = "f4") -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, shape).astype("u1") if dtype == "u1" else rng.normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("is_dot", [False, True])
@pytest.mark.parametrize(("parts", "words", "width"), [(1, 256, 1), (5, 256, 3), (8, 256, 8), (2, 16, 1), (12, 16, 5)])
def test_product_codes(dtype: str, is_dot: bool, parts: int, words: int, width: int) -> None:
    counts = (0, 1, 1025, 300)
    book, targets = drawn(1, parts, words, width, dtype=dtype), drawn(2, len(counts), parts * width, dtype=dtype)
    num_columns = parts if words == 256 else parts // 2
    pieces = [drawn(3 + count, num_columns, count, dtype="u1") for count in counts]
    out = np.empty(sum(counts), "f4")
    kernels.scan_product_codes(book, book.itemsize, book.shape, is_dot, targets, pieces, out)
    expected = []
    for target, piece in zip(targets.astype("f8"), pieces, strict=True):
        codes = piece if words == 256 else np.stack((piece & 15, piece >> 4), axis=1).reshape(parts, -1)
        chosen = book.astype("f8")[np.arange(parts)[:, None], codes]  # [parts, rows, width]
        part = target.reshape(parts, 1, width)
        expected.append(1 - (chosen * part).sum((0, 2)) if is_dot else ((chosen - part) ** 2).sum((0, 2)))
    np.testing.assert_allclose(out, np.concatenate(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 7, 16, 33, 40_000])
@pytest.mark.parametrize("is_dot", [False, True])
def test_scalar_codes(dim: int, is_dot: bool) -> None:
    pieces = [drawn(count, count, dim, dtype="u1") for count in (0, 1, 9)]
    pieces.append(np.full((1, dim), 255, "u1"))
    query = drawn(5, dim, dtype="f4") if is_dot else np.zeros(dim, "u1")
    out = np.empty(11, "f4")
    kernels.scan_scalar_codes(query, is_dot, 0.25, 3.0, pieces, out)
    wide = np.concatenate(pieces).astype("f8")
    sums = wide @ query.astype("f8") if is_dot else ((wide - query) ** 2).sum(axis=1)
    np.testing.assert_allclose(out, 3 + 0.25 * sums, rtol=1e-5, atol=0.05 if is_dot else 0)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("dim", [1, 8, 13, 128])
def test_vectors(dtype: str, dim: int) -> None:
    rows, query = drawn(1, 60, dim, dtype=dtype), drawn(2, dim, dtype="f8")
    rows[7] = 0
    rows[9, 0] = np.nan
    wide = rows.astype("f8")
    out, again = np.empty(60, "f4"), np.empty(31, "f4")
    with np.errstate(all="ignore"):
        size = np.sqrt((wide * wide).sum(axis=1)) * np.sqrt(query @ query)
        expected = {"l2": ((wide - query) ** 2).sum(axis=1), "dot": 1 - wide @ query, "cosine": 1 - wide @ query / size}
    for metric, distances in expected.items():
        kernels.scan_vectors(metric, rows.itemsize, query, [rows[:20], rows[20:20], rows[20:]], out)
        np.testing.assert_allclose(out, distances, rtol=1e-6, atol=1e-6)
        kernels.scan_vectors(metric, rows.itemsize, query, [rows[29:]], again)
        assert again.tobytes() == out[29:].tobytes()  # of the row alone


REFUSED: list[tuple[str, tuple[Any, ...]]] = [
    ("scan_product_codes", (bytes(4 * 256), 4, (1, 256, 2), False, bytes(8), [bytes(3)], bytearray(12))),
    ("scan_product_codes", (bytes(4 * 256), 4, (1, 256, 1), False, bytes(8), [bytes(3)], bytearray(12))),
    ("scan_product_codes", (bytes(4 * 256), 4, (1, 256, 1), False, bytes(4), [bytes(3)], bytearray(16))),
    ("scan_product_codes", (bytes(4 * 16), 4, (1, 16, 1), False, bytes(4), [bytes(3)], bytearray(12))),
    ("scan_product_codes", (bytes(4 * 32), 4, (1, 32, 1), False, bytes(4), [bytes(3)], bytearray(12))),
    ("scan_product_codes", (bytes(4 * 256), 2, (1, 256, 1), False, bytes(4), [bytes(3)], bytearray(12))),
    ("scan_product_codes", (b"", 4, (0, 256, 1 << 62), False, b"", [], bytearray(0))),
    ("scan_scalar_codes", (bytes(4), False, 1.0, 0.0, [bytes(7)], bytearray(8))),
    ("scan_scalar_codes", (bytes(7), True, 1.0, 0.0, [bytes(7)], bytearray(4))),
    ("scan_scalar_codes", (b"", False, 1.0, 0.0, [b""], bytearray(0))),
    ("scan_vectors", ("l2", 4, bytes(16), [bytes(12)], bytearray(4))),
    ("scan_vectors", ("l2", 4, bytes(16), [bytes(16)], bytearray(4))),
    ("scan_vectors", ("l1", 4, bytes(16), [bytes(8)], bytearray(4))),
    ("scan_vectors", ("l2", 3, bytes(16), [bytes(8)], bytearray(4))),
    ("scan_vectors", ("l2", 4, b"", [bytes(8)], bytearray(4))),
]


@pytest.mark.parametrize(("name", "arguments"), REFUSED)
def test_wrong_sizes_are_refused(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        getattr(kernels, name)(*arguments)
