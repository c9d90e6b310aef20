"""The store of the local disk.

A read is one kernel call per list of ranges, without the GIL: in the caller's thread for synchronous calls, in a small
thread pool for asynchronous ones (one job per list, because a thread switch costs as much as ten reads).
Keys are absolute paths with `/`.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import suppress
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import numpy as np

from lance_io._kernels import read_files, read_joined, read_once, read_ranges
from lance_io.errors import LanceError, NotFound, UnsupportedError
from lance_io.runtime import cpu_count, in_cpu_pool
from lance_io.runtime.pool import LastingPool
from lance_io.spans import Fetched, Ranges, int64s, join_fetched
from lance_io.store.api import ALL, Buffer, Capabilities, Durability, ObjectMeta, Selection, WritableBuffer
from lance_io.store.bounds import check_ranges, joined_bytes_max
from lance_io.store.counters import StoreStats
from lance_io.store.failures import ShortRead
from lance_io.store.forking import survive_fork
from lance_io.store.local.atomic_writes import (
    AsyncLocalUpload,
    LocalPartWriter,
    LocalUpload,
    NewFile,
    sync_folder,
    write_over,
)
from lance_io.store.local.batch_writes import write_batch
from lance_io.store.local.open_files import OpenFile, OpenFiles
from lance_io.store.local.system_calls import (
    TEMPORARY_PREFIX,
    describe,
    error_of,
    list_files,
    not_a_folder,
    raise_write_error,
)
from lance_io.store.local.unlinking import unlink_all
from lance_io.store.profile import LOCAL, StoreProfile

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from lance_io.store.counters import Operation

P = ParamSpec("P")
T = TypeVar("T")

OPEN_FILES_MAX = 256
POOL_THREADS = 8
NAMED_FILES_MIN = 8  # from this number on one call opens and closes them: cheaper than looking each up in the cache
READ_THREADS_MAX = 8
LIST_PAGE = 1000  # entries per job of a listing
_FAILURES: Final = (LanceError, EOFError, OSError, ValueError, MemoryError)  # of reading
_AT_START: Final = np.zeros(1, dtype=np.int64)
_AT_START.flags.writeable = False


class LocalStore:
    """Files of this machine. Safe from any thread and after a fork; its only state is a file cache and a thread pool.

    durability  of writes that do not name their own, and of deletes
    """

    scheme = "file"
    identity = "file://"
    capabilities = Capabilities(
        compare_and_swap=False, described_list=False, reads_whole_folders=True, temporary_prefix=TEMPORARY_PREFIX
    )

    def __init__(
        self, *, profile: StoreProfile = LOCAL, stats: StoreStats | None = None, durability: Durability = "full"
    ) -> None:
        self.profile = profile
        self.stats = stats or StoreStats()
        self.durability: Durability = durability
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """New locks, no pool, no open files (after a fork)."""
        self._files = OpenFiles(OPEN_FILES_MAX)
        self._pool: LastingPool | None = None
        self._pool_lock = threading.Lock()

    def __repr__(self) -> str:
        return "LocalStore()"

    # -- reading without waiting ------------------------------------------------------------------------------------

    def read_sync(
        self, wanted: Sequence[tuple[str, Ranges]], gap_bytes: int, scratch: WritableBuffer | None = None
    ) -> list[Fetched]:
        """Ranges of files: one kernel call, several files on all cores; see `SyncReads`.

        Small files that are read whole are closed at once: most are not read again.
        """
        if len(wanted) == 1:
            key, ranges = wanted[0]
            return [self._read(key, ranges, gap_bytes, None if ranges.keep else scratch)]
        if all(_is_whole(ranges) for _, ranges in wanted):
            return [*self._read_whole(wanted)]
        if any([ranges.keep for _, ranges in wanted]):
            scratch = None
        results = self._read_together(wanted, gap_bytes, scratch)
        if results is None:  # read one by one to name the file that fails
            return [self._read(key, ranges, gap_bytes, None) for key, ranges in wanted]
        for (key, ranges), (_, _, num_reads, num_bytes) in zip(wanted, results, strict=True):
            self.stats.count_reads(key, num_reads, num_bytes, ranges)
        return [
            Fetched(scratch if buffer is None else buffer, int64s(offsets), num_reads, num_bytes)
            for buffer, offsets, num_reads, num_bytes in results
        ]

    def read_joined_sync(
        self,
        keys: Sequence[str],
        ranges: Ranges,
        bounds: Sequence[int],
        gap_bytes: int,
        scratch: WritableBuffer | None = None,
    ) -> Fetched:
        """Ranges of several files: one kernel call on all cores into one buffer; see `SyncReads`."""
        memory_bytes = joined_bytes_max(ranges, len(keys), gap_bytes)
        if scratch is None or len(scratch) < memory_bytes:
            scratch = np.empty(memory_bytes, dtype=np.uint8)
        joined = self._read_joined(keys, ranges, bounds, gap_bytes, scratch)
        if joined is None:  # read one by one to name the file that fails
            parts = [ranges.part(first, end) for first, end in pairwise(bounds)]
            alone = [self._read(key, part, gap_bytes, None) for key, part in zip(keys, parts, strict=True)]
            return join_fetched(alone, parts)
        offsets, num_reads, num_bytes = joined
        self.stats.count_joined(keys, num_reads, num_bytes, ranges, bounds)
        return Fetched(scratch, int64s(offsets), num_reads, num_bytes)

    def get_sync(self, key: str) -> bytes:
        """A whole file, never from the file cache: small files that are rewritten in place are read this way."""
        return self._get(key)[0]

    def suffix_sync(self, keys: Sequence[str], num_bytes: int) -> list[tuple[Buffer, int]]:
        """The ends of files and their sizes."""
        if len(keys) == 1:
            return [self._end(keys[0], num_bytes)]
        threads = 1 if in_cpu_pool() else _read_threads()
        tails = read_once([(os.fsencode(key), -num_bytes, 0) for key in keys], threads)
        read = [(key, end) for key, end in zip(keys, tails, strict=True) if end is not None]
        self.stats.count_many("get", [(key, memoryview(tail).nbytes, -num_bytes, -1) for key, (tail, _) in read])
        # a single read of a file that failed raises its specific error
        return [self._end(key, num_bytes) if end is None else end for key, end in zip(keys, tails, strict=True)]

    def head_sync(self, key: str) -> ObjectMeta:
        """Size, etag and time of a file."""
        try:
            status = os.stat(key)
            if stat.S_ISDIR(status.st_mode):
                raise NotFound("this is a folder, not a file", path=key)
            meta = describe(key, status)
        except (OSError, ValueError) as error:
            self.stats.error("head")
            raise_write_error(key, error)
        self.stats.count("head", key, 0)
        return meta

    def list_sync(self, prefix: str, asked: Selection = ALL) -> list[ObjectMeta]:
        """Files below a prefix in key order; empty for a missing folder."""
        entries = list(list_files(prefix, asked))
        self.stats.count("list", prefix, 0)
        return entries

    # -- writing without waiting ------------------------------------------------------------------------------------

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
        """`put` without a loop."""
        if if_match is not None:
            raise UnsupportedError("a local file cannot be replaced under a condition", path=key)
        operation: Operation = "put_create" if if_absent else "put"
        self.stats.begin(operation, key)
        written = None
        try:
            is_flushed = (durability or self.durability) == "full"
            if in_place and not (if_absent or is_flushed) and (meta := write_over(key, data)) is not None:
                written = memoryview(data).nbytes
                return meta
            if if_absent and os.path.lexists(key):  # checked before writing anything
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), key)
            file = self._new_file(key, durability)
            try:
                num_bytes = file.write([data], 0)
                meta = file.publish(if_absent=if_absent)
            finally:
                file.discard()
            written = num_bytes
            return meta
        except (OSError, ValueError) as error:
            raise_write_error(key, error)
        finally:
            self._files.drop(key)
            self.stats.end(operation, written or 0, failed=written is None)

    def put_many_sync(self, contents: Mapping[str, Buffer], *, durability: Durability | None = None) -> None:
        """Write several files, flushed together; see `PutsMany`."""
        key, unnamed = "", 0

        def begin(key: str) -> NewFile:
            nonlocal unnamed
            self.stats.begin("put", key)
            unnamed += 1
            return self._new_file(key, durability)

        def end(key: str, num_bytes: int) -> None:
            nonlocal unnamed
            self._files.drop(key)
            self.stats.end("put", num_bytes)
            unnamed -= 1

        try:
            for key in write_batch(contents, begin, end):  # noqa: B007  # the key in progress, for the error
                pass
        except (OSError, ValueError) as error:
            raise_write_error(key, error)
        finally:
            if unnamed:
                self.stats.end("put", failed=True, num_requests=unnamed)

    def open_upload_sync(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> LocalUpload:
        """Start writing a file of any size; see `SyncWrites`."""
        return LocalUpload(self, key, self._new_file(key, durability), if_absent=if_absent)

    def delete_sync(self, keys: Iterable[str]) -> None:
        """Delete files; missing ones count as deleted, folders stay."""
        keys = tuple(keys)
        self._files.drop(*keys)
        unlinked = unlink_all(keys)
        self.stats.count_many("delete", [(key, 0, 0, -1) for key in unlinked.done])
        if unlinked.failed is not None:
            key, failure = unlinked.failed
            self.stats.error("delete")
            raise error_of(key, failure) from failure
        if self.durability == "full":  # the caller may next delete files that these refer to
            for folder in unlinked.folders:
                try:
                    sync_folder(folder)
                except FileNotFoundError:
                    pass  # another process removed the folder
                except OSError as error:
                    raise error_of(folder, error) from error

    def own_files_sync(self, folder: str) -> Sequence[str]:
        """Keys of all files in a folder and below it, and of links in it; see `HoldsFolders`."""

        def on_error(error: OSError) -> None:
            if isinstance(error, NotADirectoryError):
                raise not_a_folder(folder) from error
            if not isinstance(error, FileNotFoundError):
                raise error_of(folder, error) from error

        keys = []
        for path, folders, files in os.walk(folder, onerror=on_error):
            keys += [os.path.join(path, name) for name in files]
            keys += [link for name in folders if os.path.islink(link := os.path.join(path, name))]
        return keys

    def remove_empty_folders_sync(self, folder: str) -> None:
        """Remove a folder and its subfolders if they are empty; see `HoldsFolders`."""
        for path, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):  # in use, a link, or without permission: it stays
                os.rmdir(path)

    def publish(self, key: str, file: NewFile, num_bytes: int, *, if_absent: bool) -> ObjectMeta:
        """Give a finished file its name; removes the temporary file in any case. Raises our errors."""
        operation: Operation = "put_create" if if_absent else "put"
        self.stats.begin(operation, key)
        meta = None
        try:
            meta = file.publish(if_absent=if_absent)
            return meta
        except (OSError, ValueError) as error:
            raise_write_error(key, error)
        finally:
            file.discard()
            self._files.drop(key)
            self.stats.end(operation, num_bytes if meta else 0, failed=meta is None)

    def _new_file(self, key: str, durability: Durability | None) -> NewFile:
        try:
            return NewFile(key, durability or self.durability)
        except NotADirectoryError as error:
            raise not_a_folder(key) from error
        except (OSError, ValueError) as error:
            raise_write_error(key, error)

    # -- the protocol -----------------------------------------------------------------------------------------------

    async def get_range(self, key: str, start: int, end: int) -> Buffer:
        """Bytes `start` to `end` of a file."""
        fetched = await self.read_ranges(key, Ranges.of((start, end)), 0, 0)
        return fetched.piece(0, end - start)

    async def read_ranges(self, key: str, ranges: Ranges, gap_bytes: int, read_bytes_max: int) -> Fetched:
        """All ranges of one file in one job; see `PlanReads`."""
        return await self.job(self._read, key, ranges, gap_bytes, None)

    async def get_suffix(self, key: str, num_bytes: int) -> tuple[Buffer, int, str | None]:
        """The end of a file, its size, its etag."""
        tail, meta = await self.job(self._suffix, key, num_bytes)
        return tail, meta.size_bytes, meta.etag

    async def get(self, key: str) -> tuple[Buffer, ObjectMeta]:
        """A whole file."""
        return await self.job(self._get, key)

    async def head(self, key: str) -> ObjectMeta:
        """Size, etag and time of a file."""
        return await self.job(self.head_sync, key)

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
        """Write a whole file; `if_match` is not offered by file systems (`UnsupportedError`)."""
        return await self.job(
            lambda: self.put_sync(
                key, data, if_absent=if_absent, if_match=if_match, durability=durability, in_place=in_place
            )
        )

    async def put_many(self, contents: Mapping[str, Buffer], *, durability: Durability | None = None) -> None:
        """Write several files, flushed together, in one job."""
        await self.job(self.put_many_sync, contents, durability=durability)

    async def put_multipart(
        self, key: str, *, if_absent: bool = False, durability: Durability | None = None
    ) -> LocalPartWriter:
        """Start a file that is written in parts and named at the end."""
        file = await self._begin(lambda: self._new_file(key, durability), NewFile.discard)
        return LocalPartWriter(self, key, file, if_absent=if_absent)

    async def open_upload(
        self,
        key: str,
        *,
        if_absent: bool = False,
        durability: Durability | None = None,
        content_length_hint: int | None = None,
    ) -> AsyncLocalUpload:
        """Start writing a file of any size."""
        upload = await self._begin(
            lambda: self.open_upload_sync(key, if_absent=if_absent, durability=durability), LocalUpload.abort
        )
        return AsyncLocalUpload(self, upload)

    async def copy(self, source: str, key: str) -> None:
        """Write a file with the content of another, with the store's durability."""
        await self.job(lambda: self.put_sync(key, self._slice_fresh(source, None)[0]))

    async def list(self, prefix: str, asked: Selection = ALL) -> AsyncIterator[ObjectMeta]:
        """Files below a prefix in key order; empty for a missing folder."""
        entries = list_files(prefix, asked)
        self.stats.count("list", prefix, 0)
        while page := await self.job(lambda: [*islice(entries, LIST_PAGE)]):
            for meta in page:
                yield meta

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete files; missing ones count as deleted, folders stay."""
        await self.job(self.delete_sync, tuple(keys))

    async def own_files(self, folder: str) -> Sequence[str]:
        """See `own_files_sync`."""
        return await self.job(self.own_files_sync, folder)

    async def remove_empty_folders(self, folder: str) -> None:
        """See `remove_empty_folders_sync`."""
        await self.job(self.remove_empty_folders_sync, folder)

    async def aclose(self) -> None:
        """Close the files and end the pool's threads; both are recreated on the next use."""
        self._files.clear()
        with self._pool_lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _read(self, key: str, ranges: Ranges, gap_bytes: int, scratch: WritableBuffer | None) -> Fetched:
        try:
            file = self._files.get(key)
        except LanceError:
            self.stats.error("get")
            raise
        try:
            buffer, offsets, num_reads, num_bytes = read_ranges(
                file.fd, ranges.starts, ranges.ends, gap_bytes, _read_threads(), scratch
            )
        except (EOFError, OSError, ValueError, MemoryError) as error:
            self.stats.error("get")
            self._raise_read_error(key, ranges, file, error)
            raise
        self.stats.count_reads(key, num_reads, num_bytes, ranges)
        return Fetched(scratch if buffer is None else buffer, int64s(offsets), num_reads, num_bytes)

    def _read_whole(self, wanted: Sequence[tuple[str, Ranges]]) -> Sequence[Fetched]:
        sizes = [int(ranges.ends[0]) for _, ranges in wanted]
        locations = [(os.fsencode(key), 0, size) for (key, _), size in zip(wanted, sizes, strict=True)]
        results = read_once(locations, _read_threads())
        self.stats.count_many(
            "get",
            [
                (key, size, 0, size)
                for (key, _), size, result in zip(wanted, sizes, results, strict=True)
                if result is not None
            ],
        )
        # a single read of a file that failed raises its specific error
        return [
            self._read(key, ranges, 0, None) if result is None else Fetched(result[0], _AT_START, 1, size)
            for (key, ranges), size, result in zip(wanted, sizes, results, strict=True)
        ]

    def _read_together(
        self, wanted: Sequence[tuple[str, Ranges]], gap_bytes: int, scratch: WritableBuffer | None
    ) -> Sequence[tuple[Buffer | None, Buffer, int, int]] | None:
        """The kernel's results; None if it failed, and then no file is held any more."""
        try:
            files = self._files_or_names([key for key, _ in wanted])  # held until they have been read
            locations = [
                (file if isinstance(file, str) else file.fd, ranges.starts, ranges.ends)
                for file, (_, ranges) in zip(files, wanted, strict=True)
            ]
            return read_files(locations, gap_bytes, _read_threads(), scratch)
        except _FAILURES:
            return None

    def _read_joined(
        self, keys: Sequence[str], ranges: Ranges, bounds: Sequence[int], gap_bytes: int, memory: WritableBuffer
    ) -> tuple[Buffer, int, int] | None:
        """The same into one buffer: offset of each range there, reads and their bytes."""
        try:
            files = self._files_or_names(keys)  # held until they have been read
            names = [file if isinstance(file, str) else file.fd for file in files]
            return read_joined(names, ranges.starts, ranges.ends, list(bounds), gap_bytes, _read_threads(), memory)
        except _FAILURES:
            return None

    def _files_or_names(self, keys: Sequence[str]) -> Sequence[OpenFile | str]:
        """Open files; for many files their names."""
        if len(keys) >= NAMED_FILES_MIN:
            return keys
        return [self._files.get(key, may_wait=not at) for at, key in enumerate(keys)]

    def _raise_read_error(self, key: str, ranges: Ranges, file: OpenFile, error: Exception) -> None:
        """Raise our error for a failed read; returns if the cause is not the file."""
        if isinstance(error, OSError):
            raise error_of(key, error) from error
        check_ranges(key, ranges.starts, ranges.ends, os.fstat(file.fd).st_size)
        if isinstance(error, EOFError):
            raise ShortRead("the file became shorter while it was read", path=key) from error

    def _get(self, key: str) -> tuple[bytes, ObjectMeta]:
        data, meta = self._slice_fresh(key, None)
        self.stats.count("get", key, len(data))
        return data, meta

    def _suffix(self, key: str, num_bytes: int) -> tuple[bytes, ObjectMeta]:
        tail, meta = self._slice_fresh(key, num_bytes)
        self.stats.count("get", key, len(tail), start=-num_bytes)
        return tail, meta

    def _end(self, key: str, num_bytes: int) -> tuple[Buffer, int]:
        tail, meta = self._suffix(key, num_bytes)
        return tail, meta.size_bytes

    def _slice_fresh(self, key: str, num_bytes: int | None) -> tuple[bytes, ObjectMeta]:
        """The last `num_bytes` (None: all) of a file as it is now."""
        try:
            file = OpenFile(key)
            meta = describe(key, os.fstat(file.fd))
            start = 0 if num_bytes is None else max(0, meta.size_bytes - num_bytes)
            return _pread(key, file.fd, start, meta.size_bytes), meta
        except (OSError, ValueError) as error:
            self.stats.error("get")
            raise_write_error(key, error)

    async def job(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something in one of the store's threads."""
        import asyncio

        with self._pool_lock:
            if self._pool is None:
                self._pool = LastingPool(POOL_THREADS, "lance-io-local")
            pool = self._pool
            loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
            future = loop.run_in_executor(pool, partial(work, *args, **kwargs))
        return await future

    async def _begin(self, begin: Callable[[], T], undo: Callable[[T], None]) -> T:
        """The result of a job; undone if the caller is cancelled meanwhile, as a thread cannot be cancelled."""
        import asyncio

        def undone(begun: asyncio.Future[T]) -> None:
            if not begun.cancelled() and begun.exception() is None:
                undo(begun.result())

        begun = asyncio.ensure_future(self.job(begin))
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(undone)
            await asyncio.wait({begun})
            raise


def _is_whole(ranges: Ranges) -> bool:
    """Whether this is a read of a whole file, which opens it."""
    return ranges.purpose == "metadata" and len(ranges) == 1 and ranges.starts[0] == 0 < ranges.ends[0]


def _read_threads() -> int:
    """Threads for one call: at most the available processors, so that a Spark task uses only its own."""
    return min(READ_THREADS_MAX, cpu_count())


def _pread(key: str, fd: int, start: int, end: int) -> bytes:
    data = os.pread(fd, end - start, start)
    if len(data) == end - start:
        return data
    pieces = [data]  # one call returns at most 2 GiB
    while (at := start + sum(map(len, pieces))) < end:
        if not (piece := os.pread(fd, end - at, at)):
            raise ShortRead("the file became shorter while it was read", path=key)
        pieces.append(piece)
    return b"".join(pieces)
