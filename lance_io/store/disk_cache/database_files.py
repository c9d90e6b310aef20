"""The files of a disk cache: opens them, checks which are in use, and classifies their failures.

    folder/ranges-<n>.sqlite   the index, with `-journal` beside it
    folder/ranges-<n>.bytes    a key, a count of transactions that have written bytes, and the bytes of all copies

The files with the highest number are in use. Damaged files are not repaired: they are replaced by files with the next
number, and removed. Processes that have them open use them until they check, which they do before each transaction.

The index has a rollback journal: with write-ahead logging SQLite maps a file into memory, and a process that truncates
that file crashes all processes that use it. No file here is mapped.

SQLite opens its files by path, and does not show which files it has opened. Users who can rename the folder
(`private_folder.py`) could make it open files of theirs. So every checksum begins with a random key, in a file that
they cannot read and that is reached from the folder's descriptor: an index of theirs has no valid checksum.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lance_io.store.disk_cache.private_folder import PrivateFolder, Unusable, state_of

if TYPE_CHECKING:
    from lance_io.store.disk_cache.range_database import RangeDatabase

PAGE_BYTES: Final = 4096
KEY_BYTES: Final = 32  # at the start of the file of bytes, followed by the count; the rest of the first block is empty
_PATIENCE_S: Final = 0.0005  # a commit takes as long as writing some pages
_COUNT: Final = struct.Struct("<Q")
_INDEX: Final = "sqlite"
_FILE = re.compile(r"ranges-(\d{1,9})\.(.+)\Z")
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
INSERT INTO clock SELECT 0, 0, 1, 0 WHERE NOT EXISTS (SELECT 1 FROM clock);
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
    """The files have content that this package cannot have written."""


class Busy(Exception):
    """Other processes use the files; a retry may succeed."""


class Connection:
    """One connection to the files in use; `with` returns the connection to the index, and translates errors.

    of      the database
    wait_s  timeout for locks of others
    writes  whether it changes anything, apart from creating the files

    number      of the files in use
    bytes_file  the descriptor of their bytes, while it is open
    key         prefix of the checksummed bytes of their copies
    """

    def __init__(self, of: RangeDatabase, wait_s: float, *, writes: bool) -> None:
        self._of = of
        self._wait_s = wait_s
        self._writes = writes
        self._folder: PrivateFolder | None = None
        self._connection: sqlite3.Connection | None = None
        self._names: tuple[str, ...] = ()  # names of the index file and the bytes file
        self._states: list[tuple[int, int, int, int]] = []  # identities of these files
        self.number = 0
        self.bytes_file = -1
        self.key = b""

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
        if isinstance(error, OSError):  # from reading or writing the bytes file
            raise Unusable(str(error)) from error
        if isinstance(error, sqlite3.Error | TypeError | ValueError | OverflowError):
            code = getattr(error, "sqlite_errorcode", None)
            path = os.path.join(self._of.folder, _index_name(self.number))
            if code == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK):
                raise Damaged("SQLite takes a writable file as read-only") from error
            raise _translated(error) from error

    def _is_current(self) -> bool:
        assert self._folder is not None
        try:
            return self._folder.is_at_path() and self._states == self._current_states(self._folder)
        except OSError:
            return False

    def _current_states(self, folder: PrivateFolder) -> list[tuple[int, int, int, int]]:
        return [state_of(folder.stat(name)) for name in self._names]

    def open(self, above: int = -1) -> None:
        """Open the files with the highest number; creates the next ones unless it is above `above`, a damaged one.

        Raises `Refused`, `Unusable`, `Busy`, `Damaged`.
        """
        self._folder = PrivateFolder(self._of.folder)
        try:
            self._open_in(self._folder, above)
        except FileNotFoundError as error:  # removed meanwhile
            self.close()
            raise Busy(str(error)) from error
        except OSError as error:
            self.close()
            raise Unusable(str(error)) from error
        except (sqlite3.Error, ValueError, TypeError) as error:  # a damaged schema may be no text
            self.close()
            raise _translated(error) from error
        except BaseException:
            self.close()
            raise

    def _open_in(self, folder: PrivateFolder, above: int) -> None:
        numbers = [number for number, rest in _numbered(folder) if rest == _INDEX]
        newest = max(numbers, default=0)
        is_new = newest <= max(0, above)
        self.number = max(newest, above) + 1 if is_new else newest
        self._names = index_name, bytes_name = _index_name(self.number), f"ranges-{self.number}.bytes"
        if is_new:  # the bytes first: an index implies bytes
            folder.create(bytes_name, secrets.token_bytes(KEY_BYTES))
            folder.create(index_name)
        try:
            self.bytes_file = folder.open_file(bytes_name)
        except FileNotFoundError as error:
            folder.stat(index_name)  # unless both are gone
            raise Damaged(str(error)) from error
        self.key = os.pread(self.bytes_file, KEY_BYTES, 0)
        if len(self.key) < KEY_BYTES or not any(self.key):
            raise Damaged(f"{bytes_name} has no key")
        self._connection = sqlite3.connect(
            f"file:{_quoted(os.path.join(self._of.folder, index_name))}?mode=rw",
            uri=True,
            timeout=self._wait_s,
            isolation_level=None,
            check_same_thread=False,
        )
        self._prepare(self._connection)
        self._states = self._current_states(folder)
        if self._states[1] != state_of(os.fstat(self.bytes_file)) or not folder.is_at_path():
            raise Busy("other files have replaced these")
        self._remove_others(folder)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        of = self._of
        connection.execute("PRAGMA mmap_size = 0")  # a damaged disk, or a truncated file, is an error, not a signal
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA cache_size = -2048")
        connection.execute("PRAGMA cache_spill = OFF")  # else readers would wait even before the commit
        # Truncated, not removed: that creates nothing in the folder, and for readers an empty journal costs no more.
        if connection.execute("PRAGMA journal_mode = TRUNCATE").fetchone() != ("truncate",):
            raise Damaged("an index with write-ahead logging")
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'clock'").fetchone()[0]:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";")[:-1]:
                connection.execute(statement)
            connection.execute("COMMIT")
        connection.execute(f"PRAGMA max_page_count = {max(1, of.pages_max)}").fetchall()
        if not self._writes:
            connection.execute("PRAGMA busy_timeout = 0")  # `begin_reading` waits

    def _remove_others(self, folder: PrivateFolder) -> None:
        """Remove files of lower numbers; `Busy` if there is a higher one, so that the caller opens again."""
        numbered = _numbered(folder)
        newest = max([self.number, *(number for number, rest in numbered if rest == _INDEX)])
        for number, rest in numbered:
            if number < newest:
                folder.remove(f"ranges-{number}.{rest}")
        if self.number < newest:
            raise Busy("another process has begun a new file")

    def begin_reading(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Begin a read transaction; returns `now` and `freed` of the clock. Waits for a commit in progress."""
        connection.execute("BEGIN")
        row = self._retry_while_busy(connection, "SELECT now, freed FROM clock").fetchone()
        return int(row[0]), int(row[1])

    def commit(self, connection: sqlite3.Connection) -> None:
        """Commit a write transaction. Waits for readers; no new reader begins meanwhile."""
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._retry_while_busy(connection, "COMMIT")
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(self._wait_s * 1000)}")

    def _retry_while_busy(self, connection: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
        """Poll every 0.5 ms: SQLite's own waits grow to 100 ms, for locks that last about 1 ms."""
        ends_s = time.monotonic() + self._wait_s
        while True:
            try:
                return connection.execute(statement)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= ends_s:
                    raise
            time.sleep(_PATIENCE_S)

    def writes_begun(self) -> bytes:
        """The count of write transactions; changed if bytes were overwritten since. Takes no lock."""
        return os.pread(self.bytes_file, _COUNT.size, KEY_BYTES)

    def begin_writing(self) -> None:
        """Count this transaction before it writes or truncates bytes; called under the lock of writers."""
        held = self.writes_begun()
        count = _COUNT.unpack(held)[0] if len(held) == _COUNT.size else 0
        os.pwrite(self.bytes_file, _COUNT.pack((count + 1) & ((1 << 64) - 1)), KEY_BYTES)

    def files_bytes(self) -> int:
        """Size of all files on disk; 0 while it is closed."""
        return 0 if self._folder is None else self._folder.files_bytes()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        bytes_file, self.bytes_file = self.bytes_file, -1
        folder, self._folder = self._folder, None
        if bytes_file >= 0:
            with suppress(OSError):
                os.close(bytes_file)
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()
        if folder is not None:
            folder.close()


def _index_name(number: int) -> str:
    return f"ranges-{number}.{_INDEX}"


def _numbered(folder: PrivateFolder) -> list[tuple[int, str]]:
    """Numbered files: the number, and the rest of the name. Raises `OSError`."""
    return [(int(match[1]), match[2]) for name in folder.names() if (match := _FILE.match(name))]


def _translated(error: Exception) -> Exception:
    """Our error for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return Damaged(str(error))
    if code & 0xFF in _WAITED or code == sqlite3.SQLITE_READONLY_DBMOVED:  # replaced meanwhile
        return Busy(str(error))
    if code & 0xFF in _NO_ROOM or (code & 0xFF == sqlite3.SQLITE_IOERR and code != sqlite3.SQLITE_IOERR_SHORT_READ):
        return Unusable(str(error))
    return Damaged(str(error))


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(os.path.abspath(path))
