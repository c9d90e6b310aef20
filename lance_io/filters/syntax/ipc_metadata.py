"""The ordered key/value metadata of an Arrow IPC file, read from its schema message.

`pyarrow.compute.Expression` has no API to walk it, but its pickled form is an Arrow IPC file whose schema metadata is
the token stream of the expression. Keys repeat there, and `pyarrow.Schema.metadata` is a dictionary, so this module
reads the pairs from the message itself.

    offset  type     field
     0      8 bytes  "ARROW1", two zero bytes
     8      u32 LE   0xFFFFFFFF, marks a message
    12      i32 LE   length of the message in bytes
    16      message  flatbuffer: Message { 0 version, 1 header type, 2 header (a Schema), 3 body length }
                     Schema { 0 endianness, 1 fields, 2 custom metadata: [KeyValue], 3 features }
                     KeyValue { 0 key: string, 1 value: string }
"""

from __future__ import annotations

import struct

from lance_io.format.flatbuffer import Flatbuffer

_START = struct.Struct("<8sIi")  # magic, mark and length
_MAGIC = b"ARROW1\0\0"
_MESSAGE_MARK = 0xFFFFFFFF
_MESSAGE_HEADER, _SCHEMA_METADATA, _PAIR_KEY, _PAIR_VALUE = 2, 2, 0, 1  # fields


def schema_metadata(ipc_file: bytes) -> list[tuple[str, str]]:
    """The schema metadata of an Arrow IPC file as (key, value) pairs, in order, repeated keys included.

    Raises ValueError if the bytes are not such a file, or a reference points outside of them.
    """
    magic, mark, length_bytes = _START.unpack_from(ipc_file) if len(ipc_file) >= _START.size else (b"", 0, 0)
    if magic != _MAGIC or mark != _MESSAGE_MARK:
        raise ValueError("not an Arrow IPC file")
    content = memoryview(ipc_file)[_START.size :]
    if not 0 < length_bytes <= len(content):
        raise ValueError(f"schema message of {length_bytes} bytes in a file of {len(ipc_file)} bytes")
    message = Flatbuffer(content[:length_bytes])
    schema = message.child(message.root, _MESSAGE_HEADER)
    pairs = message.tables(schema, _SCHEMA_METADATA)
    return [(message.text(pair, _PAIR_KEY), message.text(pair, _PAIR_VALUE)) for pair in pairs]
