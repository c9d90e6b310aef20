"""Statements that change tables, through the JAR's catalog; read back by pylance, compared with its own changes."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

import lance_io.spark
from lance_io.spark import ops
from tests.spark.lakes import Lake, check_cookbook, cookbook, in_catalog, make_people, operations, run_beside
from tests.spark.sessions import TASK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of the catalog `lake`."""
    path = tmp_path_factory.mktemp("lake")
    lance_io.spark.enable(spark, catalog="lake", path=str(path))
    return path


@pytest.fixture
def lake(spark: SparkSession, folder: Path) -> Lake:
    return Lake(spark, folder)


# -- tables ------------------------------------------------------------------------------------------------------------


def test_create_table_keeps_what_sql_says(lake: Lake) -> None:
    lake.sql(
        "create table lake.made (id bigint not null comment 'key', name string, code char(4), v array<float>, "
        "s struct<a: int, b: string>) comment 'of tests' tblproperties ('v.arrow.fixed-size-list.size' = '2', "
        "'lance.enable_stable_row_ids' = 'true', 'lance.data_storage_version' = '2.1', 'team' = 'x')"
    )
    peer = lake.peer("made")
    assert not peer.schema.field("id").nullable
    assert peer.schema.field("id").metadata[b"comment"] == b"key"
    assert peer.schema.field("v").type == pa.list_(pa.field("item", pa.float32()), 2)
    assert peer.has_stable_row_ids
    assert peer.data_storage_version == "2.1"
    assert peer.config() == {"comment": "of tests", "team": "x"}
    lake.sql("insert into lake.made values (1, 'a', 'x', array(1f, 2f), named_struct('a', 1, 'b', 'q'))")
    assert lake.rows("made") == [{"id": 1, "name": "a", "code": "x   ", "v": [1.0, 2.0], "s": {"a": 1, "b": "q"}}]
    with pytest.raises(PySparkException, match=r"EXCEED|CHAR"):
        lake.sql("insert into lake.made values (2, 'a', 'too long', null, null)")
    with pytest.raises(TASK_ERRORS, match="column id: expected int64 not null"):
        lake.sql("insert into lake.made values (null, 'a', 'x', null, null)")
    assert lake.peer("made").version == 2
    assert ("team", "x") in lake.sql("show tblproperties lake.made")
    assert lake.sql("describe lake.made")[0][:3] == ("id", "bigint", "key")
    lake.sql("alter table lake.made rename to lake.moved", "drop table lake.moved")
    assert not (lake.folder / "moved.lance").exists()
    lake.sql("drop table if exists lake.moved")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("create table lake.no (id int) tblproperties ('lance.nope' = '1')", "unknown property 'lance.nope'"),
        ("create table lake.no (v array<int>) tblproperties ('v.arrow.nope' = '1')", "of column v"),
        ("create table lake.no (id int) tblproperties ('isolation' = 'chaos')", "serializable or snapshot"),
        ("create table lake.no (id int) tblproperties ('lance.overwrite.columns' = 'day')", "no column day"),
        (
            "create table lake.no (s struct<a: int>) tblproperties ('lance.overwrite.columns' = 's')",
            "column s is struct<a:int>",
        ),
        (
            "create table lake.no (l array<int>) tblproperties ('lance.overwrite.columns' = 'l')",
            "column l is array<int>",
        ),
        ("create table lake.no (id int, day date) partitioned by (day)", "lance.overwrite.columns"),
        ("create table lake.no (id int, p interval year) tblproperties ('a' = 'b')", "column p"),
        ("create table lake.no (id int) location '/elsewhere/t.lance'", "not in file:/elsewhere"),
        ("create table lake.no (id int default 7)", "(?i)default"),
        ("create table lake.no (id int generated always as (1))", "(?i)generated"),
        ("create table lake.no (id bigint generated always as identity)", "(?i)identity"),
        ("create table lake.no (id int check (id > 0))", "(?i)constraint"),
        ("create view lake.no as select 1", "(?i)view"),
        ("analyze table lake.kept compute statistics", "(?i)analyze"),
        ("insert into lake.kept select 'x', 1", "(?i)cast|arity|too many|incompatible"),
        ("alter table lake.kept set tblproperties ('lance.enable_stable_row_ids' = 'true')", "fixed when"),
        ("alter table lake.kept add columns (x int not null)", "column x"),
        ("alter table lake.kept alter column id type string", "(?i)cannot|cast"),
    ],
)
def test_refusals(lake: Lake, statement: str, message: str) -> None:
    """Before any task starts, and nothing changes."""
    lake.sql("create table if not exists lake.kept (id int)")
    version = lake.peer("kept").version
    with pytest.raises(PySparkException, match=message):
        lake.sql(statement)
    assert lake.peer("kept").version == version
    assert not (lake.folder / "no.lance").exists()


def test_queries_make_tables_whole_or_not_at_all(lake: Lake) -> None:
    lake.sql("create table lake.copy as select id, id * 2 as x from range(10)")
    assert operations(lake.peer("copy")) == ["Overwrite"]
    assert lake.rows("copy") == [{"id": number, "x": 2 * number} for number in range(10)]
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        lake.sql("create table lake.copy as select 1")
    for statement in ("create table lake.half", "create or replace table lake.copy", "replace table lake.copy"):
        with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
            lake.sql(f"{statement} as select /*+ repartition(2) */ id, 1 / (id - 7) as x from range(10)")
    assert not (lake.folder / "half.lance" / "_versions").exists()
    assert lake.peer("copy").version == 1
    assert lake.files("copy") == lake.live_files("copy")
    lake.sql("create or replace table lake.copy tblproperties ('a' = 'b') as select id, 'text' as y from range(2)")
    assert lake.peer("copy").version == 2
    assert lake.rows("copy") == [{"id": 0, "y": "text"}, {"id": 1, "y": "text"}]
    assert lake.peer("copy").config()["a"] == "b"
    lake.peer("copy").update_config({"lance_io.stream.events": "7 2 -"})
    lake.sql(
        "alter table lake.copy set tblproperties ('isolation' = 'snapshot', 'a' = 'c')",
        "alter table lake.copy set tblproperties ('lance.overwrite.columns' = 'id')",
        "insert overwrite lake.copy values (1, 'one')",  # replaces rows only
    )
    assert lake.peer("copy").config().keys() == {"a", "isolation", "lance.overwrite.columns", "lance_io.stream.events"}
    lake.sql("create or replace table lake.copy tblproperties ('a' = 'd') as select 1 as id")
    # a new table under the old name; which batches of streams have come is no property of it
    assert lake.peer("copy").config() == {"a": "d", "lance_io.stream.events": "7 2 -"}
    with pytest.raises(AnalysisException, match=r"it is false for the table at .*drop the table first"):
        lake.sql("replace table lake.copy (z int) tblproperties ('lance.enable_stable_row_ids' = 'true')")
    lake.sql("replace table lake.copy (z int) tblproperties ('lance.enable_stable_row_ids' = 'false')")
    assert lake.peer("copy").config() == {"lance_io.stream.events": "7 2 -"}
    assert lake.peer("copy").schema == pa.schema([("z", pa.int32())])
    with pytest.raises(AnalysisException, match="NOT_FOUND"):
        lake.sql("replace table lake.absent as select 1")


# -- rows that are added -----------------------------------------------------------------------------------------------


def test_inserts(lake: Lake) -> None:
    lake.sql("create table lake.days (id bigint, day int, text string)")
    lake.sql("insert into lake.days values (1, 1, 'a'), (2, 2, 'b')", "insert into lake.days (id) values (3)")
    assert lake.rows("days")[2] == {"id": 3, "day": None, "text": None}
    lake.sql("insert into lake.days by name select 'n' as text, bigint(9) as id")  # in any order, and without a column
    assert lake.rows("days")[3] == {"id": 9, "day": None, "text": "n"}
    lake.sql("insert into lake.days replace where day = 1 or day is null values (4, 1, 'new')")
    assert [row["id"] for row in lake.rows("days")] == [2, 4]
    with pytest.raises(AnalysisException, match=r"lance\.overwrite\.columns"):
        lake.spark.table("lake.days").writeTo("lake.days").overwritePartitions()
    lake.sql("alter table lake.days set tblproperties ('lance.overwrite.columns' = 'day')")
    rows = lake.spark.createDataFrame([(5, 2, "x"), (6, None, "y"), (7, None, "z")], "id long, day int, text string")
    rows.writeTo("lake.days").overwritePartitions()
    assert [row["id"] for row in lake.rows("days")] == [4, 5, 6, 7]
    rows.where("id = 6").writeTo("lake.days").overwritePartitions()
    assert [row["id"] for row in lake.rows("days")] == [4, 5, 6]
    before = lake.peer("days").version
    rows.where("id = 0").writeTo("lake.days").overwritePartitions()
    assert lake.peer("days").version == before  # nothing to replace
    lake.sql("insert overwrite lake.days values (8, 8, 'all')")
    assert [row["id"] for row in lake.rows("days")] == [8]
    rows.writeTo("lake.days").overwrite(F.col("day") == 8)
    assert [row["id"] for row in lake.rows("days")] == [5, 6, 7]
    lake.sql("truncate table lake.days")
    assert lake.rows("days") == []
    assert operations(lake.peer("days"))[-4:] == ["Update", "Overwrite", "Update", "Delete"]


TYPED: Final = {  # a value of each type in SQL, as it is stored, and as pylance gives it
    "tiny": ("cast(-1 as tinyint)", pa.int8(), -1),
    "small": ("cast(-2 as smallint)", pa.int16(), -2),
    "i": ("3", pa.int32(), 3),
    "l": ("cast('-9223372036854775808' as bigint)", pa.int64(), -(1 << 63)),
    "f": ("0.5f", pa.float32(), 0.5),
    "d": ("cast('-0.25' as double)", pa.float64(), -0.25),
    "price": ("cast(1.50 as decimal(9, 2))", pa.decimal128(9, 2), Decimal("1.50")),
    "wide": (
        "cast('1234567890123456789012345678901234.5678' as decimal(38, 4))",
        pa.decimal128(38, 4),
        Decimal("1234567890123456789012345678901234.5678"),
    ),
    "t": ("'ä'", pa.string(), "ä"),
    "bin": ("X'00FF'", pa.binary(), b"\x00\xff"),
    "flag": ("true", pa.bool_(), True),
    "day": ("date'0001-02-03'", pa.date32(), date(1, 2, 3)),
    "ntz": (
        "timestamp_ntz'2026-01-02 03:04:05.678901'",
        pa.timestamp("us"),
        datetime(2026, 1, 2, 3, 4, 5, 678901),
    ),
    "at": (
        "timestamp'2026-01-02 03:04:05.678901Z'",
        pa.timestamp("us", "UTC"),
        datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    ),
    "length": (
        "interval '1 02:03:04.5' day to second",
        pa.duration("us"),
        timedelta(days=1, hours=2, minutes=3, seconds=4.5),
    ),
    "arr": ("array(1, null, 3)", pa.list_(pa.int32()), [1, None, 3]),
    "m": ("map('k', cast(1 as bigint), 'n', null)", pa.map_(pa.string(), pa.int64()), [("k", 1), ("n", None)]),
    "st": (
        "named_struct('a', 1, 'inner', named_struct('x', array('y')))",
        pa.struct([("a", pa.int32()), ("inner", pa.struct([("x", pa.list_(pa.string()))]))]),
        {"a": 1, "inner": {"x": ["y"]}},
    ),
    "deep": (
        "array(named_struct('z', map('q', array(cast(7 as smallint)))))",
        pa.list_(pa.struct([("z", pa.map_(pa.string(), pa.list_(pa.int16())))])),
        [{"z": [("q", [7])]}],
    ),
}


def test_all_types_are_stored(lake: Lake) -> None:
    """By CTAS and INSERT, with nulls; read by pylance, and by Spark as it gave them."""
    columns = ", ".join(f"{sql} as {name}" for name, (sql, _, _) in TYPED.items())
    lake.sql(f"create table lake.typed as select {columns}", "insert into lake.typed (i) values (null)")
    lake.sql(f"insert into lake.typed select {columns}")
    rows = lake.peer("typed").to_table()
    for name, (_, dtype, value) in TYPED.items():
        assert rows.schema.field(name).type == dtype, name
        assert rows[name].to_pylist() == [value, None, value], name
    given = lake.sql(f"select {columns}")
    assert lake.sql("select * from lake.typed where i is not null") == given * 2
    lake.sql(
        "create table lake.vectors (id int, v array<float>) tblproperties ('v.arrow.fixed-size-list.size' = '2')",
        "insert into lake.vectors select id, array(0.5f, id) from range(3)",
    )
    assert lake.peer("vectors").to_table()["v"].to_pylist() == [[0.5, 0.0], [0.5, 1.0], [0.5, 2.0]]
    with pytest.raises(TASK_ERRORS, match=r"row 2 of its input, column v: expected .*2 items, not 1"):
        lake.sql("insert into lake.vectors select id, if(id < 2, array(0f, 0f), array(1f)) from range(0, 5, 1, 1)")
    assert lake.peer("vectors").version == 2


def test_data_frames_write(lake: Lake) -> None:
    df = lake.spark.range(3)
    df.writeTo("lake.frames").create()
    df.writeTo("lake.frames").append()
    assert lake.peer("frames").count_rows() == 6
    df.writeTo("lake.frames").replace()
    df.write.mode("append").saveAsTable("lake.frames")
    assert lake.peer("frames").count_rows() == 6
    df.write.mode("ignore").saveAsTable("lake.frames")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        df.write.saveAsTable("lake.frames")
    df.withColumn("x", F.lit(1)).write.mode("overwrite").saveAsTable("lake.frames")
    assert lake.rows("frames") == [{"id": number, "x": 1} for number in range(3)]
    df.withColumn("x", F.lit(2)).write.insertInto("lake.frames", overwrite=True)
    assert {row["x"] for row in lake.rows("frames")} == {2}
    df.writeTo("lake.frames").createOrReplace()
    df.writeTo("lake.frames").option("commit_message", "by hand").append()
    properties = lake.peer("frames").read_transaction(lake.peer("frames").version).transaction_properties
    assert properties["__lance_commit_message"] == "by hand"
    assert properties["lance_io.result.rows_written"] == "3"
    with pytest.raises(PySparkException, match="unknown option"):
        df.writeTo("lake.frames").option("nope", "1").append()


# -- rows that change --------------------------------------------------------------------------------------------------


def with_ids(dataset: lance.LanceDataset) -> list[dict[str, Any]]:
    """Rows with their stable ids and versions."""
    columns = ["id", "name", "x", "_row_created_at_version", "_row_last_updated_at_version"]
    rows = dataset.to_table(columns=columns, with_row_id=True).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("stable", [True, False])
def test_changes_equal_those_of_pylance(lake: Lake, stable: bool) -> None:
    name = f"people{stable}"
    theirs = make_people(lake, name, stable=stable)
    lake.sql(f"delete from lake.{name} where id between 20 and 25")
    theirs.delete("id >= 20 and id <= 25")
    lake.sql(f"delete from lake.{name} where id % 10 = 3 and length(name) = 2")
    theirs.delete("id % 10 = 3")
    lake.sql(f"update lake.{name} set name = concat(name, '!'), x = x + 1 where id < 50 and id % 2 = 0")
    theirs.update({"name": "concat(name, '!')", "x": "x + 1"}, where="id < 50 and id % 2 = 0")
    source = pa.table({"id": [1, 2, 3, 200], "name": ["m1", "m2", "m3", "m200"], "x": [9.0, 9.0, 9.0, 9.0]})
    given = lake.spark.createDataFrame(
        [*map(tuple, zip(*source.to_pydict().values(), strict=True))], source.column_names
    )
    given.createOrReplaceTempView("given")
    lake.sql(
        f"merge into lake.{name} t using given s on t.id = s.id "
        "when matched then update set * when not matched then insert *"
    )
    theirs.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
    ours = lake.peer(name)
    assert operations(ours) == operations(theirs)
    if stable:
        assert {row["id"]: row for row in with_ids(ours)}.keys() == {row["id"] for row in with_ids(theirs)}
        new = {3, 200}  # inserted: which of them gets the first new id is a matter of the order
        for mine, other in zip(with_ids(ours), with_ids(theirs), strict=True):
            if mine["id"] in new:
                mine.pop("_rowid"), other.pop("_rowid")
            assert mine == other
    else:
        assert lake.rows(name) == sorted(theirs.to_table().to_pylist(), key=lambda row: row["id"])
    assert ours.count_rows() == lake.sql(f"select count(*) from lake.{name}")[0][0]
    shown = f"select properties from lake.{name}.history where operation = 'Update' order by version desc limit 1"
    ((properties,),) = lake.sql(shown)
    numbers = {key: properties[f"lance_io.result.{key}"] for key in ("statement", "rows_inserted", "rows_updated")}
    assert numbers == {"statement": "MERGE", "rows_inserted": "2", "rows_updated": "2"}


def test_merge_has_all_clauses(lake: Lake) -> None:
    make_people(lake, "clauses", stable=True)
    lake.sql(
        "merge into lake.clauses t using (select id + 95 as id, 'new' as name from range(10)) s on t.id = s.id "
        "when matched and t.id = 95 then delete when matched and t.id < 98 then update set name = s.name "
        "when not matched and s.id < 102 then insert (id, name) values (s.id, s.name) "
        "when not matched by source and t.id < 5 then delete "
        "when not matched by source and t.id < 7 then update set x = 7.0"
    )
    rows = {row["id"]: row for row in lake.rows("clauses")}
    assert rows.keys() == {*range(5, 95), *range(96, 102)}
    assert [rows[number]["name"] for number in (96, 97, 98, 100, 101)] == ["new", "new", "n8", "new", "new"]
    assert [rows[number]["x"] for number in (5, 6, 7, 100)] == [7.0, 7.0, 0.5, None]
    assert operations(lake.peer("clauses"))[1:] == ["Update"]
    before = lake.peer("clauses").version
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        lake.sql(
            "merge into lake.clauses t using (select 9 as id from range(2)) s on t.id = s.id "
            "when matched then update set name = 'twice'"
        )
    lake.sql("update lake.clauses set x = 1 where id < 0", "delete from lake.clauses where id % 7 = 9")
    assert lake.peer("clauses").version == before  # no row, no version
    for least, source in ((90, "range(0, 4, 1, 1)"), (92, "range(0, 60000, 1, 3)")):  # keys of one task, of several
        lake.sql(
            f"merge into lake.clauses t using (select id % 2 + {least} as id from {source}) s on t.id = s.id "
            "when matched then delete"  # Spark counts no matches: a row can leave only once
        )
    assert lake.rows("clauses") == [row for id, row in sorted(rows.items()) if not 90 <= id < 94]
    assert lake.peer("clauses").version == before + 2
    assert lake.files("clauses") >= lake.live_files("clauses")


# -- procedures --------------------------------------------------------------------------------------------------------


def test_procedures(lake: Lake) -> None:
    make_people(lake, "kept_up", stable=True)
    lake.sql("delete from lake.kept_up where id % 3 = 0")
    before = lake.peer("kept_up").to_table(columns=["id", "name"], with_row_id=True)
    metrics = ops.compact(lake.spark, "lake.kept_up", target_rows_per_fragment=1000)
    assert (metrics["fragments_removed"], metrics["fragments_added"]) == (4, 1)
    peer = lake.peer("kept_up")
    assert len(peer.get_fragments()) == 1
    assert peer.to_table(columns=["id", "name"], with_row_id=True).equals(before)
    assert lake.sql("call lake.system.compact(table => 'default.kept_up')") == [(peer.version, 0, 0, 0, 0)]
    lake.sql("call lake.system.create_index(table => 'kept_up', column => 'id', index_type => 'btree', name => 'ids')")
    lake.sql("insert into lake.kept_up values (1000, 'new', 1)", "call lake.system.optimize_indices('kept_up')")
    assert lake.peer("kept_up").stats.index_stats("ids")["num_unindexed_rows"] == 0
    lake.sql("call lake.system.drop_index('kept_up', 'ids')")
    ops.add_columns(lake.spark, "lake.kept_up", {"double": "x * 2", "quoted": "'it''s'"})
    assert set(lake.peer("kept_up").to_table()["quoted"].to_pylist()) == {"it's"}
    assert lake.sql("select double from lake.kept_up where id = 1") == [(1.0,)]
    assert lake.sql("call lake.system.create_tag('kept_up', 'first', 1)") == [("first", 1)]
    lake.sql("call lake.system.create_branch(table => 'kept_up', branch => 'side', version => 1)")
    assert lake.sql("select count(*) from lake.kept_up version as of 'first'") == [(100,)]
    assert lake.sql("select count(*) from lake.kept_up version as of 'side'") == [(100,)]
    lake.sql("call lake.system.drop_tag('kept_up', 'first')", "call lake.system.drop_branch('kept_up', 'side')")
    assert lake.peer("kept_up").tags.list() == {}
    assert lake.sql("call lake.system.rollback('kept_up', 1)") == [(lake.peer("kept_up").version,)]
    assert lake.peer("kept_up").count_rows() == 100
    version = lake.peer("kept_up").version
    lake.sql("explain call lake.system.rollback('kept_up', 2)")
    assert lake.peer("kept_up").version == version
    assert lake.sql("call lake.system.cleanup('kept_up', older_than_days => 0)")[0][0] == version - 1
    assert len(lake.peer("kept_up").versions()) == 1
    assert "compact" in str(lake.sql("show procedures in lake.system"))
    assert "target_rows_per_fragment" in str(lake.sql("describe procedure lake.system.compact"))
    with pytest.raises(AnalysisException, match="there is no procedure"):
        lake.sql("call lake.system.nope('kept_up')")
    with pytest.raises(PySparkException, match="kept_down"):
        lake.sql("call lake.system.compact('kept_down')")


# -- columns and properties --------------------------------------------------------------------------------------------


def test_alter_table(lake: Lake) -> None:
    lake.sql("create table lake.wide (id int, s struct<a: int>, l array<struct<b: int>>, score float, code varchar(3))")
    lake.sql("insert into lake.wide values (1, named_struct('a', 2), array(named_struct('b', 3)), 0.5f, 'abc')")
    lake.sql(
        "alter table lake.wide add columns (text string comment 'words', s.c bigint, l.element.d string)",
        "alter table lake.wide alter column id type bigint",
        "alter table lake.wide alter column score type double",
        "alter table lake.wide alter column code type varchar(5)",
        "alter table lake.wide rename column s.a to first",
        "alter table lake.wide alter column id comment 'key'",
        "alter table lake.wide set tblproperties ('owner team' = 'x', 'other' = 'y')",
        "alter table lake.wide unset tblproperties ('other')",
        "insert into lake.wide values (2, named_struct('first', 5, 'c', 6), null, 1.5, 'abcde', 'text')",
        "alter table lake.wide drop columns (score)",
        "alter table lake.wide drop column if exists absent",
    )
    assert lake.rows("wide") == [
        {"id": 1, "s": {"first": 2, "c": None}, "l": [{"b": 3, "d": None}], "code": "abc", "text": None},
        {"id": 2, "s": {"first": 5, "c": 6}, "l": None, "code": "abcde", "text": "text"},
    ]
    schema = lake.peer("wide").schema
    assert schema.field("id").type == pa.int64()
    assert schema.field("id").metadata[b"comment"] == b"key"
    assert schema.field("text").metadata[b"comment"] == b"words"
    assert lake.peer("wide").config() == {"owner team": "x"}


def test_the_cookbook_of_the_page(spark: SparkSession, tmp_path: Path) -> None:
    statements = cookbook()
    assert len(statements) >= 20
    lance_io.spark.enable(spark, catalog="cookbook", path=str(tmp_path))
    versions = 0
    for statement in statements:
        spark.sql(in_catalog(statement, "cookbook"))
        if "lance.events" in statement.split("\n")[0].partition(" AS SELECT")[0] and "lance.copy" not in statement[:30]:
            versions += 1
            assert lance.dataset(str(tmp_path / "events.lance")).version == versions, statement
    check_cookbook(lance.dataset(str(tmp_path / "events.lance")))
    assert os.listdir(tmp_path) == ["events.lance"]


# -- others at the same time -------------------------------------------------------------------------------------------


def test_a_failed_statement_leaves_no_files(lake: Lake) -> None:
    make_people(lake, "failing", stable=False)
    before = lake.files("failing"), lake.peer("failing").version
    for statement in (
        "insert into lake.failing select /*+ repartition(3) */ id, 'x', 1 / (id - 90000) from range(100000)",
        "update lake.failing set x = 1 / (id - 77)",
    ):
        with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
            lake.sql(statement)
        assert (lake.files("failing"), lake.peer("failing").version) == before
    assert os.listdir(lake.folder / "failing.lance" / "data")


MERGE = (
    "merge into lake.{name} t using (select id + 95 as id from range(10) where when_committed(id)) s on t.id = s.id "
    "when matched then update set name = 'm' when not matched then insert (id) values (s.id)"
)
FINDS_ALL = MERGE.replace("id + 95", "id + 90")  # each key of the source is in the table
UPDATE = "update lake.{name} set name = 'u' where id > 95 and when_committed(id)"


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize(
    ("statement", "isolation", "other", "conflicts"),
    [
        (MERGE, None, "append", True),
        (FINDS_ALL, None, "append", True),
        (MERGE, "snapshot", "append", False),
        (UPDATE, None, "append", False),
        (UPDATE, None, "delete in the last fragment", True),
    ],
)
def test_statements_at_the_same_time(
    lake: Lake, statement: str, isolation: str | None, other: str, conflicts: bool
) -> None:
    """The other writer is pylance. All pairs are those of `test_concurrent_statements`."""
    name = f"both{abs(hash((statement, isolation, other)))}"
    make_people(lake, name, stable=True)
    if isolation is not None:
        lake.sql(f"alter table lake.{name} set tblproperties ('isolation' = '{isolation}')")
    before = lake.peer(name).version
    others: dict[str, Callable[[lance.LanceDataset], object]] = {
        "append": lambda peer: lance.write_dataset(pa.table({"id": [500]}), peer, mode="append"),
        "delete in the last fragment": lambda peer: peer.delete("id = 99"),
    }
    attempt = partial(run_beside, lake, name, statement.format(name=name), lambda: others[other](lake.peer(name)))
    if conflicts:
        with pytest.raises(TASK_ERRORS, match="CommitConflictError"):
            attempt()
        assert lake.peer(name).version == before + 1
        assert lake.files(name) == lake.live_files(name) | lake.live_files(name, before)
    else:
        attempt()
        assert lake.peer(name).version == before + 2
        assert {row["name"] for row in lake.rows(name) if 95 < row["id"] < 100} <= {"m", "u"}
