"""One Spark session per module of tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `sessions` lies beside this file

from sessions import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session in local mode, two cores, four attempts a task, with an event log."""
    folder = tmp_path_factory.mktemp("spark")
    (folder / "events").mkdir()
    logging = {"spark__eventLog__enabled": "true", "spark__eventLog__dir": f"file://{folder}/events"}
    with spark_session(folder, **logging) as session:
        yield session
