"""Properties of a table in SQL: which are ours, which are Spark's own, and which the table keeps in its config.

lance.data_storage_version       file version of a new table
lance.enable_stable_row_ids      whether rows of a new table keep their ids when they move
lance.overwrite.columns          columns by which a dynamic overwrite replaces rows
lance.auto_cleanup.*             as the table format has them
isolation                        serializable or snapshot: see docs/spark.md
COLUMN.arrow.fixed-size-list.size  items of a column of vectors
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import types as spark

from lance_io.errors import UsageError
from lance_io.spark.option_values import one_of, parse_columns, switch_value, whole_number
from lance_io.spark.options import VECTOR_SIZE
from lance_io.spark.types import extension_name, is_bytes, is_text

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_VERSION: Final = "lance.data_storage_version"
STABLE_ROW_IDS: Final = "lance.enable_stable_row_ids"
OVERWRITE_COLUMNS: Final = "lance.overwrite.columns"
ISOLATION: Final = "isolation"
COMMENT: Final = "comment"

_FIXED: Final = (FILE_VERSION, STABLE_ROW_IDS)
_CLEANUP: Final = "lance.auto_cleanup."
_PREFIX: Final = "lance."
_ARROW: Final = ".arrow."
LOCATION: Final = "location"
STREAM_MARKS: Final = "lance_io.stream."  # of entries that streams have set, and that are no properties
_BLOB_KEY: Final = b"lance-encoding:blob"
# Columns by name: the type of those whose values a dynamic overwrite does not compare, None for the others.
Columns: TypeAlias = "Mapping[str, str | None]"
# Spark sends them with a statement, or shows them: they are no properties of the table.
_FROM_SPARK: Final = frozenset(
    {"owner", "provider", LOCATION, "is_managed_location", "external", "table_type", "collation", "version"}
)
_OPTION: Final = "option."


@dataclass(frozen=True)
class TableProperties:
    """Properties of a statement, checked.

    data_storage_version  file version, None for the default
    stable_row_ids        whether rows keep their ids; None where the statement does not say it
    vector_sizes          items per vector, by column
    config                entries for the table's config
    """

    data_storage_version: str | None = None
    stable_row_ids: bool | None = None
    vector_sizes: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)


def created_properties(given: Mapping[str, str], columns: Columns, path: str) -> TableProperties:
    """The properties of CREATE and REPLACE.

    columns  the table's columns
    path     where the catalog keeps the table
    Raises `UsageError` for an unknown property with one of our prefixes, an invalid value, and another location.
    """
    version, stable = given.get(FILE_VERSION), given.get(STABLE_ROW_IDS)
    check_location(given.get(LOCATION), path)
    sizes = {
        key.removesuffix(f".{VECTOR_SIZE}"): whole_number(1)(key, text)
        for key, text in given.items()
        if key.endswith(f".{VECTOR_SIZE}")
    }
    others = {key: text for key, text in given.items() if key not in _FIXED and not key.endswith(f".{VECTOR_SIZE}")}
    return TableProperties(
        data_storage_version=version,
        stable_row_ids=None if stable is None else switch_value(STABLE_ROW_IDS, stable),
        vector_sizes=sizes,
        config=kept_properties(others, columns),
    )


def kept_properties(given: Mapping[str, str], columns: Columns) -> dict[str, str]:
    """The properties that go into the config of a table. Raises as `created_properties`."""
    kept = {}
    for key, text in given.items():
        if key in _FROM_SPARK or key.startswith(_OPTION):
            continue
        _check_known(key)
        if key == ISOLATION:
            text = one_of("serializable", "snapshot")(key, text)
        if key == OVERWRITE_COLUMNS:
            _check_columns(text, columns)
        kept[key] = text
    return kept


def check_removable(key: str) -> None:
    """Raise `UsageError` for a property that cannot be removed."""
    if key in _FROM_SPARK:
        raise UsageError(f"property {key} is Spark's own, and cannot be removed")
    _check_known(key)


def overwrite_columns(config: Mapping[str, str], columns: Columns) -> list[str]:
    """The columns of a dynamic overwrite.

    Raises `UsageError` if the table does not say them, no longer has them, or has values in them that are not compared.
    """
    text = config.get(OVERWRITE_COLUMNS)
    if text is None:
        raise UsageError(
            f"the table does not say which rows a dynamic overwrite replaces: set its property {OVERWRITE_COLUMNS} to "
            f"the columns, such as ALTER TABLE t SET TBLPROPERTIES ('{OVERWRITE_COLUMNS}' = 'day'); rows whose values "
            "occur in the new data are replaced"
        )
    _check_columns(text, columns)
    return [path[0] for path in parse_columns(OVERWRITE_COLUMNS, text)]


def meets_new_rows(config: Mapping[str, str]) -> bool:
    """Whether statements that insert what is not there conflict with all commits of new rows."""
    return config.get(ISOLATION, "serializable") != "snapshot"


def shown_properties(config: Mapping[str, str]) -> dict[str, str]:
    """The config as Spark shows it, without the entries of streams."""
    return {key: text for key, text in config.items() if not key.startswith(STREAM_MARKS)}


def _check_known(key: str) -> None:
    if key in _FIXED:
        raise UsageError(f"property {key} is fixed when a table is created")
    if key == OVERWRITE_COLUMNS or key.startswith(_CLEANUP):
        return
    if key.startswith(_PREFIX):
        known = ", ".join((*_FIXED, OVERWRITE_COLUMNS, f"{_CLEANUP}*"))
        raise UsageError(f"unknown property {key!r}; properties that begin with {_PREFIX} are {known}")
    if _ARROW in key:
        column = key.partition(_ARROW)[0]
        raise UsageError(
            f"unknown property {key!r} of column {column}; the one for columns is COLUMN.{VECTOR_SIZE}, in CREATE TABLE"
        )


def _check_columns(text: str, columns: Columns) -> None:
    for path in parse_columns(OVERWRITE_COLUMNS, text):
        if len(path) > 1 or path[0] not in columns:
            raise UsageError(f"property {OVERWRITE_COLUMNS}: the table has no column {'.'.join(path)}")
        refused = columns[path[0]]
        if refused is not None:
            raise UsageError(
                f"property {OVERWRITE_COLUMNS}: column {path[0]} is {refused}, and a dynamic overwrite compares texts, "
                "numbers, booleans, bytes, dates and times only"
            )


def columns_of_struct(struct: spark.StructType) -> dict[str, str | None]:
    """The columns of a new table, of which Spark's schema is known."""
    nested = (spark.StructType, spark.ArrayType, spark.MapType, spark.VariantType)
    return {
        field.name: field.dataType.simpleString() if isinstance(field.dataType, nested) else None
        for field in struct.fields
    }


def columns_of_schema(schema: pa.Schema) -> dict[str, str | None]:
    """The columns of a table."""
    return {field.name: None if _is_compared(field) else str(field.type) for field in schema}


def _is_compared(field: pa.Field[Any]) -> bool:
    if extension_name(field) is not None or _BLOB_KEY in (field.metadata or {}):
        return False
    dtype = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if is_text(dtype) or is_bytes(dtype) or pa.types.is_temporal(dtype) or pa.types.is_boolean(dtype):
        return True
    is_float = pa.types.is_float32(dtype) or pa.types.is_float64(dtype)
    return bool(is_float or pa.types.is_integer(dtype) or pa.types.is_decimal128(dtype))


def check_location(location: str | None, path: str) -> None:
    """Raise `UsageError` for a location that is not the path at which the catalog keeps something."""
    if location is not None and _plain_path(location) != _plain_path(path):
        raise UsageError(f"property {LOCATION}: the catalog keeps this in {path}, not in {location}")


def _plain_path(path: str) -> str:
    return path.removeprefix("file://").removeprefix("file:").rstrip("/")
