"""How fast requests follow each other to a bucket that has asked for fewer: measured, kept to, tried a little more.

A bucket that has refused nothing is not paced at all. Its first refusal starts a pace at 0.7 of what went out in the
last second: a guess, which doubles in each window of a second until one is refused again. A window is judged by its
answers:

    more than 3 of 10 refused   and the pace was kept: what was answered well is what the bucket gives, and 0.95 of
                                that the pace
    more than 1 of 100          0.95 of the share of the pace that was answered well; not of what was counted, which
                                is less where we were busy
    fewer                       the pace stays
    none, and the pace was kept  more: a quarter of the way back to where it was refused, then steps beyond it that
                                begin small and double from window to window
    none for a minute           no pace any more

Steps grow by the root of the pace and cuts by the pace itself, so processes that share a bucket draw nearer to each
other. `Pace` is pure: times are arguments, of any monotonic clock.
"""

from __future__ import annotations

import math
from typing import Final

WINDOW_S: Final = 1.0
FIRST_SHARE: Final = 0.7  # of what went out in the last second, at the first refusal
FIRST_LEAST_PER_S: Final = 250.0  # one refusal among few requests says little
KEPT_SHARE: Final = 0.95  # of what the bucket gives
TOLERATED_SHARE: Final = 0.01  # of answers that are refusals
UNSATURATED_SHARE: Final = 0.7  # if less is answered well, that is all that the bucket gives
LEAST_PER_S: Final = 50.0
BACK_SHARE: Final = 0.25  # of the way to the last refused pace, in each window
STEP: Final = 0.4  # times the root of the pace: the first step beyond that; at 500 a second 9
STEP_SHARE_MAX: Final = 0.25  # of the pace
CALM_S: Final = 60.0
BURST_S: Final = 0.05  # so much of the pace may go out at once: a loop that is busy for a while loses none of it


class Pace:
    """The pace of one kind of requests to one bucket.

    per_s  requests that may begin in a second; None: as many as there are
    """

    per_s: float | None

    def __init__(self) -> None:
        self.per_s = None
        self._due_s = -math.inf  # when the next one may begin
        self._ceiling_per_s = math.inf  # the pace that was refused last
        self._num_steps = 0  # beyond the ceiling
        self._refused_s = -math.inf  # the last refusal
        self._begin(-math.inf, 0)

    def wait_s(self, now_s: float) -> float:
        """A request wants to begin at `now_s`: seconds until it may. Each call is another request's turn."""
        if self.per_s is None:
            return 0.0
        due_s = max(self._due_s, now_s - BURST_S)
        self._due_s = due_s + 1 / self.per_s
        self._reached |= due_s > now_s
        return max(0.0, due_s - now_s)

    def note(self, now_s: float, in_flight: int, *, refused: bool, num_requests: int = 1) -> None:
        """Requests were answered at `now_s`, all well or all refused; `in_flight` are under way, these included."""
        if now_s - self._began_s > 2 * WINDOW_S:  # nothing was asked for a while: what came before is no measure
            self._begin(now_s, 0)
        num_old = min(self._num_old, num_requests)
        self._num_old -= num_old
        if refused:
            self._num_refused += num_requests - num_old
        else:
            self._num_good += num_requests - num_old
        if refused:
            self._refused_s = now_s
        if self.per_s is None:
            if refused:
                self._start(now_s, in_flight)
        elif now_s - self._refused_s >= CALM_S:
            self.per_s = None
        if now_s - self._began_s >= WINDOW_S:
            self._judge(now_s, in_flight)

    def _start(self, now_s: float, in_flight: int) -> None:
        """The first refusal."""
        seen_per_s = (self._num_good + in_flight) / max(WINDOW_S, now_s - self._began_s)
        self.per_s = max(FIRST_LEAST_PER_S, FIRST_SHARE * seen_per_s)
        self._ceiling_per_s = math.inf  # not measured yet
        self._num_steps = 0
        self._begin(now_s, in_flight - 1)

    def _judge(self, now_s: float, in_flight: int) -> None:
        """A window is over."""
        num_old = 0
        if self.per_s is not None:
            if self._num_refused > TOLERATED_SHARE * (self._num_good + self._num_refused):
                self._cut(now_s)
                num_old = in_flight - 1
            elif self._reached and not self._num_refused:
                self._grow()
        self._begin(now_s, num_old)

    def _cut(self, now_s: float) -> None:
        assert self.per_s is not None
        good_share = self._num_good / (self._num_good + self._num_refused)
        given_per_s = good_share * self.per_s
        if good_share < UNSATURATED_SHARE:
            given_per_s = self._num_good / (now_s - self._began_s) if self._reached else UNSATURATED_SHARE * self.per_s
        self._ceiling_per_s = min(self.per_s, max(LEAST_PER_S, given_per_s))
        self.per_s = min(self.per_s, max(LEAST_PER_S, KEPT_SHARE * given_per_s))
        self._num_steps = 0

    def _grow(self) -> None:
        assert self.per_s is not None
        if self._ceiling_per_s == math.inf:
            self.per_s *= 2
            return
        most = STEP_SHARE_MAX * self.per_s
        if self.per_s < self._ceiling_per_s:
            step = max(STEP * math.sqrt(self.per_s), BACK_SHARE * (self._ceiling_per_s - self.per_s))
        else:
            step = STEP * math.sqrt(self.per_s) * 2**self._num_steps
            self._num_steps += 1
        self.per_s += min(step, most)

    def _begin(self, now_s: float, num_old: int) -> None:
        """A new window.

        num_old  requests that were sent at the pace before, whose answers say nothing about the new one
        """
        self._began_s = now_s
        self._num_good = self._num_refused = 0
        self._num_old = num_old
        self._reached = False
