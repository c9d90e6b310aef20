"""Brings the JAR of this package into a Spark session, and sets a catalog of tables."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UnsupportedError, UsageError
from lance_io.lazy_names import lazy_module
from lance_io.spark.task_context import CREDENTIAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from lance_io.spark import helpers
else:
    helpers = lazy_module("lance_io.spark.helpers")

JAR: Final = Path(__file__).with_name("lance_io.jar")
CATALOG_CLASS: Final = "lance_io.spark.Catalog"
OF_PROGRAM: Final = "spark.lance_io.python.ofProgram"  # which Python this program runs, for workers in local mode
_JARS: Final = "spark.jars"
_SPARK_MIN: Final = (4, 1)


def configure(
    builder: SparkSession.Builder, catalog: str | None = None, path: str | None = None, **options: Any
) -> SparkSession.Builder:
    """Configure sessions that a builder creates: the JAR of this package, and a catalog of the tables in a folder.

    The JAR is loaded when the Java virtual machine starts: in a program that has had a session before, use `enable`.

    Args:
        builder: `SparkSession.builder`, or what its methods return.
        catalog: The catalog's name in SQL, None for no catalog.
        path: Folder of its tables; the table `t` is the folder `t.lance` in it.
        **options: Options of all reads of the catalog, see docs/spark.md; `storage` as a dict.

    Returns:
        The builder.

    Raises:
        UsageError: One of `catalog` and `path` is missing, or the package was built without its JAR.
        UnsupportedError: Spark is older than 4.1.
    """
    if not _has_jar():
        raise UsageError(_NO_JAR)
    _check_release(sys.modules["pyspark"].__version__)
    given = [jar for jar in str(builder._options.get(_JARS, "")).split(",") if jar]
    if str(JAR) not in given:
        builder = builder.config(_JARS, ",".join([*given, str(JAR)]))
    for name, text in _settings(catalog, path, options).items():
        builder = builder.config(name, text)
    return builder


def enable(spark: SparkSession, catalog: str | None = None, path: str | None = None, **options: Any) -> None:
    """Bring the JAR of this package into a running session, and set a catalog of the tables in a folder.

    Calling it again does nothing but set the catalog, which all threads of the program find. `format("lance_io")` goes
    by the JAR in the threads that have called this; in others it is the source in Python, unless Java started with the
    JAR. In a session of Spark Connect the server gets the JAR, which it may refuse.

    Args:
        spark: The session.
        catalog: The catalog's name in SQL, None for no catalog.
        path: Folder of its tables; the table `t` is the folder `t.lance` in it.
        **options: Options of all reads of the catalog, see docs/spark.md; `storage` as a dict.

    Raises:
        UsageError: One of `catalog` and `path` is missing, the session has a catalog of this name in another folder,
            the package was built without its JAR, or the server lets no client add JARs, or is given credentials.
        UnsupportedError: Spark is older than 4.1.
    """
    settings = _settings(catalog, path, options)
    if not _has_jar():
        raise UsageError(_NO_JAR)
    _check_release(spark.version)
    if _is_connect(spark):
        _add_artifact(spark)
    else:
        _add_jar(spark)
    _check_path(spark, catalog, settings)
    _hide_credentials(spark, catalog, settings)
    for name, text in settings.items():
        spark.conf.set(name, text)
    if catalog is not None and not _is_connect(spark):
        _load_catalog(spark, catalog)


_NO_JAR: Final = (
    f"{JAR.name} is missing: the package was built without a JDK; in a checkout, `make spark-jar` builds it"
)


def _has_jar() -> bool:
    return JAR.exists()


def _check_release(spark: str) -> None:
    """Raise `UnsupportedError` for a Spark whose interfaces lack a part of ours."""
    if tuple(map(int, re.findall(r"\d+", spark)[:2])) < _SPARK_MIN:
        raise UnsupportedError(f"lance_io needs Spark 4.1 or later; this is {spark}: install pyspark 4.1 or later")


def _settings(catalog: str | None, path: str | None, options: Mapping[str, Any]) -> dict[str, str]:
    """Settings of a session. Raises `UsageError` for a catalog without a folder, and the reverse."""
    settings = {OF_PROGRAM: sys.executable}
    if (catalog is None) != (path is None) or (catalog is None and options):
        raise UsageError("a catalog needs a name and a folder: give both, catalog and path, or neither")
    if catalog is not None:
        prefix = f"spark.sql.catalog.{catalog}"
        settings[prefix] = CATALOG_CLASS
        texts = helpers.option_texts({"path": path, **options})
        settings |= {f"{prefix}.{name}": text for name, text in texts.items()}
    return settings


def _hide_credentials(spark: SparkSession, catalog: str | None, settings: dict[str, str]) -> None:
    """Move credentials out of the settings, into the virtual machine, where its catalog looks for them.

    Settings of a running session travel with jobs as properties, and Spark hides none of these in its event logs. Those
    that a session begins with it hides. Raises `UsageError` in a session of Spark Connect.
    """
    prefix = f"spark.sql.catalog.{catalog}."
    names = [name for name in settings if name.startswith(prefix) and CREDENTIAL.search(name.removeprefix(prefix))]
    if not names:
        return
    if _is_connect(spark):
        raise UsageError(
            f"Spark shows settings of a running session in its event logs, and {names[0]} is a credential: leave it to "
            "the environment of the server, or to its own settings"
        )
    machine: Any = spark.sparkContext._jvm
    java = machine.java
    hidden = java.util.HashMap()
    for name in names:
        hidden.put(name.removeprefix(prefix), settings.pop(name))
    java.lang.System.getProperties().put(f"lance_io.catalog.{catalog}", hidden)


def _add_jar(spark: SparkSession) -> None:
    """Add the JAR to a session, unless it has it and this thread finds its classes.

    Spark looks for them by the class loader of the thread that asks. `ADD JAR` gives that to its own thread only.
    """
    machine: Any = spark.sparkContext._jvm
    loader = machine.java.lang.Thread.currentThread().getContextClassLoader()
    finds = loader is not None and loader.getResource(f"{CATALOG_CLASS.replace('.', '/')}.class") is not None
    if not (finds and any(row[0].endswith(f"/{JAR.name}") for row in spark.sql("LIST JARS").collect())):
        spark.sql(f"ADD JAR '{JAR}'")


def _check_path(spark: SparkSession, catalog: str | None, settings: Mapping[str, str]) -> None:
    """Raise `UsageError` for a catalog that the session has in another folder, and keeps."""
    name = f"spark.sql.catalog.{catalog}.path"
    path = settings.get(name)
    known = path if path is None else spark.conf.get(name, None)
    if known not in (None, path):
        raise UsageError(
            f"the session has the catalog {catalog} in the folder {known}, and keeps it: give the one in {path} another"
            " name"
        )


def _load_catalog(spark: SparkSession, catalog: str) -> None:
    """Let Spark load the catalog in this thread, which finds its class. Then it is there for all threads."""
    session: Any = spark
    session._jsparkSession.sessionState().catalogManager().catalog(catalog)


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _add_artifact(spark: SparkSession) -> None:
    """Give the JAR to a server. Raises `UsageError` if it refuses."""
    try:
        spark.addArtifacts(str(JAR))
    except Exception as error:
        if "ARTIFACT_ALREADY_EXISTS" in str(error):
            return
        raise UsageError(
            f"the server refuses JARs of clients: its administrator adds {JAR.name} to spark.jars, and sets "
            f"spark.sql.catalog.NAME={CATALOG_CLASS} and spark.sql.catalog.NAME.path ({error})"
        ) from error
