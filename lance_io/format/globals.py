"""Global buffers of a data file; buffer 0 describes the file (spec: file container, sections 1.5 and 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io import _kernels
from lance_io.errors import FormatError
from lance_io.format.footer import Footer, OffsetTable, check_alignment, decode_offset_table
from lance_io.format.schema_messages import decode_schema_bytes
from lance_io.format.wire import I64_MAX, parse_message
from lance_io.limits import METADATA_BYTES_MAX
from lance_io.proto import file_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.format.schema import Schema
    from lance_io.format.wire import Buffer


@dataclass(frozen=True, slots=True)
class FileDescriptor:
    """The global description of a data file: its own schema and its number of rows."""

    schema: Schema
    num_rows: int


def decode_globals_table(data: Buffer, footer: Footer) -> OffsetTable:
    """The ranges of the global buffers; `data` begins at `footer.globals_table_at`.

    Raises `FormatError` for buffers outside of the data part of the file, unaligned ones (2.1 and later), and a file
    descriptor too large to be one.
    """
    table = decode_offset_table(data, footer.num_globals, start=0, end=footer.columns_at, what="global buffer")
    for index, position in enumerate(table.positions.tolist()):
        check_alignment(position, footer.version, f"global buffer {index}")
    if int(table.sizes[0]) > METADATA_BYTES_MAX:
        raise FormatError(f"file descriptor of {int(table.sizes[0])} bytes, at most {METADATA_BYTES_MAX}")
    return table


def split_descriptor(data: Buffer) -> tuple[bytes, int] | None:
    """Split the number of rows off a descriptor; the remainder is a descriptor, too, and equal for equal schemas.

    None for an unusual form.
    """
    return _kernels.split_descriptor(data)


def schema_of_descriptor(descriptor: bytes) -> bytes:
    """The `Schema` message in a descriptor without number of rows, from `split_descriptor`."""
    start = 2  # after the tag; the loop moves past the last byte of the length
    while descriptor[start - 1] >= 0x80:
        start += 1
    return descriptor[start:]


def decode_file_descriptor(data: Buffer) -> FileDescriptor:
    """Parse global buffer 0, all of it. Raises `FormatError`, and `UnsupportedError` for unknown types."""
    message = parse_message(file_pb2.FileDescriptor, data, "file descriptor")
    if message.length > I64_MAX:
        raise FormatError(f"file descriptor: {message.length} rows")
    return FileDescriptor(decode_schema_bytes(message.schema.SerializeToString(deterministic=True)), message.length)
