"""Blobs of the first kind as bytes: what a single file's reader shows of them (spec: encodings, blob layout).

Their columns hold positions and sizes, the bytes lie elsewhere in the same file. Tables show the descriptions unless
told otherwise, because blobs are large; whoever opens one file asks for what is in it, as with pylance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.errors import FormatError
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.data_file import OpenedFile
    from lance_io.format.schema import Field
    from lance_io.spans import Fetched, IntArray


def has_bytes(field: Field) -> bool:
    """Whether there are blobs of the first kind in a field, not inside of lists."""
    return field.is_blob or (field.logical_type == "struct" and any(has_bytes(child) for child in field.children))


def shown(field: Field) -> Field:
    """A field as the file's reader shows it: blobs of the first kind as bytes, others as their descriptions."""
    if field.is_blob:
        return replace(field, logical_type="large_binary")
    if not has_bytes(field):
        return field.describe_blobs()
    return replace(field, children=tuple(shown(child) for child in field.children))


def with_bytes(file: OpenedFile, fields: Sequence[Field], arrays: Sequence[pa.Array]) -> FileSteps[list[pa.Array]]:
    """Columns with the descriptions of blobs replaced by their bytes, one round for each column of blobs.

    Raises `FormatError` for blobs that reach beyond the file, or that together are larger than it.
    """
    found = []
    for field, array in zip(fields, arrays, strict=True):
        found.append((yield from _with_bytes(file, field, array)) if has_bytes(field) else array)
    return found


def _with_bytes(file: OpenedFile, field: Field, array: pa.Array) -> FileSteps[pa.Array]:
    if field.is_blob:
        return (yield from _read(file, field, array))
    members = []
    for child, member in zip(field.children, array.flatten(), strict=True):  # null where their struct is
        members.append((yield from _with_bytes(file, child, member)) if has_bytes(child) else member)
    fields = [one.with_type(member.type) for one, member in zip(array.type, members, strict=True)]
    return pa.StructArray.from_arrays(members, fields=fields, mask=array.is_null() if array.null_count else None)


def _read(file: OpenedFile, field: Field, descriptions: pa.StructArray) -> FileSteps[pa.Array]:
    valid = descriptions.is_valid().to_numpy(zero_copy_only=False)
    starts, sizes = (numbers_of(descriptions, name, valid) for name in ("position", "size"))
    end = file.size_bytes
    if len(sizes) and (max(int(starts.max()), int(sizes.max())) > end or int((starts + sizes).max()) > end):
        raise FormatError(f"a blob of `{field.name}` lies behind the end of the file, at {end}", path=file.key)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if int(offsets[-1]) > end:
        raise FormatError(f"blobs of `{field.name}` are larger together than the file, {end} bytes", path=file.key)
    data: object = b""
    there = np.flatnonzero(sizes)
    if len(there):
        fetched: Fetched = yield Ranges(starts[there], starts[there] + sizes[there])
        data = _kernels.gather_ranges(fetched.buffer, fetched.offsets, sizes[there])
    return binaries(valid, offsets, data)


def numbers_of(descriptions: pa.StructArray, name: str, valid: Any) -> IntArray:
    """A member of descriptions as i64[n], 0 in nulls, at most 2**62. Raises `FormatError` where it is missing."""
    index = descriptions.type.get_field_index(name)
    if index < 0:
        raise FormatError(f"a blob's description lacks {name!r}: {descriptions.type}")
    values = descriptions.field(index).fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(valid, np.minimum(values, np.uint64(1 << 62)).astype(np.int64), 0)


def binaries(valid: Any, offsets: IntArray, data: object) -> pa.Array:
    """Bytes as a large_binary array: value i is `data[offsets[i]:offsets[i + 1]]`, null where not `valid`."""
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.large_binary(), len(valid), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])
