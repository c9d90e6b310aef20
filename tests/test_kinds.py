"""Test files ask for the tools that they need, carry the marks of their kind, and are found from a module's name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from scripts import find_tests
from servers.local_server import LocalServer
from tests.kinds import DURATIONS, servers_refused_unless_marked

if TYPE_CHECKING:
    from tests.servers import S3Server

CHECKOUT = Path(__file__).resolve().parents[1]
BUILD = ["python", "cargo", "cc"]


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ("tests/filters", set()),
        ("tests/plans tests/file/test_lazy_pages.py -k range", set()),
        ("tests/s3/test_reprs.py::test_nothing", {"minio"}),
        ("tests/azure/test_azure_datasets.py", {"azure"}),
        ("tests/store/test_conformance.py", {"minio", "versity", "gcs", "azure"}),  # by names
        ("tests/commit/test_dynamodb.py", {"minio", "dynamodb"}),
        ("tests/simulate/test_power.py", {"strace"}),  # by an import
        ("tests/spark/test_planning.py", {"java", "jdk"}),
        ("tests/test_wheel.py", {"jdk"}),  # which builds one
        ("tests/s3/test_crowd.py", {"minio"}),  # by its folder
        ("tests/test_latency_benchmark.py", {"minio", "proxy", "servers"}),
    ],
)
def test_only_the_tools_of_these_tests_are_needed(arguments: str, needed: set[str]) -> None:
    assert set(find_tests.tools_for(arguments.split())) - {*BUILD} == needed


@pytest.mark.parametrize("arguments", ["", "-k range", "tests", "tests/ -x"])
def test_all_tests_need_all_tools(arguments: str) -> None:
    everything = {*BUILD, "servers", "dynamodb", "java", "jdk", "strace", "disk", "proxy"}
    assert set(find_tests.tools_for(arguments.split())) == everything


def test_make_asks_for_these_tools_alone() -> None:
    def asked(arguments: str) -> str:
        command = [shutil.which("make"), "-n", "need-tests", f"ARGS={arguments}", f"PYTHON={sys.executable}"]
        # A make above this one says by MAKEFLAGS that folders are entered and left.
        variables = {name: text for name, text in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        output = subprocess.check_output(command, cwd=CHECKOUT, env=variables, text=True, timeout=60)
        return output.splitlines()[-1]

    assert asked("tests/plans -k 'one or two'") == "scripts/require python cargo cc"
    assert asked("tests/gcs/test_gcs_tables.py").split()[4:] == ["gcs"]
    assert {"servers", "java"} <= {*asked("").split()}


@pytest.mark.parametrize("is_marked", [False, True])
def test_a_server_is_for_marked_tests(monkeypatch: pytest.MonkeyPatch, is_marked: bool) -> None:
    item = SimpleNamespace(nodeid="test_x", get_closest_marker=lambda name: is_marked or None)
    monkeypatch.setattr(LocalServer, "start", lambda server: server)
    monkeypatch.setattr(LocalServer, "title", "the server", raising=False)
    with servers_refused_unless_marked(item):
        if is_marked:
            LocalServer().start()
        else:
            with pytest.raises(AssertionError, match="test_x starts the server without the mark"):
                LocalServer().start()


def test_most_tests_have_no_mark(request: pytest.FixtureRequest) -> None:
    assert [mark.name for mark in request.node.iter_markers()] == []


def test_marks_come_from_fixtures(request: pytest.FixtureRequest, s3: S3Server) -> None:
    assert s3.endpoint
    assert [mark.name for mark in request.node.iter_markers()] == ["server"]


def test_slow_tests_exist_and_are_few() -> None:
    stored = json.loads(DURATIONS.read_text())
    assert 0 < len(stored["seconds"]) <= 0.02 * stored["cases"]
    assert min(stored["seconds"].values()) >= 1
    for name in stored["seconds"]:
        file, function = re.fullmatch(r"([^:]+)::(?:\w+::)*(\w+).*", name, re.DOTALL).groups()
        assert f"def {function}(" in (CHECKOUT / file).read_text(), name


@pytest.mark.parametrize(
    ("module", "first", "reason"),
    [
        ("io/cache.py", "tests/io/test_cache.py", "named after it"),
        ("filters/functions/dates.py", "tests/filters/", "of its room"),  # loaded by a computed name
        ("cli/explain_report.py", "tests/cli/", "of its room"),
    ],
)
def test_a_module_has_tests(module: str, first: str, reason: str) -> None:
    found = find_tests.tests_of(CHECKOUT / "lance_io" / module)
    assert found[0][0] == reason
    assert str(found[0][1].relative_to(CHECKOUT)).startswith(first)
    assert all(file.exists() for _, file in found)


def test_tests_of_names_the_files_that_import_a_module() -> None:
    module = "lance_io.io.cache"
    command = [sys.executable, "scripts/find_tests.py", "of", module.replace(".", "/") + ".py"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True, timeout=60)
    direct = {line.split()[-1] for line in done.stdout.splitlines() if line.startswith(("named", "imports"))}
    pattern = re.compile(
        rf"^\s*(?:import {module}\b|from {module} import|from lance_io.io import .*\bcache\b)", re.MULTILINE
    )
    files = (path for path in (CHECKOUT / "tests").rglob("test_*.py") if pattern.search(path.read_text()))
    assert {str(path.relative_to(CHECKOUT)) for path in files} <= direct
    refused = subprocess.run([*command[:-1], "lance_io/none.py"], cwd=CHECKOUT, capture_output=True, text=True)
    assert refused.returncode == 1 and "no module of lance_io" in refused.stderr
