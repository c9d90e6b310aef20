"""Protocols that a store may offer beyond `ObjectStore`, and how callers ask for them.

A store needs none of these. `offers_sync_reads`, `offers_sync_writes` and `keeps_copies` check the type, once for each.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeGuard, runtime_checkable

from lance_io.store.api import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from lance_io.spans import Fetched, Ranges
    from lance_io.store.api import Buffer, Durability, ObjectMeta, Selection, SyncUpload, WritableBuffer


@runtime_checkable
class PlanReads(Protocol):
    """Offered by stores for which one call with a list of ranges is cheaper than one call per range."""

    async def read_ranges(self, key: str, ranges: Ranges, gap_bytes: int, read_bytes_max: int) -> Fetched:
        """All ranges of one object in one buffer, in the given order; errors as `get_range`.

        gap_bytes       ranges closer than this may share a read (the gap is then part of the buffer)
        read_bytes_max  maximal size of a read
        """


class StartedRead(Protocol):
    """A range read in progress; see `StartReads`.

    tag  the caller's own, until `result` is called
    """

    tag: Any

    @property
    def queue_s(self) -> float:
        """Seconds that its requests waited before they were sent."""

    def result(self) -> Buffer | None:
        """After its end: the bytes, read-only; None if they are in the request's `memory`. Errors as `get_range`.

        After an error the contents of `memory` are undefined, but nothing writes there any more.
        """

    def cancel(self) -> None:
        """Cancel it; a no-op after its end. Nothing writes to its memory any more, and no callback is called."""


class Flow:
    """The requests of one operation. Where requests wait, operations take turns.

    reads_once  a scan: its bytes are hardly read again
    """

    __slots__ = ("__weakref__", "reads_once")

    def __init__(self, *, reads_once: bool = False) -> None:
        self.reads_once = reads_once


flow: Final[ContextVar[Flow | None]] = ContextVar("lance_io.store.flow", default=None)
"""Operation of the requests of this context. Requests without one (manifests and the like) go first."""


class WantedRange(NamedTuple):
    """A range to read; see `StartReads`.

    start, end  of the object, not empty
    memory      writable, `end - start` bytes: destination of the bytes; None for memory of the store's own
    operation   that it belongs to; operations take turns where requests wait
    tag         the caller's own
    """

    key: str
    start: int
    end: int
    memory: memoryview | None = None
    operation: Flow | None = None
    tag: Any = None


OnRangesDone: TypeAlias = "Callable[[Sequence[StartedRead]], None]"
OnRetry: TypeAlias = "Callable[[Any, bool], None]"


@runtime_checkable
class StartReads(Protocol):
    """Offered by stores that read ranges without a task for each: a take may need hundreds of them at once."""

    def start_ranges(
        self, requests: Sequence[WantedRange], on_done: OnRangesDone, on_retry: OnRetry
    ) -> Sequence[StartedRead]:
        """Start reading ranges, on a running loop. Returns one read per request, in order; starts none if it raises.

        on_done   called on the loop, in a later turn, with reads that have ended; never with cancelled reads
        on_retry  called with a read's tag when its request is sent again: with True for a hedge, with False after a
                  failure
        """


@runtime_checkable
class FindsRanges(Protocol):
    """Offered by stores with a disk cache: the planner of ranges looks there before it starts requests."""

    def may_be_cached(self, key: str, operation: Flow | None) -> bool:
        """Whether ranges of an object may be in the cache and are worth a look, for an operation."""

    def find_ranges(self, wanted: Sequence[WantedRange]) -> Future[list[memoryview | None]]:
        """Read ranges for which `may_be_cached` is true from the cache; returns at once, another thread reads.

        One item for each range: its `memory`, if given, filled; other memory, read-only, with its bytes; or None for
        a cache miss, which leaves the contents of `memory` undefined.
        """


@runtime_checkable
class KeepsCopies(Protocol):
    """Offered by stores with a disk cache, for objects whose names may be reused, such as manifests.

    They cache immutable objects without these calls.
    """

    async def find_copy(self, key: str, etag: str | None) -> Buffer | None:
        """The cached bytes of an object, without a request: with this etag, or the latest ones for None."""

    def keep_copy(self, key: str, etag: str | None, data: Buffer) -> None:
        """Cache an object that was read; returns at once."""

    def forget_copy(self, key: str) -> None:
        """Drop the cached copy of an object; returns at once."""


@runtime_checkable
class SyncReads(Protocol):
    """Offered by stores that read without waiting for a network: memory and local disk. Safe from any thread.

    Errors are those of the async methods with the same names; of several objects the error of the first that fails.
    """

    def read_sync(
        self, wanted: Sequence[tuple[str, Ranges]], gap_bytes: int, scratch: WritableBuffer | None = None
    ) -> list[Fetched]:
        """Ranges of objects, by key: all ranges of an object in one buffer, in the given order.

        Several objects are read in parallel if that is faster. A small object that is read whole is one range of
        the purpose "metadata" from its first byte on; with several of them no file is kept open.

        scratch  writable memory for all results; used if it is large enough and no `ranges.keep` is true
        """

    def read_joined_sync(
        self,
        keys: Sequence[str],
        ranges: Ranges,
        bounds: Sequence[int],
        gap_bytes: int,
        scratch: WritableBuffer | None = None,
    ) -> Fetched:
        """Ranges of several objects in one buffer: i has those from `bounds[i]` to `bounds[i + 1]`, one at least.

        scratch  writable memory for the result; used if it is large enough
        """

    def get_sync(self, key: str) -> bytes:
        """A whole object."""

    def suffix_sync(self, keys: Sequence[str], num_bytes: int) -> list[tuple[Buffer, int]]:
        """The last `num_bytes` of each object (all of a shorter one), and its size in bytes."""

    def list_sync(self, prefix: str, asked: Selection = ALL) -> list[ObjectMeta]:
        """As `ObjectStore.list`."""

    def head_sync(self, key: str) -> ObjectMeta:
        """As `ObjectStore.head`."""


def offers_sync_reads(store: object) -> TypeGuard[SyncReads]:
    """Whether a store offers `SyncReads`. Same answer as `isinstance`, which takes longer than a small read."""
    return _offers(type(store), SyncReads)


_OFFERED: dict[tuple[type, type], bool] = {}


def _offers(kind: type, protocol: type) -> bool:
    offered = _OFFERED.get((kind, protocol))
    if offered is None:
        offered = _OFFERED[kind, protocol] = issubclass(kind, protocol)
    return offered


def keeps_copies(store: object) -> TypeGuard[KeepsCopies]:
    """Whether a store offers `KeepsCopies`."""
    return _offers(type(store), KeepsCopies)


@runtime_checkable
class SyncWrites(Protocol):
    """Offered beside `SyncReads`: writing without a loop. Safe from any thread.

    Errors are those of the async methods with the same names.
    """

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
        """As `ObjectStore.put`."""

    def open_upload_sync(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> SyncUpload:
        """As `ObjectStore.open_upload`."""

    def delete_sync(self, keys: Iterable[str]) -> None:
        """As `ObjectStore.delete`."""


@runtime_checkable
class PutsMany(Protocol):
    """Offered by stores for which writing several small objects together is cheaper than one after the other."""

    def put_many_sync(self, contents: Mapping[str, Buffer], *, durability: Durability | None = None) -> None:
        """Write objects, given by key, each as `ObjectStore.put` does; after a failure some of them may exist."""

    async def put_many(self, contents: Mapping[str, Buffer], *, durability: Durability | None = None) -> None:
        """The same on the running loop."""


@runtime_checkable
class HoldsFolders(Protocol):
    """A store whose folders stay when their last object is removed, and whose links lead elsewhere."""

    def own_files_sync(self, folder: str) -> Sequence[str]:
        """Keys of all files and links in a folder and below it; links are not followed."""

    async def own_files(self, folder: str) -> Sequence[str]:
        """The same on the running loop."""

    def remove_empty_folders_sync(self, folder: str) -> None:
        """Remove a folder and its subfolders if they are empty; links are neither followed nor removed."""

    async def remove_empty_folders(self, folder: str) -> None:
        """The same on the running loop."""


@runtime_checkable
class HasOwnPaths(Protocol):
    """A store whose URIs do not have a well-known scheme."""

    def key_of(self, uri: str) -> str:
        """The key of a URI or path in this store. Raises `UsageError` for URIs of other stores."""


def offers_sync_writes(store: object) -> TypeGuard[SyncWrites]:
    """Whether a store can be written to, and read from, without a loop."""
    return _offers(type(store), SyncWrites) and _offers(type(store), SyncReads)


def offers_put_many(store: object) -> TypeGuard[PutsMany]:
    """Whether a store offers `PutsMany`."""
    return _offers(type(store), PutsMany)
