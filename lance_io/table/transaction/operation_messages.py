"""Converts operations from and to the protobuf messages in transactions (spec: commit, section 2.2).

`_LAYOUTS` has a row for each operation: its class, and the codec of each of its fields. A field has the same name in
the message unless its codec says otherwise.

Encoding edits the existing message, so that fields unknown to this release stay. Operations that are not decoded
(`UpdateMemWalState`, `Unknown`) stay as they were read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance_io.format.schema import Schema
from lance_io.format.schema_messages import decode_schema, encode_schema
from lance_io.proto import transaction_pb2
from lance_io.records import dataclass
from lance_io.table.manifest.fragment import decode_file, decode_fragment, encode_file, encode_fragment
from lance_io.table.manifest.index_section import decode_index, decode_uuid, encode_index
from lance_io.table.manifest.manifest import decode_base_path, encode_base_path
from lance_io.table.transaction import operations as ops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def decode_operation(message: transaction_pb2.Transaction) -> ops.Operation:
    """The operation of a transaction. Raises `FormatError`, and `UnsupportedError` for unsupported parts."""
    name = message.WhichOneof("operation")
    if name is None or name not in _LAYOUTS or (name == "update" and message.update.update_mode not in _MODES):
        return ops.Unknown()
    kind, codecs = _LAYOUTS[name]
    stored = getattr(message, name)
    operation: ops.Operation = kind(**{field: codec.decode(stored, field) for field, codec in codecs.items()})
    return operation


def encode_operation(operation: ops.Operation, into: transaction_pb2.Transaction) -> None:
    """Write an operation into a transaction's message, which may have an earlier form of it."""
    if isinstance(operation, ops.Unknown):
        return
    name = _NAMES[type(operation)]
    message = getattr(into, name)
    message.SetInParent()
    for field, codec in _LAYOUTS[name][1].items():
        codec.encode(message, field, getattr(operation, field))


# -- codecs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Codec:
    """Decodes and encodes a field. Both functions take the operation's message and the field's name."""

    decode: Callable[[Any, str], Any]
    encode: Callable[[Any, str, Any], None]


def _list_of(decode: Callable[[Any], Any], encode: Callable[[Any], Any]) -> _Codec:
    """A repeated field, a tuple here."""

    def put(message: Any, name: str, values: Iterable[Any]) -> None:
        _replace(getattr(message, name), map(encode, values))

    return _Codec(lambda message, name: tuple([decode(item) for item in getattr(message, name)]), put)


def _replace(into: Any, values: Iterable[Any]) -> None:
    """Replace the content of a repeated field; the new values may be computed from the old ones."""
    new = list(values)
    del into[:]
    into.extend(new)


def _get_optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _put_optional(message: Any, name: str, value: Any) -> None:
    if value is None:
        message.ClearField(name)
    else:
        setattr(message, name, value)


def _put_map(message: Any, name: str, values: Mapping[Any, Any]) -> None:
    getattr(message, name).clear()
    getattr(message, name).update(values)


_VALUE: Final = _Codec(getattr, setattr)
_OPTIONAL: Final = _Codec(_get_optional, _put_optional)
_NUMBERS: Final = _list_of(int, int)
_MAP: Final = _Codec(lambda message, name: dict(getattr(message, name)), _put_map)
_FRAGMENTS: Final = _list_of(decode_fragment, encode_fragment)
_INDICES: Final = _list_of(decode_index, encode_index)
_BASES: Final = _list_of(decode_base_path, encode_base_path)


# -- schemas: `schema`, and `schema_metadata` if the operation has it ------------------------------------------------


def _get_schema(message: Any, _: str) -> Schema:
    return decode_schema(message.schema, getattr(message, "schema_metadata", {}))


def _put_schema(message: Any, name: str, schema: Schema) -> None:
    """Write the schema, unless it is unchanged: then the message stays as it was read."""
    has_metadata = hasattr(message, "schema_metadata")
    stored = schema if has_metadata else Schema(schema.fields)
    if message.schema and _get_schema(message, name) == stored:
        return
    _replace(message.schema, encode_schema(stored))
    if has_metadata:
        _put_map(message, "schema_metadata", stored.metadata)


_SCHEMA: Final = _Codec(_get_schema, _put_schema)


# -- updates ---------------------------------------------------------------------------------------------------------

_MODES: Final[dict[int, ops.UpdateMode]] = {
    transaction_pb2.Update.REWRITE_ROWS: "rewrite_rows",
    transaction_pb2.Update.REWRITE_COLUMNS: "rewrite_columns",
}
_MODE_NUMBERS: Final = {mode: number for number, mode in _MODES.items()}
_MODE: Final = _Codec(
    lambda message, name: _MODES[getattr(message, name)],
    lambda message, name, mode: setattr(message, name, _MODE_NUMBERS[mode]),
)
_OFFSETS: Final = _Codec(
    lambda message, _: dict(message.updated_fragment_offset_bitmaps),
    lambda message, _, offsets: _put_map(message, "updated_fragment_offset_bitmaps", offsets),
)


def _get_keys(message: transaction_pb2.Update, _: str) -> ops.KeyFilter | None:
    if not message.HasField("inserted_rows"):
        return None
    keys = message.inserted_rows
    hashes = None if keys.HasField("bloom") else frozenset(keys.exact.key_hashes)
    bloom = keys.bloom
    return ops.KeyFilter(
        tuple(keys.field_ids), hashes, bloom.bitmap, bloom.num_bits, bloom.number_of_items, bloom.probability
    )


def _put_keys(message: transaction_pb2.Update, _: str, keys: ops.KeyFilter | None) -> None:
    if keys is None:
        message.ClearField("inserted_rows")
        return
    into = message.inserted_rows
    into.field_ids[:] = keys.field_ids
    if keys.hashes is not None:
        into.exact.SetInParent()
        into.exact.key_hashes[:] = sorted(keys.hashes)
        return
    bloom = into.bloom
    bloom.bitmap, bloom.num_bits, bloom.number_of_items = keys.bitmap, keys.num_bits, keys.num_items
    bloom.probability = keys.probability


# -- rewrites and replaced files -------------------------------------------------------------------------------------


def _get_groups(message: transaction_pb2.Rewrite, _: str) -> tuple[ops.RewriteGroup, ...]:
    """The groups; earlier releases stored a single group in fields of the operation itself."""
    groups: list[Any] = [*message.groups]
    if message.old_fragments or message.new_fragments:
        groups.append(message)
    sides = ("old_fragments", "new_fragments")
    return tuple([ops.RewriteGroup(*[_FRAGMENTS.decode(group, side) for side in sides]) for group in groups])


def _put_groups(message: transaction_pb2.Rewrite, name: str, groups: tuple[ops.RewriteGroup, ...]) -> None:
    if _get_groups(message, name) == groups:
        return
    message.ClearField("old_fragments")
    message.ClearField("new_fragments")
    message.ClearField("groups")
    for group in groups:
        into = message.groups.add()
        _FRAGMENTS.encode(into, "old_fragments", group.old_fragments)
        _FRAGMENTS.encode(into, "new_fragments", group.new_fragments)


def _decode_rewritten(message: transaction_pb2.Rewrite.RewrittenIndex) -> ops.RewrittenIndex:
    return ops.RewrittenIndex(decode_uuid(message.old_id), decode_uuid(message.new_id), message)


def _encode_rewritten(index: ops.RewrittenIndex) -> transaction_pb2.Rewrite.RewrittenIndex:
    message = transaction_pb2.Rewrite.RewrittenIndex()
    if index.message is not None:
        message.CopyFrom(index.message)
    message.old_id.uuid = bytes.fromhex(index.old_id.replace("-", ""))
    message.new_id.uuid = bytes.fromhex(index.new_id.replace("-", ""))
    return message


def _get_replacements(message: transaction_pb2.DataReplacement, _: str) -> tuple[ops.DataReplacementGroup, ...]:
    stored = message.replacements
    return tuple([ops.DataReplacementGroup(group.fragment_id, decode_file(group.new_file)) for group in stored])


def _put_replacements(
    message: transaction_pb2.DataReplacement, _: str, groups: Iterable[ops.DataReplacementGroup]
) -> None:
    known = {stored.new_file.path: stored.new_file for stored in message.replacements}
    kind = transaction_pb2.DataReplacement.Replacement
    replacements = [
        kind(fragment_id=group.fragment_id, new_file=encode_file(group.new_file, known.get(group.new_file.path)))
        for group in groups
    ]
    _replace(message.replacements, replacements)


# -- configuration and metadata: maps, and the fields that earlier releases had for them -----------------------------


def _map_updates(earlier: tuple[str, ...] = (), decode: Callable[[Any], ops.UpdateMap | None] | None = None) -> _Codec:
    """Updates of a map, or None.

    earlier, decode  the message's fields for it in earlier releases, and their decoder
    """

    def get(message: Any, name: str) -> ops.UpdateMap | None:
        if message.HasField(name):
            return _decode_map(getattr(message, name))
        return None if decode is None else decode(message)

    def put(message: Any, name: str, updates: ops.UpdateMap | None) -> None:
        for field in (name, *earlier):
            message.ClearField(field)
        if updates is not None:
            _encode_map(updates, getattr(message, name))

    return _Codec(get, put)


def _decode_map(message: transaction_pb2.UpdateMap) -> ops.UpdateMap:
    updates = {entry.key: entry.value if entry.HasField("value") else None for entry in message.update_entries}
    return ops.UpdateMap(updates, message.replace)


def _encode_map(updates: ops.UpdateMap, message: transaction_pb2.UpdateMap) -> None:
    message.SetInParent()
    message.replace = updates.replace
    for key, value in updates.updates.items():
        message.update_entries.add(key=key, value=value)


def _earlier_config(message: transaction_pb2.UpdateConfig) -> ops.UpdateMap | None:
    if not (message.upsert_values or message.delete_keys):
        return None
    return ops.UpdateMap({**dict.fromkeys(message.delete_keys), **message.upsert_values})


def _earlier_schema_metadata(message: transaction_pb2.UpdateConfig) -> ops.UpdateMap | None:
    return ops.UpdateMap(dict(message.schema_metadata), replace=True) if message.schema_metadata else None


def _get_field_metadata(message: transaction_pb2.UpdateConfig, _: str) -> dict[int, ops.UpdateMap]:
    earlier = {
        field_id: ops.UpdateMap(dict(stored.metadata), replace=True)
        for field_id, stored in message.field_metadata.items()
    }
    return {**earlier, **{field_id: _decode_map(stored) for field_id, stored in message.field_metadata_updates.items()}}


def _put_field_metadata(message: transaction_pb2.UpdateConfig, _: str, updates: Mapping[int, ops.UpdateMap]) -> None:
    message.ClearField("field_metadata")
    message.ClearField("field_metadata_updates")
    for field_id, update in updates.items():
        _encode_map(update, message.field_metadata_updates[field_id])


# -- operations ------------------------------------------------------------------------------------------------------

_LAYOUTS: Final[dict[str, tuple[Callable[..., Any], dict[str, _Codec]]]] = {
    "append": (ops.Append, {"fragments": _FRAGMENTS}),
    "delete": (
        ops.Delete,
        {"updated_fragments": _FRAGMENTS, "deleted_fragment_ids": _NUMBERS, "predicate": _VALUE},
    ),
    "overwrite": (
        ops.Overwrite,
        {"fragments": _FRAGMENTS, "new_schema": _SCHEMA, "config_upsert_values": _MAP, "initial_bases": _BASES},
    ),
    "create_index": (ops.CreateIndex, {"new_indices": _INDICES, "removed_indices": _INDICES}),
    "rewrite": (
        ops.Rewrite,
        {
            "groups": _Codec(_get_groups, _put_groups),
            "rewritten_indices": _list_of(_decode_rewritten, _encode_rewritten),
        },
    ),
    "merge": (ops.Merge, {"fragments": _FRAGMENTS, "schema": _SCHEMA, "preserves_nullability": _VALUE}),
    "restore": (ops.Restore, {"version": _VALUE}),
    "reserve_fragments": (ops.ReserveFragments, {"num_fragments": _VALUE}),
    "update": (
        ops.Update,
        {
            "removed_fragment_ids": _NUMBERS,
            "updated_fragments": _FRAGMENTS,
            "new_fragments": _FRAGMENTS,
            "fields_modified": _NUMBERS,
            "fields_for_preserving_frag_bitmap": _NUMBERS,
            "update_mode": _MODE,
            "inserted_rows": _Codec(_get_keys, _put_keys),
            "updated_fragment_offsets": _OFFSETS,
        },
    ),
    "project": (ops.Project, {"schema": _SCHEMA, "preserves_nullability": _VALUE}),
    "update_config": (
        ops.UpdateConfig,
        {
            "config_updates": _map_updates(("upsert_values", "delete_keys"), _earlier_config),
            "table_metadata_updates": _map_updates(),
            "schema_metadata_updates": _map_updates(("schema_metadata",), _earlier_schema_metadata),
            "field_metadata_updates": _Codec(_get_field_metadata, _put_field_metadata),
        },
    ),
    "data_replacement": (ops.DataReplacement, {"replacements": _Codec(_get_replacements, _put_replacements)}),
    "update_mem_wal_state": (ops.UpdateMemWalState, {}),
    "clone": (
        ops.Clone,
        {
            "is_shallow": _VALUE,
            "ref_name": _OPTIONAL,
            "ref_version": _VALUE,
            "ref_path": _VALUE,
            "branch_name": _OPTIONAL,
        },
    ),
    "update_bases": (ops.UpdateBases, {"new_bases": _BASES}),
}
_NAMES: Final = {kind: name for name, (kind, _) in _LAYOUTS.items()}
