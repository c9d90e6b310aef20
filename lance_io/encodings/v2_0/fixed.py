"""Values of fixed width (spec: encodings 2.0, 5.1, 5.3, 5.8, 5.9): flat, bits, bit-packed, fixed-size lists, rows.

Each class reads ranges of values in one round and decodes them in one kernel call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.encodings.v2_0.buffers import Runs, gather
from lance_io.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from lance_io.encodings.v2_0.array import ArrayEncoding
    from lance_io.encodings.v2_0.buffers import StoredBuffer
    from lance_io.spans import Fetched, Ranges, Steps

GROUP: Final = 1024  # values that FastLanes packs together


class FixedValues:
    """Base of all fixed-width values: no index, and a whole array is one run."""

    num_values: int
    row_bits: int | None

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some values."""
        raise NotImplementedError

    def scan(self) -> Steps[pa.Array]:
        """All values."""
        return self.read(Runs.all(self.num_values))

    def read_indexed(self, runs: Runs, was_read: bool) -> Steps[tuple[pa.Array, Any]]:
        """Some values; there is no index."""
        return (yield from self.read(runs)), None

    def index_ranges(self) -> Ranges | None:
        """None: positions follow from the number of a value."""
        return None

    def load_index(self, fetched: Fetched) -> Any:
        """Never called, because `index_ranges` returns None."""
        raise AssertionError("values of one width have no index")


class Flat(FixedValues):
    """Values of whole bytes, back to back."""

    def __init__(self, dtype: pa.DataType, num_values: int, width_bytes: int, buffer: StoredBuffer) -> None:
        self.dtype = dtype
        self.num_values = num_values
        self.width_bytes = width_bytes
        self.buffer = buffer
        self.row_bits = None if buffer.scheme else 8 * width_bytes

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some values; zero-copy for a single range."""
        data = yield from self.read_bytes(runs)
        return pa.Array.from_buffers(self.dtype, runs.num_values, [None, data], 0)

    def read_bytes(self, runs: Runs) -> Steps[Any]:
        """The bytes of some values."""
        width = self.width_bytes
        starts, ends = runs.starts * width, runs.ends * width
        fetched = yield from self.buffer.fetch(starts, ends, keep=len(starts) == 1)
        return gather(fetched, ends - starts, width & -width)

    def __str__(self) -> str:
        return f"{self.buffer}flat({8 * self.width_bytes})"


class FlatBits(FixedValues):
    """Values of one bit: booleans and validity."""

    def __init__(self, num_values: int, buffer: StoredBuffer) -> None:
        self.num_values = num_values
        self.buffer = buffer
        self.row_bits = None if buffer.scheme else 1

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some booleans."""
        bits, _ = yield from self.read_bits(runs)
        return pa.Array.from_buffers(pa.bool_(), runs.num_values, [None, pa.py_buffer(bits)], 0)

    def read_bits(self, runs: Runs) -> Steps[tuple[Any, int]]:
        """Some bits as a bitmap, and the number of set bits."""
        first_bytes = runs.starts >> 3
        fetched = yield from self.buffer.fetch(first_bytes, (runs.ends + 7) >> 3)
        return _kernels.gather_bits(fetched.buffer, fetched.offsets, runs.starts & 7, runs.counts)

    def __str__(self) -> str:
        return f"{self.buffer}flat(1)"


class BitPacked(FixedValues):
    """Integers as a stream of bits (experimental writers)."""

    def __init__(
        self, dtype: pa.DataType, num_values: int, packed_bits: int, buffer: StoredBuffer, *, signed: bool
    ) -> None:
        self.dtype = dtype
        self.num_values = num_values
        self.packed_bits = packed_bits
        self.buffer = buffer
        self.signed = signed
        self.row_bits = packed_bits

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some values."""
        first_bits = runs.starts * self.packed_bits
        fetched = yield from self.buffer.fetch(first_bits >> 3, (runs.ends * self.packed_bits + 7) >> 3)
        data = _kernels.unpack_bits(
            fetched.buffer,
            fetched.offsets,
            first_bits & 7,
            runs.counts,
            self.packed_bits,
            self.dtype.bit_width,
            self.signed,
        )
        return pa.Array.from_buffers(self.dtype, runs.num_values, [None, pa.py_buffer(data)], 0)

    def __str__(self) -> str:
        return f"bitpacked({self.packed_bits})"


class GroupPacked(FixedValues):
    """Non-negative integers in FastLanes groups of 1024 (experimental writers)."""

    def __init__(self, dtype: pa.DataType, num_values: int, packed_bits: int, buffer: StoredBuffer) -> None:
        self.dtype = dtype
        self.num_values = num_values
        self.packed_bits = packed_bits
        self.buffer = buffer
        self.row_bits = packed_bits

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some values, unpacked from their groups."""
        group_bytes = GROUP // 8 * self.packed_bits
        first_groups = runs.starts // GROUP
        end_groups = np.where(runs.ends > runs.starts, -(-runs.ends // GROUP), first_groups)
        fetched = yield from self.buffer.fetch(first_groups * group_bytes, end_groups * group_bytes)
        data = _kernels.unpack_groups(
            fetched.buffer,
            fetched.offsets,
            runs.starts % GROUP,
            runs.counts,
            self.packed_bits,
            self.dtype.bit_width,
        )
        return pa.Array.from_buffers(self.dtype, runs.num_values, [None, pa.py_buffer(data)], 0)

    def __str__(self) -> str:
        return f"bitpacked_for_non_neg({self.packed_bits})"


class FixedSizeLists(FixedValues):
    """Lists of one size: their items, back to back."""

    def __init__(self, dtype: pa.DataType, num_values: int, items: ArrayEncoding) -> None:
        self.dtype = dtype
        self.num_values = num_values
        self.items = items
        self.row_bits = None if items.row_bits is None else items.row_bits * dtype.list_size

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some lists."""
        items = yield from self.items.read(runs.scale(self.dtype.list_size))
        return pa.Array.from_buffers(self.dtype, runs.num_values, [None], 0, children=[items])

    def __str__(self) -> str:
        return f"fixed_size_list({self.dtype.list_size}, {self.items})"


class PackedRows(FixedValues):
    """Structs whose fixed-width members are adjacent in one buffer."""

    def __init__(self, dtype: pa.StructType, num_values: int, buffer: StoredBuffer) -> None:
        self.dtype = dtype
        self.widths = member_widths(dtype)
        self.rows = Flat(pa.binary(sum(self.widths)), num_values, sum(self.widths), buffer)
        self.num_values = num_values
        self.row_bits = self.rows.row_bits

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some structs."""
        data = yield from self.rows.read_bytes(runs)
        count, start, members = runs.num_values, 0, []
        if not count:
            return pa.array([], self.dtype)
        for index, width in enumerate(self.widths):
            shape: Any = {"names": ["m"], "formats": [f"V{width}"], "offsets": [start], "itemsize": sum(self.widths)}
            values = np.frombuffer(data, dtype=np.dtype(shape), count=count)["m"]
            members.append(_member(self.dtype.field(index).type, count, np.ascontiguousarray(values)))
            start += width
        return pa.Array.from_buffers(self.dtype, count, [None], 0, children=members)

    def __str__(self) -> str:
        return f"packed_struct({', '.join(str(8 * width) for width in self.widths)})"


def member_widths(dtype: pa.StructType) -> list[int]:
    """Bytes of each member of a packed struct. Raises UnsupportedError for members that are not whole bytes."""
    return [width_of(dtype.field(index).type) for index in range(dtype.num_fields)]


def width_of(dtype: pa.DataType) -> int:
    """Bytes of a value of fixed width. Raises UnsupportedError for any other."""
    if pa.types.is_fixed_size_list(dtype):
        return int(dtype.list_size) * width_of(dtype.value_type)
    try:
        bits = 0 if pa.types.is_nested(dtype) or pa.types.is_dictionary(dtype) else int(dtype.bit_width)
    except ValueError:
        bits = 0
    if bits % 8 or not bits:
        raise UnsupportedError(f"packed structs with members of type {dtype}")
    return bits // 8


def _member(dtype: pa.DataType, count: int, data: Any) -> pa.Array:
    if pa.types.is_fixed_size_list(dtype):
        items = _member(dtype.value_type, count * dtype.list_size, data)
        return pa.Array.from_buffers(dtype, count, [None], 0, children=[items])
    return pa.Array.from_buffers(dtype, count, [None, pa.py_buffer(data)], 0)


class EmptyStructs(FixedValues):
    """Structs without members, which take no bytes and are never null."""

    def __init__(self, dtype: pa.DataType, num_values: int) -> None:
        if not pa.types.is_struct(dtype) or dtype.num_fields:
            raise FormatError(f"a page of the header of structs in a column of {dtype}")
        self.dtype = dtype
        self.num_values = num_values
        self.row_bits = None

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """The requested number of structs; no round."""
        yield from ()
        return pa.Array.from_buffers(self.dtype, runs.num_values, [None], 0)

    def __str__(self) -> str:
        return "struct"


class AllNull(FixedValues):
    """Nulls of any type, which take no bytes."""

    def __init__(self, dtype: pa.DataType, num_values: int) -> None:
        self.dtype = dtype
        self.num_values = num_values
        self.row_bits = 0

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """The requested number of nulls; no round."""
        yield from ()
        return pa.nulls(runs.num_values, self.dtype)

    def __str__(self) -> str:
        return "all_nulls"
