"""Ranges and buffers: the vocabulary that every room shares.

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
    """The numbers in an array, ascending, each once.

    What `numpy.unique` gives, which hashes: since numpy 2.3 it takes seconds for a million numbers that follow one
    another. Ascending runs are only merged.
    """
    ordered = np.sort(values, kind="stable", axis=None)
    is_first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


@dataclass(slots=True, eq=False)
class Ranges:
    """Byte ranges of one object, in the order in which the caller wants them back.

    starts, ends  i64[n], file offsets in bytes, `starts <= ends`; any order, overlaps and empties allowed
    purpose       what the bytes are: file "metadata", page lookup "index" (search-cache material), row "data"
    keep          True when the result may reference the fetched buffer itself, so it must not be recycled
    """

    starts: IntArray
    ends: IntArray
    purpose: Purpose = "data"
    keep: bool = False

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, first: int, end: int) -> Ranges:
        """Those from number `first` to number `end`."""
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
    """The answer to `Ranges`: one buffer that holds all of them.

    buffer      readable, C-contiguous bytes; may hold more than was asked for (merged gaps)
    offsets     i64[n], where range i starts inside `buffer`; its length is that of the range asked for
    num_reads   how many reads a store made for it that was asked for all of it at once, else 0
    bytes_read  what those brought, gaps included
    """

    buffer: Any
    offsets: IntArray
    num_reads: int = 0
    bytes_read: int = 0

    def piece(self, index: int, length_bytes: int) -> memoryview:
        """Range `index` as a view without a copy."""
        start = int(self.offsets[index])
        return memoryview(self.buffer).cast("B")[start : start + length_bytes]


def join_fetched(found: Sequence[Fetched], wanted: Sequence[Ranges]) -> Fetched:
    """What was fetched for several lists of ranges, as copies in one buffer."""
    lengths = np.concatenate([ranges.ends - ranges.starts for ranges in wanted])
    pieces = []
    for fetched, ranges in zip(found, wanted, strict=True):
        pieces += [fetched.piece(at, length) for at, length in enumerate((ranges.ends - ranges.starts).tolist())]
    return Fetched(
        b"".join(pieces),
        np.cumsum(lengths) - lengths,
        sum([one.num_reads for one in found]),
        sum([one.bytes_read for one in found]),
    )


int64s: Final[Callable[[Any], IntArray]] = partial(np.frombuffer, dtype=np.int64)  # type: ignore[assignment]
"""Kernel memory as i64[n], without a copy."""

uint8s: Final[Callable[[Any], npt.NDArray[np.uint8]]] = partial(np.frombuffer, dtype=np.uint8)  # type: ignore[assignment]
"""Kernel memory as u8[n], without a copy."""


Steps: TypeAlias = Generator[Ranges, Fetched, T]
"""A computation that yields the byte ranges it needs and is sent the buffers: each `yield` is one I/O round."""


def no_ranges(purpose: Purpose = "data") -> Ranges:
    """Ranges of length zero."""
    empty = np.empty(0, dtype=np.int64)
    return Ranges(empty, empty, purpose)
