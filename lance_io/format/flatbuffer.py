"""Reads flatbuffers from untrusted bytes: Arrow's IPC metadata has this format.

Every table starts with an i32, the distance back to its vtable. The vtable is u16 values: its own size, the table's
size, then for each field its distance from the table's start, 0 for a field with its default. Numbers are stored in the
table; other fields hold a reference, a u32 distance forward. Vectors and strings begin with a u32 count of their items.
All numbers are little endian.
"""

from __future__ import annotations

import struct
from typing import Any

from lance_io.errors import FormatError

_FIELDS_AT = 4  # in a vtable
_REFERENCE_BYTES = 4


class Flatbuffer:
    """Bounds-checked reads from one flatbuffer. Tables and values are identified by their start.

    Every method raises `FormatError` for positions outside of the buffer.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data

    @property
    def root(self) -> int:
        """The outermost table."""
        return self.follow(0)

    def read(self, layout: str, position: int) -> Any:
        """A single number."""
        size = struct.calcsize(layout)
        if not 0 <= position <= len(self._data) - size:
            raise FormatError(f"Arrow metadata: {size} bytes at {position} lie outside of its {len(self._data)} bytes")
        return struct.unpack_from("<" + layout, self._data, position)[0]

    def follow(self, position: int) -> int:
        """The target of the reference at `position`."""
        return position + int(self.read("I", position))

    def field(self, table: int, index: int) -> int | None:
        """Position of a table's field; None if it has its default."""
        vtable = table - int(self.read("i", table))
        slot = _FIELDS_AT + 2 * index
        if slot >= int(self.read("H", vtable)):
            return None
        offset = int(self.read("H", vtable + slot))
        return table + offset if offset else None

    def number(self, table: int, index: int, layout: str) -> int:
        """The number in a field, 0 by default."""
        position = self.field(table, index)
        return 0 if position is None else int(self.read(layout, position))

    def child(self, table: int, index: int) -> int:
        """The target of a field's reference. The field is mandatory."""
        position = self.field(table, index)
        if position is None:
            raise FormatError(f"Arrow metadata: the table at {table} has no field {index}")
        return self.follow(position)

    def structs(self, table: int, index: int, item_bytes: int) -> list[int]:
        """Positions of the items of a vector, empty by default."""
        if self.field(table, index) is None:
            return []
        start, count = self._vector(table, index, item_bytes)
        return [start + item * item_bytes for item in range(count)]

    def tables(self, table: int, index: int) -> list[int]:
        """The tables that the items of a vector refer to."""
        return [self.follow(item) for item in self.structs(table, index, _REFERENCE_BYTES)]

    def text(self, table: int, index: int) -> str:
        """The string of a mandatory field. Raises `ValueError` for invalid UTF-8."""
        start, num_bytes = self._vector(table, index, 1)
        return str(self._data[start : start + num_bytes], "utf-8")

    def _vector(self, table: int, index: int, item_bytes: int) -> tuple[int, int]:
        """Start and number of the items, which are checked to fit into the buffer."""
        vector = self.child(table, index)
        count = int(self.read("I", vector))
        if count * item_bytes > len(self._data) - vector - 4:
            raise FormatError(f"Arrow metadata: a list of {count} items runs past the end")
        return vector + 4, count
