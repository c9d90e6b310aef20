"""Grows one dictionary per field for all rows of a table of version 0.1 (spec: legacy 0.1, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lance_io.errors import SchemaError
from lance_io.format.v0_1.dictionaries import dictionary_values, stored_dictionary
from lance_io.levels.join import holds_dictionary
from lance_io.levels.lists import items_of, validity, with_items

if TYPE_CHECKING:
    from lance_io.format.schema import Field


class DictionaryGrowth:
    """The dictionaries of one write, by field id; new values are appended, so that keys written before stay valid.

    The dictionary of a table that receives an append is fixed, because its fragments refer to it.
    """

    def __init__(self) -> None:
        self._values: dict[int, pa.Array] = {}

    def with_keys(self, field: Field, array: pa.Array) -> pa.Array:
        """Replace dictionary arrays by their keys at any depth; nulls stay null.

        Raises `SchemaError` for values that are missing in a table's dictionary, and for more values than keys.
        """
        dtype = array.type
        if not holds_dictionary(dtype):
            return array
        if pa.types.is_dictionary(dtype):
            return self._keys(field, array)
        if pa.types.is_struct(dtype):
            members = [self.with_keys(child, array.field(at)) for at, child in enumerate(field.children)]
            fields = [dtype.field(at).with_type(member.type) for at, member in enumerate(members)]
            bitmap = validity(array)
            return pa.Array.from_buffers(pa.struct(fields), len(array), [bitmap], array.null_count, children=members)
        items, offsets = items_of(array)
        return with_items(array, offsets, self.with_keys(field.children[0], items))

    def _keys(self, field: Field, array: pa.DictionaryArray) -> pa.Array:
        indices = array.indices
        positions = self._positions(field, array.dictionary, array.type)
        return indices if positions is None else positions.take(indices).cast(array.type.index_type)

    def _positions(self, field: Field, values: pa.Array, dtype: pa.DictionaryType) -> pa.Array | None:
        """Position of each value in the field's dictionary; None if they are its first values in the same order."""
        known = self._values.get(field.id)
        if known is None and field.dictionary is not None:
            known = self._values[field.id] = dictionary_values(field.dictionary)
        if not len(values):  # all rows are null
            if known is not None and len(known):
                return None
            values = pa.nulls(1, dtype.value_type)
        if known is None:
            known = self._values[field.id] = values
        if known[: len(values)].equals(values):
            return None
        if field.dictionary is not None:
            raise SchemaError(
                f"Append with different schema: dictionary for `{field.name}` did not match expected dictionary"
            )
        is_new = pc.is_null(pc.index_in(values, value_set=known))
        grown = pa.concat_arrays([known, values.filter(is_new).unique()])
        capacity = 1 << (dtype.index_type.bit_width - int(pa.types.is_signed_integer(dtype.index_type)))
        if len(grown) > capacity:
            raise SchemaError(
                f"column {field.name!r}: {len(grown)} dictionary values, more than {dtype} can tell apart"
            )
        self._values[field.id] = grown
        return pc.index_in(values, value_set=grown)

    def encode_values(self, field: Field) -> bytes | None:
        """The values of a field as `Field.dictionary` stores them; None if no row had any."""
        if field.dictionary is not None:
            return field.dictionary
        values = self._values.get(field.id)
        return None if values is None else stored_dictionary(values)
