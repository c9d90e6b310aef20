"""The end of a file of version 0.1, and its page table (spec: legacy 0.1, sections 1, 2 and 4).

    bytes from the end   type      meaning
    -16                  u64 LE    position of the metadata block: u32 length, then a `BatchMetadata` message
     -8                  u16 x 2   0, and 0, 1 or 2: see `version.py`
     -4                  bytes     "LANC"

A file is a list of batches, and the page table says where the page of each field is in each batch:

    entry(id, batch) = i64 position, i64 length     at  16 * ((id - first_id) * num_batches + batch)

Positions are those of the file; lengths count values, for lists offsets. Ids that the file lacks, and structs, have
zeros.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.errors import FormatError
from lance_io.format.footer import MAGIC
from lance_io.format.version import FileVersion, version_of_pair
from lance_io.format.wire import parse_message
from lance_io.limits import METADATA_BYTES_MAX
from lance_io.proto import file_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io.format.wire import Buffer
    from lance_io.spans import IntArray

_FOOTER = struct.Struct("<QHH4s")
BATCH_FOOTER_BYTES: Final = _FOOTER.size
_LENGTH = struct.Struct("<I")
ENTRY_BYTES: Final = 16  # of the page table
IDS_MAX: Final = 1 << 20  # fields of a file; more is damage


def version_at_end(tail: Buffer) -> FileVersion | None:
    """The file version that the last eight bytes name; None where they are no end of a Lance file.

    Raises `UnsupportedError` for a version that nobody knows.
    """
    view = memoryview(tail).cast("B")
    if len(view) < BATCH_FOOTER_BYTES:
        return None
    _, major, minor, magic = _FOOTER.unpack_from(view, len(view) - BATCH_FOOTER_BYTES)
    return version_of_pair(major, minor) if magic == MAGIC else None


def metadata_position(tail: Buffer, file_bytes: int) -> int:
    """Where the block with the metadata is. Raises `FormatError` for a place that the file does not have."""
    view = memoryview(tail).cast("B")
    (position,) = struct.unpack_from("<Q", view, len(view) - BATCH_FOOTER_BYTES)
    end = file_bytes - BATCH_FOOTER_BYTES
    if position + _LENGTH.size > end:
        raise FormatError(f"footer: metadata at {position} in a file of {file_bytes} bytes")
    if end - position > METADATA_BYTES_MAX:
        raise FormatError(f"footer: metadata of {end - position} bytes, at most {METADATA_BYTES_MAX}")
    return int(position)


def block_at(data: Buffer, start: int, what: str) -> memoryview:
    """The message in the block that begins at `start` of `data`. Raises `FormatError` where it ends behind these."""
    view = memoryview(data).cast("B")
    if start + _LENGTH.size > len(view):
        raise FormatError(f"{what}: {len(view) - start} bytes left, expected a length")
    (length,) = _LENGTH.unpack_from(view, start)
    content = view[start + _LENGTH.size : start + _LENGTH.size + length]
    if len(content) < length:
        raise FormatError(f"{what} of {length} bytes, of which the file has {len(content)}")
    return content


@dataclass(frozen=True, slots=True, eq=False)
class BatchMetadata:
    """What a file says about itself.

    row_starts     i64[batches + 1], rows before each batch; the last entry is the number of rows
    page_table_at  position of the page table
    statistics     of the batches, as they are described; None without
    """

    row_starts: IntArray
    page_table_at: int
    statistics: file_pb2.BatchMetadata.Statistics | None

    @property
    def num_batches(self) -> int:
        """Batches of the file."""
        return len(self.row_starts) - 1

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return int(self.row_starts[-1])


def decode_metadata(content: Buffer) -> BatchMetadata:
    """The metadata of a file. Raises `FormatError` for what contradicts itself."""
    message = parse_message(file_pb2.BatchMetadata, content, "metadata")
    starts = np.array(message.batch_offsets, dtype=np.int64)
    if not len(starts):
        starts = np.zeros(1, dtype=np.int64)
    if starts[0] != 0 or (np.diff(starts) < 0).any():
        raise FormatError("batch offsets: expected 0 first, and none below the one before it")
    statistics = message.statistics if message.HasField("statistics") else None
    return BatchMetadata(starts, message.page_table_position, statistics)


@dataclass(frozen=True, slots=True, eq=False)
class PageTable:
    """Where the page of each field is in each batch.

    first_id            id of the first row of both
    positions, lengths  i64[ids, batches]
    """

    first_id: int
    positions: IntArray
    lengths: IntArray

    def has(self, field_id: int) -> bool:
        """Whether there is a row for a field."""
        return 0 <= field_id - self.first_id < len(self.positions)


def page_table_range(position: int, first_id: int, last_id: int, num_batches: int, file_bytes: int) -> tuple[int, int]:
    """Which bytes of the file are the page table. Raises `FormatError` where the file does not have them."""
    num_ids = last_id - first_id + 1
    if not 0 < num_ids <= IDS_MAX:
        raise FormatError(f"field ids from {first_id} to {last_id}, at most {IDS_MAX} of them")
    end = position + ENTRY_BYTES * num_ids * num_batches
    if end > file_bytes or end - position > METADATA_BYTES_MAX:
        raise FormatError(
            f"page table of {num_ids} fields and {num_batches} batches at {position} in a file of {file_bytes} bytes"
        )
    return position, end


def decode_page_table(data: Buffer, first_id: int, last_id: int, num_batches: int) -> PageTable:
    """The page table of these ids that `data` is."""
    pairs = np.frombuffer(data, dtype="<i8").reshape(last_id - first_id + 1, num_batches, 2)
    return PageTable(first_id, np.ascontiguousarray(pairs[:, :, 0]), np.ascontiguousarray(pairs[:, :, 1]))
