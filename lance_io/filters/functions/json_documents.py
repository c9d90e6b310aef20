"""JSON functions of text filters. They take documents as they are stored (JSONB, see `levels/jsonb.py`).

A path leads to values inside a document (see `json_path`); a key is the name of a member, or the place of an item.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.errors import FormatError, SchemaError
from lance_io.filters.elementwise import by_value
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.functions.json_path import items, members, select
from lance_io.levels.jsonb import json_texts
from lance_io.levels.jsonb_write import jsonb_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.elementwise import Value

_TEXT, _BOOL, _I64, _FLOAT = pa.string(), pa.bool_(), pa.int64(), pa.float64()
_I64_RANGE: Final = range(-(1 << 63), 1 << 63)


def _texts(documents: Value) -> Value:
    """Stored documents as text. Raises pa.ArrowInvalid for bytes that are none."""
    stored = pa.array([documents.as_py()], pa.large_binary()) if isinstance(documents, pa.Scalar) else documents
    try:
        texts = json_texts(stored)
    except FormatError as error:
        raise pa.ArrowInvalid(f"a value is no stored JSON document: {error}") from error
    return texts[0] if isinstance(documents, pa.Scalar) else texts


def extract(documents: Value, path: Value) -> pa.Array:
    """What a path leads to, as JSON text: one value as it is, several as an array; null without one."""

    def one(document: str, wanted: str) -> str | None:
        found = select(document, wanted)
        return None if not found else found[0] if len(found) == 1 else f"[{','.join(found)}]"

    return by_value(one, _TEXT, _texts(documents), path)


def exists(documents: Value, path: Value) -> pa.Array:
    """Whether a path leads to a value."""
    return by_value(lambda document, wanted: bool(select(document, wanted)), _BOOL, _texts(documents), path)


def array_contains(documents: Value, path: Value, text: Value) -> pa.Array:
    """Whether an array to which a path leads holds a string, or another value that is written so."""

    def one(document: str, wanted: str, shown: str) -> bool:
        lists = [value for value in select(document, wanted) if value.startswith("[")]
        return any(shown in (item, _show(item)) for value in lists for item in items(value))

    return by_value(one, _BOOL, _texts(documents), path, text)


def _show(value: str) -> str:
    return str(json.loads(value)) if value.startswith('"') else value


def array_length(documents: Value, path: Value) -> pa.Array:
    """The number of items of the array to which a path leads, i64; 0 for other values, null without one."""

    def one(document: str, wanted: str) -> int | None:
        found = select(document, wanted)
        return None if not found else len(items(found[0])) if found[0].startswith("[") else 0

    return by_value(one, _I64, _texts(documents), path)


def _find(document: str, key: str) -> str | None:
    """The member with a name, or the item at a place; None without one."""
    if document.startswith("{"):
        return members(document).get(key)
    if document.startswith("[") and key.isascii() and key.isdigit() and len(key) < 12:
        inside = items(document)
        return inside[int(key)] if int(key) < len(inside) else None
    return None


def got(documents: Value, key: Value) -> pa.Array:
    """The value at a key, as a stored document."""
    texts = by_value(_find, _TEXT, _texts(documents), key)
    try:
        return jsonb_values(texts, "json_get")
    except SchemaError as error:
        raise pa.ArrowInvalid(str(error)) from error


def _getter(convert: Callable[[Any, str], Any], result: pa.DataType) -> Callable[[Value, Value], pa.Array]:
    """A function that gives the value at a key, converted; null for null and where there is none."""

    def one(document: str, key: str) -> Any:
        raw = _find(document, key)
        return None if raw is None or raw == "null" else convert(json.loads(raw), raw)

    return lambda documents, key: by_value(one, result, _texts(documents), key)


def _misfit(value: Any, what: str) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"Failed to convert to {what}: InvalidCast: {str(value)[:80]!r}")


def _to_string(value: Any, raw: str) -> str:
    if isinstance(value, list | dict):
        raise _misfit(raw, "string")
    return value if isinstance(value, str) else raw


def _to_number(value: Any, what: str) -> int | float:
    if isinstance(value, str) and value == value.strip() and "_" not in value:
        for read in (int, float):
            try:
                return read(value)
            except ValueError:
                continue
    if isinstance(value, bool | int | float):
        return value
    raise _misfit(value, what)


def _to_integer(value: Any, raw: str) -> int:
    number = _to_number(value, "integer")
    if isinstance(number, float):
        if not math.isfinite(number):
            raise _misfit(raw, "integer")
        number = int(math.copysign(math.floor(abs(number) + 0.5), number))
    if number not in _I64_RANGE:
        raise _misfit(raw, "integer")
    return int(number)


def _to_float(value: Any, raw: str) -> float:
    try:
        return float(_to_number(value, "float"))
    except OverflowError:
        return math.inf if not raw.lstrip('"').startswith("-") else -math.inf


def _to_boolean(value: Any, raw: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _misfit(raw, "boolean")


got_string = _getter(_to_string, _TEXT)
got_integer = _getter(_to_integer, _I64)
got_float = _getter(_to_float, _FLOAT)
got_boolean = _getter(_to_boolean, _BOOL)


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("json_extract", "json shown", extract)
FUNCTIONS.define("json_exists", "json shown", exists)
FUNCTIONS.define("json_get", "json shown", got)
FUNCTIONS.define("json_get_string", "json shown", got_string)
FUNCTIONS.define("json_get_int", "json shown", got_integer)
FUNCTIONS.define("json_get_float", "json shown", got_float)
FUNCTIONS.define("json_get_bool", "json shown", got_boolean)
FUNCTIONS.define("json_array_contains", "json shown shown", array_contains)
FUNCTIONS.define("json_array_length", "json shown", array_length)
