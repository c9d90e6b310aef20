"""Which columns a read gives, and what Spark calls their types."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io.dataset.version.column_lists import OutputColumn, Projection, project
from lance_io.dataset.version.system_columns import ROW_ADDRESS, ROW_ID, ROW_OFFSET, system_field
from lance_io.errors import BindError, SchemaError, UnsupportedError
from lance_io.spark.types import arrow_to_spark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from lance_io.dataset.version.state import DatasetState
    from lance_io.spark.options import ReadOptions

FRAGMENT_ID: Final = "_fragid"


def read_projection(state: DatasetState, options: ReadOptions, names: Sequence[str] | None = None) -> Projection:
    """The output columns of a read.

    names  which of them, in this order; None for all
    Raises `BindError` for columns that the table lacks, or that occur twice, and `UnsupportedError` for `_rowoffset`,
    which a task cannot know.
    """
    plain = project(state.schema, None) if options.columns is None else _named_columns(state, options.columns)
    outputs = [*state.shown(plain, "all_binary" if options.blobs == "binary" else None).outputs]
    wanted = (
        (ROW_ID, ROW_ID, options.with_row_id),
        (ROW_ADDRESS, ROW_ADDRESS, options.with_row_address),
        (FRAGMENT_ID, ROW_ADDRESS, options.with_fragment_id),
    )
    outputs += [OutputColumn(name, (source,), system_field(name)) for name, source, asked in wanted if asked]
    by_name = {output.name: output for output in outputs}
    if len(by_name) < len(outputs):
        raise BindError(f"columns occur twice: {', '.join(output.name for output in outputs)}")
    if any(output.path == (ROW_OFFSET,) for output in outputs):
        raise UnsupportedError(f"{ROW_OFFSET} counts the rows of the whole table, which a task does not see")
    missing = [name for name in names or () if name not in by_name]
    if missing:
        raise BindError(f"the schema names {', '.join(missing)}; the columns of this read are {', '.join(by_name)}")
    return replace(plain, outputs=tuple(outputs if names is None else [by_name[name] for name in names]))


def _named_columns(state: DatasetState, columns: Sequence[tuple[str, ...]]) -> Projection:
    """Members of structs become columns of their own, called by their path."""
    quoted = [".".join(f"`{name.replace('`', '``')}`" for name in path) for path in columns]
    projection = project(state.schema, quoted)
    named = [
        replace(output, name=".".join(output.path), field=output.field.with_name(".".join(output.path)))
        for output in projection.outputs
    ]
    return replace(projection, outputs=tuple(named))


def shown_schema(projection: Projection) -> pa.Schema:
    """The columns as they are mapped to Spark: row ids and addresses are plain int64 there."""
    return pa.schema([one.field.with_type(pa.int64()) if one.is_system else one.field for one in projection.outputs])


def decoded_width(dtype: pa.DataType) -> tuple[float, int]:
    """Bytes of a value as far as its type says, and how many parts of it have no fixed width."""
    if isinstance(dtype, pa.BaseExtensionType):
        return decoded_width(dtype.storage_type)
    if pa.types.is_dictionary(dtype):
        return decoded_width(dtype.value_type)
    if pa.types.is_fixed_size_list(dtype):
        fixed, variable = decoded_width(dtype.value_type)
        return dtype.list_size * fixed, dtype.list_size * variable
    if pa.types.is_struct(dtype):
        members = [decoded_width(member.type) for member in dtype]
        return sum(fixed for fixed, _ in members), sum(variable for _, variable in members)
    if pa.types.is_null(dtype):
        return 0.0, 0
    try:
        return dtype.bit_width / 8, 0
    except ValueError:  # texts, lists, maps
        return 0.0, 1


def read_schema(state: DatasetState, options: ReadOptions) -> StructType:
    """The Spark schema of a read. Raises as `read_projection` and `arrow_to_spark` do."""
    schema = shown_schema(read_projection(state, options))
    return arrow_to_spark(schema, uint64=options.uint64, timestamp_ns=options.timestamp_ns)


def check_declared(declared: StructType, found: StructType) -> None:
    """Raise `SchemaError` where the user's own schema gives a column another type than the table.

    found  the schema of the same columns as the table has them
    """
    for ours, theirs in zip(found.fields, declared.fields, strict=True):
        if ours.dataType.simpleString() != theirs.dataType.simpleString():
            raise SchemaError(
                f"column {ours.name} is {ours.dataType.simpleString()}, and the schema given to the read says "
                f"{theirs.dataType.simpleString()}; read it as it is and cast it in Spark"
            )
