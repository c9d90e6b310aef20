"""Operations from and to the protobuf form that transactions carry (spec: commit, section 2.2).

Encoding edits the message that is there: whatever an operation has beyond what is known here stays. An operation that
is not looked into (`UpdateMemWalState`, `Unknown`) is left as it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance_io.format.schema import Schema
from lance_io.format.schema_messages import decode_schema, encode_schema
from lance_io.proto import table_pb2, transaction_pb2
from lance_io.table.manifest.fragment import decode_file, decode_fragment, encode_file, encode_fragment
from lance_io.table.manifest.index_section import decode_index, decode_uuid, encode_index
from lance_io.table.manifest.manifest import BasePath
from lance_io.table.transaction import operations as ops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    from lance_io.table.manifest.fragment import Fragment


def decode_operation(message: transaction_pb2.Transaction) -> ops.Operation:
    """The operation of a transaction. Raises `FormatError`, and `UnsupportedError` for parts that are not read."""
    name = message.WhichOneof("operation")
    decode = None if name is None else _DECODE.get(name)
    return ops.Unknown() if decode is None else decode(getattr(message, name))  # type: ignore[arg-type]


def encode_operation(operation: ops.Operation, into: transaction_pb2.Transaction) -> None:
    """Write an operation into a transaction, which may hold an earlier form of it."""
    if isinstance(operation, ops.Unknown):
        return
    name, encode = _ENCODE[type(operation)]
    message = getattr(into, name)
    message.SetInParent()
    encode(operation, message)


# -- pieces ----------------------------------------------------------------------------------------------------------


def _fragments(messages: Iterable[table_pb2.DataFragment]) -> tuple[Fragment, ...]:
    return tuple([decode_fragment(message) for message in messages])


def _put_fragments(
    into: RepeatedCompositeFieldContainer[table_pb2.DataFragment], fragments: Iterable[Fragment]
) -> None:
    messages = [encode_fragment(fragment) for fragment in fragments]
    del into[:]
    into.extend(messages)


def _put_schema(message: Any, schema: Schema) -> None:
    """Write fields, and metadata where the operation has it; fields that did not change stay as they were read."""
    metadata = getattr(message, "schema_metadata", {})
    if message.schema and decode_schema(message.schema, metadata) == schema:
        return
    del message.schema[:]
    message.schema.extend(encode_schema(schema))
    if hasattr(message, "schema_metadata"):
        message.schema_metadata.clear()
        message.schema_metadata.update(schema.metadata)


def decode_base_path(message: table_pb2.BasePath) -> BasePath:
    """A base path as a value."""
    name = message.name if message.HasField("name") else None
    return BasePath(message.id, message.path, message.is_dataset_root, name)


def encode_base_path(base: BasePath) -> table_pb2.BasePath:
    """The message of a base path."""
    return table_pb2.BasePath(id=base.id, name=base.name, is_dataset_root=base.is_dataset_root, path=base.path)


def _put(into: Any, messages: Iterable[Any]) -> None:
    """Replace the content of a repeated field."""
    values = list(messages)
    del into[:]
    into.extend(values)


def _put_map(into: Any, values: Mapping[Any, Any]) -> None:
    into.clear()
    into.update(values)


# -- rows ------------------------------------------------------------------------------------------------------------


def _decode_append(message: transaction_pb2.Append) -> ops.Append:
    return ops.Append(_fragments(message.fragments))


def _encode_append(operation: ops.Append, message: transaction_pb2.Append) -> None:
    _put_fragments(message.fragments, operation.fragments)


def _decode_delete(message: transaction_pb2.Delete) -> ops.Delete:
    return ops.Delete(
        _fragments(message.updated_fragments), tuple(message.deleted_fragment_ids), predicate=message.predicate
    )


def _encode_delete(operation: ops.Delete, message: transaction_pb2.Delete) -> None:
    _put_fragments(message.updated_fragments, operation.updated_fragments)
    _put(message.deleted_fragment_ids, operation.deleted_fragment_ids)
    message.predicate = operation.predicate


def _decode_overwrite(message: transaction_pb2.Overwrite) -> ops.Overwrite:
    return ops.Overwrite(
        fragments=_fragments(message.fragments),
        schema=decode_schema(message.schema, message.schema_metadata),
        config_upserts=dict(message.config_upsert_values),
        initial_bases=tuple(decode_base_path(base) for base in message.initial_bases),
    )


def _encode_overwrite(operation: ops.Overwrite, message: transaction_pb2.Overwrite) -> None:
    _put_fragments(message.fragments, operation.fragments)
    _put_schema(message, operation.schema)
    _put_map(message.config_upsert_values, operation.config_upserts)
    _put(message.initial_bases, map(encode_base_path, operation.initial_bases))


_MODES: Final[dict[int, ops.UpdateMode]] = {0: "rewrite_rows", 1: "rewrite_columns"}


def _decode_update(message: transaction_pb2.Update) -> ops.Update | ops.Unknown:
    mode = _MODES.get(message.update_mode)
    if mode is None:
        return ops.Unknown()
    return ops.Update(
        removed_fragment_ids=tuple(message.removed_fragment_ids),
        updated_fragments=_fragments(message.updated_fragments),
        new_fragments=_fragments(message.new_fragments),
        fields_modified=tuple(message.fields_modified),
        fields_for_preserving_frag_bitmap=tuple(message.fields_for_preserving_frag_bitmap),
        mode=mode,
        inserted_rows=_decode_keys(message.inserted_rows) if message.HasField("inserted_rows") else None,
        updated_offsets=dict(message.updated_fragment_offset_bitmaps),
    )


def _encode_update(operation: ops.Update, message: transaction_pb2.Update) -> None:
    _put(message.removed_fragment_ids, operation.removed_fragment_ids)
    _put_fragments(message.updated_fragments, operation.updated_fragments)
    _put_fragments(message.new_fragments, operation.new_fragments)
    _put(message.fields_modified, operation.fields_modified)
    _put(message.fields_for_preserving_frag_bitmap, operation.fields_for_preserving_frag_bitmap)
    message.update_mode = (
        transaction_pb2.Update.REWRITE_ROWS
        if operation.mode == "rewrite_rows"
        else transaction_pb2.Update.REWRITE_COLUMNS
    )
    if operation.inserted_rows is None:
        message.ClearField("inserted_rows")
    else:
        _encode_keys(operation.inserted_rows, message.inserted_rows)
    _put_map(message.updated_fragment_offset_bitmaps, operation.updated_offsets)


def _decode_keys(message: transaction_pb2.KeyExistenceFilter) -> ops.KeyFilter:
    hashes = None if message.HasField("bloom") else frozenset(message.exact.key_hashes)
    bloom = message.bloom
    return ops.KeyFilter(
        tuple(message.field_ids), hashes, bloom.bitmap, bloom.num_bits, bloom.number_of_items, bloom.probability
    )


def _encode_keys(keys: ops.KeyFilter, message: transaction_pb2.KeyExistenceFilter) -> None:
    message.field_ids[:] = keys.field_ids
    if keys.hashes is not None:
        message.exact.SetInParent()
        message.exact.key_hashes[:] = sorted(keys.hashes)
        return
    bloom = message.bloom
    bloom.bitmap, bloom.num_bits, bloom.number_of_items = keys.bitmap, keys.num_bits, keys.num_items
    bloom.probability = keys.probability


def _decode_rewrite(message: transaction_pb2.Rewrite) -> ops.Rewrite:
    groups = [ops.RewriteGroup(_fragments(one.old_fragments), _fragments(one.new_fragments)) for one in message.groups]
    if message.old_fragments or message.new_fragments:
        groups.append(ops.RewriteGroup(_fragments(message.old_fragments), _fragments(message.new_fragments)))
    indices = [
        ops.RewrittenIndex(decode_uuid(one.old_id), decode_uuid(one.new_id), one) for one in message.rewritten_indices
    ]
    return ops.Rewrite(tuple(groups), tuple(indices))


def _encode_rewrite(operation: ops.Rewrite, message: transaction_pb2.Rewrite) -> None:
    if _decode_rewrite(message) == operation:
        return
    message.ClearField("old_fragments")
    message.ClearField("new_fragments")
    message.ClearField("groups")
    for group in operation.groups:
        into = message.groups.add()
        _put_fragments(into.old_fragments, group.old_fragments)
        _put_fragments(into.new_fragments, group.new_fragments)
    message.ClearField("rewritten_indices")
    for index in operation.rewritten_indices:
        into_index = message.rewritten_indices.add()
        if index.message is not None:
            into_index.CopyFrom(index.message)
        into_index.old_id.uuid = bytes.fromhex(index.old_uuid.replace("-", ""))
        into_index.new_id.uuid = bytes.fromhex(index.new_uuid.replace("-", ""))


def _decode_reserve(message: transaction_pb2.ReserveFragments) -> ops.ReserveFragments:
    return ops.ReserveFragments(message.num_fragments)


def _encode_reserve(operation: ops.ReserveFragments, message: transaction_pb2.ReserveFragments) -> None:
    message.num_fragments = operation.num_fragments


def _decode_replacement(message: transaction_pb2.DataReplacement) -> ops.DataReplacement:
    return ops.DataReplacement(tuple((one.fragment_id, decode_file(one.new_file)) for one in message.replacements))


def _encode_replacement(operation: ops.DataReplacement, message: transaction_pb2.DataReplacement) -> None:
    known = {one.new_file.path: one.new_file for one in message.replacements}
    kind = transaction_pb2.DataReplacement.Replacement
    made = [
        kind(fragment_id=fragment_id, new_file=encode_file(file, known.get(file.path)))
        for fragment_id, file in operation.replacements
    ]
    _put(message.replacements, made)


# -- schema and metadata ---------------------------------------------------------------------------------------------


def _decode_merge(message: transaction_pb2.Merge) -> ops.Merge:
    schema = decode_schema(message.schema, message.schema_metadata)
    return ops.Merge(_fragments(message.fragments), schema, message.preserves_nullability)


def _encode_merge(operation: ops.Merge, message: transaction_pb2.Merge) -> None:
    _put_fragments(message.fragments, operation.fragments)
    _put_schema(message, operation.schema)
    message.preserves_nullability = operation.preserves_nullability


def _decode_project(message: transaction_pb2.Project) -> ops.Project:
    return ops.Project(decode_schema(message.schema, {}), message.preserves_nullability)


def _encode_project(operation: ops.Project, message: transaction_pb2.Project) -> None:
    _put_schema(message, Schema(operation.schema.fields))
    message.preserves_nullability = operation.preserves_nullability


def _decode_config(message: transaction_pb2.UpdateConfig) -> ops.UpdateConfig:
    """An `UpdateConfig`; the maps of earlier releases are translated (spec: commit, section 2.2)."""
    config = _map_or_none(message, "config_updates")
    if config is None and (message.upsert_values or message.delete_keys):
        config = ops.UpdateMap({**dict.fromkeys(message.delete_keys), **message.upsert_values})
    schema = _map_or_none(message, "schema_metadata_updates")
    if schema is None and message.schema_metadata:
        schema = ops.UpdateMap(dict(message.schema_metadata), replace=True)
    fields = {field_id: _decode_map(one) for field_id, one in message.field_metadata_updates.items()}
    for field_id, old in message.field_metadata.items():
        fields.setdefault(field_id, ops.UpdateMap(dict(old.metadata), replace=True))
    return ops.UpdateConfig(config, _map_or_none(message, "table_metadata_updates"), schema, fields)


def _encode_config(operation: ops.UpdateConfig, message: transaction_pb2.UpdateConfig) -> None:
    for old in ("upsert_values", "delete_keys", "schema_metadata", "field_metadata", "field_metadata_updates"):
        message.ClearField(old)
    for name, updates in (
        ("config_updates", operation.config),
        ("table_metadata_updates", operation.table_metadata),
        ("schema_metadata_updates", operation.schema_metadata),
    ):
        message.ClearField(name)  # type: ignore[arg-type]  # literal names
        if updates is not None:
            _encode_map(updates, getattr(message, name))
    for field_id, updates in operation.field_metadata.items():
        _encode_map(updates, message.field_metadata_updates[field_id])


def _map_or_none(message: transaction_pb2.UpdateConfig, name: str) -> ops.UpdateMap | None:
    return _decode_map(getattr(message, name)) if message.HasField(name) else None  # type: ignore[arg-type]


def _decode_map(message: transaction_pb2.UpdateMap) -> ops.UpdateMap:
    entries = {one.key: one.value if one.HasField("value") else None for one in message.update_entries}
    return ops.UpdateMap(entries, message.replace)


def _encode_map(updates: ops.UpdateMap, message: transaction_pb2.UpdateMap) -> None:
    message.SetInParent()
    message.replace = updates.replace
    for key, value in updates.entries.items():
        message.update_entries.add(key=key, value=value)


def _decode_create_index(message: transaction_pb2.CreateIndex) -> ops.CreateIndex:
    return ops.CreateIndex(
        tuple(decode_index(one) for one in message.new_indices),
        tuple(decode_index(one) for one in message.removed_indices),
    )


def _encode_create_index(operation: ops.CreateIndex, message: transaction_pb2.CreateIndex) -> None:
    _put(message.new_indices, map(encode_index, operation.new_indices))
    _put(message.removed_indices, map(encode_index, operation.removed_indices))


# -- the rest --------------------------------------------------------------------------------------------------------


def _decode_restore(message: transaction_pb2.Restore) -> ops.Restore:
    return ops.Restore(message.version)


def _encode_restore(operation: ops.Restore, message: transaction_pb2.Restore) -> None:
    message.version = operation.version


def _decode_clone(message: transaction_pb2.Clone) -> ops.Clone:
    return ops.Clone(
        message.is_shallow,
        message.ref_name if message.HasField("ref_name") else None,
        message.ref_version,
        message.ref_path,
        message.branch_name if message.HasField("branch_name") else None,
    )


def _encode_clone(operation: ops.Clone, message: transaction_pb2.Clone) -> None:
    message.is_shallow, message.ref_version = operation.is_shallow, operation.ref_version
    message.ref_path = operation.ref_path
    for name, text in (("ref_name", operation.ref_name), ("branch_name", operation.branch_name)):
        if text is None:
            message.ClearField(name)  # type: ignore[arg-type]  # literal names
        else:
            setattr(message, name, text)


def _decode_bases(message: transaction_pb2.UpdateBases) -> ops.UpdateBases:
    return ops.UpdateBases(tuple(decode_base_path(base) for base in message.new_bases))


def _encode_bases(operation: ops.UpdateBases, message: transaction_pb2.UpdateBases) -> None:
    _put(message.new_bases, map(encode_base_path, operation.new_bases))


def _decode_wal(_message: transaction_pb2.UpdateMemWalState) -> ops.UpdateMemWalState:
    return ops.UpdateMemWalState()


def _encode_wal(_operation: ops.UpdateMemWalState, _message: transaction_pb2.UpdateMemWalState) -> None:
    """Left as it is."""


_KINDS: Final[tuple[tuple[str, type, Callable[..., ops.Operation], Callable[..., None]], ...]] = (
    ("append", ops.Append, _decode_append, _encode_append),
    ("delete", ops.Delete, _decode_delete, _encode_delete),
    ("overwrite", ops.Overwrite, _decode_overwrite, _encode_overwrite),
    ("create_index", ops.CreateIndex, _decode_create_index, _encode_create_index),
    ("rewrite", ops.Rewrite, _decode_rewrite, _encode_rewrite),
    ("merge", ops.Merge, _decode_merge, _encode_merge),
    ("restore", ops.Restore, _decode_restore, _encode_restore),
    ("reserve_fragments", ops.ReserveFragments, _decode_reserve, _encode_reserve),
    ("update", ops.Update, _decode_update, _encode_update),
    ("project", ops.Project, _decode_project, _encode_project),
    ("update_config", ops.UpdateConfig, _decode_config, _encode_config),
    ("data_replacement", ops.DataReplacement, _decode_replacement, _encode_replacement),
    ("update_mem_wal_state", ops.UpdateMemWalState, _decode_wal, _encode_wal),
    ("clone", ops.Clone, _decode_clone, _encode_clone),
    ("update_bases", ops.UpdateBases, _decode_bases, _encode_bases),
)
_DECODE: Final = {name: decode for name, _, decode, _ in _KINDS}
_ENCODE: Final = {kind: (name, encode) for name, kind, _, encode in _KINDS}
