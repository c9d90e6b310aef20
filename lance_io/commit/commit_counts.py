"""Counts the commits of this process by operation and outcome."""

from __future__ import annotations

import threading
from typing import Final

from lance_io.records import dataclass
from lance_io.store.forking import survive_fork


@dataclass(slots=True)
class CommitCounts:
    """Counts for one operation.

    versions   versions created
    races      attempts that another writer won, after which the commit went on
    conflicts  commits refused because of a conflicting change, or because other writers won all attempts
    unknown    commits whose deciding write got no answer and could not be read back
    """

    versions: int = 0
    races: int = 0
    conflicts: int = 0
    unknown: int = 0


@dataclass(slots=True)
class GroupCounts:
    """Counts for group commits.

    versions  versions created
    appends   appends in these versions
    """

    versions: int = 0
    appends: int = 0


class ProcessCommits:
    """The counts of this process; thread-safe, and zero in a forked child."""

    def __init__(self) -> None:
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Reset all counts (after a fork)."""
        self._lock = threading.Lock()
        self._by_operation: dict[str, CommitCounts] = {}
        self._groups = GroupCounts()

    def add(self, operation: str, *, versions: int = 0, races: int = 0, conflicts: int = 0, unknown: int = 0) -> None:
        """Add to the counts of an operation, by its name in `LanceOperation`."""
        with self._lock:
            counts = self._by_operation.setdefault(operation, CommitCounts())
            counts.versions += versions
            counts.races += races
            counts.conflicts += conflicts
            counts.unknown += unknown

    def add_group(self, num_appends: int) -> None:
        """Count a version that holds a group of appends."""
        with self._lock:
            self._groups.versions += 1
            self._groups.appends += num_appends

    def by_operation(self) -> dict[str, CommitCounts]:
        """A copy of the counts."""
        with self._lock:
            return {
                name: CommitCounts(counts.versions, counts.races, counts.conflicts, counts.unknown)
                for name, counts in self._by_operation.items()
            }

    def groups(self) -> GroupCounts:
        """A copy of the counts of group commits."""
        with self._lock:
            return GroupCounts(self._groups.versions, self._groups.appends)


COMMITS: Final = ProcessCommits()
"""The counts of this process."""
