"""Derived state of a schema for all files written with it: columns, their options, and the ingestion of batches.

A plan is created once and cached with its schema, without keeping the schema alive, so that small appends need not
process all fields.
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
    """The plan of files of this schema and version, cached.

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
    """See `file_plan`.

    by_field          columns and their options per top-level field: leaves, in version 2.0 also structs and lists
    field_ids         field ids of the columns
    num_columns       number of columns
    small_kinds       per column: kind for encoding small pages together; None for others and in version 2.0
    blob_columns      columns of blobs in version 2.0, which files mark
    text_columns      indexes of the top-level fields that hold text
    has_dictionaries  whether any field has a dictionary type
    has_blobs         whether any field has blobs
    described         the fields as files describe them: blobs of the second kind by the content of their column
    """

    def __init__(self, schema: Schema, version: FileVersion) -> None:
        check_writable(schema, version)
        self._fields = schema.fields
        self.described = tuple(_describe(field) for field in schema.fields)
        paths_of = column_paths if version == V2_0 else leaf_paths
        below = [paths_of(field) for field in schema.fields]
        self.by_field = [[(path, column_options(path.top, path.leaf)) for path in paths] for paths in below]
        columns = [path for paths in below for path in paths]
        self.field_ids = tuple(path.leaf.id for path in columns)
        self.num_columns = len(columns)
        self.small_kinds = [
            None if version == V2_0 else small_kind(path, options) for paths in self.by_field for path, options in paths
        ]
        is_marked = version == V2_0 and schema.has_blobs
        self.blob_columns = frozenset(at for at, path in enumerate(columns) if is_marked and path.leaf.is_blob)
        self.text_columns = tuple(at for at, field in enumerate(schema.fields) if holds_text(field))
        self.has_dictionaries = any("dict:" in field.logical_type for field in schema.walk())
        self.has_blobs = schema.has_blobs
        self._batches: tuple[pa.Schema, list[tuple[int, Ingest]]] | None = None

    def ingesters(self, batches: pa.Schema) -> list[tuple[int, Ingest]]:
        """For batches of this schema: per top-level field, its column and the function that converts it to stored form.

        Raises `SchemaError` for a missing column or another type.
        """
        known = self._batches
        if known is None or not known[0].equals(batches, check_metadata=True):
            known = self._batches = batches, _ingests(self._fields, batches)
        return known[1]


def _ingests(fields: Sequence[Field], batches: pa.Schema) -> list[tuple[int, Ingest]]:
    columns = [_column_of(field, batches) for field in fields]
    is_all = columns == list(range(len(batches)))
    batch_fields = schema_from_arrow(batches if is_all else pa.schema([batches.field(at) for at in columns])).fields
    types = batches.types
    return [
        (at, ingester(field, types[at], batch_field))
        for at, field, batch_field in zip(columns, fields, batch_fields, strict=True)
    ]


def _column_of(field: Field, batches: pa.Schema) -> int:
    indices: list[int] = batches.get_all_field_indices(field.name)
    if len(indices) != 1:
        raise SchemaError(f"Cannot write batch. The batch was missing the column `{field.name}`, or has it twice")
    return indices[0]


def _describe(field: Field) -> Field:
    if field.is_blob_v2:
        return field.describe_blobs()
    if field.has_column:
        return field
    children = tuple(_describe(child) for child in field.children)
    return field if children == field.children else replace(field, children=children)
