"""What a store promises: the protocol that memory, local disk and S3 implement, and the values it speaks in.

Keys are text. In a bucket they are object keys without a leading slash; on local disk absolute paths with `/`; in
memory any text. A prefix is compared as text, so a folder's prefix ends in `/`.

Failures are those of `lance_io.errors`: `NotFound`, `AccessDenied`, `AlreadyExists` (a create that came second),
and `StoreError` with the subclasses of `lance_io.store.failures`, which this module re-exports.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import fields, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeGuard,
    runtime_checkable,
)

from lance_io.errors import UsageError
from lance_io.limits import (
    KIB,
    MIB,
    TAIL_BYTES_CLOUD,
    TAIL_BYTES_CLOUD_MAX,
    TAIL_BYTES_LOCAL,
    WHOLE_FILE_BYTES_CLOUD,
    WHOLE_FILE_BYTES_LOCAL,
)
from lance_io.records import dataclass
from lance_io.store.costs import (
    CLIENT_GETS,
    EXPRESS_GETS,
    SIGNED_GETS,
    RequestCosts,
    requests_within_descriptors,
    tells_costs,
)
from lance_io.store.counters import StatsSnapshot, StoreStats
from lance_io.store.failures import (
    ConflictRetry,
    InvalidRange,
    LongBody,
    OutcomeUnknown,
    PreconditionFailed,
    RangeIgnored,
    ShortRead,
    StoreFailure,
    Throttled,
    Transient,
    Unsent,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from datetime import datetime

    from lance_io.spans import Fetched, Ranges

Buffer: TypeAlias = Any  # anything with the buffer protocol
WritableBuffer: TypeAlias = Any
Durability = Literal["full", "none"]
"""When a write to the local disk counts as done.

full  contents, name and new folders are flushed to the disk before the call returns, contents before the name is
      given: what was written survives a loss of power, and no name ever stands for half a file
none  nothing is flushed: safe when a process ends at any point, not when the machine does

Stores in the cloud are durable once they answer; memory never is. Both ignore it.
"""


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What a store says about an object.

    key            the key, as the store takes it
    size_bytes     its length; 0 for a folder
    etag           opaque version of the content, or None where the store has none
    last_modified  time of the write, with time zone, or None
    """

    key: str
    size_bytes: int
    etag: str | None = None
    last_modified: datetime | None = None

    @property
    def is_folder(self) -> bool:
        """True for the entries by which a listing with a delimiter stands for everything below a `/`."""
        return self.key.endswith("/")

    @property
    def name(self) -> str:
        """The part of the key behind the last `/` (of a folder: its name without the `/`)."""
        return self.key.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries below a prefix are listed.

    start_after  only keys behind this one
    limit        this many at most
    delimiter    "/": only what lies directly below the prefix, folders as one entry whose key ends in `/`
    keys_only    only keys matter: what else is known of entries is left out where each would have to be looked at
                 (`Capabilities.described_list`), and names that lead to no file may be among them
    plain_names  only names of printable characters matter: others may come garbled, where that makes the answer shorter
    also_behind  where the limit cuts the listing, the first entry behind this key, too: of stores that have read all
                 names by then (`Capabilities.reads_whole_folders`); others leave it out
    """

    start_after: str | None = None
    limit: int | None = None
    delimiter: str | None = None
    keys_only: bool = False
    plain_names: bool = False
    also_behind: str | None = None


ALL: Final = Selection()
DIRECTLY_BELOW: Final = Selection(delimiter="/")
NAMES_DIRECTLY_BELOW: Final = Selection(delimiter="/", keys_only=True)


@dataclass(frozen=True, slots=True)
class StoreProfile:
    """The numbers by which reads from a store are planned; those of the cloud follow from its `costs.py`.

    take_gap_bytes, scan_gap_bytes            ranges closer than this share a read, for takes and for scans
    take_read_bytes_max, scan_read_bytes_max  how large a read may grow by merging
    split_bytes                               a range longer than this is read in several requests
    requests_start, requests_max              requests in flight: of a scan at first, and of everything at most
    tail_bytes, tail_bytes_max                how much of a file's end the first read of it asks for: the first, or of
                                              large files with page indexes there a 256th, at most the second. A store
                                              that is waited for has a larger second one
    whole_file_bytes                          files up to this size are read whole, if that is of use
    hedge_percent                             for 100 reads, how many more may go out where an answer is late
    max_requests_per_second                   for stores with a speed limit; 0 for none
    costs                                     what requests to the store cost; None where that is nothing to speak of
    """

    name: str
    take_gap_bytes: int
    scan_gap_bytes: int
    take_read_bytes_max: int
    scan_read_bytes_max: int
    split_bytes: int
    requests_start: int
    requests_max: int
    tail_bytes: int
    tail_bytes_max: int
    whole_file_bytes: int
    hedge_percent: int = 0
    max_requests_per_second: int = 0
    costs: RequestCosts | None = None

    def with_options(self, options: Mapping[str, str]) -> StoreProfile:
        """This profile with the numbers that `options` names by field; `block_size` is pylance's `take_gap_bytes`.

        Options that say what the store costs (`RequestCosts.with_options`) come first: see `with_costs`.
        options  lower-case names to decimal texts; names that are no field are left alone. Raises `UsageError` for
                 a value that is no number of at least 0 (1 for `requests_*`, `*_max`, `split_bytes`, `tail_bytes`).
        """
        changes: dict[str, Any] = {}
        if not options:
            return self
        if tells_costs(options):
            numbers = {name: text for name, text in options.items() if name in PROFILE_OPTIONS}
            return self.with_costs((self.costs or SIGNED_GETS).with_options(options)).with_options(numbers)
        if "block_size" in options:
            changes["take_gap_bytes"] = _whole_number("block_size", options["block_size"])
        for name in PROFILE_OPTIONS[1:]:
            if name in options:
                changes[name] = _whole_number(name, options[name])
        if not changes:
            return self
        return replace(self, **changes)._at_most(changes.get("requests_max", self.requests_max))

    def with_costs(self, costs: RequestCosts) -> StoreProfile:
        """This profile for a store that costs something else: with what follows from that.

        A number for which both costs say the same stays as it is, and so do all of a store that had none.
        """
        before = self.costs
        if before is None:
            return replace(self, costs=costs)
        changes = {
            name: getattr(costs, number)
            for name, number in _FOLLOW.items()
            if getattr(costs, number) != getattr(before, number)
        }
        return replace(self, **changes, costs=costs)

    @property
    def connections_max(self) -> int:
        """Connections that are open at once: one for each request, and some for those that are made again when late."""
        return self.requests_max + -(-self.requests_max * self.hedge_percent // 100)

    def within_descriptors(self) -> StoreProfile:
        """This profile with no more requests in flight than the process has file descriptors for their connections."""
        return self._at_most(requests_within_descriptors(self.requests_max))

    def _at_most(self, requests: int) -> StoreProfile:
        return replace(self, requests_start=min(self.requests_start, requests), requests_max=requests)


PROFILE_OPTIONS: Final = (
    "block_size",
    *(field.name for field in fields(StoreProfile) if field.name not in ("name", "costs")),
)
"""Storage options that are numbers of a profile."""
_FOLLOW: Final = {  # numbers of a profile, and the property of its costs that each is
    "take_gap_bytes": "take_gap_bytes",
    "scan_gap_bytes": "scan_gap_bytes",
    "take_read_bytes_max": "read_bytes_max",
    "scan_read_bytes_max": "read_bytes_max",
    "split_bytes": "read_bytes_max",
    "requests_start": "requests_start",
    "requests_max": "requests_max",
}
_MAY_BE_ZERO = frozenset(
    {"block_size", "take_gap_bytes", "scan_gap_bytes", "whole_file_bytes", "hedge_percent", "max_requests_per_second"}
)


def _whole_number(name: str, text: str) -> int:
    least = 0 if name in _MAY_BE_ZERO else 1
    if not str(text).isdecimal() or int(text) < least:
        raise UsageError(f"storage option {name}: expected a whole number of at least {least}, found {text!r}")
    return int(text)


LOCAL = StoreProfile(
    name="local",
    take_gap_bytes=4 * KIB,
    scan_gap_bytes=64 * KIB,
    take_read_bytes_max=4 * MIB,
    scan_read_bytes_max=8 * MIB,
    split_bytes=8 * MIB,
    requests_start=8,
    requests_max=32,
    tail_bytes=TAIL_BYTES_LOCAL,
    tail_bytes_max=TAIL_BYTES_LOCAL,
    whole_file_bytes=WHOLE_FILE_BYTES_LOCAL,
)
MEMORY = replace(LOCAL, name="memory", take_gap_bytes=0, scan_gap_bytes=0)
CLOUD = StoreProfile(
    name="cloud",
    **{name: getattr(SIGNED_GETS, number) for name, number in _FOLLOW.items()},
    tail_bytes=TAIL_BYTES_CLOUD,
    tail_bytes_max=TAIL_BYTES_CLOUD_MAX,
    whole_file_bytes=WHOLE_FILE_BYTES_CLOUD,
    hedge_percent=5,
    costs=SIGNED_GETS,
)
# A client that costs a millisecond of processor time per request.
SLOW_CLIENT = replace(CLOUD.with_costs(CLIENT_GETS), name="slow-client", hedge_percent=0)
# The same for a store whose bytes cost money. Eight requests in flight would keep that client busy at the latency that
# is promised; as no such bucket was measured, it has the number of the others.
S3_EXPRESS = replace(
    SLOW_CLIENT.with_costs(EXPRESS_GETS),
    name="s3-express",
    requests_start=SLOW_CLIENT.requests_start,
    requests_max=SLOW_CLIENT.requests_max,
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do beyond plain reads and writes.

    conditional_create    `put(if_absent=True)` lets exactly one of many writers win
    create_unproven       not every service behind this protocol keeps that promise: try it first (`store/probe.py`)
    compare_and_swap      `put(if_match=etag)` is honoured
    suffix_range          `get_suffix` is one request (else two, but for objects that are not longer)
    ordered_list          listings come in ascending order of the key's UTF-8 bytes
    described_list        they tell size and etag of every entry without looking at each, even when asked for keys only
    reads_whole_folders   a listing takes no less for being limited, so that `Selection.also_behind` is honoured
    equal_parts_required  all parts of a multipart upload but the last must have one size
    temporary_prefix      how the names of objects in the making begin, beside which they appear. Listings leave them
                          out unless the prefix asks for such names: who makes them may be gone
    create_refusal       what is to be said of the store where nobody keeps that promise
    """

    conditional_create: bool = True
    create_unproven: bool = False
    compare_and_swap: bool = True
    suffix_range: bool = True
    ordered_list: bool = True
    described_list: bool = True
    reads_whole_folders: bool = False
    equal_parts_required: bool = False
    temporary_prefix: str | None = None
    create_refusal: str = (
        "does not honour 'If-None-Match: *' on PUT, so two writers at once could overwrite each other's versions; pass "
        "a commit_lock, or use an external manifest store (s3+ddb://)"
    )


class PartWriter(Protocol):
    """A multipart upload under way. Nothing shows before `complete`. `Upload` is the convenient way to use one."""

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """Send a part; several may be under way at once, in any order.

        number        from 0, without gaps
        offset_bytes  where the part begins in the object: the bytes of all parts before it
        """

    async def complete(self) -> ObjectMeta:
        """Make the object visible; `AlreadyExists` if it was to be created and another is there."""

    async def abort(self) -> None:
        """Forget the upload and its parts; harmless after `complete` or a second time."""


class Upload(Protocol):
    """An object written from beginning to end in bounded memory; it appears whole, by `close`, or not at all.

    Any error, and cancellation, removes what was sent. A context manager: leaving the block before `close` aborts.
    """

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""

    async def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers; they may be reused once this returns. Waits while too much is on its way.

        Raises the error of any earlier part that failed.
        """

    async def close(self) -> ObjectMeta:
        """Make the object visible; once it is, gives the same answer again. Errors as `ObjectStore.put`."""

    async def abort(self) -> None:
        """Remove what was sent; harmless after `close` or a second time."""

    async def __aenter__(self) -> Self:
        """Nothing but itself."""

    async def __aexit__(self, *_: object) -> None:
        """Abort unless closed."""


class SyncUpload(Protocol):
    """The same without a loop; one thread at a time."""

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers; they may be reused once this returns."""

    def close(self) -> ObjectMeta:
        """Make the object visible; once it is, gives the same answer again."""

    def abort(self) -> None:
        """Remove what was written; harmless after `close` or a second time."""

    def __enter__(self) -> Self:
        """Nothing but itself."""

    def __exit__(self, *_: object) -> None:
        """Abort unless closed."""


class ObjectReads(Protocol):
    """What planned reads need of a store."""

    @property
    def identity(self) -> str:
        """Which store this is, without credentials: bucket and endpoint. Keys caches and request limits."""

    @property
    def profile(self) -> StoreProfile:
        """The numbers to plan reads by."""

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """Bytes `start` to `end` of an object, exactly `end - start` of them, read-only.

        Raises `NotFound`, `AccessDenied`, `InvalidRange` (start behind the end of the object), `ShortRead` (the
        object ends inside the range), `StoreError`.
        """

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The last `num_bytes` of an object (all of a shorter one), its size in bytes, its etag."""

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object."""


class ObjectStore(ObjectReads, Protocol):
    """Bytes at keys, asynchronously. Usable from any event loop; everything bound to a loop is made per loop."""

    @property
    def scheme(self) -> str:
        """URI scheme, such as `s3`."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    @property
    def stats(self) -> StoreStats:
        """Counts every request."""

    async def head(self, key: str) -> ObjectMeta:
        """What the store knows about an object; `NotFound` if it is not there."""

    async def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        durability: Durability | None = None,
        in_place: bool = False,
    ) -> ObjectMeta:
        """Write an object in one request; it appears whole or not at all.

        if_absent   only if there is none, else `AlreadyExists`
        if_match    only if the object there has this etag, else `PreconditionFailed`
        durability  None: that of the store
        in_place    on the local disk, with durability `none`: write over a small file that is there, which costs less
                    than replacing it. Who reads it meanwhile may see a part of either

        A write under a condition is sent once. `OutcomeUnknown` means that it may have been applied, `ConflictRetry`
        that it was not, but another may have been: read back what is there before deciding anything.
        """

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> PartWriter:
        """Start an upload in parts of at least 5 MiB (the last may be shorter)."""

    async def open_upload(
        self,
        key: str,
        *,
        if_absent: bool = False,
        durability: Durability | None = None,
        content_length_hint: int | None = None,
    ) -> Upload:
        """Start writing an object of any size; makes no request yet.

        content_length_hint  about how many bytes will come, if known: larger parts for objects that would otherwise
                             have more of them than a store takes
        """

    async def copy(self, source: str, key: str) -> None:
        """Write an object (up to 5 GiB) with the content of another of this store, replacing what may be there."""

    def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects whose key starts with `prefix`, never from a cache; none if there is no such folder."""

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is not there counts as deleted."""

    async def aclose(self) -> None:
        """Close what this loop opened; the store opens it again if it is used again."""


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

    Errors are those of the async methods of the same name.
    """

    def read_sync(self, key: str, ranges: Ranges, gap_bytes: int, scratch: WritableBuffer | None = None) -> Fetched:
        """All ranges of one object in one buffer, in the order asked.

        scratch  writable memory for the result; used if it is large enough and `ranges.keep` is false
        """

    def read_many_sync(
        self, wanted: Sequence[tuple[str, Ranges]], gap_bytes: int, scratch: WritableBuffer | None = None
    ) -> list[Fetched]:
        """`read_sync` for ranges of several objects, side by side where that is faster.

        scratch  writable memory for all of the results, if it is large enough and no `ranges.keep` is true
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

    def get_many_sync(self, files: Sequence[tuple[str, int]]) -> list[Buffer]:
        """The first bytes of several objects, each given with how many: all of a small one whose size is known.

        What they come from is not kept open. Raises as `read_sync` for the first object with which that fails.
        """

    def suffix_sync(self, key: str, num_bytes: int) -> tuple[Buffer, int]:
        """The last `num_bytes` of an object (all of a shorter one) and its size in bytes."""

    def suffix_many_sync(self, keys: Sequence[str], num_bytes: int) -> list[tuple[Buffer, int]]:
        """`suffix_sync` for several objects, side by side where that is faster."""

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


__all__ = [
    # the protocol
    "HasOwnPaths",
    "ObjectReads",
    "ObjectStore",
    "PartWriter",
    "PlanReads",
    "StartReads",
    "KeepsCopies",
    "StartedRead",
    "SyncReads",
    "SyncWrites",
    "Upload",
    "SyncUpload",
    # values
    "Flow",
    "flow",
    "RangesEnded",
    "ToldAgain",
    "WantedRange",
    "ObjectMeta",
    "ALL",
    "DIRECTLY_BELOW",
    "NAMES_DIRECTLY_BELOW",
    "Selection",
    "Buffer",
    "Durability",
    "WritableBuffer",
    "Capabilities",
    "StoreProfile",
    "LOCAL",
    "MEMORY",
    "CLOUD",
    "SLOW_CLIENT",
    "S3_EXPRESS",
    "PROFILE_OPTIONS",
    "StoreStats",
    "StatsSnapshot",
    # failures
    "StoreFailure",
    "Transient",
    "Throttled",
    "Unsent",
    "OutcomeUnknown",
    "RangeIgnored",
    "LongBody",
    "PreconditionFailed",
    "ConflictRetry",
    "ShortRead",
    "InvalidRange",
]
