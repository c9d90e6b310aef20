"""The ordered key/value metadata of an Arrow IPC file, read from its schema message.

`pyarrow.compute.Expression` has no public way to walk it, but its pickled form is an Arrow IPC file whose schema
metadata is the token stream of the expression. Keys repeat there, and `pyarrow.Schema.metadata` is a dictionary, so
the pairs are read from the message itself.

    offset  type     field
     0      8 bytes  "ARROW1", two zero bytes
     8      u32 LE   0xFFFFFFFF, marks a message
    12      i32 LE   length of the message in bytes
    16      message  flatbuffer: Message { 0 version, 1 header type, 2 header (a Schema), 3 body length }
                     Schema { 0 endianness, 1 fields, 2 custom metadata: [KeyValue], 3 features }
                     KeyValue { 0 key: string, 1 value: string }

In a flatbuffer every table starts with an i32, the distance back to its vtable; the vtable is u16 values: its own
size, the table's size, then one position per field slot, 0 for absent. References are u32 distances forward.
"""

from __future__ import annotations

import struct

_MAGIC = b"ARROW1\0\0"
_MESSAGE_MARK = 0xFFFFFFFF
_MESSAGE_AT = 16  # after magic, mark and length
_MESSAGE_HEADER, _SCHEMA_METADATA, _PAIR_KEY, _PAIR_VALUE = 2, 2, 0, 1  # field slots
_VTABLE_FIELDS_AT = 4


def schema_metadata(ipc_file: bytes) -> list[tuple[str, str]]:
    """The schema metadata of an Arrow IPC file as (key, value) pairs, in order, repeated keys included.

    Raises ValueError if the bytes are not such a file or a reference leaves them.
    """
    if ipc_file[:8] != _MAGIC or _number("<I", ipc_file, 8) != _MESSAGE_MARK:
        raise ValueError("not an Arrow IPC file")
    length_bytes = _number("<i", ipc_file, 12)
    if not 0 < length_bytes <= len(ipc_file) - _MESSAGE_AT:
        raise ValueError(f"schema message of {length_bytes} bytes in a file of {len(ipc_file)} bytes")
    message = ipc_file[_MESSAGE_AT : _MESSAGE_AT + length_bytes]
    schema_at = _child(message, _follow(message, 0), _MESSAGE_HEADER)
    pairs_at = _child(message, schema_at, _SCHEMA_METADATA)
    num_pairs = _number("<I", message, pairs_at)
    if num_pairs > len(message) // 4:
        raise ValueError(f"{num_pairs} metadata pairs in a message of {len(message)} bytes")
    tables = [_follow(message, pairs_at + 4 + 4 * i) for i in range(num_pairs)]
    return [
        (_text(message, _child(message, t, _PAIR_KEY)), _text(message, _child(message, t, _PAIR_VALUE))) for t in tables
    ]


def _number(layout: str, buffer: bytes, at: int) -> int:
    if not 0 <= at <= len(buffer) - struct.calcsize(layout):
        raise ValueError(f"position {at} is outside of {len(buffer)} bytes")
    number: int = struct.unpack_from(layout, buffer, at)[0]
    return number


def _follow(buffer: bytes, at: int) -> int:
    """Where the forward reference at position `at` points."""
    return at + _number("<I", buffer, at)


def _child(buffer: bytes, table_at: int, slot: int) -> int:
    """Where the referenced value of field `slot` of the table at `table_at` starts."""
    vtable_at = table_at - _number("<i", buffer, table_at)
    entry = _VTABLE_FIELDS_AT + 2 * slot
    inside = _number("<H", buffer, vtable_at + entry) if entry < _number("<H", buffer, vtable_at) else 0
    if inside == 0:
        raise ValueError(f"table at {table_at} has no field {slot}")
    return _follow(buffer, table_at + inside)


def _text(buffer: bytes, at: int) -> str:
    length_bytes = _number("<I", buffer, at)
    if length_bytes > len(buffer) - at - 4:
        raise ValueError(f"string of {length_bytes} bytes at position {at} of {len(buffer)} bytes")
    return buffer[at + 4 : at + 4 + length_bytes].decode()
