"""Null count, least and greatest value of each batch of a column, for files of version 0.1 (spec: section 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from lance_io.format.schema import Field
    from lance_io.spans import IntArray

CUT_BYTES: Final = 64  # longer strings are cut to this length, at the border of a character
_NUMBERS: Final = {
    **{f"{kind}{bits}": np.dtype(f"<{kind[0]}{bits // 8}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "float": np.dtype("<f4"),
    "double": np.dtype("<f8"),
    "date32:day": np.dtype("<i4"),
    "date64:ms": np.dtype("<i8"),
}
_TEXTS: Final = frozenset({"string", "large_string", "binary", "large_binary"})
_DECIMAL_LIMIT: Final = 1 << 127


def has_statistics(field: Field) -> bool:
    """Whether a field of this type has statistics. Fields below lists have none."""
    logical = field.logical_type
    return logical in _NUMBERS or logical in _TEXTS or logical == "bool" or logical.startswith("decimal:128:")


class ColumnStatistics:
    """Statistics of the batches of one field.

    null_counts           one per batch
    least, greatest       one per batch: a boolean, or the bytes of a fixed-width value or a string; None if no string
                          is a bound
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        self.null_counts: list[int] = []
        self.least: list[Any] = []
        self.greatest: list[Any] = []

    def add(self, array: pa.Array, starts: IntArray, ends: IntArray) -> None:
        """Add the batches of an array: contiguous, non-empty rows `starts[i]` to `ends[i]` each."""
        logical = self.field.logical_type
        if logical in _NUMBERS:
            self._add_numbers(array, starts, ends, _NUMBERS[logical])
            return
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            batch = array.slice(start, end - start)
            self.null_counts.append(batch.null_count)
            if logical == "bool":
                bounds: tuple[Any, Any] = _bool_bounds(batch)
            elif logical in _TEXTS:
                bounds = _text_bounds(batch, is_text="string" in logical)
            else:
                bounds = _decimal_bounds(batch)
            self.least.append(bounds[0])
            self.greatest.append(bounds[1])

    def _add_numbers(self, array: pa.Array, starts: IntArray, ends: IntArray, dtype: np.dtype[Any]) -> None:
        values = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
        is_float = dtype.kind == "f"
        low, high = (-np.inf, np.inf) if is_float else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        values = values[: int(ends[-1])]
        is_null = array.is_null().to_numpy(zero_copy_only=False)[: int(ends[-1])]
        is_skipped = is_null | np.isnan(values) if is_float else is_null
        if is_skipped.any():
            least = np.minimum.reduceat(np.where(is_skipped, dtype.type(high), values), starts)
            greatest = np.maximum.reduceat(np.where(is_skipped, dtype.type(low), values), starts)
            is_empty = np.add.reduceat(is_skipped.astype(np.int64), starts) == ends - starts
            least, greatest = np.where(is_empty, dtype.type(low), least), np.where(is_empty, dtype.type(high), greatest)
        else:
            least, greatest = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        if is_float:  # a least zero is stored as -0.0, a greatest one as 0.0 (spec: section 8)
            least = np.where(least == 0, dtype.type(-0.0), least)
            greatest = np.where(greatest == 0, dtype.type(0.0), greatest)
        self.null_counts += np.add.reduceat(is_null.astype(np.int64), starts).tolist()
        self.least += [value.tobytes() for value in least.astype(dtype)]
        self.greatest += [value.tobytes() for value in greatest.astype(dtype)]


def _bool_bounds(batch: pa.Array) -> tuple[bool, bool]:
    values = batch.drop_null()
    if not len(values):
        return False, True
    return values.true_count == len(values), values.true_count > 0


def _decimal_bounds(batch: pa.Array) -> tuple[bytes, bytes]:
    extremes = pc.min_max(batch)
    if not extremes["min"].is_valid:
        low, high = -_DECIMAL_LIMIT, _DECIMAL_LIMIT - 1
        return low.to_bytes(16, "little", signed=True), high.to_bytes(16, "little", signed=True)
    bounds = pa.concat_arrays([pa.repeat(extremes["min"], 1), pa.repeat(extremes["max"], 1)])
    content = bytes(bounds.buffers()[1])
    return content[:16], content[16:32]


def _text_bounds(batch: pa.Array, *, is_text: bool) -> tuple[bytes | None, bytes | None]:
    """Lower and upper bound of the strings, in the order of their bytes; None without strings.

    Strings are cut to `CUT_BYTES`. If a string was cut, the upper bound is above the greatest of them, or None if no
    string of its length is above it.
    """
    longest = pc.max(pc.binary_length(batch))
    if not longest.is_valid:
        return None, None
    if longest.as_py() <= CUT_BYTES:
        extremes = pc.min_max(batch)
        return extremes["min"].as_buffer().to_pybytes(), extremes["max"].as_buffer().to_pybytes()
    as_bytes = batch.cast(pa.large_binary()) if is_text else batch
    values = [_cut(value, is_text) for value in as_bytes.drop_null().to_pylist()]
    raised = _raised_text(max(values)) if is_text else _next_value(max(values))
    return min(values), raised


def _cut(value: bytes, is_text: bool) -> bytes:
    if len(value) <= CUT_BYTES:
        return value
    end = CUT_BYTES
    while is_text and value[end] & 0xC0 == 0x80:  # in the middle of a character
        end -= 1
    return value[:end]


def _next_value(value: bytes) -> bytes | None:
    """The next value of the same length; None for the last one."""
    if value == b"\xff" * len(value):
        return None
    number = int.from_bytes(value, "big") + 1
    return number.to_bytes(len(value), "big")


def _raised_text(value: bytes) -> bytes | None:
    """A greater valid text of the same length: the last byte that can grow grows by the least. None if none can."""
    changed = bytearray(value)
    for position in reversed(range(len(value))):
        for byte in range(value[position] + 1, 0x100):
            changed[position] = byte
            if _is_text(changed):
                return bytes(changed)
        changed[position] = value[position]
    return None


def _is_text(value: bytearray) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
