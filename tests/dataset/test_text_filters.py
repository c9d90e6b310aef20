"""Text filters and computed columns wherever the API takes them; what they read; hostile text."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import duckdb
import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_io
from lance_io.dataset import ScannerBuilder
from lance_io.errors import BindError
from lance_io.filters import compile_column, compile_filter
from lance_io.filters.functions.function_registry import FUNCTIONS

if TYPE_CHECKING:
    from lance_io import LanceDataset

EXAMPLES = int(os.environ.get("LANCE_IO_TEST_EXAMPLES", "60"))  # of each property; the nightly run draws more
TEXT, SAME = "doubled > 100 and s != 's77'", (pc.field("doubled") > 100) & (pc.field("s") != "s77")


@pytest.fixture(scope="module")
def table(mixed_uri: str) -> LanceDataset:
    return lance_io.dataset(mixed_uri)


def test_every_call_that_takes_a_filter(table: LanceDataset) -> None:
    expected = table.to_table(["s", "a"], SAME)
    assert expected.num_rows > 10
    assert table.to_table(["s", "a"], TEXT) == expected
    assert table.scanner(["s", "a"], TEXT).to_table() == expected
    assert pa.Table.from_batches(table.to_batches(["s", "a"], TEXT)) == expected
    assert table.head(3, columns=["s", "a"], filter=TEXT) == expected.slice(0, 3)
    assert table.count_rows(TEXT) == expected.num_rows
    assert table.scanner(filter=TEXT).count_rows() == expected.num_rows
    assert table.to_pandas(["s"], TEXT)["s"].tolist() == expected["s"].to_pylist()
    assert ScannerBuilder(table).columns(["s", "a"]).filter(TEXT).to_scanner().to_table() == expected
    found = [one.to_table(columns=["s", "a"], filter=TEXT) for one in table.get_fragments()]
    assert pa.concat_tables(found).combine_chunks() == expected.combine_chunks()
    assert sum(one.count_rows(TEXT) for one in table.get_fragments()) == expected.num_rows
    ordered = table.to_table(["s"], TEXT, order_by=["s"], limit=5)["s"].to_pylist()
    assert ordered == sorted(expected["s"].to_pylist())[:5]
    assert "Filter: ((doubled > 100) and (s != 's77'))" in table.scanner(["s"], TEXT).explain_plan()


async def test_every_awaited_call_that_takes_a_filter(table: LanceDataset, mixed_uri: str) -> None:
    expected = table.to_table(["s", "a"], SAME)
    ours = await lance_io.AsyncDataset.open(mixed_uri)
    assert await ours.to_table(["s", "a"], TEXT) == expected
    assert await ours.count_rows(TEXT) == expected.num_rows
    assert (await ours.head(3, columns=["s"], filter=TEXT))["s"].to_pylist() == expected["s"].to_pylist()[:3]
    batches = [batch async for batch in ours.to_batches(["s", "a"], TEXT)]
    assert pa.Table.from_batches(batches) == expected
    assert sum([await one.count_rows(TEXT) for one in ours.get_fragments()]) == expected.num_rows
    assert (await ours.take([3, 1], {"v": "a + 1"}))["v"].to_pylist() == table.take([3, 1], {"v": "a + 1"})[
        "v"
    ].to_pylist()


def test_engines_push_their_own_expressions_down(table: LanceDataset) -> None:
    ours = table  # DuckDB finds the variable by its name
    found = duckdb.sql("select count(*) from ours where doubled > 100 and s != 's77'").fetchall()
    assert found == [(ours.count_rows(TEXT),)]


# -- computed columns ------------------------------------------------------------------------------------------------

COLUMNS = {
    "v": "a * 2 + 1",
    "u": "upper(s)",
    "x": "n.x",
    "y": "n['y'] || '!'",
    "A": "a",
    "first": "l[1]",
    "long": "length(s) > 2",
    "id": "_rowid",
    "next": "_rowid + 1",
    "k": "'k'",
    "u16": "u",
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"filter": "a > 50"},
        {"filter": "a > 50", "late_materialization": True},
        {"filter": "doubled % 4 = 0", "limit": 7, "offset": 2},
        {"with_row_id": True, "with_row_address": True},
        {"limit": 9, "offset": 20},
        {"order_by": ["s"], "limit": 6},
        {"batch_size": 7},
    ],
    ids=str,
)
def test_computed_columns(mixed_uri: str, options: dict[str, Any]) -> None:
    ours = lance_io.dataset(mixed_uri).to_table(COLUMNS, **options)
    theirs = lance.dataset(mixed_uri).to_table(COLUMNS, **options)
    assert ours.schema.names == theirs.schema.names
    assert ours.schema.types == theirs.schema.types
    assert ours.to_pylist() == theirs.to_pylist()


def test_taken_computed_columns(mixed_uri: str) -> None:
    rows = [40, 3, 3, 90, 0]
    columns = {name: text for name, text in COLUMNS.items() if "_rowid" not in text}
    assert (
        lance_io.dataset(mixed_uri).take(rows, columns).to_pylist()
        == lance.dataset(mixed_uri).take(rows, columns).to_pylist()
    )
    ours = lance_io.dataset(mixed_uri).take(rows, {"id": "_rowid", "next": "_rowid + 1", "k": "1"})
    assert [one + 1 for one in ours["id"].to_pylist()] == ours["next"].to_pylist()
    assert ours["k"].to_pylist() == [1] * 5
    assert lance_io.dataset(mixed_uri).take([], {"v": "a + 1"}).schema == pa.schema([pa.field("v", pa.int64())])


def test_only_what_is_named_is_read(table: LanceDataset) -> None:
    def read(columns: Any) -> int:
        seen: list[Any] = []
        table.to_table(columns, scan_stats_callback=seen.append)
        return int(seen[0].bytes_read)

    table.to_table()  # metadata is read once
    assert read({"v": "a + length(s)"}) == read(["a", "s"])
    assert 0 < read({"v": "n.x + 1"}) < read(["n"])
    assert read({"k": "1"}) == 0


def test_the_time_is_that_of_the_call(table: LanceDataset) -> None:
    moments = [table.to_table({"t": "now()"}, limit=2)["t"].cast(pa.int64()).to_pylist() for _ in range(2)]
    assert moments[0][0] == moments[0][1] < moments[1][0]


def test_a_row_that_cannot_be_computed(table: LanceDataset) -> None:
    with pytest.raises(pa.ArrowInvalid):
        table.to_table({"v": "1 / (a - a)"})
    with pytest.raises(pa.ArrowInvalid):
        table.to_table(["a"], "cast(s as bigint) = 1")
    # rows that the other operand decides are not computed
    assert table.count_rows("a - a <> 0 and 1 / (a - a) > 0") == 0
    assert table.count_rows("1 / (a - 8) >= 0 and a > 8") == table.count_rows("a > 8")


# -- bytes -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> LanceDataset:
    rng = np.random.default_rng(1)
    rows = 20_000
    columns = {"k": np.arange(rows), "w": [rng.bytes(100).hex() for _ in range(rows)], "v": rng.random((rows,))}
    uri = str(tmp_path_factory.mktemp("wide") / "t.lance")
    lance.write_dataset(pa.table(columns), uri, data_storage_version="2.1")
    opened = lance_io.dataset(uri)
    opened.to_table()  # metadata is read once
    return opened


def bytes_read(table: LanceDataset, columns: Any, filter: str | None, **options: Any) -> int:
    seen: list[Any] = []
    table.to_table(columns, filter, scan_stats_callback=seen.append, **options)
    return int(seen[0].bytes_read)


def test_other_columns_are_read_for_surviving_rows(wide: LanceDataset) -> None:
    filter_only = bytes_read(wide, ["k"], "k < 0")
    assert bytes_read(wide, ["w"], "k < 0") == filter_only < 60_000
    everything = bytes_read(wide, ["k", "w"], None)
    assert everything > 2_000_000
    few = bytes_read(wide, ["w"], "k in (5, 15000)")
    assert filter_only < few < filter_only + 100_000
    assert bytes_read(wide, ["w"], "k in (5, 15000)", late_materialization=False) == everything
    assert wide.to_table(["w"], "k in (5, 15000)") == wide.take([5, 15000], ["w"])
    assert bytes_read(wide, {"u": "upper(w)"}, "k in (5, 15000)") <= few
    # narrow columns come with those of the filter: looking rows up costs more
    assert bytes_read(wide, ["v"], "k < 0") > filter_only + 100_000


# -- hostile text ----------------------------------------------------------------------------------------------------

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64())), ("p", pa.bool_())])


@pytest.mark.parametrize("levels", [10, 45, 60, 2_000])
@pytest.mark.parametrize(
    "opening",
    [
        "(",
        "not ",
        "not (",
        "- ",
        "a + (",
        "l[",
        "[",
        "abs(",
        "a in (",
        "cast(",
        "coalesce(p, ",
        "(a + 1) between 0 and (",
        "a is distinct from (",
    ],
)
def test_nested_text(opening: str, levels: int) -> None:
    text = opening * levels + "a" + {"(": ")", "[": "]"}.get(opening[-1], ")" if "(" in opening else "") * levels
    try:
        compile_filter(text, SCHEMA)
    except BindError as error:
        assert isinstance(error, ValueError)
        assert len(str(error)) < 2000
    if levels > 60:
        with pytest.raises(BindError, match="levels deep"):
            compile_filter(text, SCHEMA)


@pytest.mark.parametrize("operator", ["+", "||", "*", "=", "<", "::string::string ||", "is null ="])
def test_long_text(operator: str) -> None:
    with pytest.raises(BindError):
        compile_filter(f" {operator} ".join(["a"] * 5_000), SCHEMA)


def test_long_chains_of_conditions() -> None:
    for word in ("and", "or"):
        predicate = compile_filter(f" {word} ".join(f"a <> {i}" for i in range(2_000)), SCHEMA)
        assert predicate.columns == ("a",)
    assert str(compile_filter(f"a in ({', '.join(map(str, range(5_000)))})", SCHEMA)).endswith("...))")


def test_text_has_any_length() -> None:
    long = "x" * (2 << 20)
    assert compile_filter(f"a = 1 /* {long} */ or s = '{long}' -- {long}", SCHEMA).columns == ("a", "s")


def test_a_caller_that_is_deep_already() -> None:
    def descend(levels: int) -> Exception | None:
        if levels:
            return descend(levels - 1)
        try:
            compile_filter("(" * 45 + f"a > {len(inspect.stack(0))}" + ")" * 45, SCHEMA)  # never parsed before
        except BindError as error:
            return error
        return None

    assert descend(10) is None
    assert "nested too deeply" in str(descend(sys.getrecursionlimit() - 300))


def test_results_without_bounds() -> None:
    batch = pa.record_batch({"a": [1], "s": ["x"], "l": [[1]], "p": [True]}, schema=SCHEMA)
    for text in ("length(repeat(s, 4000000000)) > 1", "lpad(s, 4000000000) = ''", "factorial(a + 30) > 1"):
        with pytest.raises(pa.ArrowInvalid):
            compile_filter(text, SCHEMA).mask(batch)


PIECES = [
    *"( ) [ ] , . + - * / % = < > ; ' \" ` :: || == != <= <=> { } ? @ # $ ! ~ & | ^ \\ -- /* */ \n".split(" "),
    *"a s l p n zz 1 2.5 1e400 .5 0x1 3L 'x' \"y\" `a` X'7' null true and or not in is like between escape".split(),
    *"case date timestamp decimal(10,2) interval select from limit order cast( as ::int distinct array[1]".split(),
    *[f"{name}(" for name in FUNCTIONS],
]


@settings(max_examples=EXAMPLES, deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12), glue=st.sampled_from([" ", ""]))
def test_any_text_is_a_filter_or_an_error(pieces: list[str], glue: str) -> None:
    for compile_text in (compile_filter, compile_column):
        try:
            compile_text(glue.join(pieces), SCHEMA)
        except BindError:
            pass


@settings(max_examples=EXAMPLES, deadline=None)
@given(text=st.text(max_size=40))
def test_any_characters_are_a_filter_or_an_error(text: str) -> None:
    try:
        compile_filter(text, SCHEMA)
    except BindError:
        pass


def test_trees_are_shared_among_threads() -> None:
    found: list[str] = []

    def compile_many() -> None:
        found.extend(str(compile_filter(f"a > {i % 20} and s like 'x%'", SCHEMA)) for i in range(100))

    threads = [threading.Thread(target=compile_many) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 400
    assert len(set(found)) == 20
