"""Pictures of a run: speed beside pylance's and the bare client's, and what many callers get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.latency.contenders import LANCEDB, OUR_LOOP, OURS, PARQUET, PYLANCE, PYLANCE_AS_IS
from benchmarks.latency.replayers import BARE, OBSTORE
from benchmarks.latency.scenarios import MAIN_LATENCY_MS

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.latency.findings import Result, Results

COLORS = {
    OURS: "#c23b4b",
    OUR_LOOP: "#e58a95",
    PYLANCE: "#2a6fbb",
    PYLANCE_AS_IS: "#8fb4dc",
    LANCEDB: "#7a4fa3",
    PARQUET: "#d9822b",
    OBSTORE: "#8a9a3b",
    BARE: "#30343b",
}
INK, FAINT = "#30343b", "#d8dbe0"
TICKS = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]
LINE_INCHES = 0.2


def draw_speeds(results: Results, path: Path) -> None:
    """One line for each scenario at 30 ms: how many times pylance's speed every contender has."""
    chosen = [one for one in results.results if one.latency_ms == MAIN_LATENCY_MS and PYLANCE in one.turns]
    if not chosen:
        return
    with matplotlib.rc_context({"font.size": 8.5, "text.color": INK, "axes.labelcolor": INK, "ytick.color": INK}):
        figure = Figure(figsize=(9.5, len(chosen) * LINE_INCHES + 1.6), layout="constrained")
        FigureCanvasAgg(figure)
        axis = figure.subplots()
        axis.axvline(1, color=COLORS[PYLANCE], linewidth=1.2, zorder=1)
        for who, color in COLORS.items():
            points = [(one.times_faster(who, PYLANCE), line) for line, one in enumerate(chosen) if who != PYLANCE]
            known = [point for point in points if point[0]]
            if known:
                size, marker = (6, "o") if who == OURS else (4.5, "|" if who == BARE else "o")
                axis.plot(*zip(*known, strict=True), marker, ms=size, mew=1.8, color=color, label=who, zorder=3)
        names = [f"{one.name}   {time_of(one)}" for one in chosen]
        axis.set_yticks(range(len(chosen)), names, family="monospace", fontsize=7)
        axis.set_ylim(len(chosen) - 0.4, -0.6)
        scale(axis)
        axis.margins(x=0.04)
        axis.set_xlabel("times the speed of pylance on the same files")
        figure.legend(loc="outside lower center", ncols=8, frameon=False)
        figure.suptitle(heading(results), x=0.01, ha="left", fontsize=10)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)


def draw_callers(results: Results, path: Path) -> None:
    """Takes per second and the wait of the slowest hundredth, by the number of callers, at 30 ms."""
    found = {}
    for callers in (1, 32, 256, 1024):
        result = results.find(f"callers/{callers}", MAIN_LATENCY_MS)
        if result is not None:
            found[callers] = result
    if not found:
        return
    with matplotlib.rc_context({"font.size": 8.5, "text.color": INK, "axes.labelcolor": INK}):
        figure = Figure(figsize=(9.5, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        for axis, quantity, title in zip(
            figure.subplots(1, 2),
            ("takes_per_s", "p99_s"),
            ("takes of one row per second", "99 of 100 takes took at most, s"),
            strict=True,
        ):
            for who, color in COLORS.items():
                points = [(callers, one.median(who, quantity)) for callers, one in found.items()]
                known = [point for point in points if point[1]]
                if known:
                    axis.plot(*zip(*known, strict=True), "o-", ms=4, color=color, label=who)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xticks(list(found), [str(callers) for callers in found])
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_minor_locator(NullLocator())
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_xlabel("callers at once")
            axis.set_title(title, loc="left", fontsize=9, fontweight="bold")
            axis.grid(color=FAINT, linewidth=0.5)
        handles, labels = axis.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)


def time_of(result: Result) -> str:
    """What ours needed, for the left of a line."""
    rate = result.median(OURS, "takes_per_s")
    wall_s = result.median(OURS, "wall_s") or 0.0
    return f"{rate:6.0f}/s" if rate is not None else f"{wall_s * 1e3:5.0f} ms"


def heading(results: Results) -> str:
    """What was compared, and on what."""
    versions, machine = results.versions, results.machine
    note = "" if results.scale == 1 else f", scale {results.scale:g}"
    return (
        f"lance_io {versions['lance_io']} and pylance {versions['pylance']} on a bucket, 30 ms added to each request\n"
        f"{machine['processor']}, {machine['cores']} cores, MinIO and the proxy on the same machine{note}"
    )


def scale(axis: Any) -> None:
    """Ratios on a logarithmic axis, with a light grid."""
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.set_xticks([tick for tick in TICKS if low <= tick <= high])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axis.tick_params(axis="both", length=0)
    axis.grid(axis="x", color=FAINT, linewidth=0.6)
    axis.grid(axis="y", color=FAINT, linewidth=0.3)
    axis.set_axisbelow(True)
    for side in axis.spines.values():
        side.set_visible(False)
