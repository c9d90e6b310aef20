"""Other processes that commit to the same table: how long to wait after a lost race, and how long to give way to them.

Whoever has just won would try again at once, with the newest version at hand, while those who lost wait; and the more
versions somebody has missed, the longer the next attempt takes, since they have to be read. If pauses grow with every
loss, a few writers make nearly all versions. Therefore:

- A pause after a lost race is at most some times as long as an attempt, however many were lost. After the first there
  is none: the files are in place, so that another attempt takes less time than the next commit of the winner.
- Who won gives way for about as long, if others were met lately. That time counts from its last version: what its next
  files take is part of it. A process that is alone never waits.
- Another library may wait longer: pylance does so for up to 127 times its first attempt, and behind many versions its
  attempts take ten times as long. The rarer its versions are among those of others, the longer we give way.
"""

from __future__ import annotations

from typing import Final

from lance_io.records import dataclass
from lance_io.table.manifest.manifest import LIBRARY

PAUSE_SLOTS_MAX: Final = 4.0  # the longest pause after a lost race, in attempts; longer ones are those of who starves
COURTESY_SLOTS: Final = 4.0  # how long the winner gives way at most, in attempts: as long as the others wait
FOREIGN_SLOTS: Final = 5.0  # the same beside another library that makes all other versions; divided by its share
FOREIGN_SLOTS_MAX: Final = 32.0
COURTESY_MAX_S: Final = 1.0  # less than the lease of a turn
COMMITS_NEAR: Final = 64  # of this process, after which others that were not met again are forgotten
_WEIGHT: Final = 0.125  # of the last observation in a mean
_OUTLIER: Final = 4.0  # times the mean; what an attempt takes longer is not counted: the machine did something else


@dataclass(slots=True)
class Rivals:
    """What this process knows of others that commit to one table. Used by the commit that has the turn.

    attempt_s      how long an attempt takes, from its listing to its outcome; a mean
    near           commits of this process during which others are believed to be there
    foreign_near   the same of another library
    foreign_share  of that library, in the versions of others; a mean
    """

    attempt_s: float = 0.0
    near: int = 0
    foreign_near: int = 0
    foreign_share: float = 1.0

    def took(self, attempt_s: float, *, is_whole: bool) -> None:
        """Note how long an attempt took; `is_whole`: with its listing, so that it says what the next one will take."""
        if not self.attempt_s:
            self.attempt_s = attempt_s
        if is_whole:
            self.attempt_s += _WEIGHT * (min(attempt_s, _OUTLIER * self.attempt_s) - self.attempt_s)

    def lost(self) -> None:
        """Note that another process was faster."""
        self.near = COMMITS_NEAR

    def meet(self, writer: str) -> None:
        """Note a version that another process made; `writer`: its library and version."""
        self.near = COMMITS_NEAR
        is_foreign = writer.partition(" ")[0] != LIBRARY
        if is_foreign and not self.foreign_near:
            self.foreign_share = 1.0
        if is_foreign:
            self.foreign_near = COMMITS_NEAR
        self.foreign_share += _WEIGHT * (is_foreign - self.foreign_share)

    def pause_max_s(self, num_lost: int, attempts_max: int | None = None) -> float:
        """How long to wait at most after so many lost races in a row.

        attempts_max  that the commit may make: when a quarter of them is gone, pauses double, for not to give up among
                      many writers matters more then than a share
        """
        slots = min(num_lost - 1, PAUSE_SLOTS_MAX)
        if attempts_max is not None and num_lost >= attempts_max // 4:
            slots = max(slots, 2.0 ** (num_lost - attempts_max // 4))
        return self.attempt_s * slots

    def courtesy_max_s(self) -> float:
        """How long after its last version this process gives way at most; asked once by each commit."""
        slots = COURTESY_SLOTS if self.near else 0.0
        if self.foreign_near:
            slots = FOREIGN_SLOTS / max(self.foreign_share, FOREIGN_SLOTS / FOREIGN_SLOTS_MAX)
        self.near, self.foreign_near = max(self.near - 1, 0), max(self.foreign_near - 1, 0)
        return min(slots * self.attempt_s, COURTESY_MAX_S)
