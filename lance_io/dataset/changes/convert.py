"""Operations and fragments between their public forms and those that commits work with.

Public ones are plain values with pylance's names, which jobs send around; those of the table room are checked ones.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from lance_io.dataset.changes.lance_operation import DatasetBasePath, Index, IndexFile, LanceOperation, Transaction
from lance_io.dataset.version.describe import fragment_metadata
from lance_io.dataset.version.fragment_metadata import DataFile, FragmentMetadata
from lance_io.dataset.version.lance_schema import LanceSchema
from lance_io.dataset.write.schema_fit import DEFAULT_VERSION, of_version
from lance_io.errors import UnsupportedError, UsageError
from lance_io.format.schema import numbered
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import version_of_pair
from lance_io.table.manifest import fragment as stored
from lance_io.table.manifest.index_details import IndexFacts, index_facts, new_index
from lance_io.table.manifest.manifest import BasePath
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.field_ids import first_free_id
from lance_io.table.transaction.transaction import Transaction as StoredTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from lance_io.format.schema import Field, Schema
    from lance_io.format.version import FileVersion
    from lance_io.table.manifest.index_section import IndexMetadata
    from lance_io.table.manifest.manifest import Manifest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_stored(transaction: Transaction | StoredTransaction, table: Manifest | None) -> StoredTransaction:
    """The form that is committed; what has it already stays as it is.

    table  a version whose field ids a schema without ids keeps by name; None when there is no table
    Raises `UsageError` for values that make no sense, `UnsupportedError` for operations that are not committed.
    """
    if isinstance(transaction, StoredTransaction):
        return transaction
    return StoredTransaction(
        read_version=transaction.read_version,
        operation=_operation(transaction.operation, table),
        uuid=transaction.uuid,
        properties=dict(transaction.transaction_properties or {}),
    )


def _operation(operation: LanceOperation.BaseOperation, table: Manifest | None) -> ops.Operation:
    match operation:
        case LanceOperation.Append():
            return ops.Append(_fragments(operation.fragments))
        case LanceOperation.Delete():
            updated, deleted = _fragments(operation.updated_fragments), tuple(operation.deleted_fragment_ids)
            return ops.Delete(updated, deleted, operation.predicate)
        case LanceOperation.Overwrite():
            bases = tuple(BasePath(one.id or 0, one.path, one.is_dataset_root, one.name) for one in _bases(operation))
            fragments = _fragments(operation.fragments)
            schema = _schema_of_files(_schema(operation.new_schema), fragments, table)
            return ops.Overwrite(fragments, schema, {}, bases)
        case LanceOperation.Update():
            return ops.Update(
                removed_fragment_ids=tuple(operation.removed_fragment_ids),
                updated_fragments=_fragments(operation.updated_fragments),
                new_fragments=_fragments(operation.new_fragments),
                fields_modified=tuple(operation.fields_modified),
                fields_for_preserving_frag_bitmap=tuple(operation.fields_for_preserving_frag_bitmap),
                mode="rewrite_columns" if operation.update_mode == "rewrite_columns" else "rewrite_rows",
                updated_offsets=dict(operation.updated_fragment_offsets or {}),
            )
        case LanceOperation.Merge():
            fragments, schema = _fragments(operation.fragments), _schema(operation.schema, table)
            return ops.Merge(fragments, schema, operation.preserves_nullability)
        case LanceOperation.Project():
            return ops.Project(_schema(operation.schema, table), operation.preserves_nullability)
        case LanceOperation.Restore():
            return ops.Restore(operation.version)
        case LanceOperation.Rewrite():
            groups = tuple(
                ops.RewriteGroup(_fragments(one.old_fragments), _fragments(one.new_fragments))
                for one in operation.groups
            )
            rewritten = tuple(ops.RewrittenIndex(one.old_id, one.new_id) for one in operation.rewritten_indices)
            return ops.Rewrite(groups, rewritten)
        case LanceOperation.CreateIndex():
            new, removed = operation.new_indices, operation.removed_indices
            return ops.CreateIndex(tuple(map(_index, new)), tuple(map(_index, removed)))
        case LanceOperation.DataReplacement():
            return ops.DataReplacement(
                tuple((one.fragment_id, stored_file(one.new_file)) for one in operation.replacements)
            )
        case LanceOperation.UpdateConfig():
            fields = operation.field_metadata_updates or {}
            return ops.UpdateConfig(
                config=_map(operation.config_updates),
                table_metadata=_map(operation.table_metadata_updates),
                schema_metadata=_map(operation.schema_metadata_updates),
                field_metadata={
                    number: ops.UpdateMap(dict(one.updates), one.replace) for number, one in fields.items()
                },
            )
        case _:
            raise UnsupportedError(f"this release does not commit {type(operation).__name__}")


def _bases(operation: LanceOperation.Overwrite) -> list[DatasetBasePath]:
    return operation.initial_bases or []


def _map(updates: LanceOperation.UpdateMap | None) -> ops.UpdateMap | None:
    return None if updates is None else ops.UpdateMap(dict(updates.updates), updates.replace)


def _schema(schema: LanceSchema | pa.Schema, table: Manifest | None = None) -> Schema:
    """A schema with ids: its own, or the table's for fields of the same name and type, or new ones.

    New ones follow those that the table ever used, also in fields that it dropped: their values are still in files.
    """
    if isinstance(schema, LanceSchema):
        return schema._schema
    fresh = schema_from_arrow(schema)
    if table is None:
        return fresh
    fresh = of_version(fresh, table.data_version)
    ids = count(first_free_id(table.message))
    return replace(fresh, fields=_with_ids(fresh.fields, table.schema.fields, ids))


def _schema_of_files(schema: Schema, fragments: Iterable[stored.Fragment], table: Manifest | None) -> Schema:
    """The schema of an Overwrite, with blobs of the kind that its files hold.

    Blobs of the second kind have members. Files count their ids in where they stand, but those that pylance writes to
    replace a table count them behind all others: of the two, that is taken which has the columns of the files.
    """
    files = [file for fragment in fragments for file in fragment.files]
    version: FileVersion = DEFAULT_VERSION if table is None else table.data_version
    version = max((file.version for file in files), default=version)
    numbered = of_version(schema, version)
    columns = {field.id for field in numbered.leaves()}
    if numbered is schema or all(one in columns for file in files for one in file.fields):
        return numbered
    return of_version(schema, version, keeps_ids=True)


def _with_ids(given: Iterable[Field], known: Iterable[Field], ids: Iterator[int]) -> tuple[Field, ...]:
    """Fields with the ids of those that are known; what encloses a new field may be known."""
    by_name = numbered(known)
    fields = []
    for key, field in numbered(given).items():
        old = by_name.get(key)
        if old is not None and old.holds_blobs and field.holds_blobs:  # however its values are handed over
            fields.append(replace(old, nullable=field.nullable))
            continue
        if old is not None and old.logical_type != field.logical_type:
            old = None
        field_id = next(ids) if old is None else old.id
        children = _with_ids(field.children, () if old is None else old.children, ids)
        fields.append(replace(field, id=field_id, children=children))
    return tuple(fields)


def _index(index: Index) -> IndexMetadata:
    created = None if index.created_at is None else (index.created_at.astimezone(UTC) - EPOCH) // _MILLISECOND
    facts = IndexFacts(
        index_version=index.index_version,
        created_at_ms=created,
        base_id=index.base_id,
        files=tuple((one.path, one.size_bytes) for one in index.files or ()),
        details=index.index_details,
    )
    fields, covering = index.fields, index.covering_fields
    return new_index(index.uuid, index.name, fields, index.dataset_version, index.fragment_ids, covering, facts)


def _fragments(fragments: Iterable[FragmentMetadata]) -> tuple[stored.Fragment, ...]:
    return tuple(stored_fragment(one) for one in fragments)


def stored_fragment(fragment: FragmentMetadata) -> stored.Fragment:
    """A fragment as commits work with it. Raises `UsageError` for one with parts that are not committed."""
    if fragment.overlays:
        raise UnsupportedError("fragments with overlay files are not part of this release")
    deletion = fragment.deletion_file
    created, updated = fragment.created_at_version_meta, fragment.last_updated_at_version_meta
    return stored.Fragment(
        id=fragment.id,
        files=tuple(stored_file(one) for one in fragment.files),
        deletion_file=None
        if deletion is None
        else stored.DeletionFile(
            kind=_deletion_kind(deletion.file_type),
            read_version=deletion.read_version,
            id=deletion.id,
            num_deleted_rows=deletion.num_deleted_rows,
            base_id=deletion.base_id,
        ),
        physical_rows=fragment.physical_rows,
        row_ids=None if fragment.row_id_meta is None else fragment.row_id_meta.data,
        created_at_versions=None if created is None else created.data,
        last_updated_at_versions=None if updated is None else updated.data,
    )


def _deletion_kind(file_type: str) -> stored.DeletionKind:
    if file_type not in ("array", "bitmap"):
        raise UsageError(f"file_type of a deletion file must be array or bitmap, got {file_type!r}")
    return "arrow" if file_type == "array" else "bitmap"


def stored_file(file: DataFile) -> stored.DataFile:
    """A data file as commits work with it."""
    return stored.DataFile(
        path=file.path,
        fields=tuple(file.fields),
        column_indices=tuple(file.column_indices),
        version=version_of_pair(file.file_major_version, file.file_minor_version),
        size_bytes=file.file_size_bytes,
        base_id=file.base_id,
    )


# -- and back --------------------------------------------------------------------------------------------------------


def to_public(transaction: StoredTransaction) -> Transaction:
    """What users see of a transaction; operations that have no public form are a plain `BaseOperation`."""
    operation = _public(transaction.operation)
    return Transaction(transaction.read_version, operation, transaction.uuid, dict(transaction.properties))


def _public(operation: ops.Operation) -> LanceOperation.BaseOperation:
    match operation:
        case ops.Append():
            return LanceOperation.Append(_metadata(operation.fragments))
        case ops.Delete():
            updated, deleted = _metadata(operation.updated_fragments), list(operation.deleted_fragment_ids)
            return LanceOperation.Delete(updated, deleted, operation.predicate)
        case ops.Overwrite():
            bases = [
                DatasetBasePath(one.path, one.name, one.is_dataset_root, one.id) for one in operation.initial_bases
            ]
            schema, fragments = LanceSchema(operation.schema), _metadata(operation.fragments)
            return LanceOperation.Overwrite(schema, fragments, bases or None)
        case ops.Update():
            return LanceOperation.Update(
                removed_fragment_ids=list(operation.removed_fragment_ids),
                updated_fragments=_metadata(operation.updated_fragments),
                new_fragments=_metadata(operation.new_fragments),
                fields_modified=list(operation.fields_modified),
                fields_for_preserving_frag_bitmap=list(operation.fields_for_preserving_frag_bitmap),
                update_mode=operation.mode,
                updated_fragment_offsets=dict(operation.updated_offsets) or None,
            )
        case ops.Merge():
            schema = LanceSchema(operation.schema)
            return LanceOperation.Merge(_metadata(operation.fragments), schema, operation.preserves_nullability)
        case ops.Project():
            return LanceOperation.Project(LanceSchema(operation.schema), operation.preserves_nullability)
        case ops.Restore():
            return LanceOperation.Restore(operation.version)
        case ops.Rewrite():
            groups = [
                LanceOperation.RewriteGroup(_metadata(one.old_fragments), _metadata(one.new_fragments))
                for one in operation.groups
            ]
            rewritten = [
                LanceOperation.RewrittenIndex(one.old_uuid, one.new_uuid, "", b"", 0)
                for one in operation.rewritten_indices
            ]
            return LanceOperation.Rewrite(groups, rewritten)
        case ops.CreateIndex():
            new, removed = operation.new_indices, operation.removed_indices
            return LanceOperation.CreateIndex(list(map(_public_index, new)), list(map(_public_index, removed)))
        case ops.DataReplacement():
            return LanceOperation.DataReplacement(
                [
                    LanceOperation.DataReplacementGroup(number, _public_file(file))
                    for number, file in operation.replacements
                ]
            )
        case ops.UpdateConfig():
            fields = {number: _public_map(one) for number, one in operation.field_metadata.items()}
            return LanceOperation.UpdateConfig(
                config_updates=_public_map(operation.config),
                table_metadata_updates=_public_map(operation.table_metadata),
                schema_metadata_updates=_public_map(operation.schema_metadata),
                field_metadata_updates={number: one for number, one in fields.items() if one is not None} or None,
            )
        case ops.Clone():
            return LanceOperation.Clone(
                operation.is_shallow,
                operation.ref_name,
                operation.ref_version,
                operation.ref_path,
                operation.branch_name,
            )
        case _:
            return LanceOperation.BaseOperation()


def _public_map(updates: ops.UpdateMap | None) -> Any:
    return None if updates is None else LanceOperation.UpdateMap(dict(updates.entries), updates.replace)


def _metadata(fragments: Iterable[stored.Fragment]) -> list[FragmentMetadata]:
    return [fragment_metadata(one) for one in fragments]


def _public_file(file: stored.DataFile) -> DataFile:
    return DataFile(
        path=file.path,
        fields=list(file.fields),
        column_indices=list(file.column_indices),
        file_major_version=file.version.major,
        file_minor_version=file.version.minor,
        file_size_bytes=file.size_bytes,
        base_id=file.base_id,
    )


def _public_index(index: IndexMetadata) -> Index:
    facts = index_facts(index)
    created = None if facts.created_at_ms is None else EPOCH + facts.created_at_ms * _MILLISECOND
    return Index(
        uuid=index.uuid,
        name=index.name,
        fields=list(index.fields),
        dataset_version=index.dataset_version,
        fragment_ids=set(index.fragment_ids or ()),
        index_version=facts.index_version,
        created_at=created,
        base_id=facts.base_id,
        files=[IndexFile(path, size_bytes) for path, size_bytes in facts.files] or None,
        index_details=facts.details,
        covering_fields=list(index.covering_fields),
    )
