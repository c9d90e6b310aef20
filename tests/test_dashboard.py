"""The dashboard asks only for what `lance_io.metrics` gives, by the labels that it has, and shows all of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pytest

import lance_io
from lance_io import metrics
from lance_io.errors import CommitConflictError
from lance_io.io.call_metrics import CALLS
from lance_io.store.counters import Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import S3Server

DOCS = Path(__file__).resolve().parents[1] / "docs"
OF_EVERY_TARGET = {"job", "instance"}  # that Prometheus adds to whatever it collects
FUNCTIONS = {"sum", "by", "rate", "histogram_quantile"}


def queries() -> Iterator[str]:
    board = json.loads((DOCS / "dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield from re.findall(r"label_values\((.+),", variable["definition"])


@pytest.fixture
def exported(s3: S3Server, s3_uri: str) -> dict[str, set[str]]:
    """The labels of each time series, as it is after some work."""
    options = s3.options()
    calls = metrics.CallRecorder()
    uri = f"{s3_uri}/t"
    dataset = lance_io.write_dataset(pa.table({"a": range(100)}), uri, storage_options=options)
    dataset.take([7])
    dataset.to_table()
    lance_io.write_dataset(pa.table({"a": [1]}), uri, mode="append", storage_options=options, group_commit=True)
    with pytest.raises(CommitConflictError):
        operation = lance_io.LanceOperation.Delete([], [0], "true")
        dataset.delete("a = 1")
        lance_io.LanceDataset.commit(uri, operation, read_version=1, storage_options=options)
    calls.stop()
    found: dict[str, set[str]] = {}
    for line in metrics.prometheus_text(calls).splitlines():
        if not line.startswith("#"):
            name, labels = re.fullmatch(r"(\w+)(?:\{(.*)\})? \S+", line).groups()
            found.setdefault(name, set()).update(re.findall(r"(\w+)=", labels or ""))
    return found


def test_queries_ask_for_what_is_exported(exported: dict[str, set[str]]) -> None:
    asked: set[str] = set()
    for query in queries():
        series = re.findall(r"\b(lance_io_\w+)(?:\{(.*?)\})?", query)
        assert series, query
        grouped = {label.strip() for names in re.findall(r"by \(([^)]*)\)", query) for label in names.split(",")}
        for name, selector in series:
            asked.add(name)
            matchers = dict(re.findall(r'(\w+)=~?"([^"]*)"', selector))
            assert {*matchers, *grouped} <= exported[name] | OF_EVERY_TARGET, query
            assert matchers.get("call", "take") in CALLS.values()
            assert matchers.get("operation", "get") in get_args(Operation)
        if "label_values" not in query:
            rest = re.sub(r'\{.*?\}|by \([^)]*\)|\[\$__rate_interval\]|"[^"]*"', "", query)
            assert {word for word in re.findall(r"[a-z_]{2,}", rest) if not word.startswith("lance_io")} <= FUNCTIONS
            assert query.count("(") == query.count(")") and query.count("{") == query.count("}")
        for name in re.findall(r"rate\((lance_io_\w+)", query):
            assert re.search("_(total|bucket|sum|count)$", name), "the rate of what only grows"
    shown = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in asked}
    assert shown == {metric.prometheus_name for metric in metrics.METRICS}


def test_alerts_ask_for_what_is_exported(exported: dict[str, set[str]]) -> None:
    page = (DOCS / "operations.md").read_text()
    rules = re.findall(r"(?m)^\| `([^`]*\(.*?)`", page)
    assert len(rules) >= 5
    for rule in rules:
        for name, selector in re.findall(r"\b(lance_io_\w+)(?:\{(.*?)\})?", rule):
            assert set(re.findall(r"(\w+)=", selector)) <= exported[name]


def test_panels_are_whole() -> None:
    board: dict[str, Any] = json.loads((DOCS / "dashboard.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) > 15
    places: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not own & places and max(x for x, _ in own) < 24, panel["title"]
        places |= own
        for target in panel.get("targets", ()):
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set(re.findall(r"\w+", target["expr"]))
