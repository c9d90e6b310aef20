"""`AsyncBlobFile`: a blob as an awaitable file, for `AsyncDataset`."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.dataset.blobs.blob_file import check_range, read_object
from lance_io.dataset.rows.read_rows import bytes_of
from lance_io.errors import UsageError
from lance_io.plans.plan import drive_async
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.dataset.blobs.blob_file import BlobFile


class AsyncBlobFile:
    """One blob; positions as in `BlobFile`, reads are coroutines. Leaving an `async with` block closes it."""

    def __init__(self, blob: BlobFile) -> None:
        self._blob = blob

    def size(self) -> int:
        """Length in bytes."""
        return self._blob.size()

    def tell(self) -> int:
        """The position of the next read."""
        return self._blob.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; behind the end is allowed and reads nothing there."""
        return self._blob.seek(offset, whence)

    async def read(self, size: int = -1) -> bytes:
        """The next `size` bytes, fewer at the end; all that is left without a size."""
        position = self._blob.tell()
        left = max(0, self._blob.size() - position)
        wanted = left if size < 0 else min(size, left)
        data = await self.read_range(position, wanted) if wanted else b""
        self._blob.seek(position + wanted)
        return data

    async def read_range(self, offset: int, length: int) -> bytes:
        """Bytes `offset .. offset + length`, without moving. Raises `ValueError` beyond the end."""
        return (await self.read_ranges([(offset, length)]))[0]

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several `(offset, length)` ranges at once, without moving."""
        blob = self._blob
        if blob.closed:
            raise UsageError("Blob file is already closed")
        for offset, length in ranges:
            check_range(offset, length, blob.size())
        wanted = Ranges.of(*((blob._start + offset, blob._start + offset + length) for offset, length in ranges))
        fetched: Any = await runtime.wrap(drive_async(read_object(blob._state, blob._object, wanted)))
        return bytes_of(fetched, wanted)

    async def aclose(self) -> None:
        """Close; nothing can be read any more."""
        self._blob.close()

    async def __aenter__(self) -> AsyncBlobFile:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<AsyncBlobFile size={self.size()}>"
