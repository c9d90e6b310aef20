"""Adaptive rate limit for a bucket that throttles requests: the rate is measured, held, and probed upwards.

A bucket without refusals is not paced at all. Its first refusal sets a pace of 0.7 of the requests of the last second:
a guess, which doubles in each window of one second until there is another refusal. The answers of a window decide:

    more than 3 of 10 refused    the capacity of the bucket is the rate of good answers, or 0.7 of the pace if no
                                 request waited for the pace; the pace becomes 0.95 of the capacity
    more than 1 of 100           the pace is multiplied by 0.95 and by the share of good answers. The rate of good
                                 answers is no measure: a busy process sends fewer requests than the pace allows
    fewer                        the pace stays
    none, and the pace reached   the pace grows: a quarter of the way back to the last refused pace, then steps beyond
                                 it that start small and double from window to window
    none for a minute            no pace any more

Steps are proportional to the root of the pace, and cuts to the pace itself, so processes that share a bucket converge.
`Pace` is pure: times are arguments, of any monotonic clock.
"""

from __future__ import annotations

import math
from typing import Final

WINDOW_S: Final = 1.0
FIRST_SHARE: Final = 0.7  # of the requests of the last second, at the first refusal
FIRST_LEAST_PER_S: Final = 250.0  # one refusal among few requests is weak evidence
KEPT_SHARE: Final = 0.95  # of the bucket's capacity
TOLERATED_SHARE: Final = 0.01  # of answers that are refusals
UNSATURATED_SHARE: Final = 0.7  # below this share of good answers the bucket is saturated
LEAST_PER_S: Final = 50.0
BACK_SHARE: Final = 0.25  # of the distance to the last refused pace, in each window
STEP: Final = 0.4  # first step beyond the refused pace, as a multiple of the pace's root: 9 at a pace of 500 per second
STEP_SHARE_MAX: Final = 0.25  # of the pace
CALM_S: Final = 60.0
BURST_S: Final = 0.05  # requests due in this time start at once, so that a busy event loop loses no throughput


class Pace:
    """The pace of one kind of requests to one bucket.

    per_s  requests per second; None: no limit
    """

    per_s: float | None

    def __init__(self) -> None:
        self.per_s = None
        self._due_s = -math.inf  # when the next request may begin
        self._ceiling_per_s = math.inf  # the last pace with refusals
        self._num_steps = 0  # beyond the ceiling
        self._refused_s = -math.inf  # the last refusal
        self._begin(-math.inf, 0)

    def wait_s(self, now_s: float) -> float:
        """Seconds until a request that is ready at `now_s` may start. Each call reserves the start of one request."""
        if self.per_s is None:
            return 0.0
        due_s = max(self._due_s, now_s - BURST_S)
        self._due_s = due_s + 1 / self.per_s
        self._reached |= due_s > now_s
        return max(0.0, due_s - now_s)

    def note(self, now_s: float, in_flight: int, *, refused: bool, num_requests: int = 1) -> None:
        """Record that requests were answered at `now_s`, all well or all refused; `in_flight` includes them."""
        if now_s - self._began_s > 2 * WINDOW_S:  # after a pause, earlier answers do not measure the rate
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
        """Start a pace at the first refusal."""
        measured_per_s = (self._num_good + in_flight) / max(WINDOW_S, now_s - self._began_s)
        self.per_s = max(FIRST_LEAST_PER_S, FIRST_SHARE * measured_per_s)
        self._ceiling_per_s = math.inf  # not measured yet
        self._num_steps = 0
        self._begin(now_s, in_flight - 1)

    def _judge(self, now_s: float, in_flight: int) -> None:
        """Adapt the pace at the end of a window."""
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
        good_per_s = good_share * self.per_s
        if good_share < UNSATURATED_SHARE:
            good_per_s = self._num_good / (now_s - self._began_s) if self._reached else UNSATURATED_SHARE * self.per_s
        self._ceiling_per_s = min(self.per_s, max(LEAST_PER_S, good_per_s))
        self.per_s = min(self.per_s, max(LEAST_PER_S, KEPT_SHARE * good_per_s))
        self._num_steps = 0

    def _grow(self) -> None:
        assert self.per_s is not None
        if self._ceiling_per_s == math.inf:
            self.per_s *= 2
            return
        step_max = STEP_SHARE_MAX * self.per_s
        if self.per_s < self._ceiling_per_s:
            step = max(STEP * math.sqrt(self.per_s), BACK_SHARE * (self._ceiling_per_s - self.per_s))
        else:
            step = STEP * math.sqrt(self.per_s) * 2**self._num_steps
            self._num_steps += 1
        self.per_s += min(step, step_max)

    def _begin(self, now_s: float, num_old: int) -> None:
        """Begin a new window.

        num_old  requests that were sent at the pace before; their answers do not count for the new one
        """
        self._began_s = now_s
        self._num_good = self._num_refused = 0
        self._num_old = num_old
        self._reached = False  # whether a request of this window waited for the pace
