"""Spark sessions for tests: everything on 127.0.0.1 and in temporary folders, no user interface, few partitions."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

CHECKOUT = Path(__file__).resolve().parents[2]


def spark_environment(folder: Path) -> dict[str, str]:
    """What the JVM, and through it every worker, finds in its environment."""
    return {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(CHECKOUT),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "LANCE_IO_HEDGE_PERCENT": "0",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(folder / "no-such-file"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "no-such-file"),
    }


def spark_settings(folder: Path, **more: str) -> dict[str, str]:
    """Settings of a test session; `more` with `__` for dots."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.log.level": "OFF",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


@contextmanager
def spark_session(folder: Path, master: str = "local[2,4]", **more: str) -> Iterator[SparkSession]:
    """A session for the time of the block; only one at a time."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment(folder).items():
            patch.setenv(name, value)
        builder = SparkSession.builder.master(master)
        for name, value in spark_settings(folder, **more).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
