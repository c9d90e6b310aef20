"""How contenders are compared: they take turns within one run, and ratios are taken within a round.

A machine is never quiet: other work, clock rates and page caches change from second to second. So every round gives
each contender one turn, on the same rows, in an order that is reversed from round to round; the ratio of two contenders
is the median over rounds of the ratio within the round, and its spread is given by the quartiles of the same ratios.
What disturbs a whole round cancels out, and what disturbs a single turn is one outlier among many.

A turn of a short operation repeats it until about `TURN_S` have passed, so that the clock and the wake-up of sleeping
threads do not count. Results are dropped outside the measured time, where the operation returns them at all.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

TURN_S = 0.02
LONG_S = 1.0
ROUNDS_MIN = 5  # have a median that one busy second does not move, and quartiles

Operation = Callable[[int], Any]
"""Does the work once; the argument numbers the repetition, so that each may take other rows."""


@dataclass(frozen=True)
class Sample:
    """One turn: seconds or bytes per operation, and the processor time (all threads) that went into one."""

    value: float
    cpu_s: float


Turn = Callable[[int], Sample]
"""Measures the turn of the round whose number it is given."""


@dataclass
class Samples:
    """All turns of one contender in one case."""

    values: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        """Append one turn."""
        self.values.append(sample.value)
        self.cpu_s.append(sample.cpu_s)


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of some numbers."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: list[float]) -> Spread:
        """The spread of at least one number."""
        if len(numbers) == 1:
            return cls(numbers[0], numbers[0], numbers[0])
        low, _, high = quantiles(numbers, n=4, method="inclusive")
        return cls(median(numbers), low, high)


def timed(operation: Operation, operations: int) -> Turn:
    """A turn that does `operation` so many times and gives the mean time of one."""

    def turn(round_number: int) -> Sample:
        first = round_number * operations
        cpu_before = time.process_time()
        started = time.perf_counter()
        for number in range(first, first + operations):
            result = operation(number)
        wall_s = time.perf_counter() - started
        cpu_s = time.process_time() - cpu_before
        del result
        return Sample(wall_s / operations, cpu_s / operations)

    return turn


def operations_per_turn(operation: Operation) -> int:
    """How often `operation` fits into `TURN_S`; at least once. Runs it a few times, which also warms it.

    One that takes longer than `LONG_S` is run once.
    """
    best_s = timed(operation, 1)(0).value
    if best_s < LONG_S:
        best_s = min(best_s, *(timed(operation, 1)(number).value for number in range(1, 3)))
    return max(1, round(TURN_S / max(best_s, 1e-7)))


def alternate(
    turns: Mapping[str, Turn],
    rounds: int,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Samples]:
    """`rounds` times one turn of each contender, in an order that is reversed every other round.

    None begins after `seconds`, but for the first `ROUNDS_MIN`.
    """
    samples = {name: Samples() for name in turns}
    order = list(turns)
    gc.collect()
    until = clock() + seconds
    for number in range(rounds):
        if number >= ROUNDS_MIN and clock() >= until:
            break
        for name in order if number % 2 == 0 else reversed(order):
            samples[name].add(turns[name](number))
    return samples


def times_better(samples: Mapping[str, Samples], ours: str, peer: str) -> Spread:
    """How many times more `peer` needed than `ours`, round by round: 2 means that ours takes half."""
    pairs = zip(samples[ours].values, samples[peer].values, strict=True)
    return Spread.of([theirs / max(mine, 1e-12) for mine, theirs in pairs])


def times_less_work(samples: Mapping[str, Samples], ours: str, peer: str) -> Spread:
    """The same of processor time."""
    pairs = zip(samples[ours].cpu_s, samples[peer].cpu_s, strict=True)
    return Spread.of([theirs / max(mine, 1e-12) for mine, theirs in pairs])
