"""System calls of the local store: translation of errors, listings in key order.

Names that start with `TEMPORARY_PREFIX` are temporary files (`atomic_writes.py`). Listings omit them, unless the
prefix asks for such names.
"""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, NoReturn

from lance_io.errors import AccessDenied, AlreadyExists, LanceError, NotFound, StoreError
from lance_io.records import dataclass
from lance_io.store.api import ObjectMeta, Selection
from lance_io.store.descriptors import with_descriptors
from lance_io.store.failures import NO_ROOM, StoreFull

if TYPE_CHECKING:
    from collections.abc import Iterator


TEMPORARY_PREFIX = ".lance-io-"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NotAFolder(StoreError, NotADirectoryError):
    """There is a file in the place of a folder."""


def not_a_folder(path: str) -> NotAFolder:
    """The error for a folder that is a file, or lies below one."""
    file = path.rstrip("/")
    while not os.path.lexists(file) and file != os.path.dirname(file):
        file = os.path.dirname(file)
    return NotAFolder(f"{file} is a file, expected a folder: a table is a folder that holds its files", path=path)


def error_of(key: str, error: OSError | ValueError) -> LanceError:
    """Our error for an error of the system about `key`."""
    if isinstance(error, ValueError):  # a NUL or a lone surrogate: no file can have such a name
        return NotFound(f"{key!r} cannot be the name of a file: {error}")
    code = error.errno
    if code in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP):
        return NotFound(f"there is no such file ({error.strerror})", path=key)
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AccessDenied(f"the system refused access ({error.strerror})", path=key)
    if code == errno.EEXIST:
        return AlreadyExists("a file of this name is there already", path=key)
    if code in NO_ROOM:
        return StoreFull(f"{error.strerror or error} (errno {code})", path=key)
    return StoreError(
        f"{error.strerror or error} (errno {code})", path=key, retryable=code in (errno.EAGAIN, errno.EINTR)
    )


def raise_write_error(key: str, error: OSError | ValueError) -> NoReturn:
    """Raise our error for a failed write; errors of ours pass through."""
    raise error if isinstance(error, LanceError) else error_of(key, error) from error


# -- listing ----------------------------------------------------------------------------------------------------------


def describe(key: str, status: os.stat_result) -> ObjectMeta:
    """An object's metadata from its `stat`; the etag changes when the file is replaced or written to."""
    etag = f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'
    written = _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)  # a float of seconds would lose precision
    return ObjectMeta(key, status.st_size, etag, written)


def list_files(prefix: str, asked: Selection) -> Iterator[ObjectMeta]:
    """Files whose path starts with `prefix`, in key order; symbolic links are followed, loops are not.

    With `keys_only` files are not looked at: size 0, no etag, no time.
    """
    folder, _, beginning = prefix.rpartition("/")
    walk = _Walk(asked, asked.start_after)
    entries = walk.below(f"{folder}/", beginning, frozenset())
    if asked.limit is None or asked.also_behind is None:
        return islice(entries, asked.limit)
    return chain(islice(entries, asked.limit), _first_behind(walk, entries, asked.also_behind))


def _first_behind(walk: _Walk, entries: Iterator[ObjectMeta], key: str) -> Iterator[ObjectMeta]:
    """The first of the remaining entries after `key`."""
    walk.start_after = max(key, walk.start_after or "")
    yield from islice(entries, 1)


@dataclass(slots=True)
class _Walk:
    """A listing in progress; `start_after` may be advanced meanwhile."""

    asked: Selection
    start_after: str | None

    def below(self, folder: str, beginning: str, seen: frozenset[tuple[int, int]]) -> Iterator[ObjectMeta]:
        """Entries of a folder that start with `beginning`; `seen` identifies it and the folders above."""
        is_recursive = self.asked.delimiter is None
        names, at = _names(folder, beginning, is_top=not seen), 0
        while at < len(names):
            name, at = names[at], at + 1
            path, is_folder = folder + name, name.endswith("/")
            if name.startswith(TEMPORARY_PREFIX) and not beginning.startswith(TEMPORARY_PREFIX):  # hidden
                continue
            start_after = self.start_after
            is_after = start_after is None or path > start_after
            if not (is_after or is_recursive) and str(start_after).startswith(folder):  # skip all at once
                at = bisect_right(names, str(start_after)[len(folder) :], at)
                continue
            if is_folder and is_recursive:
                # also folders that sort before `start_after` and contain it
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
    """Status of a path; None if it was deleted since its folder was read, or is a dangling link."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise error_of(path, error) from error


def _names(folder: str, beginning: str, *, is_top: bool) -> list[str]:
    """Names in a folder that start with `beginning`, in key order, folders with a `/`; empty for a missing folder.

    is_top  the listing started here; else the walk arrived here, and the folder may have become a file since
    """
    try:
        with with_descriptors(partial(os.scandir, folder)) as entries:
            matches = [entry for entry in entries if entry.name.startswith(beginning)] if beginning else entries
            return sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in matches)
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        if is_top and not os.path.lexists(folder.rstrip("/")):  # the folder's path goes through a file
            raise not_a_folder(folder) from error
        return []
    except (OSError, ValueError) as error:
        raise error_of(folder, error) from error
