"""Values of a path in JSON documents, for an index over them; and the builder that waits for their type.

The type is that of the first value that is not null: bool, i64, f64 or text. Later values must have it; whole numbers
are also f64. A column without values is one of texts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io import compute as pc
from lance_io.errors import UsageError
from lance_io.index.details import Space
from lance_io.index.rows.row_set import RowSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_io.index.build.index_file import IndexBuilder, NewIndexFile, RowArray

_I64: Final = range(-(1 << 63), 1 << 63)
_NAMES: Final = {pa.bool_(): "Boolean", pa.int64(): "Int64", pa.float64(): "Float64", pa.string(): "Utf8"}


class JsonBuilder:
    """Builds an index over the values of a path.

    path     of the values, for errors
    builder  returns the builder of values of a type
    """

    def __init__(self, path: str, builder: Callable[[pa.DataType], IndexBuilder]) -> None:
        self._path = path
        self._make = builder
        self._builder: IndexBuilder | None = None
        self._type: pa.DataType | None = None
        self._null_rows: list[RowSet] = []  # from before the first value; as runs, because they may be most rows

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """See `IndexBuilder`. values: the JSON text of each value, null for none."""
        texts = pc.replace_with_mask(
            values, pc.fill_null(pc.equal(values, "null"), False), pa.scalar(None, values.type)
        )
        if self._type is None:
            if texts.null_count == len(texts):
                self._null_rows.append(RowSet.of_rows(Space.ADDRESSES, rows))
                return
            self._type = self._type_of(texts.drop_null()[0].as_py())
        self._begin(self._type).add(self._typed(texts, self._type), rows)

    def _begin(self, dtype: pa.DataType) -> IndexBuilder:
        if self._builder is None:
            self._builder = self._make(dtype)
            null_rows, self._null_rows = self._null_rows, []
            for rows in null_rows:
                self._builder.add(pa.nulls(rows.num_rows, dtype), rows.rows())
        return self._builder

    def files(self) -> Iterator[NewIndexFile]:
        """See `IndexBuilder`."""
        return self._begin(self._type or pa.string()).files()

    def close(self) -> None:
        """See `IndexBuilder`."""
        if self._builder is not None:
            self._builder.close()

    def _type_of(self, text: str) -> pa.DataType:
        value = json.loads(text)
        if isinstance(value, (dict, list)):
            kind = "Object" if isinstance(value, dict) else "Array"
            raise UsageError(
                f"Cannot create a JSON index for JSON path '{self._path}' with JSON type {kind}; only scalar values "
                "are supported"
            )
        if isinstance(value, bool):
            return pa.bool_()
        if isinstance(value, int) and value in _I64:
            return pa.int64()
        return pa.string() if isinstance(value, str) else pa.float64()

    def _typed(self, texts: pa.Array, dtype: pa.DataType) -> pa.Array:
        """The values of a type. Raises `UsageError` for a value of another type."""
        if pa.types.is_string(dtype):
            is_wrong = pc.invert(pc.starts_with(texts, '"'))
        elif pa.types.is_boolean(dtype):
            is_wrong = pc.invert(pc.is_in(texts, pa.array(["true", "false"])))
        elif pa.types.is_integer(dtype):
            is_wrong = pc.invert(pc.match_substring_regex(texts, r"^-?[0-9]{1,19}$"))
        else:
            is_wrong = pc.invert(pc.match_substring_regex(texts, r"^-?[0-9]"))
        wrong = texts.filter(pc.fill_null(is_wrong, False)).drop_null()  # `is_in` is false for nulls
        if len(wrong):
            raise self._other_type(wrong[0].as_py(), dtype)
        if pa.types.is_string(dtype):
            return _strings(texts)
        try:
            return pc.cast(texts, dtype)
        except pa.ArrowInvalid as error:
            raise UsageError(f"JSON path '{self._path}' expected {_NAMES[dtype]}: {error}") from error

    def _other_type(self, text: str, dtype: pa.DataType) -> UsageError:
        value: Any = json.loads(text)
        kind = {dict: "Object", list: "Array", str: "String", bool: "Boolean", int: "Int64"}.get(type(value), "Float64")
        return UsageError(
            f"JSON path '{self._path}' expected {_NAMES[dtype]}, but a row has JSON type {kind}: {text[:40]}"
        )


def _strings(texts: pa.Array) -> pa.Array:
    """The content of JSON strings."""
    plain = pc.utf8_slice_codeunits(texts, 1, -1)
    escaped = pc.fill_null(pc.match_substring(texts, "\\"), False)
    if not pc.any(escaped).as_py():
        return plain
    decoded = [json.loads(text) for text in texts.filter(escaped).to_pylist()]
    return pc.replace_with_mask(plain, escaped, pa.array(decoded, plain.type))
