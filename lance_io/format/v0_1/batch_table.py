"""The end of a file of version 0.1, and its page table (spec: legacy 0.1, sections 1, 2 and 4).

    bytes from the end   type      meaning
    -16                  u64 LE    position of the metadata block: u32 length, then a `BatchMetadata` message
     -8                  u16 x 2   0, and 0, 1 or 2: see `version.py`
     -4                  bytes     "LANC"

A file is a list of batches. The page table locates the page of each field in each batch:

    entry(id, batch) = i64 position, i64 length     at  16 * ((id - first_id) * num_batches + batch)

Positions are file offsets; lengths count values, for lists offsets. Ids that are missing in the file, and structs,
have zeros.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io import _kernels
from lance_io.errors import FormatError
from lance_io.format.footer import MAGIC
from lance_io.format.version import VERSION_OF_PAIR, FileVersion
from lance_io.format.wire import parse_message
from lance_io.limits import METADATA_BYTES_MAX
from lance_io.proto import file_pb2

if TYPE_CHECKING:
    from lance_io.format.wire import Buffer
    from lance_io.spans import IntArray

_FOOTER = struct.Struct("<QHH4s")
BATCH_FOOTER_BYTES: Final = _FOOTER.size
_LENGTH = struct.Struct("<I")
ENTRY_BYTES: Final = 16  # of the page table
IDS_MAX: Final = 1 << 20  # fields of a file; more mean damage


def version_at_end(tail: Buffer) -> FileVersion | None:
    """The file version in the last eight bytes; None if they do not end a Lance file.

    Raises `UnsupportedError` for an unknown version.
    """
    view = memoryview(tail).cast("B")
    if len(view) < BATCH_FOOTER_BYTES:
        return None
    _, major, minor, magic = _FOOTER.unpack_from(view, len(view) - BATCH_FOOTER_BYTES)
    return VERSION_OF_PAIR[major, minor] if magic == MAGIC else None


def metadata_position(tail: Buffer, file_bytes: int) -> int:
    """Position of the metadata block. Raises `FormatError` for a position outside of the file."""
    view = memoryview(tail).cast("B")
    (position,) = struct.unpack_from("<Q", view, len(view) - BATCH_FOOTER_BYTES)
    end = file_bytes - BATCH_FOOTER_BYTES
    if position + _LENGTH.size > end:
        raise FormatError(f"footer: metadata at {position} in a file of {file_bytes} bytes")
    if end - position > METADATA_BYTES_MAX:
        raise FormatError(f"footer: metadata of {end - position} bytes, at most {METADATA_BYTES_MAX}")
    return int(position)


def block_at(data: Buffer, start: int, what: str) -> memoryview:
    """The message in the block that begins at `start` of `data`. Raises `FormatError` if the block exceeds `data`."""
    view = memoryview(data).cast("B")
    if start + _LENGTH.size > len(view):
        raise FormatError(f"{what}: {len(view) - start} bytes left, expected a length")
    (length,) = _LENGTH.unpack_from(view, start)
    content = view[start + _LENGTH.size : start + _LENGTH.size + length]
    if len(content) < length:
        raise FormatError(f"{what} of {length} bytes, of which the file has {len(content)}")
    return content


class BatchMetadata:
    """The global metadata of a file.

    num_rows       rows of the file
    num_batches    batches of the file
    page_table_at  position of the page table
    """

    __slots__ = ("_message", "_row_starts", "num_batches", "num_rows", "page_table_at")

    def __init__(self, row_starts: bytes, page_table_at: int, message: bytes | None) -> None:
        """From a message that was checked.

        row_starts  i64[batches + 1], rows before each batch
        message     the message, if it has statistics
        """
        self._row_starts = row_starts
        self._message = message
        self.num_batches = len(row_starts) // 8 - 1
        self.num_rows = int.from_bytes(row_starts[-8:], "little")
        self.page_table_at = page_table_at

    @property
    def row_starts(self) -> IntArray:
        """i64[batches + 1], rows before each batch; the last entry is the number of rows."""
        return np.frombuffer(self._row_starts, dtype=np.int64)

    @property
    def has_statistics(self) -> bool:
        """Whether the file has statistics of its batches."""
        return self._message is not None

    @property
    def statistics(self) -> file_pb2.BatchMetadata.Statistics | None:
        """The message that describes the statistics; None without. Raises FormatError for a damaged message."""
        if self._message is None:
            return None
        return parse_message(file_pb2.BatchMetadata, self._message, "metadata").statistics


def decode_metadata(content: Buffer) -> BatchMetadata:
    """Parse the metadata of a file. Raises `FormatError` for contradictory metadata."""
    message = parse_message(file_pb2.BatchMetadata, content, "metadata")
    starts = np.array(message.batch_offsets, dtype=np.int64)
    if not len(starts):
        starts = np.zeros(1, dtype=np.int64)
    if starts[0] != 0 or (np.diff(starts) < 0).any():
        raise FormatError("batch offsets: expected 0 first, and none below the one before it")
    described = bytes(content) if message.HasField("statistics") else None
    return BatchMetadata(starts.tobytes(), message.page_table_position, described)


def decode_end(tail: Buffer, start: int, file_bytes: int, num_ids: int) -> tuple[BatchMetadata, bytes] | None:
    """Parse metadata and page table of `num_ids` ids if the end of the file has the usual form and passes all checks.

    start  file offset at which `tail` begins; it ends at the end of the file
    """
    parsed = _kernels.batches_ending(tail, start, file_bytes, num_ids, METADATA_BYTES_MAX)
    return None if parsed is None else (BatchMetadata(*parsed[:3]), parsed[3])


class PageTable:
    """The pages of each field in each batch.

    first_id  id of the first row
    data      all entries: position and length, one id after the other
    """

    __slots__ = ("_num_batches", "_num_ids", "_pairs", "data", "first_id")

    def __init__(self, data: bytes, first_id: int, last_id: int, num_batches: int) -> None:
        """The page table of these ids, encoded in `data`."""
        self.data = data
        self.first_id = first_id
        self._num_ids = last_id - first_id + 1
        self._num_batches = num_batches
        self._pairs: tuple[IntArray, IntArray] | None = None

    @property
    def positions(self) -> IntArray:
        """i64[ids, batches], file offsets."""
        return self._columns()[0]

    @property
    def lengths(self) -> IntArray:
        """i64[ids, batches], numbers of values."""
        return self._columns()[1]

    def _columns(self) -> tuple[IntArray, IntArray]:
        if self._pairs is None:
            pairs = np.frombuffer(self.data, dtype="<i8").reshape(self._num_ids, self._num_batches, 2)
            self._pairs = np.ascontiguousarray(pairs[:, :, 0]), np.ascontiguousarray(pairs[:, :, 1])
        return self._pairs

    def __len__(self) -> int:
        return self._num_ids * self._num_batches

    def has(self, field_id: int) -> bool:
        """Whether a field has a row."""
        return 0 <= field_id - self.first_id < self._num_ids


def page_table_range(position: int, first_id: int, last_id: int, num_batches: int, file_bytes: int) -> tuple[int, int]:
    """File range of the page table. Raises `FormatError` if the file does not contain it."""
    num_ids = last_id - first_id + 1
    if not 0 < num_ids <= IDS_MAX:
        raise FormatError(f"field ids from {first_id} to {last_id}, at most {IDS_MAX} of them")
    end = position + ENTRY_BYTES * num_ids * num_batches
    if end > file_bytes or end - position > METADATA_BYTES_MAX:
        raise FormatError(
            f"page table of {num_ids} fields and {num_batches} batches at {position} in a file of {file_bytes} bytes"
        )
    return position, end
