"""Copies objects: within a remote store server-side, else portion by portion."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from lance_io.plans.plan import Invoke, RollBackOnError, Together, ask
from lance_io.plans.store_requests import Head
from lance_io.records import dataclass
from lance_io.spans import Ranges
from lance_io.store.offers import offers_sync_reads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.plans.plan import Plan
    from lance_io.store.api import Buffer, ObjectMeta, ObjectStore, SyncUpload, Upload
    from lance_io.store.offers import SyncReads, SyncWrites

COPIES_AT_ONCE: Final = 8
_PORTION_BYTES: Final = 16 << 20  # held in memory for each object that is being copied
_STORE_COPY_BYTES_MAX: Final = 5 << 30  # S3 copies larger objects in parts only


@dataclass(frozen=True, slots=True)
class ObjectCopy:
    """An object to copy.

    size_bytes  None if unknown
    """

    source: ObjectStore
    source_key: str
    store: ObjectStore
    key: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _ReadPortion:
    """A range of an object."""

    store: ObjectStore
    key: str
    start: int
    end: int

    def answer_sync(self) -> Buffer:
        """See `Request`."""
        wanted = [(self.key, Ranges.of((self.start, self.end), keep=True))]
        (fetched,) = cast("SyncReads", self.store).read_sync(wanted, 0)
        offset = int(fetched.offsets[0])
        return memoryview(fetched.buffer)[offset : offset + self.end - self.start]

    async def answer_async(self) -> Buffer:
        """See `Request`."""
        return await self.store.get_range(self.key, self.start, self.end)


@dataclass(frozen=True, slots=True)
class _OpenUpload:
    """Open an upload that writes an object from start to end."""

    store: ObjectStore
    key: str
    size_bytes: int

    def answer_sync(self) -> SyncUpload:
        """See `Request`."""
        return cast("SyncWrites", self.store).open_upload_sync(self.key)

    async def answer_async(self) -> Upload:
        """See `Request`."""
        return await self.store.open_upload(self.key, content_length_hint=self.size_bytes)


def copy_objects(copies: Iterable[ObjectCopy]) -> Plan[int]:
    """Copy objects, `COPIES_AT_ONCE` concurrently; returns their bytes. Raises `NotFound` if one does not exist."""
    num_bytes, rest = 0, iter(copies)
    while batch := [*islice(rest, COPIES_AT_ONCE)]:
        num_bytes += sum((yield Together([_copy_object(copy) for copy in batch])))
    return num_bytes


def _copy_object(copy: ObjectCopy) -> Plan[int]:
    size_bytes = copy.size_bytes
    if size_bytes is None:
        meta: ObjectMeta = yield Head(copy.source, copy.source_key)
        size_bytes = meta.size_bytes
    is_one_store = copy.source.identity == copy.store.identity
    if is_one_store and not offers_sync_reads(copy.store) and size_bytes <= _STORE_COPY_BYTES_MAX:
        yield Invoke(copy.store.copy, (copy.source_key, copy.key))
        return size_bytes
    upload: Any = yield _OpenUpload(copy.store, copy.key, size_bytes)
    yield RollBackOnError(_copy_portions(copy, upload, size_bytes), lambda _: ask(Invoke(upload.abort)))
    return size_bytes


def _copy_portions(copy: ObjectCopy, upload: Any, size_bytes: int) -> Plan[None]:
    for start in range(0, size_bytes, _PORTION_BYTES):
        portion = yield _ReadPortion(copy.source, copy.source_key, start, min(start + _PORTION_BYTES, size_bytes))
        yield Invoke(upload.write, ([portion],))
    yield Invoke(upload.close)
