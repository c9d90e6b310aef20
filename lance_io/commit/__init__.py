"""MAKING A VERSION VISIBLE, and finding those that are (spec: commit protocol; table, section 3).

Uses stores and the pure `table` room, which knows what a commit means; the dataset room stands above. Everything is a
plan: a generator that yields what it asks of a store, run in the caller's thread or on an event loop.

table_location  from a URI to a place and its handler
latest          the newest version, a version by its number, all versions
record          a manifest as it was committed, and what made it
target          where a commit goes, by which clock, what it knows and gives back
first_version   creating a table
loop            the commit loop: changing one
commit_request  what either is asked for
commit_files    what one change has made for its commit, and the outcome of that
deciding_write  the write that decides, to its end
commit_queue    commits of one process to one table, one after the other
commit_counts   what became of them
rivals          commits of other processes: pauses after lost races, and giving way
rebase_reads    reading what a rebase needs
handler         what every way of making versions visible offers
put_absent      the store lets one of many creators win
lock            the user's lock does
external        a database beside the store does; dynamodb: that database
cleanups        removing old versions
pins            versions that somebody is about to name
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import CommitConflictError

if TYPE_CHECKING:
    from lance_io.commit.lock import CommitLock


def __getattr__(name: str) -> Any:
    """Loaded when asked for: reads import `latest` of this room, and need no way to commit."""
    if name != "CommitLock":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lance_io.commit.lock import CommitLock

    return CommitLock


__all__ = ["CommitConflictError", "CommitLock"]
