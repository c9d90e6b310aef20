"""The drawing of a report: one line for each case, how many times less time (or memory) we need than a peer.

Of the functions of filters, the kinds of data and the cells of filters, which are very many, only those that are worst
beside a peer are drawn; groups that have a table in the document are left out, unless there is nothing else.

Right of 1 we are better. A dot is the median of the rounds, the bar through it spans the quartiles; the goals are short
strokes in the color of the peer they are set against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks.cases import (
    ALLOWANCE,
    BARE,
    CEILING,
    EQUAL_SHARE,
    FASTER,
    LIMIT,
    ONE_CORE,
    PARQUET,
    PROCESSOR,
    PYLANCE,
    TUNED_CEILING,
    TUNED_WORKER,
    TWO_SLOTS,
    UNIX_SOCKETS,
    ZSTD,
)
from benchmarks.catalogue import STORED_GROUPS, TABLED_GROUPS
from benchmarks.report import grouped, quantity

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.report import Finding, Report

COLORS = {
    PYLANCE: "#2a6fbb",
    PARQUET: "#d9822b",
    ZSTD: "#8a9a3b",
    CEILING: "#7a4fa3",
    ONE_CORE: "#9a9fa8",
    UNIX_SOCKETS: "#3d9a9a",
    TUNED_WORKER: "#4f8f4a",
    TUNED_CEILING: "#b79ad0",
    EQUAL_SHARE: "#b0506a",
    BARE: "#6b6f76",
    FASTER: "#5f6b3a",
    PROCESSOR: "#74a9d8",
    LIMIT: "#b08d2f",
    ALLOWANCE: "#a0728c",
    TWO_SLOTS: "#4d7f8f",
}
LABELS = {
    PYLANCE: "pylance",
    PARQUET: "Parquet (snappy)",
    ZSTD: "Parquet (zstd)",
    CEILING: "ready batches in Spark",
    ONE_CORE: "with one core",
    UNIX_SOCKETS: "over Unix sockets",
    TUNED_WORKER: "with tune_worker",
    TUNED_CEILING: "ready batches, beside that",
    EQUAL_SHARE: "equal share",
    BARE: "bare read of the same bytes",
    FASTER: "faster of two plans",
    PROCESSOR: "pylance, processor time",
    LIMIT: "limit",
    ALLOWANCE: "allowed time",
    TWO_SLOTS: "with two tasks at a time",
}
INK, FAINT = "#30343b", "#d8dbe0"
FUNCTIONS_MAX, KINDS_MAX, CELLS_MAX = 20, 60, 20
TITLES = {
    "take": "Take random rows, metadata warm",
    "scan": "Scan",
    "open": "Open, import, first row",
    "memory": "Peak memory of a scan, growth of a write",
    "filter": "Scan with a filter",
    "late": f"Filters by what passes: the {CELLS_MAX} cells that are slowest beside the faster of two plans",
    "search": "Find the nearest vectors, without an index",
    "ivf": "Find the nearest vectors by an index, build it",
    "functions": f"Functions of filters, processor time: the {FUNCTIONS_MAX} that are slowest beside pylance",
    "write": "Write a table",
    "kinds": f"Real text and numbers: size, processor time of writing; the {KINDS_MAX} that are worst beside pylance",
    "size": "Size of what was written",
    "commit": "Append and commit",
    "share": "Append in several processes: the time of the one that makes the fewest",
    "spark": "Spark, two cores",
    "sparksql": "SQL through the JAR of Spark, two cores",
    "shapes": "Wide tables, many files",
    "2.0": "Tables of file version 2.0",
    "0.1": "Tables of file version 0.1",
}
TICKS = [0.25, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 1000]
LINE_INCHES, PANEL_INCHES = 0.21, 0.75


def draw(report: Report, path: Path) -> None:
    """Draw `report` into the PNG file `path`."""
    panels = drawn(report.findings)
    heights = [len(findings) * LINE_INCHES + PANEL_INCHES for findings in panels.values()]
    with matplotlib.rc_context({"font.size": 8.5, "text.color": INK, "axes.labelcolor": INK, "ytick.color": INK}):
        figure = Figure(figsize=(9.5, sum(heights) + 1.0), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights})
        for (group, findings), (axis,) in zip(panels.items(), axes, strict=True):
            draw_panel(axis, TITLES.get(group, group), findings)
        axes[-1][0].set_xlabel("times less than the peer needs")
        handles = {label: dot for row in axes for dot, label in zip(*row[0].get_legend_handles_labels(), strict=True)}
        legend = figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=5, frameon=False)
        legend.set_title(heading(report), FontProperties(size=10))
        legend.set_alignment("left")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)


def drawn(findings: list[Finding]) -> dict[str, list[Finding]]:
    """The groups that are drawn, and what of each."""
    groups = grouped(findings)
    slowest = {"functions": (FUNCTIONS_MAX, PYLANCE), "kinds": (KINDS_MAX, PYLANCE), "late": (CELLS_MAX, FASTER)}
    for group, (drawn_max, peer) in slowest.items():
        if len(groups.get(group, ())) > drawn_max:
            groups[group] = sorted(groups[group], key=lambda each: each.against[peer].median)[:drawn_max]
    tabled = {kind for group in TABLED_GROUPS for kind in STORED_GROUPS[group]}
    return {group: some for group, some in groups.items() if group not in tabled} or groups


def heading(report: Report) -> str:
    """What was compared, and on what."""
    versions, machine = report.versions, report.machine
    scale = "" if report.scale == 1 else f", scale {report.scale:g}"
    return (
        f"lance_io {versions['lance_io']} against pylance {versions['pylance']} and pyarrow {versions['pyarrow']}\n"
        f"{machine['processor']}, {machine['cores']} cores, local disk{scale}"
    )


def draw_panel(axis: Any, title: str, findings: list[Finding]) -> None:
    """One group of cases, the first on top."""
    axis.set_title(title, loc="left", fontsize=9, fontweight="bold")
    axis.axvline(1, color=INK, linewidth=0.8, zorder=1)
    for peer, color in COLORS.items():
        lines = [number for number, finding in enumerate(findings) if peer in finding.against]
        spreads = [findings[number].against[peer] for number in lines]
        medians = [spread.median for spread in spreads]
        whiskers = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
        if lines:
            axis.errorbar(
                medians, lines, xerr=whiskers, fmt="o", ms=4.5, lw=1, color=color, label=LABELS[peer], zorder=3
            )
        aims = [(finding.goals[peer], number) for number, finding in enumerate(findings) if peer in finding.goals]
        if aims:
            axis.plot(*zip(*aims, strict=True), "|", ms=9, mew=1.6, color=color, alpha=0.45, zorder=2)
    names = [f"{finding.name}   {quantity(finding.values['lance_io'].median, finding.unit):>9}" for finding in findings]
    axis.set_yticks(range(len(findings)), names, family="monospace", fontsize=7.5)
    axis.set_ylim(len(findings) - 0.4, -0.6)
    axis.set_xscale("log")
    axis.set_xticks(TICKS)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axis.tick_params(axis="both", length=0)
    axis.tick_params(axis="x", labelbottom=True, colors="#767c86")
    axis.grid(axis="x", color=FAINT, linewidth=0.6)
    axis.grid(axis="y", color=FAINT, linewidth=0.3)
    axis.set_axisbelow(True)
    for side in axis.spines.values():
        side.set_visible(False)
