"""From arrays as they are stored to arrays of the types that users see. Nothing is copied (but JSON).

The file room gives storage arrays: no extension types, no metadata on members. Their memory is that of the type the
schema declares, so a batch is handed through Arrow's C interface with the declared schema in place of its own. JSON is
the exception: it is stored in another form and becomes text here.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lance_io.dataset.jsonb import json_texts
from lance_io.errors import UnsupportedError


class _Declared:
    """A record batch that shows another schema, of the same physical layout."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch = batch
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        _, memory = self._batch.__arrow_c_array__()
        return pa.struct(list(self._schema)).__arrow_c_schema__(), memory


def needs_retyping(schema: pa.Schema) -> bool:
    """Whether storage arrays of this schema have other types than it declares.

    Raises `UnsupportedError` for JSON below a struct or list, which cannot be turned into text in place.
    """
    for field in schema:
        if not _is_json(field.type) and _holds_json(field.type):
            raise UnsupportedError(f"column {field.name!r}: JSON below a struct or list is not read yet")
    return any(_has_extension(field.type) for field in schema)


def _is_json(dtype: pa.DataType) -> bool:
    return isinstance(dtype, pa.BaseExtensionType) and dtype.extension_name == "arrow.json"


def _holds_json(dtype: pa.DataType) -> bool:
    return _is_json(dtype) or any(_holds_json(dtype.field(i).type) for i in range(dtype.num_fields))


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
    arrays = [json_texts(one) if _is_json(field.type) else one for one, field in zip(arrays, schema, strict=True)]
    stored = pa.RecordBatch.from_arrays(arrays, [field.name for field in schema])
    declared = pa.record_batch(_Declared(stored, schema))
    return declared.replace_schema_metadata(schema.metadata)
