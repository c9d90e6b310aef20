"""How many reads one operation has in flight: a take all it needs, a scan more and more while more are wanted.

A scan starts with what fills a usual network and doubles for each round trip in which the limit held reads back: each
read that ends then makes room for two. Once a read had to be made again, because it failed or was refused, one more for
each round trip is added instead. Pure: no clock, no loop.
"""

from __future__ import annotations


class Growth:
    """The limit of one operation.

    start    reads in flight at first
    maximum  and at most
    """

    def __init__(self, start: int, maximum: int) -> None:
        self.limit = max(1, min(start, maximum))
        self._maximum = maximum
        self._doubles = True
        self._num_ended = 0  # since the limit was raised by one

    def ended(self, *, held_back: bool) -> None:
        """A read is over.

        held_back  others wait for nothing but the limit
        """
        if not held_back or self.limit >= self._maximum:
            return
        self._num_ended += 1
        if self._doubles or self._num_ended >= self.limit:
            self.limit += 1
            self._num_ended = 0

    def failed(self) -> None:
        """A read is made again, and not because it was late only."""
        self._doubles = False
