"""Structs and maps that text filters make and take apart, and what they say and do about Arrow types."""

from __future__ import annotations

import importlib.metadata
import math
import uuid as uuids
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.errors import BindError
from lance_io.filters.binding.casts import sql_cast
from lance_io.filters.binding.coercion import common_type
from lance_io.filters.binding.sql_types import is_list
from lance_io.filters.elementwise import broadcast
from lance_io.filters.functions.arrow_types import parse_type, type_name
from lance_io.filters.functions.list_edits import dimensions

if TYPE_CHECKING:
    from lance_io.filters.elementwise import Value


def struct_of(*values: Value) -> pa.Array:
    """A struct with the fields `c0`, `c1` ..."""
    return pa.StructArray.from_arrays(broadcast(*values), [f"c{i}" for i in range(len(values))])


def named_struct(*values: Value) -> pa.Array:
    """A struct from names, which are text literals, each in front of its value. Raises BindError for other names."""
    names = [_field_name(value, i) for i, value in enumerate(values[::2])]
    if len(values) % 2:
        raise BindError(f"named_struct requires an even number of arguments, got {len(values)} instead")
    return pa.StructArray.from_arrays(broadcast(*values)[1::2], names)


def _field_name(value: Value, place: int) -> str:
    if isinstance(value, pa.Array) and len(value) == 1:
        value = value[0]  # a call with literals only; names that are columns have failed before, without rows
    if not isinstance(value, pa.StringScalar) or not value.as_py():
        raise BindError(f"named_struct requires {2 * place}-th (0-indexed) field name as non-empty constant string")
    return str(value.as_py())


def map_of(keys: Value, values: Value) -> pa.Array:
    """A map from a list of keys and one of values. Raises pa.ArrowInvalid for keys that are null or come twice."""
    keys, values = broadcast(keys, values)
    if not (is_list(keys.type) and is_list(values.type)):
        raise pa.ArrowTypeError("a map is made from a list of keys and a list of values")
    lengths = pc.list_value_length(keys)
    same = pc.equal(lengths, pc.list_value_length(values))
    present = pc.and_(keys.is_valid(), values.is_valid())
    if pc.all(pc.fill_null(same, True)).as_py() is False:
        raise pa.ArrowInvalid("map requires key and value lists to have the same length")
    keys, values = (pc.if_else(present, one, pa.scalar(None, one.type)) for one in (keys, values))
    for row in keys.to_pylist():
        if row is not None and None in row:
            raise pa.ArrowInvalid("map key cannot be null")
        if row is not None and len({repr(key) for key in row}) < len(row):
            raise pa.ArrowInvalid(f"map key must be unique, found one twice in {row!r}"[:200])
    offsets = pa.array([0, *pc.cumulative_sum(pc.fill_null(pc.list_value_length(keys), 0)).to_pylist()], pa.int32())
    return pa.MapArray.from_arrays(offsets, pc.list_flatten(keys), pc.list_flatten(values), mask=pc.invert(present))


def _entries(maps: Value) -> pa.ListArray:
    (array,) = broadcast(maps)
    if not pt.is_map(array.type):
        raise pa.ArrowTypeError(f"a map is needed, found {array.type}")
    entry = pa.struct([array.type.key_field, array.type.item_field])
    return array.cast(pa.list_(pa.field("item", entry, nullable=False)))


def num_entries(value: Value) -> pa.Array:
    """The number of entries of a map, or of items of a list, u64; of a list of lists the product of its dimensions."""
    if is_list(value.type) and is_list(value.type.value_type):
        sizes = [None if row is None else math.prod(row) for row in dimensions(value).to_pylist()]
        return pc.if_else(
            pc.is_valid(value), pc.fill_null(pa.array(sizes, pa.uint64()), 0), pa.scalar(None, pa.uint64())
        )
    return pc.list_value_length(_entries(value) if pt.is_map(value.type) else value).cast(pa.uint64())


def _column_of(maps: Value, place: int) -> pa.Array:
    entries = _entries(maps)
    inside = pc.struct_field(entries.flatten(), [place])
    lengths = pc.fill_null(pc.list_value_length(entries), 0)
    offsets = pa.array([0, *pc.cumulative_sum(lengths).to_pylist()], pa.int32())
    return pa.ListArray.from_arrays(offsets, inside, mask=entries.is_null())


def map_entries(maps: Value) -> pa.Array:
    """A list of structs of key and value."""
    return _entries(maps)


def map_keys(maps: Value) -> pa.Array:
    """The list of the keys."""
    return _column_of(maps, 0)


def map_values(maps: Value) -> pa.Array:
    """The list of the values."""
    return _column_of(maps, 1)


def map_extract(maps: Value, key: Value) -> pa.Array:
    """The value of a key in a list of one; of null where the key is not there."""
    maps, keys = broadcast(maps, key)
    entries = _entries(maps)
    wanted = keys if common_type(keys.type, maps.type.key_type) else sql_cast(keys, maps.type.key_type, lenient=True)
    found = [
        [next((one["value"] for one in row or () if one["key"] == at), None)]
        for row, at in zip(entries.to_pylist(), wanted.to_pylist(), strict=True)
    ]
    return pa.array(found, pa.list_(maps.type.item_type))


def cast_to_arrow(value: Value, name: pa.Scalar) -> Value:
    """A value as the Arrow type with a name (see `arrow_types`)."""
    return _as_type(value, parse_type(name.as_py() or ""))


def _as_type(value: Value, to: pa.DataType) -> Value:
    source = value.type
    if source == to:
        return value
    if pt.is_null(source):
        return pa.nulls(len(value), to) if isinstance(value, pa.Array) else pa.scalar(None, to)
    if pt.is_nested(to) and not is_list(source) and is_list(to):  # a single item
        (items,) = broadcast(_as_type(value, to.value_type))
        return pa.ListArray.from_arrays(pa.array(range(len(items) + 1), pa.int32()), items).cast(to)
    if pt.is_duration(to) and pt.is_integer(source):
        return pc.cast(pc.cast(value, pa.int64()), to)
    if pt.is_time(to) and pt.is_integer(source):
        if source.bit_width != to.bit_width:
            raise pa.ArrowNotImplementedError(f"Unsupported CAST from {source} to {to}")
        return pc.cast(value, to)
    if pt.is_nested(to) or pt.is_dictionary(to) or pt.is_dictionary(source):
        return pc.dictionary_encode(value) if pt.is_dictionary(to) and source == to.value_type else pc.cast(value, to)
    return sql_cast(value, to, lenient=False)


def arrow_type(value: Value) -> pa.Array:
    """The name of the Arrow type, for each row."""
    name = pa.scalar(type_name(value.type))
    num_rows = len(value) if isinstance(value, pa.Array) else 1
    return pa.repeat(name, num_rows) if num_rows else pa.nulls(0, pa.string())


def uuid(num_rows: int) -> pa.Array:
    """A random UUID (version 4) for each row, as text."""
    return pa.array([str(uuids.uuid4()) for _ in range(num_rows)], pa.string())


def version() -> pa.Scalar:
    """Name and version of this library."""
    return pa.scalar(f"lance_io {importlib.metadata.version('lance_io')}")
