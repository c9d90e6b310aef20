"""The fragments of a manifest as they are stored: each is parsed when it is asked for, and not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from lance_io import _kernels
from lance_io.format.wire import parse_message
from lance_io.proto import table_pb2

if TYPE_CHECKING:
    from lance_io.format.wire import Buffer


class StoredFragments(Sequence[table_pb2.DataFragment]):
    """The messages of all fragments of a version, of which a read touches few.

    data             a `Manifest` message of these fragments alone
    without_row_ids  the place of the first one that has row ids neither in its message nor in a data file
    """

    __slots__ = ("_bounds", "data", "without_row_ids")

    def __init__(self, data: bytes, bounds: bytes, without_row_ids: int | None) -> None:
        self.data = data
        self.without_row_ids = without_row_ids
        self._bounds = memoryview(bounds).cast("I")

    def __len__(self) -> int:
        return len(self._bounds) // 2

    @overload
    def __getitem__(self, place: int) -> table_pb2.DataFragment: ...
    @overload
    def __getitem__(self, place: slice) -> list[table_pb2.DataFragment]: ...
    def __getitem__(self, place: int | slice) -> table_pb2.DataFragment | list[table_pb2.DataFragment]:
        """Raises `FormatError` for what is no such message."""
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        place = range(len(self))[place]
        start, end = self._bounds[2 * place], self._bounds[2 * place + 1]
        return parse_message(table_pb2.DataFragment, self.data[start:end], "fragment")


def part_fragments(content: Buffer) -> tuple[bytes, StoredFragments] | None:
    """A serialized manifest without its fragments, and these; None where only a parser of all of it can tell them."""
    parts = _kernels.part_manifest(content)
    if parts is None:
        return None
    data, bounds, rest, without_row_ids = parts
    return rest, StoredFragments(data, bounds, without_row_ids)
