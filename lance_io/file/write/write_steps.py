"""Computations that write: what they ask of whoever drives them.

A writing computation is a generator that yields one of

    Begin     work for the CPU, whose result is wanted later; it is sent a ticket
    Result    the result of that work, by its ticket; it is sent the result
    Write     buffers to be appended to the data file, or to a file beside it
    Complete  a file beside it is whole

and returns its result. Tickets are redeemed in the order in which they were given, so the bytes of a file do not depend
on how fast its pages were encoded. `writedrive.py` has the two drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Begin:
    """Work that touches about `num_bytes` bytes; it may run in any thread."""

    work: Callable[[], Any]
    num_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The result of what `ticket` was given for; its error ends the computation."""

    ticket: Any


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """Buffers, one behind the other.

    beside  None for the data file; otherwise what follows the data file's stem in the name of the file beside it
    """

    buffers: Sequence[Any]
    beside: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Complete:
    """Nothing more is written to the file beside the data file of this name."""

    beside: str


WriteRequest: TypeAlias = Begin | Result | Write | Complete
WriteSteps: TypeAlias = Generator[WriteRequest, Any, T]


class GatheredWrites:
    """Writes put together to larger ones, in order and per file.

    num_bytes  from which they are worth a request of their own
    """

    def __init__(self, num_bytes: int) -> None:
        self._enough = num_bytes
        self._buffers: list[Any] = []
        self._num_bytes = 0
        self._beside: str | None = None

    def add(self, buffers: Sequence[Any], beside: str | None = None) -> WriteSteps[None]:
        """Append buffers."""
        if beside != self._beside:
            yield from self.flush()
            self._beside = beside
        self._buffers += buffers
        self._num_bytes += sum([memoryview(buffer).nbytes for buffer in buffers])
        if self._num_bytes >= self._enough:
            yield from self.flush()

    def flush(self) -> WriteSteps[None]:
        """Write what has gathered."""
        if self._buffers:
            yield Write(self._buffers, self._beside)
            self._buffers, self._num_bytes = [], 0
