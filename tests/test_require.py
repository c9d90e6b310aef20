"""`make` on a machine that lacks something says what, and how to get it, before it starts anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PLAIN = ["bash", "cat", "cut", "dirname", "env", "head", "make", "find", "sort"]


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has a shell, make, and nothing to build with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PLAIN:
        where = shutil.which(name)
        assert where is not None, name
        (folder / name).symlink_to(where)
    return {"PATH": str(folder), "HOME": str(tmp_path)}


def require(environment: dict[str, str], *tools: str) -> subprocess.CompletedProcess[str]:
    """Run `scripts/require`."""
    command = [str(CHECKOUT / "scripts" / "require"), *tools]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)


def provide(environment: dict[str, str], name: str, answer: str) -> None:
    """Put a program on PATH that prints `answer`."""
    program = Path(environment["PATH"]) / name
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)


def test_names_every_missing_tool_and_where_it_comes_from(bare: dict[str, str]) -> None:
    done = require(bare, "python", "cargo", "cc", "rust-tools", "servers", "java", "jdk", "strace")
    assert done.returncode == 1
    for word in (
        "Python 3.11",
        "python3-venv",
        "rustup.rs",
        "C compiler",
        "rustfmt",
        "minio",
        "versitygw",
        "fake-gcs-server",
        "azurite-blob",
        "nodejs.org",
        "go.dev",
        "docker",
        "Java 17",
        "openjdk-17-jdk-headless",
        "apt install strace",
    ):
        assert word in done.stderr
    assert "Nothing has been started" in done.stderr


def test_old_rust_is_as_good_as_none(bare: dict[str, str]) -> None:
    provide(bare, "cargo", "cargo 1.80.0")
    provide(bare, "rustc", "rustc 1.80.0 (051478957 2024-07-21)")
    done = require(bare, "cargo")
    assert done.returncode == 1
    assert "rustc on PATH is 1.80.0" in done.stderr

    provide(bare, "rustc", "rustc 1.100.0 (0000000000 2027-01-01)")
    assert require(bare, "cargo").returncode == 0


@pytest.mark.parametrize(
    ("version", "is_enough"), [("1.8.0_412", False), ("11.0.2", False), ("17", True), ("21.0.4", True)]
)
def test_java_is_old_or_not(bare: dict[str, str], version: str, is_enough: bool) -> None:
    provide(bare, "java", f'openjdk version "{version}" 2024-07-16')
    done = require(bare, "java")
    assert (done.returncode == 0) == is_enough
    assert is_enough or "java is 1" in done.stderr


@pytest.mark.parametrize(("version", "is_enough"), [("11.0.2", False), ("17.0.15", True), ("25.0.1", True)])
def test_a_jdk_is_old_or_not(bare: dict[str, str], version: str, is_enough: bool) -> None:
    provide(bare, "javac", f"javac {version}")
    assert (require(bare, "jdk").returncode == 0) == is_enough


BUILDS = {"azure": "npm", "dynamodb": "npm"}  # who makes a server; the others are made by Go


@pytest.mark.parametrize("way", ["variable", "program", "build"])
@pytest.mark.parametrize(
    ("name", "variable", "program"),
    [
        ("minio", "LANCE_IO_TEST_S3_ENDPOINT", "minio"),
        ("versity", "LANCE_IO_TEST_VERSITY_ENDPOINT", "versitygw"),
        ("gcs", "LANCE_IO_TEST_GCS_ENDPOINT", "fake-gcs-server"),
        ("azure", "LANCE_IO_TEST_AZURE_ENDPOINT", "azurite-blob"),
        ("dynamodb", "LANCE_IO_TEST_DYNAMODB_ENDPOINT", "dynalite"),
    ],
)
def test_any_way_to_a_server_is_enough(bare: dict[str, str], name: str, variable: str, program: str, way: str) -> None:
    assert require(bare, name).returncode == 1
    if way == "variable":
        bare[variable] = "http://127.0.0.1:9000"
    else:
        provide(bare, program if way == "program" else BUILDS.get(name, "go"), "some version")
    assert require(bare, name).returncode == 0


@pytest.mark.parametrize("is_there", [False, True])
def test_ci_installs_strace_only_where_it_is_missing(bare: dict[str, str], tmp_path: Path, is_there: bool) -> None:
    checkout, log = tmp_path / "checkout", tmp_path / "apt-get.log"
    shutil.copytree(CHECKOUT / ".ci", checkout / ".ci")
    shutil.copytree(CHECKOUT / "scripts", checkout / "scripts")
    strace = Path(bare["PATH"]) / "strace"
    provide(bare, "id", "0")
    provide(bare, "apt-get", "")
    with (Path(bare["PATH"]) / "apt-get").open("a") as apt_get:
        apt_get.write(f'echo "$@" >>{log}\n[ "$1" = update ] || cp "$(dirname "$0")/id" {strace}\n')
    (Path(bare["PATH"]) / "cp").symlink_to(shutil.which("cp"))
    if is_there:
        provide(bare, "strace", "strace -- version 6.1")
    done = subprocess.run([checkout / ".ci" / "run"], env=bare, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "missing: Python" in done.stderr  # it ends where the next tool is missing
    assert "strace" not in done.stderr
    assert log.exists() != is_there
    if not is_there:
        update, install = log.read_text().splitlines()
        assert update.startswith("update") and install.startswith("install ") and install.endswith(" strace")


@pytest.mark.parametrize(("is_set_up", "enough_gb"), [(True, 3), (False, 8)])
def test_a_disk_is_full_or_not(bare: dict[str, str], tmp_path: Path, is_set_up: bool, enough_gb: int) -> None:
    shutil.copytree(CHECKOUT / "scripts", tmp_path / "scripts")
    if is_set_up:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / ".packages").touch()
    command = [str(tmp_path / "scripts" / "require"), "disk"]
    for free_kb in (0, enough_gb * 1_000_000 - 1, enough_gb * 1_000_000):
        provide(bare, "df", f"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a 9 9 {free_kb} 9% /")
        done = subprocess.run(command, env=bare, capture_output=True, text=True, timeout=30)
        is_enough = free_kb == enough_gb * 1_000_000
        assert (done.returncode == 0) == is_enough
        assert is_enough or f"{enough_gb} GB of free space for {'/tmp' if is_set_up else tmp_path}" in done.stderr


def test_make_stops_before_it_starts_anything(bare: dict[str, str], tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.copy(CHECKOUT / "Makefile", checkout)
    shutil.copytree(CHECKOUT / "scripts", checkout / "scripts")
    (checkout / "kernels" / "src").mkdir(parents=True)
    make = [str(Path(bare["PATH"]) / "make"), "-C", str(checkout), f"SHELL={shutil.which('bash')}", "demo"]
    done = subprocess.run(make, env=bare, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "missing: Python 3.11" in done.stderr
    assert sorted(os.listdir(checkout)) == ["Makefile", "kernels", "scripts"]
