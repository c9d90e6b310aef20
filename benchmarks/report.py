"""What a run found: the JSON that is kept, and the table that is printed."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich import box
from rich.table import Table

import lance_io
from benchmarks.cases import (
    BARE,
    CEILING,
    COMPARED,
    EQUAL_SHARE,
    FASTER,
    LIMIT,
    OURS,
    PARQUET,
    PROCESSOR,
    PYLANCE,
    TUNED_CEILING,
    TUNED_WORKER,
    Case,
)
from benchmarks.measure import Samples, Spread, times_better, times_less_work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Finding:
    """The result of one case.

    values   per contender, seconds or bytes per operation
    cpu_s    per contender, median of the processor seconds (all threads) per operation
    against  per peer, how many times more it needed than we (`COMPARED`: than which of our own); where there is a goal
             of processor time or a limit, also how many times more pylance needed of that, and how many times more we
             might have needed
    goals    per peer, how many times we want it to be
    amounts  what one operation moves: "rows", "bytes", "commits"
    """

    name: str
    unit: str
    rounds: int
    values: dict[str, Spread]
    cpu_s: dict[str, float]
    against: dict[str, Spread]
    goals: dict[str, float]
    amounts: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, samples: dict[str, Samples]) -> Finding:
        """Sum up the turns of a case."""
        goals = {
            PYLANCE: case.goal,
            PARQUET: case.parquet_goal,
            CEILING: case.ceiling_goal,
            TUNED_CEILING: case.ceiling_goal,
            EQUAL_SHARE: case.share_goal,
            BARE: case.bare_goal,
            FASTER: case.plan_goal,
            PROCESSOR: case.cpu_goal,
            LIMIT: None if case.limit_s is None else 1.0,
            **case.peer_goals,
        }
        against = {who: times_better(samples, COMPARED.get(who, OURS), who) for who in samples if who != OURS}
        if case.cpu_goal is not None:
            against[PROCESSOR] = times_less_work(samples, OURS, PYLANCE)
        if case.limit_s is not None:
            against[LIMIT] = Spread.of([case.limit_s / max(value, 1e-12) for value in samples[OURS].values])
        return cls(
            name=case.name,
            unit=case.unit,
            rounds=len(samples[OURS].values),
            values={who: Spread.of(turns.values) for who, turns in samples.items()},
            cpu_s={who: Spread.of(turns.cpu_s).median for who, turns in samples.items()},
            against=against,
            goals={who: goal for who, goal in goals.items() if goal is not None and who in against},
            amounts=dict(case.amounts),
        )

    def reached(self, peer: str) -> bool | None:
        """Whether the goal against `peer` is reached; None where there is none.

        That against a bare read is another way to reach the one against pylance, and none by itself.
        """
        goal = self.goals.get(peer)
        if goal is None or peer == BARE:
            return None
        return self._has(peer) or (peer == PYLANCE and self._has(BARE))

    def _has(self, peer: str) -> bool:
        return peer in self.goals and self.against[peer].median >= self.goals[peer]


@dataclass
class Report:
    """All findings of a run, and on what they were found.

    rounds    that were asked for; time may have allowed fewer
    seconds   that the run took
    """

    scale: float
    rounds: int
    seconds: float = 0.0
    machine: dict[str, Any] = field(default_factory=lambda: describe_machine())
    versions: dict[str, str] = field(default_factory=lambda: describe_versions())
    made_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    findings: list[Finding] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write as JSON, numbers rounded to what they are worth."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_rounded(asdict(self)), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read what `save` wrote."""
        content = json.loads(path.read_text())
        findings = [
            Finding(
                **{
                    **entry,
                    "values": {who: Spread(**numbers) for who, numbers in entry["values"].items()},
                    "against": {who: Spread(**numbers) for who, numbers in entry["against"].items()},
                }
            )
            for entry in content.pop("findings")
        ]
        return cls(**content, findings=findings)


def describe_machine() -> dict[str, Any]:
    """What the numbers depend on and what does not name the machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def describe_versions() -> dict[str, str]:
    """Of Python and of what is compared."""
    return {
        "python": platform.python_version(),
        "lance_io": lance_io.__version__,
        "pylance": version("pylance"),
        "pyarrow": pa.__version__,
        "pyspark": version("pyspark"),
        "numpy": np.__version__,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return value


SAME_GROUP = {"import": "open", "first": "open", "growth": "memory", "writing": "memory"}


def grouped(findings: list[Finding]) -> dict[str, list[Finding]]:
    """The findings that belong together (take, scan, open, memory), in their order."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        kind = finding.name.split("/")[0]
        groups.setdefault(SAME_GROUP.get(kind, kind), []).append(finding)
    return groups


# -- print ------------------------------------------------------------------------------------------------------------


def quantity(value: float, unit: str) -> str:
    """A time or a size as people read it."""
    if unit == "bytes":
        return f"{value / 1e6:,.0f} MB" if value >= 1e7 else f"{value / 1e3:,.0f} kB"
    return f"{value * 1e3:,.3f} ms" if value < 0.01 else f"{value * 1e3:,.1f} ms"


def rate(finding: Finding) -> str:
    """What we move in a second."""
    seconds = finding.values[OURS].median
    parts = []
    if rows := finding.amounts.get("rows"):
        parts.append(f"{rows / seconds / 1e6:,.3g} M rows/s")
    if num_bytes := finding.amounts.get("bytes"):
        parts.append(f"{num_bytes / seconds / 1e6:,.0f} MB/s")
    if commits := finding.amounts.get("commits"):
        parts.append(f"{commits / seconds:,.0f} commits/s")
    return ", ".join(parts)


def ratio(finding: Finding, peer: str) -> str:
    """`3.2x (3.0-3.3)`, in green where the goal is reached and in red where it is not."""
    if peer not in finding.against:
        return ""
    spread = finding.against[peer]
    color = {True: "green", False: "red", None: "default"}[finding.reached(peer)]
    return f"[{color}]{spread.median:.2f}x[/] [dim]{spread.low:.2f}-{spread.high:.2f}[/]"


def row(finding: Finding) -> list[str]:
    """The cells of a finding."""
    values = {who: quantity(spread.median, finding.unit) for who, spread in finding.values.items()}
    goals = "  ".join(f"{goal:.3g}x" for goal in finding.goals.values())
    cpu = ""
    peer = PYLANCE if PYLANCE in finding.cpu_s else CEILING
    if finding.unit == "s" and peer in finding.cpu_s:
        cpu = f"{finding.cpu_s[peer] / max(finding.cpu_s[OURS], 1e-9):.2f}x"
    return [
        finding.name,
        values[OURS],
        values.get(PYLANCE, ""),
        ratio(finding, PYLANCE),
        cpu,
        values.get(PARQUET, ""),
        ratio(finding, PARQUET),
        "  ".join(f"{peer} {ratio(finding, peer)}" for peer in finding.against if peer not in (PYLANCE, PARQUET)),
        goals,
        rate(finding),
    ]


COLUMNS = (
    "case",
    "lance_io",
    "pylance",
    "pylance / ours",
    "CPU",
    "Parquet",
    "Parquet / ours",
    "others / ours",
    "goals",
    "rate",
)


def as_table(report: Report) -> Table:
    """The findings as a table, a line between the groups."""
    machine, versions = report.machine, report.versions
    grid = Table(
        title=f"lance_io {versions['lance_io']}, pylance {versions['pylance']}, pyarrow {versions['pyarrow']}",
        caption=(
            f"{machine['processor']}, {machine['cores']} cores, scale {report.scale:g}, up to {report.rounds} "
            f"rounds, {report.seconds / 60:.0f} minutes. "
            "Ratios: median of the rounds, then quartiles."
        ),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for number, heading in enumerate(COLUMNS):
        grid.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for findings in grouped(report.findings).values():
        grid.add_section()
        for finding in findings:
            grid.add_row(*row(finding))
    return grid


def spark_table(report: Report) -> str:
    """The cases of Spark in Markdown: our time and share of the ceiling's speed, by default and with tuned workers."""
    lines = [
        "| Case | `lance_io` | of the ceiling | with `tune_worker` | of the ceiling then |",
        "|---|---|---|---|---|",
    ]
    for finding in report.findings:
        if TUNED_WORKER in finding.values:
            times = [quantity(finding.values[who].median, finding.unit) for who in (OURS, TUNED_WORKER)]
            shares = [
                f"{finding.against[peer].median:.2f}" if peer in finding.against else ""
                for peer in (CEILING, TUNED_CEILING)
            ]
            lines.append(f"| `{finding.name}` | {times[0]} | {shares[0]} | {times[1]} | {shares[1]} |")
    return "\n".join(lines) + "\n"


GOALS_HEADINGS = (
    *("Case", "`lance_io`", "pylance", "pylance / ours", "goal"),
    *("processor time", "pylance", "pylance / ours", "goal"),
)


def goals_table(report: Report, beginnings: Sequence[str]) -> str:
    """Some groups of cases in Markdown; goals that were missed are bold. Processor time stands where it has a goal."""
    lines = [_in_cells(GOALS_HEADINGS), _in_cells("---" for _ in GOALS_HEADINGS)]
    lines += [_in_cells(_goal_cells(each)) for each in report.findings if each.name.split("/")[0] in beginnings]
    return "\n".join(lines) + "\n"


def _in_cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _goal_cells(finding: Finding) -> list[str]:
    cells = [f"`{finding.name}`"]
    cells += [
        quantity(finding.values[who].median, finding.unit) if who in finding.values else "" for who in (OURS, PYLANCE)
    ]
    cells += [_plain_ratio(finding, PYLANCE), _goal(finding, PYLANCE)]
    if LIMIT in finding.goals:
        limit = quantity(finding.against[LIMIT].median * finding.values[OURS].median, finding.unit)
        cells[-1] = _bold_if_missed(finding, LIMIT, f"at most {limit}")
    if PROCESSOR not in finding.against:
        return [*cells, "", "", "", ""]
    cells += [quantity(finding.cpu_s[who], "s") for who in (OURS, PYLANCE)]
    return [*cells, _plain_ratio(finding, PROCESSOR), _goal(finding, PROCESSOR)]


def _plain_ratio(finding: Finding, peer: str) -> str:
    return f"{finding.against[peer].median:.2f}" if peer in finding.against else ""


def _goal(finding: Finding, peer: str) -> str:
    return _bold_if_missed(finding, peer, f"{finding.goals[peer]:g}") if peer in finding.goals else ""


def _bold_if_missed(finding: Finding, peer: str, text: str) -> str:
    return f"**{text}**" if finding.reached(peer) is False else text


def fill_in(document: str, name: str, content: str) -> str:
    """A document with other content between `<!-- NAME -->` and `<!-- /NAME -->`, each on a line."""
    opening, closing = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, _, rest = document.partition(opening)
    _, found, after = rest.partition(closing)
    if not found:
        raise ValueError(f"the document has no lines {opening.strip()} and {closing.strip()}")
    return f"{before}{opening}\n{content}\n{closing}{after}"


def sums(report: Report) -> str:
    """How many goals are reached, and which are not."""
    judged = [(finding, peer) for finding in report.findings for peer in finding.goals if peer != BARE]
    missed = [
        f"{finding.name} ({finding.against[peer].median:.2f} of {finding.goals[peer]:g} to {peer})"
        for finding, peer in judged
        if not finding.reached(peer)
    ]
    text = f"{len(judged) - len(missed)} of {len(judged)} goals reached."
    return text + (" Missed: " + ", ".join(missed) + "." if missed else "")
