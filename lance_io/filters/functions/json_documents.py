"""JSON functions of text filters. They take documents as they are stored (JSONB, see `levels/jsonb.py`).

A path leads to values inside a document (see `json_path`); a key is the name of a member, or the place of an item.
Kernels follow literal paths through the stored bytes. Paths with conditions, paths that are columns, and conversions
that need Python's numbers go through the documents as text.
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
_FOUND, _LEFT = 1, 2  # what `_kernels.select_json` says of a row
_I64_RANGE: Final = range(-(1 << 63), 1 << 63)


def _texts(documents: Value) -> Value:
    """Stored documents as text. Raises pa.ArrowInvalid for bytes that are none."""
    stored = pa.array([documents.as_py()], pa.large_binary()) if isinstance(documents, pa.Scalar) else documents
    texts = document_texts(stored)
    return texts[0] if isinstance(documents, pa.Scalar) else texts


def _steps(path: Value) -> list[JsonStep] | None:
    """The steps of a path that is a literal and has no conditions; None for others."""
    return plain_steps(path.as_py()) if isinstance(path, pa.Scalar) and path.is_valid else None


def _select(documents: Value, steps: list[JsonStep], answer: str, wanted: str = "") -> tuple[States, list[OwnedBuffer]]:
    """What `_kernels.select_json` finds. Raises pa.ArrowInvalid for bytes that are no documents."""
    for is_last in (False, True):
        try:
            found, buffers = _kernels.select_json(
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
    return np.frombuffer(memoryview(found), np.uint8), buffers


def _present(documents: pa.Array) -> npt.NDArray[np.bool_] | None:
    return flags(documents) if documents.null_count else None


def _array(result: pa.DataType, states: States, buffers: list[Any]) -> pa.Array:
    """An array of what was found, null elsewhere."""
    validity = None if states.all() else booleans(states == _FOUND).buffers()[1]
    memory = [one if isinstance(one, pa.Buffer) else pa.py_buffer(one) for one in buffers]
    return pa.Array.from_buffers(result, len(states), [validity, *memory])


def _tested(documents: pa.Array, states: States) -> pa.Array:
    """Whether a row has found something, null for null documents."""
    present = _present(documents)
    there = None if present is None else booleans(present).buffers()[1]
    return pa.Array.from_buffers(_BOOL, len(states), [there, booleans(states == _FOUND).buffers()[1]])


def extract(documents: Value, path: Value) -> pa.Array:
    """What a path leads to, as JSON text: one value as it is, several as an array; null without one."""

    def one(document: str, wanted: str) -> str | None:
        found = select(document, wanted)
        return None if not found else found[0] if len(found) == 1 else f"[{','.join(found)}]"

    steps = _steps(path)
    if steps is None or isinstance(documents, pa.Scalar):
        return by_value(one, _TEXT, _texts(documents), path)
    return _array(_TEXT, *_select(documents, steps, "text"))


def exists(documents: Value, path: Value) -> pa.Array:
    """Whether a path leads to a value."""
    steps = _steps(path)
    if steps is None or isinstance(documents, pa.Scalar):
        return by_value(lambda document, wanted: bool(select(document, wanted)), _BOOL, _texts(documents), path)
    return _tested(documents, _select(documents, steps, "exists")[0])


def array_contains(documents: Value, path: Value, text: Value) -> pa.Array:
    """Whether an array to which a path leads holds a string, or another value that is written so."""

    def one(document: str, wanted: str, shown: str) -> bool:
        lists = [value for value in select(document, wanted) if value.startswith("[")]
        return any(shown in (item, _show(item)) for value in lists for item in items(value))

    steps, wanted = _steps(path), text.as_py() if isinstance(text, pa.Scalar) else None
    if steps is None or wanted is None or isinstance(documents, pa.Scalar):
        return by_value(one, _BOOL, _texts(documents), path, text)
    return _tested(documents, _select(documents, steps, "contains", wanted)[0])


def _show(value: str) -> str:
    return str(json.loads(value)) if value.startswith('"') else value


def array_length(documents: Value, path: Value) -> pa.Array:
    """The number of items of the array to which a path leads, i64; 0 for other values, null without one."""

    def one(document: str, wanted: str) -> int | None:
        found = select(document, wanted)
        return None if not found else len(items(found[0])) if found[0].startswith("[") else 0

    steps = _steps(path)
    if steps is None or isinstance(documents, pa.Scalar):
        return by_value(one, _I64, _texts(documents), path)
    return _array(_I64, *_select(documents, steps, "length"))


def _find(document: str, key: str) -> str | None:
    """The member with a name, or the item at a place; None without one."""
    if document.startswith("{"):
        return members(document).get(key)
    if document.startswith("[") and key.isascii() and key.isdigit() and len(key) < 12:
        inside = items(document)
        return inside[int(key)] if int(key) < len(inside) else None
    return None


def _key_steps(documents: Value, key: Value) -> list[JsonStep] | None:
    """As `_steps`, for a key."""
    if isinstance(documents, pa.Scalar) or not isinstance(key, pa.Scalar) or not key.is_valid:
        return None
    return [("key", str(key.as_py()))]


def got(documents: Value, key: Value) -> pa.Array:
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
    """A function that gives the value at a key, converted; null for null and where there is none."""

    def one(document: str, key: str) -> Any:
        raw = _find(document, key)
        return None if raw is None or raw == "null" else convert(json.loads(raw), raw)

    def get(documents: Value, key: Value) -> pa.Array:
        steps = _key_steps(documents, key)
        if steps is None:
            return by_value(one, result, _texts(documents), key)
        states, buffers = _select(documents, steps, answer)
        if pt.is_boolean(result):
            buffers = [booleans(int64s(buffers[0]) != 0).buffers()[1]]
        found = _array(result, states, buffers)
        left = np.flatnonzero(states == _LEFT)  # texts that may be numbers, and what cannot be converted
        if len(left):
            others = by_value(one, result, _texts(documents.take(numbers(left))), key)
            found = pc.replace_with_mask(found, booleans(states == _LEFT), others)
        return found

    return get


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


got_string = _getter(_to_string, _TEXT, "string")
got_integer = _getter(_to_integer, _I64, "integer")
got_float = _getter(_to_float, _FLOAT, "float")
got_boolean = _getter(_to_boolean, _BOOL, "boolean")


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
