"""What became of the commits of this process, by operation: counted at the one place that all of them pass."""

from __future__ import annotations

import threading
from typing import Final

from lance_io.records import dataclass
from lance_io.store.forking import survive_fork


@dataclass(slots=True)
class CommitCounts:
    """Of the commits of one operation.

    versions   made
    races      attempts that came second, after which the commit went on
    conflicts  commits that were refused: another one changed the same, or all attempts came second
    unknown    commits whose deciding write got no answer, and could not be read back
    """

    versions: int = 0
    races: int = 0
    conflicts: int = 0
    unknown: int = 0


@dataclass(slots=True)
class GroupCounts:
    """Of group commits.

    versions  made
    appends   that these hold
    """

    versions: int = 0
    appends: int = 0


class ProcessCommits:
    """The counts of this process; safe from any thread, and zero in a forked child."""

    def __init__(self) -> None:
        self.start_over()
        survive_fork(self)

    def start_over(self) -> None:
        """Begin at zero (after a fork)."""
        self._lock = threading.Lock()
        self._by_operation: dict[str, CommitCounts] = {}
        self._groups = GroupCounts()

    def add(self, operation: str, *, versions: int = 0, races: int = 0, conflicts: int = 0, unknown: int = 0) -> None:
        """Count for an operation, by its name in `LanceOperation`."""
        with self._lock:
            counts = self._by_operation.setdefault(operation, CommitCounts())
            counts.versions += versions
            counts.races += races
            counts.conflicts += conflicts
            counts.unknown += unknown

    def add_group(self, num_appends: int) -> None:
        """Count a version that a group of appends has made."""
        with self._lock:
            self._groups.versions += 1
            self._groups.appends += num_appends

    def by_operation(self) -> dict[str, CommitCounts]:
        """The counts now."""
        with self._lock:
            return {
                name: CommitCounts(one.versions, one.races, one.conflicts, one.unknown)
                for name, one in self._by_operation.items()
            }

    def groups(self) -> GroupCounts:
        """Those of group commits now."""
        with self._lock:
            return GroupCounts(self._groups.versions, self._groups.appends)


COMMITS: Final = ProcessCommits()
"""Those of this process."""
