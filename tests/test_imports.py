"""What `import lance_io` costs: it loads nothing that most programs do not need.

Cloud clients, `pyarrow.dataset` (0.4 s by itself) and data frame libraries load when they are first used. Each case
starts a fresh interpreter, because this one has loaded everything for other tests.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = [
    "aiobotocore",
    "aiohttp",
    "botocore",
    "duckdb",
    "lance",
    "pandas",
    "polars",
    "pyarrow.dataset",
    "pyarrow._dataset",
    "pyspark",
    "sqlglot",
    "typer",
]


def modules_after(statement: str) -> set[str]:
    """The names in `sys.modules` of a fresh interpreter that has run `statement`."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import lance_io",
        "import lance_io.errors",
        "import lance_io.dataset",
        "import lance_io; lance_io.dataset, lance_io.AsyncDataset; dir(lance_io)",
    ],
)
def test_import_loads_nothing_heavy(statement: str) -> None:
    loaded = modules_after(statement)
    assert "lance_io" in loaded
    assert loaded.isdisjoint(HEAVY), sorted(loaded.intersection(HEAVY))


def test_arrow_filters_need_no_parser() -> None:
    loaded = modules_after(
        "import pyarrow as pa, pyarrow.compute as pc\n"
        "from lance_io.dataset.predicate import compile_filter\n"
        "compile_filter(pc.field('a') > 1, pa.schema([('a', pa.int64())]))"
    )
    assert "lance_io.dataset.predicate.evaluate" in loaded
    assert "sqlglot" not in loaded
