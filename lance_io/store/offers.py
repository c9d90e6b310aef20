"""Protocols that a store may offer beyond `ObjectStore`, and how callers ask for them.

A store needs none of these. `offers_sync_reads`, `offers_sync_writes` and `keeps_copies` ask by type, once for each.
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
    """Offered by stores that execute a whole list of ranges in one call for less than one call per range."""

    async def read_ranges(self, key: str, ranges: Ranges, gap_bytes: int, read_bytes_max: int) -> Fetched:
        """All ranges of one object in one buffer, in the order asked; errors as `get_range`.

        gap_bytes       ranges closer than this may share a read (the gap is then part of the buffer)
        read_bytes_max  how large one read may be
        """


class StartedRead(Protocol):
    """A range on its way; see `StartReads`.

    tag  of who asked for it, until `result` is called
    """

    tag: Any

    @property
    def queue_s(self) -> float:
        """Seconds that its requests have waited before they were sent."""

    def result(self) -> Buffer | None:
        """Once it is over: its bytes, read-only; None if they are in the memory that was given. Errors as `get_range`.

        After an error anything may be in that memory, but nothing is written there any more.
        """

    def cancel(self) -> None:
        """Give it up, harmless when it is over: nothing is written to its memory, nobody is told of its end."""


class Flow:
    """The requests of one operation: those of several take turns where they wait.

    reads_once  what they read is hardly asked for again: it is a scan
    """

    __slots__ = ("__weakref__", "reads_once")

    def __init__(self, *, reads_once: bool = False) -> None:
        self.reads_once = reads_once


flow: Final[ContextVar[Flow | None]] = ContextVar("lance_io.store.flow", default=None)
"""What requests of this context belong to. Those of no operation (manifests and the like) go ahead."""


class WantedRange(NamedTuple):
    """A range to read; see `StartReads`.

    start, end  of the object, not empty
    memory      writable, of that length: where the bytes are to be; None for memory of the store's own
    operation   that it belongs to: those of several take turns where they wait
    tag         of who asks
    """

    key: str
    start: int
    end: int
    memory: memoryview | None = None
    operation: Flow | None = None
    tag: Any = None


RangesEnded: TypeAlias = "Callable[[Sequence[StartedRead]], None]"
ToldAgain: TypeAlias = "Callable[[Any, bool], None]"


@runtime_checkable
class StartReads(Protocol):
    """Offered by stores that read ranges without a task for each: a take may need hundreds of them at once."""

    def start_ranges(self, wanted: Sequence[WantedRange], ended: RangesEnded, told: ToldAgain) -> Sequence[StartedRead]:
        """Begin to read ranges; called on a running loop. One for each, in their order; none has begun if it raises.

        ended  called on the loop with those that are over, in a later turn; not with those that were cancelled
        told   called with the tag of one whose request is made again: with True as it is late, with False as it failed
        """


@runtime_checkable
class FindsRanges(Protocol):
    """Offered by stores with a disk cache: who plans ranges has them looked for there before they go to the store."""

    def looks_for(self, key: str, operation: Flow | None) -> bool:
        """Whether ranges of an object may be in the cache and are worth a look, for an operation."""

    def find_ranges(self, wanted: Sequence[WantedRange]) -> Future[list[memoryview | None]]:
        """What the cache has of ranges that `looks_for` has said yes to; returns at once, another thread looks.

        One for each: its memory, if that was given and was filled; other memory, read-only, with its bytes; or None,
        after which anything may be in the memory that was given.
        """


@runtime_checkable
class KeepsCopies(Protocol):
    """Offered by stores with a disk cache, for objects whose names may be used again, such as manifests.

    What never changes they keep by themselves.
    """

    async def find_copy(self, key: str, etag: str | None) -> Buffer | None:
        """The bytes of an object without a request: of the one with this etag, or, with None, of the last one known."""

    def keep_copy(self, key: str, etag: str | None, data: Buffer) -> None:
        """Keep an object that was read; returns at once."""

    def forget_copy(self, key: str) -> None:
        """Keep none of an object any more; returns at once."""


@runtime_checkable
class SyncReads(Protocol):
    """Offered by stores whose bytes are at hand without waiting: memory and local disk. Safe from any thread.

    Errors are those of the async methods of the same name; of several objects that of the first one that fails.
    """

    def read_sync(
        self, wanted: Sequence[tuple[str, Ranges]], gap_bytes: int, scratch: WritableBuffer | None = None
    ) -> list[Fetched]:
        """Ranges of objects, each with its key: all of an object in one buffer, in the order asked.

        Several objects are read side by side where that is faster. A small object that is read whole is one range of
        the purpose "metadata" from its first byte on; with several such none is kept open.

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
        """Of each object the last `num_bytes` (all of a shorter one) and its size in bytes."""

    def list_sync(self, prefix: str, asked: Selection = ALL) -> list[ObjectMeta]:
        """As `ObjectStore.list`."""

    def head_sync(self, key: str) -> ObjectMeta:
        """As `ObjectStore.head`."""


def offers_sync_reads(store: object) -> TypeGuard[SyncReads]:
    """Whether a store offers `SyncReads`. What `isinstance` says, which needs longer than a small read."""
    return _offers(type(store), SyncReads)


_OFFERED: dict[tuple[type, type], bool] = {}


def _offers(kind: type, protocol: type) -> bool:
    found = _OFFERED.get((kind, protocol))
    if found is None:
        found = _OFFERED[kind, protocol] = issubclass(kind, protocol)
    return found


def keeps_copies(store: object) -> TypeGuard[KeepsCopies]:
    """Whether a store offers `KeepsCopies`."""
    return _offers(type(store), KeepsCopies)


@runtime_checkable
class SyncWrites(Protocol):
    """Offered beside `SyncReads`: writing without a loop. Safe from any thread.

    Errors are those of the async methods of the same name.
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
class PutsTogether(Protocol):
    """Offered by stores that write several small objects for less than one by one."""

    def put_many_sync(self, contents: Mapping[str, Buffer], *, durability: Durability | None = None) -> None:
        """Write objects, given by key, each as `ObjectStore.put` does; after a failure some of them may be there."""

    async def put_many(self, contents: Mapping[str, Buffer], *, durability: Durability | None = None) -> None:
        """The same on the running loop."""


@runtime_checkable
class HoldsFolders(Protocol):
    """A store where folders stay when the last object in them is removed, and where links lead elsewhere."""

    def own_files_sync(self, folder: str) -> Sequence[str]:
        """Keys of all files in a folder and below it, and of links in it; what is behind a link is not its own."""

    async def own_files(self, folder: str) -> Sequence[str]:
        """The same on the running loop."""

    def remove_empty_folders_sync(self, folder: str) -> None:
        """Remove a folder and those below it as far as nothing is in them; links are neither followed nor removed."""

    async def remove_empty_folders(self, folder: str) -> None:
        """The same on the running loop."""


@runtime_checkable
class HasOwnPaths(Protocol):
    """A store whose URIs are not those of a scheme that everybody knows."""

    def key_of(self, uri: str) -> str:
        """The key that a URI or path names in it. Raises `UsageError` for those of other stores."""


def offers_sync_writes(store: object) -> TypeGuard[SyncWrites]:
    """Whether a store can be written to, and read from, without a loop."""
    return _offers(type(store), SyncWrites) and _offers(type(store), SyncReads)


def puts_together(store: object) -> TypeGuard[PutsTogether]:
    """Whether a store offers `PutsTogether`."""
    return _offers(type(store), PutsTogether)
