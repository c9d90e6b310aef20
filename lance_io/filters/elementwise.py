"""Computes functions without an Arrow kernel value by value, over as few values as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

Value: TypeAlias = pa.Array | pa.Scalar


def broadcast(*values: Value) -> list[pa.Array]:
    """The values as arrays of one length; at least one is an array."""
    num_rows = next(len(value) for value in values if isinstance(value, pa.Array))
    return [_repeated(value, num_rows) if isinstance(value, pa.Scalar) else value for value in values]


def _repeated(value: pa.Scalar, num_rows: int) -> pa.Array:
    return pa.repeat(value, num_rows) if num_rows else pa.nulls(0, value.type)  # Arrow cannot repeat a list no times


def by_value(compute: Callable[..., Any], result: pa.DataType, *values: Value) -> pa.Array:
    """`compute` for each row; null where an argument is null.

    With a single column (and literals) `compute` runs once per distinct value.
    """
    columns = [value for value in values if isinstance(value, pa.Array)]
    if len(columns) == 1 and len(columns[0]) and not pa.types.is_nested(columns[0].type):
        distinct = columns[0].dictionary_encode()
        results = _each(compute, result, [distinct.dictionary if v is columns[0] else v for v in values])
        return results.take(distinct.indices)
    return _each(compute, result, list(values))


def _each(compute: Callable[..., Any], result: pa.DataType, values: list[Value]) -> pa.Array:
    rows = zip(*[array.to_pylist() for array in broadcast(*values)], strict=True)
    return pa.array([None if None in row else compute(*row) for row in rows], result)
