"""COMMITTING VERSIONS and finding committed ones (spec: commit protocol; table, section 3).

Uses stores and the pure `table` room, which defines the meaning of a commit; the dataset room stands above. Everything
is a plan: a generator that yields requests to a store, run in the caller's thread or on an event loop.

table_location  resolves a URI to a location and its commit handler
latest          finds the newest version, a version by its number, all versions
record          reads committed manifests and their transactions
target          target, clock, inputs and results of a commit
first_version   creates a table
loop            the commit loop: changes a table
commit_request  the request of either
commit_files    files of one change, and the outcome of its commit
deciding_write  the write that decides a commit; cannot be cancelled
commit_queue    queues the commits of one process to one table
commit_counts   counts commits by outcome
rivals          commits of other processes: pauses after lost races, and yielding to them
rebase_reads    reads the deletion files for a rebase
handler         interface of commit handlers
put_absent      handler: the store decides, by conditional creation
lock            handler: the user's lock decides
external        handler: a database beside the store decides; dynamodb: that database
cleanups        removes old versions
pins            pins versions that a writer is about to name
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import CommitConflictError

if TYPE_CHECKING:
    from lance_io.commit.lock import CommitLock


def __getattr__(name: str) -> Any:
    """Load `CommitLock` on first use: reads import `latest` of this room, and need no commit handler."""
    if name != "CommitLock":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lance_io.commit.lock import CommitLock

    return CommitLock


__all__ = ["CommitConflictError", "CommitLock"]
