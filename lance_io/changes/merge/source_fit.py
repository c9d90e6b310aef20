"""Maps the columns of a source to those of the table (spec: operations, 2.2 and 2.3).

A source may lack columns, and members of structs. Its columns must fit as in an append. Another type than the table's
is accepted if the cast is lossless: the table's type can hold each of its values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.changes.operations.schema_fit import fit_part, schema_of
from lance_io.errors import OperationError
from lance_io.format.schema import Schema
from lance_io.levels.lists import items_of, with_items

if TYPE_CHECKING:
    from lance_io.format.schema import Field
    from lance_io.format.version import FileVersion

_INTEGER_BITS = {
    **{dtype: (bits, True) for dtype, bits in ((pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32), (pa.int64(), 64))},
    **{d: (bits, False) for d, bits in ((pa.uint8(), 8), (pa.uint16(), 16), (pa.uint32(), 32), (pa.uint64(), 64))},
}
_FLOAT_BITS = {pa.float16(): 16, pa.float32(): 32, pa.float64(): 64}


@dataclass(frozen=True, eq=False)
class SourceFit:
    """The columns of a source, mapped to a table.

    schema          schema of the result of `rows`: the table's fields that the source has, in the table's order
    given_order     the same fields, in the source's order
    column_indexes  index of each field's column in batches of the source
    types           types to cast to, None for columns of the table's type
    table           the table's schema
    """

    schema: Schema
    given_order: Schema
    column_indexes: tuple[int, ...]
    types: tuple[pa.DataType | None, ...]
    table: Schema

    @property
    def names(self) -> tuple[str, ...]:
        """Top-level columns of the source, in the order of the table."""
        return tuple(field.name for field in self.schema.fields)

    @property
    def missing(self) -> list[Field]:
        """Top-level columns of the table that the source lacks."""
        known = {field.id for field in self.schema.fields}
        return [field for field in self.table.fields if field.id not in known]

    @property
    def partial_structs(self) -> list[Field]:
        """Struct columns of the table of which the source lacks members."""
        whole = {field.id: field for field in self.table.fields}
        return [whole[field.id] for field in self.schema.fields if _lacks_members(field, whole[field.id])]

    @property
    def is_partial(self) -> bool:
        """Whether the source lacks columns or members."""
        return bool(self.missing or self.partial_structs)

    def rows(self, batch: pa.RecordBatch, positions: pa.Array | None = None) -> list[pa.Array]:
        """The columns of a batch, or of some of its rows. Raises `OperationError` for a value that cannot be cast."""
        columns = [batch.column(index) for index in self.column_indexes]
        if positions is not None:
            columns = [column.take(positions) for column in columns]
        return [column if to is None else _cast(column, to) for column, to in zip(columns, self.types, strict=True)]

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """A column of a batch, by the table's name."""
        number = self.names.index(name)
        column, to = batch.column(self.column_indexes[number]), self.types[number]
        return column if to is None else _cast(column, to)

    def check_insertable(self) -> None:
        """Raise `OperationError` if the source lacks columns or members that must not be null in inserted rows."""
        lacking = [field.name for field in self.missing if not field.nullable]
        given = {field.id: field for field in self.schema.fields}
        for whole in self.partial_structs:
            lacking += _missing_members(given[whole.id], whole, whole.name)
        if lacking:
            names = ", ".join(f'"{name}"' for name in lacking)
            raise OperationError(
                f"Cannot insert rows with a partial-schema source: target column(s) [{names}] are non-nullable and not "
                "provided by the source. Either add them to the source or leave out when_not_matched_insert_all"
            )


def fit_source(given: pa.Schema, table: Schema, version: FileVersion) -> SourceFit:
    """Map the columns of a source to a table.

    version  version of the new files
    Raises `SchemaError` for a column that the table lacks, and for a type that does not fit.
    """
    casts = [_lossless(field, table) for field in given]
    fields = [field if to is None else field.with_type(to) for field, to in zip(given, casts, strict=True)]
    stored = _all_nullable(schema_of(pa.schema(fields, metadata=given.metadata)))
    fit = fit_part(stored, _all_nullable(table), version)
    original = {field.id: field for field in table.walk()}
    in_order = tuple(_with_nullability(field, original) for field in fit.fields)
    by_id = {field.id: index for index, field in enumerate(in_order)}
    column_indexes = tuple(by_id[field.id] for field in table.fields if field.id in by_id)
    metadata = dict(table.metadata)
    return SourceFit(
        Schema(tuple(in_order[index] for index in column_indexes), metadata),
        Schema(in_order, metadata),
        column_indexes,
        tuple(casts[index] for index in column_indexes),
        table,
    )


def _all_nullable(schema: Schema) -> Schema:
    """The schema with all fields nullable."""

    def relaxed(field: Field) -> Field:
        if field.nullable and not field.children:  # fast path: most fields
            return field
        return replace(field, nullable=True, children=tuple(relaxed(child) for child in field.children))

    return Schema(tuple(relaxed(field) for field in schema.fields), dict(schema.metadata))


def _with_nullability(field: Field, original: dict[int, Field]) -> Field:
    known = original.get(field.id, field)
    if known.nullable == field.nullable and not field.children:  # fast path
        return field
    return replace(
        field, nullable=known.nullable, children=tuple(_with_nullability(child, original) for child in field.children)
    )


def _lacks_members(given: Field, whole: Field) -> bool:
    if whole.holds_blobs or whole.logical_type != "struct":
        return False  # lists replace the old ones; members that their items lack become null
    by_id = {child.id: child for child in given.children}
    return any(child.id not in by_id or _lacks_members(by_id[child.id], child) for child in whole.children)


def _missing_members(given: Field, whole: Field, path: str) -> list[str]:
    by_id = {child.id: child for child in given.children}
    missing: list[str] = []
    for child in whole.children:
        name = f"{path}.{child.name}"
        if child.id not in by_id:
            missing += [] if child.nullable else [name]
        elif _lacks_members(by_id[child.id], child):
            missing += _missing_members(by_id[child.id], child, name)
    return missing


# -- types -----------------------------------------------------------------------------------------------------------


def _lossless(given: pa.Field, table: Schema) -> pa.DataType | None:
    """The type of the table's column if a lossless cast to it is needed, else None."""
    known = next((field for field in table.fields if field.name == given.name), None)
    if known is None or known.holds_blobs or known.extension_name is not None:
        return None
    wanted = known.arrow_type
    return wanted if given.type != wanted and _holds(wanted, given.type) else None


def _holds(wanted: pa.DataType, given: pa.DataType) -> bool:
    if pt.is_null(given):
        return True
    if pt.is_dictionary(given):
        return not pt.is_dictionary(wanted) and (given.value_type == wanted or _holds(wanted, given.value_type))
    if wanted in _INTEGER_BITS and given in _INTEGER_BITS:
        (bits, is_signed), (given_bits, given_is_signed) = _INTEGER_BITS[wanted], _INTEGER_BITS[given]
        return given_bits <= bits if is_signed == given_is_signed else is_signed and given_bits < bits
    if wanted in _FLOAT_BITS and given in _FLOAT_BITS:
        return _FLOAT_BITS[given] <= _FLOAT_BITS[wanted]
    return any(is_kind(wanted) and is_kind(given) for is_kind in (_is_text, _is_bytes))


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pt.is_string(dtype) or pt.is_large_string(dtype) or pt.is_string_view(dtype))


def _is_bytes(dtype: pa.DataType) -> bool:
    return bool(pt.is_binary(dtype) or pt.is_large_binary(dtype) or pt.is_binary_view(dtype))


def _cast(array: pa.Array, to: pa.DataType) -> pa.Array:
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        return pc.cast(array, to)
    except pa.ArrowInvalid as error:
        raise OperationError(f"a value of the source does not fit the table's type {to}: {error}") from error


def joined_struct(given: pa.Array, target: pa.Array, given_field: Field, whole: Field) -> pa.Array:
    """Merge a struct: members that the source has come from it, the others from the table.

    A row is null if both structs are null.
    """
    by_id = {child.id: number for number, child in enumerate(given_field.children)}
    members = []
    for number, child in enumerate(whole.children):
        index = by_id.get(child.id)
        known = _member(target, number)
        if index is None:
            members.append(known)
            continue
        new, new_field = _member(given, index), given_field.children[index]
        members.append(joined_struct(new, known, new_field, child) if _lacks_members(new_field, child) else new)
    absent = pc.and_(given.is_null(), target.is_null())
    fields = [pa.field(child.name, member.type, True) for child, member in zip(whole.children, members, strict=True)]
    return pa.StructArray.from_arrays(members, fields=fields, mask=absent if absent.true_count else None)


def _member(struct: pa.Array, number: int) -> pa.Array:
    """A member of a struct; null if the struct is null."""
    return pc.struct_field(struct, [number])


def padded_struct(given: pa.Array, given_field: Field, whole: Field) -> pa.Array:
    """A struct with all members of the table's; those that the source lacks are null."""
    nothing = pa.nulls(len(given), whole.arrow_type)
    return joined_struct(given, nothing, given_field, whole)


def arranged(array: pa.Array, given: Field, wanted: Field, to: pa.DataType) -> pa.Array:
    """A column of the source with the members of structs in the order of `wanted`, cast to an equivalent type.

    given, wanted  source and target fields, with the same members, except that items of lists may lack some
    to             Arrow type of `wanted`
    """
    if not wanted.children or wanted.holds_blobs or isinstance(to, pa.BaseExtensionType):
        return array if array.type == to else array.cast(to)
    if pt.is_struct(to):
        by_id = {child.id: index for index, child in enumerate(given.children)}
        members = []
        for number, child in enumerate(wanted.children):
            index, dtype = by_id.get(child.id), to.field(number).type
            absent = index is None
            member = pa.nulls(len(array), dtype) if absent else array.field(index)
            members.append(member if absent else arranged(member, given.children[index or 0], child, dtype))
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(to), mask=mask)
    if pt.is_list(to) or pt.is_large_list(to):
        items, offsets = items_of(array)
        items = arranged(items, given.children[0], wanted.children[0], to.value_type)
        return with_items(array, offsets, items).cast(to)
    return array if array.type == to else array.cast(to)
