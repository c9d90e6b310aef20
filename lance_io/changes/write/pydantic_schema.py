"""Arrow schemas of pydantic models, as pylance derives them: from the annotations, whatever the values are.

int, float, str, bool, bytes, date, datetime    int64, float64, string, bool, binary, date32, timestamp of microseconds
list[T], tuple[T, ...]                          list of T
a model                                         struct
an enumeration                                  dictionary of strings, or the type of its values
T | None                                        T, nullable; everything else is not
"""

from __future__ import annotations

from datetime import date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin

import pyarrow as pa

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_SCALARS: Final[dict[Any, pa.DataType]] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    date: pa.date32(),
}


def rows_of_models(models: list[BaseModel], schema: pa.Schema | None) -> pa.RecordBatch:
    """The values of models of one class.

    schema  what to convert to, None for that of the class
    Raises `TypeError` for a model of another class, a subclass included: it has fields that would be lost.
    """
    model = type(models[0])
    for number, one in enumerate(models):
        if type(one) is not model:
            raise TypeError(f"data[{number}] must be an instance of {model!r} exactly, got {type(one)!r}")
    values = [_plain(one.model_dump()) for one in models]
    return pa.RecordBatch.from_pylist(values, schema=schema or schema_of_model(model))


def _plain(value: Any) -> Any:
    """The value with those of enumerations instead of their members."""
    match value:
        case Enum():
            return value.value
        case dict():
            return {key: _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
    return value


def schema_of_model(model: type[BaseModel]) -> pa.Schema:
    """The schema of a class of models. Raises `TypeError` for an annotation that no Arrow type stands for."""
    return pa.schema(_fields(model))


def _fields(model: type[BaseModel]) -> list[pa.Field]:
    return [_field(name, info.annotation, info) for name, info in model.model_fields.items()]


def _field(name: str, annotation: Any, info: FieldInfo) -> pa.Field:
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    kinds = [one for one in options if one is not NoneType]
    if len(kinds) != 1:
        raise TypeError(f"no Arrow type stands for {annotation}, which may be of several types")
    return pa.field(name, _type(kinds[0], info), nullable=len(kinds) != len(options))


def _type(kind: Any, info: FieldInfo) -> pa.DataType:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind is datetime:
        extra = info.json_schema_extra
        return pa.timestamp("us", tz=extra.get("tz") if isinstance(extra, dict) else None)
    if get_origin(kind) in (list, tuple) and get_args(kind):
        item = _field("item", get_args(kind)[0], info)
        return pa.list_(item.with_nullable(True))
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = {type(one.value) for one in kind}
        if values == {str}:
            return pa.dictionary(pa.int32(), pa.string())
        return _type(values.pop(), info) if len(values) == 1 else pa.string()
    if hasattr(kind, "model_fields"):
        return pa.struct(_fields(kind))
    raise TypeError(f"no Arrow type stands for {kind}")
