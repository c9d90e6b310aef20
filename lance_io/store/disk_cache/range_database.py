"""Copies of byte ranges in two files, within a limit of their size on disk: an SQLite index, and the bytes.

Every copy has a checksum over its name and bytes, which is verified on each read: even if the files are damaged in
other ways, wrong bytes are never returned. So nothing is flushed to the disk, and a power loss costs only copies.

The limit holds for all files together (`database_files.py`). The index has a limit of pages, the file of bytes one of
blocks (`free_blocks.py`); free space is reused, and the least recently used copies are evicted to make room. The
journal contains the pages that one transaction changes, so transactions are small.

Bytes are written under the writers' lock, and read by a kernel, many copies at once, without any lock. If a writer
has begun to write bytes since the lookup in the index, the reader checks the index again, and drops copies whose
blocks were freed meanwhile.

Every method blocks. Two threads at most: one reads (`find_many`), one writes (all other methods).
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from lance_io import _kernels
from lance_io.limits import KIB, MIB
from lance_io.records import dataclass
from lance_io.runtime import cpu_count
from lance_io.store.disk_cache.database_files import (
    PAGE_BYTES,
    Busy,
    Connection,
    Damaged,
)
from lance_io.store.disk_cache.fixed_objects import ID_BYTES, CopyName
from lance_io.store.disk_cache.free_blocks import (
    BLOCK_BYTES,
    blocks_of,
    cut_free,
    cut_runs,
    decode_places,
    encode_places,
    free_blocks,
    take_blocks,
)
from lance_io.store.disk_cache.private_folder import Refused, Unusable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

__all__ = ["CAPACITY_BYTES_MIN", "Busy", "Damaged", "RangeDatabase", "Refused", "Unusable"]

CAPACITY_BYTES_MIN: Final = 4 * MIB  # less is all journal and index
COPY_BYTES_MAX: Final = 16 * MIB  # longest copy
CANDIDATES_MAX: Final = 8  # copies that begin before a requested range, checked whether they reach its end
READ_WAIT_S: Final = 0.05  # timeout for commits, which write some pages; and for recovery after a kill
WRITE_WAIT_S: Final = 2.0
_JOURNAL_BYTES: Final = (1 * MIB, 16 * MIB)  # of `-journal`: a sixteenth of the limit, within these bounds
_INDEX_BYTES_MIN: Final = 512 * KIB  # a sixteenth of the limit, at least this
_PAGES_BESIDE: Final = 3  # pages of a copy in the index: its row, its entries in two more trees
_SPARE_PAGES: Final = 16
_EVICTED_SHARE: Final = 64  # an eviction frees this share of the limit, so that not every write has to evict
_JOURNALED_PAGES: Final = 4  # per copy that is inserted, deleted or marked: rows and entries in trees
_GIVEN_BACK_SHARE: Final = 16  # the index shrinks by this share of the journal's pages at once
_ROUNDS_MAX: Final = 64  # transactions that make room for one insertion
_START_MAX: Final = (1 << 63) - 1
_NAME: Final = struct.Struct(f"<{ID_BYTES}sqq")
_FIELDS: Final = "id, start, end, used, checksum, places"
_FIND_AROUND: Final = (
    f"SELECT {_FIELDS} FROM (SELECT * FROM copy WHERE object_id = ? AND start <= ?"
    f" ORDER BY start DESC, end DESC LIMIT {CANDIDATES_MAX}) WHERE end >= ? LIMIT 1"
)
_STARTS_AT_ONCE: Final = 64  # per statement, which has a fixed number of parameters: the last start fills the rest
_FIND_EXACT: Final = f"SELECT {_FIELDS} FROM copy WHERE object_id = ? AND start IN ({', '.join('?' * _STARTS_AT_ONCE)})"

ObjectCopies: TypeAlias = "tuple[bytes, int | None]"
"""The copies of one object that begin at an offset, or all of them."""

_Row: TypeAlias = "tuple[int, int, int, int, int, bytes]"
"""The `_FIELDS` of a copy, unless the index is damaged."""


class FoundCopy(NamedTuple):
    """A copy, or a part of a larger one.

    data      its bytes: in the caller's memory, if that could be used
    is_stale  other copies were added since its latest use: it should be marked as used
    """

    data: memoryview
    copy_id: int
    is_stale: bool


@dataclass(slots=True)
class LookupResult:
    """Result of a lookup.

    copies   of each name, or None
    damaged  ids of copies with a wrong checksum
    """

    copies: list[FoundCopy | None]
    damaged: list[int]


def checksum_of(key: bytes, name: tuple[bytes, int, int], data: Any) -> int:
    """CRC-32 of the files' key, a copy's name and bytes: it detects every burst of up to 32 bits."""
    return zlib.crc32(data, zlib.crc32(key + _NAME.pack(*name)))


class RangeDatabase:
    """See the module's docstring.

    folder          created on first use; only its owner may access it
    capacity_bytes  limit of the size of all files, at least `CAPACITY_BYTES_MIN`
    """

    def __init__(self, folder: str, capacity_bytes: int) -> None:
        self.folder = folder
        self.capacity_bytes = capacity_bytes
        self.journal_bytes_max = min(max(_JOURNAL_BYTES[0], capacity_bytes // 16), _JOURNAL_BYTES[1])
        self.pages_max = max(_INDEX_BYTES_MIN, capacity_bytes // 16) // PAGE_BYTES
        left_bytes = capacity_bytes - self.journal_bytes_max - self.pages_max * PAGE_BYTES
        self.blocks_max = left_bytes // BLOCK_BYTES
        self.batch_bytes_max = min(COPY_BYTES_MAX, self.blocks_max * BLOCK_BYTES // 8)
        # A fifth of the journal each is for the entries of copies that are inserted, deleted and marked.
        self.batch_copies_max = self.journal_bytes_max // (5 * _JOURNALED_PAGES * PAGE_BYTES)
        self._reader = Connection(self, READ_WAIT_S, writes=False)
        self._writer = Connection(self, WRITE_WAIT_S, writes=True)

    @property
    def is_open(self) -> bool:
        """Whether the files are open."""
        return self._reader.bytes_file >= 0

    def close(self) -> None:
        """Close both connections, which the next call opens again; call it while neither thread is in a call."""
        self._reader.close()
        self._writer.close()

    # -- reading ------------------------------------------------------------------------------------------------

    def find_many(
        self, wanted: Sequence[CopyName], memories: Sequence[memoryview | None] | None = None
    ) -> LookupResult:
        """Copies with valid checksums. Raises `Damaged`, `Unusable`, `Busy`.

        memories  for each name None or writable memory of its length: destination of the copy, unless it is a part of
                  a larger one; undefined content after a miss
        """
        memories = memories or [None] * len(wanted)
        with self._reader as connection:
            writes = self._reader.writes_begun()
            now, freed = self._reader.begin_reading(connection)
            rows = _look_up(connection, wanted)
            connection.execute("COMMIT")
            data_of_rows = self._read(wanted, memories, rows)
            if self._reader.writes_begun() != writes:
                if self._reader.begin_reading(connection)[1] != freed:
                    rows = [row if row is not None and _is_there(connection, row) else None for row in rows]
                connection.execute("COMMIT")
            findings = LookupResult([], [])
            for row, data in zip(rows, data_of_rows, strict=True):
                if row is None or data is None:
                    findings.copies.append(None)
                    if row is not None:
                        findings.damaged.append(row[0])
                else:
                    findings.copies.append(FoundCopy(data, row[0], row[3] < now))
            return findings

    def _read(
        self, wanted: Sequence[CopyName], memories: Sequence[memoryview | None], rows: Sequence[_Row | None]
    ) -> list[memoryview | None]:
        """The bytes of copies in the index, if their checksums are valid; without a transaction."""
        copies, key = [], self._reader.key
        for name, memory, row in zip(wanted, memories, rows, strict=True):
            if row is not None:
                _, start, end, _, checksum, places = row
                is_whole = (start, end) == (name.start, name.end)
                beside = key + _NAME.pack(name.object_id, start, end)
                copies.append((beside, places, checksum, memory if is_whole else None))
        answers = iter(_kernels.read_copies(self._reader.bytes_file, copies, COPY_BYTES_MAX, cpu_count()))
        buffers: list[memoryview | None] = []
        for name, memory, row in zip(wanted, memories, rows, strict=True):
            answer = False if row is None else next(answers)
            if row is None or answer is False:
                buffers.append(None)
            elif answer is True:
                buffers.append(memory)
            else:
                data, (_, start, end, *_) = memoryview(answer), row
                if not name.is_range:
                    buffers.append(data)
                else:
                    buffers.append(data[name.start - start : name.end - start] if len(data) == end - start else None)
        return buffers

    # -- writing ------------------------------------------------------------------------------------------------

    def keep_many(self, copies: Sequence[tuple[CopyName, Any]], used: Iterable[int]) -> int:
        """Insert copies, and mark others as used.

        copies  at most `batch_copies_max` with together `batch_bytes_max`
        used    ids, at most `batch_copies_max`

        Returns the number of evicted copies. Raises `Damaged`, `Unusable`, `Busy`.
        """
        num_blocks = sum(blocks_of(len(data)) for _, data in copies)
        num_pages = len(copies) * _PAGES_BESIDE + _SPARE_PAGES
        marks = list(used)
        with self._writer as connection:
            num_evicted = self._fit(connection)
            for _ in range(_ROUNDS_MAX):
                connection.execute("BEGIN IMMEDIATE")
                if marks:
                    sql = "UPDATE copy SET used = (SELECT now FROM clock) + ? WHERE id = ?"
                    connection.executemany(sql, [(bool(copies), copy_id) for copy_id in marks])
                    marks = []
                is_room = not copies or self._has_room(connection, num_blocks, num_pages)
                if is_room:
                    self._insert_all(connection, copies)
                else:
                    num_evicted += self._evict(connection, num_blocks, num_pages)
                self._writer.commit(connection)
                if is_room:
                    return num_evicted
            raise Busy("other processes use the room that was made")

    def remove(self, copy_ids: Iterable[int], objects: Iterable[ObjectCopies] = ()) -> None:
        """Remove copies by id, at most `batch_copies_max`, and those of objects. Raises as `keep_many`."""
        with self._writer as connection:
            ids = list(copy_ids)
            for object_id, start in objects:
                sql = "SELECT id FROM copy WHERE object_id = ? AND start BETWEEN ? AND ?"
                low, high = (0, _START_MAX) if start is None else (start, start)
                ids += [copy_id for (copy_id,) in connection.execute(sql, (object_id, low, high))]
            for at in range(0, len(ids), self.batch_copies_max):
                connection.execute("BEGIN IMMEDIATE")
                _delete(connection, ids[at : at + self.batch_copies_max])
                self._writer.commit(connection)

    def start_new_files(self) -> None:
        """Replace damaged files, unless another process has done so. Raises `Unusable`, `Busy`."""
        damaged = max(self._reader.number, self._writer.number)
        self.close()
        self._writer.open(above=damaged)

    def disk_bytes(self) -> int:
        """Size of all files, as the writing thread sees them."""
        return self._writer.files_bytes()

    def _has_room(self, connection: sqlite3.Connection, num_blocks: int, num_pages: int) -> bool:
        free_pages = self.pages_max - _number(connection, "page_count") + _number(connection, "freelist_count")
        (num_free,) = connection.execute("SELECT free_blocks FROM clock").fetchone()
        return bool(num_free >= num_blocks and free_pages >= num_pages)

    def _evict(self, connection: sqlite3.Connection, num_blocks: int, num_pages: int) -> int:
        """Evict the least recently used copies until there is room, and some more, within one transaction's limit.

        Returns the number of evicted copies.
        """
        num_blocks += self.blocks_max // _EVICTED_SHARE
        num_pages += self.pages_max // _EVICTED_SHARE
        num_evicted = 0
        while num_evicted < self.batch_copies_max and not self._has_room(connection, num_blocks, num_pages):
            num_at_once = min(8, self.batch_copies_max - num_evicted)
            rows = connection.execute("SELECT id FROM copy ORDER BY used, id LIMIT ?", (num_at_once,)).fetchall()
            if not rows:
                if not num_evicted:
                    raise Damaged("no copy is left, and there is no room")
                break
            _delete(connection, [copy_id for (copy_id,) in rows])
            num_evicted += len(rows)
        return num_evicted

    def _insert_all(self, connection: sqlite3.Connection, copies: Sequence[tuple[CopyName, Any]]) -> None:
        """Insert copies, with room for all. Copies of other processes stay, unless they may have changed."""
        wanted: dict[CopyName, Any] = dict(copies)
        replaced = []
        for name in list(wanted):
            sql = "SELECT id FROM copy WHERE object_id = ? AND start = ? AND end = ?"
            row = connection.execute(sql, name[:3]).fetchone()
            if row is not None and name.is_range:
                del wanted[name]
            elif row is not None:
                replaced.append(row[0])
        if not wanted:
            return
        sizes = [len(data) for data in wanted.values()]
        runs = cut_runs(take_blocks(connection, sum(map(blocks_of, sizes))), sizes)
        _delete(
            connection, replaced
        )  # after taking blocks: blocks of a replaced copy must not be written to in this transaction
        connection.execute("UPDATE clock SET now = now + 1")
        (now,) = connection.execute("SELECT now FROM clock").fetchone()
        self._writer.begin_writing()
        rows = []
        for (name, data), own in zip(wanted.items(), runs, strict=True):
            bytes_left = memoryview(data).cast("B")
            for block, blocks in own:
                _write(self._writer.bytes_file, bytes_left[: blocks * BLOCK_BYTES], block * BLOCK_BYTES)
                bytes_left = bytes_left[blocks * BLOCK_BYTES :]
            rows.append((*name[:3], now, checksum_of(self._writer.key, name[:3], data), encode_places(own, len(data))))
        sql = "INSERT INTO copy (object_id, start, end, used, checksum, places) VALUES (?, ?, ?, ?, ?, ?)"
        connection.executemany(sql, rows)

    # -- other limits -------------------------------------------------------------------------------------------

    def _fit(self, connection: sqlite3.Connection) -> int:
        """Adapt files that were made with another limit to this one. Returns the number of evicted copies."""
        num_evicted = 0
        while (num_blocks := _blocks(connection)) != self.blocks_max:
            connection.execute("BEGIN IMMEDIATE")
            num_blocks = _blocks(connection)
            if num_blocks < self.blocks_max:
                connection.execute("UPDATE clock SET blocks = ?", (self.blocks_max,))
                free_blocks(connection, [(num_blocks, self.blocks_max - num_blocks)])
            else:
                behind = _copies_behind(connection, self.blocks_max, self.batch_copies_max)
                _delete(connection, behind)
                num_evicted += len(behind)
                if len(behind) < self.batch_copies_max:
                    cut_free(connection, self.blocks_max)
            self._writer.commit(connection)
        if os.fstat(self._writer.bytes_file).st_size > self.blocks_max * BLOCK_BYTES:
            connection.execute("BEGIN IMMEDIATE")  # excludes writers
            if _blocks(connection) <= self.blocks_max:
                self._writer.begin_writing()
                os.ftruncate(self._writer.bytes_file, self.blocks_max * BLOCK_BYTES)
            connection.execute("ROLLBACK")
        return num_evicted + self._shrink_index(connection)

    def _shrink_index(self, connection: sqlite3.Connection) -> int:
        num_evicted, before, num_at_once = 0, -1, self.journal_bytes_max // (_GIVEN_BACK_SHARE * PAGE_BYTES)
        while (excess := _number(connection, "page_count") - self.pages_max) > 0:
            connection.execute("BEGIN IMMEDIATE")
            rows = connection.execute("SELECT id FROM copy ORDER BY used, id LIMIT ?", (self.batch_copies_max,))
            for (copy_id,) in rows.fetchall():
                if _number(connection, "freelist_count") >= min(excess, num_at_once):
                    break
                _delete(connection, [copy_id])
                num_evicted += 1
            connection.execute(f"PRAGMA incremental_vacuum({min(excess, num_at_once)})").fetchall()
            is_less = _number(connection, "page_count") < excess + self.pages_max
            self._writer.commit(connection)
            if not is_less and num_evicted == before:
                raise Damaged("the index does not shrink")
            before = num_evicted
        return num_evicted


def _look_up(connection: sqlite3.Connection, wanted: Sequence[CopyName]) -> list[_Row | None]:
    """The index entries of names: the copy itself, or one around it. One statement for many names of an object."""
    starts: dict[bytes, set[int]] = {}
    for name in wanted:
        starts.setdefault(name.object_id, set()).add(name.start)
    by_name: dict[tuple[bytes, int, int], _Row] = {}
    for object_id, unordered in starts.items():
        ordered = sorted(unordered)
        for at in range(0, len(ordered), _STARTS_AT_ONCE):
            some = ordered[at : at + _STARTS_AT_ONCE]
            some += some[-1:] * (_STARTS_AT_ONCE - len(some))
            for row in connection.execute(_FIND_EXACT, (object_id, *some)):
                by_name[object_id, row[1], row[2]] = row
    rows = []
    for name in wanted:
        row = by_name.get(name[:3])
        if row is None and name.is_range:
            row = connection.execute(_FIND_AROUND, name[:3]).fetchone()
        rows.append(row)
    return rows


def _is_there(connection: sqlite3.Connection, row: _Row) -> bool:
    """Whether a copy is still at the same location."""
    sql = "SELECT 1 FROM copy WHERE id = ? AND checksum = ? AND places = ?"
    return connection.execute(sql, (row[0], *row[4:])).fetchone() is not None


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    """Value of a pragma."""
    (number,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(number)


def _blocks(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT blocks FROM clock").fetchone()
    return int(number)


def _copies_behind(connection: sqlite3.Connection, end: int, num_max: int) -> list[int]:
    """Ids of copies that extend beyond a block."""
    copy_ids: list[int] = []
    for copy_id, places in connection.execute("SELECT id, places FROM copy"):
        if any(block + blocks > end for block, blocks in decode_places(places)):
            copy_ids.append(copy_id)
            if len(copy_ids) == num_max:
                break
    return copy_ids


def _delete(connection: sqlite3.Connection, copy_ids: Sequence[int]) -> None:
    """Remove copies; missing ones are ignored."""
    runs = []
    for copy_id in copy_ids:
        row = connection.execute("SELECT places FROM copy WHERE id = ?", (copy_id,)).fetchone()
        if row is not None:
            runs += decode_places(row[0])
            connection.execute("DELETE FROM copy WHERE id = ?", (copy_id,))
    if runs:
        free_blocks(connection, runs)


def _write(file: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
