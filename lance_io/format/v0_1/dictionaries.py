"""Values of dictionary columns in tables of file version 0.1 (spec: legacy 0.1, section 7; table, section 2.7).

Such a column has one dictionary for all rows of the table. Its field holds the position of the values in the same file:
in manifest files at the very beginning.

    integers            values back to back                        offset is their position
    strings, binaries   bytes, then i64[n + 1] positions of these  offset is that of the positions

In memory, and in a manifest that travels without its file, the values are part of the field
(`DictionaryValues.values`), as an Arrow IPC stream. Every version's manifest file has its own copy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError
from lance_io.format.logical_types import primitive_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.format.wire import Buffer
    from lance_io.proto import file_pb2

DICTIONARIES_MAX: Final = 32  # dictionaries in the cache, by their stored form
_POSITION_BYTES: Final = 8


@lru_cache(maxsize=DICTIONARIES_MAX)
def dictionary_values(stored: bytes) -> pa.Array:
    """Decode a field's `dictionary`."""
    return pa.ipc.open_stream(stored).read_all().column(0).combine_chunks()


def stored_dictionary(values: pa.Array) -> bytes:
    """The reverse of `dictionary_values`."""
    batch = pa.record_batch([values], ["values"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stored: bytes = sink.getvalue().to_pybytes()
    return stored


def attach_values(fields: Iterable[file_pb2.Field], data: Buffer) -> None:
    """Read the values of the dictionary fields of a table of version 0.1 from `data`, the manifest file.

    Fields with unsupported values receive none. Raises `FormatError` for values outside of `data`.
    """
    for field in fields:
        if field.logical_type.startswith("dict:"):
            dtype = primitive_type(field.logical_type).value_type
            if is_readable(dtype):
                where = field.dictionary.offset, field.dictionary.length
                try:
                    field.dictionary.values = stored_dictionary(_decode(data, *where, dtype))
                except FormatError as error:
                    raise error.within(f"dictionary of field {field.name!r}") from None


def is_readable(dtype: pa.DataType) -> bool:
    """Whether stored values of a type can be read."""
    return pa.types.is_integer(dtype) or _is_variable(dtype)


def _is_variable(dtype: pa.DataType) -> bool:
    return any(
        check(dtype)
        for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def _decode(data: Buffer, offset: int, length: int, dtype: pa.DataType) -> pa.Array:
    view = memoryview(data).cast("B")
    if length == 0:
        return pa.array([], dtype)
    if not _is_variable(dtype):
        content = _slice(view, offset, length * dtype.bit_width // 8)
        return pa.Array.from_buffers(dtype, length, [None, pa.py_buffer(bytes(content))])
    table = np.frombuffer(_slice(view, offset, (length + 1) * _POSITION_BYTES), dtype="<i8")
    first, last = int(table[0]), int(table[-1])
    if first < 0 or last > len(view) or (np.diff(table) < 0).any():
        raise FormatError(f"values from {first} to {last} do not ascend within {len(view)} bytes")
    is_narrow = dtype in (pa.string(), pa.binary())
    if is_narrow and last - first > np.iinfo(np.int32).max:
        raise FormatError(f"{last - first} bytes of values")
    offsets = (table - first).astype(np.int32 if is_narrow else np.int64)
    is_valid = np.packbits(np.diff(table) > 0, bitorder="little")
    buffers = [pa.py_buffer(is_valid), pa.py_buffer(offsets), pa.py_buffer(bytes(view[first:last]))]
    values = pa.Array.from_buffers(dtype, length, buffers)
    try:
        values.validate(full=True)
    except MemoryError:  # pyarrow's memory error is an ArrowException, too
        raise
    except pa.ArrowException as error:
        raise FormatError(str(error)) from None
    return values


def _slice(view: memoryview, start: int, length: int) -> memoryview:
    if start < 0 or length < 0 or start + length > len(view):
        raise FormatError(f"{length} bytes at {start} are not within the {len(view)} of the file")
    return view[start : start + length]


def lay_out_values(fields: Iterable[Any], position: int) -> bytes:
    """Encode the values of dictionary fields for file offset `position`, and store their offsets in the fields.

    fields  messages; their in-memory values are removed
    """
    parts: list[bytes] = []
    for field in fields:
        stored = field.dictionary.values
        if not stored:
            continue
        values = dictionary_values(stored)
        data, page = encode_values(values, position)
        field.dictionary.Clear()
        field.dictionary.offset, field.dictionary.length = page, len(values)
        parts.append(data)
        position += len(data)
    return b"".join(parts)


def encode_values(values: pa.Array, position: int) -> tuple[bytes, int]:
    """Encode the values of a dictionary for file offset `position`; also returns the offset of their page."""
    if not _is_variable(values.type):
        width = values.type.bit_width // 8
        content = memoryview(values.fill_null(0).buffers()[1])[values.offset * width :][: len(values) * width]
        return bytes(content), position
    texts = [b"" if value is None else value for value in values.cast(pa.large_binary()).to_pylist()]
    data = b"".join(texts)
    table = position + np.cumsum([0, *map(len, texts)], dtype="<i8")
    return data + table.tobytes(), position + len(data)
