"""Buffers of a page of version 2.0, and the rows wanted of it (spec: encodings 2.0, section 4 and 5.1).

A buffer is read in part, unless it is compressed: then all of it is read and decompressed, whatever is wanted.
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
ALIGNMENT_BYTES_MAX: Final = 8  # Arrow's own kernels want values at multiples of their width, up to this


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Values wanted of an array: ascending, disjoint ranges of neighbours.

    starts, ends  i64[n]
    num_values    sum of their lengths
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
        """Selected rows; single ones that are neighbours become one run."""
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
        """The slots of these values, where each has several."""
        return Runs(self.starts * slots_per_value, self.ends * slots_per_value, self.num_values * slots_per_value)


@dataclass(frozen=True, slots=True, eq=False)
class StoredBuffer:
    """One buffer of the file.

    offset_bytes, size_bytes  where it lies
    scheme                    how it is compressed, as kernels number it; 0 for not at all
    plain_bytes               its size without compression, at least; what is beyond is not looked at
    """

    offset_bytes: int
    size_bytes: int
    scheme: int
    plain_bytes: int

    def fetch(
        self, starts: IntArray, ends: IntArray, *, purpose: Purpose = "data", keep: bool = False
    ) -> Steps[Fetched]:
        """Byte ranges of it, counted without compression; all within `plain_bytes`. One round."""
        if not self.scheme:
            offset = self.offset_bytes
            return (yield Ranges(starts + offset, ends + offset, purpose, keep))
        whole = yield Ranges.of((self.offset_bytes, self.offset_bytes + self.size_bytes))
        return Fetched(self.inflate(whole.piece(0, self.size_bytes)), starts)

    def inflate(self, stored: memoryview) -> memoryview:
        """All of its bytes without compression, of which there is one."""
        data = _kernels.inflate(stored, self.scheme, self.plain_bytes)
        if data.nbytes < self.plain_bytes:
            raise FormatError(f"a compressed buffer holds {data.nbytes} bytes; its values take {self.plain_bytes}")
        return memoryview(data)

    def fetch_all(self, *, purpose: Purpose = "data", keep: bool = True) -> Steps[memoryview]:
        """All of its `plain_bytes`. One round."""
        start, end = np.zeros(1, dtype=np.int64), np.array([self.plain_bytes], dtype=np.int64)
        fetched = yield from self.fetch(start, end, purpose=purpose, keep=keep)
        return fetched.piece(0, self.plain_bytes)

    def __str__(self) -> str:
        return next((f"{name} " for name, number in SCHEMES.items() if number == self.scheme), "")


def gather(fetched: Fetched, lengths: IntArray, alignment_bytes: int = 1) -> Any:
    """Ranges that were fetched, back to back, as a buffer for Arrow: without a copy if it is a single one.

    alignment_bytes  what the address must be a multiple of
    """
    if len(lengths) == 1:
        buffer = pa.py_buffer(fetched.piece(0, int(lengths[0])))
        if not len(buffer) or buffer.address % min(alignment_bytes, ALIGNMENT_BYTES_MAX) == 0:
            return buffer
    return pa.py_buffer(_kernels.gather_ranges(fetched.buffer, fetched.offsets, lengths))


@dataclass(frozen=True, slots=True, eq=False)
class PageBuffers:
    """The buffers that messages of a page refer to by number: its own and those of its column, each as (offset, size)
    in bytes.
    """

    of_page: tuple[tuple[int, int], ...]
    of_column: tuple[tuple[int, int], ...]

    def own_at(self, start: int, end: int) -> int | None:
        """The number of the page's only buffer that these bytes of the file are in; None where there is not one."""
        found = [number for number, (at, size) in enumerate(self.of_page) if at <= start and end <= at + size]
        return found[0] if len(found) == 1 else None

    def resolve(self, buffer: pb.Buffer, plain_bytes: int, compression: pb.Compression | None = None) -> StoredBuffer:
        """The buffer of a message. Raises FormatError where it is missing or too small, UnsupportedError for a
        compression that nobody reads and for buffers of the file.

        plain_bytes  that its values take
        """
        if buffer.buffer_type == pb.BUFFER_TYPE_FILE:
            raise UnsupportedError("a page that refers to buffers of the file, which no release reads")
        if buffer.buffer_type not in (pb.BUFFER_TYPE_PAGE, pb.BUFFER_TYPE_COLUMN):
            raise UnsupportedError(f"a page that refers to buffers of kind {buffer.buffer_type}")
        is_own = buffer.buffer_type == pb.BUFFER_TYPE_PAGE
        places = self.of_page if is_own else self.of_column
        if buffer.buffer_index >= len(places):
            owner = "page" if is_own else "column"
            raise FormatError(f"buffer {buffer.buffer_index} of a {owner} that has {len(places)}")
        offset, size = places[buffer.buffer_index]
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
