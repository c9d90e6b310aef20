"""Writes rows as the pages of batches of a file of version 0.1 (spec: legacy 0.1, sections 5, 6 and 9).

Such a file cannot store nulls. Other writers store the values below in their place, and so does this one; bytes that
Arrow permits under nulls are not written:

    fixed width, booleans, fixed-size lists and their items   zeros
    strings, binaries                                         no bytes, which reads as null in a nullable field
    lists                                                     no items
    structs                                                   members as if all of them were null
    dictionaries                                              the first value

`flatten` converts the rows of many batches in one call; each batch is a slice of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as member
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lance_io import _kernels
from lance_io.encodings.v0_1.write_statistics import has_statistics
from lance_io.errors import UnsupportedError
from lance_io.levels.chunks import OFFSET_BYTES
from lance_io.levels.leaf_sums import LeafSums
from lance_io.levels.lists import visible_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_io.format.schema import Field
    from lance_io.spans import IntArray

Mask: TypeAlias = npt.NDArray[np.bool_] | None
_WIDTH_MAX: Final = 16  # bytes of the widest value that has statistics
PageEntry: TypeAlias = "tuple[int, int, int]"
"""Field id, position in the file and length of a page, as the page table has them."""


@dataclass(slots=True, eq=False)
class Node:
    """The values of one field that has pages, without nulls.

    kind      as in `FieldPages`; "bits" for booleans and fixed-size lists of booleans
    offsets   i64[n + 1] of lists and of strings, from any start
    data      bytes of values; for "bits", one boolean per byte
    width     bytes per value; of a list, bytes per offset; for "bits", booleans per value
    array     of a leaf outside of lists: its values with nulls, for the statistics
    below     of a list: the fields of its items
    """

    field_id: int
    kind: str
    offsets: IntArray | None = None
    data: Any = None
    width: int = 0
    array: pa.Array | None = None
    below: list[Node] = member(default_factory=list)

    def pages(self, start: int, end: int, position: int) -> Iterator[tuple[list[Any], PageEntry]]:
        """Buffers and page table entry of each page of values `start` to `end`, including those below lists.

        position  file offset of the first page
        """
        count = end - start
        match self.kind:
            case "none":
                yield [], (self.field_id, position, count)
            case "plain":
                yield [memoryview(self.data)[start * self.width : end * self.width]], (self.field_id, position, count)
            case "bits":
                bits = np.packbits(self.data[start * self.width : end * self.width], bitorder="little")
                yield [memoryview(bits.tobytes())], (self.field_id, position, count)
            case "binary":
                assert self.offsets is not None
                offsets = self.offsets[start : end + 1]
                content = memoryview(self.data)[int(offsets[0]) : int(offsets[-1])]
                table = offsets - offsets[0] + position
                yield (
                    [content, memoryview(table.astype("<i8")).cast("B")],
                    (self.field_id, position + len(content), count),
                )
            case _:
                assert self.offsets is not None
                offsets = self.offsets[start : end + 1]
                table = (offsets - offsets[0]).astype(f"<i{self.width}")
                yield [memoryview(table).cast("B")], (self.field_id, position, count + 1)
                position += table.nbytes
                for node in self.below:
                    for buffers, entry in node.pages(int(offsets[0]), int(offsets[-1]), position):
                        yield buffers, entry
                        position += sum(buffer.nbytes for buffer in buffers)

    def sums(self, start: int, end: int) -> Iterator[tuple[int, LeafSums]]:
        """Sums of values `start` to `end` as stored, with the field id; includes those below lists."""
        count = end - start
        match self.kind:
            case "none":
                hashes = 0
            case "plain":
                hashes = _kernels.sum_hashes(self.data, self.width, start, count)
            case "bits":
                bits = self.data[start * self.width : end * self.width].astype(np.uint8)
                hashes = _kernels.sum_hashes(bits, 1, 0, len(bits))
            case "binary":
                assert self.offsets is not None
                hashes = _kernels.sum_hashes_variable(self.data, self.offsets, True, start, count)
            case _:
                assert self.offsets is not None
                hashes = _kernels.sum_hashes(np.diff(self.offsets[start : end + 1]), 8, 0, count)
                for node in self.below:
                    yield from node.sums(int(self.offsets[start]), int(self.offsets[end]))
        yield self.field_id, LeafSums(count, count, count, hashes)


def flatten(field: Field, array: pa.Array, unmasked: pa.Array | None) -> list[Node]:
    """The nodes of a field's values; for a struct, those of its members.

    array     of the field's storage type, with keys for dictionaries
    unmasked  the array without the nulls of enclosing structs, for null counts in statistics; None inside of lists
    """
    dtype = array.type
    if pa.types.is_struct(dtype):
        nodes = []
        for at, (child, values) in enumerate(zip(field.children, array.flatten(), strict=True)):
            nodes += flatten(child, values, None if unmasked is None else unmasked.field(at))
        return nodes
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        items, offsets = visible_items(array)
        below = flatten(field.children[0], items, None)
        return [Node(field.id, "list", offsets, width=8 if pa.types.is_large_list(dtype) else 4, below=below)]
    return [_leaf(field, array, unmasked)]


def _leaf(field: Field, array: pa.Array, unmasked: pa.Array | None) -> Node:
    dtype = array.type
    if pa.types.is_null(dtype):
        return Node(field.id, "none")
    for_statistics = unmasked
    if unmasked is not None and unmasked.null_count < array.null_count and has_statistics(field):
        for_statistics = _as_written(unmasked, array)
    if dtype.id in OFFSET_BYTES:
        return _strings(field, array, for_statistics)
    data, width, is_bits = _fill_nulls(array, None)
    return Node(field.id, "bits" if is_bits else "plain", data=data, width=width, array=for_statistics)


def _as_written(unmasked: pa.Array, array: pa.Array) -> pa.Array:
    """The values as written: zeros where only an enclosing struct is null, nulls where the array itself is null."""
    is_text = unmasked.type.id in OFFSET_BYTES
    zeros = pa.py_buffer(bytes(2 * _WIDTH_MAX))
    zero = pa.Array.from_buffers(unmasked.type, 1, [None, zeros, pa.py_buffer(b"")] if is_text else [None, zeros])
    return pc.if_else(pc.and_(unmasked.is_valid(), array.is_null()), zero[0], unmasked)


def _strings(field: Field, array: pa.Array, for_statistics: pa.Array | None) -> Node:
    if array.null_count:
        offsets = _offsets(array)
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        if np.diff(offsets)[is_null].any():  # bytes under nulls
            array = array.fill_null(pa.array([b""], pa.binary()).cast(array.type)[0])
    data = array.buffers()[2]
    return Node(field.id, "binary", _offsets(array), b"" if data is None else data, array=for_statistics)


def _offsets(array: pa.Array) -> IntArray:
    """i64[n + 1], offsets into the bytes of the array."""
    buffer, width = array.buffers()[1], OFFSET_BYTES[array.type.id]
    if buffer is None or not buffer.size:
        return np.zeros(len(array) + 1, np.int64)
    offsets = np.frombuffer(buffer, f"<i{width}", len(array) + 1, array.offset * width)
    return offsets.astype(np.int64)


def _fill_nulls(array: pa.Array, mask: Mask) -> tuple[Any, int, bool]:
    """Values of fixed width with zeros for nulls: `(bytes, bytes per value, False)`, or `(booleans, per value, True)`.

    mask  false for values below a null; None if there are none
    """
    dtype = array.type
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        mask = valid if mask is None else valid & mask
    if pa.types.is_fixed_size_list(dtype):
        size = dtype.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        data, width, is_bits = _fill_nulls(items, None if mask is None else np.repeat(mask, size))
        return data, width * size, is_bits
    if pa.types.is_boolean(dtype):
        bits = array.fill_null(False) if array.null_count else array
        values = bits.to_numpy(zero_copy_only=False)
        return (values if mask is None else values & mask), 1, True
    try:
        width = dtype.bit_width // 8
    except ValueError:
        raise UnsupportedError(f"files of version 0.1 have no {dtype}") from None
    buffer = array.buffers()[1]
    if mask is None or not len(array):
        content = (
            b"" if buffer is None else memoryview(buffer)[array.offset * width : (array.offset + len(array)) * width]
        )
        return content, width, False
    values = np.frombuffer(buffer, np.uint8, len(array) * width, array.offset * width).reshape(len(array), width)
    return np.where(mask[:, None], values, np.uint8(0)).tobytes(), width, False


def lost_nulls(field: Field, array: pa.Array, below: str = "") -> Iterator[str]:
    """Names of the fields whose nulls are lost: all but strings, binaries and fields of type null."""
    name, dtype = f"{below}{field.name}", array.type
    if pa.types.is_null(dtype) or dtype.id in OFFSET_BYTES:
        return
    if array.null_count:
        yield name
        return
    if pa.types.is_struct(dtype):
        for child, member in zip(field.children, array.flatten(), strict=True):
            yield from lost_nulls(child, member, f"{name}.")
    elif pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        yield from lost_nulls(field.children[0], array.flatten(), f"{name}.")
    elif pa.types.is_fixed_size_list(dtype) and _has_null_items(array):
        yield name


def _has_null_items(array: pa.Array) -> bool:
    items = array.flatten()
    return bool(items.null_count) or (pa.types.is_fixed_size_list(items.type) and _has_null_items(items))
