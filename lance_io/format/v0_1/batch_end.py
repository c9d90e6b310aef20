"""Writes the end of a file of version 0.1 (spec: legacy 0.1, sections 1, 2, 4, 7 and 8).

page table | pages of statistics | their page table | values of dictionaries | manifest | metadata | footer
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.format.footer import MAGIC
from lance_io.format.schema import Field, Schema
from lance_io.format.schema_messages import encode_schema
from lance_io.format.v0_1.dictionaries import lay_out_values
from lance_io.proto import file_pb2, table_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from google.protobuf.message import Message

    from lance_io.spans import IntArray

_LENGTH = struct.Struct("<I")
_FOOTER = struct.Struct("<QHH4s")
_FOOTER_VERSION = 0, 2


def encode_page_table(
    entries: Iterable[tuple[int, int, int, int]], first_id: int, last_id: int, num_batches: int
) -> bytes:
    """Encode a page table from `(field id, batch, position, length)` of each page; ids without pages have zeros."""
    table = np.zeros((last_id - first_id + 1, num_batches, 2), "<i8")
    table_rows = np.array(list(entries), dtype=np.int64).reshape(-1, 4)
    table[table_rows[:, 0] - first_id, table_rows[:, 1]] = table_rows[:, 2:]
    return table.tobytes()


def statistics_schema(fields: Sequence[Field]) -> Schema:
    """The schema of the statistics table of these fields, in the order of their ids."""
    tops = []
    for at, field in enumerate(fields):
        first = 4 * at
        members = (
            Field(first + 1, "null_count", "int64", nullable=False),
            Field(first + 2, "min_value", field.logical_type),
            Field(first + 3, "max_value", field.logical_type),
        )
        tops.append(Field(first, str(field.id), "struct", nullable=False, children=members))
    return Schema(tuple(tops))


def encode_end(
    schema: Schema,
    metadata: Mapping[str, bytes],
    row_starts: IntArray,
    page_table_at: int,
    statistics: tuple[Schema, int] | None,
    position: int,
    writer: tuple[str, str],
) -> list[bytes]:
    """Everything after the statistics.

    schema      with the values of its dictionaries
    row_starts  i64[batches + 1]
    statistics  their schema, and the position of their page table; None without statistics
    position    file offset at which the result begins
    writer      name and version of the library
    """
    fields = encode_schema(schema)
    dictionaries = lay_out_values(fields, position)
    manifest_at = position + len(dictionaries)
    manifest = table_pb2.Manifest(fields=fields, schema_metadata=metadata, version=1)
    manifest.writer_version.library, manifest.writer_version.version = writer
    manifest.data_format.file_format, manifest.data_format.version = "lance", "0.1"
    message = file_pb2.BatchMetadata(
        manifest_position=manifest_at, batch_offsets=row_starts.tolist(), page_table_position=page_table_at
    )
    if statistics is not None:
        described, table_at = statistics
        message.statistics.schema.extend(encode_schema(described))
        message.statistics.fields.extend(range(4 * len(described)))
        message.statistics.page_table_position = table_at
    manifest_block = _block(manifest)
    metadata_at = manifest_at + len(manifest_block)
    return [dictionaries, manifest_block, _block(message), _FOOTER.pack(metadata_at, *_FOOTER_VERSION, MAGIC)]


def _block(message: Message) -> bytes:
    content: Any = message.SerializeToString(deterministic=True)
    return _LENGTH.pack(len(content)) + bytes(content)
