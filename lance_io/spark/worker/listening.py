"""Where a worker listens: a Unix socket in a folder that only its user can enter, else a port of the loopback.

A lock in the folder, which the system releases when the process ends, marks it as in use: a later worker of the user
removes folders that a killed one has left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = "lance_io-"
PATH_BYTES_MAX: Final = 100  # of a socket; Java refuses 107
WAITING_MAX: Final = 512  # connections that are not accepted yet
_LOCK: Final = "lock"


@dataclass(frozen=True, eq=False)
class Listener:
    """A listening socket.

    socket   it
    address  for the JVM: `{"socket": path}` or `{"port": number}`
    folder   to be removed at the end; None for a port
    lock     descriptor of the folder's lock, held as long as the process lives
    """

    socket: socket.socket
    address: dict[str, Any]
    folder: Path | None = None
    lock: int | None = None

    @classmethod
    def open(cls) -> Listener:
        """Listen in the first parent folder whose paths are short enough and that lets us."""
        for parent in _parents():
            with suppress(OSError):
                return cls._in_folder(parent)
        listening = socket.create_server(("127.0.0.1", 0), backlog=WAITING_MAX)
        return cls(listening, {"port": listening.getsockname()[1]})

    @classmethod
    def _in_folder(cls, parent: Path) -> Listener:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))  # of mode 0700
        try:
            lock = os.open(folder / "new", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "new").rename(folder / _LOCK)  # held by the time that others see it
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(str(folder / "s"))
            listening.listen(WAITING_MAX)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(listening, {"socket": str(folder / "s")}, folder, lock)

    def remove(self) -> None:
        """Remove the folder, if there is one."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Remove the folders of this user's workers that are no longer running."""
    for parent in _parents():
        with suppress(OSError):
            for folder in parent.glob(f"{PREFIX}*"):
                if _is_abandoned(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or not (folder / _LOCK).exists():
        return False
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _parents() -> Iterator[Path]:
    """Folders that may hold the socket's folder, the best first."""
    candidates = [os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp"]
    for text in candidates:
        name_bytes = len(PREFIX) + len("12345678/s") + 1  # what `mkdtemp` adds, and the socket
        if text and os.path.isdir(text) and len(os.fsencode(text)) + name_bytes <= PATH_BYTES_MAX:
            yield Path(text)
