"""JSON functions of text filters. They take stored documents (JSONB, see `levels/jsonb.py`).

A path selects values inside a document (see `json_path`); a key is the name of a member, or the index of an item.
Kernels follow literal paths through the stored bytes. Paths with conditions, paths from columns, and conversions that
need Python's numbers go through the documents as text.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.errors import FormatError, SchemaError
from lance_io.filters.elementwise import by_value
from lance_io.filters.expressions.stored_json import document_texts
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.functions.json_path import items, members, plain_steps, select
from lance_io.filters.kernel_calls import column_argument, flags
from lance_io.levels.arrays import booleans, numbers
from lance_io.levels.jsonb import JSON_DEPTH_MAX, with_documents
from lance_io.levels.jsonb_write import jsonb_values
from lance_io.spans import int64s

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lance_io._kernels import JsonStep, OwnedBuffer
    from lance_io.filters.elementwise import Value

    States = npt.NDArray[np.uint8]

_TEXT, _BOOL, _I64, _FLOAT = pa.string(), pa.bool_(), pa.int64(), pa.float64()
_FOUND, _LEFT = 1, 2  # states of rows in `_kernels.select_json`: a value, or a value left to Python
_I64_RANGE: Final = range(-(1 << 63), 1 << 63)


def _texts(documents: Value) -> Value:
    """Stored documents as text. Raises pa.ArrowInvalid for bytes that are not a document."""
    stored = pa.array([documents.as_py()], pa.large_binary()) if isinstance(documents, pa.Scalar) else documents
    texts = document_texts(stored)
    return texts[0] if isinstance(documents, pa.Scalar) else texts


def _steps(path: Value) -> list[JsonStep] | None:
    """The steps of a literal path without conditions; None for other paths."""
    return plain_steps(path.as_py()) if isinstance(path, pa.Scalar) and path.is_valid else None


def _select(documents: Value, steps: list[JsonStep], answer: str, wanted: str = "") -> tuple[States, list[OwnedBuffer]]:
    """The states of rows and buffers from `_kernels.select_json`. Raises pa.ArrowInvalid for damaged documents."""
    for is_last in (False, True):
        try:
            states, buffers = _kernels.select_json(
                len(documents), column_argument(documents), _present(documents), steps, answer, wanted, JSON_DEPTH_MAX
            )
            break
        except (DamagedError, NotImplementedError) as error:
            if is_last or isinstance(error, NotImplementedError):
                raise pa.ArrowInvalid(f"a value is no stored JSON document: {error}") from error
        try:
            documents = with_documents(documents)
        except FormatError as error:
            raise pa.ArrowInvalid(error.message) from error
    return np.frombuffer(memoryview(states), np.uint8), buffers


def _present(documents: pa.Array) -> npt.NDArray[np.bool_] | None:
    return flags(documents) if documents.null_count else None


def _array(result: pa.DataType, states: States, buffers: list[Any]) -> pa.Array:
    """An array of the values found, null elsewhere."""
    validity = None if states.all() else booleans(states == _FOUND).buffers()[1]
    memory = [buffer if isinstance(buffer, pa.Buffer) else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(result, len(states), [validity, *memory])


def _tested(documents: pa.Array, states: States) -> pa.Array:
    """Whether each row has a value, null for null documents."""
    present = _present(documents)
    validity = None if present is None else booleans(present).buffers()[1]
    return pa.Array.from_buffers(_BOOL, len(states), [validity, booleans(states == _FOUND).buffers()[1]])


def extract(documents: Value, path: Value) -> pa.Array:
    """The values that a path selects, as JSON text: a single value as such, several as an array, null for none."""

    def of_text(document: str, wanted: str) -> str | None:
        values = select(document, wanted)
        return None if not values else values[0] if len(values) == 1 else f"[{','.join(values)}]"

    steps = _steps(path)
    if steps is None or isinstance(documents, pa.Scalar):
        return by_value(of_text, _TEXT, _texts(documents), path)
    return _array(_TEXT, *_select(documents, steps, "text"))


def exists(documents: Value, path: Value) -> pa.Array:
    """Whether a path selects a value."""
    steps = _steps(path)
    if steps is None or isinstance(documents, pa.Scalar):
        return by_value(lambda document, wanted: bool(select(document, wanted)), _BOOL, _texts(documents), path)
    return _tested(documents, _select(documents, steps, "exists")[0])


def array_contains(documents: Value, path: Value, text: Value) -> pa.Array:
    """Whether an array selected by a path contains a string, or another value with this JSON text."""

    def of_text(document: str, wanted: str, shown: str) -> bool:
        lists = [value for value in select(document, wanted) if value.startswith("[")]
        return any(shown in (item, _show(item)) for value in lists for item in items(value))

    steps, wanted = _steps(path), text.as_py() if isinstance(text, pa.Scalar) else None
    if steps is None or wanted is None or isinstance(documents, pa.Scalar):
        return by_value(of_text, _BOOL, _texts(documents), path, text)
    return _tested(documents, _select(documents, steps, "contains", wanted)[0])


def _show(value: str) -> str:
    return str(json.loads(value)) if value.startswith('"') else value


def array_length(documents: Value, path: Value) -> pa.Array:
    """The number of items of the array that a path selects, i64; 0 for other values, null for none."""

    def of_text(document: str, wanted: str) -> int | None:
        values = select(document, wanted)
        return None if not values else len(items(values[0])) if values[0].startswith("[") else 0

    steps = _steps(path)
    if steps is None or isinstance(documents, pa.Scalar):
        return by_value(of_text, _I64, _texts(documents), path)
    return _array(_I64, *_select(documents, steps, "length"))


def _find(document: str, key: str) -> str | None:
    """The member with this name, or the item at this index; None if there is none."""
    if document.startswith("{"):
        return members(document).get(key)
    if document.startswith("[") and key.isascii() and key.isdigit() and len(key) < 12:
        inside = items(document)
        return inside[int(key)] if int(key) < len(inside) else None
    return None


def _key_steps(documents: Value, key: Value) -> list[JsonStep] | None:
    """Like `_steps`, for a key."""
    if isinstance(documents, pa.Scalar) or not isinstance(key, pa.Scalar) or not key.is_valid:
        return None
    return [("key", str(key.as_py()))]


def value_at_key(documents: Value, key: Value) -> pa.Array:
    """The value at a key, as a stored document."""
    steps = _key_steps(documents, key)
    if steps is not None:
        return _array(pa.large_binary(), *_select(documents, steps, "stored"))
    texts = by_value(_find, _TEXT, _texts(documents), key)
    try:
        return jsonb_values(texts, "json_get")
    except SchemaError as error:
        raise pa.ArrowInvalid(str(error)) from error


def _getter(convert: Callable[[Any, str], Any], result: pa.DataType, answer: str) -> Callable[[Value, Value], pa.Array]:
    """A function that returns the converted value at a key; null for null, and where there is none."""

    def of_text(document: str, key: str) -> Any:
        raw = _find(document, key)
        return None if raw is None or raw == "null" else convert(json.loads(raw), raw)

    def get(documents: Value, key: Value) -> pa.Array:
        steps = _key_steps(documents, key)
        if steps is None:
            return by_value(of_text, result, _texts(documents), key)
        states, buffers = _select(documents, steps, answer)
        if pt.is_boolean(result):
            buffers = [booleans(int64s(buffers[0]) != 0).buffers()[1]]
        values = _array(result, states, buffers)
        left = np.flatnonzero(states == _LEFT)  # texts that may be numbers, and values that cannot be converted
        if len(left):
            others = by_value(of_text, result, _texts(documents.take(numbers(left))), key)
            values = pc.replace_with_mask(values, booleans(states == _LEFT), others)
        return values

    return get


def _misfit(value: Any, kind: str) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"Failed to convert to {kind}: InvalidCast: {str(value)[:80]!r}")


def _to_string(value: Any, raw: str) -> str:
    if isinstance(value, list | dict):
        raise _misfit(raw, "string")
    return value if isinstance(value, str) else raw


def _to_number(value: Any, kind: str) -> int | float:
    if isinstance(value, str) and value == value.strip() and "_" not in value:
        for read in (int, float):
            try:
                return read(value)
            except ValueError:
                continue
    if isinstance(value, bool | int | float):
        return value
    raise _misfit(value, kind)


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


string_at_key = _getter(_to_string, _TEXT, "string")
integer_at_key = _getter(_to_integer, _I64, "integer")
float_at_key = _getter(_to_float, _FLOAT, "float")
boolean_at_key = _getter(_to_boolean, _BOOL, "boolean")


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("json_extract", "json shown", extract)
FUNCTIONS.define("json_exists", "json shown", exists)
FUNCTIONS.define("json_get", "json shown", value_at_key)
FUNCTIONS.define("json_get_string", "json shown", string_at_key)
FUNCTIONS.define("json_get_int", "json shown", integer_at_key)
FUNCTIONS.define("json_get_float", "json shown", float_at_key)
FUNCTIONS.define("json_get_bool", "json shown", boolean_at_key)
FUNCTIONS.define("json_array_contains", "json shown shown", array_contains)
FUNCTIONS.define("json_array_length", "json shown", array_length)
