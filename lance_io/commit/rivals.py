"""Fairness between processes that commit to one table: pauses after lost races, and yielding after won ones.

A winner could commit again at once, with the newest version at hand, while the losers pause. And the more versions a
writer has missed, the longer its next attempt takes, because it has to read them. With pauses that grow with every
loss, a few writers create nearly all versions. Therefore:

- A pause after a lost race is at most a few times as long as an attempt, however many were lost. After the first loss
  there is none: the files are in place, so that another attempt takes less time than the winner's next commit.
- A winner yields for about as long, if it met others lately. That time counts from its last version, so that it
  includes writing its next files. A process that is alone never waits.
- Another library may wait longer: pylance pauses for up to 127 times its first attempt, and many versions behind, its
  attempts take ten times as long. The rarer its versions are among those of others, the longer we yield.
"""

from __future__ import annotations

from typing import Final

from lance_io.records import dataclass
from lance_io.table.manifest.manifest import LIBRARY

PAUSE_SLOTS_MAX: Final = 4.0  # the longest pause after a lost race, in attempts; longer pauses starve a writer
COURTESY_SLOTS: Final = 4.0  # how long the winner yields at most, in attempts: as long as the others pause
FOREIGN_SLOTS: Final = 5.0  # the same beside another library that creates all other versions; divided by its share
FOREIGN_SLOTS_MAX: Final = 32.0
COURTESY_MAX_S: Final = 1.0  # less than the lease of the commit queue
COMMITS_NEAR: Final = 64  # commits of this process after which rivals not met again are forgotten
_WEIGHT: Final = 0.125  # weight of the last observation in a mean
_OUTLIER: Final = 4.0  # times the mean; longer attempts count as this long: the machine was busy otherwise


@dataclass(slots=True)
class Rivals:
    """Statistics on other processes that commit to one table. Only the commit that holds the lease uses them.

    attempt_s      duration of an attempt, from its listing to its outcome; a mean
    near           number of commits for which others are assumed to be active
    foreign_near   the same for another library
    foreign_share  share of that library in the versions of others; a mean
    """

    attempt_s: float = 0.0
    near: int = 0
    foreign_near: int = 0
    foreign_share: float = 1.0

    def record_attempt(self, attempt_s: float, *, is_whole: bool) -> None:
        """Record the duration of an attempt; `is_whole`: it includes a listing, as the next attempt will."""
        if not self.attempt_s:
            self.attempt_s = attempt_s
        if is_whole:
            self.attempt_s += _WEIGHT * (min(attempt_s, _OUTLIER * self.attempt_s) - self.attempt_s)

    def record_loss(self) -> None:
        """Record a lost race."""
        self.near = COMMITS_NEAR

    def record_version(self, writer: str) -> None:
        """Record a version of another process; `writer`: its library and version."""
        self.near = COMMITS_NEAR
        is_foreign = writer.partition(" ")[0] != LIBRARY
        if is_foreign and not self.foreign_near:
            self.foreign_share = 1.0
        if is_foreign:
            self.foreign_near = COMMITS_NEAR
        self.foreign_share += _WEIGHT * (is_foreign - self.foreign_share)

    def pause_max_s(self, num_lost: int, attempts_max: int | None = None) -> float:
        """Upper bound of the pause after `num_lost` lost races in a row.

        attempts_max  attempts that the commit may make: after a quarter of them, pauses double with each loss, because
                      succeeding at all among many writers then matters more than fairness
        """
        slots = min(num_lost - 1, PAUSE_SLOTS_MAX)
        if attempts_max is not None and num_lost >= attempts_max // 4:
            slots = max(slots, 2.0 ** (num_lost - attempts_max // 4))
        return self.attempt_s * slots

    def courtesy_max_s(self) -> float:
        """Upper bound of the time that this process yields after its last version; each commit calls it once."""
        slots = COURTESY_SLOTS if self.near else 0.0
        if self.foreign_near:
            slots = FOREIGN_SLOTS / max(self.foreign_share, FOREIGN_SLOTS / FOREIGN_SLOTS_MAX)
        self.near, self.foreign_near = max(self.near - 1, 0), max(self.foreign_near - 1, 0)
        return min(slots * self.attempt_s, COURTESY_MAX_S)
