"""What docs/filters.md says is so: its examples, and its list of functions."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from lance_io.filters import compile_filter
from lance_io.filters.functions.function_registry import FUNCTIONS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "filters.md").read_text()
EXAMPLES = re.search(r"```filters\n(.*?)```", TEXT, re.DOTALL)[1].splitlines()
OPERATORS = {
    "||",
    "like",
    "ilike",
    "+",
    "-",
    "%",
    "/",
    "=",
    "between",
    "is_distinct",
    "is_not_distinct",
}  # functions inside, not for users


@pytest.fixture(scope="module")
def batch() -> pa.RecordBatch:
    with pa.ipc.open_file(ROOT.parent / "shared" / "data" / "filter-corpus" / "table.arrow") as file:
        return file.read_all().combine_chunks().to_batches()[0]


@pytest.mark.parametrize("line", EXAMPLES)
def test_example(line: str, batch: pa.RecordBatch) -> None:
    filter, *rows = re.split(r"\s{3,}", line.strip())
    selected = compile_filter(filter, batch.schema).selection(batch).tolist()
    assert selected == [int(row) for row in " ".join(rows).split()]


def test_functions() -> None:
    section = TEXT.split("## Functions")[1].split("## Errors")[0].split("**Any value.**")[1]
    assert set(re.findall(r"`(\w+)`", section)) == set(FUNCTIONS) - OPERATORS
