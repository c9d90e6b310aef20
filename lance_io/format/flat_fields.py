"""The fields of a wide schema without nesting: each is made when it is first asked for.

A table of thousands of columns is opened for the sake of a few. What has to be known of all of them is checked in one
go: names, ids and types. Schemas in which anything is unusual are not for this; `decode_schema` reads them.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.columns import LazyItems
from lance_io.format.logical_types import is_nested, primitive_type
from lance_io.format.schema import Field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.proto import file_pb2

FIELDS_MIN: Final = 128  # fewer are as quickly made


class FlatFields(LazyItems[Field]):
    """Fields of the top level that have no members; equal to a tuple of the same.

    names   of all, in order
    ids     of all, in order
    marked  places of those that have metadata: no other is a blob column, or an extension type
    """

    def __init__(
        self,
        messages: list[file_pb2.Field],
        names: list[str],
        ids: list[int],
        marked: list[int],
        make: Callable[[file_pb2.Field], Field],
    ) -> None:
        super().__init__(len(messages))
        self._messages = messages
        self._make = make
        self.names = names
        self.ids = ids
        self.marked = marked

    @classmethod
    def of(cls, messages: Sequence[file_pb2.Field], make: Callable[[file_pb2.Field], Field]) -> FlatFields | None:
        """Of messages; None for few fields, for nested ones, and wherever something is not as it should be.

        make  gives the field of a message that has passed the checks
        """
        if len(messages) < FIELDS_MIN:
            return None
        messages = messages[:]  # a slice is a list, which iterates many times faster than a repeated field
        ids, names = [one.id for one in messages], [one.name for one in messages]
        is_regular = (
            all(one.parent_id == -1 for one in messages)
            and min(ids) >= 0
            and len(set(ids)) == len(set(names)) == len(messages)
        )
        types = {one.logical_type for one in messages}
        if not is_regular or "null" in types or any(map(is_nested, types)):
            return None
        marked = [place for place, one in enumerate(messages) if one.metadata]
        if any("\0" in text for text in chain(names, types, *(messages[place].metadata for place in marked))):
            return None
        try:
            for each in types:
                primitive_type(each)
        except (FormatError, UnsupportedError):
            return None
        return cls(list(messages), names, ids, marked, make)

    def _make_item(self, number: int) -> Field:
        return self._make(self._messages[number])

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, FlatFields | tuple) and tuple(self) == tuple(other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
