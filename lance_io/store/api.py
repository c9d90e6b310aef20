"""What a store promises: the protocol that memory, local disk and S3 implement, and the values it speaks in.

Keys are text. In a bucket they are object keys without a leading slash; on local disk absolute paths with `/`; in
memory any text. A prefix is compared as text, so a folder's prefix ends in `/`.

Failures are those of `lance_io.errors`: `NotFound`, `AccessDenied`, `AlreadyExists` (a create that came second),
and `StoreError` with the subclasses of `lance_io.store.failures`. `profile.py` has the numbers by which reads are
planned, `offers.py` the protocols that a store may offer beyond these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from datetime import datetime

    from lance_io.store.counters import StoreStats
    from lance_io.store.profile import StoreProfile

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
