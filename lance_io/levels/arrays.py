"""Zero-copy Arrow arrays over numpy memory.

`pyarrow.array` and `to_numpy` do the same, but they first import pandas, which takes half a second at the first take or
delete of a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io._kernels import set_bits
from lance_io.caller_text import utf8
from lance_io.spans import int64s

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_io.spans import IntArray

SMALL_BYTES: Final = 4096  # up to this size, all of an array's memory counts, even if it is a slice
MERGED_FALLS_MAX: Final = 64  # of numbers that ascend in so many parts, merging the parts is the faster sort


def numbers(values: npt.NDArray[Any], null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of numbers; null where `null` is true."""
    dtype = pa.int64() if values.dtype == np.int64 else pa.from_numpy_dtype(values.dtype)
    validity = None if null is None or not null.any() else _bits(~null)
    return pa.Array.from_buffers(dtype, len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))])


def values_of(array: pa.Array) -> npt.NDArray[Any]:
    """The memory of an array of numbers without nulls."""
    dtype = np.dtype(array.type.to_pandas_dtype())  # a numpy type, despite the name
    if not len(array):  # may have no buffer
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def booleans(values: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """An array of booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def mask_of(array: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """An array of booleans without nulls as numpy has it."""
    if not len(array):  # may have no buffer
        return np.empty(0, np.bool_)
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(np.bool_)


def texts(values: Sequence[str]) -> pa.StringArray:
    """An array of texts, which together have less than 2 GiB."""
    encoded = [utf8(value, "a text") for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(data) for data in encoded], out=offsets[1:])
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )


def scalar(value: int | float | bool | str | bytes, dtype: pa.DataType) -> pa.Scalar:
    """A value of a type of numbers, bool, string or binary."""
    if isinstance(value, bool):
        return booleans(np.array([value]))[0]
    if isinstance(value, (str, bytes)):
        data = utf8(value, "a text") if isinstance(value, str) else value
        offsets = np.array([0, len(data)], np.int32)
        return pa.Array.from_buffers(dtype, 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])[0]
    number = np.array([value], dtype.to_pandas_dtype())  # a numpy type, despite the name
    return pa.Array.from_buffers(dtype, 1, [None, pa.py_buffer(number)])[0]


def from_scalars(values: Sequence[pa.Scalar], dtype: pa.DataType) -> pa.Array:
    """An array of scalars of one type."""
    return pa.concat_arrays([pa.repeat(value, 1) for value in values]) if values else pa.nulls(0, dtype)


def shown_value(value: pa.Scalar) -> Any:
    """A value for a message: as in Python, or of a moment that Python lacks the number of its unit."""
    try:
        return value.as_py()
    except (ValueError, OverflowError, KeyError):  # nanoseconds without pandas, years after 9999, unknown time zones
        if isinstance(value, pa.StructScalar):
            return {name: shown_value(each) for name, each in value.items()}
        if isinstance(value, pa.ListScalar):
            return [*map(shown_value, value.values)]
        if isinstance(value, (pa.DictionaryScalar, pa.ExtensionScalar)):
            return shown_value(value.value)
        return f"{pa.repeat(value, 1).view(f'int{value.type.bit_width}')[0]} ({value.type})"


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows; `from_pylist` and `empty_table` lack nested extension types and some dictionaries."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, dtype) for dtype in schema.types], schema=schema)


def true_positions(mask: pa.BooleanArray) -> IntArray:
    """Indexes where `mask` (without nulls) is true; several times as fast as `pyarrow.compute.indices_nonzero`."""
    return int64s(set_bits(mask.buffers()[1], mask.offset, len(mask)))


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers in ascending order, each once: `numpy.unique` hashes them, which takes up to eighty times as long."""
    ordered = np.sort(values)
    return ordered[np.r_[True, ordered[1:] != ordered[:-1]]] if len(ordered) else ordered


def has_repeats(values: npt.NDArray[Any]) -> bool:
    """Whether a number occurs more than once. Numbers that mostly ascend are not sorted from the beginning."""
    falls = np.count_nonzero(values[1:] <= values[:-1])
    if not falls:
        return False
    ordered = np.sort(values, kind="stable" if falls <= MERGED_FALLS_MAX else None)
    return bool((ordered[1:] == ordered[:-1]).any())


def memory_bytes(array: pa.Array) -> int:
    """Approximate bytes of memory of an array's rows; ten times as fast as the exact `nbytes`.

    Small arrays count with all of their memory, numbers with a validity bit each.
    """
    total: int = array.get_total_buffer_size()
    if total <= SMALL_BYTES:
        return total
    if pa.types.is_primitive(array.type):
        width_bits: int = array.type.bit_width + 1  # with a validity bit
        return min(total, -(-len(array) * width_bits // 8))
    return int(array.nbytes)


def _bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
