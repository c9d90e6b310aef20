"""The serialized fragments of a manifest, each parsed on access and not cached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from lance_io import _kernels
from lance_io.format.wire import parse_message
from lance_io.proto import table_pb2

if TYPE_CHECKING:
    from lance_io.format.wire import Buffer


class StoredFragments(Sequence[table_pb2.DataFragment]):
    """The messages of all fragments of a version; a read needs few of them.

    data             a serialized `Manifest` message with just these fragments
    without_row_ids  index of the first fragment with row ids neither in its message nor in a data file
    """

    __slots__ = ("_bounds", "data", "without_row_ids")

    def __init__(self, data: bytes, bounds: bytes, without_row_ids: int | None) -> None:
        self.data = data
        self.without_row_ids = without_row_ids
        self._bounds = memoryview(bounds).cast("I")

    def __len__(self) -> int:
        return len(self._bounds) // 2

    @overload
    def __getitem__(self, index: int) -> table_pb2.DataFragment: ...
    @overload
    def __getitem__(self, index: slice) -> list[table_pb2.DataFragment]: ...
    def __getitem__(self, index: int | slice) -> table_pb2.DataFragment | list[table_pb2.DataFragment]:
        """Raises `FormatError` for damaged messages."""
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        index = range(len(self))[index]
        start, end = self._bounds[2 * index], self._bounds[2 * index + 1]
        return parse_message(table_pb2.DataFragment, self.data[start:end], "fragment")


def split_fragments(content: Buffer) -> tuple[bytes, StoredFragments] | None:
    """A serialized manifest without its fragments, and the fragments; None if only a full parse can separate them."""

    parts = _kernels.part_manifest(content)
    if parts is None:
        return None
    data, bounds, rest, without_row_ids = parts
    return rest, StoredFragments(data, bounds, without_row_ids)
