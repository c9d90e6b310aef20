"""Converts an Arrow schema to a schema with fresh field ids (spec: table, section 2.5).

Extension types are stored as their storage type plus two metadata keys, name and parameters. pyarrow does not expose
the parameters of its built-in extension types, but Arrow's C interface does: an exported `ArrowSchema` carries them in
its metadata, whose layout is

    i32 number of pairs, then per pair: i32 key bytes, key, i32 value bytes, value        (native endianness)
"""

from __future__ import annotations

import ctypes
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.format.keys import check_primary_key, declared_clustering_key, declared_primary_key
from lance_io.format.logical_types import logical_type
from lance_io.format.schema import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RECENT_SCHEMAS_MAX: Final = 16
SHARED_FIELDS_MAX: Final = 256  # top-level fields of cached schemas; of larger schemas only the last is cached
_EXTENSION_NAME: Final = "ARROW:extension:name"

_recent: list[tuple[pa.Schema, Schema]] = []  # replaced, never modified: other threads may be reading it
_last_large: tuple[pa.Schema, Schema] | None = None

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def schema_from_arrow(schema: pa.Schema, first_id: int = 0) -> Schema:
    """The stored form of an Arrow schema; ids are assigned in pre-order from `first_id` on.

    Results are cached: equal schemas return the same object for a while.
    Raises `UnsupportedError` for types that cannot be stored, `PrimaryKeyError` for an invalid primary key.
    """
    global _recent, _last_large
    if first_id:
        return _convert(schema, first_id)
    is_large = len(schema) > SHARED_FIELDS_MAX
    last = _last_large
    for known, stored in _recent if not is_large else () if last is None else (last,):
        if known.equals(schema, check_metadata=True):
            return stored
    stored = _convert(schema, 0)
    if is_large:
        _last_large = schema, stored
    else:
        _recent = [(schema, stored), *_recent[: RECENT_SCHEMAS_MAX - 1]]
    return stored


def _convert(schema: pa.Schema, first_id: int) -> Schema:
    ids = count(first_id)
    converted = Schema(tuple(_field(each, ids) for each in schema), _text_keys(schema.metadata or {}))
    check_primary_key(converted)
    return converted


def _field(arrow: pa.Field[Any], ids: Iterator[int]) -> Field:
    field_id = next(ids)
    metadata = exported_metadata(arrow)
    storage = arrow.type.storage_type if isinstance(arrow.type, pa.BaseExtensionType) else arrow.type
    if metadata.get(_EXTENSION_NAME) == b"arrow.json":
        metadata[_EXTENSION_NAME] = b"lance.json"
        text = "json"
    else:
        text = logical_type(storage)
    return Field(
        id=field_id,
        name=arrow.name,
        logical_type=text,
        nullable=arrow.nullable,
        children=tuple(_field(child, ids) for child in _members(storage)),
        metadata=metadata,
        primary_key_position=declared_primary_key(metadata) if metadata else None,
        clustering_key_position=declared_clustering_key(metadata) if metadata else None,
    )


def _members(storage: pa.DataType) -> list[pa.Field[Any]]:
    """The members that are separate fields; for a fixed-size list only if they are structs."""
    if isinstance(storage, pa.StructType):
        return list(storage)
    if isinstance(storage, pa.MapType):
        entries = pa.struct([storage.key_field, storage.item_field])
        return [pa.field("entries", entries, nullable=False)]
    if isinstance(storage, (pa.ListType, pa.LargeListType)):
        return [storage.value_field]
    if isinstance(storage, pa.FixedSizeListType) and pa.types.is_struct(storage.value_type):
        return [storage.value_field]
    return []


def exported_metadata(arrow: pa.Field[Any]) -> dict[str, bytes]:
    """The metadata of a field and its extension type, as Arrow exports them to other libraries."""
    if arrow.metadata is None and not isinstance(arrow.type, pa.BaseExtensionType):
        return {}
    capsule = arrow.__arrow_c_schema__()
    fields = ctypes.cast(_capsule_pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))
    address = fields[2]  # struct ArrowSchema { const char *format, *name, *metadata; ... }
    if not address:
        return {}
    position = address

    def number() -> int:
        nonlocal position
        position += 4
        return ctypes.c_int32.from_address(position - 4).value

    def text() -> bytes:
        nonlocal position
        length = number()
        position += length
        return ctypes.string_at(position - length, length)

    pairs = [(text(), text()) for _ in range(number())]
    return _text_keys(dict(pairs))


def _text_keys(metadata: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {key.decode(): value for key, value in metadata.items()}
