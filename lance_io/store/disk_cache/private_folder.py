"""A folder whose files no other user can have written: checked before any of its content is used.

The checks are owner and mode of the folder itself and of its files; the folders above may belong to any user. The
folder is held open, never through a symbolic link, and all else is reached from that descriptor. If the folder
belongs to this user and no other user may write to it, no other user can put a file there between check and use.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import Final

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_OTHERS_WRITE: Final = (
    0o022  # also set by an access list with write permission for others: the group's bits are its mask
)
_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW


class Unusable(Exception):
    """The disk fails: it is full, broken, or not writable."""


class Refused(Unusable):
    """Other users could have written the files.

    path    the folder or file
    reason  the failed check
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path
        self.reason = reason


class PrivateFolder:
    """An open folder. Raises `Refused` if other users may have written to it, `Unusable`.

    path  created if missing, with its parents, for this user alone
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = -1
        try:
            _make(path)
            self._file = os.open(path, _OPEN | os.O_RDONLY | os.O_DIRECTORY)
            status = os.fstat(self._file)
            _check(status, path, is_folder=True)
            self._state = state_of(status)
            for name in self.names():
                with suppress(FileNotFoundError):  # removed meanwhile
                    _check(self.stat(name), os.path.join(path, name), is_folder=False)
        except OSError as error:
            self.close()
            with suppress(OSError):  # a link, or another user's folder without permission to open it
                _check(os.lstat(path), path, is_folder=True)
            raise Unusable(str(error)) from error
        except Refused:
            self.close()
            raise

    def close(self) -> None:
        """Close it; a no-op if it is closed."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def is_at_path(self) -> bool:
        """Whether the path still leads to this folder, with unchanged owner and mode. Raises `OSError`."""
        return state_of(os.lstat(self.path)) == self._state

    def names(self) -> list[str]:
        """Names of its files. Raises `OSError`."""
        return os.listdir(self._file)

    def stat(self, name: str) -> os.stat_result:
        """Status of a file, without following links. Raises `OSError`."""
        return os.stat(name, dir_fd=self._file, follow_symlinks=False)

    def create(self, name: str, content: bytes = b"") -> None:
        """Create a file atomically with its content, unless it exists; its mode does not depend on the umask.

        No descriptor of the file is closed after it has this name: closing one releases SQLite's locks on
        the file.

        Raises `OSError`.
        """
        new_name = f"{name}-{secrets.token_hex(8)}"
        file = os.open(new_name, _OPEN | os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE, dir_fd=self._file)
        try:
            try:
                os.fchmod(file, _FILE_MODE)
                if os.write(file, content) < len(content):
                    raise OSError(f"{self.path}: cannot write {len(content)} bytes")
            finally:
                os.close(file)
            with suppress(FileExistsError):
                os.link(new_name, name, src_dir_fd=self._file, dst_dir_fd=self._file)
        finally:
            self.remove(new_name)

    def open_file(self, name: str) -> int:
        """A descriptor to read and write an existing file. Raises `OSError`, `Refused`."""
        file = os.open(name, _OPEN | os.O_RDWR, dir_fd=self._file)
        try:
            _check(os.fstat(file), os.path.join(self.path, name), is_folder=False)
        except BaseException:
            os.close(file)
            raise
        return file

    def remove(self, name: str) -> None:
        """Remove a file, if possible."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self._file)

    def files_bytes(self) -> int:
        """Size of all files; files that are removed meanwhile do not count."""
        total = 0
        with suppress(OSError):
            for name in self.names():
                with suppress(OSError):
                    total += self.stat(name).st_size
        return total


def state_of(status: os.stat_result) -> tuple[int, int, int, int]:
    """Identity, owner and mode of a file."""
    return status.st_dev, status.st_ino, status.st_uid, status.st_mode


def _make(path: str) -> None:
    """Create a folder and its parents if missing; for this user alone, regardless of the umask."""
    try:
        os.mkdir(path, _FOLDER_MODE)
    except FileExistsError:
        return
    except FileNotFoundError:
        above = os.path.dirname(path)
        if above == path:
            raise
        _make(above)
        with suppress(FileExistsError):
            os.mkdir(path, _FOLDER_MODE)
    if (
        stat.S_IMODE(os.stat(path).st_mode) & _FOLDER_MODE != _FOLDER_MODE
    ):  # the umask has removed the owner's permissions
        os.chmod(path, _FOLDER_MODE)


def _check(status: os.stat_result, path: str, *, is_folder: bool) -> None:
    """Raise `Refused` unless it belongs to this user, and no other user may write to it."""
    if not (stat.S_ISDIR if is_folder else stat.S_ISREG)(status.st_mode):
        raise Refused(path, f"is no {'folder' if is_folder else 'file'}")
    if status.st_uid != os.geteuid():
        raise Refused(path, f"belongs to user {status.st_uid}, and this process runs as user {os.geteuid()}")
    if status.st_mode & _OTHERS_WRITE:
        raise Refused(path, f"can be written by other users (mode {stat.S_IMODE(status.st_mode):04o})")
