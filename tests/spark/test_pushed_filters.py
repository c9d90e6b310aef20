"""Spark's predicates as filters: the same rows as by a plain reading of Spark's rules, or more where they say so."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lance_io
from lance_io.spark.worker.pushed_filters import DEPTH_MAX, PushedFilters
from tests.seeds import seed_of
from tests.spark.spark_predicates import Draw, make_table, passes, rows_of

NUM_PREDICATES = 2000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return make_table(Random(1582), 400)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, table: pa.Table) -> lance_io.LanceDataset:
    return lance_io.write_dataset(table, tmp_path_factory.mktemp("tables") / "t.lance")


def test_random_predicates(data: lance_io.LanceDataset, table: pa.Table) -> None:
    random = Random(seed_of(45))
    draw, rows = Draw(random), rows_of(table)
    filters = PushedFilters(data.schema)
    uses: Counter[str] = Counter()
    for _ in range(NUM_PREDICATES):
        node = draw.predicate()
        pushed = filters.push([node])
        uses.update(pushed.uses)
        if pushed.text is None:
            continue
        kept = set(data.to_table(columns=["id"], filter=pushed.text)["id"].to_pylist())
        expected = {row["id"] for row in rows if passes(node, row)}
        if pushed.uses == ["exact"]:
            assert kept == expected, (node, pushed.text)
        else:
            assert kept >= expected, (node, pushed.text)
    assert uses["exact"] > NUM_PREDICATES // 2
    assert uses["superset"] > 0 < uses["left"]


def column(name: str) -> dict[str, Any]:
    return {"col": [name]}


def literal(text: str | None, kind: str) -> dict[str, Any]:
    return {"lit": text, "type": kind}


def use(schema: pa.Schema, name: str, *arguments: Any) -> str:
    (only,) = PushedFilters(schema).push([{"op": name, "args": [*arguments]}]).uses
    return only


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pa.uint8(), literal("-1", "smallint")),  # no number of the column
        (pa.uint64(), literal("1", "decimal(20,0)")),
        (pa.float16(), literal("1.0", "float")),
        (pa.float32(), literal("1.0", "double")),
        (pa.timestamp("ns"), literal("1", "timestamp_ntz")),
        (pa.timestamp("ms"), literal("1", "timestamp_ntz")),
        (pa.date64(), literal("1", "date")),
        (pa.date32(), literal("2932897", "date")),  # beyond the year 9999
        (pa.timestamp("us"), literal("-62104060800000001", "timestamp_ntz")),  # before the year 2
        (pa.timestamp("us", "UTC"), literal("253370764800000000", "timestamp")),  # of the year 9999
        (pa.string(), literal("a", "string collate UTF8_LCASE")),
        (pa.json_(), literal("{}", "string")),
        (pa.binary(), literal("a", "binary")),
        (pa.decimal128(10, 2), literal("1.000", "decimal(10,3)")),
        (pa.dictionary(pa.int8(), pa.string()), literal("a", "string")),
        (pa.float64(), literal("Infinity", "double")),
        (pa.int64(), None),  # an expression that has no form
    ],
)
def test_left_to_spark(dtype: pa.DataType, value: Any) -> None:
    assert use(pa.schema([("a", dtype)]), "=", column("a"), value) == "left"


def test_unknown_parts_are_left_and_others_used() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.int64()))])
    known = {"op": "=", "args": [column("a"), literal("1", "bigint")]}
    unknown = {"op": "LOCATE", "args": [column("a")]}
    assert use(schema, "AND", known, unknown) == "superset"
    assert use(schema, "OR", known, unknown) == "left"
    assert use(schema, "NOT", {"op": "AND", "args": [known, unknown]}) == "left"
    assert use(schema, "=", {"col": ["b", "element"]}, literal("1", "bigint")) == "left"
    assert use(schema, "=", column("gone"), literal("1", "bigint")) == "left"
    assert use(schema, "IS_NULL", column("b")) == "exact"
    both = PushedFilters(schema).push([known, unknown])
    assert (both.uses, both.text) == (["exact", "left"], "(`a` = 1)")


def test_paths_of_the_read_are_those_of_the_table() -> None:
    """With the option `columns`, a member of a struct is a column of Spark's."""
    schema = pa.schema([("point.x", pa.int64())])
    node = {"op": ">", "args": [column("point.x"), literal("1", "bigint")]}
    assert PushedFilters(schema, [("point", "x")]).push([node]).text == "(`point`.`x` > 1)"


def test_deep_predicates_are_left() -> None:
    schema = pa.schema([("a", pa.int64())])
    node: Any = {"op": "IS_NULL", "args": [column("a")]}
    for _ in range(DEPTH_MAX + 1):
        node = {"op": "NOT", "args": [node]}
    assert PushedFilters(schema).push([node]).uses == ["left"]
