"""The fields of a wide schema without nesting; each is built on first access.

Reads of tables with thousands of columns usually need a few. A kernel checks names, ids and types of all fields in one
pass over the message's bytes. Unusual schemas do not qualify; `decode_schema` is their fallback.
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

FIELDS_MIN: Final = 128  # fewer are built as fast
_SINGLE_MAX: Final = 64  # fields that are parsed or searched one by one; then all are parsed, or indexed, at once
_ENTRY_BYTES: Final = 16
_FIELD_BYTES_MIN: Final = 16  # least size of a field's message: it has a type and a parent


class FlatFields(LazyItems[Field]):
    """Top-level fields without members; equal to a tuple of the same fields.

    with_metadata  indexes of the fields with metadata: only these may be blob columns or extension types
    metadata       metadata of the schema, as a `Schema` message
    """

    def __init__(
        self,
        message: bytes,
        survey: tuple[bytes, set[str], list[int], bytes],
        make: Callable[[file_pb2.Field], Field],
    ) -> None:
        self._message = message
        self._entries, _, self.with_metadata, self.metadata = survey
        super().__init__(len(self._entries) // _ENTRY_BYTES)
        self._make = make
        self._parsed: list[file_pb2.Field] | None = None
        self._num_single = 0

    @classmethod
    def of(cls, message: bytes, make: Callable[[file_pb2.Field], Field], fields_max: int) -> FlatFields | None:
        """The fields of a `Schema` message; None for few or nested fields, and for any fault or unusual content.

        make  builds a field from a message that passed the checks
        """
        if len(message) < FIELDS_MIN * _FIELD_BYTES_MIN:
            return None
        survey = _kernels.survey_flat_schema(message, fields_max)
        if survey is None or len(survey[0]) < FIELDS_MIN * _ENTRY_BYTES:
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
        """Names of all fields, in order."""
        return _kernels.flat_field_names(self._message, self._entries)

    def index_of(self, name: str) -> int | None:
        """The index of the field with this name; None if there is none."""
        if self._num_single >= _SINGLE_MAX:
            return self._index_by_name.get(name)
        self._num_single += 1
        return _kernels.find_flat_field(self._message, self._entries, name.encode("utf-8", "surrogatepass"))

    @cached_property
    def _index_by_name(self) -> Mapping[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    def _make_item(self, number: int) -> Field:
        if self._parsed is None and self._num_single < _SINGLE_MAX:
            self._num_single += 1
            start, end, *_ = memoryview(self._entries).cast("I")[4 * number : 4 * number + 4]
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
