"""Where chance begins: `LANCE_IO_SEED` moves every draw of a campaign.

Without it each place that draws has a fixed seed of its own; Hypothesis draws anew in each run, and the same in CI.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

from hypothesis import seed

Test = TypeVar("Test", bound=Any)

SEED = os.environ.get("LANCE_IO_SEED")


def seed_of(place: int | str) -> int | str:
    """The seed of a place that draws: its own, or, in a campaign, one made of the campaign's and its own."""
    return place if SEED is None else f"{SEED} {place}"


def seeded(test: Test) -> Test:
    """A Hypothesis test or state machine, with the campaign's seed if there is one."""
    return test if SEED is None else seed(SEED)(test)
