"""Functions that build structs and maps, and take them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io import _kernels
from lance_io.errors import BindError
from lance_io.filters.elementwise import broadcast
from lance_io.filters.expressions.casts import sql_cast
from lance_io.filters.expressions.coercion import cast, common_type
from lance_io.filters.expressions.sql_types import is_list
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.functions.list_columns import map_entries
from lance_io.filters.functions.list_pool import Pool, call, ends_of, item_codes
from lance_io.levels.arrays import numbers
from lance_io.levels.portable import taken

if TYPE_CHECKING:
    from lance_io.filters.elementwise import Value


def struct_of(*values: Value) -> pa.Array:
    """A struct with the fields `c0`, `c1` ..."""
    return pa.StructArray.from_arrays(broadcast(*values), [f"c{i}" for i in range(len(values))])


def named_struct(*values: Value) -> pa.Array:
    """A struct from names (text literals), each followed by its value. Raises BindError for other names."""
    names = [_field_name(value, i) for i, value in enumerate(values[::2])]
    if len(values) % 2:
        raise BindError(f"named_struct requires an even number of arguments, got {len(values)} instead")
    return pa.StructArray.from_arrays(broadcast(*values)[1::2], names)


def _field_name(value: Value, index: int) -> str:
    if isinstance(value, pa.Array) and len(value) == 1:
        value = value[0]  # a call with literals only; names from columns have failed at binding, on no rows
    if not isinstance(value, pa.StringScalar) or not value.as_py():
        raise BindError(f"named_struct requires {2 * index}-th (0-indexed) field name as non-empty constant string")
    return str(value.as_py())


def map_of(keys: Value, values: Value) -> pa.Array:
    """A map from a list of keys and a list of values. Raises pa.ArrowInvalid for null or repeated keys."""
    keys, values = broadcast(keys, values)
    if not (is_list(keys.type) and is_list(values.type)):
        raise pa.ArrowTypeError("a map takes a list of keys and a list of values")
    lengths = pc.list_value_length(keys)
    same = pc.equal(lengths, pc.list_value_length(values))
    present = pc.and_(keys.is_valid(), values.is_valid())
    if pc.all(pc.fill_null(same, True)).as_py() is False:
        raise pa.ArrowInvalid("map requires key and value lists to have the same length")
    keys, values = (pc.if_else(present, lists, pa.scalar(None, lists.type)) for lists in (keys, values))
    inside = pc.list_flatten(keys)
    if inside.null_count:
        raise pa.ArrowInvalid("map key cannot be null")
    if len(Pool(keys).edited("distinct", coded=True).flatten()) < len(inside):
        raise pa.ArrowInvalid("map key must be unique, found a duplicate")
    offsets = pa.array(ends_of(keys).astype(np.int32))
    return pa.MapArray.from_arrays(offsets, inside, pc.list_flatten(values), mask=pc.invert(present))


def _column_of(maps: Value, index: int) -> pa.Array:
    entries = map_entries(maps)
    inside = pc.struct_field(entries.flatten(), [index])
    offsets = pa.array(ends_of(entries).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, inside, mask=entries.is_null() if entries.null_count else None)


def map_keys(maps: Value) -> pa.Array:
    """The list of the keys."""
    return _column_of(maps, 0)


def map_values(maps: Value) -> pa.Array:
    """The list of the values."""
    return _column_of(maps, 1)


def map_extract(maps: Value, key: Value) -> pa.Array:
    """The value of a key as a list with one item; the item is null if the map does not have the key."""
    (maps,) = broadcast(maps, *([key] if isinstance(key, pa.Array) else []))[:1]
    held = maps.type.key_type
    both = common_type(key.type, held)
    wanted = cast(key, both, safe=False) if both else sql_cast(key, held, lenient=True)
    keys = _column_of(maps, 0)
    pool = Pool(keys if wanted.type == held else keys.cast(pa.list_(wanted.type), safe=False), wanted)
    at = np.frombuffer(call(_kernels.find_in_lists, len(maps), pool.arguments, item_codes(pool.items)), np.int64)
    inside = pc.list_flatten(_column_of(maps, 1))
    indices = ends_of(map_entries(maps))[:-1] + at - 1
    values = taken(inside, numbers(indices, at == 0))
    return pa.ListArray.from_arrays(pa.array(np.arange(len(maps) + 1, dtype=np.int32)), values)


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("struct row", "any any*", struct_of)
FUNCTIONS.define("named_struct", "any any*", named_struct)
FUNCTIONS.define("map make_map", "any any", map_of)
FUNCTIONS.define("map_keys", "any", map_keys)
FUNCTIONS.define("map_values", "any", map_values)
FUNCTIONS.define("map_entries", "any", map_entries)
FUNCTIONS.define("map_extract element_at", "any any", map_extract)
