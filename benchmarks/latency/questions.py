"""What a worker is asked, and which rows: the same for every contender of a round."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

RUN_ROWS = 100
PRIMING_ROWS = 2_000


@dataclass(frozen=True)
class Question:
    """A line to a worker: the name of one of its methods, and the arguments."""

    ask: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def as_line(self) -> str:
        """JSON in one line."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of_line(cls, line: str) -> Question:
        """What `as_line` made."""
        return cls(**json.loads(line))


@dataclass(frozen=True)
class Answer:
    """A line back.

    wall_s, cpu_s  of what was asked; all threads of the process
    told           whatever else there is to say: rows, digest, waits ...
    """

    wall_s: float
    cpu_s: float
    told: dict[str, Any] = field(default_factory=dict)

    def as_line(self) -> str:
        """JSON in one line."""
        return json.dumps(asdict(self)) + "\n"


def picked(pattern: str, count: int, num_rows: int, num_files: int, seed: int) -> list[int]:
    """Row numbers.

    scattered   anywhere
    clustered   runs of `RUN_ROWS` neighbours, anywhere
    neighbours  one run
    one_each    one of each file; `count` does not matter
    """
    rng = np.random.default_rng([seed, count, num_rows])
    if pattern == "scattered":
        return _plain(rng.integers(0, num_rows, count))
    if pattern in ("clustered", "neighbours"):
        length = min(RUN_ROWS if pattern == "clustered" else count, num_rows, count)
        starts = rng.integers(0, num_rows - length + 1, -(-count // length))
        return _plain((starts[:, None] + np.arange(length)).reshape(-1)[:count])
    if pattern == "one_each":
        file_rows = num_rows // num_files
        return _plain(np.arange(num_files) * file_rows + rng.integers(0, file_rows, num_files))
    raise ValueError(f"no rows are picked by {pattern!r}")


def priming(num_rows: int) -> list[int]:
    """Rows that touch every page, so that metadata is warm afterwards."""
    return _plain(np.linspace(0, num_rows - 1, min(PRIMING_ROWS, num_rows)))


def _plain(rows: Any) -> list[int]:
    return [int(row) for row in rows]
