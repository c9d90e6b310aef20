"""Arrow schemas of pydantic models, derived from the annotations as in pylance, independent of the values.

int, float, str, bool, bytes, date, datetime    int64, float64, string, bool, binary, date32, timestamp of microseconds
list[T], tuple[T, ...]                          list of T
a model                                         struct
an enumeration                                  dictionary of strings, or the type of its values
T | None                                        T, nullable; all other fields are not nullable
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
    """The values of models of one class as a record batch.

    schema  target schema; None derives it from the class
    Raises `TypeError` for a model of another class, also of a subclass: its additional fields would be lost.
    """
    model_class = type(models[0])
    for number, model in enumerate(models):
        if type(model) is not model_class:
            raise TypeError(f"data[{number}] must be an instance of {model_class!r} exactly, got {type(model)!r}")
    values = [_plain(model.model_dump()) for model in models]
    return pa.RecordBatch.from_pylist(values, schema=schema or schema_of_model(model_class))


def _plain(value: Any) -> Any:
    """The value, with members of enumerations replaced by their values."""
    match value:
        case Enum():
            return value.value
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value


def schema_of_model(model: type[BaseModel]) -> pa.Schema:
    """The schema of a class of models. Raises `TypeError` for an annotation without an Arrow type."""
    return pa.schema(_fields(model))


def _fields(model: type[BaseModel]) -> list[pa.Field]:
    return [_field(name, info.annotation, info) for name, info in model.model_fields.items()]


def _field(name: str, annotation: Any, info: FieldInfo) -> pa.Field:
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    kinds = [option for option in options if option is not NoneType]
    if len(kinds) != 1:
        raise TypeError(f"{annotation} has no Arrow type: a union may have one type besides None")
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
        values = {type(member.value) for member in kind}
        if values == {str}:
            return pa.dictionary(pa.int32(), pa.string())
        return _type(values.pop(), info) if len(values) == 1 else pa.string()
    if hasattr(kind, "model_fields"):
        return pa.struct(_fields(kind))
    raise TypeError(f"{kind} has no Arrow type")
