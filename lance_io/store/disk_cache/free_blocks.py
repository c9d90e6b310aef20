"""Free blocks of the file of bytes, as a table of runs in the index.

Blocks that a transaction frees are used only by later ones: a transaction that rolls back has overwritten no live
copy, and `clock.freed` shows readers whether blocks may have been overwritten meanwhile.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from lance_io.limits import KIB
from lance_io.store.disk_cache.database_files import Damaged

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

BLOCK_BYTES: Final = KIB
FIRST_BLOCK: Final = 1  # the first block holds the key
_PLACE: Final = struct.Struct("<qq")  # start and length in bytes

Runs = list[tuple[int, int]]
"""First block and number of blocks of each run."""


def blocks_of(num_bytes: int) -> int:
    """Blocks that `num_bytes` need."""
    return -(-num_bytes // BLOCK_BYTES)


def take_blocks(connection: sqlite3.Connection, num_blocks: int) -> Runs:
    """Take free blocks, the first ones of the file. Raises `Damaged` if there are fewer than the index says."""
    taken: Runs = []
    missing = num_blocks
    for block, blocks in connection.execute("SELECT block, blocks FROM free ORDER BY block"):
        taken.append((block, min(blocks, missing)))
        missing -= taken[-1][1]
        if missing <= 0:
            break
    if taken and taken[0][0] < FIRST_BLOCK:
        raise Damaged("the block of the key is free")
    if missing:
        raise Damaged(f"{missing} of {num_blocks} blocks are not free")
    last, last_taken = taken[-1]
    (blocks,) = connection.execute("SELECT blocks FROM free WHERE block = ?", (last,)).fetchone()
    connection.execute("DELETE FROM free WHERE block <= ?", (last,))
    if blocks > last_taken:
        connection.execute("INSERT INTO free (block, blocks) VALUES (?, ?)", (last + last_taken, blocks - last_taken))
    connection.execute("UPDATE clock SET free_blocks = free_blocks - ?", (num_blocks,))
    return taken


def free_blocks(connection: sqlite3.Connection, runs: Iterable[tuple[int, int]]) -> None:
    """Free used or new blocks. Raises `Damaged` if some are free already or outside of the file."""
    (end,) = connection.execute("SELECT blocks FROM clock").fetchone()
    num_blocks = 0
    for block, blocks in runs:
        _join(connection, block, blocks, end)
        num_blocks += blocks
    connection.execute("UPDATE clock SET freed = freed + 1, free_blocks = free_blocks + ?", (num_blocks,))


def _join(connection: sqlite3.Connection, block: int, blocks: int, end: int) -> None:
    """Add a run to the free ones, merged with its neighbours."""
    if not (FIRST_BLOCK <= block < block + blocks <= end):
        raise Damaged(f"blocks {block} to {block + blocks} of {end}")
    near = "SELECT block, blocks FROM free WHERE block <= ? ORDER BY block DESC LIMIT 1"
    before = connection.execute(near, (block,)).fetchone()
    after = connection.execute("SELECT block, blocks FROM free WHERE block > ? ORDER BY block LIMIT 1", (block,))
    following = after.fetchone()
    if (before and sum(before) > block) or (following and following[0] < block + blocks):
        raise Damaged(f"blocks {block} to {block + blocks} are free already")
    if following and following[0] == block + blocks:
        connection.execute("DELETE FROM free WHERE block = ?", (following[0],))
        blocks += following[1]
    if before and sum(before) == block:
        connection.execute("UPDATE free SET blocks = ? WHERE block = ?", (before[1] + blocks, before[0]))
    else:
        connection.execute("INSERT INTO free (block, blocks) VALUES (?, ?)", (block, blocks))


def cut_free(connection: sqlite3.Connection, end: int) -> None:
    """Truncate the file at a block after which all are free."""
    runs = connection.execute("SELECT block, blocks FROM free WHERE block + blocks > ?", (end,)).fetchall()
    connection.execute("DELETE FROM free WHERE block + blocks > ?", (end,))
    kept = [(block, end - block) for block, _ in runs if block < end]
    connection.executemany("INSERT INTO free (block, blocks) VALUES (?, ?)", kept)
    gone = sum(blocks for _, blocks in runs) - sum(blocks for _, blocks in kept)
    connection.execute("UPDATE clock SET blocks = ?, free_blocks = free_blocks - ?", (end, gone))


def cut_runs(runs: Runs, sizes_bytes: Sequence[int]) -> list[Runs]:
    """Split the runs of `take_blocks` among several copies, in their order."""
    left = list(reversed(runs))
    cut: list[Runs] = []
    for size_bytes in sizes_bytes:
        missing = blocks_of(size_bytes)
        own: Runs = []
        while missing:
            block, blocks = left.pop()
            own.append((block, min(blocks, missing)))
            missing -= own[-1][1]
            if blocks > own[-1][1]:
                left.append((block + own[-1][1], blocks - own[-1][1]))
        cut.append(own)
    return cut


def encode_places(runs: Runs, num_bytes: int) -> bytes:
    """Location of a copy, in the index's format: start and length in bytes of each run."""
    extents = []
    for block, blocks in runs:
        length = min(num_bytes, blocks * BLOCK_BYTES)
        extents.append(_PLACE.pack(block * BLOCK_BYTES, length))
        num_bytes -= length
    return b"".join(extents)


def decode_places(places: bytes) -> Runs:
    """The runs of blocks. Raises `Damaged` for anything that `encode_places` cannot have returned."""
    if type(places) is not bytes or len(places) % _PLACE.size:
        raise Damaged("an invalid location")
    extents = list(_PLACE.iter_unpack(places))
    if any(start % BLOCK_BYTES or start < 0 or length <= 0 for start, length in extents):
        raise Damaged("an invalid location")
    return [(start // BLOCK_BYTES, blocks_of(length)) for start, length in extents]
