"""The files of a disk cache, opened and watched: which ones are in use, and what their failures mean.

    folder/ranges-<n>.sqlite   the index, with `-wal` and `-shm` beside it
    folder/ranges-<n>.bytes    the bytes of all copies

The files of the highest number are those in use. What turns out to be damaged is not repaired: the next number is
begun, and the old one removed. Processes that have it open still use it until they look, which they do before each
transaction.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lance_io.store.disk_cache.range_database import RangeDatabase

PAGE_BYTES: Final = 4096
_FILE = re.compile(r"ranges-(\d{1,9})\.(sqlite|bytes)\Z")
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS copy (
    id INTEGER PRIMARY KEY, object_id BLOB NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
    used INTEGER NOT NULL, checksum INTEGER NOT NULL, places BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS copy_name ON copy (object_id, start, end);
CREATE INDEX IF NOT EXISTS copy_used ON copy (used, id);
CREATE TABLE IF NOT EXISTS free (block INTEGER PRIMARY KEY, blocks INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS clock (
    now INTEGER NOT NULL, freed INTEGER NOT NULL, blocks INTEGER NOT NULL, free_blocks INTEGER NOT NULL
);
INSERT INTO clock SELECT 0, 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM clock);
"""
_WAITED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_NO_ROOM: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_NOLFS,
    }
)


class Damaged(Exception):
    """The files are not what this package has written."""


class Unusable(Exception):
    """The disk takes or gives nothing now: it is full, failing, not to be written to."""


class Busy(Exception):
    """Other processes are at it; later, perhaps."""


class Connection:
    """One connection to the files in use, within which `with` gives that to the index and translates errors.

    of      whose files
    wait_s  for how long others are waited for that write

    number      of the files in use
    path        of their index
    bytes_file  the descriptor of their bytes, while it is open
    """

    def __init__(self, of: RangeDatabase, wait_s: float) -> None:
        self._of = of
        self._wait_s = wait_s
        self._connection: sqlite3.Connection | None = None
        self._files: list[tuple[int, int]] = []  # device and inode, of index and bytes
        self.number = 0
        self.path = ""
        self.bytes_file = -1

    def __enter__(self) -> sqlite3.Connection:
        if self._connection is None or not self._is_current():
            self.close()
            self.open()
        assert self._connection is not None
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        connection = self._connection
        if connection is not None and connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        if isinstance(error, Busy | Unusable | Damaged):
            return
        if isinstance(error, OSError):  # of the bytes
            raise Unusable(str(error)) from error
        if isinstance(error, sqlite3.Error | TypeError | ValueError | OverflowError):
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY and os.access(self.path, os.W_OK):
                raise Damaged("a writable file says that it is none") from error
            raise _translated(error) from error

    def _is_current(self) -> bool:
        try:
            return self._files == [_identity(os.stat(path)) for path in (self.path, _bytes_path(self.path))]
        except OSError:
            return False

    def open(self, number: int | None = None) -> None:
        """Open the files of the highest number, or make those of this one. Raises `Unusable`, `Busy`, `Damaged`."""
        of = self._of
        try:
            os.makedirs(of.folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise Unusable(str(error)) from error
        there = numbers_in(of.folder)
        is_new = number is not None or not there
        number = number or (there[-1] if there else 1)
        path = path_of(of.folder, number)
        try:  # made first: where an index is, there are bytes
            bytes_file = _open_bytes(_bytes_path(path), is_new)
        except FileNotFoundError as error:
            if not os.path.exists(path):  # both were removed at this moment
                raise Busy(str(error)) from error
            self.number = number
            raise Damaged(str(error)) from error
        connection = None
        try:
            connection = sqlite3.connect(
                f"file:{_quoted(path)}?mode={'rwc' if is_new else 'rw'}",
                uri=True,
                timeout=self._wait_s,
                isolation_level=None,
                check_same_thread=False,
            )
            self._prepare(connection)
            files = [_identity(os.stat(path)), _identity(os.fstat(bytes_file))]
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:  # a damaged schema may be no text
            os.close(bytes_file)
            if connection is None:
                raise Unusable(str(error)) from error
            connection.close()
            if isinstance(error, OSError):  # removed at this moment
                raise Busy(str(error)) from error
            self.number = number
            raise _translated(error) from error
        self._connection, self._files, self.bytes_file = connection, files, bytes_file
        self.number, self.path = number, path
        self._remove_others()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        of = self._of
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA mmap_size = 0")  # a damaged disk is an error, no signal
        connection.execute("PRAGMA cache_size = -2048")
        connection.execute("PRAGMA wal_autocheckpoint = 256")
        connection.execute(f"PRAGMA journal_size_limit = {of.log_bytes_max}")
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'clock'").fetchone()[0]:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";")[:-1]:
                connection.execute(statement)
            connection.execute("COMMIT")
        connection.execute(f"PRAGMA max_page_count = {max(1, of.pages_max)}").fetchall()

    def _remove_others(self) -> None:
        """Remove files of lower numbers; if there is a higher one, this one is to be removed, too, and opened again."""
        folder = self._of.folder
        newest = max([self.number, *numbers_in(folder)])
        for number in numbers_in(folder, of_any=True):
            if number < newest:
                path = path_of(folder, number)
                for each in (path, path + "-wal", path + "-shm", path + "-journal", _bytes_path(path)):
                    with suppress(OSError):
                        os.remove(each)
        if self.number < newest:
            self.close()
            raise Busy("another process has begun a new file")

    def close(self) -> None:
        """Close it."""
        connection, self._connection = self._connection, None
        bytes_file, self.bytes_file = self.bytes_file, -1
        if connection is not None:
            with suppress(OSError):
                os.close(bytes_file)
            with suppress(sqlite3.Error):
                connection.close()


def path_of(folder: str, number: int) -> str:
    """The index of a number."""
    return os.path.join(folder, f"ranges-{number}.sqlite")


def numbers_in(folder: str, *, of_any: bool = False) -> list[int]:
    """Numbers of the indices that are there, ascending; or of any file. Raises `Unusable`."""
    try:
        found = [match for name in os.listdir(folder) if (match := _FILE.match(name))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unusable(str(error)) from error
    return sorted({int(match[1]) for match in found if of_any or match[2] == "sqlite"})


def _bytes_path(path: str) -> str:
    return path.removesuffix(".sqlite") + ".bytes"


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _open_bytes(path: str, is_new: bool) -> int:
    """A descriptor. Raises `FileNotFoundError` for what should be there, `Unusable`."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if is_new else 0), 0o600)
    except FileNotFoundError:
        raise
    except PermissionError:
        pass  # what is there can be read
    except OSError as error:
        raise Unusable(str(error)) from error
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unusable(str(error)) from error


def _translated(error: Exception) -> Exception:
    """What a failure of SQLite means here."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return Damaged(str(error))
    if code & 0xFF in _WAITED:
        return Busy(str(error))
    if code & 0xFF in _NO_ROOM or (code & 0xFF == sqlite3.SQLITE_IOERR and code != sqlite3.SQLITE_IOERR_SHORT_READ):
        return Unusable(str(error))
    return Damaged(str(error))


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(os.path.abspath(path))
