"""Buffers of a page of version 2.0, and runs of selected rows (spec: encodings 2.0, sections 4 and 5.1).

A buffer is read in part. A compressed buffer is always read and decompressed as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.wire import I64_MAX
from lance_io.proto import encodings_pb2 as pb
from lance_io.records import dataclass
from lance_io.spans import Fetched, Ranges

if TYPE_CHECKING:
    from lance_io.encodings.api import RowSelection
    from lance_io.spans import IntArray, Purpose, Steps

SCHEMES: Final = {"lz4": 1, "zstd": 2}  # as kernels number them
ALIGNMENT_BYTES_MAX: Final = 8  # Arrow's kernels need values aligned to their width, up to this


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Selected values of an array: ascending, disjoint ranges.

    starts, ends  i64[n]
    num_values    sum of the range lengths
    """

    starts: IntArray
    ends: IntArray
    num_values: int

    @classmethod
    def all(cls, num_values: int) -> Runs:
        """Every value of an array."""
        return cls(np.zeros(1, dtype=np.int64), np.array([num_values], dtype=np.int64), num_values)

    @classmethod
    def of(cls, selection: RowSelection) -> Runs:
        """Selected rows; neighbouring single rows become one run."""
        starts, ends = selection.starts, selection.ends
        if ends is not None:
            return cls(starts, ends, selection.num_rows)
        if not len(starts):
            return cls(starts, starts, 0)
        borders = np.flatnonzero(starts[1:] != starts[:-1] + 1) + 1
        firsts = np.concatenate((starts[:1], starts[borders]))
        lasts = np.concatenate((starts[borders - 1], starts[-1:]))
        return cls(firsts, lasts + 1, len(starts))

    @property
    def counts(self) -> IntArray:
        """Lengths of the ranges."""
        counts: IntArray = self.ends - self.starts
        return counts

    def scale(self, slots_per_value: int) -> Runs:
        """The slots of these values, if each has several."""
        return Runs(self.starts * slots_per_value, self.ends * slots_per_value, self.num_values * slots_per_value)


@dataclass(frozen=True, slots=True, eq=False)
class StoredBuffer:
    """One buffer of the file.

    offset_bytes, size_bytes  its range in the file
    scheme                    compression, numbered as in the kernels; 0 for none
    plain_bytes               minimum decompressed size; bytes beyond it are ignored
    """

    offset_bytes: int
    size_bytes: int
    scheme: int
    plain_bytes: int

    def fetch(
        self, starts: IntArray, ends: IntArray, *, purpose: Purpose = "data", keep: bool = False
    ) -> Steps[Fetched]:
        """Byte ranges of the decompressed buffer, all within `plain_bytes`. One round."""
        if not self.scheme:
            offset = self.offset_bytes
            return (yield Ranges(starts + offset, ends + offset, purpose, keep))
        whole = yield Ranges.of((self.offset_bytes, self.offset_bytes + self.size_bytes))
        return Fetched(self.inflate(whole.piece(0, self.size_bytes)), starts)

    def inflate(self, stored: memoryview) -> memoryview:
        """Decompress a buffer that has a scheme."""
        data = _kernels.inflate(stored, self.scheme, self.plain_bytes)
        if data.nbytes < self.plain_bytes:
            raise FormatError(f"a compressed buffer holds {data.nbytes} bytes; its values take {self.plain_bytes}")
        return memoryview(data)

    def fetch_all(self, *, purpose: Purpose = "data", keep: bool = True) -> Steps[memoryview]:
        """All `plain_bytes` of it. One round."""
        start, end = np.zeros(1, dtype=np.int64), np.array([self.plain_bytes], dtype=np.int64)
        fetched = yield from self.fetch(start, end, purpose=purpose, keep=keep)
        return fetched.piece(0, self.plain_bytes)

    def __str__(self) -> str:
        return next((f"{name} " for name, number in SCHEMES.items() if number == self.scheme), "")


def gather(fetched: Fetched, lengths: IntArray, alignment_bytes: int = 1) -> Any:
    """Join fetched ranges into a buffer for Arrow; a single range is zero-copy.

    alignment_bytes  required alignment of the address
    """
    if len(lengths) == 1:
        buffer = pa.py_buffer(fetched.piece(0, int(lengths[0])))
        if not len(buffer) or buffer.address % min(alignment_bytes, ALIGNMENT_BYTES_MAX) == 0:
            return buffer
    return pa.py_buffer(_kernels.gather_ranges(fetched.buffer, fetched.offsets, lengths))


@dataclass(frozen=True, slots=True, eq=False)
class PageBuffers:
    """The buffers that a page's messages refer to by number: those of the page and of its column.

    Each is `(offset, size)` in bytes.
    """

    of_page: tuple[tuple[int, int], ...]
    of_column: tuple[tuple[int, int], ...]

    def own_at(self, start: int, end: int) -> int | None:
        """The number of the page's buffer that contains these file bytes; None unless exactly one buffer does."""
        matches = [number for number, (at, size) in enumerate(self.of_page) if at <= start and end <= at + size]
        return matches[0] if len(matches) == 1 else None

    def resolve(self, buffer: pb.Buffer, plain_bytes: int, compression: pb.Compression | None = None) -> StoredBuffer:
        """The buffer of a message.

        Raises FormatError if it is missing or too small, UnsupportedError for an unknown compression and for file
        buffers.

        plain_bytes  size of its values
        """
        if buffer.buffer_type == pb.BUFFER_TYPE_FILE:
            raise UnsupportedError("a page that refers to buffers of the file, which no release reads")
        if buffer.buffer_type not in (pb.BUFFER_TYPE_PAGE, pb.BUFFER_TYPE_COLUMN):
            raise UnsupportedError(f"a page that refers to buffers of kind {buffer.buffer_type}")
        is_own = buffer.buffer_type == pb.BUFFER_TYPE_PAGE
        candidates = self.of_page if is_own else self.of_column
        if buffer.buffer_index >= len(candidates):
            owner = "page" if is_own else "column"
            raise FormatError(f"buffer {buffer.buffer_index} of a {owner} that has {len(candidates)}")
        offset, size = candidates[buffer.buffer_index]
        scheme = 0 if compression is None else _scheme(compression.scheme)
        if plain_bytes > (I64_MAX if scheme else size):
            raise FormatError(f"a buffer of {size} bytes; its values take {plain_bytes}")
        return StoredBuffer(offset, size, scheme, plain_bytes)


def _scheme(name: str) -> int:
    if name in ("", "none"):
        return 0
    scheme = SCHEMES.get(name)
    if scheme is None:
        raise UnsupportedError(f"buffers compressed with {name!r}; {', '.join(SCHEMES)} are read")
    return scheme
