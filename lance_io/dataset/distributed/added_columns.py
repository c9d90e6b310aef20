"""Columns that a statement adds together with rows: `INSERT` and `MERGE WITH SCHEMA EVOLUTION`.

    with_null_columns   the version that the statement reads, as if the columns were there: no store has it
    merge_of            the operation that commits both: a `Merge`, the only one that carries a schema and fragments

A `Merge` lists all fragments of the table, so any commit that changes rows in between is a conflict. A fragment that
loses its last row is listed with all rows deleted; the version leaves it out.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_io.changes.columns.new_columns import with_fields
from lance_io.changes.edits.delete_rows import with_new_deletion_file
from lance_io.errors import OperationError
from lance_io.format.schema_messages import encode_schema
from lance_io.format.version import V0_1
from lance_io.proto import table_pb2
from lance_io.table.manifest.partial_manifest import decode_whole
from lance_io.table.transaction.operations import Merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.changes.edits.delete_rows import Deletion
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.manifest import Manifest


def with_null_columns(state: DatasetState, fields: Sequence[pa.Field[Any]]) -> DatasetState:
    """The state of a version with further columns, null in all rows. Raises `OperationError`."""
    if state.manifest.data_version == V0_1:
        raise OperationError(f"tables of file version {V0_1.name} get columns together with their values only")
    for field in fields:
        if not field.nullable:
            raise OperationError(f"column {field.name}: a new column is null in the rows that are there")
    schema, _ = with_fields(state, pa.schema(fields))
    message = table_pb2.Manifest()
    message.CopyFrom(state.manifest.message)
    message.ClearField("fields")
    message.fields.extend(encode_schema(schema))
    digest = blake2b(b"".join(field.SerializeToString() for field in message.fields), digest_size=16).hexdigest()
    message.transaction_file = f"{message.transaction_file}#{digest}"  # by which caches know a version
    return replace(state, manifest=decode_whole(message.SerializeToString()))


def merge_of(state: DatasetState, deletion: Deletion, new: Sequence[Fragment]) -> Merge:
    """The operation that deletes rows, adds fragments and has the schema of the state.

    deletion  gets the deletion files of fragments without rows
    """
    updated, removed = (
        {fragment.id: fragment for fragment in deletion.updated_fragments},
        set(deletion.removed_fragment_ids),
    )
    fragments = [updated.get(fragment.id, fragment) for fragment in state.manifest.fragments]
    for index, fragment in enumerate(fragments):
        if fragment.id in removed:
            rows = np.arange(int(state.physical_rows[index]), dtype=np.uint32)
            fragments[index] = with_new_deletion_file(state, fragment, rows, deletion.deletion_files)
    first = next_fragment_id(state.manifest)
    fragments += [replace(fragment, id=first + index) for index, fragment in enumerate(new)]
    return Merge(tuple(fragments), state.schema, preserves_nullability=True)


def next_fragment_id(manifest: Manifest) -> int:
    """An id that no fragment of a table has had, nor any above it."""
    allocated = manifest.max_fragment_id
    return 1 + max(-1 if allocated is None else allocated, max((each.id for each in manifest.fragments), default=-1))
