"""When to make a request again: full jitter, capped in delay, attempts and total time. Pure: the caller sleeps."""

from __future__ import annotations

from lance_io.records import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient a logical request is.

    attempts_max   how often it is made at most
    first_delay_s  upper bound of the first pause in seconds; doubles with every attempt
    delay_max_s    upper bound of any pause that we choose ourselves
    total_s        no further attempt starts later than this after the first one
    """

    attempts_max: int = 8
    first_delay_s: float = 0.1
    delay_max_s: float = 10.0
    total_s: float = 120.0

    def pause_s(
        self, attempts: int, elapsed_s: float, fraction: float, retry_after_s: float | None = None
    ) -> float | None:
        """Seconds to wait before the next attempt, or None to give up.

        attempts       how many have failed, at least 1
        elapsed_s      since the first one began
        fraction       a random number in [0, 1): full jitter spreads clients that failed together
        retry_after_s  what the store asked for; never undercut
        """
        if attempts >= self.attempts_max:
            return None
        longest = min(self.delay_max_s, self.first_delay_s * 2 ** (attempts - 1))
        pause = longest * fraction
        if retry_after_s is not None:
            pause += retry_after_s
        return pause if elapsed_s + pause <= self.total_s else None
