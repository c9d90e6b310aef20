"""Functions are loaded when one of them is named: which modules a filter imports, each case in a fresh process."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from typing import Final

import pytest

from lance_io.filters import functions
from lance_io.filters.functions.function_registry import FUNCTIONS

REGISTRY: Final = "function_registry"
MODULES: Final = {one.name for one in pkgutil.iter_modules(functions.__path__)} - {REGISTRY}
TABLES: Final = {name for name in MODULES if hasattr(import_module(f"{functions.__name__}.{name}"), "FUNCTIONS")}
ONE_OF_EACH: Final = {
    "conditions": "coalesce(name, 'y') = 'x'",
    "text": "upper(name) = 'X'",
    "regex": "regexp_match(name, '(x)')",
    "encodings": "to_hex(id) = '1'",
    "digests": "md5(name) = 'x'",
    "numbers": "exact * exact > 1",
    "nullary": "random() < price",
    "list_items": "cardinality(items) = 1 and [id] = items",
    "list_edits": "array_append(items, 1) = range(id)",
    "vectors": "array_distance(items, items) = 0",
    "dates": "date_part('year', day) = 1970",
    "date_arithmetic": "day + interval '1 day' > day",
    "structs": "map_keys(map(items, items)) = items and named_struct('a', id)['a'] = 1",
    "arrow_types": "arrow_typeof(id) = 'Int64'",
    "json_documents": "json_exists(document, '$.a')",
}
"""Filters that need one module of functions each."""

PROGRAM: Final = """
import json, sys
import pyarrow as pa, pyarrow.compute as pc
from lance_io.errors import BindError
from lance_io.filters import compile_filter

columns = {"price": [0.25, 1.0], "name": ["x", None], "id": [1, 2], "items": [[1], [2, 3]]}
columns |= {"day": pa.array([0, 1], pa.date32()), "exact": pa.array([1, 2], pa.decimal128(5, 2))}
batch = pa.record_batch({**columns, "document": pa.nulls(2, pa.large_binary())})
for text in json.loads(sys.argv[1]):
    try:
        compile_filter(eval(text[3:]) if text.startswith("pc:") else text, batch.schema).mask(batch)
    except BindError as error:
        print("#", error, file=sys.stderr)
    print(*[name.rpartition(".")[2] for name in sys.modules if name.startswith("lance_io.filters.functions.")])
"""


def modules_after_each(*filters: str, error: str = "") -> list[set[str]]:
    """The modules of functions that a fresh process has imported after each of the filters; `pc:` marks expressions.

    error  what one of them fails with
    """
    command = [sys.executable, "-c", PROGRAM, json.dumps(filters)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    assert done.stderr == (f"# {error}\n" if error else "")
    return [{*line.split()} - {REGISTRY} for line in done.stdout.splitlines()]


WITHOUT_FUNCTIONS: Final = (
    "price > 0.5",
    "name = 'x' AND id IN (1, 2, 3)",
    "NOT name IS NULL OR id BETWEEN 1 AND 2 OR cast(id AS double) + 1 < price OR items > items",
    "pc:pc.field('price') > 0.5",
    "pc:pc.utf8_upper(pc.field('name')).isin(['X']) | pc.field('id').is_valid()",
)


def test_a_filter_without_functions_loads_none() -> None:
    """Nor does a word that is no function."""
    error = "Invalid user input: Invalid function 'uper'. Did you mean 'upper'?"
    loaded = modules_after_each(*WITHOUT_FUNCTIONS, "uper(name) = 'X'", error=error)
    assert loaded == [set()] * (len(WITHOUT_FUNCTIONS) + 1)


@pytest.mark.parametrize("names", [list(ONE_OF_EACH), list(ONE_OF_EACH)[::-1]], ids=["forwards", "backwards"])
def test_a_function_loads_its_module_only(names: list[str]) -> None:
    loaded = modules_after_each("price > 0.5", *[ONE_OF_EACH[name] for name in names])
    assert [(after - before) & TABLES for before, after in pairwise(loaded)] == [{name} for name in names]


def test_every_module_has_its_turn() -> None:
    assert ONE_OF_EACH.keys() == TABLES


def test_the_registry_names_what_the_modules_define() -> None:
    tables = [import_module(f"{functions.__name__}.{module}").FUNCTIONS for module in TABLES]
    assert sum(map(len, tables)) == len(FUNCTIONS)
    assert {name: function for table in tables for name, function in table.items()} == dict(FUNCTIONS)
    assert "upper" in FUNCTIONS
    assert "no_such_function" not in FUNCTIONS
