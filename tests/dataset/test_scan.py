"""Scans compared with pylance: columns, row windows, batches, filters, order, system columns."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.dataset import ScannerBuilder as TheirBuilder

import lance_io
from lance_io.dataset import ColumnOrdering, ScannerBuilder
from lance_io.errors import BindError, EvaluationError
from lance_io.io.stats import io_stats
from lance_io.limits import KIB, SCAN_FILES_BYTES
from lance_io.plans.plan import drive_sync
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.scan.scan_plan import plan_scan
from lance_io.store.local.disk import LocalStore
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCANS: list[dict[str, Any]] = [
    {},
    {"columns": ["s", "a"]},
    {"columns": ["n.x", "a", "n"]},
    {"columns": ["n.y", "n.x"]},
    {"columns": {"b": "a", "c": "n.x"}},
    {"columns": []},
    {"columns": ["nothing", "doubled", "u"]},
    {"columns": ["a", "_rowid", "s", "_rowaddr"]},
    {"columns": ["_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"]},
    {"with_row_id": True, "with_row_address": True},
    {"columns": [], "with_row_id": True},
    {"columns": ["_rowaddr", "a"], "with_row_id": True, "with_row_address": True},
    {"limit": 0},
    {"limit": 7, "columns": ["s"]},
    {"limit": 40, "offset": 20, "with_row_id": True},
    {"offset": 90, "columns": ["s", "_rowoffset"]},
    {"offset": 1000, "columns": ["s"]},
    {"columns": ["a"], "with_row_id": True, "include_deleted_rows": True},
    {"columns": ["a"], "with_row_id": True, "with_row_address": True, "include_deleted_rows": True, "limit": 9},
    {"columns": ["s", "l"], "filter": pc.field("doubled") > 100},
    {"columns": ["s"], "filter": pc.field("doubled") > 100, "limit": 5, "offset": 3, "with_row_id": True},
    {"columns": [], "filter": pc.field("doubled") > 100, "with_row_id": True},
    {"filter": pc.field("doubled") > 100_000},
    {"filter": pc.field("s") == "s42", "with_row_address": True},
    {"filter": pc.is_null(pc.field("a")), "late_materialization": True},
    {"filter": pc.is_null(pc.field("a")), "late_materialization": False},
    {"filter": pc.is_null(pc.field("a")), "late_materialization": ["n"]},
    {"columns": ["a", "s"], "order_by": ["s"], "with_row_id": True},
    {"columns": ["a", "s"], "order_by": ["a", "s"], "limit": 20, "with_row_id": True},
]


@pytest.mark.parametrize("options", SCANS, ids=lambda options: " ".join(map(str, options.items()))[:60])
def test_tables_equal_those_of_pylance(mixed_uri: str, options: dict[str, Any]) -> None:
    expected = lance.dataset(mixed_uri).scanner(**options).to_table().combine_chunks()
    scanner = lance_io.dataset(mixed_uri).scanner(**options)
    for got in (scanner.to_table(), scanner.to_reader().read_all()):
        assert got.schema.equals(expected.schema, check_metadata=True)
        assert got.combine_chunks().equals(expected)
        got.validate(full=True)
    assert scanner.projected_schema.equals(expected.schema, check_metadata=True)
    if not {"limit", "offset"} & {*options}:
        assert scanner.count_rows() == expected.num_rows


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 3},
        {"batch_size": 10, "strict_batch_size": True},
        {"batch_size": 10, "limit": 33, "offset": 17},
        {"columns": []},
        {"batch_size": 4, "columns": ["a"], "order_by": ["s"], "with_row_id": True},
    ],
)
def test_batches_have_the_sizes_of_pylance(mixed_uri: str, options: dict[str, Any]) -> None:
    expected = list(lance.dataset(mixed_uri).scanner(**options).to_batches())
    got = list(lance_io.dataset(mixed_uri).scanner(**options).to_batches())
    assert [batch.num_rows for batch in got] == [batch.num_rows for batch in expected]
    assert pa.Table.from_batches(got).equals(pa.Table.from_batches(expected))


def test_filtered_batches_are_packed(mixed_uri: str) -> None:
    batches = list(lance_io.dataset(mixed_uri).to_batches(["s"], pc.field("doubled") > 100, batch_size=7))
    assert {batch.num_rows for batch in batches[:-1]} == {7}
    assert 1 <= batches[-1].num_rows <= 7


def test_batches_of_about_so_many_bytes(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    sizes = [batch.num_rows for batch in table.to_batches(["a", "doubled"], batch_size_bytes=160)]
    assert max(sizes) == 10
    assert sum(sizes) == 93
    assert {batch.num_rows for batch in table.to_batches(["a"], batch_size_bytes=1)} == {1}


def test_only_chosen_fragments_in_the_order_given(mixed_uri: str) -> None:
    ours, theirs = lance_io.dataset(mixed_uri), lance.dataset(mixed_uri)
    for ids in ([2, 0], [3], []):
        got = ours.scanner(["s"], fragments=[ours.get_fragment(i) for i in ids], limit=40).to_table()
        expected = theirs.scanner(["s"], fragments=[theirs.get_fragment(i) for i in ids], limit=40).to_table()
        assert got.column("s").to_pylist() == expected.column("s").to_pylist()


def test_filters_see_system_columns_and_members(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    assert table.to_table(["s"], pc.field("_rowoffset") == 10).column("s").to_pylist() == ["s14"]
    assert table.to_table(["s"], pc.field("n", "x") == 41).column("s").to_pylist() == ["s41"]
    assert table.count_rows((pc.field("_rowid") < 1 << 32) & (pc.field("n", "y") == "6")) == 1


def test_order_puts_nulls_and_directions_where_asked(mixed_uri: str) -> None:
    scan = lance_io.dataset(mixed_uri).scanner(
        ["a", "s"], order_by=[ColumnOrdering("a", ascending=False, nulls_first=True), ColumnOrdering("s")], limit=16
    )
    values = scan.to_table().column("a").to_pylist()
    assert values[:14] == [None] * 14  # multiples of 7 up to 98, but for 0, which was deleted
    assert values[14:] == [97, 96]


def test_stable_row_ids_and_row_versions(stable_uri: str) -> None:
    columns = ["i", "_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"]
    ours, theirs = lance_io.dataset(stable_uri), lance.dataset(stable_uri)
    assert ours.to_table(columns).combine_chunks().equals(theirs.to_table(columns).combine_chunks())
    late = ours.to_table(["t", "_rowid"], pc.field("i") < 50, late_materialization=True)
    assert late.combine_chunks().equals(theirs.to_table(["t", "_rowid"], pc.field("i") < 50).combine_chunks())


def test_default_scan_options(mixed_uri: str) -> None:
    defaults = {"with_row_id": True, "columns": ["a"]}
    ours = lance_io.dataset(mixed_uri, default_scan_options=defaults)
    theirs = lance.dataset(mixed_uri, default_scan_options=defaults)
    assert ours.schema.names == theirs.schema.names == ["a", "_rowid"]
    assert ours.to_table(["s"]).schema.names == theirs.to_table(["s"]).schema.names
    assert ours.to_table(with_row_id=False).schema.names == ["a"]
    for library in (lance, lance_io):
        with pytest.raises(ValueError, match="Unknown option column"):
            library.dataset(mixed_uri, default_scan_options={"column": ["a"]}).to_table()


READS: dict[str, Callable[[Any], Any]] = {
    "count": lambda table: table.count_rows(),
    "count of a filter": lambda table: table.count_rows("a < 40"),
    "sample": lambda table: table.sample(3).column_names,
    "scan": lambda table: table.to_table().to_pylist(),
    "head": lambda table: table.head(3).to_pylist(),
    "take": lambda table: table.take([1]).to_pylist(),
    "fragment": lambda table: table.get_fragments()[1].to_table().to_pylist(),
    "head of a fragment": lambda table: table.get_fragments()[1].head(3).to_pylist(),
    "batches of a fragment": lambda table: [batch.num_rows for batch in table.get_fragments()[1].to_batches()],
    "count of a fragment": lambda table: table.get_fragments()[0].count_rows(),
    "scan of fragments": lambda table: table.scanner(fragments=table.get_fragments()[:1]).to_table().to_pylist(),
}


@pytest.mark.parametrize("what", READS)
def test_default_scan_options_are_heeded_where_pylance_heeds_them(mixed_uri: str, what: str) -> None:
    for defaults in (
        {"filter": "a < 20"},
        {"limit": 5},
        {"offset": 5},
        {"columns": ["a"], "with_row_id": True},
        {"include_deleted_rows": True, "with_row_id": True},
        {"batch_size": 10},
    ):
        ours, theirs = (
            READS[what](library.dataset(mixed_uri, default_scan_options=defaults)) for library in (lance_io, lance)
        )
        assert ours == theirs, defaults


@pytest.mark.parametrize(
    "columns", [["nope"], ["s", "s"], ["n.nope"], "s", ("s", "a"), {"s"}, [1], {"b": 1}, {"b": "nope"}], ids=str
)
def test_counting_a_scan_checks_its_columns_as_pylance_does(mixed_uri: str, columns: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as theirs:
        lance.dataset(mixed_uri).scanner(columns).count_rows()
    for filter in (None, "a < 40"):
        with pytest.raises(theirs.type):
            lance_io.dataset(mixed_uri).scanner(columns, filter).count_rows()


def test_members_of_packed_structs(tmp_path: Path) -> None:
    packed = pa.field("n", pa.struct({"a": pa.int32(), "b": pa.int64()}), metadata={"packed": "true"})
    table = pa.table([pa.array([{"a": i, "b": -i} for i in range(20)], packed.type)], schema=pa.schema([packed]))
    lance.write_dataset(table, tmp_path, data_storage_version="2.1")
    ours, theirs = lance_io.dataset(tmp_path), lance.dataset(tmp_path)
    for columns in (["n.a"], {"z": "n.a + 1"}):
        for filter in (None, "n.a > 5"):
            assert ours.to_table(columns, filter).equals(theirs.to_table(columns, filter))


@pytest.mark.parametrize(
    "filter",
    [
        "a / 0 = 1",
        "a % 0 = 1",
        "cast(s as int) = 1",
        "chr(a - 99) = 'x'",
        "date_bin(interval '0 day', timestamp '2020-01-01') = timestamp '2020-01-01'",
        "date_bin(interval '0 day', cast(a as timestamp)) is null",
    ],
)
def test_rows_that_cannot_be_computed_fail_as_in_pylance(mixed_uri: str, filter: str) -> None:
    for read in (
        lambda table: table.to_table(filter=filter),
        lambda table: [*table.to_batches(filter=filter)],
        lambda table: table.scanner(filter=filter).to_reader().read_all(),
        lambda table: table.count_rows(filter),
        lambda table: table.scanner(filter=filter).count_rows(),
        lambda table: table.get_fragments()[1].count_rows(filter),
        lambda table: table.to_table({"c": filter}),
        lambda table: table.take([1, 2], {"c": filter}),
    ):
        with pytest.raises((ValueError, OSError)) as theirs:
            read(lance.dataset(mixed_uri))
        with pytest.raises(EvaluationError, match="cannot be computed") as ours:
            read(lance_io.dataset(mixed_uri))
        assert isinstance(ours.value, theirs.type)


def test_a_builder_has_the_defaults_that_it_is_given(mixed_uri: str) -> None:
    for builder, library in ((ScannerBuilder, lance_io), (TheirBuilder, lance)):
        table = library.dataset(mixed_uri, default_scan_options={"limit": 5})
        assert builder(table).to_scanner().count_rows() == 93
        assert builder(table).apply_defaults({"limit": 5}).to_scanner().to_table().num_rows == 5


def test_variables_of_the_environment_are_those_of_pylance(mixed_uri: str) -> None:
    code = """
import sys, lance, lance_io
for library in lance, lance_io:
    table = library.dataset(sys.argv[1])
    print([[batch.num_rows for batch in table.to_batches(["a"], **given)] for given in ({}, {"batch_size": 5})])
"""
    variables = {"LANCE_DEFAULT_BATCH_SIZE": "7", "LANCE_DEFAULT_IO_BUFFER_SIZE": "1000", "LANCE_CPU_THREADS": "1"}
    variables["LANCE_DEFAULT_FRAGMENT_READAHEAD"] = "1"
    command = [sys.executable, "-c", code, mixed_uri]
    run = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    theirs, ours = run.stdout.splitlines()
    assert ours == theirs
    assert ours.startswith("[[7, ")


def test_the_environment_comes_last(mixed_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lance_io.dataset(mixed_uri, default_scan_options={"io_buffer_size": 5})
    for name in ("BATCH_SIZE", "IO_BUFFER_SIZE", "FRAGMENT_READAHEAD"):
        monkeypatch.setenv(f"LANCE_DEFAULT_{name}", "3")
    options = table.scanner(fragment_readahead=1)._options
    assert (options.batch_size, options.io_buffer_size, options.fragment_readahead) == (3, 5, 1)
    monkeypatch.setenv("LANCE_DEFAULT_BATCH_SIZE", "many")
    with pytest.raises(
        ValueError, match="LANCE_DEFAULT_BATCH_SIZE: expected a whole number of at least 1, found 'many'"
    ):
        table.to_table()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"columns": ["zz"]}, BindError, "No field named zz"),
        ({"columns": ["A"]}, BindError, "No field named A"),
        ({"columns": ["l.p"]}, BindError, "No field named l"),
        ({"columns": ["a", "a"]}, BindError, "Duplicate column name: a"),
        ({"columns": "a"}, TypeError, "columns must be a list or dict"),
        ({"columns": {"b": "a * "}}, BindError, "sql parser error"),
        ({"columns": {"b": "zz * 2"}}, BindError, "No field named zz"),
        ({"limit": -1}, ValueError, "Limit must be non-negative"),
        ({"offset": -1}, ValueError, "Offset must be non-negative"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"batch_size": -1}, OverflowError, "negative"),
        ({"batch_readahead": 0}, ValueError, "batch_readahead must be greater than 0"),
        ({"blob_handling": "zzz"}, ValueError, "Invalid blob_handling"),
        ({"late_materialization": "a"}, ValueError, "late_materialization must be a bool or a list of strings"),
        ({"include_deleted_rows": True}, ValueError, "with_row_id is false"),
        ({"batch_size_bytes": 9, "strict_batch_size": True}, ValueError, "strict_batch_size"),
        ({"limit": 2.5}, TypeError, "'float' object cannot be interpreted as an integer"),
        ({"batch_size": "3"}, TypeError, "'str' object cannot be interpreted as an integer"),
        ({"column": ["a"]}, TypeError, "Unknown option column"),
        ({"with_row_id": "no"}, TypeError, "with_row_id must be a bool"),
        ({"scan_in_order": 0}, TypeError, "scan_in_order must be a bool"),
        ({"use_stats": ["a"]}, TypeError, "use_stats must be a bool"),
        ({"late_materialization": ["zz"], "filter": "a > 1"}, BindError, "No field named zz"),
        ({"order_by": ["zz"]}, ValueError, "Column zz not found"),
        ({"fragments": [1]}, TypeError, "LanceFragment"),
        ({"nearest": {"column": "a"}}, TypeError, "'q'"),
        ({"full_text_query": "x"}, ValueError, "full text search unless an INVERTED index"),
        ({"filter": "a > "}, ValueError, "sql parser error"),
        ({"filter": "zz > 3"}, ValueError, "No field named zz"),
        ({"filter": pc.field("zz") > 3}, ValueError, "No field named zz"),
    ],
)
def test_what_makes_no_sense_is_refused(
    mixed_uri: str, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        lance_io.dataset(mixed_uri).scanner(**options).to_table()


def test_a_count_refuses_a_row_window(mixed_uri: str) -> None:
    with pytest.raises(ValueError, match="limit/offset"):
        lance_io.dataset(mixed_uri).scanner(limit=3).count_rows()


def test_the_builder_makes_the_same_scan(mixed_uri: str) -> None:
    table = lance_io.dataset(mixed_uri)
    builder = ScannerBuilder(table).columns(["s"]).filter(pc.field("doubled") > 100).limit(4).with_row_id()
    assert (
        builder.to_scanner()
        .to_table()
        .equals(table.to_table(["s"], pc.field("doubled") > 100, limit=4, with_row_id=True))
    )


def test_statistics_are_reported_when_a_scan_ends(mixed_uri: str) -> None:
    seen: list[Any] = []
    table = lance_io.dataset(mixed_uri)
    scanner = table.scanner(["a"], scan_stats_callback=seen.append)
    next(iter(scanner.to_batches()))  # dropped early
    scanner.to_table()
    assert len(seen) == 2
    assert all(one.bytes_read > 0 and one.iops > 0 for one in seen)
    table.io_stats_incremental()
    table.count_rows()
    assert table.io_stats_incremental().read_iops == 0
    assert table.io_stats_snapshot().read_bytes == 0


def test_the_plan_names_what_is_read_first_and_later(mixed_uri: str) -> None:
    condition = pc.field("doubled") > 100
    plan = lance_io.dataset(mixed_uri).scanner(["s"], filter=condition, late_materialization=True).explain_plan()
    assert plan.index("ReadLate: projection=[s]") < plan.index("Filter") < plan.index("projection=[doubled]")
    assert "bytes_read" in lance_io.dataset(mixed_uri).scanner(["s"]).analyze_plan()


def test_the_text_of_a_filter_is_compiled_once(tmp_path: Path) -> None:
    lance_io.write_dataset(pa.table({"a": range(9)}), tmp_path / "t.lance")
    state = lance_io.dataset(tmp_path / "t.lance")._state

    def compiled(filter: Any) -> Any:
        return drive_sync(plan_scan(state, scan_options(filter=filter))).predicate

    assert compiled("a > 5") is compiled("a > 5")
    assert str(compiled("a > 4")) == "(a > 4)"
    assert compiled(pc.field("a") > 5) is not compiled(pc.field("a") > 5)


@pytest.mark.parametrize("values", [pa.string(), pa.int64()], ids=str)
async def test_small_fragments_have_dictionaries_of_their_own(values: pa.DataType, tmp_path: Path) -> None:
    """Four fragments of 60 values each, in all more than indices of eight bits can tell apart."""

    def column(first: int) -> pa.Array:
        plain = pa.array([str(number) for number in range(first, first + 60)]).cast(values)
        return plain.dictionary_encode().cast(pa.dictionary(pa.int8(), values))

    for first in range(0, 240, 60):
        column_ = column(first)
        lists = pa.ListArray.from_arrays(pa.array(range(61), pa.int32()), column_)
        structs = pa.StructArray.from_arrays([column_], ["x"])
        rows = pa.table({"d": column_, "l": lists, "s": structs, "i": range(first, first + 60)})
        lance.write_dataset(rows, str(tmp_path), mode="append")
    theirs, ours = lance.dataset(str(tmp_path)), lance_io.dataset(tmp_path)
    expected = theirs.to_table().to_pylist()
    assert ours.to_table().to_pylist() == expected
    assert ours.to_table().schema == theirs.to_table().schema
    assert [row for batch in ours.to_batches(batch_size=50) for row in batch.to_pylist()] == expected
    assert ours.to_table(filter="i % 7 = 0").to_pylist() == theirs.to_table(filter="i % 7 = 0").to_pylist()
    assert ours.take([1, 70, 239]).to_pylist() == theirs.take([1, 70, 239]).to_pylist()
    assert ours.to_table(order_by=["i"], limit=3, offset=100).to_pylist() == expected[100:103]
    async with lance_io.AsyncDataset.open(str(tmp_path)) as later:
        assert (await later.to_table()).to_pylist() == expected


def test_jobs_of_small_files_hold_few_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files there are: a job has a third of a megabyte, and so have files that are opened together."""
    monkeypatch.setattr("lance_io.file.scan.readahead.PIECES_AHEAD", 4)
    values = random.Random(seed_of(3)).randbytes(200 * 96 * KIB)
    rows = pa.table({"n": pa.Array.from_buffers(pa.int64(), len(values) // 8, [None, pa.py_buffer(values)])})
    lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=96 * KIB // 8)
    opened: list[int] = []
    read = LocalStore.read_sync

    def noted(self: LocalStore, asked: Any, *args: Any, **named: Any) -> Any:
        opened.append(len(asked))
        return read(self, asked, *args, **named)

    monkeypatch.setattr(LocalStore, "read_sync", noted)
    dataset = lance_io.dataset(tmp_path / "t", session=lance_io.Session())
    with io_stats() as seen:
        assert sum(batch.num_rows for batch in dataset.to_batches()) == rows.num_rows
    assert 0 < seen.bytes_held_peak <= 4 * SCAN_FILES_BYTES
    assert max(opened) == SCAN_FILES_BYTES // (97 * KIB)
