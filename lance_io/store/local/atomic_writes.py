"""Files that appear whole: written under a temporary name, flushed, then renamed.

    open a temporary name in the target's own folder, write, fsync
    rename it if it may replace another file, else link it (`EEXIST` if another writer was first)
    fsync the folder, so that the name survives too

A reader, or a crash, never sees half a file. New folders are flushed in the same way: a file is durable only if every
name in its path is. With durability "none" there are no fsyncs, and a new name is given by a rename that replaces
nothing, if the file system supports that. Only `in_place` writes overwrite a file.
Temporary names start with `TEMPORARY_PREFIX` and are omitted from listings; a cleanup of the table removes those that
remain after a crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from lance_io.errors import UsageError
from lance_io.redaction import get_logger
from lance_io.runtime import to_the_end
from lance_io.store.descriptors import with_descriptors
from lance_io.store.failures import OutcomeUnknown
from lance_io.store.local.system_calls import TEMPORARY_PREFIX, describe, raise_write_error

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from lance_io.store.api import Buffer, Durability, ObjectMeta
    from lance_io.store.local.disk import LocalStore

P = ParamSpec("P")
T = TypeVar("T")

_logger = get_logger(__name__)

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})  # a file system without fsync of folders
_BUFFERS_MAX: Final = 512  # of one system call; the system's limit is 1,024
_KNOWN_FOLDERS_MAX: Final = 4096
_ANCESTORS: Final = (
    2  # flushed above an existing folder: the table's folder in its parent, the files' folder in the table's
)


class Folders:
    """The folders that this process writes into: created if missing, and known to be durable. Any thread.

    Flushing a folder takes a hundred microseconds and more even without changes, so each is flushed once.
    """

    def __init__(self) -> None:
        self._durable: dict[str, tuple[int, int]] = {}  # path: device and inode, which differ if it was recreated

    def open_temporary(self, folder: str, durability: Durability) -> tuple[int, str]:
        """A new file under a temporary name in `folder`: descriptor and path."""
        if durability == "full" and not self._is_durable(folder):
            self._make_durable(folder)
        path = f"{folder}/{TEMPORARY_PREFIX}{os.urandom(16).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return with_descriptors(partial(os.open, path, flags, 0o666)), path
        except FileNotFoundError:  # missing, or removed since
            if durability == "full":
                self._make_durable(folder)
            else:
                os.makedirs(folder, exist_ok=True)
            return with_descriptors(partial(os.open, path, flags, 0o666)), path

    def _is_durable(self, folder: str) -> bool:
        known = self._durable.get(folder)
        try:
            return known is not None and known == _identity(folder)
        except FileNotFoundError:
            return False

    def _make_durable(self, folder: str) -> None:
        """Create the missing folders of a path; flush their names, and those another process may have just created."""
        missing, at = [], folder
        while not os.path.isdir(at):
            missing.append(at)
            at = os.path.dirname(at)
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
        at = folder
        for depth in range(max(_ANCESTORS, len(missing))):
            at = os.path.dirname(at)
            try:
                sync_folder(at)
            except PermissionError:
                if depth < len(missing):
                    raise
                break  # an ancestor without permission to list it: we created nothing in it
        if len(self._durable) >= _KNOWN_FOLDERS_MAX:
            self._durable.clear()
        self._durable[folder] = _identity(folder)


FOLDERS: Final = Folders()


def _identity(folder: str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


class NewFile:
    """A temporary file: write to it, then `publish` or `discard`. Errors are those of the system.

    folder  of its final name
    """

    def __init__(self, key: str, durability: Durability, folders: Folders = FOLDERS) -> None:
        if not os.path.isabs(key):
            raise UsageError(f"{key!r}: keys of the local store are absolute paths")
        self._key = key
        self.folder = os.path.dirname(key)
        self._durability = durability
        self._is_renamed = False
        self._fd, self._temporary = folders.open_temporary(self.folder, durability)

    def write(self, buffers: Iterable[Buffer], offset_bytes: int) -> int:
        """Write buffers one after the other from an offset on; returns the offset behind them.

        Different parts of the file may be written at once, from several threads.
        """
        views = (memoryview(buffer).cast("B") for buffer in buffers)
        while some := list(islice(views, _BUFFERS_MAX)):
            offset_bytes = self._write_some(some, offset_bytes)
        return offset_bytes

    def _write_some(self, views: list[memoryview], offset_bytes: int) -> int:
        rest = [view for view in views if len(view)]
        end = offset_bytes + sum(map(len, rest))
        while offset_bytes < end:
            written = os.pwritev(self._fd, rest, offset_bytes)
            offset_bytes += written
            while offset_bytes < end and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if written:
                rest[0] = rest[0][written:]
        return offset_bytes

    def publish(self, *, if_absent: bool) -> ObjectMeta:
        """Give the file its final name; `FileExistsError` with `if_absent` if there is a file already.

        Raises `OutcomeUnknown` if the file has its name, but name or content may not be durable.
        """
        self.flush()
        meta = self.give_name(if_absent=if_absent)
        self.flush_name()
        return meta

    def begin_flush(self) -> None:
        """Start writeback, without waiting: `flush` then also commits the files that others have started."""
        if self._durability == "full":
            begin_writeback(self._fd)

    def flush(self) -> None:
        """Make the content durable."""
        if self._durability == "full":
            os.fsync(self._fd)

    def give_name(self, *, if_absent: bool) -> ObjectMeta:
        """`publish` for a flushed file, without flushing its name."""
        meta = describe(self._key, os.fstat(self._fd))
        if self._durability != "full" and rename_new(self._temporary, self._key):
            self._is_renamed = True
        elif if_absent:
            self._link()
        elif self._durability == "full" or not exchange(self._temporary, self._key):
            os.replace(self._temporary, self._key)
            self._is_renamed = True
        self._drop_temporary()
        return meta

    def flush_name(self) -> None:
        """Make the names in its folder durable, its own included."""
        if self._durability == "full":
            try:
                sync_folder(self.folder)
            except OSError as error:
                raise self._outcome_unknown("its folder could not be flushed to the disk", error) from error

    def _drop_temporary(self) -> None:
        """Remove the temporary name after the file has its own.

        Failures here must not look like a failed write: the file exists.
        """
        fd, self._fd = self._fd, -1
        try:
            self._close_named(fd)
        finally:
            try:
                self._unlink()
            except OSError as error:
                _logger.warning("%s stays behind for a cleanup: %s", self._temporary, error)

    def _close_named(self, fd: int) -> None:
        try:
            os.close(fd)
        except OSError as error:
            if self._durability != "full":  # content that was not flushed may be written by `close`
                raise self._outcome_unknown("its content may not have been written", error) from error

    def _outcome_unknown(self, reason: str, error: OSError) -> OutcomeUnknown:
        message = f"the file is there, but {reason} ({error.strerror})"
        return OutcomeUnknown(message, path=self._key, operation="put")

    def discard(self) -> None:
        """Remove the temporary file, if it still exists."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.close(fd)
            finally:
                self._unlink()

    def _unlink(self) -> None:
        if not self._is_renamed:
            with contextlib.suppress(FileNotFoundError):  # removed by a cleanup
                os.unlink(self._temporary)

    def _link(self) -> None:
        try:
            os.link(self._temporary, self._key)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._copy_exclusively()

    def _copy_exclusively(self) -> None:
        """Create on file systems without hard links: one writer still wins, but a crash may leave half a file."""
        fd = os.open(self._key, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            self._copy_to(fd)
        except OSError:  # half a manifest would make the table unreadable
            os.close(fd)
            os.unlink(self._key)
            raise
        try:
            if self._durability == "full":
                os.fsync(fd)
        except OSError as error:
            raise self._outcome_unknown("it could not be flushed to the disk", error) from error
        finally:
            self._close_named(fd)

    def _copy_to(self, fd: int) -> None:
        at = 0
        with open(self._temporary, "rb") as source:
            while piece := source.read(1 << 20):
                rest = memoryview(piece)
                while len(rest):
                    written = os.pwrite(fd, rest, at)
                    rest, at = rest[written:], at + written


class LocalUpload:
    """`SyncUpload` on the local disk: writes go directly to the file, without a buffer."""

    def __init__(self, store: LocalStore, key: str, file: NewFile, *, if_absent: bool) -> None:
        self._store = store
        self._key = key
        self._file = file
        self._if_absent = if_absent
        self._meta: ObjectMeta | None = None
        self._over = False
        self.size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers; a failure removes the file."""
        self._check_open()
        try:
            self.size_bytes = self._file.write(buffers, self.size_bytes)
        except OSError as error:
            self.abort()
            raise_write_error(self._key, error)
        except BaseException:
            self.abort()
            raise

    def close(self) -> ObjectMeta:
        """Give the file its name; a failure removes it."""
        if self._meta is None:
            self._check_open()
            try:
                self._meta = self._store.publish(self._key, self._file, self.size_bytes, if_absent=self._if_absent)
            finally:
                self._over = True
        return self._meta

    def abort(self) -> None:
        """Remove the file."""
        if not self._over:
            self._over = True
            self._file.discard()

    def _check_open(self) -> None:
        if self._over:
            raise UsageError(f"{self._key}: this upload is over (closed, aborted or failed); open another one")


class AsyncLocalUpload:
    """`Upload` on the local disk: each call is one job of the store's threads, without buffers or copies.

    A thread cannot be cancelled: do not reuse the buffers of a cancelled `write` until the job has ended.
    """

    def __init__(self, store: LocalStore, upload: LocalUpload) -> None:
        self._store = store
        self._upload = upload
        self._working: asyncio.Future[Any] | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._upload.size_bytes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abort()

    async def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers."""
        await self._job(self._upload.write, list(buffers))

    async def close(self) -> ObjectMeta:
        """Give the file its name."""
        return await self._job(self._upload.close)

    async def abort(self) -> None:
        """Remove the file, after the current job has ended."""
        import asyncio

        if self._working is not None:
            await asyncio.wait([self._working])
        await self._store.job(self._upload.abort)

    async def _job(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        import asyncio

        job = self._working = asyncio.ensure_future(self._store.job(work, *args, **kwargs))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await to_the_end(self.abort())
            raise


class LocalPartWriter:
    """A file written in parts; see `PartWriter`. A thread cannot be cancelled, so `abort` waits for running jobs."""

    def __init__(self, store: LocalStore, key: str, file: NewFile, *, if_absent: bool) -> None:
        self._store = store
        self._key = key
        self._file = file
        self._if_absent = if_absent
        self._jobs: set[asyncio.Future[Any]] = set()

    async def write_part(self, number: int, offset_bytes: int, data: Buffer) -> None:
        """Write a part at its offset in the file."""
        try:
            end = await self._job(self._file.write, [data], offset_bytes)
        except OSError as error:
            raise_write_error(self._key, error)
        self._store.stats.count("part", self._key, end - offset_bytes, start=offset_bytes, end=end)

    async def complete(self) -> ObjectMeta:
        """Give the file its name."""
        return await self._job(self._store.publish, self._key, self._file, 0, if_absent=self._if_absent)

    async def abort(self) -> None:
        """Remove the file."""
        import asyncio

        await asyncio.gather(*self._jobs, return_exceptions=True)
        await self._store.job(self._file.discard)

    async def _job(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        import asyncio

        job = asyncio.ensure_future(self._store.job(work, *args, **kwargs))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return await asyncio.shield(job)


def exchange(temporary: str, target: str) -> bool:
    """Swap two files' names atomically; False if that is not possible.

    Some file systems flush a file that is renamed over another one, as ext4 does: that takes a hundred times longer
    than the rest of a write. They do not flush exchanged files.
    """
    try:
        return stat.S_ISREG(os.lstat(target).st_mode) and _rename(temporary, target, _RENAME_EXCHANGE)
    except FileNotFoundError:
        return False


def rename_new(temporary: str, target: str) -> bool:
    """Rename a file unless there is one of that name; False if there is, or if that is not possible atomically."""
    return _rename(temporary, target, _RENAME_NOREPLACE)


def _rename(source: str, target: str, flags: int) -> bool:
    if _renameat2 is None:
        return False
    if "\0" in source or "\0" in target:
        raise ValueError("embedded null byte")  # the system would take it as the end of the name
    done: int = _renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags)
    return done == 0


def write_over(key: str, data: Buffer) -> ObjectMeta | None:
    """Overwrite a small file; None if that is not possible: there is no file, or it is longer than the data."""
    try:
        fd = with_descriptors(partial(os.open, key, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK))
    except OSError:
        return None
    try:
        status, num_bytes = os.fstat(fd), memoryview(data).nbytes
        if not stat.S_ISREG(status.st_mode) or status.st_size > num_bytes or os.pwrite(fd, data, 0) < num_bytes:
            return None
        return describe(key, os.fstat(fd))
    finally:
        os.close(fd)


def _find_renameat2() -> Any:
    """The system call, which Python does not offer; None if the C library does not offer it either."""
    try:
        function = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return function


def begin_writeback(fd: int) -> None:
    """Start writing a file to the disk, without waiting, if the system has a call for that."""
    if _sync_file_range is not None:
        _sync_file_range(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)


def _find_sync_file_range() -> Any:
    """As `_find_renameat2`."""
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError, TypeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


_sync_file_range: Final = _find_sync_file_range()
_SYNC_FILE_RANGE_WRITE: Final = 2
_renameat2: Final = _find_renameat2()
_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCHANGE: Final = 2


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    fd = with_descriptors(partial(os.open, folder or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(fd)
