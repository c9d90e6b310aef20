"""Computes text functions without an Arrow kernel by our own kernels, over the bytes of whole columns.

A row with a null argument is null. Arguments are arrays and literals of text, byte strings or integers; a kernel takes
a literal as a column of one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.levels.arrays import booleans, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lance_io._kernels import Buffer, TextArgument
    from lance_io.filters.elementwise import Value

    Flags = npt.NDArray[np.bool_]

TEXT_BYTES_MAX: Final = 1 << 30  # of one text: `repeat` and `lpad` could ask for any size
_WIDE = (pa.large_string(), pa.large_binary())
_NARROW = (pa.string(), pa.binary())


def changed_texts(function: str, result: pa.DataType, *values: Value) -> pa.Array:
    """`_kernels.change_texts` for each row: a text or byte string. Raises pa.ArrowInvalid where it fails."""
    call = _Call(values)
    if not pt.is_string(result) and not pt.is_binary(result) and result not in _WIDE:
        return changed_texts(function, pa.large_string(), *values).cast(result)
    buffers = call.run(_kernels.change_texts, function, call.num_rows, *call.arguments, result in _WIDE, TEXT_BYTES_MAX)
    return call.array(result, buffers)


def measured_texts(function: str, result: pa.DataType, *values: Value) -> pa.Array:
    """`_kernels.measure_texts` for each row: an integer, or a boolean if `result` is one. Errors as above."""
    call = _Call(values)
    numbers = np.frombuffer(call.run(_kernels.measure_texts, function, call.num_rows, *call.arguments), np.int64)
    if pt.is_boolean(result):
        return call.array(result, (booleans(numbers != 0).buffers()[1],))
    return call.array(result, (np.ascontiguousarray(numbers, result.to_pandas_dtype()),))


def digests(algorithm: str, values: Value) -> pa.Array:
    """The digests of texts or byte strings, as byte strings."""
    call = _Call((values,))
    digest_bytes = call.run(_kernels.digest_texts, algorithm, call.num_rows, call.arguments[0][0], call.arguments[1])
    width = len(digest_bytes) // max(call.num_rows, 1)
    ends = np.arange(0, len(digest_bytes) + 1, max(width, 1), dtype=np.int64)[: call.num_rows + 1]
    if len(digest_bytes) >= 1 << 31:
        raise pa.ArrowInvalid(f"digests of {len(digest_bytes)} bytes in one batch, at most {(1 << 31) - 1}")
    return call.array(pa.binary(), (ends.astype(np.int32), digest_bytes))


def split_texts(texts: Value, separator: Value) -> pa.Array:
    """Lists of the parts between separators; errors as above."""
    call = _Call((texts, separator))
    is_wide = texts.type in _WIDE
    lists, ends, data = call.run(_kernels.split_texts, call.num_rows, *call.arguments, is_wide)
    parts = pa.large_string() if is_wide else pa.string()
    num_parts = len(ends) // (8 if is_wide else 4) - 1
    items = pa.Array.from_buffers(parts, num_parts, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    list_type = pa.list_(parts)
    buffers = [call.validity, pa.py_buffer(lists)]
    result = pa.Array.from_buffers(list_type, call.num_rows, buffers, children=[items])
    return result if texts.type == parts else result.cast(pa.list_(texts.type))


def read_times(texts: Value, patterns: list[list[tuple[str, str]]], *, of_day: bool) -> tuple[pa.Array, int | None]:
    """Parse texts by the first pattern that fits: nanoseconds since 1970 or midnight (i64), and the first failing row.

    patterns  as `TimeFormat.items`
    """
    call = _Call((texts,))
    (given,), present = call.arguments
    nanoseconds, failed = call.run(_kernels.read_times, call.num_rows, given, present, patterns, of_day)
    return call.array(pa.int64(), (nanoseconds,)) if failed is None else pa.nulls(call.num_rows, pa.int64()), failed


class _Call:
    """Arguments in the form that kernels take.

    arguments  columns and literals, and the rows without nulls (None for all)
    validity   of the result
    """

    def __init__(self, values: tuple[Value, ...]) -> None:
        self.num_rows = next(len(value) for value in values if isinstance(value, pa.Array))
        self._present = self._rows_without_nulls(values)
        arrays = [value if isinstance(value, pa.Array) else _one_row(value) for value in values]
        self.arguments: tuple[list[TextArgument], Flags | None] = (
            [column_argument(array) for array in arrays],
            self._present,
        )
        self.validity: Buffer | None = None if self._present is None else booleans(self._present).buffers()[1]

    def _rows_without_nulls(self, values: tuple[Value, ...]) -> Flags | None:
        present: Flags | None = None
        for value in values:
            if isinstance(value, pa.Scalar):
                if not value.is_valid:
                    return np.zeros(self.num_rows, np.bool_)
            elif value.null_count:
                here = flags(value)
                present = here if present is None else present & here
        return present

    def run(self, kernel: Callable[..., Any], *arguments: Any) -> Any:
        """Call a kernel; its errors become pa.ArrowInvalid or pa.ArrowCapacityError."""
        try:
            return kernel(*arguments)
        except DamagedError as error:
            raise pa.ArrowCapacityError(str(error)) from None
        except ValueError as error:
            raise pa.ArrowInvalid(str(error)) from None

    def array(self, result: pa.DataType, buffers: tuple[Any, ...]) -> pa.Array:
        """The result as an array over the kernel's buffers."""
        memory = [buffer if isinstance(buffer, pa.Buffer) else pa.py_buffer(buffer) for buffer in buffers]
        return pa.Array.from_buffers(result, self.num_rows, [self.validity, *memory])


def flags(values: pa.Array) -> Flags:
    """bool[n]: which values are not null."""
    valid = values.is_valid().buffers()[1]
    return np.unpackbits(np.frombuffer(valid, np.uint8), count=len(values), bitorder="little").view(np.bool_)


def _one_row(value: pa.Scalar) -> pa.Array:
    if value.is_valid:
        return pa.repeat(value, 1)
    return pa.array([0]) if pt.is_integer(value.type) else pa.array([""])  # no row is computed


def column_argument(values: pa.Array) -> TextArgument:
    """A column of texts, byte strings or integers in the form that kernels take."""
    if pt.is_integer(values.type):
        return values_of(values.cast(pa.int64()))
    if values.type not in _NARROW and values.type not in _WIDE:
        values = values.cast(pa.large_binary() if pt.is_binary_view(values.type) else pa.large_string())
    is_wide = values.type in _WIDE
    _, offsets, data = values.buffers()
    width = 8 if is_wide else 4
    if not len(values) or offsets is None:
        return b"", bytes(width), is_wide
    first, last = width * values.offset, width * (values.offset + len(values) + 1)
    return b"" if data is None else data, offsets[first:last], is_wide
