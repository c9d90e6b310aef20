"""Reads one column of u32 from an Arrow IPC file, for deletion files (Arrow's columnar format, "IPC File Format").

    "ARROW1\\0\\0"
    encapsulated messages: schema, record batch      each FF FF FF FF, i32 metadata bytes, metadata, body
    footer, i32 footer bytes, "ARROW1"

The metadata are flatbuffers (`format/flatbuffer.py`). pyarrow checks schema and footer, but this module reads the
record batch itself. The reason: a compressed buffer has its decompressed size as a prefix, and pyarrow allocates that
many bytes, so a damaged file of a few bytes could request any amount of memory. Here the size must match the number of
rows before anything is decompressed.

    Footer       0 version      1 schema                      2 dictionaries                 3 record batches
    Block        i64 offset     i32 metadata bytes, padding   i64 body bytes
    Message      0 version      1 header type                 2 header                       3 body bytes
    RecordBatch  0 rows         1 nodes: [(i64 rows, nulls)]  2 buffers: [(i64 at, bytes)]   3 compression
    Compression  0 codec: 0 LZ4 frame, 1 ZSTD
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError
from lance_io.format.flatbuffer import Flatbuffer

if TYPE_CHECKING:
    from lance_io.codecs.roaring import U32Array
    from lance_io.format.wire import Buffer

_MAGIC: Final = b"ARROW1"
_CONTINUATION: Final = 0xFFFFFFFF
_RECORD_BATCH: Final = 3  # Message.header type
_CODECS: Final = {0: "lz4", 1: "zstd"}
_RAW: Final = -1  # prefix of a buffer that is stored uncompressed


def read_u32_column(data: Buffer, name: str, *, num_rows_max: int) -> U32Array:
    """The values of the only column of the only batch of an Arrow IPC file.

    name          expected name of the column; its type must be uint32, not nullable
    num_rows_max  more rows than this are refused before memory is allocated for them

    Raises `FormatError` for any other file.
    """
    view = memoryview(data).cast("B")
    _check_schema(view, name)
    offset, metadata_bytes, body_bytes = _only_block(view)
    body_start = offset + metadata_bytes
    if offset < 0 or metadata_bytes < 8 or body_bytes < 0 or body_start + body_bytes > len(view):
        raise FormatError(f"Arrow file: a batch of {metadata_bytes} + {body_bytes} bytes at {offset} runs past the end")
    num_rows, buffer, codec = _batch(view[offset:body_start], body_bytes)
    if num_rows > num_rows_max:
        raise FormatError(f"Arrow file: {num_rows} rows, at most {num_rows_max}")
    start, length = buffer
    content = view[body_start + start : body_start + start + length]
    return np.frombuffer(_inflate(content, 4 * num_rows, codec), dtype="<u4", count=num_rows)


def _check_schema(view: memoryview, name: str) -> None:
    try:
        reader = pa.ipc.open_file(pa.py_buffer(view))
    except MemoryError:  # pyarrow's own MemoryError is an ArrowException, too
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"expected an Arrow IPC file: {error}") from error
    expected = pa.schema([pa.field(name, pa.uint32(), nullable=False)])
    if reader.schema != expected or reader.num_record_batches != 1:
        columns = ", ".join(str(field) for field in reader.schema)[:200]
        raise FormatError(
            f"Arrow file: expected one batch of one column, {name}: uint32 not null; "
            f"found {reader.num_record_batches} of {columns}"
        )


def _only_block(view: memoryview) -> tuple[int, int, int]:
    """Offset, metadata bytes and body bytes of the record batch, from the footer."""
    end = len(view) - len(_MAGIC) - 4
    (footer_bytes,) = struct.unpack_from("<i", view, end)
    if not 0 <= footer_bytes <= end:
        raise FormatError(f"Arrow file: a footer of {footer_bytes} bytes")
    footer = Flatbuffer(view[end - footer_bytes : end])
    blocks = footer.structs(footer.root, 3, 24)
    if len(blocks) != 1:
        raise FormatError(f"Arrow file: {len(blocks)} record batches, expected 1")
    return footer.read("q", blocks[0]), footer.read("i", blocks[0] + 8), footer.read("q", blocks[0] + 16)


def _batch(metadata: memoryview, body_bytes: int) -> tuple[int, tuple[int, int], str | None]:
    """Rows, (offset, bytes) of the value buffer in the body, and codec, from the record batch message."""
    prefix = 8 if struct.unpack_from("<I", metadata)[0] == _CONTINUATION else 4
    message = Flatbuffer(metadata[prefix:])
    table = message.root
    if message.number(table, 1, "B") != _RECORD_BATCH:
        raise FormatError("Arrow file: expected a record batch message")
    batch = message.child(table, 2)
    num_rows = message.number(batch, 0, "q")
    nodes, buffers = message.structs(batch, 1, 16), message.structs(batch, 2, 16)
    if len(nodes) != 1 or len(buffers) != 2:
        raise FormatError(f"Arrow file: a batch of {len(nodes)} columns and {len(buffers)} buffers, expected 1 and 2")
    if num_rows < 0 or message.read("q", nodes[0]) != num_rows or message.read("q", nodes[0] + 8) != 0:
        raise FormatError(f"Arrow file: expected {num_rows} rows without nulls in its only column")
    start, length = message.read("q", buffers[1]), message.read("q", buffers[1] + 8)
    if start < 0 or length < 0 or start + length > body_bytes:
        raise FormatError(f"Arrow file: a buffer of {length} bytes at {start} runs past its body of {body_bytes} bytes")
    return num_rows, (start, length), _codec(message, batch)


def _codec(message: Flatbuffer, batch: int) -> str | None:
    if message.field(batch, 3) is None:
        return None
    number = message.number(message.child(batch, 3), 0, "b")
    if number not in _CODECS:
        raise FormatError(f"Arrow file: compression {number}; known are {_CODECS}")
    return _CODECS[number]


def _inflate(content: memoryview, expected_bytes: int, codec: str | None) -> Buffer:
    """The buffer's `expected_bytes` bytes of values, decompressed if necessary."""
    if codec is not None and expected_bytes:
        if len(content) < 8:
            raise FormatError(f"Arrow file: a compressed buffer of {len(content)} bytes has no length prefix")
        (size,) = struct.unpack_from("<q", content)
        content = content[8:]
        if size != _RAW:
            if not expected_bytes <= size <= expected_bytes + 64:  # writers may count their padding
                raise FormatError(f"Arrow file: a buffer of {size} bytes once decompressed, expected {expected_bytes}")
            return _decompress(content, size, codec)
    if len(content) < expected_bytes:
        raise FormatError(f"Arrow file: a buffer of {len(content)} bytes, expected {expected_bytes}")
    return content


def _decompress(content: memoryview, size: int, codec: str) -> Buffer:
    try:
        return pa.Codec(codec).decompress(pa.py_buffer(content), decompressed_size=size)
    except MemoryError:  # pyarrow's own MemoryError is an ArrowException, too
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(f"Arrow file: the buffer does not decompress: {error}") from error
