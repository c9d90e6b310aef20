"""The adapter: an `ObjectStore` over the calls of any filesystem.

Files of up to 16 MiB are written in one call. Larger ones are collected in a temporary file of this machine, and
uploaded from there in one call, in bounded memory, because few filesystems support parts in any order.
If a filesystem shows half-written files, they get a temporary name first.

Requests are not retried here: these libraries do it themselves. A conditional write is sent once by us, and the caller
reads back the outcome, as everywhere (`commit/put_absent.py`).
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound, StoreError, UnsupportedError, UsageError
from lance_io.limits import MIB
from lance_io.redaction import hide_secrets
from lance_io.runtime import to_the_end
from lance_io.store.api import ALL, Capabilities, ObjectMeta
from lance_io.store.bounds import check_range
from lance_io.store.counters import StoreStats
from lance_io.store.failures import (
    HTTP_FULL,
    NO_ROOM,
    LongBody,
    OutcomeUnknown,
    StoreFailure,
    StoreFull,
    Throttled,
    Transient,
)
from lance_io.store.filesystem.filesystem_calls import cause_of, in_thread, status_of
from lance_io.store.forking import survive_fork
from lance_io.store.upload import PartUpload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from lance_io.store.api import Buffer, Durability, Selection
    from lance_io.store.counters import Operation
    from lance_io.store.filesystem.filesystem_calls import FilesystemCalls
    from lance_io.store.profile import StoreProfile

T = TypeVar("T")
TEMPORARY_PREFIX: Final = ".lance-io-"
CANNOT_CREATE: Final = (
    "cannot promise that only one of two writers creates a file, so they could overwrite each other's versions; pass a "
    "commit_lock that all writers of the table take"
)
_REFUSALS: Final = frozenset({"PermissionError", "PermissionDeniedError", "UnauthenticatedError"})
_COPY_BYTES: Final = 4 * MIB


class FilesystemStore:
    """Files of a filesystem. Usable from any event loop; `repr` and errors show no credentials.

    calls    of the filesystem
    profile  for the planning of reads; at most `requests_max` calls are in flight on a loop
    """

    def __init__(self, calls: FilesystemCalls, *, profile: StoreProfile, stats: StoreStats | None = None) -> None:
        self.calls = calls
        self.profile = profile
        self.stats = stats or StoreStats()
        self.scheme = calls.scheme
        self.identity = calls.identity
        traits = calls.traits
        self.capabilities = Capabilities(
            conditional_create=traits.creates,
            create_unproven=traits.unproven,
            compare_and_swap=False,
            suffix_range=traits.suffix,
            temporary_prefix=TEMPORARY_PREFIX if traits.renames else None,
            create_refusal=CANNOT_CREATE,
        )
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        survive_fork(self)

    def start_over(self) -> None:
        """Drop loops and connections (after a fork): they are the parent's."""
        self._gates = WeakKeyDictionary()
        self.calls.start_over()

    def __repr__(self) -> str:
        return f"FilesystemStore({self.identity!r})"

    @property
    def origin(self) -> tuple[str, StoreProfile]:
        """Identifies its source: stores with the same are interchangeable."""
        return self.identity, self.profile

    def key_of(self, uri: str) -> str:
        """The key of a URI or path of the filesystem. Raises `UsageError` for those of other filesystems."""
        return self.calls.key_of(uri)

    # -- reading ----------------------------------------------------------------------------------------------------

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """Exactly these bytes, in one request; after a failure another request finds the cause."""
        if start < 0 or end <= start:
            check_range(key, start, end, 0)
            return b""
        read = partial(self.calls.read, key, start, end)
        try:
            data = await self._call("get", key, read, start=start, end=end, size=len)
        except StoreFailure:  # some raise an error of their own for a range after the end
            with suppress(StoreFailure):
                check_range(key, start, end, (await self.head(key)).size_bytes)
            raise
        if len(data) == end - start:
            return memoryview(data).toreadonly()
        if len(data) > end - start:
            raise LongBody(f"asked for {end - start} bytes, found {len(data)}", path=key, operation="get")
        check_range(key, start, end, (await self.head(key)).size_bytes)
        raise Transient(f"asked for {end - start} bytes, found {len(data)}", path=key, operation="get")

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The end of an object: one request, or two with one for its size."""
        wanted = max(1, num_bytes)
        if self.calls.traits.suffix:
            read = partial(self.calls.read_suffix, key, wanted)
            tail, meta = await self._call("get", key, read, start=-wanted, size=lambda answer: len(answer[0]))
        else:
            meta = await self.head(key)
            tail = await self.get_range(key, max(0, meta.size_bytes - wanted), meta.size_bytes)
        return memoryview(tail).toreadonly() if num_bytes > 0 else b"", meta.size_bytes, meta.etag

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole object."""
        data, meta = await self._call("get", key, partial(self.calls.read_all, key), size=lambda answer: len(answer[0]))
        return memoryview(data).toreadonly(), meta

    async def head(self, key: str) -> ObjectMeta:
        """Size and etag of an object."""
        return await self._call("head", key, partial(self.calls.describe, key))

    async def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Objects below a prefix in key order; lists the folder in one call, and sorts it here."""
        folder = prefix[: prefix.rfind("/") + 1]
        if asked.delimiter not in (None, "/"):
            raise UsageError(f"a filesystem is listed by the delimiter '/', not {asked.delimiter!r}")
        look = partial(self.calls.entries, folder, deep=asked.delimiter is None)
        try:
            entries = await self._call("list", prefix, look)
        except NotFound:
            return
        hidden = self.capabilities.temporary_prefix
        if hidden is not None and prefix[len(folder) :].startswith(hidden):
            hidden = None
        kept = {
            meta.key: meta
            for meta in entries
            if meta.key.startswith(prefix)
            and (asked.start_after is None or meta.key.encode() > asked.start_after.encode())
            and not (hidden is not None and meta.name.startswith(hidden))
        }
        for key in sorted(kept, key=str.encode)[: asked.limit]:
            yield kept[key]

    # -- writing ----------------------------------------------------------------------------------------------------

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
        """Write an object atomically. A conditional write is sent once, see `ObjectStore.put`."""
        if if_match is not None:
            raise UnsupportedError(f"{self.identity} does not support writes under the condition of an etag", path=key)
        body = data if isinstance(data, bytes) else bytes(data)
        operation: Operation = "put_create" if if_absent else "put"
        write = partial(self._write, key, if_absent, partial(self.calls.write, data=body))
        etag = await self._call(operation, key, write, num_bytes=len(body), decides=if_absent)
        return ObjectMeta(key, len(body), etag)

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> SpooledParts:
        """Collect parts on this machine and write them in one call at the end."""
        return SpooledParts(self, key, if_absent=if_absent)

    async def open_upload(
        self,
        key: str,
        *,
        if_absent: bool = False,
        durability: Durability | None = None,
        content_length_hint: int | None = None,
    ) -> PartUpload:
        """Start writing an object of any size."""
        return PartUpload(self, key, if_absent=if_absent, content_length_hint=content_length_hint)

    async def put_file(self, key: str, local_path: str, num_bytes: int, *, if_absent: bool) -> ObjectMeta:
        """Write an object with the content of a file on this machine."""
        operation: Operation = "put_create" if if_absent else "put"
        write = partial(self._write, key, if_absent, partial(self.calls.write_file, local_path=local_path))
        await self._call(operation, key, write, num_bytes=num_bytes, decides=if_absent)
        return ObjectMeta(key, num_bytes)

    async def copy(self, source: str, key: str) -> None:
        """Write an object with the content of another."""

        async def write(target: str, *, create: bool) -> None:
            await self.calls.copy(source, target)

        await self._call("put", source, partial(self._write, key, False, write))

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects concurrently; a missing object counts as deleted."""
        waiting = iter(list(keys))

        async def work() -> None:
            for key in waiting:
                with suppress(NotFound):
                    await self._call("delete", key, partial(self.calls.remove, key))

        workers = [asyncio.ensure_future(work()) for _ in range(min(self.profile.requests_start, 16))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def aclose(self) -> None:
        """Close what this loop opened."""
        await self.calls.aclose()

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _write(self, key: str, create: bool, write: Callable[..., Awaitable[T]]) -> T | None:
        """Call `write` for the file, under a temporary name if readers would see it half done."""
        if create and not self.calls.traits.creates:
            raise UnsupportedError(f"{self.identity} {CANNOT_CREATE}", path=key)
        if not self.calls.traits.renames:
            return await self._in_folder(key, partial(write, key, create=create))
        temporary = f"{key[: key.rfind('/') + 1]}{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        try:
            await self._in_folder(key, partial(write, temporary, create=False))
            await (self.calls.rename_absent if create else self.calls.rename)(temporary, key)
        except BaseException:
            with suppress(Exception):  # it may not exist
                await to_the_end(self.calls.remove(temporary))
            raise
        return None

    async def _in_folder(self, key: str, write: Callable[[], Awaitable[T]]) -> T:
        if not self.calls.traits.has_folders:
            return await write()
        try:
            return await write()
        except FileNotFoundError:  # rare: the folder is missing
            folder = key.rpartition("/")[0]
            if not folder:
                raise
            await self.calls.make_folder(folder)
            return await write()

    async def _call(
        self,
        operation: Operation,
        key: str,
        request: Callable[[], Awaitable[T]],
        *,
        start: int = 0,
        end: int = -1,
        size: Callable[[T], int] | None = None,
        num_bytes: int = 0,
        decides: bool = False,
    ) -> T:
        """Make a request within the limit, count it, and translate its errors."""
        loop = asyncio.get_running_loop()
        gate = self._gates.get(loop)
        if gate is None:
            gate = self._gates[loop] = asyncio.Semaphore(self.profile.requests_max)
        async with gate:
            self.stats.begin(operation, key, start, end)
            try:
                result = await request()
            except LanceError:
                self.stats.end(operation, failed=True)
                raise
            except Exception as error:
                self.stats.end(operation, failed=True)
                raise self._failure(error, operation, key, decides=decides) from None  # its text may hold credentials
            except BaseException:
                self.stats.end(operation, failed=True)
                raise
            self.stats.end(operation, num_bytes if size is None else size(result))
            return result

    def _failure(self, error: Exception, operation: Operation, key: str, *, decides: bool) -> LanceError:
        """Our error for an error of the filesystem."""
        error = cause_of(error)
        names = {kind.__name__ for kind in type(error).__mro__}
        status = status_of(error)
        cause = f"{type(error).__name__}: {hide_secrets(str(error), self.calls.secrets)}".removesuffix(": ")
        text = f"{cause} ({self.identity})"
        if names & {"FileNotFoundError", "NotFoundError", "IsADirectoryError"} or status == 404:
            return NotFound(f"there is no such object ({self.identity})", path=key)
        if names & {"FileExistsError", "AlreadyExistsError"} or (decides and status == 412):
            return AlreadyExists(f"an object of this key is there already ({self.identity})", path=key)
        if names & _REFUSALS or status in (401, 403) or "ACCESS_DENIED" in cause:
            return AccessDenied(f"access was refused: {text}", path=key)
        if isinstance(error, ModuleNotFoundError):
            return UnsupportedError(f"a package is missing: {text}", path=key)
        if isinstance(error, NotImplementedError) or "NotSupportedError" in names:
            return UnsupportedError(f"this filesystem cannot do this ({operation}): {text}", path=key)
        known: dict[str, Any] = {"path": key, "operation": operation, "status": status}
        if decides:
            return OutcomeUnknown(f"no certain answer: {text}", **known)
        if getattr(error, "errno", None) in NO_ROOM or status == HTTP_FULL:
            return StoreFull(f"there is no room: {text}", **known)
        if isinstance(error, (TypeError, ValueError, AttributeError, KeyError)):
            return StoreFailure(text, **known)
        return Throttled(text, **known) if status in (429, 503) else Transient(text, **known)


class SpooledParts:
    """Parts of an object in a temporary file; see `PartWriter`."""

    def __init__(self, store: FilesystemStore, key: str, *, if_absent: bool) -> None:
        self._store = store
        self._key = key
        self._if_absent = if_absent
        self._file: Any = tempfile.NamedTemporaryFile(prefix="lance-io-")  # closed by complete or abort
        self._num_bytes = 0

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """Keep a part; not counted as a request."""
        view = memoryview(data).cast("B")
        await to_the_end(in_thread(_write_at, self._file.fileno(), view, offset_bytes))
        self._num_bytes = max(self._num_bytes, offset_bytes + len(view))

    async def complete(self) -> ObjectMeta:
        """Write the object."""
        if self._file is None:
            raise StoreError("this upload is over", path=self._key)
        try:
            return await self._store.put_file(self._key, self._file.name, self._num_bytes, if_absent=self._if_absent)
        finally:
            self._close()

    async def abort(self) -> None:
        """Drop the parts."""
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _write_at(descriptor: int, data: memoryview, offset_bytes: int) -> None:
    while len(data):
        written = os.pwrite(descriptor, data[:_COPY_BYTES], offset_bytes)
        data, offset_bytes = data[written:], offset_bytes + written
