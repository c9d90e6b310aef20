"""What a run found: every turn of every contender, and the medians that are reported."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.latency.requestlog import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.latency.goals import GoalLine

RATES = ("takes_per_s", "good_per_s")  # of which more is better; of all other quantities less is
DIGITS = 5


@dataclass(frozen=True)
class Turn:
    """One contender, once.

    proxy_cpu_s  processor time of the proxy meanwhile
    told         other numbers: takes per second, p99, resident size ...
    """

    wall_s: float
    cpu_s: float
    proxy_cpu_s: float
    traffic: Traffic
    told: dict[str, Any] = field(default_factory=dict)

    def value(self, quantity: str) -> float | None:
        """A quantity by its name; None where this turn has none of that name."""
        if quantity in ("wall_s", "cpu_s", "proxy_cpu_s"):
            return float(getattr(self, quantity))
        found = self.told.get(quantity, getattr(self.traffic, quantity, None))
        return None if found is None else float(found)

    def per_take(self) -> Turn:
        """With processor times for one take, where there were many."""
        takes = self.told.get("takes", 1) or 1
        return Turn(self.wall_s, self.cpu_s / takes, self.proxy_cpu_s, self.traffic, self.told)


@dataclass
class Result:
    """One scenario at one latency: the turns of each contender, one in each round.

    failed  contenders whose process ended instead of answering, and how; they have fewer turns, or none
    """

    name: str
    latency_ms: float
    condition: str
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def median(self, who: str, quantity: str) -> float | None:
        """Over the rounds; None where it was not measured."""
        values = [turn.value(quantity) for turn in self.turns.get(who, [])]
        known = [value for value in values if value is not None]
        return median(known) if known else None

    @property
    def speed(self) -> str:
        """The quantity by which contenders are compared."""
        return (
            "takes_per_s" if any("takes_per_s" in t.told for turns in self.turns.values() for t in turns) else "wall_s"
        )

    def times_faster(self, ours: str, peer: str) -> float | None:
        """How many times faster one is than the other: the median of the ratios within the rounds."""
        quantity = self.speed
        ratios = []
        for mine, theirs in zip(self.turns.get(ours, []), self.turns.get(peer, []), strict=False):
            a, b = mine.value(quantity), theirs.value(quantity)
            if a and b:
                ratios.append(a / b if quantity in RATES else b / a)
        return median(ratios) if ratios else None

    def miscounted(self) -> list[tuple[str, int, int]]:
        """Contenders whose own count of reads is not the proxy's: who, its count, the proxy's."""
        found = []
        for who, turns in self.turns.items():
            for turn in turns:
                own = turn.told.get("reads")
                if turn.traffic.requests and own is not None and own != turn.traffic.reads:  # 0: not on the bucket
                    found.append((who, int(own), turn.traffic.reads))
                    break
        return found


@dataclass
class Results:
    """All results of a run, and on what they were found.

    store  the protocol of the server
    """

    scale: float
    rounds: int
    machine: dict[str, Any]
    versions: dict[str, str]
    made_at: str
    results: list[Result] = field(default_factory=list)
    store: str = "s3"

    def find(self, name: str, latency_ms: float) -> Result | None:
        """The result of that name at that latency."""
        return next((one for one in self.results if (one.name, one.latency_ms) == (name, latency_ms)), None)

    def replaced(self, others: Results) -> Results:
        """These results, but for those that a later run has found anew, in the order in which they are played."""
        anew = {(one.name, one.latency_ms): one for one in others.results}
        kept = [anew.pop((one.name, one.latency_ms), one) for one in self.results]
        return replace(others, results=[*kept, *anew.values()])

    def save(self, path: Path, goals: Iterable[GoalLine]) -> None:
        """Write all turns and the goals as JSON, numbers rounded to what they are worth."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {**asdict(self), "goals": [asdict(goal) for goal in goals]}
        path.write_text(json.dumps(rounded(content), separators=(",", ":"), indent=None).replace("},{", "},\n{") + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote, without the goals."""
        content = json.loads(path.read_text())
        content.pop("goals")
        results = [
            Result(
                **{
                    **entry,
                    "turns": {
                        who: [Turn(**{**turn, "traffic": Traffic(**turn["traffic"])}) for turn in turns]
                        for who, turns in entry["turns"].items()
                    },
                }
            )
            for entry in content.pop("results")
        ]
        return cls(**content, results=results)


def rounded(value: Any) -> Any:
    """Floats with so many digits as mean something."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return value
