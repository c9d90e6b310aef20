"""Copies of byte ranges in one SQLite file, within a bound on what it takes on disk.

    folder/ranges-<n>.sqlite   with `-wal` and `-shm` beside it; the file of the highest number is the one in use

A file that turns out to be damaged is not repaired: the next number is begun, and the old one removed. Processes that
have it open still use it until they look, which they do before each transaction.

Every copy has a checksum over its name and bytes, which is compared each time it is read: whatever else is damaged
in the file, wrong bytes are never given. So nothing is flushed to the disk, and a loss of power costs copies, no more.

The bound holds for all files together. The main file has a limit of pages, free pages are used again, and what was used
longest ago is removed to have enough of them. Before a transaction the log (`-wal`) is emptied if it would grow beyond
its share; where readers prevent that, nothing is written.

Every method blocks. Two threads at most: one that reads (`find_many`), one that writes (everything else).
"""

from __future__ import annotations

import os
import re
import sqlite3
import struct
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from lance_io.limits import KIB, MIB
from lance_io.records import dataclass
from lance_io.store.disk_cache.fixed_objects import ID_BYTES, CopyName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CAPACITY_BYTES_MIN: Final = 4 * MIB  # less is all log and index
LOG_BYTES_MAX: Final = 64 * MIB  # of `-wal`, and at most a quarter of the bound
INDEX_BYTES: Final = 64 * KIB  # of `-shm`: 32 KiB for every 16 MiB of log, with pages of 4 KiB
CANDIDATES_MAX: Final = 8  # copies that begin before a wanted range and are looked at for whether they reach its end
READ_WAIT_S: Final = 0.05  # readers wait for nobody in this mode, but for recovery after a kill
WRITE_WAIT_S: Final = 2.0
PAGE_BYTES: Final = 4096
_PAGE_ROOM: Final = PAGE_BYTES - 4  # of a page that continues a long value
_PAGES_BESIDE: Final = 3  # that a copy may take beside those: its row, its places in two indices
_SPARE_PAGES: Final = 16
_EVICTED_SHARE: Final = 64  # of the bound: so much is freed at once, so that not every write has to
_LOGGED_SHARE: Final = 1.05  # what a transaction logs per byte that it keeps
_LOGGED_PAGES: Final = 4  # and per copy that comes, goes or is marked: rows and places in indices
_LOGGED_BESIDE: Final = 64 * KIB
_ROUNDS_MAX: Final = 64  # transactions that make room for one
_START_MAX: Final = (1 << 63) - 1
_FILE = re.compile(r"ranges-(\d{1,9})\.sqlite\Z")
_NAME: Final = struct.Struct(f"<{ID_BYTES}sqq")
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS copy (
    id INTEGER PRIMARY KEY, object_id BLOB NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
    used INTEGER NOT NULL, checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS copy_place ON copy (object_id, start, end);
CREATE INDEX IF NOT EXISTS copy_used ON copy (used, id);
CREATE TABLE IF NOT EXISTS body (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS clock (now INTEGER NOT NULL);
INSERT INTO clock SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM clock);
"""
_FIND_AROUND: Final = (
    "SELECT c.id, start, end, used, checksum, data FROM (SELECT * FROM copy WHERE object_id = ? AND start <= ?"
    f" ORDER BY start DESC, end DESC LIMIT {CANDIDATES_MAX}) AS c LEFT JOIN body ON body.id = c.id"
    " WHERE end >= ? LIMIT 1"
)
_FIND_EXACT: Final = (
    "SELECT c.id, start, end, used, checksum, data FROM copy AS c LEFT JOIN body ON body.id = c.id"
    " WHERE object_id = ? AND start = ? AND end = ?"
)
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


ObjectCopies: TypeAlias = "tuple[bytes, int | None]"
"""The copies of one object that begin at one place, or all of them."""


class Damaged(Exception):
    """The file is not what this module has written."""


class Unusable(Exception):
    """The disk takes or gives nothing now: it is full, failing, not to be written to."""


class Busy(Exception):
    """Other processes are at it; later, perhaps."""


class FoundCopy(NamedTuple):
    """A copy, or a part of a larger one."""

    data: memoryview
    copy_id: int
    is_stale: bool  # others were kept since it was last used: it is to be marked as used


@dataclass(slots=True)
class Findings:
    """What a look came to.

    copies   of each wanted name, or None
    damaged  ids of copies whose bytes were not those that had been kept
    """

    copies: list[FoundCopy | None]
    damaged: list[int]


def checksum_of(name: tuple[bytes, int, int], data: Any) -> int:
    """CRC-32 of a copy's name and bytes: it finds every burst of up to 32 bits, at 2.5 GB a second."""
    return zlib.crc32(data, zlib.crc32(_NAME.pack(*name)))


class RangeDatabase:
    """See the module's description.

    folder          made when it is first needed; only its owner may look into it
    capacity_bytes  bound on what all files take, at least `CAPACITY_BYTES_MIN`
    """

    def __init__(self, folder: str, capacity_bytes: int) -> None:
        self.folder = folder
        self.capacity_bytes = capacity_bytes
        self.log_bytes_max = min(LOG_BYTES_MAX, capacity_bytes // 4)
        self.pages_max = (capacity_bytes - self.log_bytes_max - INDEX_BYTES) // PAGE_BYTES
        # Of the log a quarter is for bytes, and a quarter each for places of copies that come, go and are marked.
        self.batch_bytes_max = self.log_bytes_max // 4
        self.batch_copies_max = self.log_bytes_max // (5 * _LOGGED_PAGES * PAGE_BYTES)
        self._reader = _Connection(self, READ_WAIT_S)
        self._writer = _Connection(self, WRITE_WAIT_S)

    def close(self) -> None:
        """Close both connections, which the next call opens again; while neither thread is in a call."""
        self._reader.close()
        self._writer.close()

    # -- reading ------------------------------------------------------------------------------------------------

    def find_many(self, wanted: Sequence[CopyName]) -> Findings:
        """Copies of some names, whose checksums are right. Raises `Damaged`, `Unusable`, `Busy`."""
        with self._reader as connection:
            connection.execute("BEGIN")
            (now,) = connection.execute("SELECT now FROM clock").fetchone()
            findings = Findings([], [])
            for name in wanted:
                findings.copies.append(_find(connection, name, now, findings.damaged))
            connection.execute("COMMIT")
            return findings

    # -- writing ------------------------------------------------------------------------------------------------

    def keep_many(self, copies: Sequence[tuple[CopyName, Any]], used: Iterable[int]) -> int:
        """Keep copies, and mark others as used.

        copies  `batch_bytes_max` long together and `batch_copies_max` at most
        used    ids, so many at most

        Returns how many others were removed to make room. Raises `Damaged`, `Unusable`, `Busy`.
        """
        num_bytes = sum(len(data) for _, data in copies)
        num_pages = sum(-(-len(data) // _PAGE_ROOM) + _PAGES_BESIDE for _, data in copies)
        marks = list(used)
        with self._writer as connection:
            num_evicted = self._shrink(connection)
            for _ in range(_ROUNDS_MAX):
                logged_pages = _LOGGED_PAGES * (len(copies) + len(marks) + (self.batch_copies_max if copies else 0))
                self._begin(connection, int(num_bytes * _LOGGED_SHARE) + logged_pages * PAGE_BYTES + _LOGGED_BESIDE)
                if marks:
                    sql = "UPDATE copy SET used = (SELECT now FROM clock) + ? WHERE id = ?"
                    connection.executemany(sql, [(bool(copies), copy_id) for copy_id in marks])
                    marks = []
                num_now, is_enough = self._make_room(connection, num_pages) if copies else (0, True)
                num_evicted += num_now
                if is_enough:
                    _insert_all(connection, copies)
                connection.execute("COMMIT")
                if is_enough:
                    return num_evicted
            raise Busy("others fill the room that is made")

    def remove(self, copy_ids: Iterable[int], objects: Iterable[ObjectCopies] = ()) -> None:
        """Remove copies by their own ids, `batch_copies_max` at most, and those of objects. Raises as `keep_many`."""
        with self._writer as connection:
            found = list(copy_ids)
            self._begin(connection, len(found) * _LOGGED_PAGES * PAGE_BYTES + _LOGGED_BESIDE)
            for object_id, start in objects:
                sql = "SELECT id FROM copy WHERE object_id = ? AND start BETWEEN ? AND ?"
                low, high = (0, _START_MAX) if start is None else (start, start)
                found += [copy_id for (copy_id,) in connection.execute(sql, (object_id, low, high))]
            _delete(connection, found)
            connection.execute("COMMIT")

    def start_anew(self) -> None:
        """Begin the next file, after damage, unless another process has. Raises `Unusable`, `Busy`."""
        damaged = max(self._reader.number, self._writer.number)
        self.close()
        if self._numbers()[-1:] <= [damaged]:
            self._writer.open(damaged + 1)

    def disk_bytes(self) -> int:
        """What all files take."""
        total = 0
        with suppress(OSError):
            for entry in os.scandir(self.folder):
                with suppress(OSError):
                    total += entry.stat().st_size
        return total

    def _begin(self, connection: sqlite3.Connection, logged_bytes: int) -> None:
        """Begin to write, with room in the log."""
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            if self._log_bytes() + logged_bytes <= self.log_bytes_max:
                return
            connection.execute("ROLLBACK")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute("BEGIN IMMEDIATE")
        if self._log_bytes() + logged_bytes > self.log_bytes_max:
            connection.execute("ROLLBACK")
            raise Busy("the log cannot be emptied: others read")

    def _log_bytes(self) -> int:
        try:
            return os.stat(self._writer.path + "-wal").st_size
        except OSError:
            return 0

    def _make_room(self, connection: sqlite3.Connection, num_pages: int) -> tuple[int, bool]:
        """Remove what was used longest ago until so many pages are free, and some more, as far as one transaction goes.

        How many were removed, and whether that is enough.
        """
        num_evicted, least = 0, num_pages + _SPARE_PAGES
        wanted = least
        while (free := self._free_pages(connection)) < wanted:
            wanted = least + self.pages_max // _EVICTED_SHARE
            num_at_once = min(8, self.batch_copies_max - num_evicted)
            rows = connection.execute("SELECT id FROM copy ORDER BY used, id LIMIT ?", (num_at_once,)).fetchall()
            if not rows:
                if free < least and not num_evicted:
                    raise Damaged(f"no copy is left, but only {free} of {self.pages_max} pages are free")
                break
            _delete(connection, [copy_id for (copy_id,) in rows])
            num_evicted += len(rows)
        return num_evicted, free >= least

    def _free_pages(self, connection: sqlite3.Connection) -> int:
        return self.pages_max - _number(connection, "page_count") + _number(connection, "freelist_count")

    def _shrink(self, connection: sqlite3.Connection) -> int:
        """Bring a file that was made with a larger bound below this one. How many copies were removed."""
        num_evicted, num_at_once = 0, self.log_bytes_max // (4 * PAGE_BYTES)
        while (excess := _number(connection, "page_count") - self.pages_max) > 0:
            self._begin(connection, self.log_bytes_max // 2)
            rows = connection.execute("SELECT id FROM copy ORDER BY used, id LIMIT ?", (self.batch_copies_max,))
            for (copy_id,) in rows.fetchall():
                if _number(connection, "freelist_count") >= min(excess, num_at_once):
                    break
                _delete(connection, [copy_id])
                num_evicted += 1
            connection.execute(f"PRAGMA incremental_vacuum({min(excess, num_at_once)})").fetchall()
            is_less = _number(connection, "page_count") < excess + self.pages_max
            connection.execute("COMMIT")
            if not is_less:
                raise Damaged("the file does not shrink")
            if excess <= num_at_once:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return num_evicted

    def _numbers(self) -> list[int]:
        """Numbers of the files that are there, ascending."""
        try:
            found = [int(match[1]) for name in os.listdir(self.folder) if (match := _FILE.match(name))]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Unusable(str(error)) from error
        return sorted(found)

    def path_of(self, number: int) -> str:
        """The file of a number."""
        return os.path.join(self.folder, f"ranges-{number}.sqlite")


class _Connection:
    """One connection to the file in use, within which `with` gives the connection and translates errors."""

    def __init__(self, of: RangeDatabase, wait_s: float) -> None:
        self._of = of
        self._wait_s = wait_s
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode
        self.number = 0
        self.path = ""

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
        if isinstance(error, sqlite3.Error | TypeError | ValueError | OverflowError):
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY and os.access(self.path, os.W_OK):
                raise Damaged("a writable file says that it is none") from error
            raise _translated(error) from error

    def _is_current(self) -> bool:
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def open(self, number: int | None = None) -> None:
        """Open the file of the highest number, or make the one of this number. Raises `Unusable`, `Busy`, `Damaged`."""
        of = self._of
        try:
            os.makedirs(of.folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise Unusable(str(error)) from error
        there = of._numbers()
        is_new = number is not None or not there
        number = number or (there[-1] if there else 1)
        path = of.path_of(number)
        uri = f"file:{_quoted(path)}?mode={'rwc' if is_new else 'rw'}"
        try:
            connection = sqlite3.connect(
                uri, uri=True, timeout=self._wait_s, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise Unusable(str(error)) from error
        try:
            self._prepare(connection)
            found = os.stat(path)
        except sqlite3.Error as error:
            connection.close()
            self.number = number
            raise _translated(error) from error
        except OSError as error:  # removed at this moment
            connection.close()
            raise Busy(str(error)) from error
        self._connection, self._file = connection, (found.st_dev, found.st_ino)
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
        of = self._of
        numbers = of._numbers()
        newest = numbers[-1] if numbers else self.number
        for number in numbers:
            if number < newest:
                for end in ("", "-wal", "-shm", "-journal"):
                    with suppress(OSError):
                        os.remove(of.path_of(number) + end)
        if self.number < newest:
            self.close()
            raise Busy("another process has begun a new file")

    def close(self) -> None:
        """Close it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _find(connection: sqlite3.Connection, name: CopyName, now: int, damaged: list[int]) -> FoundCopy | None:
    object_id, start, end, is_range = name
    row = connection.execute(_FIND_EXACT, (object_id, start, end)).fetchone()
    if row is None and is_range:
        row = connection.execute(_FIND_AROUND, (object_id, start, end)).fetchone()
    if row is None:
        return None
    copy_id, copy_start, copy_end, used, checksum, body = row
    if (
        type(body) is not bytes
        or (is_range and len(body) != copy_end - copy_start)
        or checksum_of((object_id, copy_start, copy_end), body) != checksum
    ):
        damaged.append(copy_id)
        return None
    data = memoryview(body)
    if is_range:
        data = data[start - copy_start : end - copy_start]
    return FoundCopy(data, copy_id, used < now)


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    """What a pragma says."""
    (number,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(number)


def _insert_all(connection: sqlite3.Connection, copies: Sequence[tuple[CopyName, Any]]) -> None:
    if copies:
        connection.execute("UPDATE clock SET now = now + 1")
        (now,) = connection.execute("SELECT now FROM clock").fetchone()
        for name, data in copies:
            _insert(connection, name, data, now)


def _insert(connection: sqlite3.Connection, name: CopyName, data: Any, now: int) -> None:
    object_id, start, end, is_range = name
    row = connection.execute(
        "SELECT id FROM copy WHERE object_id = ? AND start = ? AND end = ?", (object_id, start, end)
    ).fetchone()
    if row is not None:  # another process has kept it meanwhile; what is no range may have changed
        if is_range:
            return
        _delete(connection, [row[0]])
    checksum = checksum_of((object_id, start, end), data)
    added = connection.execute(
        "INSERT INTO copy (object_id, start, end, used, checksum) VALUES (?, ?, ?, ?, ?)",
        (object_id, start, end, now, checksum),
    )
    connection.execute("INSERT OR REPLACE INTO body (id, data) VALUES (?, ?)", (added.lastrowid, data))


def _delete(connection: sqlite3.Connection, copy_ids: Sequence[int]) -> None:
    rows = [(copy_id,) for copy_id in copy_ids]
    connection.executemany("DELETE FROM body WHERE id = ?", rows)
    connection.executemany("DELETE FROM copy WHERE id = ?", rows)


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
