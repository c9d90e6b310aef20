"""Rows as the pages of batches of a file of version 0.1 (spec: legacy 0.1, sections 5, 6 and 9).

There are no nulls in such a file. They become what reads back as it does from the files of other writers, and nothing
that Arrow lets lie under them is written:

    fixed width, booleans, fixed-size lists and their items   zeros
    strings, binaries                                         no bytes, which reads as null in a nullable field
    lists                                                     no items
    structs                                                   members as if all of them were null
    dictionaries                                              the first value

`flatten` takes some rows of a column apart once: what follows for each batch of them is slicing.
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
Placed: TypeAlias = "tuple[int, int, int]"
"""Field id, position in the file and length of a page, as the page table has them."""


@dataclass(slots=True, eq=False)
class Node:
    """The values of one field that has pages, without nulls.

    kind      as in `FieldPages`; "bits" for booleans and fixed-size lists of these
    offsets   i64[n + 1] of lists and of strings, from any start
    data      bytes of values; of "bits" a boolean each
    width     bytes of a value, or of an offset of a list, or booleans of a value
    array     of a leaf outside of lists its values with their nulls, as statistics see them
    below     of a list, the fields of its items
    """

    field_id: int
    kind: str
    offsets: IntArray | None = None
    data: Any = None
    width: int = 0
    array: pa.Array | None = None
    below: list[Node] = member(default_factory=list)

    def pages(self, start: int, end: int, position: int) -> Iterator[tuple[list[Any], Placed]]:
        """Buffers and place of each page of values `start` to `end`, those below lists included.

        position  in the file, where the first of them begins
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
                    for buffers, placed in node.pages(int(offsets[0]), int(offsets[-1]), position):
                        yield buffers, placed
                        position += sum(buffer.nbytes for buffer in buffers)

    def sums(self, start: int, end: int) -> Iterator[tuple[int, LeafSums]]:
        """What values `start` to `end` add up to, as they are stored; with the field id, those below lists included."""
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


def flatten(field: Field, array: pa.Array, own: pa.Array | None) -> list[Node]:
    """The nodes of a field's values; a struct has none of its own, but those of its members.

    array  of the field's storage type, with keys for dictionaries
    own    the same without the nulls of structs around it, as statistics count nulls; None inside of lists
    """
    dtype = array.type
    if pa.types.is_struct(dtype):
        nodes = []
        for at, (child, values) in enumerate(zip(field.children, array.flatten(), strict=True)):
            nodes += flatten(child, values, None if own is None else own.field(at))
        return nodes
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        items, offsets = visible_items(array)
        below = flatten(field.children[0], items, None)
        return [Node(field.id, "list", offsets, width=8 if pa.types.is_large_list(dtype) else 4, below=below)]
    return [_leaf(field, array, own)]


def _leaf(field: Field, array: pa.Array, own: pa.Array | None) -> Node:
    dtype = array.type
    if pa.types.is_null(dtype):
        return Node(field.id, "none")
    seen = own
    if own is not None and own.null_count < array.null_count and has_statistics(field):
        seen = _seen(own, array)
    if dtype.id in OFFSET_BYTES:
        return _strings(field, array, seen)
    data, width, is_bits = _fill_nulls(array, None)
    return Node(field.id, "bits" if is_bits else "plain", data=data, width=width, array=seen)


def _seen(own: pa.Array, array: pa.Array) -> pa.Array:
    """What is written of an array with nulls of structs around it, where it has no nulls of its own: zeros there."""
    is_text = own.type.id in OFFSET_BYTES
    zeros = pa.py_buffer(bytes(2 * _WIDTH_MAX))
    nothing = pa.Array.from_buffers(own.type, 1, [None, zeros, pa.py_buffer(b"")] if is_text else [None, zeros])
    return pc.if_else(pc.and_(own.is_valid(), array.is_null()), nothing[0], own)


def _strings(field: Field, array: pa.Array, seen: pa.Array | None) -> Node:
    if array.null_count:
        offsets = _offsets(array)
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        if np.diff(offsets)[is_null].any():  # bytes under nulls
            array = array.fill_null(pa.array([b""], pa.binary()).cast(array.type)[0])
    data = array.buffers()[2]
    return Node(field.id, "binary", _offsets(array), b"" if data is None else data, array=seen)


def _offsets(array: pa.Array) -> IntArray:
    """i64[n + 1], into the bytes of the array."""
    buffer, width = array.buffers()[1], OFFSET_BYTES[array.type.id]
    if buffer is None or not buffer.size:
        return np.zeros(len(array) + 1, np.int64)
    found = np.frombuffer(buffer, f"<i{width}", len(array) + 1, array.offset * width)
    return found.astype(np.int64)


def _fill_nulls(array: pa.Array, is_there: Mask) -> tuple[Any, int, bool]:
    """Values of fixed width, zero where they are null: bytes, and how many a value has; or booleans.

    is_there  which values have parents that are not null
    """
    dtype = array.type
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        is_there = valid if is_there is None else valid & is_there
    if pa.types.is_fixed_size_list(dtype):
        size = dtype.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        data, width, is_bits = _fill_nulls(items, None if is_there is None else np.repeat(is_there, size))
        return data, width * size, is_bits
    if pa.types.is_boolean(dtype):
        bits = array.fill_null(False) if array.null_count else array
        values = bits.to_numpy(zero_copy_only=False)
        return (values if is_there is None else values & is_there), 1, True
    try:
        width = dtype.bit_width // 8
    except ValueError:
        raise UnsupportedError(f"files of version 0.1 have no {dtype}") from None
    buffer = array.buffers()[1]
    if is_there is None or not len(array):
        content = (
            b"" if buffer is None else memoryview(buffer)[array.offset * width : (array.offset + len(array)) * width]
        )
        return content, width, False
    values = np.frombuffer(buffer, np.uint8, len(array) * width, array.offset * width).reshape(len(array), width)
    return np.where(is_there[:, None], values, np.uint8(0)).tobytes(), width, False


def lost_nulls(field: Field, array: pa.Array, below: str = "") -> Iterator[str]:
    """Names of fields of an array with nulls that do not come back: all but those of strings, and of type null."""
    name, dtype = f"{below}{field.name}", array.type
    if pa.types.is_null(dtype) or dtype.id in OFFSET_BYTES:
        return
    if array.null_count:
        yield name
        return
    if pa.types.is_struct(dtype):
        for child, one in zip(field.children, array.flatten(), strict=True):
            yield from lost_nulls(child, one, f"{name}.")
    elif pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        yield from lost_nulls(field.children[0], array.flatten(), f"{name}.")
    elif pa.types.is_fixed_size_list(dtype) and _has_null_items(array):
        yield name


def _has_null_items(array: pa.Array) -> bool:
    items = array.flatten()
    return bool(items.null_count) or (pa.types.is_fixed_size_list(items.type) and _has_null_items(items))
