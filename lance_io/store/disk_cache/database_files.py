"""The files of a disk cache, opened and watched: which ones are in use, and what their failures mean.

    folder/ranges-<n>.sqlite   the index, with `-journal` beside it
    folder/ranges-<n>.bytes    a key, a count of transactions that have written bytes, and the bytes of all copies

The files of the highest number are those in use. What turns out to be damaged is not repaired: the next number is
begun, and the old one removed. Processes that have it open still use it until they look, which they do before each
transaction.

The index has a rollback journal: with one for writing ahead SQLite maps a file into memory, and whoever cuts that file
short ends all processes that use it. Nothing here is mapped.

SQLite opens its files by their path, and tells nobody what it has opened. Where others may rename the folder
(`private_folder.py`), they could have it open files of theirs. So every checksum begins with a key, drawn at random, in
a file that they cannot read and that is reached from the folder's descriptor: an index of theirs has no right checksum.
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
KEY_BYTES: Final = 32  # where the file of bytes begins; behind it the count; the first block has nothing else
_PATIENCE_S: Final = 0.0005  # a commit takes as long as some pages to be written
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
    """The files are not what this package has written."""


class Busy(Exception):
    """Other processes are at it; later, perhaps."""


class Connection:
    """One connection to the files in use, within which `with` gives that to the index and translates errors.

    of      whose files
    wait_s  for how long others are waited for
    writes  whether it changes anything, beside making the files

    number      of the files in use
    bytes_file  the descriptor of their bytes, while it is open
    key         what checksums of their copies begin with
    """

    def __init__(self, of: RangeDatabase, wait_s: float, *, writes: bool) -> None:
        self._of = of
        self._wait_s = wait_s
        self._writes = writes
        self._folder: PrivateFolder | None = None
        self._connection: sqlite3.Connection | None = None
        self._names: tuple[str, ...] = ()  # of index and bytes
        self._states: list[tuple[int, int, int, int]] = []  # of these
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
        if isinstance(error, OSError):  # of the bytes
            raise Unusable(str(error)) from error
        if isinstance(error, sqlite3.Error | TypeError | ValueError | OverflowError):
            code = getattr(error, "sqlite_errorcode", None)
            path = os.path.join(self._of.folder, _index_name(self.number))
            if code == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK):
                raise Damaged("a writable file says that it is none") from error
            raise _translated(error) from error

    def _is_current(self) -> bool:
        assert self._folder is not None
        try:
            return self._folder.is_at_path() and self._states == self._seen(self._folder)
        except OSError:
            return False

    def _seen(self, folder: PrivateFolder) -> list[tuple[int, int, int, int]]:
        return [state_of(folder.stat(name)) for name in self._names]

    def open(self, above: int = -1) -> None:
        """Open the files of the highest number, or make the next ones if that is not above a damaged one.

        Raises `Refused`, `Unusable`, `Busy`, `Damaged`.
        """
        self._folder = PrivateFolder(self._of.folder)
        try:
            self._open_in(self._folder, above)
        except FileNotFoundError as error:  # removed at this moment
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
        there = [number for number, rest in _numbered(folder) if rest == _INDEX]
        newest = max(there, default=0)
        is_new = newest <= max(0, above)
        self.number = max(newest, above) + 1 if is_new else newest
        self._names = index_name, bytes_name = _index_name(self.number), f"ranges-{self.number}.bytes"
        if is_new:  # the bytes first: where an index is, there are bytes
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
        self._states = self._seen(folder)
        if self._states[1] != state_of(os.fstat(self.bytes_file)) or not folder.is_at_path():
            raise Busy("the files are replaced by others")
        self._remove_others(folder)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        of = self._of
        connection.execute("PRAGMA mmap_size = 0")  # a damaged disk, or a file cut short, is an error, no signal
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA cache_size = -2048")
        connection.execute("PRAGMA cache_spill = OFF")  # or readers would have to wait before the commit
        # Emptied, not removed: nothing is made in the folder, and an empty one costs readers no more than none.
        if connection.execute("PRAGMA journal_mode = TRUNCATE").fetchone() != ("truncate",):
            raise Damaged("an index that writes ahead")
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
        """Remove files of lower numbers; if there is a higher one, this one is to be removed, too, and opened again."""
        numbered = _numbered(folder)
        newest = max([self.number, *(number for number, rest in numbered if rest == _INDEX)])
        for number, rest in numbered:
            if number < newest:
                folder.remove(f"ranges-{number}.{rest}")
        if self.number < newest:
            raise Busy("another process has begun a new file")

    def begin_reading(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Begin a transaction that reads; `now` and `freed` of the clock. Waits for a commit, if there is one."""
        connection.execute("BEGIN")
        row = self._patiently(connection, "SELECT now, freed FROM clock").fetchone()
        return int(row[0]), int(row[1])

    def commit(self, connection: sqlite3.Connection) -> None:
        """End a transaction that has written. Waits for those who read, while nobody begins to."""
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._patiently(connection, "COMMIT")
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(self._wait_s * 1000)}")

    def _patiently(self, connection: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
        """SQLite itself would wait for ever longer times, up to 100 ms, for what is over in one."""
        ends_s = time.monotonic() + self._wait_s
        while True:
            try:
                return connection.execute(statement)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= ends_s:
                    raise
            time.sleep(_PATIENCE_S)

    def writes_begun(self) -> bytes:
        """What has changed if bytes were written over since it was asked for. No lock is taken."""
        return os.pread(self.bytes_file, _COUNT.size, KEY_BYTES)

    def begin_writing(self) -> None:
        """Count this transaction among those that write or cut off bytes; before it does, under the lock of writers."""
        held = self.writes_begun()
        count = _COUNT.unpack(held)[0] if len(held) == _COUNT.size else 0
        os.pwrite(self.bytes_file, _COUNT.pack((count + 1) & ((1 << 64) - 1)), KEY_BYTES)

    def files_bytes(self) -> int:
        """What all files take on disk; 0 while it is closed."""
        return 0 if self._folder is None else self._folder.files_bytes()

    def close(self) -> None:
        """Close it."""
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
    """The files that have a number, and the rest of their names. Raises `OSError`."""
    return [(int(match[1]), match[2]) for name in folder.names() if (match := _FILE.match(name))]


def _translated(error: Exception) -> Exception:
    """What a failure of SQLite means here."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return Damaged(str(error))
    if code & 0xFF in _WAITED or code == sqlite3.SQLITE_READONLY_DBMOVED:  # removed for a new one at this moment
        return Busy(str(error))
    if code & 0xFF in _NO_ROOM or (code & 0xFF == sqlite3.SQLITE_IOERR and code != sqlite3.SQLITE_IOERR_SHORT_READ):
        return Unusable(str(error))
    return Damaged(str(error))


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(os.path.abspath(path))
