"""Values of variable width (spec: encodings 2.0, 5.5, 5.7, 5.10): the end of each, and the bytes of all.

    indices  u64 for each value: its end among the bytes, from 0 on in each page, plus `null_adjustment` if it is null
    bytes    of all values, including those under nulls

Some values take two rounds, ends and bytes, or one if the ends are known; all values take one. In a small compressed
page, the bytes are cached with the ends, so that they are decompressed once. Lists end the same way (`list_page.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.encodings.rounds import merge_ranges, together
from lance_io.encodings.v2_0.buffers import Runs, StoredBuffer, gather
from lance_io.encodings.v2_0.fixed import FixedValues
from lance_io.errors import FormatError
from lance_io.limits import KIB
from lance_io.records import dataclass
from lance_io.spans import Fetched, Ranges, int64s

if TYPE_CHECKING:
    from lance_io.spans import IntArray, Steps

END_BYTES: Final = 8
ENDS_READ_BYTES_MAX: Final = 64 * KIB  # above, a cold take is faster with its rows' ends only
ENDS_KEPT_BYTES_MAX: Final = 256 * KIB  # above, the memory of the cache and the read time cost more
PLAIN_KEPT_BYTES_MAX: Final = 256 * KIB  # decompressed in less than 1 ms, short enough for the event loop
WIDE_TYPES: Final = (pa.large_string(), pa.large_binary())


@dataclass(frozen=True, slots=True, eq=False)
class EndsIndex:
    """All ends of a page as stored in the file.

    plain  the decompressed bytes of all values, if they are compressed and few
    """

    data: Any
    plain: bytes | None = None

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return len(self.data) + len(self.plain or b"") + 128


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Byte or item ranges of the selected values, and their Arrow buffers.

    starts, ends  i64[n], of each run of values
    offsets       of the values within these ranges, i32 or i64[values + 1]
    validity      bitmap, or None without nulls
    """

    starts: IntArray
    ends: IntArray
    offsets: Any
    validity: Any | None
    null_count: int


class Ends:
    """The ends of a page's values.

    adjustment  added to the ends of nulls
    end_max     upper limit of all ends: bytes or items of the page
    wide        whether Arrow's offsets have 64 bits
    """

    def __init__(self, num_values: int, buffer: StoredBuffer, adjustment: int, end_max: int, *, wide: bool) -> None:
        self.num_values = num_values
        self.buffer = buffer
        self.adjustment = adjustment
        self.end_max = end_max
        self.wide = wide

    def as_wide(self) -> Ends:
        """The same ends with 64-bit offsets, for reads of single items, whose lists may add up to more."""
        return Ends(self.num_values, self.buffer, self.adjustment, self.end_max, wide=True)

    @property
    def are_few(self) -> bool:
        """Whether they are worth caching."""
        return not self.buffer.scheme and 0 < self.buffer.plain_bytes <= ENDS_KEPT_BYTES_MAX

    def is_kept(self, *, was_read: bool) -> bool:
        """Whether to read all ends with some rows: very few at once, more if the page was read before."""
        return self.are_few and (was_read or self.buffer.plain_bytes <= ENDS_READ_BYTES_MAX)

    def index_ranges(self) -> Ranges | None:
        """The range of all ends, unless they are too many to cache."""
        if not self.are_few:
            return None
        start = self.buffer.offset_bytes
        return Ranges.of((start, start + self.buffer.plain_bytes), purpose="index")

    def load_index(self, fetched: Fetched) -> EndsIndex:
        """Parse all ends."""
        return EndsIndex(bytes(fetched.piece(0, self.buffer.plain_bytes)))

    def read_all(self) -> Steps[EndsIndex]:
        """All ends, independent of their number: one round."""
        data = yield from self.buffer.fetch_all(purpose="index", keep=not self.are_few)
        return EndsIndex(bytes(data) if self.are_few else data)  # the pieces of a scan share a large buffer

    def read(self, runs: Runs, index: Any) -> Steps[Spans]:
        """Spans of some values: one round, or none with an index."""
        before = np.maximum(runs.starts - 1, 0) * END_BYTES
        if isinstance(index, EndsIndex):
            return self.decode(Fetched(index.data, before), runs)
        ends = np.where(runs.ends > runs.starts, runs.ends * END_BYTES, before)
        fetched = yield from self.buffer.fetch(before, ends, purpose="index")
        return self.decode(fetched, runs)

    def decode(self, fetched: Fetched, runs: Runs) -> Spans:
        """Decode the ends of each run and the end before it."""
        starts, ends, offsets, validity, null_count = _kernels.decode_ends(
            fetched.buffer, fetched.offsets, runs.starts, runs.counts, self.adjustment, self.end_max, self.wide
        )
        return Spans(int64s(starts), int64s(ends), offsets, validity, null_count)

    def of_all(self, data: memoryview) -> Spans:
        """Decode all ends."""
        return self.decode(Fetched(data, np.zeros(1, dtype=np.int64)), Runs.all(self.num_values))

    def borders(self, index: EndsIndex, slots: IntArray) -> IntArray:
        """Start of some values, i64[n], never descending; slot `num_values` stands for the end of the last value.

        slots  i64[n], ascending

        Ends that contradict the format are clamped here; reading rows rejects them.
        """
        stored = np.frombuffer(index.data, dtype=np.uint64)[np.maximum(slots - 1, 0)]
        adjustment = np.uint64(self.adjustment)
        ends = np.minimum(np.where(stored < adjustment, stored, stored - adjustment), np.uint64(self.end_max))
        ends[slots == 0] = 0
        borders: IntArray = np.maximum.accumulate(ends.astype(np.int64))
        return borders


class Variable:
    """Strings or bytes.

    data  the bytes of all values; `null_adjustment` implies their number
    """

    def __init__(self, dtype: pa.DataType, ends: Ends, data: StoredBuffer) -> None:
        self.dtype = dtype
        self.num_values = ends.num_values
        self.ends = ends
        self.data = data
        self.row_bits: int | None = None

    @property
    def _keeps_plain(self) -> bool:
        """Whether the bytes are compressed and worth caching decompressed."""
        data = self.data
        return (
            bool(data.scheme) and self.ends.are_few and max(data.size_bytes, data.plain_bytes) <= PLAIN_KEPT_BYTES_MAX
        )

    def index_ranges(self) -> Ranges | None:
        """Ranges of the ends of small pages, and of compressed bytes."""
        ranges = self.ends.index_ranges()
        if ranges is None or not self._keeps_plain:
            return ranges
        start = self.data.offset_bytes
        return merge_ranges([ranges, Ranges.of((start, start + self.data.size_bytes), purpose="index")])

    def load_index(self, fetched: Fetched) -> EndsIndex:
        """The ends, and the decompressed bytes."""
        index = self.ends.load_index(fetched)
        if not self._keeps_plain:
            return index
        data = self.data.inflate(fetched.piece(1, self.data.size_bytes))
        return EndsIndex(index.data, bytes(data[: self.data.plain_bytes]))

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some values: two rounds, or one with an index; no round for empty values."""
        spans = yield from self.ends.read(runs, index)
        is_filled = spans.ends > spans.starts
        starts, ends = spans.starts[is_filled], spans.ends[is_filled]
        if not len(starts):
            return self._array(spans, runs.num_values, b"")
        if isinstance(index, EndsIndex) and index.plain is not None:
            fetched = Fetched(index.plain, starts)
        else:
            fetched = yield from self.data.fetch(starts, ends, keep=len(starts) == 1)
        return self._array(spans, runs.num_values, gather(fetched, ends - starts))

    def read_indexed(self, runs: Runs, was_read: bool) -> Steps[tuple[pa.Array, EndsIndex | None]]:
        """Some values, and the index of a small page: two rounds, or one if the bytes are cached."""
        is_kept = self.ends.is_kept(was_read=was_read)
        if is_kept and self._keeps_plain:
            ranges = self.index_ranges()
            assert ranges is not None, "ends that are kept"
            whole_index = self.load_index((yield ranges))
            return (yield from self.read(runs, whole_index)), whole_index
        index = (yield from self.ends.read_all()) if is_kept else None
        return (yield from self.read(runs, index)), index

    def scan(self) -> Steps[pa.Array]:
        """All values: one round."""
        if not self.num_values:
            return self._array(Spans(_NOTHING, _NOTHING, bytes(8), None, 0), 0, b"")
        parts: list[Steps[memoryview]] = [self.ends.buffer.fetch_all(), self.data.fetch_all()]
        ends, data = yield from together(parts)
        spans = self.ends.of_all(ends)
        return self._array(spans, self.num_values, data[: int(spans.ends[0])])

    def _array(self, spans: Spans, num_values: int, data: Any) -> pa.Array:
        buffers = [spans.validity, spans.offsets, data]
        return self._from_buffers(num_values, buffers, spans.null_count)

    def _from_buffers(self, num_values: int, buffers: list[Any], null_count: int) -> pa.Array:
        arrow = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
        return pa.Array.from_buffers(self.dtype, num_values, arrow, null_count)

    def __str__(self) -> str:
        return f"binary({self.data}flat(8))"


_NOTHING: Final = np.zeros(1, dtype=np.int64)


class Coded(Variable):
    """Strings that are each coded with a symbol table (FSST)."""

    def __init__(self, plain: Variable, symbols: bytes) -> None:
        super().__init__(plain.dtype, plain.ends, plain.data)
        self.symbols = symbols
        self.is_coded = bool(symbols[3])

    def _from_buffers(self, num_values: int, buffers: list[Any], null_count: int) -> pa.Array:
        if self.is_coded and num_values:
            validity, offsets, codes = buffers
            buffers = [validity, *_kernels.decode_symbols(self.symbols, offsets, codes, self.ends.wide)]
        return super()._from_buffers(num_values, buffers, null_count)

    def __str__(self) -> str:
        return f"fsst({super().__str__()})" if self.is_coded else f"fsst(raw {super().__str__()})"


class FixedSizeStrings(FixedValues):
    """Strings that all have the same number of bytes."""

    def __init__(self, dtype: pa.DataType, num_values: int, width_bytes: int, buffer: StoredBuffer) -> None:
        self.dtype = dtype
        self.num_values = num_values
        self.width_bytes = width_bytes
        self.buffer = buffer
        self.row_bits = None if buffer.scheme else 8 * width_bytes

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some values: one round."""
        width = self.width_bytes
        starts, ends = runs.starts * width, runs.ends * width
        fetched = yield from self.buffer.fetch(starts, ends, keep=len(starts) == 1)
        data = gather(fetched, ends - starts)
        is_wide = self.dtype in WIDE_TYPES
        if not is_wide and runs.num_values * width > np.iinfo(np.int32).max:
            raise FormatError(f"{runs.num_values} strings of {width} bytes exceed what 32-bit offsets can address")
        offsets = np.arange(runs.num_values + 1, dtype=np.int64 if is_wide else np.int32) * width
        buffers = [None, pa.py_buffer(offsets), data]
        return pa.Array.from_buffers(self.dtype, runs.num_values, buffers, 0)

    def __str__(self) -> str:
        return f"fixed_size_binary({self.width_bytes})"
