"""Blobs of the first kind as bytes, for the reader of a single file (spec: encodings, blob layout).

Their columns hold positions and sizes; the bytes lie elsewhere in the same file. Tables show the descriptions by
default, because blobs are large. The reader of a single file shows the bytes, as pylance does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.errors import FormatError
from lance_io.levels.arrays import mask_of, values_of
from lance_io.levels.row_sizes import cut_by_size
from lance_io.limits import MIB
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.data_file import OpenedFile
    from lance_io.format.schema import Field
    from lance_io.spans import Fetched, IntArray


PART_BYTES: Final = 32 * MIB  # of blobs per read: a part is in memory twice until it is copied to its destination


def has_bytes(field: Field) -> bool:
    """Whether a field contains blobs of the first kind, other than inside lists."""
    return field.is_blob or (field.logical_type == "struct" and any(has_bytes(child) for child in field.children))


def field_with_bytes(field: Field) -> Field:
    """A field as the file's reader shows it: blobs of the first kind as bytes, others as their descriptions."""
    if field.is_blob:
        return replace(field, logical_type="large_binary")
    if not has_bytes(field):
        return field.describe_blobs()
    return replace(field, children=tuple(field_with_bytes(child) for child in field.children))


def with_bytes(file: OpenedFile, fields: Sequence[Field], arrays: Sequence[pa.Array]) -> FileSteps[list[pa.Array]]:
    """Columns with the descriptions of blobs replaced by their bytes; one round per `PART_BYTES` of a column.

    Raises `FormatError` for blobs that reach beyond the file, or that together are larger than the file.
    """
    columns = []
    for field, array in zip(fields, arrays, strict=True):
        columns.append((yield from _with_bytes(file, field, array)) if has_bytes(field) else array)
    return columns


def _with_bytes(file: OpenedFile, field: Field, array: pa.Array) -> FileSteps[pa.Array]:
    if field.is_blob:
        return (yield from _read(file, field, array))
    members = []
    for child, member in zip(field.children, array.flatten(), strict=True):  # null where the struct is null
        members.append((yield from _with_bytes(file, child, member)) if has_bytes(child) else member)
    fields = [declared.with_type(member.type) for declared, member in zip(array.type, members, strict=True)]
    return pa.StructArray.from_arrays(members, fields=fields, mask=array.is_null() if array.null_count else None)


def _read(file: OpenedFile, field: Field, descriptions: pa.StructArray) -> FileSteps[pa.Array]:
    valid = mask_of(descriptions.is_valid())
    starts, sizes = (numbers_of(descriptions, name, valid) for name in ("position", "size"))
    end = file.size_bytes
    if len(sizes) and (max(int(starts.max()), int(sizes.max())) > end or int((starts + sizes).max()) > end):
        raise FormatError(f"a blob of `{field.name}` lies behind the end of the file, at {end}", path=file.key)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if int(offsets[-1]) > end:
        raise FormatError(f"blobs of `{field.name}` are larger together than the file, {end} bytes", path=file.key)
    data: Any = np.empty(int(offsets[-1]), np.uint8)
    for part in parts_of(starts, sizes, offsets):
        fetched: Fetched = yield part.ranges
        part.fill(data, fetched)
        del fetched  # frees it before the next part is fetched
    return binaries(valid, offsets, data)


class BlobPart:
    """Bytes of some blobs of one object that are read at once.

    ranges  byte ranges in the object
    """

    __slots__ = ("_lengths", "_targets", "ranges")

    def __init__(self, starts: IntArray, lengths: IntArray, targets: IntArray) -> None:
        self.ranges = Ranges(starts, starts + lengths)
        self._lengths = lengths
        self._targets = targets

    def fill(self, out: Any, fetched: Fetched) -> None:
        """Copy the fetched bytes to their offsets in `out`."""
        lengths, first = self._lengths, int(self._targets[0])
        gathered = _kernels.gather_ranges(fetched.buffer, fetched.offsets, lengths)
        data = np.frombuffer(memoryview(gathered), dtype=np.uint8)
        if int(self._targets[-1] + lengths[-1]) - first == len(data):  # contiguous
            out[first : first + len(data)] = data
            return
        position = 0
        for target, length in zip(self._targets.tolist(), lengths.tolist(), strict=True):
            out[target : target + length] = data[position : position + length]
            position += length


def parts_of(starts: IntArray, sizes: IntArray, targets: IntArray) -> Iterator[BlobPart]:
    """Split blobs of one object into parts of at most `PART_BYTES`, to be read one after the other.

    starts, sizes  of the blobs in the object
    targets        ascending target offsets of their bytes; those of empty blobs are ignored
    """
    nonempty = np.flatnonzero(sizes)
    starts, sizes, targets = starts[nonempty], sizes[nonempty], targets[nonempty]
    cuts = -(-sizes // PART_BYTES)
    if (cuts > 1).any():
        first = np.repeat(np.cumsum(cuts) - cuts, cuts)
        before = PART_BYTES * (np.arange(len(first)) - first)
        starts, targets = np.repeat(starts, cuts) + before, np.repeat(targets, cuts) + before
        sizes = np.minimum(np.repeat(sizes, cuts) - before, PART_BYTES)
    for low, high in cut_by_size(sizes, PART_BYTES):
        yield BlobPart(starts[low:high], sizes[low:high], targets[low:high])


def numbers_of(descriptions: pa.StructArray, name: str, valid: Any) -> IntArray:
    """A member of descriptions as i64[n], 0 for nulls, at most 2**62. Raises `FormatError` if it is missing."""
    index = descriptions.type.get_field_index(name)
    if index < 0:
        raise FormatError(f"a blob's description lacks {name!r}: {descriptions.type}")
    members = descriptions.field(index)
    values = values_of(members)  # whatever a null hides
    valid = valid & mask_of(members.is_valid()) if members.null_count else valid
    return np.where(valid, np.minimum(values, np.uint64(1 << 62)).astype(np.int64), 0)


def binaries(valid: Any, offsets: IntArray, data: object) -> pa.Array:
    """Bytes as a large_binary array: value i is `data[offsets[i]:offsets[i + 1]]`, null where not `valid`."""
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.large_binary(), len(valid), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])
