"""Namespaces of the JAR's catalog: folders beside its tables, and tables in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

import lance_io.spark
from lance_io.spark import ops
from tests.spark.lakes import Lake, operations
from tests.spark.sessions import TASK_ERRORS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of the catalog `spaces`."""
    path = tmp_path_factory.mktemp("spaces")
    lance_io.spark.enable(spark, catalog="spaces", path=str(path))
    return path


@pytest.fixture
def lake(spark: SparkSession, folder: Path) -> Lake:
    return Lake(spark, folder)


def test_tables_in_namespaces(lake: Lake) -> None:
    lake.sql("create namespace spaces.raw comment 'as they come'", "create namespace if not exists spaces.raw")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        lake.sql("create namespace spaces.raw")
    lake.sql(
        "create table spaces.raw.t (id bigint, text string)",
        "insert into spaces.raw.t values (1, 'a'), (2, 'b')",
        "create table spaces.t as select id, 'outer' as text from spaces.raw.t where id = 1",
        "merge into spaces.t o using spaces.raw.t s on o.id = s.id "
        "when matched then update set * when not matched then insert *",
        "update spaces.raw.t set text = 'changed' where id + 0 = 2",
        "delete from spaces.raw.t where id = 1",
        "create or replace table spaces.raw.copy as select * from spaces.default.t",
        "alter table spaces.raw.copy add column more int",
    )
    assert lake.rows("t") == [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]
    assert lake.rows("raw/t") == [{"id": 2, "text": "changed"}]
    assert lake.peer("raw/copy").schema.names == ["id", "text", "more"]
    assert lake.sql("show tables in spaces.raw") == [("raw", "copy", False), ("raw", "t", False)]
    assert lake.sql("show tables in spaces") == [("default", "t", False)]
    assert ("raw",) in lake.sql("show namespaces in spaces")
    assert lake.sql("select count(*) from spaces.raw.t version as of 2") == [(2,)]
    # tables about tables; a namespace may have a table of such a name
    assert lake.sql("select count(*) from spaces.raw.t.history") == [(4,)]
    assert lake.sql("select count(*) from spaces.t.history") == lake.sql(
        "select count(*) from spaces.default.t.history"
    )
    lake.sql("create table spaces.raw.history as select 7 as id")
    assert lake.sql("select id from spaces.raw.history") == [(7,)]
    # procedures take the name within the catalog
    for number, name in enumerate(("raw.copy", "`raw`.copy", "raw.`copy`")):
        lake.sql(f"call spaces.system.create_tag('{name}', 'tag{number}', 1)")
    assert lake.peer("raw/copy").tags.list().keys() == {"tag0", "tag1", "tag2"}
    assert ops.compact(lake.spark, "spaces.raw.copy")["version"] == lake.peer("raw/copy").version
    with pytest.raises(TASK_ERRORS, match="other"):
        lake.sql("call spaces.system.compact('other.copy')")
    # in the namespace that a session is in
    current = lake.sql("select current_catalog(), current_schema()")[0]
    try:
        lake.sql("use spaces.raw")
        assert lake.sql("select text from t") == [("changed",)]
        lake.sql("create table here as select 1 as id")
    finally:
        lake.sql(f"use `{current[0]}`.`{current[1]}`")
    assert lake.rows("raw/here") == [{"id": 1}]


def test_tables_move_between_namespaces(lake: Lake) -> None:
    lake.sql("create namespace spaces.first", "create namespace spaces.second.inner")
    lake.sql("create table spaces.first.t as select 1 as id", "alter table spaces.first.t rename to u")
    assert lake.rows("first/u") == [{"id": 1}]
    lake.sql("alter table spaces.first.u rename to spaces.second.inner.v")
    assert lake.rows("second/inner/v") == [{"id": 1}]
    assert operations(lake.peer("second/inner/v")) == ["Overwrite"]
    lake.sql("alter table spaces.second.inner.v rename to spaces.default.w")
    assert lake.rows("w") == [{"id": 1}]
    with pytest.raises(AnalysisException, match="nowhere"):
        lake.sql("alter table spaces.w rename to spaces.nowhere.w")
    lake.sql("create table spaces.first.w as select 2 as id")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        lake.sql("alter table spaces.w rename to spaces.first.w")
    assert (lake.rows("w"), lake.rows("first/w")) == ([{"id": 1}], [{"id": 2}])
    assert lake.sql("show namespaces in spaces.second") == [("second.inner",)]
    lake.sql("drop namespace spaces.second.inner", "drop namespace spaces.second")
    assert not (lake.folder / "second").exists()


def test_namespaces_have_properties_and_go(lake: Lake) -> None:
    lake.sql("create namespace spaces.kept comment 'words' with properties ('team' = 'x', 'old' = 'y')")
    lake.sql("alter namespace spaces.kept set properties ('team' = 'z')")
    described = dict(lake.sql("describe namespace extended spaces.kept"))
    assert described["Comment"] == "words"
    assert described["Location"] == str(lake.folder / "kept")
    assert "(team,z)" in described["Properties"] and "(old,y)" in described["Properties"]
    lake.sql("create table spaces.kept.t (id int)", "create namespace spaces.kept.inner")
    lake.sql("create table spaces.kept.inner.t (id int)")
    with pytest.raises(AnalysisException, match="NOT_EMPTY"):
        lake.sql("drop namespace spaces.kept")
    (lake.folder / "kept" / "inner" / "notes.txt").write_text("of another program")
    with pytest.raises(AnalysisException, match=r"files that belong to none: inner/notes\.txt"):
        lake.sql("drop namespace spaces.kept cascade")
    assert lake.peer("kept/t").version == lake.peer("kept/inner/t").version == 1
    (lake.folder / "kept" / "inner" / "notes.txt").unlink()
    lake.sql("drop namespace spaces.kept cascade", "drop namespace if exists spaces.kept")
    assert not (lake.folder / "kept").exists()
    with pytest.raises(AnalysisException, match="NOT_FOUND"):
        lake.sql("drop namespace spaces.kept")
    # a folder that another program has filled is one, too
    lance.write_dataset(pa.table({"id": [5]}), str(lake.folder / "foreign" / "t.lance"))
    assert lake.sql("select * from spaces.foreign.t") == [(5,)]
    lake.sql("insert into spaces.foreign.t values (6)", "create table spaces.foreign.u (id int)")
    assert lake.peer("foreign/t").count_rows() == 2


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("create namespace spaces.`a/b`", "a slash"),
        ("create namespace spaces.`..`", "begins with a dot"),
        ("create namespace spaces._hidden", "begins with a dot or _"),
        ("create namespace spaces.`x.lance`", "ends in .lance"),
        ("create namespace spaces.x.default", "default"),
        ("create namespace spaces.system", "procedures"),
        ("create namespace spaces.default", "ALREADY_EXISTS"),
        ("create namespace spaces.x location '/elsewhere'", "not in"),
        ("drop namespace spaces.default cascade", "the folder of the catalog"),
        ("alter namespace spaces.default set properties ('a' = 'b')", "the folder of the catalog"),
        ("create table spaces.absent.t (id int)", "absent"),
        ("create table spaces.absent.t as select 1 as id", "absent"),
        ("create or replace table spaces.absent.t as select 1 as id", "absent"),
        ("show tables in spaces.absent", "absent"),
        ("select * from spaces.absent.t", "absent"),
        ("create table spaces.`..`.t (id int)", "NOT_FOUND"),
        ("drop table spaces.`..`.t", "NOT_FOUND"),
    ],
)
def test_refusals(lake: Lake, statement: str, message: str) -> None:
    before = sorted(lake.folder.iterdir())
    with pytest.raises(PySparkException, match=message):
        lake.sql(statement)
    assert sorted(lake.folder.iterdir()) == before
    assert not list(lake.folder.parent.glob("*.lance"))
