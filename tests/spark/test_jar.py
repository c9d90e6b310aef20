"""The JAR itself: what its classes refer to, its version, and that the same sources give the same bytes."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING, Final

import pytest

import lance_io
from lance_io.spark.sessions import CATALOG_CLASS, JAR
from scripts import spark_jar
from tests.spark.class_files import class_version, classes_named_by, classes_of
from tests.spark.sessions import release

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC: Final = (
    r"java\..*",
    r"lance_io\.spark\..*",
    r"org\.apache\.spark\.sql\.connector\..*",
    r"org\.apache\.spark\.sql\.(types|vectorized|util|sources)\..*",
    r"org\.apache\.spark\.sql\.catalyst\.analysis\..*",
    r"org\.apache\.spark\.sql\.catalyst\.InternalRow",
    r"org\.apache\.spark\.(TaskContext|SparkEnv|SparkFiles|SparkContext)",
    r"org\.apache\.spark\.api\.java\..*",
    r"org\.apache\.spark\.sql\.(SparkSession|AnalysisException)",
    r"org\.apache\.spark\.QueryContext",  # a parameter of the exception
    r"org\.apache\.spark\.(sql\.catalyst\.util\.(ArrayData|MapData)|unsafe\.types\.UTF8String)",  # values of rows
    r"org\.apache\.spark\.(SparkConf|sql\.RuntimeConfig)",  # the types of the settings of the two above
    r"org\.apache\.arrow\..*",
    r"com\.fasterxml\.jackson\..*",
    r"scala\..*",
    r"org\.roaringbitmap\..*",  # comes with Spark
    r"org\.slf4j\..*",  # the log of the driver
)
INTERNAL: Final = {
    "org.apache.spark.sql.catalyst.expressions.GenericInternalRow": "the one row of aggregates that are known: "
    "`LocalScan` wants rows, and no public class is one",
    "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2": "the source in Python, to which writes "
    "and streams go on: Spark looks for it by name only where no JAR has the name",
    "org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage": "the bytes of a task's result: "
    "the driver reads results by a class loader that may not know a class of this JAR",
    "org.apache.spark.sql.execution.arrow.ArrowWriter": "rows as Arrow: no public class makes columns of rows",
    # The plan of the statement: a MERGE that only inserts comes as a plain append, and no MERGE says its ON.
    **dict.fromkeys(
        (f"org.apache.spark.sql.execution.{name}" for name in ("QueryExecution", "SQLExecution")), "the running plan"
    ),
    **dict.fromkeys(
        (
            f"org.apache.spark.sql.catalyst.plans.logical.{name}"
            for name in ("Join", "LogicalPlan", "MergeRows", "V2WriteCommand", "WriteDelta")
        ),
        "whether it is a MERGE, and inserts",
    ),
    **dict.fromkeys(
        (
            f"org.apache.spark.sql.catalyst.expressions.{name}"
            for name in ("And", "Attribute", "EqualTo", "ExprId", "Expression")
        ),
        "the columns of its ON",
    ),
}


@pytest.fixture(scope="module")
def referred() -> dict[str, set[str]]:
    return {name: classes_named_by(content) for name, content in classes_of(JAR).items()}


def test_classes_refer_to_public_ones_and_a_written_list(referred: dict[str, set[str]]) -> None:
    allowed = re.compile("|".join(PUBLIC))
    others = {name for names in referred.values() for name in names if not allowed.fullmatch(name)}
    assert others == set(INTERNAL)


def test_the_self_test_knows_all_internal_classes(referred: dict[str, set[str]]) -> None:
    """It looks them up by their names, which are texts in the class."""
    release = classes_of(JAR)["lance_io/spark/Release.class"]
    assert all(name.encode() in release for name in INTERNAL)
    assert not set(INTERNAL) & referred["lance_io/spark/Release.class"]  # else it could not load where they lack


def test_references_are_seen(referred: dict[str, set[str]]) -> None:
    """In code, in signatures, and as a parent."""
    assert "org.apache.spark.sql.vectorized.ArrowColumnVector" in referred["lance_io/spark/TaskReader.class"]
    assert "org.apache.spark.sql.connector.write.WriteBuilder" in referred["lance_io/spark/LanceTable.class"]
    assert "org.apache.spark.sql.connector.catalog.StagingTableCatalog" in referred["lance_io/spark/Catalog.class"]


def test_classes_are_for_java_17() -> None:
    assert {class_version(content) for content in classes_of(JAR).values()} == {17}


def test_the_archive_names_the_package_version_and_the_format() -> None:
    with zipfile.ZipFile(JAR) as archive:
        assert archive.read("lance_io/spark/version.properties") == f"version={lance_io.__version__}\n".encode()
        assert archive.read(spark_jar.SERVICE) == b"lance_io.spark.Provider\n"
        assert f"{CATALOG_CLASS.replace('.', '/')}.class" in archive.namelist()


def test_a_second_build_gives_the_same_bytes(tmp_path: Path) -> None:
    """Also that the one in the package is of these sources, but for classes that Spark 4.1 cannot compile."""
    pyspark, again = spark_jar.find_pyspark(), tmp_path / "again.jar"
    spark_jar.build(pyspark, again)
    if release() >= (4, 2):
        assert again.read_bytes() == JAR.read_bytes()
        return
    of_later = {name for name in classes_of(JAR) if name.startswith(spark_jar.LATER)}
    assert len(of_later) == 2
    with zipfile.ZipFile(again) as theirs, zipfile.ZipFile(JAR) as ours:
        assert theirs.namelist() == [name for name in ours.namelist() if name not in of_later]
        assert all(theirs.read(name) == ours.read(name) for name in theirs.namelist())


def test_other_bytes_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where another release of Spark had led to other classes."""
    changed = tmp_path / "changed.jar"
    spark_jar.write_jar({"a/Of.class": b"1", "a/Same.class": b"2"}, changed)
    monkeypatch.setattr(spark_jar, "JAR", changed)
    monkeypatch.setattr(spark_jar, "build", lambda _, target: spark_jar.write_jar({"a/Same.class": b"2"}, target))
    with pytest.raises(SystemExit, match=r"these differ from .*changed\.jar: a/Of\.class$"):
        spark_jar.check(tmp_path)


def test_without_a_compiler_the_build_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SystemExit, match="scripts/require jdk"):
        spark_jar.build(spark_jar.find_pyspark(), tmp_path / "x.jar")


def test_an_error_of_the_compiler_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "Wrong.java").write_text("class Wrong { int x = nothing; }")
    monkeypatch.setattr(spark_jar, "SOURCES", tmp_path)
    with pytest.raises(SystemExit, match="cannot find symbol"):
        spark_jar.build(spark_jar.find_pyspark(), tmp_path / "x.jar")
    assert not (tmp_path / "x.jar").exists()
