"""Flatbuffers from bytes that nobody has vouched for: the metadata of Arrow's IPC format are written in them.

Every table starts with an i32, the distance back to its vtable. That is u16 values: its own size, the table's size,
then for each field its distance from the table's start, 0 where it has its default. Numbers lie in the table itself;
for everything else it has a reference, a u32, the distance forward. Vectors and strings begin with a u32, how many
items they have. All is little endian.
"""

from __future__ import annotations

import struct
from typing import Any

from lance_io.errors import FormatError

_FIELDS_AT = 4  # in a vtable
_REFERENCE_BYTES = 4


class Flatbuffer:
    """Bounds-checked reads from one flatbuffer. Tables and values are named by where they start.

    Every method raises `FormatError` for what does not lie inside.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data

    @property
    def root(self) -> int:
        """The outermost table."""
        return self.follow(0)

    def read(self, layout: str, position: int) -> Any:
        """One number."""
        size = struct.calcsize(layout)
        if not 0 <= position <= len(self._data) - size:
            raise FormatError(f"Arrow metadata: {size} bytes at {position} lie outside of its {len(self._data)} bytes")
        return struct.unpack_from("<" + layout, self._data, position)[0]

    def follow(self, position: int) -> int:
        """Where the reference at `position` points."""
        return position + int(self.read("I", position))

    def field(self, table: int, index: int) -> int | None:
        """A field of a table, None when it has its default."""
        vtable = table - int(self.read("i", table))
        slot = _FIELDS_AT + 2 * index
        if slot >= int(self.read("H", vtable)):
            return None
        offset = int(self.read("H", vtable + slot))
        return table + offset if offset else None

    def number(self, table: int, index: int, layout: str) -> int:
        """A number in a field, 0 by default."""
        position = self.field(table, index)
        return 0 if position is None else int(self.read(layout, position))

    def child(self, table: int, index: int) -> int:
        """What a field refers to; it must be there."""
        position = self.field(table, index)
        if position is None:
            raise FormatError(f"Arrow metadata: the table at {table} has no field {index}")
        return self.follow(position)

    def structs(self, table: int, index: int, item_bytes: int) -> list[int]:
        """The items of a vector, none by default."""
        if self.field(table, index) is None:
            return []
        start, count = self._vector(table, index, item_bytes)
        return [start + item * item_bytes for item in range(count)]

    def tables(self, table: int, index: int) -> list[int]:
        """The tables that the items of a vector refer to."""
        return [self.follow(item) for item in self.structs(table, index, _REFERENCE_BYTES)]

    def text(self, table: int, index: int) -> str:
        """A string, which must be there. Raises `ValueError` for one that is no UTF-8."""
        start, num_bytes = self._vector(table, index, 1)
        return str(self._data[start : start + num_bytes], "utf-8")

    def _vector(self, table: int, index: int, item_bytes: int) -> tuple[int, int]:
        """Where the items begin, and how many there are: as many as fit into the buffer at most."""
        vector = self.child(table, index)
        count = int(self.read("I", vector))
        if count * item_bytes > len(self._data) - vector - 4:
            raise FormatError(f"Arrow metadata: a list of {count} items runs past the end")
        return vector + 4, count
