"""Pieces too large to decode at once: their bytes are held, and parts are decoded on demand.

Allowance      limit of the bytes that a job decodes at once
Claims         bytes that the jobs of a scan have claimed of its decode-ahead limit
DeferredParts  the remaining parts of a piece
Part           rows of a piece whose bytes have been read
PartRoom       counts the bytes that parts hold, and decides whether a part may be decoded ahead
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
    """Limits the bytes that a job decodes at once; pieces beyond the limit are deferred.

    claim       `claim(num_bytes)` reserves decoded bytes of measured pages in the scan, if its other jobs leave room;
                None for a job without others
    is_counted  whether the scan has counted the expected bytes of these pages
    """

    __slots__ = ("_claim", "_is_counted", "_left_bytes")

    def __init__(self, num_bytes: int, claim: Callable[[int], bool] | None = None, *, is_counted: bool = False) -> None:
        self._left_bytes = num_bytes
        self._claim = claim
        self._is_counted = is_counted

    def use(self, num_bytes: int) -> None:
        """Deduct decoded bytes that the scan has counted."""
        self._left_bytes -= num_bytes

    def has_room(self, num_bytes: int) -> bool:
        """Whether as many decoded bytes are left."""
        return num_bytes <= self._left_bytes

    def grants(self, num_bytes: int, expected_bytes: int) -> bool:
        """Whether a measured page may be decoded to `num_bytes`; deducts them if so."""
        more_bytes = num_bytes - expected_bytes if self._is_counted else num_bytes
        if num_bytes > self._left_bytes or not (self._claim is None or self._claim(more_bytes)):
            return False
        self._left_bytes -= num_bytes
        return True


class Claims:
    """Bytes that the jobs of a scan have claimed. Thread-safe.

    bytes_max  limit over all jobs
    """

    __slots__ = ("_bytes_max", "_lock", "_num_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._num_bytes = 0
        self._lock = threading.Lock()

    def claim(self, num_bytes: int) -> bool:
        """Whether `num_bytes` more may be decoded; counts them if so."""
        with self._lock:
            if self._num_bytes + num_bytes > self._bytes_max:
                return False
            self._num_bytes += num_bytes
            return True

    def release(self, num_bytes: int) -> None:
        """Return claimed bytes."""
        with self._lock:
            self._num_bytes -= num_bytes


class DeferredParts:
    """The fetched bytes of a piece, in parts that are created on demand: few bytes may have millions of parts.

    next_piece  piece of the next part; None after the last
    num_bytes   bytes held
    """

    __slots__ = ("_pieces", "next_piece", "num_bytes")

    def __init__(self, pieces: Iterator[Piece], num_bytes: int) -> None:
        """`pieces` are the parts in row order; decoding one reads nothing."""
        self._pieces = pieces
        self.next_piece = next(pieces, None)
        self.num_bytes = num_bytes

    def take(self) -> Piece:
        """Remove and return the piece of the next part."""
        piece = self.next_piece
        assert piece is not None, "checked before"
        self.next_piece = next(self._pieces, None)
        return piece


class PartRoom:
    """Counts the bytes that the parts of a scan hold.

    charge       `charge(num_bytes)` takes bytes, or returns them if negative; called from any thread
    has_room     `has_room(num_bytes)`: whether this many bytes may be decoded ahead
    ahead_bytes  upper bound of the decoded bytes of parts that are decoded ahead
    """

    __slots__ = ("ahead_bytes", "charge", "has_room")

    def __init__(self, charge: Callable[[int], None], has_room: Callable[[int], bool]) -> None:
        self.charge = charge
        self.has_room = has_room
        self.ahead_bytes = 0


class Part:
    """Rows of a piece whose bytes have been read."""

    __slots__ = ("_array", "_future", "_held_bytes", "_is_ahead", "_lock", "_room", "piece")

    def __init__(self, piece: Piece, room: PartRoom | None) -> None:
        self.piece = piece
        self._room = room
        self._array: pa.Array | None = None
        self._future: Future[pa.Array] | None = None
        self._held_bytes: int | None = 0  # None once released
        self._is_ahead = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.piece.row_end - self.piece.row_start

    def begin(self) -> Future[pa.Array]:
        """Submit it to the pool for decoding."""
        if self._future is None:
            self._hold(self.bound)
            self._future = cpu_pool().submit(self._decode)
        return self._future

    def begin_ahead(self) -> None:
        """Submit it ahead of need, if there is room and a core besides the waiting one."""
        if self._array is None and self._future is None and self._room is not None and cpu_count() > 1:
            if self._room.has_room(self._room.ahead_bytes + self.bound):
                self._room.ahead_bytes += self.bound
                self._is_ahead = True
                self.begin()

    @property
    def bound(self) -> int:
        """Upper bound of its decoded bytes."""
        return self.piece.bound or 0

    def array(self) -> pa.Array:
        """Its rows; decodes them in this thread if they have not been submitted."""
        self._mark_needed()
        if self._array is None:
            future, self._future = self._future, None
            self._array = self._decode() if future is None else future.result()
        return self._array

    def drop_array(self) -> None:
        """Drop the reference to the rows, which the caller has now; their bytes count until `release`."""
        self._array = None

    def _decode(self) -> pa.Array:
        array = decode_at_hand(self.piece)
        self._hold(held_bytes(self.piece, array))
        return array

    def _mark_needed(self) -> None:
        if self._is_ahead and self._room is not None:
            self._room.ahead_bytes -= self.bound
        self._is_ahead = False

    def release(self) -> None:
        """No more batches are cut from it."""
        self._mark_needed()
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


def held_bytes(piece: Piece, array: pa.Array | DeferredParts) -> int:
    """Memory of decoded rows, or of deferred parts, in bytes.

    Raises ResourceLimitError for a row larger than the column allows.
    """
    if type(array) is DeferredParts:
        return array.num_bytes
    num_bytes = memory_bytes(array)
    bytes_max = piece.column.path.value_bytes_max
    if num_bytes > bytes_max:
        try:
            check_row_bytes(array, bytes_max, piece.row_start)
        except ResourceLimitError as error:
            raise piece.locate(error) from None
    return num_bytes


def decode_at_hand(piece: Piece) -> Any:
    """Rows of a piece whose bytes have been read. Raises FormatError."""
    steps = piece.steps()
    try:
        next(steps)
    except StopIteration as done:
        return done.value
    raise AssertionError("all bytes have been read before")
