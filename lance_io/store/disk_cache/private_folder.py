"""A folder whose files no other user can have written: made so, and looked at before anything in it is believed.

What counts is owner and mode of the folder itself and of what is in it; the folders above may belong to anybody. The
folder is held open, never through a symbolic link, and all else is reached from that descriptor. Where the folder
belongs to this user, and nobody else may write to it, nobody else can put a file there between a look and its use.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import Final

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_OTHERS_WRITE: Final = 0o022  # an access list that lets others write shows here, too: the group's bits are its mask
_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW


class Unusable(Exception):
    """The disk takes or gives nothing now: it is full, failing, not to be written to."""


class Refused(Unusable):
    """Others could have written what is there.

    place   the folder or file
    reason  what is wrong with it
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place} {reason}")
        self.place = place
        self.reason = reason


class PrivateFolder:
    """One that is open. Raises `Refused` for what others may have written, `Unusable`.

    path  made if it is not there, with those above it, for this user alone
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = -1
        try:
            _make(path)
            self._file = os.open(path, _OPEN | os.O_RDONLY | os.O_DIRECTORY)
            found = os.fstat(self._file)
            _check(found, path, is_folder=True)
            self._state = state_of(found)
            for name in self.names():
                with suppress(FileNotFoundError):  # removed at this moment
                    _check(self.stat(name), os.path.join(path, name), is_folder=False)
        except OSError as error:
            self.close()
            with suppress(OSError):  # a link, or one of another user that not even lets itself be opened
                _check(os.lstat(path), path, is_folder=True)
            raise Unusable(str(error)) from error
        except Refused:
            self.close()
            raise

    def close(self) -> None:
        """Close it; more than once does nothing."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def is_at_path(self) -> bool:
        """Whether the path still leads to this folder, and as it was when it was opened. Raises `OSError`."""
        return state_of(os.lstat(self.path)) == self._state

    def names(self) -> list[str]:
        """What is there. Raises `OSError`."""
        return os.listdir(self._file)

    def stat(self, name: str) -> os.stat_result:
        """Of a file itself, not of what it links to. Raises `OSError`."""
        return os.stat(name, dir_fd=self._file, follow_symlinks=False)

    def create(self, name: str, content: bytes = b"") -> None:
        """Make a file with its content at once, unless it is there; its mode is right whatever the umask.

        No descriptor of it is left, and none was open while it had this name: where one is closed, SQLite's locks on
        the file are gone.

        Raises `OSError`.
        """
        new_name = f"{name}-{secrets.token_hex(8)}"
        file = os.open(new_name, _OPEN | os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE, dir_fd=self._file)
        try:
            try:
                os.fchmod(file, _FILE_MODE)
                if os.write(file, content) < len(content):
                    raise OSError(f"{self.path} takes no {len(content)} bytes")
            finally:
                os.close(file)
            with suppress(FileExistsError):
                os.link(new_name, name, src_dir_fd=self._file, dst_dir_fd=self._file)
        finally:
            self.remove(new_name)

    def open_file(self, name: str) -> int:
        """A descriptor to read and write a file that is there. Raises `OSError`, `Refused`."""
        file = os.open(name, _OPEN | os.O_RDWR, dir_fd=self._file)
        try:
            _check(os.fstat(file), os.path.join(self.path, name), is_folder=False)
        except BaseException:
            os.close(file)
            raise
        return file

    def remove(self, name: str) -> None:
        """Remove a file, if that can be."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self._file)

    def files_bytes(self) -> int:
        """What all files take; those that are removed at this moment nothing."""
        total = 0
        with suppress(OSError):
            for name in self.names():
                with suppress(OSError):
                    total += self.stat(name).st_size
        return total


def state_of(found: os.stat_result) -> tuple[int, int, int, int]:
    """Which file it is, whose, and who may write to it."""
    return found.st_dev, found.st_ino, found.st_uid, found.st_mode


def _make(path: str) -> None:
    """Make a folder unless it is there, and those above it; for this user alone, whatever the umask."""
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
    if stat.S_IMODE(os.stat(path).st_mode) & _FOLDER_MODE != _FOLDER_MODE:  # the umask has taken the owner's own rights
        os.chmod(path, _FOLDER_MODE)


def _check(found: os.stat_result, place: str, *, is_folder: bool) -> None:
    """Raise `Refused` unless it belongs to this user, and nobody else may write to it."""
    if not (stat.S_ISDIR if is_folder else stat.S_ISREG)(found.st_mode):
        raise Refused(place, f"is no {'folder' if is_folder else 'file'}")
    if found.st_uid != os.geteuid():
        raise Refused(place, f"belongs to user {found.st_uid}, and this process runs as user {os.geteuid()}")
    if found.st_mode & _OTHERS_WRITE:
        raise Refused(place, f"can be written by other users (mode {stat.S_IMODE(found.st_mode):04o})")
