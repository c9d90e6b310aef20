"""Statements of the JAR beside other writers and with new columns: MERGE that only inserts, keys, schemas that grow."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

import lance_io.spark
from tests.spark.lakes import Lake, make_people, operations, run_beside
from tests.spark.sessions import TASK_ERRORS, release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

PRIMARY_KEY: Final = {b"lance-schema:unenforced-primary-key": b"true"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of the catalog `merged`."""
    path = tmp_path_factory.mktemp("merged")
    lance_io.spark.enable(spark, catalog="merged", path=str(path))
    return path


@pytest.fixture
def lake(spark: SparkSession, folder: Path) -> Lake:
    return Lake(spark, folder)


# -- others at the same time -------------------------------------------------------------------------------------------

SOURCE: Final = "(select id + 95 as id from range(10) where when_committed(id)) s on t.id = s.id "
INSERTS: Final = f"merge into merged.{{name}} t using {SOURCE} when not matched then insert (id) values (s.id)"
BOTH: Final = INSERTS.replace("when not", "when matched then update set name = 'm' when not")
BY_CLAUSES: Final = (
    f"merge into merged.{{name}} t using {SOURCE} when not matched and s.id < 102 then insert (id) values (s.id) "
    "when not matched then insert (id, name) values (s.id, 'new')"
)
WITH_A_QUERY: Final = "with more as (select 1) " + INSERTS
OF_ITSELF: Final = "insert into merged.{name} select id + 1000, name, x from merged.{name} where when_committed(id)"


def append(peer: lance.LanceDataset) -> None:
    lance.write_dataset(pa.table({"id": [500]}), peer, mode="append")


@pytest.mark.parametrize(
    ("statement", "isolation", "conflicts"),
    [
        (INSERTS, None, True),
        (BY_CLAUSES, None, True),
        (WITH_A_QUERY, None, True),
        (INSERTS, "snapshot", False),
        (OF_ITSELF, None, False),  # it reads the table, and looks for no key
    ],
)
def test_a_merge_that_only_inserts(lake: Lake, statement: str, isolation: str | None, conflicts: bool) -> None:
    """Spark makes a plain append of it. The other writer appends, perhaps rows of the same keys."""
    name = f"inserts{abs(hash((statement, isolation)))}"
    make_people(lake, name, stable=True)
    if isolation is not None:
        lake.sql(f"alter table merged.{name} set tblproperties ('isolation' = '{isolation}')")
    before = lake.peer(name).version
    attempt = partial(run_beside, lake, name, statement.format(name=name), lambda: append(lake.peer(name)))
    if conflicts:
        with pytest.raises(TASK_ERRORS, match="CommitConflictError"):
            attempt()
        assert lake.peer(name).version == before + 1
        assert lake.files(name) == lake.live_files(name)
    else:
        attempt()
        assert lake.peer(name).version == before + 2


@pytest.mark.parametrize(
    ("statement", "key", "conflicts"), [(INSERTS, 700, False), (INSERTS, 101, True), (BOTH, 700, False)]
)
def test_a_declared_key_tells_which_merges_meet(lake: Lake, statement: str, key: int, conflicts: bool) -> None:
    """The ON columns are the primary key: only a merge of pylance that inserts the same key is in the way."""
    name = f"keyed{abs(hash((statement, key)))}"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY), ("name", pa.string())])
    lance.write_dataset(
        pa.table({"id": range(100), "name": ["old"] * 100}, schema=schema), str(lake.folder / f"{name}.lance")
    )

    def other() -> None:
        peer = lake.peer(name)
        rows = pa.table({"id": [key], "name": ["theirs"]}, schema=schema)
        peer.merge_insert("id").when_not_matched_insert_all().execute(rows)

    attempt = partial(run_beside, lake, name, statement.format(name=name), other)
    if conflicts:
        with pytest.raises(TASK_ERRORS, match="CommitConflictError"):
            attempt()
    else:
        attempt()
    ids = lake.peer(name).to_table()["id"].to_pylist()
    assert len(ids) == len(set(ids)) == (101 if conflicts else 106)


# -- schemas that grow -------------------------------------------------------------------------------------------------

inserts_that_grow: Final = pytest.mark.skipif(
    release() < (4, 2), reason="Spark 4.1 parses MERGE WITH SCHEMA EVOLUTION only; that of INSERT came with 4.2"
)

GROWS: Final = (
    "merge with schema evolution into merged.{name} t using (select bigint(1) as id, "
    "named_struct('a', 2, 'b', 'x') as s, 'extra' as more "
    "union all select bigint(2), named_struct('a', 3, 'b', 'y'), 'new') s on t.id = s.id "
)


@pytest.mark.parametrize("stable", ["true", "false"])
def test_columns_and_rows_are_one_version(lake: Lake, stable: str) -> None:
    name = f"grown_{stable}"
    lake.sql(
        f"create table merged.{name} (id bigint, s struct<a: int>) "
        f"tblproperties ('lance.enable_stable_row_ids' = '{stable}', 'lance.overwrite.columns' = 'id')",
        f"insert into merged.{name} values (1, named_struct('a', 1)), (7, null)",
    )
    lake.peer(name).create_scalar_index("id", "BTREE")
    ids = {row["id"]: row["_rowid"] for row in lake.peer(name).to_table(with_row_id=True).to_pylist()}
    for statement in (
        "explain " + GROWS.format(name=name) + "when not matched then insert *",
        GROWS.format(name=name).replace("'new'", "raise_error('no')") + "when not matched then insert *",
    ):
        if statement.startswith("explain"):
            lake.sql(statement)
        else:
            with pytest.raises(PySparkException, match="no"):
                lake.sql(statement)
        assert lake.peer(name).version == 3
        assert lake.files(name) == lake.live_files(name)
    lake.sql(GROWS.format(name=name) + "when matched then update set * when not matched then insert *")
    expected = [
        {"id": 1, "s": {"a": 2, "b": "x"}, "more": "extra"},
        {"id": 2, "s": {"a": 3, "b": "y"}, "more": "new"},
        {"id": 7, "s": None, "more": None},
    ]
    assert (lake.peer(name).version, lake.rows(name)) == (4, expected)
    assert lake.sql(f"select id, more from merged.{name} where id < 3 order by id") == [(1, "extra"), (2, "new")]
    lake.sql(
        f"merge with schema evolution into merged.{name} t using (select bigint(3) as id, 0.5f as score) s "
        "on t.id = s.id when not matched then insert *"
    )
    assert lake.rows(name)[2] == {"id": 3, "s": None, "more": None, "score": 0.5}
    lake.sql(
        f"merge with schema evolution into merged.{name} t using (select id, true as flag from range(2, 5)) s "
        "on t.id = s.id when not matched then insert *"
    )
    assert [(row["id"], row["flag"]) for row in lake.rows(name)] == [
        (1, None),
        (2, None),
        (3, None),
        (4, True),
        (7, None),
    ]
    peer = lake.peer(name)
    assert (peer.version, operations(peer)[3:]) == (6, ["Merge"] * 3)
    peer.validate()
    if stable == "true":
        now = {row["id"]: row["_rowid"] for row in peer.to_table(with_row_id=True).to_pylist()}
        assert {id: now[id] for id in ids} == ids
        assert len(set(now.values())) == len(now)
    append(peer)  # other writers go on, with ids of rows and fragments that no row has
    lake.peer(name).delete("id = 2")
    lake.peer(name).optimize.compact_files()
    assert [row["id"] for row in lake.rows(name)] == [1, 3, 4, 7, 500]
    assert lake.peer(name).to_table(filter="id = 4").num_rows == 1


@inserts_that_grow
def test_inserts_that_add_columns(lake: Lake) -> None:
    lake.sql(
        "create table merged.inserted (id bigint, s struct<a: int>) "
        "tblproperties ('lance.enable_stable_row_ids' = 'true', 'lance.overwrite.columns' = 'id')",
        "insert into merged.inserted values (1, named_struct('a', 1)), (7, null)",
        "insert with schema evolution into merged.inserted by name select bigint(3) as id, 0.5f as score",
    )
    assert lake.rows("inserted") == [
        {"id": 1, "s": {"a": 1}, "score": None},
        {"id": 3, "s": None, "score": 0.5},
        {"id": 7, "s": None, "score": None},
    ]
    assert operations(lake.peer("inserted"))[2:] == ["Merge"]
    lake.sql("insert with schema evolution overwrite merged.inserted by name select bigint(8) as id, 'y' as last")
    assert lake.peer("inserted").to_table().select(["id", "last"]).to_pylist() == [{"id": 8, "last": "y"}]
    lake.peer("inserted").validate()


@inserts_that_grow
def test_statements_that_add_columns_beside_others(lake: Lake) -> None:
    make_people(lake, "grows_beside", stable=True)
    statement = (
        "insert with schema evolution into merged.grows_beside by name "
        "select id, 'x' as more from range(1000, 1003) where when_committed(id)"
    )
    with pytest.raises(TASK_ERRORS, match="CommitConflictError"):
        run_beside(lake, "grows_beside", statement, lambda: append(lake.peer("grows_beside")))
    assert lake.peer("grows_beside").schema.names == ["id", "name", "x"]
    assert lake.peer("grows_beside").count_rows() == 101
    assert lake.files("grows_beside") == lake.live_files("grows_beside")


def test_types_never_change_by_a_statement(lake: Lake) -> None:
    """A column is never left out, and never becomes narrower."""
    lake.sql("create table merged.typed (id bigint, n int)", "insert into merged.typed values (1, 1)")
    merge = "merge with schema evolution into merged.typed t using ({}) s on t.id = s.id when matched then update set *"
    schema = lake.peer("typed").schema
    with pytest.raises(AnalysisException, match="column n of the source is bigint"):
        lake.sql(merge.format("select bigint(1) as id, bigint(5000000000) as n"))
    assert (lake.peer("typed").schema, lake.peer("typed").version) == (schema, 2)
    with pytest.raises(AnalysisException, match="column id of the source is int"):  # Spark asks for the INT
        lake.sql(merge.format("select 1 as id, 2 as n, 'more' as more"))
    assert (lake.peer("typed").schema, lake.peer("typed").version) == (schema, 2)
    with pytest.raises(AnalysisException):
        lake.sql("insert into merged.typed by name select bigint(4) as id, 1 as unknown")


def test_merge_schema_never_leaves_a_column_out(lake: Lake) -> None:
    """In a catalog Spark refuses; writes to a path add columns and members, in the version of the rows."""
    name = "options"
    lake.sql(
        f"create table merged.{name} (id bigint, n int, s struct<a: int>)",
        f"insert into merged.{name} values (1, 1, named_struct('a', 1))",
    )
    before, uri = lake.peer(name).schema, str(lake.folder / f"{name}.lance")
    member = lake.spark.sql("select bigint(2) as id, 2 as n, named_struct('a', 2, 'b', 'y') as s")
    column = lake.spark.sql("select bigint(3) as id, 3 as n, named_struct('a', 3) as s, 'x' as more, 0.5D as score")
    writes: dict[str, Callable[[DataFrame], object]] = {
        "append": lambda rows: rows.writeTo(f"merged.{name}").option("mergeSchema", "true").append(),
        "overwrite": lambda rows: rows.writeTo(f"merged.{name}").option("mergeSchema", "true").overwrite(F.lit(True)),
        "table": lambda rows: rows.write.option("mergeSchema", "true").mode("append").saveAsTable(f"merged.{name}"),
        "insert": lambda rows: rows.write.option("mergeSchema", "true").insertInto(f"merged.{name}"),
    }
    for write in writes.values():
        for rows in (member, column):
            with pytest.raises(AnalysisException):
                write(rows)
    with pytest.raises(AnalysisException, match=r"no member s\.b, which mergeSchema=true adds"):
        member.write.format("lance_io").mode("append").save(uri)
    assert (lake.peer(name).version, lake.peer(name).schema) == (2, before)
    assert lake.files(name) == lake.live_files(name)
    for rows in (column, member):
        rows.write.format("lance_io").option("mergeSchema", "true").mode("append").save(uri)
    assert lake.rows(name) == [
        {"id": 1, "n": 1, "s": {"a": 1, "b": None}, "more": None, "score": None},
        {"id": 2, "n": 2, "s": {"a": 2, "b": "y"}, "more": None, "score": None},
        {"id": 3, "n": 3, "s": {"a": 3, "b": None}, "more": "x", "score": 0.5},
    ]
    # names as Spark has them; int to bigint, float to double, and what the rows lack is null
    narrow = lake.spark.sql("select 4 as ID, named_struct('B', 'z') as S, 0.25F as Score")
    narrow.write.format("lance_io").option("mergeSchema", "true").mode("append").save(uri)
    assert lake.rows(name)[3] == {"id": 4, "n": None, "s": {"a": None, "b": "z"}, "more": None, "score": 0.25}
    assert operations(lake.peer(name)) == ["Overwrite", "Append", "Merge", "Merge", "Append"]
    lake.spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        narrow.write.format("lance_io").option("mergeSchema", "true").mode("append").save(uri)
    finally:
        lake.spark.conf.unset("spark.sql.caseSensitive")
    assert lake.peer(name).schema.names == ["id", "n", "s", "more", "score", "ID", "S", "Score"]


# -- values that a statement does not change ---------------------------------------------------------------------------


def blob_field(name: str) -> pa.Field[Any]:
    return pa.field(name, pa.large_binary(), metadata={b"lance-encoding:blob": b"true"})


def all_kinds() -> pa.Table:
    """Twelve rows of types that Spark shows as others, with nulls at all depths."""
    numbers = range(12)
    struct = [None if number == 3 else {"a": None if number % 4 == 1 else number, "b": None} for number in numbers]
    columns: dict[str, tuple[list[Any], pa.DataType]] = {
        "n": ([*numbers], pa.int32()),
        "u": ([2**64 - 1 - number for number in numbers], pa.uint64()),
        "small": ([number * 20 for number in numbers], pa.uint8()),
        "text": (["ä" * number for number in numbers], pa.large_string()),
        "moment": ([1_700_000_000_000_000_000 + 1000 * number for number in numbers], pa.timestamp("ns")),
        "zoned": ([number for number in numbers], pa.timestamp("ms", "Europe/Berlin")),
        "day": ([86_400_000 * number for number in numbers], pa.date64()),
        "length": ([number for number in numbers], pa.duration("s")),
        "hour": ([1000 * number for number in numbers], pa.time64("ns")),
        "word": (["a", None, "b"] * 4, pa.dictionary(pa.int8(), pa.string())),
        "big": ([number for number in numbers], pa.decimal256(50, 0)),
        "fixed": ([b"ab"] * 12, pa.binary(2)),
        "s": (struct, pa.struct([("a", pa.int64()), ("b", pa.string())])),
        "l": ([None, [], [None], [{"x": 1}]] * 3, pa.large_list(pa.struct([("x", pa.int16())]))),
        "v": ([None if number == 5 else [0.5 * number, 1.0] for number in numbers], pa.list_(pa.float32(), 2)),
        "half": ([None if number == 5 else [0.5 * number, 1.0] for number in numbers], pa.list_(pa.float16(), 2)),
        "m": ([[("k", 7)], None] * 6, pa.map_(pa.string(), pa.int32())),
    }
    arrays = [pa.array(values, dtype) for values, dtype in columns.values()]
    fields = [pa.field(name, dtype) for name, (_, dtype) in columns.items()]
    table = pa.table(arrays, schema=pa.schema(fields))
    return table.append_column(
        blob_field("payload"), pa.array([b"x" * number for number in numbers], pa.large_binary())
    )


@pytest.mark.parametrize("stable", [True, False])
def test_rows_that_move_keep_all_values(lake: Lake, stable: bool) -> None:
    """UPDATE and MERGE write whole rows again: Spark's types must lose nothing on the way."""
    name = f"kinds{stable}"
    uri, given = str(lake.folder / f"{name}.lance"), all_kinds()
    lance.write_dataset(given, uri, max_rows_per_file=5, enable_stable_row_ids=stable)
    lake.sql(
        f"update merged.{name} set n = n + 100 where n % 3 = 1",
        f"merge into merged.{name} t using (select id from range(0, 12, 5)) s on t.n = s.id "
        "when matched then update set n = n + 200",
        f"delete from merged.{name} where n = 6 and length(text) = 6",
    )
    peer = lake.peer(name)
    payloads = [b"x" * number for number in range(12)]
    plain = given.drop_columns(["payload"])
    for row in peer.to_table(columns=plain.schema.names, with_row_address=True).to_pylist():
        number, address = row["n"] % 100, row.pop("_rowaddr")
        before = plain.slice(number, 1).to_pylist()[0]
        assert {**row, "n": number} == before
        (blob,) = peer.take_blobs("payload", addresses=[address]) if number else [None]
        assert blob is None or blob.readall() == payloads[number]
    assert sorted(peer.to_table(columns=["n"])["n"].to_pylist()) == [2, 3, 8, 9, 11, 101, 104, 107, 110, 200, 205]
    assert peer.to_table(columns=plain.schema.names).schema.equals(plain.schema)


def test_a_catalog_that_cuts_values_changes_no_rows(lake: Lake, tmp_path: Path) -> None:
    lance_io.spark.enable(lake.spark, catalog="cut", path=str(tmp_path), timestamp_ns="truncate")
    moments = pa.array([1_700_000_000_000_000_001, 2], pa.timestamp("ns"))
    lance.write_dataset(pa.table({"id": [1, 2], "at": moments}), str(tmp_path / "t.lance"))
    with pytest.raises(AnalysisException, match="timestamp_ns=truncate has cut the nanoseconds of column at"):
        lake.sql("update cut.t set id = 7 where id = 1")
    lake.sql("delete from cut.t where id + 0 = 2")
    assert lance.dataset(str(tmp_path / "t.lance")).to_table()["at"].to_pylist() == moments[:1].to_pylist()


# -- indices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stable", [True, False])
def test_indices_stay_right(lake: Lake, stable: bool) -> None:
    """After each statement a filter gives the same rows with indices and without, in both libraries."""
    name = f"indexed{stable}"
    uri = str(lake.folder / f"{name}.lance")
    table = pa.table(
        {
            "id": range(200),
            "day": [number % 7 for number in range(200)],
            "tags": [[f"t{number % 5}", f"t{number % 3}"] for number in range(200)],
            "words": [f"word{number % 11} and more" for number in range(200)],
        }
    )
    data = lance.write_dataset(table, uri, max_rows_per_file=60, enable_stable_row_ids=stable)
    for column, kind in (("id", "BTREE"), ("day", "BITMAP"), ("tags", "LABEL_LIST"), ("words", "NGRAM")):
        data.create_scalar_index(column, kind)
    filters = (
        *("id between 40 and 70", "id = 1005", "day = 3", "day in (9, 4)", "array_has_any(tags, ['t4', 'new'])"),
        *("contains(words, 'word7')", "contains(words, 'changed')", "id > 190"),
    )
    for statement in (
        f"update merged.{name} set day = 9, words = 'changed words' where id % 10 = 3",
        f"update merged.{name} set tags = array('new') where id between 50 and 55",
        f"delete from merged.{name} where day = 4 and id < 120",
        f"delete from merged.{name} where id % 9 = 5",
        f"merge into merged.{name} t using (select id + 150 as id from range(100)) s on t.id = s.id "
        "when matched and t.id % 2 = 0 then delete when matched then update set id = t.id + 1000, day = 3 "
        "when not matched then insert (id, day, tags, words) values (s.id, 4, array('t4'), 'word7')",
        f"call merged.system.optimize_indices('{name}')",
        f"update merged.{name} set id = id + 1 where id > 190",
        f"call merged.system.compact('{name}')",
    ):
        lake.sql(statement)
        for library in (lance, lance_io):
            data = library.dataset(uri)
            for text in filters:
                rows = data.to_table(filter=text).sort_by("id").to_pylist()
                scanned = data.to_table(filter=text, use_scalar_index=False).sort_by("id").to_pylist()
                assert rows == scanned, (statement, library.__name__, text)
                assert data.count_rows(text) == len(rows), (statement, library.__name__, text)
    assert lake.peer(name).count_rows("day = 3") == lake.sql(f"select count(*) from merged.{name} where day = 3")[0][0]


# -- results -----------------------------------------------------------------------------------------------------------


def test_each_statement_says_what_it_did(lake: Lake) -> None:
    """In the history of the table, by the worker's counts and by Spark's own."""
    rows = "values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')"
    lake.sql(
        f"create table merged.counted as select * from {rows} as t(id, text)",
        "insert into merged.counted values (5, 'e')",
        "update merged.counted set text = 'u' where id % 2 = 0",
        "delete from merged.counted where id = 5",
        "delete from merged.counted where id % 5 = 4",
        "merge into merged.counted t using (select * from values (1, 'm'), (9, 'n') as s(id, text)) s on t.id = s.id "
        "when matched then update set * when not matched then insert * "
        "when not matched by source and t.id = 3 then delete",
        "merge into merged.counted t using (select 8 as id) s on t.id = s.id "
        "when not matched then insert (id) values (s.id)",
        "insert overwrite merged.counted select id, 'o' from range(2)",
        "truncate table merged.counted",
    )
    keys = ("statement", "rows_written", "rows_inserted", "rows_updated", "rows_deleted")
    shown = [properties for (properties,) in lake.sql("select properties from merged.counted.history order by version")]
    results = [tuple(properties.get(f"lance_io.result.{key}") for key in keys) for properties in shown]
    assert results == [
        ("CREATE", "4", "4", "0", None),
        ("INSERT", "1", "1", "0", None),
        ("UPDATE", "2", "0", "2", "0"),
        ("DELETE", None, None, None, "1"),
        ("DELETE", "0", "0", "0", "1"),
        ("MERGE", "2", "1", "1", "1"),
        ("MERGE", "1", "1", "0", "0"),
        ("INSERT", "2", "2", "0", None),
        ("TRUNCATE", None, None, None, "2"),
    ]
    assert all(float(properties["lance_io.result.seconds"]) >= 0 for properties in shown)
    assert shown[5]["lance_io.result.rows_matched_updated"] == "1"
    assert shown[5]["lance_io.result.rows_not_matched_by_source_deleted"] == "1"
    for version, key, count in ((2, "rows_found_updated", "2"), (4, "rows_found_deleted", "1"), (1, "rows_given", "1")):
        # Spark 4.1 summarizes a MERGE only
        assert shown[version].get(f"lance_io.result.{key}") == (count if release() >= (4, 2) else None)
    lake.sql("insert into merged.counted values (1, 'a'), (2, 'b')")
    with logged(lake.spark) as said:
        lake.sql(
            "update merged.counted set text = 'c' where id + 0 = 2",
            "delete from merged.counted where id = 7",
            "delete from merged.counted where id = 1",
            "call merged.system.create_tag('counted', 'first', 1)",
        )
        lines = re.sub(r"\d+\.\d{3} s", "S", said()).splitlines()
    uri = str(lake.folder / "counted.lance")
    assert lines[0].startswith(f"UPDATE, {uri}: version 11 in S: rows_written 1, rows_updated 1, bytes_written ")
    assert lines[1:] == [
        f"DELETE, {uri}: nothing to commit",
        f"DELETE, {uri}: version 12 in S: rows_deleted 1",
        f"create_tag, {uri}: tag first, version 1",
    ]
    numbers = {"version of the table": "11", "rows inserted": "0", "rows updated": "1", "rows deleted": "0"}
    assert numbers.items() <= committed_numbers(lake.spark).items()


@contextmanager
def logged(spark: SparkSession) -> Iterator[Callable[[], str]]:
    """Gives what the JAR has logged since, line by line."""
    session: Any = spark
    machine = session.sparkContext._jvm
    log4j = machine.org.apache.logging.log4j
    logger = log4j.LogManager.getLogger("lance_io.spark.Changes")
    layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%m%n").build()
    said = machine.java.io.StringWriter()
    appender = log4j.core.appender.WriterAppender.createAppender(layout, None, said, "said", False, False)
    appender.start()
    logger.addAppender(appender)
    logger.setAdditive(False)
    logger.setLevel(log4j.Level.INFO)
    try:
        yield said.toString
    finally:
        logger.removeAppender(appender)
        logger.setAdditive(True)
        logger.setLevel(log4j.Level.OFF)


def committed_numbers(spark: SparkSession) -> dict[str, str]:
    """The numbers of the last statement, as Spark's user interface shows them."""
    session: Any = spark
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = session._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    for position in reversed(range(executions.size())):
        execution = executions.apply(position)
        values = store.executionMetrics(execution.executionId())
        metrics = [execution.metrics().apply(index) for index in range(execution.metrics().size())]
        shown = {
            metric.name(): str(values.apply(metric.accumulatorId()))
            for metric in metrics
            if values.contains(metric.accumulatorId())
        }
        if "version of the table" in shown:
            return shown
    raise AssertionError("Spark shows no numbers of a commit")
