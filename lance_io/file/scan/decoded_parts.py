"""Pieces that become more than may be decoded at once: their bytes are held, and parts are decoded as they are needed.

Allowance   what a job may decode at once
Claims      what the jobs of a scan have claimed of what it may decode ahead
Later       what is left of a piece: its parts
Part        rows of a piece whose bytes are at hand
PartRoom    counts what parts hold, and says whether one may be decoded before it is needed
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from lance_io.errors import ResourceLimitError
from lance_io.levels.arrays import memory_bytes
from lance_io.levels.row_bytes import check_row_bytes
from lance_io.runtime import cpu_count, cpu_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    import pyarrow as pa

    from lance_io.file.scan.page_slices import Piece


class Allowance:
    """Bytes that a job may decode at once; what is known to become more than is left waits.

    claim  asks the scan, which has other jobs, whether so many bytes of pages may be decoded that were measured; None
           where there are no others
    is_counted  whether the scan has counted what these pages were expected to become
    """

    __slots__ = ("_claim", "_is_counted", "_left_bytes")

    def __init__(self, num_bytes: int, claim: Callable[[int], bool] | None = None, *, is_counted: bool = False) -> None:
        self._left_bytes = num_bytes
        self._claim = claim
        self._is_counted = is_counted

    def use(self, num_bytes: int) -> None:
        """So many bytes are decoded, which the scan has counted."""
        self._left_bytes -= num_bytes

    def grants(self, num_bytes: int, expected_bytes: int) -> bool:
        """Whether a page that was measured may be decoded to so many bytes; they are used then."""
        more_bytes = num_bytes - expected_bytes if self._is_counted else num_bytes
        if num_bytes > self._left_bytes or not (self._claim is None or self._claim(more_bytes)):
            return False
        self._left_bytes -= num_bytes
        return True


class Claims:
    """What the jobs of a scan have claimed. Thread-safe.

    bytes_max  of all of them
    """

    __slots__ = ("_bytes_max", "_lock", "_num_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._num_bytes = 0
        self._lock = threading.Lock()

    def claim(self, num_bytes: int) -> bool:
        """Whether so many more may be decoded; they count then."""
        with self._lock:
            if self._num_bytes + num_bytes > self._bytes_max:
                return False
            self._num_bytes += num_bytes
            return True

    def release(self, num_bytes: int) -> None:
        """So many are used, or not wanted."""
        with self._lock:
            self._num_bytes -= num_bytes


class Later:
    """What was read of a piece, in parts that are not decoded, and are made as they are needed: few bytes may have
    millions.

    next_piece  of the next part; None where there is no other
    num_bytes   that are held
    """

    __slots__ = ("_pieces", "next_piece", "num_bytes")

    def __init__(self, pieces: Iterator[Piece], num_bytes: int) -> None:
        """`pieces` are those of the parts, in row order; decoding one reads nothing."""
        self._pieces = pieces
        self.next_piece = next(pieces, None)
        self.num_bytes = num_bytes

    def take(self) -> Piece:
        """That of the next part, which is not kept."""
        piece = self.next_piece
        assert piece is not None, "looked at before"
        self.next_piece = next(self._pieces, None)
        return piece


class PartRoom:
    """What the parts of a scan hold.

    charge    called with the bytes that are taken, or given back (negative), from any thread
    has_room  whether so many bytes may be decoded ahead of need
    ahead_bytes  that parts which nobody has needed so far become at most
    """

    __slots__ = ("ahead_bytes", "charge", "has_room")

    def __init__(self, charge: Callable[[int], None], has_room: Callable[[int], bool]) -> None:
        self.charge = charge
        self.has_room = has_room
        self.ahead_bytes = 0


class Part:
    """Rows of a piece whose bytes are at hand."""

    __slots__ = ("_array", "_future", "_held_bytes", "_is_ahead", "_lock", "_room", "piece")

    def __init__(self, piece: Piece, room: PartRoom | None) -> None:
        self.piece = piece
        self._room = room
        self._array: pa.Array | None = None
        self._future: Future[pa.Array] | None = None
        self._held_bytes: int | None = 0  # None once nobody wants it
        self._is_ahead = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.piece.row_end - self.piece.row_start

    def begin(self) -> Future[pa.Array]:
        """Have the pool decode it."""
        if self._future is None:
            self._hold(self.bound)
            self._future = cpu_pool().submit(self._decode)
        return self._future

    def begin_ahead(self) -> None:
        """The same, if there is room and a processor besides the one that waits."""
        if self._array is None and self._future is None and self._room is not None and cpu_count() > 1:
            if self._room.has_room(self._room.ahead_bytes + self.bound):
                self._room.ahead_bytes += self.bound
                self._is_ahead = True
                self.begin()

    @property
    def bound(self) -> int:
        """Bytes that it becomes at most."""
        return self.piece.bound or 0

    def array(self) -> pa.Array:
        """Its rows; decoded here, where the pool has not begun it."""
        self._is_needed()
        if self._array is None:
            future, self._future = self._future, None
            self._array = self._decode() if future is None else future.result()
        return self._array

    def forget(self) -> None:
        """Whoever cuts batches has the rows now; what they hold counts until `release`."""
        self._array = None

    def _decode(self) -> pa.Array:
        array = decode_at_hand(self.piece)
        self._hold(held_bytes(self.piece, array))
        return array

    def _is_needed(self) -> None:
        if self._is_ahead and self._room is not None:
            self._room.ahead_bytes -= self.bound
        self._is_ahead = False

    def release(self) -> None:
        """Nobody cuts batches from it any more."""
        self._is_needed()
        if self._future is not None:
            self._future.cancel()
        self._hold(None)

    def _hold(self, num_bytes: int | None) -> None:
        with self._lock:
            before = self._held_bytes
            if before is None:
                return
            self._held_bytes = num_bytes
            if self._room is not None:
                self._room.charge((num_bytes or 0) - before)


def held_bytes(piece: Piece, array: pa.Array | Later) -> int:
    """Bytes of memory that decoded rows take, or those that wait.

    Raises ResourceLimitError for a row that takes more than the column allows.
    """
    if type(array) is Later:
        return array.num_bytes
    found = memory_bytes(array)
    bytes_max = piece.column.path.value_bytes_max
    if found > bytes_max:
        try:
            check_row_bytes(array, bytes_max, piece.row_start)
        except ResourceLimitError as error:
            raise piece.locate(error) from None
    return found


def decode_at_hand(piece: Piece) -> Any:
    """Rows of a piece whose bytes are at hand. Raises FormatError."""
    steps = piece.steps()
    try:
        next(steps)
    except StopIteration as done:
        return done.value
    raise AssertionError("all bytes were read before")
