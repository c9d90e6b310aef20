"""Byte ranges and buffers: the types that all rooms share.

Ranges are numpy arrays, never lists of objects: a take of ten thousand rows is two arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from lance_io._kernels import measure_ranges
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Buffer, Sequence  # type: ignore[attr-defined]  # 3.12 name; only read by type checkers
else:
    Buffer = Any

IntArray: TypeAlias = npt.NDArray[np.int64]
T = TypeVar("T")
N = TypeVar("N", bound=np.integer[Any])

Purpose = Literal["metadata", "index", "data"]


def distinct(values: npt.NDArray[N]) -> npt.NDArray[N]:
    """The distinct numbers in an array, ascending.

    `numpy.unique` uses hashes: since numpy 2.3 it takes seconds for a million consecutive numbers. The stable sort here
    only merges ascending runs.
    """
    ordered = np.sort(values, kind="stable", axis=None)
    is_first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


@dataclass(slots=True, eq=False)
class Ranges:
    """Byte ranges of one object, in the order of the answer.

    starts, ends  i64[n], file offsets in bytes, `starts <= ends`; any order, overlaps and empties allowed
    purpose       kind of bytes: file "metadata", page lookup "index" (for the search cache), row "data"
    keep          True if the result may refer to the fetched buffer, so that it must not be reused
    """

    starts: IntArray
    ends: IntArray
    purpose: Purpose = "data"
    keep: bool = False

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, first: int, end: int) -> Ranges:
        """The ranges from index `first` to index `end`."""
        return Ranges(self.starts[first:end], self.ends[first:end], self.purpose, self.keep)

    @property
    def num_bytes(self) -> int:
        """Sum of the lengths, overlaps counted twice."""
        return measure_ranges(self.starts, self.ends, None)[0]

    @classmethod
    def of(cls, *pairs: tuple[int, int], purpose: Purpose = "data", keep: bool = False) -> Ranges:
        """Ranges from (start, end) pairs."""
        both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return cls(both[:, 0].copy(), both[:, 1].copy(), purpose, keep)


@dataclass(slots=True, eq=False)
class Fetched:
    """The answer to `Ranges`: one buffer with all of them.

    buffer      readable, C-contiguous bytes; may include gaps between merged ranges
    offsets     i64[n], start of range i inside `buffer`; its length is that of the requested range
    num_reads   number of reads, if the store planned them itself, else 0
    bytes_read  bytes of these reads, gaps included
    """

    buffer: Any
    offsets: IntArray
    num_reads: int = 0
    bytes_read: int = 0

    def piece(self, index: int, length_bytes: int) -> memoryview:
        """Range `index` as a zero-copy view."""
        start = int(self.offsets[index])
        return memoryview(self.buffer).cast("B")[start : start + length_bytes]


def join_fetched(answers: Sequence[Fetched], wanted: Sequence[Ranges]) -> Fetched:
    """Copy the answers to several lists of ranges into one buffer."""
    lengths = np.concatenate([ranges.ends - ranges.starts for ranges in wanted])
    pieces = []
    for fetched, ranges in zip(answers, wanted, strict=True):
        pieces += [fetched.piece(index, length) for index, length in enumerate((ranges.ends - ranges.starts).tolist())]
    return Fetched(
        b"".join(pieces),
        np.cumsum(lengths) - lengths,
        sum([fetched.num_reads for fetched in answers]),
        sum([fetched.bytes_read for fetched in answers]),
    )


int64s: Final[Callable[[Any], IntArray]] = partial(np.frombuffer, dtype=np.int64)  # type: ignore[assignment]
"""Kernel memory as i64[n], zero-copy."""

uint8s: Final[Callable[[Any], npt.NDArray[np.uint8]]] = partial(np.frombuffer, dtype=np.uint8)  # type: ignore[assignment]
"""Kernel memory as u8[n], zero-copy."""


Steps: TypeAlias = Generator[Ranges, Fetched, T]
"""A computation that yields the byte ranges it needs and is sent the buffers: each `yield` is one I/O round."""


def no_ranges(purpose: Purpose = "data") -> Ranges:
    """An empty list of ranges."""
    empty = np.empty(0, dtype=np.int64)
    return Ranges(empty, empty, purpose)
