"""Blobs by row: as files that read on demand (`BlobFile`, `AsyncBlobFile`), as bytes, as ranges of bytes."""

from __future__ import annotations

import io
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lance_io.errors import UsageError
from lance_io.file.open.leaf_projection import Projection
from lance_io.file.row_indices import row_numbers
from lance_io.file.take.blob_bytes import PART_BYTES
from lance_io.levels.row_sizes import cut_by_size
from lance_io.reads.blobs.blob_values import blob_steps, locate_blobs, read_located
from lance_io.reads.rows.read_rows import RowReader, bytes_of, read_bytes
from lance_io.reads.rows.row_arithmetic import Grouped, addresses, group_rows
from lance_io.reads.run_plan import run, run_awaited
from lance_io.reads.takes.take_rows import RowDeleted, RowNotFound, group_positions, locate_addresses, locate_row_ids
from lance_io.reads.version.column_lists import extract
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.object_keys import StoredObject
    from lance_io.reads.version.state import DatasetState
    from lance_io.spans import IntArray

BUFFER_BYTES = 512 * 1024
ROWS_NAMED = 10  # in an error message


_num_forks = 0  # forks from the first process to this one


def _count_fork() -> None:
    global _num_forks
    _num_forks += 1


os.register_at_fork(after_in_child=_count_fork)


class _Claim(NamedTuple):
    """Bytes reserved for one read; the position has moved beyond them.

    number  count of moves at that time
    """

    start: int
    length: int
    number: int


class BlobFile(io.BufferedIOBase):
    """One blob as a read-only binary file that reads on demand. `LanceDataset.take_blobs` creates it.

    Small sequential reads prefetch `buffer_size` bytes.

    Threads may share the file. A read moves the position before it waits, so no other read returns the same bytes;
    reads of less than `buffer_size`, and lines, run one after the other. A failed read moves the position back, unless
    another call has moved it since; then a note on the error names the missing bytes.

    Args:
        state: State of the dataset.
        stored_object: Object that holds the blob.
        start: Position of the blob in the object.
        size: Bytes of the blob.
        buffer_size: Bytes to prefetch for small sequential reads.
    """

    def __init__(
        self, state: DatasetState, stored_object: StoredObject, start: int, size: int, buffer_size: int = BUFFER_BYTES
    ) -> None:
        self._state = state
        self._object = stored_object
        self._start = start
        self._size = size
        self._buffer_size = buffer_size
        self._position = 0
        self._moves = 0  # number of moves of the position
        self._ahead = b""  # prefetched bytes,
        self._ahead_at = 0  # and their position
        self._lock = threading.RLock()  # guards the four; held during prefetches
        self._num_forks = _num_forks  # number of forks when the lock was created

    def size(self) -> int:
        """Length in bytes."""
        return self._size

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next read.

        Raises:
            ValueError: The file is closed.
        """
        self._check_open("tell of closed file")
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position; positions beyond the end are allowed.

        Args:
            offset: Bytes, relative to `whence`.
            whence: `io.SEEK_SET`, `io.SEEK_CUR` or `io.SEEK_END`.

        Returns:
            The new position.

        Raises:
            ValueError: The position is negative, `whence` is invalid, or the file is closed.
        """
        self._check_open("seek of closed file")
        with self._locked():
            base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}.get(whence)
            if base is None:
                raise UsageError(f"invalid whence ({whence}, should be 0, 1 or 2)")
            if base + offset < 0:
                raise UsageError(f"negative seek value {offset}")
            return self._move(base + offset)

    def read(self, size: int | None = -1) -> bytes:
        """Read and move the position.

        Args:
            size: Maximum number of bytes; None or -1 for all.

        Returns:
            The bytes; fewer than `size` at the end.

        Raises:
            ValueError: The file is closed.
        """
        with self._locked():
            claim = self._claim(size)
            if not claim.length:
                return b""
            if claim.length < self._buffer_size or self._is_ahead(claim.start, claim.length):
                return self._read(claim, self._read_ahead)
        return self._read(claim, self.read_range)

    def read1(self, size: int = -1) -> bytes:
        """The same as `read`.

        Args:
            size: See `BlobFile.read`.
        """
        return self.read(size)

    def readall(self) -> bytes:
        """Read up to the end."""
        return self.read()

    def readinto(self, b: Any) -> int:
        """Read into a writable buffer and move the position.

        Args:
            b: The buffer.

        Returns:
            Number of bytes read.

        Raises:
            TypeError: The buffer is read-only.
        """
        view = memoryview(b).cast("B")
        if view.readonly:
            raise TypeError(f"readinto() needs a writable buffer, found {type(b).__name__}")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line with its end. Iteration returns all lines.

        Args:
            size: Maximum number of bytes; None or -1 for no bound.
        """
        with self._locked():
            position = self._position
            try:
                return super().readline(size)
            except BaseException:
                self._move(position)
                raise

    def read_range(self, offset: int, length: int) -> bytes:
        """Read a range of bytes without moving the position.

        Args:
            offset: Position of the first byte.
            length: Number of bytes.

        Raises:
            ValueError: The range ends beyond the blob, or the file is closed.
            OverflowError: A number is negative.
        """
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read several ranges of bytes at once without moving the position.

        Args:
            ranges: `(offset, length)` of each range.

        Raises:
            ValueError: A range ends beyond the blob, or the file is closed.
            OverflowError: A number is negative.
        """
        return run(self._state, self._reading(ranges))

    def _reading(self, ranges: Sequence[tuple[int, int]]) -> Plan[list[bytes]]:
        self._check_open("Blob file is already closed")
        for offset, length in ranges:
            check_range(offset, length, self._size)
        starts = [self._start + offset for offset, _ in ranges]
        wanted = Ranges.of(*((start, start + length) for start, (_, length) in zip(starts, ranges, strict=True)))
        fetched = yield from read_object(self._state, self._object, wanted)
        return bytes_of(fetched, wanted)

    # -- the position ------------------------------------------------------------------------------------------------

    def _locked(self) -> AbstractContextManager[Any]:
        """The lock; a new one in a child forked while a thread held it."""
        if self._num_forks != _num_forks:
            self._num_forks, self._lock = _num_forks, threading.RLock()
        return self._lock

    def _move(self, position: int) -> int:
        self._position = position
        self._moves += 1
        return position

    def _claim(self, size: int | None) -> _Claim:
        """Reserve the bytes of a read. The caller holds the lock."""
        self._check_open("read of closed file")
        start = self._position
        left = max(0, self._size - start)
        length = left if size is None or size < 0 else min(size, left)
        if length:
            self._move(start + length)
        return _Claim(start, length, self._moves)

    def _give_back(self, claim: _Claim, error: BaseException) -> None:
        """Move back to the start of a failed read, unless other calls have moved since."""
        with self._locked():
            if self._moves == claim.number:
                self._position = claim.start
                self._moves -= 1  # so that an earlier read that fails, too, moves back as well
                return
        error.add_note(
            f"bytes {claim.start} to {claim.start + claim.length} of the blob were not read, and another call moved "
            f"the position since: read_range({claim.start}, {claim.length}) reads them"
        )

    def _read(self, claim: _Claim, read: Callable[[int, int], bytes]) -> bytes:
        try:
            return read(claim.start, claim.length)
        except BaseException as error:
            self._give_back(claim, error)
            raise

    def _is_ahead(self, position: int, length: int) -> bool:
        """Whether the buffer holds these bytes."""
        return self._ahead_at <= position <= position + length <= self._ahead_at + len(self._ahead)

    def _read_ahead(self, position: int, length: int) -> bytes:
        """Bytes from the buffer, which is filled if necessary."""
        if not self._is_ahead(position, length):
            self._ahead = self.read_range(position, min(self._size - position, self._buffer_size))
            self._ahead_at = position
        begin = position - self._ahead_at
        return self._ahead[begin : begin + length]

    def _check_open(self, message: str) -> None:
        if self.closed:
            raise UsageError(message)

    def __repr__(self) -> str:
        return f"<BlobFile size={self._size}>"


class AsyncBlobFile:
    """One blob as an awaitable file; positions work as in `BlobFile`. Leaving an `async with` block closes it.

    Gathered reads return consecutive pieces, in the order of their calls. A cancelled or failed read moves the position
    back, unless another call has moved it since.

    Args:
        blob: The blob.
    """

    def __init__(self, blob: BlobFile) -> None:
        self._blob = blob

    def size(self) -> int:
        """Length in bytes."""
        return self._blob.size()

    def tell(self) -> int:
        """The position of the next read. See `BlobFile.tell`."""
        return self._blob.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position. See `BlobFile.seek`."""
        return self._blob.seek(offset, whence)

    async def read(self, size: int = -1) -> bytes:
        """Read and move the position. See `BlobFile.read`."""
        with self._blob._locked():
            claim = self._blob._claim(size)
        if not claim.length:
            return b""
        try:
            return await self.read_range(claim.start, claim.length)
        except BaseException as error:
            self._blob._give_back(claim, error)
            raise

    async def read_range(self, offset: int, length: int) -> bytes:
        """Read a range of bytes. See `BlobFile.read_range`."""
        return (await self.read_ranges([(offset, length)]))[0]

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read several ranges of bytes at once. See `BlobFile.read_ranges`."""
        return await run_awaited(self._blob._state, self._blob._reading(ranges))

    async def aclose(self) -> None:
        """Close the file."""
        self._blob.close()

    async def __aenter__(self) -> AsyncBlobFile:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<AsyncBlobFile size={self.size()}>"


def check_range(offset: int, length: int, size: int) -> None:
    """Raise unless `offset .. offset + length` lies in a blob of `size` bytes."""
    if offset < 0 or length < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if offset + length > size:
        raise UsageError(f"Blob range end {offset + length} exceeds blob size {size}")


def read_object(state: DatasetState, stored_object: StoredObject, ranges: Ranges) -> Plan[Any]:
    """Byte ranges of one object, as `Fetched`."""
    return (yield from read_bytes(state.context_of(stored_object.store), stored_object.key, ranges))


# -- selecting -------------------------------------------------------------------------------------------------------


def _select(state: DatasetState, ids: Any, addresses_: Any, indices: Any) -> Plan[Grouped]:
    """The rows that exactly one of the three selectors names.

    Raises `ValueError` for rows that do not exist, because results line up with the request.
    """
    if sum(selector is not None for selector in (ids, addresses_, indices)) != 1:
        raise UsageError("Exactly one of ids, indices, or addresses must be specified")
    if indices is not None:
        return (yield from group_positions(state, row_numbers(indices)))
    numbers = row_numbers(ids if addresses_ is None else addresses_)
    locate = locate_row_ids if addresses_ is None else locate_addresses
    fragment_indexes, offsets = yield from locate(state, numbers)
    missing = np.flatnonzero(fragment_indexes < 0)
    if len(missing):
        is_by_id = addresses_ is None and state.has_stable_row_ids
        raise _not_found(state, numbers, missing, is_by_id=is_by_id)
    return group_rows(fragment_indexes, offsets)


def _not_found(state: DatasetState, asked: IntArray, missing: IntArray, *, is_by_id: bool) -> RowNotFound:
    """The error for rows that do not exist, naming some of them."""
    rows = list(dict.fromkeys(asked[missing].tolist()))
    named = ", ".join(map(str, rows[:ROWS_NAMED])) + (", ..." if len(rows) > ROWS_NAMED else "")
    num_left, left = len(asked) - len(missing), f"Ask only for rows that are left, without {named}"
    if is_by_id:
        return RowNotFound(
            f"Invalid user input: Could not resolve all requested row IDs: requested {len(asked)}, resolved "
            f"{num_left}; first missing row ID {rows[0]} was deleted or not found. {left}",
            path=state.location.uri,
        )
    return RowDeleted(
        f"Not supported: Expected {len(asked)} rows, got {num_left}. A take operation that includes row addresses must "
        f"not target deleted rows. {left}",
        path=state.location.uri,
    )


def _descriptions(
    state: DatasetState, steps: tuple[Field, ...], grouped: Grouped
) -> Plan[list[tuple[int, IntArray, pa.StructArray]]]:
    """`(fragment index, offsets, descriptions)` of the distinct rows."""
    path = tuple(field.name for field in steps)
    if not grouped.groups:
        return []
    reader = RowReader(state, Projection(state.pruned_fields([path])))
    (column,) = yield from reader.read(grouped.groups)
    column = extract(column, path[1:])
    parts = []
    start = 0
    for fragment_index, offsets in grouped.groups:
        parts.append((fragment_index, offsets, column.slice(start, len(offsets))))
        start += len(offsets)
    return parts


def _in_order(items: list[Any], grouped: Grouped) -> list[Any]:
    return items if grouped.restore is None else [items[i] for i in grouped.restore.tolist()]


def take_blobs(
    state: DatasetState, name: str, ids: Any, addresses_: Any, indices: Any, buffer_size: int
) -> Plan[list[BlobFile | None]]:
    """Blobs as files, None for nulls; see `LanceDataset.take_blobs`."""
    steps = blob_steps(state, name)
    grouped = yield from _select(state, ids, addresses_, indices)
    files: list[BlobFile | None] = []
    for fragment_index, _, descriptions in (yield from _descriptions(state, steps, grouped)):
        located = yield from locate_blobs(state, fragment_index, steps[-1].id, descriptions)
        rows = zip(located.keys.tolist(), located.starts.tolist(), located.sizes.tolist(), located.valid, strict=True)
        for key, start, size, valid in rows:
            files.append(BlobFile(state, located.objects[key], start, size, buffer_size) if valid else None)
    if grouped.restore is None:
        return files
    # a row requested twice gives two files, each with its own position
    return [
        blob and BlobFile(state, blob._object, blob._start, blob._size, buffer_size)
        for blob in _in_order(files, grouped)
    ]


def read_blobs(
    state: DatasetState, name: str, ids: Any, addresses_: Any, indices: Any
) -> Plan[list[tuple[int, bytes | None]]]:
    """The bytes of blobs; see `LanceDataset.read_blobs`. The order asked for is always kept."""
    steps = blob_steps(state, name)
    grouped = yield from _select(state, ids, addresses_, indices)
    rows: list[tuple[int, bytes | None]] = []
    for fragment_index, offsets, descriptions in (yield from _descriptions(state, steps, grouped)):
        located = yield from locate_blobs(state, fragment_index, steps[-1].id, descriptions)
        numbers = addresses(state.fragment_ids[fragment_index], offsets).tolist()
        for start, end in cut_by_size(located.sizes, PART_BYTES):
            column = yield from read_located(state, located.slice(start, end))
            rows.extend(zip(numbers[start:end], column.to_pylist(), strict=True))
            del column  # freed before the next one is read
    return _in_order(rows, grouped)


def read_blob_ranges(
    state: DatasetState, name: str, requests: Sequence[tuple[int, int, int]], selector: str
) -> Plan[list[tuple[int, int, bytes | None]]]:
    """Ranges of blobs; see `LanceDataset.read_blob_ranges`."""
    if selector not in ("ids", "addresses", "indices"):
        raise UsageError(f"selector must be one of 'ids', 'addresses', or 'indices', got {selector!r}")
    steps = blob_steps(state, name)
    rows = [row for row, _, _ in requests]
    chosen = {"ids": None, "addresses": None, "indices": None, selector: rows}
    grouped = yield from _select(state, chosen["ids"], chosen["addresses"], chosen["indices"])
    blobs: list[tuple[int, StoredObject, int, int, bool]] = []
    for fragment_index, offsets, descriptions in (yield from _descriptions(state, steps, grouped)):
        located = yield from locate_blobs(state, fragment_index, steps[-1].id, descriptions)
        numbers = addresses(state.fragment_ids[fragment_index], offsets).tolist()
        keys = [located.objects[key] for key in located.keys.tolist()]
        blobs.extend(zip(numbers, keys, located.starts.tolist(), located.sizes.tolist(), located.valid, strict=True))
    return (yield from _read_requests(state, _in_order(blobs, grouped), requests))


def _read_requests(
    state: DatasetState, blobs: list[tuple[int, StoredObject, int, int, bool]], requests: Sequence[tuple[int, int, int]]
) -> Plan[list[tuple[int, int, bytes | None]]]:
    results: list[tuple[int, int, bytes | None]] = []
    by_object: dict[StoredObject, list[int]] = {}
    for number, ((address, key, _, size, valid), (_, offset, length)) in enumerate(zip(blobs, requests, strict=True)):
        results.append((number, address, b"" if valid else None))
        if valid:
            try:
                check_range(offset, length, size)
            except UsageError as error:
                raise UsageError(f"Blob range request {number} for row address {address} is invalid: {error}") from None
            by_object.setdefault(key, []).append(number)
    for stored_object, numbers in by_object.items():
        starts = np.array([blobs[n][2] + requests[n][1] for n in numbers], dtype=np.int64)
        ends = starts + np.array([requests[n][2] for n in numbers], dtype=np.int64)
        for low, high in cut_by_size(ends - starts, PART_BYTES):
            ranges = Ranges(starts[low:high], ends[low:high])
            fetched = yield from read_object(state, stored_object, ranges)
            for number, data in zip(numbers[low:high], bytes_of(fetched, ranges), strict=True):
                results[number] = (number, blobs[number][0], data)
            del fetched, data  # freed before the next one is read
    return results
