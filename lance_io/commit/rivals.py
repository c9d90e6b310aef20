"""Fairness between processes that commit to one table: pauses after lost races, and yielding after won races.

A race is the creation of the next version: one process wins it, the others lose. A winner could commit again at once,
because it holds the newest version, while the losers pause. The more versions a writer has missed, the longer its next
attempt takes, because the writer has to read them. If pauses grew with every loss, a few writers would create nearly
all versions. Therefore:

- A pause after a lost race is at most a few times as long as an attempt, however many races were lost. After the first
  loss there is no pause: the data files are written, so the next attempt takes less time than the winner's next commit.
- A winner that met other processes lately yields: it waits before its next commit, for about as long as a loser pauses.
  The wait counts from its last version, so the time for writing its next data files is part of it. A process that is
  alone never waits.
- Writers of a foreign library may pause longer than a process of this library: pylance pauses for up to 127 times the
  duration of its first attempt, and its attempts take ten times as long when it is many versions behind. The foreign
  share is the part of all versions by other processes that a foreign library created. The smaller it is, the longer
  this process yields.
"""

from __future__ import annotations

from typing import Final

from lance_io.records import dataclass
from lance_io.table.manifest.manifest import LIBRARY

# These four are multiples of the mean duration of an attempt.
PAUSE_FACTOR_MAX: Final = 4.0  # longest pause after a lost race; longer pauses starve a writer
YIELD_FACTOR_MAX: Final = 4.0  # longest wait of a winner: as long as the losers pause
FOREIGN_YIELD_FACTOR: Final = 5.0  # longest wait of a winner if a foreign library created all other versions
FOREIGN_YIELD_FACTOR_MAX: Final = 32.0  # the same if a foreign library created only few of the other versions

YIELD_MAX_S: Final = 1.0  # less than the duration of a lease of the commit queue
REMEMBERED_COMMITS: Final = 64  # number of commits of this process for which it remembers a rival
_WEIGHT: Final = 0.125  # weight of the last observation in a moving average
_OUTLIER_FACTOR: Final = 4.0  # a longer attempt counts as this many means, because other work of the machine delayed it


@dataclass(slots=True)
class Rivals:
    """Statistics on other processes that commit to one table. Only the commit that holds the lease uses them.

    attempt_s            duration of an attempt, from its listing to its outcome; a moving average
    yields_left          number of further commits before which this process yields; each commit counts it down
    foreign_yields_left  number of further commits before which it yields longer, because a foreign library commits, too
    foreign_share        part of the versions by other processes that a foreign library created; a moving average
                         from 0 to 1
    """

    attempt_s: float = 0.0
    yields_left: int = 0
    foreign_yields_left: int = 0
    foreign_share: float = 1.0

    def record_attempt(self, attempt_s: float, *, began_with_listing: bool) -> None:
        """Record the duration of an attempt.

        began_with_listing  whether the attempt began with a listing, as the next attempt will; an attempt without a
                            listing is recorded only if it is the first
        """
        if not self.attempt_s:
            self.attempt_s = attempt_s
        if began_with_listing:
            self.attempt_s += _WEIGHT * (min(attempt_s, _OUTLIER_FACTOR * self.attempt_s) - self.attempt_s)

    def record_loss(self) -> None:
        """Record a lost race."""
        self.yields_left = REMEMBERED_COMMITS

    def record_version(self, writer: str) -> None:
        """Record a version by another process. writer: library and its version, separated by a space"""
        self.yields_left = REMEMBERED_COMMITS
        is_foreign = writer.partition(" ")[0] != LIBRARY
        if is_foreign and not self.foreign_yields_left:
            self.foreign_share = 1.0
        if is_foreign:
            self.foreign_yields_left = REMEMBERED_COMMITS
        self.foreign_share += _WEIGHT * (is_foreign - self.foreign_share)

    def pause_max_s(self, num_lost: int, attempts_max: int | None = None) -> float:
        """Upper bound of the pause after `num_lost` lost races in a row.

        attempts_max  number of attempts that the commit may make. After a quarter of them, pauses double with each
                      loss: success among many writers then matters more than fairness
        """
        factor = min(num_lost - 1, PAUSE_FACTOR_MAX)
        if attempts_max is not None and num_lost >= attempts_max // 4:
            factor = max(factor, 2.0 ** (num_lost - attempts_max // 4))
        return self.attempt_s * factor

    def next_yield_max_s(self) -> float:
        """Upper bound of the wait after the last version of this process. Counts down: call it once for each commit."""
        factor = YIELD_FACTOR_MAX if self.yields_left else 0.0
        if self.foreign_yields_left:
            factor = FOREIGN_YIELD_FACTOR / max(self.foreign_share, FOREIGN_YIELD_FACTOR / FOREIGN_YIELD_FACTOR_MAX)
        self.yields_left = max(self.yields_left - 1, 0)
        self.foreign_yields_left = max(self.foreign_yields_left - 1, 0)
        return min(factor * self.attempt_s, YIELD_MAX_S)
