"""Aggregates, orders and samples of Spark that need not read all.

They are answered from the manifest and indices, by the first rows, or by some fragments.

An aggregate is `{"fn": "COUNT_STAR"}`, or `COUNT`, `MIN` or `MAX` with `"col": path`. A key of an order is
`{"col": path, "ascending": ..., "nulls_first": ...}`. A sample is `{"lower": ..., "upper": ..., "seed": text}`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from lance_io.spark.types import is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.dataset.distributed import TableVersion
    from lance_io.spark.options import ReadOptions

SortKey: TypeAlias = tuple[tuple[str, ...], bool, bool]  # path, whether it ascends, whether nulls come first

TOP_ROWS_MAX: Final = 16_384
"""Rows of an order that a task takes one by one; of more it would better read whole pages."""


def exact_values(
    version: TableVersion, options: ReadOptions, schema: pa.Schema, filter: str | None, aggregates: Sequence[Any]
) -> list[str | None] | None:
    """The values of aggregates over the rows of a read, as text, None for null; None if data had to be read for one.

    schema  of all columns of the read
    filter  what Spark has pushed
    """
    if options.filter is not None or options.columns is not None:
        return None
    values: list[str | None] = []
    for aggregate in aggregates:
        value = _value(version, options.limit, schema, filter, aggregate)
        if value is None:
            return None
        values += value
    return values


def _value(
    version: TableVersion, limit: int | None, schema: pa.Schema, filter: str | None, aggregate: Any
) -> tuple[str | None] | None:
    """The value of one, None if data had to be read."""
    name = aggregate["fn"]
    if name == "COUNT_STAR":
        count = version.exact_count(filter)
        return None if count is None else (str(count if limit is None else min(count, limit)),)
    field = _field(schema, aggregate["col"])
    if field is None or limit is not None:
        return None
    if name == "COUNT":
        quoted = ".".join(f"`{part.replace('`', '``')}`" for part in aggregate["col"])
        is_there = f"({quoted} IS NOT NULL)"
        count = version.exact_count(is_there if filter is None else f"{filter} AND {is_there}")
        return None if count is None else (str(count),)
    if filter is not None or not _is_shown_alike(field.type):
        return None
    extremes = version.exact_extremes(aggregate["col"])
    if extremes is None:
        return None
    value = extremes[name == "MAX"]
    if value is None:
        return (None,)
    is_zero = pa.types.is_floating(value.type) and value.as_py() == 0  # of two zeros Spark takes the first
    return None if is_zero else (_text(value),)


def _field(schema: pa.Schema, path: Sequence[str]) -> pa.Field[Any] | None:
    """A column, or a member of structs; None if there is none, or it lies in a list."""
    if schema.get_field_index(path[0]) < 0:
        return None
    field = schema.field(path[0])
    for member in path[1:]:
        if not pa.types.is_struct(field.type) or field.type.get_field_index(member) < 0:
            return None
        field = field.type.field(member)
    return field


def _is_shown_alike(dtype: pa.DataType) -> bool:
    """Whether Spark has a value as it is stored, and the JAR makes one of its text."""
    is_number = pa.types.is_integer(dtype) or pa.types.is_float32(dtype) or pa.types.is_float64(dtype)
    is_time = pa.types.is_date32(dtype) or (pa.types.is_timestamp(dtype) and dtype.unit == "us")
    is_other = pa.types.is_boolean(dtype) or pa.types.is_decimal128(dtype) or _is_plain_text(dtype)
    return bool(is_number and not pa.types.is_uint64(dtype)) or bool(is_time) or is_other


def _text(value: pa.Scalar) -> str:
    if pa.types.is_date32(value.type):
        return str(value.cast(pa.int32()).as_py())
    if pa.types.is_timestamp(value.type):
        return str(value.value)
    if pa.types.is_decimal(value.type):
        return f"{value.as_py():f}"
    if pa.types.is_boolean(value.type):
        return "true" if value.as_py() else "false"
    return str(value.as_py())


def sort_keys(schema: pa.Schema, options: ReadOptions, keys: Sequence[Any], limit: int) -> tuple[SortKey, ...] | None:
    """The keys of an order of which tasks read the first rows; None if only Spark can tell which these are."""
    if options.columns is not None or options.limit is not None or limit > TOP_ROWS_MAX:
        return None
    fields = [_field(schema, key["col"]) for key in keys]
    if any(field is None or not _is_ordered_alike(field.type) for field in fields):
        return None
    return tuple((tuple(key["col"]), bool(key["ascending"]), bool(key["nulls_first"])) for key in keys)


def sampled_fragments(fragment_ids: Sequence[int], sample: Any) -> list[int]:
    """Indexes of the fragments of a sample: those whose number from 0 to 1 lies between its bounds.

    The number follows from the seed and the id alone, so that samples beside each other share no fragment.
    """
    lower, upper, seed = sample["lower"], sample["upper"], sample["seed"]

    def number(fragment_id: int) -> float:
        digest = blake2b(f"{seed} {fragment_id}".encode(), digest_size=6).digest()
        return int.from_bytes(digest, "big") / (1 << 48)

    return [index for index, fragment_id in enumerate(fragment_ids) if lower <= number(fragment_id) < upper]


def _is_ordered_alike(dtype: pa.DataType) -> bool:
    """Whether values as they are stored have the order of what Spark sees; texts of other types may not."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_date, pa.types.is_time)
    more = (pa.types.is_timestamp, pa.types.is_decimal128)
    return _is_plain_text(dtype) or any(kind(dtype) for kind in (*kinds, *more))


def _is_plain_text(dtype: pa.DataType) -> bool:
    """Whether it is text of no other meaning, which Spark orders by its bytes, as indices do."""
    return is_text(dtype) and not isinstance(dtype, pa.BaseExtensionType)
