"""From arrays as they are stored to arrays of the types that users see. Nothing is copied.

The file room gives storage arrays: no extension types, no metadata on members. Their memory is that of the type the
schema declares, so a batch is handed through Arrow's C interface with the declared schema in place of its own.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


class _Declared:
    """A record batch that shows another schema, of the same physical layout."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch = batch
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        _, memory = self._batch.__arrow_c_array__()
        return pa.struct(list(self._schema)).__arrow_c_schema__(), memory


def needs_retyping(schema: pa.Schema) -> bool:
    """Whether storage arrays of this schema have other types than it declares."""
    return any(_has_extension(field.type) for field in schema)


def _has_extension(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return True
    if pa.types.is_dictionary(dtype):
        return _has_extension(dtype.value_type)
    return any(_has_extension(dtype.field(i).type) for i in range(dtype.num_fields))


def batch_as(arrays: list[pa.Array], schema: pa.Schema, *, retype: bool) -> pa.RecordBatch:
    """A record batch of `schema` over storage arrays.

    retype  what `needs_retyping` said about the schema
    """
    if not retype:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    stored = pa.RecordBatch.from_arrays(arrays, [field.name for field in schema])
    declared = pa.record_batch(_Declared(stored, schema))
    return declared.replace_schema_metadata(schema.metadata)
