"""COMMITTING VERSIONS and finding committed ones (spec: commit protocol; table, section 3).

`lance_io.table` defines, without I/O, how a commit changes a table; this package does the I/O. Its functions are plans:
generators that yield requests to a store. A plan runs in the caller's thread or on an event loop.

table_location    resolves a URI to a location and its commit handler
latest            finds the newest version, a version by its number, or all versions
manifest_reads    reads the manifest of a committed version and its transaction
target            where and how to commit (table, handler, clock); a listing of versions; the result of a commit
commit_request    the change to commit, as `first_version` and `commit_loop` receive it
first_version     commits the first version of a new table
commit_loop       commits to an existing table: repeats attempts until one of them creates a version
commit_files      files of one change; which of them stay depends on the outcome of the commit
deciding_write    the write that makes a version exist; it cannot be cancelled
commit_queue      queues the commits of one process to one table
commit_counts     counts commits by outcome
rivals            fairness towards other processes: a pause after a lost race, a wait after a won race
rebase_reads      reads the deletion files for a rebase
fetched_versions  manifest files of newer versions that a commit has read
removed_versions  conflict check for versions that a cleanup removed before the commit could read them
other_names       decides between the V1 name and the V2 name of one version
handler           interface of commit handlers
put_absent        handler: the store decides by conditional creation
lock              handler: the user's lock decides
external          handler: a database beside the store decides
dynamodb          the database of `external`, on DynamoDB
cleanups          removes old versions
pins              pins old versions against removal while a writer builds on them
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.errors import CommitConflictError

if TYPE_CHECKING:
    from lance_io.commit.lock import CommitLock


def __getattr__(name: str) -> Any:
    """Load `CommitLock` on first use. Read paths import only `latest` from this package, and need no commit handler."""
    if name != "CommitLock":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lance_io.commit.lock import CommitLock

    return CommitLock


__all__ = ["CommitConflictError", "CommitLock"]
