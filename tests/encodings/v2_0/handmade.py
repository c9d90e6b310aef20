"""Files of version 2.0 put together by hand, message by message: also such as no writer makes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf import any_pb2

from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.schema_messages import encode_schema
from lance_io.proto import encodings_pb2 as pb
from lance_io.proto import file_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

Array = pb.ArrayEncoding


def buffer(index: int, kind: int = 0) -> pb.Buffer:
    return pb.Buffer(buffer_index=index, buffer_type=kind)


def flat(bits: int, index: int, scheme: str | None = None, kind: int = 0) -> Array:
    compression = None if scheme is None else pb.Compression(scheme=scheme)
    return Array(flat=pb.Flat(bits_per_value=bits, buffer=buffer(index, kind), compression=compression))


def no_nulls(values: Array) -> Array:
    return Array(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNulls(values=values)))


def some_nulls(validity: Array, values: Array) -> Array:
    return Array(nullable=pb.Nullable(some_nulls=pb.Nullable.SomeNulls(validity=validity, values=values)))


ALL_NULLS = Array(nullable=pb.Nullable(all_nulls={}))
HEADER = Array(struct=pb.SimpleStruct())


def binary(indices: Array, data: Array, adjustment: int) -> Array:
    return Array(binary=pb.Binary(indices=indices, bytes=data, null_adjustment=adjustment))


def lists(offsets: Array, num_items: int, adjustment: int | None = None) -> Array:
    adjustment = num_items + 1 if adjustment is None else adjustment
    return Array(list=pb.List(offsets=offsets, null_offset_adjustment=adjustment, num_items=num_items))


def dictionary(indices: Array, items: Array, num_items: int) -> Array:
    return Array(dictionary=pb.Dictionary(indices=indices, items=items, num_dictionary_items=num_items))


def u64(*values: int) -> bytes:
    return np.array(values, "<u8").tobytes()


def bits(flags: Sequence[Any]) -> bytes:
    """A bitmap, the bits behind the last one set, for nobody may look at them."""
    padded = [*map(bool, flags), *[True] * (-len(flags) % 8)]
    return np.packbits(padded, bitorder="little").tobytes()


@dataclass
class Page:
    """One page: number of values, encoding, buffers."""

    length: int
    encoding: Array
    buffers: Sequence[bytes] = ()
    priority: int = 0


@dataclass
class Column:
    """One column: pages, its own buffers, how it is encoded (None: not said), and bytes in front that none names."""

    pages: Sequence[Page]
    buffers: Sequence[bytes] = ()
    encoding: pb.ColumnEncoding | None = field(default_factory=lambda: pb.ColumnEncoding(values={}))
    payload: bytes = b""


def write_by_hand(
    path: Path,
    schema: pa.Schema,
    columns: Sequence[Column],
    num_rows: int,
    footer: tuple[int, int] = (0, 3),
    alignment: int = 64,
) -> None:
    """A file of these columns."""
    data = bytearray()

    def put(piece: bytes) -> int:
        data.extend(b"H" * (-len(data) % alignment))
        start = len(data)
        data.extend(piece)
        return start

    messages = [_column(column, put) for column in columns]
    descriptor = file_pb2.FileDescriptor(length=num_rows)
    descriptor.schema.fields.extend(encode_schema(schema_from_arrow(schema)))
    described = descriptor.SerializeToString()
    places = [(put(described), len(described))]
    columns_at = len(data)
    table = b""
    for message in messages:
        table += struct.pack("<QQ", len(data), len(message))
        data.extend(message)
    table_at = len(data)
    data.extend(table)
    globals_at = len(data)
    data.extend(struct.pack("<QQ", *places[0]))
    data.extend(struct.pack("<QQQIIHH4s", columns_at, table_at, globals_at, 1, len(columns), *footer, b"LANC"))
    path.write_bytes(data)


def _column(column: Column, put: Any) -> bytes:
    message = file_pb2.ColumnMetadata()
    if column.encoding is not None:
        message.encoding.direct.encoding = _any("ColumnEncoding", column.encoding)
    if column.payload:
        put(column.payload)
    for piece in column.buffers:
        message.buffer_offsets.append(put(piece))
        message.buffer_sizes.append(len(piece))
    for page in column.pages:
        one = message.pages.add(length=page.length, priority=page.priority)
        one.buffer_offsets.extend([put(piece) for piece in page.buffers])
        one.buffer_sizes.extend(map(len, page.buffers))
        one.encoding.direct.encoding = _any("ArrayEncoding", page.encoding)
    return message.SerializeToString()


def _any(name: str, message: Any) -> bytes:
    return any_pb2.Any(type_url=f"/lance.encodings.{name}", value=message.SerializeToString()).SerializeToString()
