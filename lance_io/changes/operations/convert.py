"""Conversion of transactions between their public form and the stored form, which commits use.

The public form has plain values with pylance's names; jobs exchange and may change them. The stored form, in `table/`,
is checked, refers to a table's field ids, and keeps unknown data of other writers in fragments. Classes and fields have
the same names in both, so a field is converted by its name (`_FIELDS`), and an operation by its fields. Decision 006
explains why there are two.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from lance_io.changes.operations.lance_operation import DatasetBasePath, Index, IndexFile, LanceOperation, Transaction
from lance_io.changes.operations.schema_fit import DEFAULT_VERSION, of_version
from lance_io.errors import UnsupportedError
from lance_io.format.schema import number_names
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.proto import table_pb2
from lance_io.reads.metadata.describe import data_file, fragment_metadata, stored_file, stored_fragment
from lance_io.reads.metadata.lance_schema import LanceSchema
from lance_io.table.manifest.index_section import decode_index, encode_fragment_ids, encode_index
from lance_io.table.manifest.manifest import BasePath
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.field_ids import first_free_id
from lance_io.table.transaction.transaction import Transaction as StoredTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from lance_io.format.schema import Field, Schema
    from lance_io.format.version import FileVersion
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.index_section import IndexMetadata
    from lance_io.table.manifest.manifest import Manifest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_COMMITTED: Final = (
    "Append Delete Overwrite Update Merge Project Restore Rewrite CreateIndex DataReplacement UpdateConfig".split()
)
_SHOWN: Final = frozenset({*_COMMITTED, "Clone"})


def to_stored(transaction: Transaction | StoredTransaction, table: Manifest | None) -> StoredTransaction:
    """Convert a transaction to the stored form; returns a stored one unchanged.

    table  a schema without ids takes the field ids of this version, by name; None if there is no table
    Raises `UsageError` for invalid values, `UnsupportedError` for operations that this release does not commit.
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
    name = next((name for name in _COMMITTED if isinstance(operation, getattr(LanceOperation, name))), None)
    if name is None:
        raise UnsupportedError(f"this release does not commit {type(operation).__name__}")
    bound: dict[str, Any] = {}
    if isinstance(operation, LanceOperation.Overwrite):
        fragments = bound["fragments"] = _all(stored_fragment, operation.fragments)
        bound["new_schema"] = _schema_of_files(_schema(operation.new_schema), fragments, table)
    elif isinstance(operation, (LanceOperation.Merge, LanceOperation.Project)):
        bound["schema"] = _schema(operation.schema, table)
    stored: ops.Operation = _to_stored_part(getattr(ops, name), operation, **bound)
    return stored


def to_public(transaction: StoredTransaction) -> Transaction:
    """Convert a transaction to the public form; operations without one become a plain `BaseOperation`."""
    stored, name = transaction.operation, transaction.name
    operation = _public(getattr(LanceOperation, name), stored) if name in _SHOWN else LanceOperation.BaseOperation()
    return Transaction(transaction.read_version, operation, transaction.uuid, dict(transaction.properties))


# -- operations, field by field ----------------------------------------------------------------------------------------


def _to_stored_part(kind: type[Any], public: Any, **bound: Any) -> Any:
    """The stored form of an operation, or of a part of one. Fields that are None, or missing, get their default.

    bound  fields that depend on the table
    """
    for each in fields(kind):
        value = getattr(public, each.name, None)
        if each.name not in bound and value is not None:
            bound[each.name] = _FIELDS.get(each.name, _AS_IT_IS)[0](value)
    return kind(**bound)


def _public(kind: type[Any], stored: Any, **added: Any) -> Any:
    """The public form of an operation, or of a part of one.

    added  fields that the stored form does not have
    """
    for each in fields(kind):
        if each.name not in added:
            value = getattr(stored, each.name)
            added[each.name] = None if value is None else _FIELDS.get(each.name, _AS_IT_IS)[1](value)
    return kind(**added)


def _all(convert: Callable[[Any], Any], values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([convert(value) for value in values])


def _schema(schema: LanceSchema | pa.Schema, table: Manifest | None = None) -> Schema:
    """A schema with ids: its own, or the table's for fields of the same name and type, or new ones.

    New ids follow all ids that the table ever used, also in dropped fields, whose values are still in files.
    """
    if isinstance(schema, LanceSchema):
        return schema._schema
    fresh = schema_from_arrow(schema)
    if table is None:
        return fresh
    fresh = of_version(fresh, table.data_version)
    ids = count(first_free_id(table.message))
    return replace(fresh, fields=_with_ids(fresh.fields, table.schema.fields, ids))


def _schema_of_files(schema: Schema, fragments: Iterable[Fragment], table: Manifest | None) -> Schema:
    """The schema of an Overwrite, with blobs of the kind in its files.

    Blobs of the second kind have members. Their ids are usually numbered in pre-order; in files that pylance writes to
    replace a table they follow all other ids. The numbering that matches the columns of the files is used.
    """
    files = [file for fragment in fragments for file in fragment.files]
    version: FileVersion = DEFAULT_VERSION if table is None else table.data_version
    version = max((file.version for file in files), default=version)
    numbered = of_version(schema, version)
    columns = {field.id for field in numbered.leaves()}
    if numbered is schema or all(field_id in columns for file in files for field_id in file.fields):
        return numbered
    return of_version(schema, version, keeps_ids=True)


def _with_ids(given: Iterable[Field], known: Iterable[Field], ids: Iterator[int]) -> tuple[Field, ...]:
    """Fields with the ids of known fields; a known field may contain new ones."""
    by_name = number_names(known)
    fields = []
    for key, field in number_names(given).items():
        old = by_name.get(key)
        if old is not None and old.holds_blobs and field.holds_blobs:  # the form of the values does not matter
            fields.append(replace(old, nullable=field.nullable))
            continue
        if old is not None and old.logical_type != field.logical_type:
            old = None
        field_id = next(ids) if old is None else old.id
        children = _with_ids(field.children, () if old is None else old.children, ids)
        fields.append(replace(field, id=field_id, children=children))
    return tuple(fields)


def stored_index(index: Index) -> IndexMetadata:
    """The stored form of an index segment."""
    created = None if index.created_at is None else (index.created_at.astimezone(UTC) - EPOCH) // _MILLISECOND
    message = table_pb2.IndexMetadata(
        uuid=table_pb2.UUID(uuid=UUID(index.uuid).bytes),
        name=index.name,
        fields=list(index.fields),
        dataset_version=index.dataset_version,
        fragment_bitmap=encode_fragment_ids(index.fragment_ids),
        index_version=index.index_version,
        created_at=created,
        base_id=index.base_id,
        files=[table_pb2.IndexFile(path=file.path, size_bytes=file.size_bytes) for file in index.files or ()],
        covering_fields=list(index.covering_fields),
    )
    if index.index_details is not None:
        message.index_details.type_url, message.index_details.value = index.index_details
    return decode_index(message)


def public_index(index: IndexMetadata) -> Index:
    """The public form of an index segment."""
    message = encode_index(index)
    details = message.index_details
    return Index(
        uuid=index.uuid,
        name=index.name,
        fields=list(index.fields),
        dataset_version=index.dataset_version,
        fragment_ids=set(index.fragment_ids or ()),
        index_version=message.index_version,
        created_at=EPOCH + message.created_at * _MILLISECOND if message.HasField("created_at") else None,
        base_id=index.base_id,
        files=[IndexFile(file.path, file.size_bytes) for file in message.files] or None,
        index_details=(details.type_url, details.value) if message.HasField("index_details") else None,
        covering_fields=list(index.covering_fields),
    )


# -- converters by the name of a field --------------------------------------------------------------------------------

_Pair: TypeAlias = "tuple[Callable[[Any], Any], Callable[[Any], Any]]"  # to the stored form, and to the public one


def _same(value: Any) -> Any:
    return value


def _each(stored: Callable[[Any], Any], public: Callable[[Any], Any]) -> _Pair:
    return (lambda values: _all(stored, values), lambda values: list(_all(public, values)))


def stored_base(base: DatasetBasePath, base_id: int | None = None) -> BasePath:
    """The stored form of a base path; without an id it gets `base_id`, or 0, which a commit replaces."""
    return BasePath(base.id or base_id or 0, base.path, base.is_dataset_root, base.name)


def _public_base(base: BasePath) -> DatasetBasePath:
    return DatasetBasePath(base.path, base.name, base.is_dataset_root, base.id)


_AS_IT_IS: Final[_Pair] = (_same, _same)
_FRAGMENTS: Final = _each(stored_fragment, fragment_metadata)
_INDICES: Final = _each(stored_index, public_index)
_NUMBERS: Final[_Pair] = (tuple, list)
_UPDATES: Final[_Pair] = (partial(_to_stored_part, ops.UpdateMap), partial(_public, LanceOperation.UpdateMap))
_NO_DETAILS: Final = {"new_details_type_url": "", "new_details_value": b"", "new_index_version": 0}

_FIELDS: Final[dict[str, _Pair]] = {
    "fragments": _FRAGMENTS,
    "updated_fragments": _FRAGMENTS,
    "new_fragments": _FRAGMENTS,
    "old_fragments": _FRAGMENTS,
    "removed_fragment_ids": _NUMBERS,
    "deleted_fragment_ids": _NUMBERS,
    "fields_modified": _NUMBERS,
    "fields_for_preserving_frag_bitmap": _NUMBERS,
    "update_mode": (lambda mode: mode or "rewrite_rows", _same),
    "updated_fragment_offsets": (dict, lambda offsets: dict(offsets) or None),
    "schema": (_schema, LanceSchema),
    "new_schema": (_schema, LanceSchema),
    "initial_bases": (
        lambda bases: _all(stored_base, bases),
        lambda bases: list(_all(_public_base, bases)) or None,
    ),
    "groups": _each(partial(_to_stored_part, ops.RewriteGroup), partial(_public, LanceOperation.RewriteGroup)),
    "rewritten_indices": _each(
        partial(_to_stored_part, ops.RewrittenIndex), partial(_public, LanceOperation.RewrittenIndex, **_NO_DETAILS)
    ),
    "new_indices": _INDICES,
    "removed_indices": _INDICES,
    "replacements": _each(
        partial(_to_stored_part, ops.DataReplacementGroup), partial(_public, LanceOperation.DataReplacementGroup)
    ),
    "new_file": (stored_file, data_file),
    "updates": (dict, dict),
    "config_updates": _UPDATES,
    "table_metadata_updates": _UPDATES,
    "schema_metadata_updates": _UPDATES,
    "field_metadata_updates": (
        lambda updates: {field_id: _to_stored_part(ops.UpdateMap, update) for field_id, update in updates.items()},
        lambda updates: (
            {field_id: _public(LanceOperation.UpdateMap, update) for field_id, update in updates.items()} or None
        ),
    ),
}
"""Converters by the name of a field; other fields are the same in both forms."""
