"""System calls behind the local store: what errors mean, open files kept at hand, listings in key order.

Names that start with `TEMPORARY_PREFIX` are files in the making (`local_writes.py`). Listings leave them out, unless
their prefix asks for such names.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound, StoreError
from lance_io.store.api import ObjectMeta, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


TEMPORARY_PREFIX = ".lance-io-"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # not blocking: a named pipe must not hang the opener


class NotAFolder(StoreError, NotADirectoryError):
    """A file is where a folder would have to be."""


def not_a_folder(path: str) -> NotAFolder:
    """The error for a folder that is a file, or lies below one."""
    file = path.rstrip("/")
    while not os.path.lexists(file) and file != os.path.dirname(file):
        file = os.path.dirname(file)
    return NotAFolder(f"{file} is a file, expected a folder: a table is a folder that holds its files", path=path)


def failed(key: str, error: OSError | ValueError) -> LanceError:
    """The error of ours for what the system said about `key`."""
    if isinstance(error, ValueError):  # a NUL or a lone surrogate: no file can have such a name
        return NotFound(f"{key!r} cannot be the name of a file: {error}")
    code = error.errno
    if code in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP):
        return NotFound(f"there is no such file ({error.strerror})", path=key)
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AccessDenied(f"the system refused access ({error.strerror})", path=key)
    if code == errno.EEXIST:
        return AlreadyExists("a file of this name is there already", path=key)
    return StoreError(
        f"{error.strerror or error} (errno {code})", path=key, retryable=code in (errno.EAGAIN, errno.EINTR)
    )


def raise_write_error(key: str, error: OSError | ValueError) -> NoReturn:
    """Raise our error for a failed write; ours pass through."""
    raise error if isinstance(error, LanceError) else failed(key, error) from error


class OpenFile:
    """A file descriptor that closes when nobody holds the object any more; `pread` needs no position, so all share it.

    size_bytes  the file's length when it was opened
    """

    __slots__ = ("fd", "identity", "size_bytes")

    def __init__(self, key: str) -> None:
        self.fd = -1
        try:
            self.fd = os.open(key, _OPEN_FLAGS)
            status = os.fstat(self.fd)
        except (OSError, ValueError) as error:
            raise failed(key, error) from error
        if stat.S_ISDIR(status.st_mode):
            raise NotFound("this is a folder, not a file", path=key)
        if not stat.S_ISREG(status.st_mode):
            raise StoreError("this is not a regular file", path=key)
        self.identity = (status.st_dev, status.st_ino)
        self.size_bytes = status.st_size

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # bound here: `os` may be gone at exit
        if self.fd >= 0:
            close(self.fd)


class OpenFiles:
    """The most recently used open files, at most `files_max`; safe from any thread.

    A name is looked up again at every use (a `stat`, a third of an `open`), so that a file that was replaced or
    deleted is never read under its old name.
    """

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._lock = threading.Lock()
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def get(self, key: str) -> OpenFile:
        """The open file behind a name. Hold the object while reading: it may be dropped here at any time."""
        with self._lock:
            file = self._files.get(key)
            if file is not None:
                self._files.move_to_end(key)
        if file is not None:
            try:
                status = os.stat(key)
            except (OSError, ValueError) as error:
                self.drop(key)
                raise failed(key, error) from error
            if (status.st_dev, status.st_ino) == file.identity:
                return file
        file = OpenFile(key)
        _read_no_more_than_asked(file.fd)
        with self._lock:
            self._files[key] = file
            self._files.move_to_end(key)
            dropped = self._files.popitem(last=False) if len(self._files) > self._files_max else None
        del dropped  # closes outside the lock
        return file

    def drop(self, key: str) -> None:
        """Forget one file."""
        with self._lock:
            dropped = self._files.pop(key, None)
        del dropped

    def clear(self) -> None:
        """Forget all files; those being read close when their readers are done."""
        with self._lock:
            self._files, dropped = OrderedDict(), self._files
        del dropped


def _read_no_more_than_asked(fd: int) -> None:
    """Keep the system from reading ahead: ranges are planned, and what lies between them is seldom wanted."""
    if hasattr(os, "posix_fadvise"):  # not everywhere
        with suppress(OSError):  # some file systems take no advice
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)


# -- looking around ---------------------------------------------------------------------------------------------------


def describe(key: str, status: os.stat_result) -> ObjectMeta:
    """What `stat` says, as an object's metadata; the etag changes when the file is replaced or written to."""
    etag = f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'
    written = _EPOCH + timedelta(
        microseconds=status.st_mtime_ns // 1000
    )  # a float of seconds could not tell them apart
    return ObjectMeta(key, status.st_size, etag, written)


def list_files(prefix: str, asked: Selection) -> Iterator[ObjectMeta]:
    """Files whose path starts with `prefix`, in key order; symbolic links are followed, loops are not.

    Where only keys are asked for, files are not looked at: size 0, no etag, no time.
    """
    folder, _, beginning = prefix.rpartition("/")
    return islice(_Walk(asked).below(f"{folder}/", beginning, frozenset()), asked.limit)


@dataclass(frozen=True, slots=True)
class _Walk:
    asked: Selection

    def below(self, folder: str, beginning: str, seen: frozenset[tuple[int, int]]) -> Iterator[ObjectMeta]:
        """What a folder holds whose name begins so; `seen` identifies it and the folders around it."""
        start_after, is_recursive = self.asked.start_after, self.asked.delimiter is None
        for name in _names(folder, is_top=not seen):
            path, is_folder = folder + name, name.endswith("/")
            is_hidden = name.startswith(TEMPORARY_PREFIX) and not beginning.startswith(TEMPORARY_PREFIX)
            if is_hidden or not name.startswith(beginning):
                continue
            is_after = start_after is None or path > start_after
            if is_folder and is_recursive:
                # also those that sort before `start_after`, when that lies inside
                status = _status(path) if is_after or str(start_after).startswith(path) else None
                if status is not None and (identity := (status.st_dev, status.st_ino)) not in seen:
                    yield from self.below(path, "", seen | {identity})
            elif is_after and (is_folder or self.asked.keys_only):
                yield ObjectMeta(path, 0)
            elif is_after:
                status = _status(path)
                if status is not None and stat.S_ISREG(status.st_mode):
                    yield describe(path, status)


def _status(path: str) -> os.stat_result | None:
    """What is there; None when it was deleted since its folder was read, or is a link to nowhere."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failed(path, error) from error


def _names(folder: str, *, is_top: bool) -> list[str]:
    """The names in a folder in key order, those of folders with a `/`; none if there is no such folder.

    is_top  it was asked for; else it was found, and is none any more if it is a file by now
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        if is_top and not os.path.lexists(folder.rstrip("/")):  # nothing lies below a file: it is no place for a folder
            raise not_a_folder(folder) from error
        return []
    except (OSError, ValueError) as error:
        raise failed(folder, error) from error
