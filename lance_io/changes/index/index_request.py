"""The arguments of an index build, checked against the schema; names, defaults and errors are pylance's."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.types as pt

from lance_io.caller_text import utf8
from lance_io.changes.index.text_request import (
    TextRequest,
    asks_for_elements,
    is_indexable,
    is_json,
    text_request,
)
from lance_io.errors import BindError, UnsupportedError, UsageError
from lance_io.format.schema import split_path
from lance_io.index.build import index_kinds as kinds
from lance_io.index.build.bloom_files import ITEMS, PROBABILITY
from lance_io.index.build.btree_files import PAGE_ROWS
from lance_io.index.build.zone_files import ZONE_ROWS
from lance_io.index.text.text_paths import text_path, text_paths
from lance_io.limits import MIB
from lance_io.proto import table_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.format.schema import Field
    from lance_io.index.build.index_kinds import IndexKind
    from lance_io.index.text.text_paths import TextPath
    from lance_io.reads.version.state import DatasetState

MEMORY_LIMIT_MIB: Final = 256
_LATER: Final = ("RTREE", "MINHASHLSH")
_ALIASES: Final = {"FTS": "INVERTED"}
_U64_MAX: Final = (1 << 64) - 1


class ColumnNotFound(BindError, KeyError):
    """The schema has no such column; pylance raises `KeyError`."""

    def __str__(self) -> str:
        return self.message


class NoSuchKind(UnsupportedError):
    """There is no such kind of index, or this release does not build it."""


class WrongColumnType(BindError, TypeError):
    """An index of this kind cannot be built over a column of this type; pylance raises `TypeError`."""


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """A checked request for one index.

    kind        of the index
    path        dotted path of the column
    field       the column
    name        of the index
    parameters  of the kind, with defaults
    json_path   the path whose values are indexed, in a column of JSON documents; None for the column's own values
    texts       where the texts are that members of lists of structs hold; None for a column that is read by its path
    """

    kind: IndexKind
    path: str
    field: Field
    name: str
    parameters: Mapping[str, Any]
    json_path: str | None = None
    texts: TextPath | None = None

    @property
    def value_type(self) -> pa.DataType:
        """Type of the indexed values; of JSON values, that of their text."""
        return pa.string() if self.json_path is not None else storage_type(self.field.arrow_type)

    @property
    def names_ids(self) -> bool:
        """See `IndexKind`."""
        return self.kind.names_ids

    @property
    def columns(self) -> list[str] | dict[str, str]:
        """The columns of the scan: the values."""
        if self.json_path is None:
            return [self.path]
        path = self.json_path if self.json_path.startswith(("$", "[")) else f"$.{self.json_path}"
        quoted = path.replace("'", "''")
        return {"values": f"json_extract({sql_path(self.path)}, '{quoted}')"}

    def index_version(self, *, stable: bool) -> int:
        """The version of a new segment."""
        if self.kind is kinds.INVERTED:
            return self.text.index_version
        return 0 if self.json_path is not None else self.kind.index_version(stable=stable)

    @property
    def text(self) -> TextRequest:
        """The parameters of a full text index."""
        request: TextRequest = self.parameters["text"]
        return request

    def details(self) -> tuple[str, bytes]:
        """Type URL and content of the details message."""
        if self.json_path is not None:
            document = table_pb2.JsonIndexDetails(path=self.json_path)
            document.target_details.type_url = self.kind.type_url
            return kinds.JSON_URL, document.SerializeToString()
        if self.kind is kinds.ZONEMAP:
            rows = self.parameters["rows_per_zone"]
            message = table_pb2.ZoneMapIndexDetails(rows_per_zone=rows, use_seeds=False, has_null_bitmap=True)
            return self.kind.type_url, message.SerializeToString()
        if self.kind is kinds.INVERTED:
            return self.kind.type_url, self.text.details()
        return self.kind.type_url, b""


def index_request(
    state: DatasetState, column: Any, index_type: Any, name: str | None, options: Mapping[str, Any]
) -> IndexRequest:
    """Check the arguments of a build.

    column      a path, or a list of one path
    index_type  a name, or a configuration with `index_type` and `parameters`
    options     more arguments, for full text indices

    Raises `ColumnNotFound`, `WrongColumnType`, `NoSuchKind`, and `UsageError` for invalid parameters.
    """
    if not isinstance(column, str):
        columns = [*column]
        if len(columns) != 1:
            raise NoSuchKind("Scalar indices currently only support a single column")
        column = columns[0]
    texts = _texts_of(state, column, index_type)
    path, field = find_column(state, column) if texts is None else (_dotted(texts.names), texts.field)
    if name is None:
        name = f"{path}_list_element_idx" if asks_for_elements(options) else f"{path}_idx"
    utf8(name, "the name of an index")
    json_path = None
    if not isinstance(index_type, str) and str(getattr(index_type, "index_type", "")).lower() == "json":
        kind, json_path, parameters = _json_target(state, path, field, index_type.parameters)
    else:
        kind, parameters = _kind_of(index_type)
        check_type(kind, path, field)
        if kind is kinds.INVERTED:
            parameters = {"text": text_request({**options, **parameters}, field, is_in_list=texts is not None)}
    return IndexRequest(kind, path, field, name, parameters, json_path, texts)


def _json_target(
    state: DatasetState, path: str, field: Field, given: Mapping[str, Any]
) -> tuple[IndexKind, str, dict[str, Any]]:
    """The kind, path and parameters of an index over values in JSON documents."""
    if field.extension_name not in ("lance.json", "arrow.json"):
        raise UsageError(
            f"A JSON index can only be created on a column of JSON documents, {path} is {field.arrow_type}"
        )
    target, json_path = str(given.get("target_index_type", "")).lower(), given.get("path")
    kind = next((each for each in (kinds.BTREE, kinds.BITMAP) if each.config_name == target), None)
    if kind is None:
        raise UsageError(f"target_index_type must be btree or bitmap, got {target!r}")
    if not isinstance(json_path, str) or not json_path:
        raise UsageError(f"path must be a path in the documents, such as 'a.b', got {json_path!r}")
    if kind is kinds.BTREE and state.has_stable_row_ids:
        raise NoSuchKind(
            "a JSON-wrapped BTREE index is not supported on a table with stable row ids: create a BITMAP index, or a "
            "BTREE index on a column of its own"
        )
    inner = given.get("target_index_parameters") or {}
    if isinstance(inner, str):
        inner = json.loads(inner)
    return kind, json_path, _parameters(kind, inner)


def find_column(state: DatasetState, column: str) -> tuple[str, Field]:
    """The path as the schema spells it, and the field; names are compared without case where no name is equal."""
    members, fields, steps = split_path(column), state.schema.fields, []
    for member in members:
        match = next((field for field in fields if field.name == member), None)
        match = match or next((field for field in fields if field.name.lower() == member.lower()), None)
        if match is None:
            raise ColumnNotFound(f"{column} not found in schema")
        steps.append(match)
        fields = match.children
    return _dotted([field.name for field in steps]), steps[-1]


def _texts_of(state: DatasetState, column: str, index_type: Any) -> TextPath | None:
    """The texts that members of lists of structs hold, for a full text index of them; else None."""
    kind = index_type if isinstance(index_type, str) else getattr(index_type, "index_type", "")
    if _ALIASES.get(str(kind).upper(), str(kind).upper()) != kinds.INVERTED.name:
        return None
    texts = text_path(state.schema, split_path(column))
    return texts if texts is not None and texts.below else None


def texts_in_lists(state: DatasetState, field: Field) -> TextPath | None:
    """Where the texts of a field are, if it is a member of the structs in a list; else None."""
    texts = dict(text_paths(state.schema.fields)).get(field.id)
    return texts if texts is not None and texts.below else None


def _dotted(names: Sequence[str]) -> str:
    return ".".join(map(quoted_name, names))


def quoted_name(name: str) -> str:
    """A name as a step of a dotted path."""
    return f"`{name}`" if "." in name else name


def sql_path(path: str) -> str:
    """A path for SQL text, every name quoted."""
    return ".".join(f"`{name}`" for name in split_path(path))


def _kind_of(index_type: Any) -> tuple[IndexKind, dict[str, Any]]:
    if isinstance(index_type, str):
        name = _ALIASES.get(index_type.upper(), index_type.upper())
        if name in kinds.KINDS:
            return kinds.KINDS[name], _parameters(kinds.KINDS[name], {})
        if name in _LATER:
            raise NoSuchKind(f"this release builds no {name} index; use pylance, on the same table")
        raise NoSuchKind(f"Only {', '.join(kinds.KINDS)} are supported for scalar columns. Received {name}")
    if not hasattr(index_type, "index_type") or not isinstance(getattr(index_type, "parameters", None), Mapping):
        raise TypeError(f"index_type must be str or IndexConfig, found {index_type!r}")
    config_name = str(index_type.index_type).lower()
    kind = next((each for each in kinds.KINDS.values() if each.config_name == config_name), None)
    if kind is None:
        raise UsageError(f"No scalar index plugin found for name {index_type.index_type!r}")
    return kind, _parameters(kind, index_type.parameters)


def _parameters(kind: IndexKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a kind, with defaults; others are ignored, as by pylance."""
    if kind is kinds.BTREE:
        return {"zone_size": _count(given, "zone_size", PAGE_ROWS)}
    if kind is kinds.ZONEMAP:
        return {"rows_per_zone": _count(given, "rows_per_zone", ZONE_ROWS)}
    if kind is kinds.BLOOMFILTER:
        probability = given.get("probability")
        probability = PROBABILITY if probability is None else float(probability)
        if not 0.0 < probability < 1.0:
            raise UsageError(f"probability must be between 0 and 1, got {probability}")
        return {"number_of_items": _count(given, "number_of_items", ITEMS), "probability": probability}
    return {**given} if kind is kinds.INVERTED else {}


def _count(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name)
    if value is None:
        return default
    number = operator.index(value)
    if not 1 <= number <= _U64_MAX:
        raise UsageError(f"{name} must be greater than zero, got {number}")
    return number


def storage_type(dtype: pa.DataType) -> pa.DataType:
    """The type without its extension."""
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype


def check_type(kind: IndexKind, path: str, field: Field) -> None:
    """Raise `WrongColumnType` unless a kind can index the column."""
    if not fits(kind, field):
        dtype = storage_type(field.arrow_type)
        raise WrongColumnType(f"{kind.name} index column {path} must be {_ACCEPTED[kind.name]}, found {dtype}")


def fits(kind: IndexKind, field: Field) -> bool:
    """Whether a kind can index a column."""
    is_document = kind is kinds.INVERTED and is_json(field)
    return bool(is_document or _ACCEPTS[kind.name](storage_type(field.arrow_type))) and not field.holds_blobs


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pt.is_string(dtype) or pt.is_large_string(dtype))


def _is_bytes(dtype: pa.DataType) -> bool:
    return bool(_is_text(dtype) or pt.is_binary(dtype) or pt.is_large_binary(dtype))


def _is_sortable(dtype: pa.DataType) -> bool:
    """Types of BTREE and BITMAP."""
    return bool(
        pt.is_boolean(dtype)
        or pt.is_integer(dtype)
        or pt.is_floating(dtype)
        or (pt.is_temporal(dtype) and not pt.is_interval(dtype))
        or _is_bytes(dtype)
        or pt.is_fixed_size_binary(dtype)
        or pt.is_decimal(dtype)
    )


def _is_zoned(dtype: pa.DataType) -> bool:
    """Types of ZONEMAP."""
    is_list = pt.is_list(dtype) or pt.is_large_list(dtype) or pt.is_fixed_size_list(dtype)
    return bool(_is_sortable(dtype) or is_list or pt.is_dictionary(dtype))


def _is_hashed(dtype: pa.DataType) -> bool:
    """Types of BLOOMFILTER."""
    is_float = pt.is_float32(dtype) or pt.is_float64(dtype)
    is_time = pt.is_date(dtype) or pt.is_time(dtype) or pt.is_timestamp(dtype)
    return bool(pt.is_integer(dtype) or is_float or is_time or _is_bytes(dtype))


def _is_labels(dtype: pa.DataType) -> bool:
    """Types of LABEL_LIST."""
    return bool(pt.is_list(dtype) or pt.is_large_list(dtype)) and _is_sortable(storage_type(dtype.value_type))


_ACCEPTS: Final = {
    "BTREE": _is_sortable,
    "BITMAP": _is_sortable,
    "ZONEMAP": _is_zoned,
    "BLOOMFILTER": _is_hashed,
    "LABEL_LIST": _is_labels,
    "NGRAM": _is_text,
    "INVERTED": is_indexable,
}
_SORTABLE: Final = "int, float, bool, str, large_str, binary, large_binary, decimal, fixed-size-binary, or temporal"
_ACCEPTED: Final = {
    "BTREE": _SORTABLE,
    "BITMAP": _SORTABLE,
    "ZONEMAP": f"{_SORTABLE}, or a list or dictionary",
    "BLOOMFILTER": "int, float32, float64, str, large_str, binary, large_binary, date, time or timestamp",
    "LABEL_LIST": "a list or large list of values that are not nested",
    "NGRAM": "a string",
    "INVERTED": "string, large string or list of strings, or json",
}


def checked_uuid(given: str | None) -> str:
    """A UUID as text, a new one for None. Raises `UsageError` for text that is none."""
    if given is None:
        return str(uuid4())
    try:
        return str(UUID(given))
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"Invalid UUID string for index_uuid: {given!r} ({error})") from error


def limit_bytes(memory_limit: int | None) -> int:
    """The memory limit of a build in bytes. memory_limit: MiB, None for the default."""
    if memory_limit is None:
        return MEMORY_LIMIT_MIB * MIB
    number = operator.index(memory_limit)
    if number < 16:
        raise UsageError(f"memory_limit must be at least 16 MiB, got {number}")
    return number * MIB
