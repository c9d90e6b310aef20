"""Writes objects of any size to any store: one PUT for small objects, parallel parts for larger ones.

    write ──> part being filled (16 MiB) ──> at most 8 parts in flight ──> complete
                                              the store retries each of them

Memory is 9 parts, for objects of any size. Parts have equal sizes, as some services require, and grow only if
10,000 of them would not suffice; fewer are then in flight, so the memory stays the same.

A failed or cancelled upload is aborted before the error is raised, shielded from further cancellation. Parts that the
abort cannot remove (the connection is lost, the process ends) stay invisible in the bucket and cost storage:
set up a lifecycle rule for the bucket that drops incomplete uploads after some days.
"""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Final, Self

from lance_io.errors import LanceError, UsageError
from lance_io.limits import MIB
from lance_io.redaction import get_logger
from lance_io.runtime import to_the_end

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.store.api import Buffer, Durability, ObjectMeta, ObjectStore, PartWriter

PART_BYTES: Final = 16 * MIB  # also the largest object that is written in one request
PARTS_IN_FLIGHT: Final = 8
PARTS_MAX: Final = 10_000  # of one object, at S3 and compatible services
_GROW_AFTER: Final = 5_000  # without a size hint, parts double after this number of parts of the first size ...
_GROW_EVERY: Final = 1_000  # ... and again after every 1,000 parts: room for a TiB
_COPY_BYTES: Final = 1 * MIB  # copied at a time; a larger part gets its memory at once, not bit by bit

_logger = get_logger(__name__)


def part_bytes_of(number: int, content_length_hint: int | None, *, equal: bool, part_bytes: int = PART_BYTES) -> int:
    """Size of the part `number` (from 0) in bytes.

    content_length_hint  approximate size of the whole object in bytes, or None
    equal                all parts must have the same size: without a hint they then do not grow
    part_bytes           the usual size
    """
    expected = (content_length_hint or 0) * 5 // 4  # a hint may be too low
    whole_mib = -(-expected // PARTS_MAX // MIB) * MIB
    first = max(part_bytes, whole_mib)
    if equal or number < _GROW_AFTER:
        return first
    return first << (1 + (number - _GROW_AFTER) // _GROW_EVERY)


class PartUpload:
    """`Upload` over a store's `put` and `put_multipart`. Belongs to one task at a time."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        *,
        if_absent: bool = False,
        durability: Durability | None = None,
        content_length_hint: int | None = None,
        part_bytes: int = PART_BYTES,
        parts_in_flight: int = PARTS_IN_FLIGHT,
    ) -> None:
        self._store = store
        self._key = key
        self._if_absent = if_absent
        self._durability = durability
        self._hint = content_length_hint
        self._usual_bytes = part_bytes
        self._in_flight_bytes_max = part_bytes * parts_in_flight
        self._part = io.BytesIO()
        self._part_bytes = self._size_of_part(0)
        self._num_parts = 0
        self._sent_bytes = 0
        self._starting: asyncio.Future[PartWriter] | None = None
        self._sending: dict[asyncio.Task[None], int] = {}  # parts in flight, and their bytes
        self._meta: ObjectMeta | None = None
        self._over = False

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._sent_bytes + self._part.tell()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()

    async def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers; see `Upload`."""
        self._check_open()
        try:
            for buffer in buffers:
                rest = memoryview(buffer).cast("B")
                while len(rest):
                    room = self._part_bytes - self._part.tell()
                    if not room:  # a part is sent when more bytes follow: an object of one part is one PUT
                        await self._send_part()
                        continue
                    piece, rest = rest[: min(room, _COPY_BYTES)], rest[min(room, _COPY_BYTES) :]
                    self._append(piece)
        except BaseException as error:
            await self._give_up(error)
            raise

    async def close(self) -> ObjectMeta:
        """Make the object visible; see `Upload`."""
        if self._meta is not None:
            return self._meta
        self._check_open()
        try:
            self._meta = await self._finish()
        except BaseException as error:
            await self._give_up(error)
            raise
        self._over = True
        return self._meta

    async def abort(self) -> None:
        """Remove the parts that were sent; see `Upload`."""
        if not self._over:
            await self._give_up(None)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._over:
            raise UsageError(f"{self._key}: this upload is over (closed, aborted or failed); open another one")

    def _size_of_part(self, number: int) -> int:
        equal = self._store.capabilities.equal_parts_required
        return part_bytes_of(number, self._hint, equal=equal, part_bytes=self._usual_bytes)

    def _append(self, piece: memoryview) -> None:
        filled = self._part.tell()
        if filled <= _COPY_BYTES < filled + len(piece):
            before, self._part = self._part.getvalue(), _memory_of(self._part_bytes)
            self._part.write(before)
        self._part.write(piece)

    def _take_part(self) -> bytes:
        """The filled part, not a copy of it; begins the next part."""
        part, self._part = self._part, io.BytesIO()
        part.truncate()
        return part.getvalue()

    async def _send_part(self) -> None:
        """Start sending the filled part and begin the next one; waits for room, and for the start of the upload."""
        if self._num_parts >= PARTS_MAX:
            raise UsageError(
                f"{self._key}: {self.size_bytes} bytes are more than {PARTS_MAX} parts hold; "
                "open the upload with a content_length_hint"
            )
        writer = await self._writer()
        num_bytes = self._part.tell()
        self._raise_failed()
        while self._sending and sum(self._sending.values()) + num_bytes > self._in_flight_bytes_max:
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failed()
        part = writer.write_part(self._num_parts, self._sent_bytes, self._take_part())
        task = asyncio.create_task(part)
        self._sending[task] = num_bytes
        self._num_parts += 1
        self._sent_bytes += num_bytes
        self._part_bytes = self._size_of_part(self._num_parts)

    async def _writer(self) -> PartWriter:
        """The multipart upload. Cancelling this does not cancel its start: only an upload with an id can be aborted."""
        if self._starting is None:
            put = self._store.put_multipart(self._key, if_absent=self._if_absent, durability=self._durability)
            self._starting = asyncio.ensure_future(put)
        return await asyncio.shield(self._starting)

    def _raise_failed(self) -> None:
        """Drop the finished parts; raise the first error among them."""
        for task in [task for task in self._sending if task.done()]:
            del self._sending[task]
            task.result()

    async def _finish(self) -> ObjectMeta:
        if self._starting is None:
            data = self._take_part()
            self._sent_bytes = len(data)
            return await self._store.put(self._key, data, if_absent=self._if_absent, durability=self._durability)
        if self._part.tell():
            await self._send_part()
        while self._sending:
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failed()
        writer = await self._writer()
        return await writer.complete()

    async def _give_up(self, cause: BaseException | None) -> None:
        """Cancel the parts in flight and remove the others, even if the caller is cancelled again."""
        self._over = True
        self._part.close()
        self._part = io.BytesIO()
        if self._starting is None:
            return
        try:
            await to_the_end(self._remove_parts(self._starting))
        except LanceError as error:
            if cause is None:
                raise
            cause.add_note(f"also: parts of the upload could not be removed: {error}")

    async def _remove_parts(self, starting: asyncio.Future[PartWriter]) -> None:
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        self._sending.clear()
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            try:
                await starting.result().abort()
            except Exception as error:  # a cancelled caller does not see the error
                _logger.warning("%s: parts of an aborted upload stay until the bucket drops them: %s", self._key, error)
                raise


def _memory_of(num_bytes: int) -> io.BytesIO:
    """An empty buffer with room for `num_bytes`, so that it need not be moved."""
    buffer = io.BytesIO()
    buffer.seek(num_bytes - 1)
    buffer.write(b"\0")
    buffer.seek(0)
    return buffer
