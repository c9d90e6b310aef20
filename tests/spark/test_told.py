"""What Spark tells tasks, and what they make of it, in this process."""

from __future__ import annotations

import logging
import os
from types import SimpleNamespace

import pytest
from pyspark import TaskContext

from lance_io import runtime
from lance_io.spark import engine
from lance_io.spark import task_context as told
from lance_io.spark.options import parse_options

SPARKS = "(?i)secret|password|token|access[.]?key"
S3 = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "hush", "aws_session_token": "hush", "aws_region": "x"}


@pytest.mark.parametrize(
    ("cores", "master", "task_cpus", "workers"),
    [
        ("8", "spark://host:7077", 1, 8),
        ("8", "local[2]", 2, 4),
        ("1", "k8s://https://host", 2, 1),
        (None, "local", 1, 1),
        (None, "local[3]", 1, 3),
        (None, "local[6, 4]", 2, 3),
        (None, "local[*]", 1, 5),
        (None, "local[*, 4]", 1, 5),
        (None, "local-cluster[2, 3, 768]", 1, 3),
        (None, "yarn", 1, 1),  # where an executor has one core unless somebody says a number
        (None, "k8s://https://host", 1, 1),
        (None, "spark://host:7077", 1, 5),
        (None, "spark://host:7077", 2, 2),
        (None, None, 1, 5),
    ],
)
def test_how_many_workers_share_an_executor(
    monkeypatch: pytest.MonkeyPatch, cores: str | None, master: str | None, task_cpus: int, workers: int
) -> None:
    class Context:
        def getLocalProperty(self, key: str) -> str | None:
            return {"resource.executor.cores": cores, "spark.master": master}.get(key)

        def cpus(self) -> int:
            return task_cpus

    assert told.executor_workers() == 1
    monkeypatch.setattr(told, "processors", lambda: 5)
    monkeypatch.setattr(TaskContext, "get", lambda: Context())
    assert told.executor_workers() == workers


@pytest.mark.parametrize(
    ("storage", "pattern", "names"),
    [
        (S3, SPARKS, ["aws_access_key_id"]),  # Spark means fs.s3a.access.key
        (S3, "(?i)password", ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"]),
        (S3, "(?i)secret|token|access[._]?key", []),
        (S3, "^storage[.]", []),
        ({**S3, "aws_access_key_id": "hidden"}, "secret|token|hidden", []),  # a value that matches is hidden too
        ({"aws_region": "x", "aws_endpoint": "http://y", "aws_sse_kms_key_id": "z"}, "nothing", []),
        ({"account_key": "hush", "sas_token": "hush"}, SPARKS, ["account_key"]),
        ({"access_key_id": "AKIA"}, "(?<a>", ["access_key_id"]),  # no regular expression of Python
    ],
)
def test_which_credentials_spark_shows(storage: dict[str, str], pattern: str, names: list[str]) -> None:
    assert told.shown_credentials(storage, [pattern, "(?i)url"]) == names


@pytest.mark.parametrize(("pattern", "warnings"), [(None, 1), ("(?i)secret|access_key|token", 0)])
def test_credentials_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, pattern: str | None, warnings: int
) -> None:
    """In a process, without a credential, and not where the session hides them."""
    options = parse_options(
        {"path": "s3://b/t.lance", **{f"storage.{name}": text for name, text in S3.items()}}, "read"
    )
    monkeypatch.setattr(told, "_warned_pid", 0)
    with caplog.at_level(logging.WARNING):
        told.warn_of_credentials(options)
        assert caplog.messages == []  # not in a task
        monkeypatch.setattr(told, "this_task", object)
        monkeypatch.setattr(told, "property_of_task", {"spark.redaction.regex": pattern}.get)
        told.warn_of_credentials(parse_options({"path": "s3://b/t.lance"}, "read"))
        told.warn_of_credentials(options)
        told.warn_of_credentials(options)
    assert len(caplog.messages) == warnings
    for text in caplog.messages:
        assert "aws_access_key_id" in text and "spark.redaction.regex" in text and "AWS_SECRET_ACCESS_KEY" in text
        assert not [value for value in ("AKIA", "hush") if value in text]


def test_a_worker_takes_the_processors_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANCE_CPU_THREADS", raising=False)
    monkeypatch.setattr(engine, "_fitted_pid", os.getpid())
    try:
        for cpus in (3, 2):  # tasks of another stage may come to the same worker
            monkeypatch.setattr(engine, "this_task", lambda cpus=cpus: SimpleNamespace(cpus=lambda: cpus))
            engine.fit_to_task()
            assert runtime.cpu_count() == cpus
    finally:
        runtime.use_cpus(None)
