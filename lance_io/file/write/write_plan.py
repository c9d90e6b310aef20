"""The plan of a data file: columns, their encoding options, and functions that convert batches to stored form.

A plan depends only on schema and file version, and is cached by them, so that small appends need not process all
fields. The cache does not keep the schema alive.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lance_io.encodings.options import column_options
from lance_io.encodings.write_small import small_kind
from lance_io.errors import SchemaError
from lance_io.format.per_schema import PerSchema
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_0
from lance_io.format.writable import check_writable
from lance_io.levels.ingest import ingester
from lance_io.levels.path import column_paths, leaf_paths
from lance_io.levels.text_check import holds_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.format.schema import Field, Schema
    from lance_io.format.version import FileVersion

    Ingest = Callable[[pa.Array], pa.Array]

_PLANS: Final[PerSchema[dict[FileVersion, FilePlan]]] = PerSchema("file plans by version")


def file_plan(schema: Schema, version: FileVersion) -> FilePlan:
    """The plan of files of this schema and version, from the cache or new.

    Raises `SchemaError` and `UnsupportedError` for schemas that such files cannot hold, `UsageError` for invalid
    encoding options.
    """
    plans = _PLANS.get(schema)
    if plans is None:
        plans = _PLANS.keep(schema, {})
    plan = plans.get(version)
    if plan is None:
        plan = plans[version] = FilePlan(schema, version)
    return plan


class FilePlan:
    """The plan of all files of one schema and version; `file_plan` returns it.

    A column of a file belongs to a leaf of the schema; in version 2.0, structs and lists have columns, too.

    columns_by_field  for each top-level field, its columns: the path in the schema and the encoding options
    field_ids         field id of each column
    num_columns       number of columns
    small_kinds       for each column, the number of its type in the Rust kernel for small pages (`small_kind`); None
                      for columns that this kernel does not encode, and for all columns in version 2.0
    blob_columns      in version 2.0, the indexes of the blob columns, which files mark; empty in other versions
    text_columns      indexes of the top-level fields that hold text
    has_dictionaries  whether any field has a dictionary type
    has_blobs         whether any field, at any depth, is a blob column
    file_fields       the top-level fields in the schema of a file: each blob of kind v2 (`Field.is_blob_v2`) is
                      replaced by the struct that describes where its bytes are
    """

    def __init__(self, schema: Schema, version: FileVersion) -> None:
        check_writable(schema, version)
        self._fields = schema.fields
        self.file_fields = tuple(_file_field(field) for field in schema.fields)
        find_paths = column_paths if version == V2_0 else leaf_paths
        paths_by_field = [find_paths(field) for field in schema.fields]
        self.columns_by_field = [
            [(path, column_options(path.top, path.leaf)) for path in paths] for paths in paths_by_field
        ]
        columns = [path for paths in paths_by_field for path in paths]
        self.field_ids = tuple(path.leaf.id for path in columns)
        self.num_columns = len(columns)
        self.small_kinds = [
            None if version == V2_0 else small_kind(path, options)
            for field_columns in self.columns_by_field
            for path, options in field_columns
        ]
        marks_blobs = version == V2_0 and schema.has_blobs
        self.blob_columns = frozenset(at for at, path in enumerate(columns) if marks_blobs and path.leaf.is_blob)
        self.text_columns = tuple(at for at, field in enumerate(schema.fields) if holds_text(field))
        self.has_dictionaries = any("dict:" in field.logical_type for field in schema.walk())
        self.has_blobs = schema.has_blobs
        self._last_ingesters: tuple[pa.Schema, list[tuple[int, Ingest]]] | None = None

    def ingesters(self, batch_schema: pa.Schema) -> list[tuple[int, Ingest]]:
        """For each top-level field, the index of its column in batches, and the function that converts this column.

        The functions return arrays in stored form. Raises `SchemaError` if a column is missing, exists twice, or has
        another type than its field.
        """
        last = self._last_ingesters
        if last is None or not last[0].equals(batch_schema, check_metadata=True):
            last = self._last_ingesters = batch_schema, _make_ingesters(self._fields, batch_schema)
        return last[1]


def _make_ingesters(fields: Sequence[Field], batch_schema: pa.Schema) -> list[tuple[int, Ingest]]:
    columns = [_column_index(field, batch_schema) for field in fields]
    is_same_order = columns == list(range(len(batch_schema)))
    in_order = batch_schema if is_same_order else pa.schema([batch_schema.field(at) for at in columns])
    batch_fields = schema_from_arrow(in_order).fields
    types = batch_schema.types
    return [
        (at, ingester(field, types[at], batch_field))
        for at, field, batch_field in zip(columns, fields, batch_fields, strict=True)
    ]


def _column_index(field: Field, batch_schema: pa.Schema) -> int:
    indices: list[int] = batch_schema.get_all_field_indices(field.name)
    if len(indices) != 1:
        raise SchemaError(f"Cannot write batch. The batch was missing the column `{field.name}`, or has it twice")
    return indices[0]


def _file_field(field: Field) -> Field:
    if field.is_blob_v2:
        return field.describe_blobs()
    if field.has_column:
        return field
    children = tuple(_file_field(child) for child in field.children)
    return field if children == field.children else replace(field, children=children)
