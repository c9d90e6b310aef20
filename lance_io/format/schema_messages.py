"""Schemas from and to their protobuf form (spec: file container, section 2).

The message is flat: fields depth first, each with its parent's id, -1 at the top. One exception comes from blob
columns of 2.2: in a data file's own schema the five members of a blob descriptor have neither id nor parent (both
-1) and follow their struct.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from lance_io.errors import FormatError
from lance_io.format.flat_fields import FlatFields
from lance_io.format.logical_types import fixed_size_list_dimension, is_nested, primitive_type
from lance_io.format.per_schema import PerSchema
from lance_io.format.recent_values import RecentValues
from lance_io.format.schema import BLOB_KEY, LINEAGE_NAMES, Field, Schema
from lance_io.limits import KIB, MIB
from lance_io.proto import file_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.format.wire import Buffer

SCHEMA_DEPTH_MAX: Final = 62  # levels; Arrow's interchange rejects 64, which includes the table itself
SCHEMA_FIELDS_MAX: Final = 1 << 20  # far above real tables, far below the claims of a hostile file
SHARED_SCHEMAS_MAX: Final = 64  # cached schemas, shared by tables and versions with the same schema
SHARED_BYTES_MAX: Final = 64 * KIB  # largest message of such a schema
LARGE_SCHEMAS_MAX: Final = 4  # cached larger schemas; most files have the schema of their table
LARGE_BYTES_MAX: Final = 4 * MIB
_ENCODED: Final[PerSchema[bytes]] = PerSchema("its field messages")
_TOP: Final = -1
_PLAIN, _VAR_BINARY, _DICTIONARY = 1, 2, 3  # Field.Encoding, meant for version 0.1 but still written
_VAR_BINARY_TYPES: Final = frozenset({"string", "large_string", "binary", "large_binary", "json"})


class _Node:
    """A field message being converted. Every value of the message is read once, because reads dominate the cost."""

    __slots__ = ("children", "depth", "frozen", "id", "logical_type", "message", "metadata", "name", "names", "parent")

    def __init__(self, message: file_pb2.Field, field_id: int, parent: _Node | None) -> None:
        self.message = message
        self.parent = parent
        self.id = field_id
        self.name = message.name
        self.logical_type = message.logical_type
        metadata = message.metadata
        self.metadata = dict(metadata) if metadata else {}
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.children: list[_Node] = []
        self.names: set[str] = set()
        self.frozen: Field | None = None


def decode_schema(fields: Sequence[file_pb2.Field], metadata: Mapping[str, bytes]) -> Schema:
    """Convert a list of field messages to a schema.

    Raises `FormatError` for a parent that does not come first, an id or a name used twice, a nested type with the
    wrong members, or too deep a tree; `UnsupportedError` for an unknown type.
    """
    return decode_schema_bytes(file_pb2.Schema(fields=fields, metadata=metadata).SerializeToString(deterministic=True))


def decode_schema_bytes(message: bytes) -> Schema:
    """As `decode_schema`, for a serialized message; results are cached by the message's bytes.

    Versions of a table, its files, and reopened tables share these bytes.
    """
    flat = find_flat_schema(message)
    if flat is not None:
        return flat
    if len(message) > LARGE_BYTES_MAX:
        return _parse_schema(message)
    return (_small_schema if len(message) <= SHARED_BYTES_MAX else _large_schema)(message)


def find_flat_schema(message: bytes) -> Schema | None:
    """As `decode_schema_bytes`, for a wide schema without nesting, whose fields are decoded on access.

    The message may come from any serializer. None for any other schema, and for one with a fault.
    """
    if len(message) > LARGE_BYTES_MAX:
        return _flat_schema(message)
    return (_small_flat_schema if len(message) <= SHARED_BYTES_MAX else _large_flat_schema)(message)


def _flat_schema(message: bytes) -> Schema | None:
    flat = FlatFields.of(message, _flat_field, SCHEMA_FIELDS_MAX)
    return None if flat is None else Schema(flat, dict(file_pb2.Schema.FromString(flat.metadata).metadata))


def schema_of_manifest(content: Buffer) -> bytes:
    """The schema in a serialized manifest, whose fields and metadata have the same field numbers as in a schema."""
    message = file_pb2.Schema.FromString(content)
    message.DiscardUnknownFields()
    return message.SerializeToString(deterministic=True)


def _parse_schema(message: bytes) -> Schema:
    schema = file_pb2.Schema.FromString(message)
    if len(schema.fields) > SCHEMA_FIELDS_MAX:
        raise FormatError(f"schema of {len(schema.fields)} fields, at most {SCHEMA_FIELDS_MAX}")
    return _decode_schema(schema.fields, schema.metadata)


_small_schema = lru_cache(maxsize=SHARED_SCHEMAS_MAX)(_parse_schema)
_large_schema = RecentValues(_parse_schema, LARGE_SCHEMAS_MAX)
_small_flat_schema = lru_cache(maxsize=SHARED_SCHEMAS_MAX)(_flat_schema)
_large_flat_schema = RecentValues(_flat_schema, LARGE_SCHEMAS_MAX)


def _decode_schema(fields: Sequence[file_pb2.Field], metadata: Mapping[str, bytes]) -> Schema:
    top: list[_Node] = []
    names: set[str] = set()
    nodes = _link(fields, top, names)
    for node in reversed(nodes):  # members come after their parent, so they are frozen first
        node.frozen = _freeze(node)
    return Schema(tuple(node.frozen for node in top if node.frozen is not None), dict(metadata))


def _link(fields: Sequence[file_pb2.Field], top: list[_Node], names: set[str]) -> list[_Node]:
    """One node per message, appended to its parent's children or to `top`."""
    nodes: list[_Node] = []
    by_id: dict[int, _Node] = {}
    blob: _Node | None = None
    for message in fields[:]:  # a slice is a list, which iterates many times faster than a repeated field
        field_id = message.id
        parent = _parent(message, field_id, by_id, blob)
        node = _Node(message, field_id, parent)
        siblings, taken = (top, names) if parent is None else (parent.children, parent.names)
        _check_node(node, taken, by_id)
        siblings.append(node)
        taken.add(node.name)
        nodes.append(node)
        if field_id >= 0:
            by_id[field_id] = node
            blob = node if node.logical_type == "struct" and BLOB_KEY in node.metadata else blob
    return nodes


def _parent(message: file_pb2.Field, field_id: int, by_id: Mapping[int, _Node], blob: _Node | None) -> _Node | None:
    parent_id = message.parent_id
    if parent_id == _TOP:
        return blob if field_id < 0 and field_id not in LINEAGE_NAMES else None
    parent = by_id.get(parent_id)
    if parent is None:
        raise FormatError(
            f"schema: field {message.name!r} ({field_id}) references parent id {parent_id}, which must appear earlier"
        )
    return parent


def _check_node(node: _Node, names: set[str], by_id: Mapping[int, _Node]) -> None:
    if node.id < 0 and node.depth == 1 and node.id not in LINEAGE_NAMES:
        raise FormatError(f"schema: field {node.name!r} has the id {node.id}, expected 0 or more")
    if node.id in by_id:
        raise FormatError(f"schema: field id {node.id} is used by {node.name!r} and by another field")
    if node.name in names and not _is_member(node):
        raise FormatError(f"schema: two sibling fields are called {node.name!r}")
    if "\0" in node.name or "\0" in node.logical_type or any("\0" in key for key in node.metadata):
        raise FormatError(f"schema: field {node.id} has a name, type or metadata key with a NUL character")
    if node.depth > SCHEMA_DEPTH_MAX:
        raise FormatError(f"schema: fields nested more than {SCHEMA_DEPTH_MAX} levels deep")


def _is_member(node: _Node) -> bool:
    """Whether a field is a struct's member; several of these may share a name."""
    return node.parent is not None and node.parent.logical_type == "struct" and BLOB_KEY not in node.parent.metadata


def _freeze(node: _Node) -> Field:
    children = tuple([child.frozen for child in node.children if child.frozen is not None])
    nullable = node.message.nullable
    try:
        _check_members(node.logical_type, children)
        if node.logical_type == "null" and not nullable and not _is_key(node):
            raise FormatError("a null field that may not hold nulls")  # Arrow permits only the keys of empty maps
    except FormatError as error:
        raise error.within(f"schema, field {node.name!r} ({node.id})") from error.__cause__
    return _field(node.message, node.metadata, children)


def _flat_field(message: file_pb2.Field) -> Field:
    metadata = message.metadata
    return _field(message, dict(metadata) if metadata else {}, ())


def _field(message: file_pb2.Field, metadata: Mapping[str, bytes], children: tuple[Field, ...]) -> Field:
    return Field(
        id=message.id,
        name=message.name,
        logical_type=message.logical_type,
        nullable=message.nullable,
        children=children,
        metadata=metadata,
        primary_key_position=stored_primary_key(message),
        clustering_key_position=message.unenforced_clustering_key_position or None,
        dictionary=message.dictionary.values or None,
    )


def _is_key(node: _Node) -> bool:
    entries = node.parent
    of_map = entries is not None and entries.parent is not None and entries.parent.logical_type == "map"
    return of_map and entries is not None and entries.children[0] is node


def _check_members(logical_type: str, children: Sequence[Field]) -> None:
    """Raise unless these members are valid for a field of this type."""
    if not is_nested(logical_type):
        primitive_type(logical_type)  # raises when unknown
        if children:
            raise FormatError(f"a {logical_type} has {len(children)} members, expected none")
    elif logical_type == "map":
        _check_entries(children)
    elif logical_type != "struct":
        if len(children) != 1:
            raise FormatError(f"a {logical_type} has {len(children)} members, expected 1, its item")
        if logical_type.startswith("fixed_size_list:"):
            fixed_size_list_dimension(logical_type)
        if "struct" in logical_type and children[0].logical_type != "struct":
            raise FormatError(f"a {logical_type} has items of type {children[0].logical_type}, expected struct")


def _check_entries(children: Sequence[Field]) -> None:
    """A map has one member: a non-nullable struct of a non-nullable key and a value."""
    entries = children[0] if len(children) == 1 else None
    if entries is None or entries.logical_type != "struct" or len(entries.children) != 2:
        raise FormatError("a map has no single member that is a struct of key and value")
    if entries.nullable or entries.children[0].nullable:
        raise FormatError("a map has nullable entries or keys")


def encode_schema(schema: Schema) -> list[file_pb2.Field]:
    """The field messages of a schema, in pre-order, without the metadata of the schema.

    A new table's schema is encoded for its file and for its manifest, so the result is cached as bytes.
    """
    known = _ENCODED.get(schema)
    if known is not None:
        return list(file_pb2.Schema.FromString(known).fields)
    messages: list[file_pb2.Field] = []
    for each in schema.fields:
        _encode_field(each, _TOP, messages)
    encoded = file_pb2.Schema(fields=messages).SerializeToString()
    if len(encoded) <= LARGE_BYTES_MAX:
        _ENCODED.keep(schema, encoded)
    return messages


def _encode_field(each: Field, parent_id: int, messages: list[file_pb2.Field]) -> None:
    message = file_pb2.Field(
        name=each.name,
        id=each.id,
        parent_id=parent_id,
        logical_type=each.logical_type,
        nullable=each.nullable,
        encoding=_encoding_hint(each.logical_type),
        extension_name=each.extension_name or "",
        metadata=each.metadata,
    )
    if each.primary_key_position is not None or each.clustering_key_position is not None:
        set_keys(message, each.primary_key_position, each.clustering_key_position)
    if message.encoding == _DICTIONARY:
        message.dictionary.SetInParent()
        if each.dictionary is not None:
            message.dictionary.values = each.dictionary
    messages.append(message)
    for child in each.children:
        _encode_field(child, each.id, messages)


def stored_primary_key(message: file_pb2.Field) -> int | None:
    """A field's position in the primary key, 0 for no position, None if it is no part."""
    return message.unenforced_primary_key_position or (0 if message.unenforced_primary_key else None)


def set_keys(message: file_pb2.Field, primary: int | None, clustering: int | None) -> None:
    """Store a field's position in the primary key and in the clustering key, None for no part of it."""
    message.unenforced_primary_key = primary is not None
    message.unenforced_primary_key_position = primary or 0
    message.unenforced_clustering_key_position = clustering or 0


def _encoding_hint(logical_type: str) -> file_pb2.Field.Encoding.ValueType:
    if logical_type in ("struct", "null"):
        return file_pb2.Field.NONE
    if logical_type in _VAR_BINARY_TYPES:
        return file_pb2.Field.VAR_BINARY
    return file_pb2.Field.DICTIONARY if logical_type.startswith("dict:") else file_pb2.Field.PLAIN
