"""Records every request as a line of text, so that a test can state the expected I/O.

    list _versions/
    get _versions/1.manifest
    get data/7f.lance -65536
    get data/7f.lance 0-16384

The store that `record(store)` returns offers synchronous calls if `store` does.
A call for several ranges gives one line per read: ranges with small gaps are merged as stores merge them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar, cast

from lance_io.store.api import ALL
from lance_io.store.offers import SyncReads, SyncWrites
from lance_io.testing.wrap import Request, WrappedStore, put_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from lance_io.spans import Fetched, Ranges
    from lance_io.store.api import Buffer, Durability, ObjectMeta, ObjectStore, Selection, SyncUpload, WritableBuffer

T = TypeVar("T")


class RecordingStore(WrappedStore):
    """A store that records each request when it is sent.

    Args:
        inner: The store that answers the requests.
        base: Prefix that is removed from keys in the log.

    Attributes:
        requests: Requests since the last `take_log`; their keys lack the prefix `base`.
    """

    def __init__(self, inner: ObjectStore, base: str = "") -> None:
        super().__init__(inner)
        self._base = base
        self.requests: list[Request] = []

    @property
    def log(self) -> list[str]:
        """One line per request in `requests`."""
        return [str(request) for request in self.requests]

    def take_log(self) -> list[str]:
        """Return the log, and clear it."""
        log = self.log
        self.requests.clear()
        return log

    async def request(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """See `WrappedStore.request`; records the request first."""
        self._record_request(request)
        return await send()

    def _record_request(self, request: Request) -> None:
        key = request.key.removeprefix(self._base).lstrip("/")
        self.requests.append(Request(request.operation, key, request.start, request.end, request.num_bytes))

    def _record_ranges(self, key: str, ranges: Ranges, gap_bytes: int) -> None:
        for start, end in merge_ranges(ranges, gap_bytes):
            self._record_request(Request("get", key, start, end))


class RecordingSyncStore(RecordingStore):
    """A `RecordingStore` around a store that offers `SyncReads` and `SyncWrites`; also records synchronous calls."""

    @property
    def _sync_reads(self) -> SyncReads:
        return cast("SyncReads", self.inner)

    @property
    def _sync_writes(self) -> SyncWrites:
        return cast("SyncWrites", self.inner)

    def read_sync(
        self, wanted: Sequence[tuple[str, Ranges]], gap_bytes: int, scratch: WritableBuffer | None = None
    ) -> list[Fetched]:
        """See `SyncReads.read_sync`."""
        for key, ranges in wanted:
            self._record_ranges(key, ranges, gap_bytes)
        return self._sync_reads.read_sync(wanted, gap_bytes, scratch)

    def read_joined_sync(
        self,
        keys: Sequence[str],
        ranges: Ranges,
        bounds: Sequence[int],
        gap_bytes: int,
        scratch: WritableBuffer | None = None,
    ) -> Fetched:
        """See `SyncReads.read_joined_sync`."""
        for key, (first, end) in zip(keys, pairwise(bounds), strict=True):
            self._record_ranges(key, ranges.part(first, end), gap_bytes)
        return self._sync_reads.read_joined_sync(keys, ranges, bounds, gap_bytes, scratch)

    def get_sync(self, key: str) -> bytes:
        """See `SyncReads.get_sync`."""
        self._record_request(Request("get", key))
        return self._sync_reads.get_sync(key)

    def suffix_sync(self, keys: Sequence[str], num_bytes: int) -> list[tuple[Buffer, int]]:
        """See `SyncReads.suffix_sync`."""
        for key in keys:
            self._record_request(Request("get", key, -num_bytes))
        return self._sync_reads.suffix_sync(keys, num_bytes)

    def list_sync(self, prefix: str, asked: Selection = ALL) -> list[ObjectMeta]:
        """See `SyncReads.list_sync`."""
        self._record_request(Request("list", prefix))
        return self._sync_reads.list_sync(prefix, asked)

    def head_sync(self, key: str) -> ObjectMeta:
        """See `SyncReads.head_sync`."""
        self._record_request(Request("head", key))
        return self._sync_reads.head_sync(key)

    def put_sync(
        self,
        key: str,
        data: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        durability: Durability | None = None,
        in_place: bool = False,
    ) -> ObjectMeta:
        """See `SyncWrites.put_sync`."""
        self._record_request(put_request(key, data, if_absent))
        return self._sync_writes.put_sync(
            key, data, if_absent=if_absent, if_match=if_match, durability=durability, in_place=in_place
        )

    def open_upload_sync(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> SyncUpload:
        """See `SyncWrites.open_upload_sync`; records one request, when the upload begins."""
        self._record_request(Request("put_create" if if_absent else "put", key))
        return self._sync_writes.open_upload_sync(key, if_absent=if_absent, durability=durability)

    def delete_sync(self, keys: Iterable[str]) -> None:
        """See `SyncWrites.delete_sync`; records and sends one request per key."""
        for key in keys:
            self._record_request(Request("delete", key))
            self._sync_writes.delete_sync([key])


def record(store: ObjectStore, base: str = "") -> RecordingStore:
    """A recording store around `store`, with synchronous calls if `store` offers them.

    Args:
        store: The store that answers the requests.
        base: Prefix that is removed from keys in the log.
    """
    return (RecordingSyncStore if isinstance(store, SyncReads) else RecordingStore)(store, base)


def merge_ranges(ranges: Ranges, gap_bytes: int) -> list[tuple[int, int]]:
    """Compute the reads that a store sends for `ranges`, as a plain reference implementation.

    Args:
        ranges: Ranges of one object, in any order.
        gap_bytes: Ranges with at most this gap between them share a read.

    Returns:
        Start and end of each read in bytes, in ascending order.
    """
    reads: list[tuple[int, int]] = []
    for start, end in sorted(zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True)):
        if start == end:
            continue
        if reads and start - reads[-1][1] <= gap_bytes:
            reads[-1] = (reads[-1][0], max(end, reads[-1][1]))
        else:
            reads.append((start, end))
    return reads
