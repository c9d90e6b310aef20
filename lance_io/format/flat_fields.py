"""The fields of a wide schema without nesting: each is made when it is first asked for.

A table of thousands of columns is opened for the sake of a few. What has to be known of all of them is checked by a
kernel, which looks at the bytes of the message in one go: names, ids and types. Schemas in which anything is unusual
are not for this; `decode_schema` reads them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from lance_io import _kernels
from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.columns import LazyItems
from lance_io.format.logical_types import is_nested, primitive_type
from lance_io.format.schema import Field
from lance_io.proto import file_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIELDS_MIN: Final = 128  # fewer are as quickly made
_APART_MAX: Final = 64  # fields that are parsed one by one, and names that are looked for; then all in one go
_PLACE_BYTES: Final = 16
_FIELD_BYTES_MIN: Final = 16  # of a message that has a type and says that it is of the top level


class FlatFields(LazyItems[Field]):
    """Fields of the top level that have no members; equal to a tuple of the same.

    marked    numbers of those that have metadata: no other is a blob column, or an extension type
    metadata  that of the schema, as a `Schema` message
    """

    def __init__(
        self,
        message: bytes,
        survey: tuple[bytes, set[str], list[int], bytes],
        make: Callable[[file_pb2.Field], Field],
    ) -> None:
        self._message = message
        self._places, _, self.marked, self.metadata = survey
        super().__init__(len(self._places) // _PLACE_BYTES)
        self._make = make
        self._parsed: list[file_pb2.Field] | None = None
        self._num_apart = 0

    @classmethod
    def of(cls, message: bytes, make: Callable[[file_pb2.Field], Field], fields_max: int) -> FlatFields | None:
        """Of a `Schema` message; None for few fields, for nested ones, and wherever something is not as it should be.

        make  gives the field of a message that has passed the checks
        """
        if len(message) < FIELDS_MIN * _FIELD_BYTES_MIN:
            return None
        survey = _kernels.survey_flat_schema(message, fields_max)
        if survey is None or len(survey[0]) < FIELDS_MIN * _PLACE_BYTES:
            return None
        types = survey[1]
        if "null" in types or any(map(is_nested, types)):
            return None
        try:
            for each in types:
                primitive_type(each)
        except (FormatError, UnsupportedError):
            return None
        return cls(message, survey, make)

    @cached_property
    def names(self) -> list[str]:
        """Names of all, in order."""
        return _kernels.flat_field_names(self._message, self._places)

    def place(self, name: str) -> int | None:
        """The number of the field of this name; None when there is none."""
        if self._num_apart >= _APART_MAX:
            return self._place_by_name.get(name)
        self._num_apart += 1
        return _kernels.find_flat_field(self._message, self._places, name.encode("utf-8", "surrogatepass"))

    @cached_property
    def _place_by_name(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def _make_item(self, number: int) -> Field:
        if self._parsed is None and self._num_apart < _APART_MAX:
            self._num_apart += 1
            start, end, *_ = memoryview(self._places).cast("I")[4 * number : 4 * number + 4]
            return self._make(file_pb2.Field.FromString(self._message[start:end]))
        if self._parsed is None:
            self._parsed = file_pb2.Schema.FromString(self._message).fields[:]
        return self._make(self._parsed[number])

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, FlatFields | tuple) and tuple(self) == tuple(other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
