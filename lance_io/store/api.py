"""The interface of a store: the protocol that memory, local disk and cloud stores implement, and its data types.

Keys are text. In a bucket they are object keys without a leading slash; on local disk absolute paths with `/`; in
memory any text. A prefix is compared as text, so a folder's prefix ends in `/`.

Errors are those of `lance_io.errors`: `NotFound`, `AccessDenied`, `AlreadyExists` (a create that lost the race),
and `StoreError` with the subclasses of `lance_io.store.failures`. `profile.py` has the numbers that the planning of
reads uses, `offers.py` the protocols that a store may offer beyond these.
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

full  contents, name and new folders are flushed to the disk before the call returns, contents before the name
      appears: written data survives a power loss, and a name never refers to half a file
none  nothing is flushed: safe if a process ends at any point, not if the machine does

Cloud stores are durable once they answer; memory never is. Both ignore it.
"""


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """A store's description of an object.

    key            the key, as the store takes it
    size_bytes     its length; 0 for a folder
    etag           opaque version of the content, or None if the store has none
    last_modified  time of the write, with time zone, or None
    """

    key: str
    size_bytes: int
    etag: str | None = None
    last_modified: datetime | None = None

    @property
    def is_folder(self) -> bool:
        """True for an entry that stands for everything below a `/` in a listing with a delimiter."""
        return self.key.endswith("/")

    @property
    def name(self) -> str:
        """The part of the key behind the last `/` (of a folder: its name without the `/`)."""
        return self.key.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries below a prefix are listed.

    start_after  only keys after this one
    limit        this many at most
    delimiter    "/": only entries directly below the prefix, a folder as one entry whose key ends in `/`
    keys_only    only keys matter: other attributes are omitted if they need a request or call for each entry
                 (`Capabilities.described_list`), and dangling links may be listed
    plain_names  only names of printable characters matter: others may be garbled, if that makes the answer shorter
    also_behind  if the limit cuts the listing, also the first entry after this key: only from stores that have read
                 all names by then (`Capabilities.reads_whole_folders`); others omit it
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
    """Features of a store beyond plain reads and writes.

    conditional_create    `put(if_absent=True)` lets exactly one of many writers win
    create_unproven       some services behind this protocol break that promise: probe first (`store/probe.py`)
    compare_and_swap      `put(if_match=etag)` is honoured
    suffix_range          `get_suffix` is one request (else two, except for objects that are not longer)
    ordered_list          listings come in ascending order of the key's UTF-8 bytes
    described_list        listings include size and etag of every entry at no extra cost, even with `keys_only`
    reads_whole_folders   a limit does not make a listing cheaper, so `Selection.also_behind` is honoured
    equal_parts_required  all parts of a multipart upload except the last must have the same size
    temporary_prefix      name prefix of temporary files beside the final objects. Listings omit them unless the
                          prefix asks for such names: their writer may be gone
    create_refusal        error message for stores without create-if-absent
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
    """A multipart upload in progress. Nothing is visible before `complete`. `Upload` is the convenient interface."""

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """Send a part; several may be in flight at once, in any order.

        number        from 0, without gaps
        offset_bytes  offset of the part in the object: the bytes of all parts before it
        """

    async def complete(self) -> ObjectMeta:
        """Make the object visible; `AlreadyExists` if it was to be created and there is one already."""

    async def abort(self) -> None:
        """Abandon the upload and its parts; a no-op after `complete` or `abort`."""


class Upload(Protocol):
    """An object written from beginning to end in bounded memory; `close` makes it visible, whole.

    Any error, and cancellation, removes the parts. A context manager: leaving the block before `close` aborts.
    """

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""

    async def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers; they may be reused once this returns. Waits while too many bytes are in flight.

        Raises the error of any earlier part that failed.
        """

    async def close(self) -> ObjectMeta:
        """Make the object visible; returns the same answer when called again. Errors as `ObjectStore.put`."""

    async def abort(self) -> None:
        """Remove the parts; a no-op after `close` or `abort`."""

    async def __aenter__(self) -> Self:
        """Return the upload."""

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
        """Make the object visible; returns the same answer when called again."""

    def abort(self) -> None:
        """Remove the written bytes; a no-op after `close` or `abort`."""

    def __enter__(self) -> Self:
        """Return the upload."""

    def __exit__(self, *_: object) -> None:
        """Abort unless closed."""


class ObjectReads(Protocol):
    """The part of a store that planned reads need."""

    @property
    def identity(self) -> str:
        """Identity of this store, without credentials: bucket and endpoint. Caches and request limits use it as key."""

    @property
    def profile(self) -> StoreProfile:
        """The numbers that the planning of reads uses."""

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """Bytes `start` to `end` of an object, exactly `end - start` of them, read-only.

        Raises `NotFound`, `AccessDenied`, `InvalidRange` (the range starts after the end of the object), `ShortRead`
        (the object ends inside the range), `StoreError`.
        """

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The last `num_bytes` of an object (all of a shorter one), its size in bytes, its etag."""

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object."""


class ObjectStore(ObjectReads, Protocol):
    """Bytes at keys, asynchronously. Usable from any event loop; everything bound to a loop exists once per loop."""

    @property
    def scheme(self) -> str:
        """URI scheme, such as `s3`."""

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities."""

    @property
    def stats(self) -> StoreStats:
        """Counters of all requests."""

    async def head(self, key: str) -> ObjectMeta:
        """Size and etag of an object; `NotFound` if there is none."""

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
        if_match    only if the object has this etag, else `PreconditionFailed`
        durability  None: that of the store
        in_place    on the local disk, with durability `none`: overwrite an existing small file, which is cheaper than
                    replacing it. Concurrent readers may see a part of either content

        A conditional write is sent once. After `OutcomeUnknown` it may have been applied. After `ConflictRetry` it was
        not, but another write may have been. Read the object back before you decide anything.
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

        content_length_hint  approximate size in bytes, if known: makes parts larger for objects that would otherwise
                             exceed the store's number of parts
        """

    async def copy(self, source: str, key: str) -> None:
        """Write an object (up to 5 GiB) with the content of another object of this store; replaces an existing one."""

    def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects whose key starts with `prefix`, never from a cache; none if there is no such folder."""

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; a missing object counts as deleted."""

    async def aclose(self) -> None:
        """Close this loop's resources; the store opens them again on its next use."""
