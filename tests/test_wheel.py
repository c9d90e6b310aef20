"""The wheel as a user meets it: installed into an empty environment, no Rust in sight, it reads a table.

The wheel is built once from this checkout (seconds where the kernels are compiled already). The environment that
gets it has nothing but what the wheel declares: a dependency that is used and not declared fails here.
"""

from __future__ import annotations

import os
import re
import sys
import zipfile
from datetime import date
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lance_io.spark.sessions import JAR
from tests.wheels import CHECKOUT, TOOLS, build_wheel, run

if TYPE_CHECKING:
    from pathlib import Path

READ_TABLE = """
import shutil, sys
import lance_io
import pyarrow as pa
assert shutil.which("cargo") is None and shutil.which("rustc") is None
dataset = lance_io.dataset(sys.argv[1])
with pa.OSFile(sys.argv[2], "wb") as sink:
    table = dataset.to_table()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
        writer.write_table(dataset.take([2, 499, 2]))
"""

pytestmark = pytest.mark.timeout(1500)  # a first build of the kernels takes minutes on a slow machine


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One wheel, built from this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel, its declared dependencies and nothing else."""
    home = tmp_path_factory.mktemp("environment") / "venv"
    run(TOOLS / "uv", "venv", "--quiet", "--python", sys.executable, home)
    interpreter = home / "bin" / "python"
    run(TOOLS / "uv", "pip", "install", "--quiet", "--python", interpreter, wheel)
    return interpreter


@pytest.fixture
def source(tmp_path: Path) -> tuple[str, pa.Table]:
    """A table of several types on local disk, written by pylance, and what it holds."""
    table = pa.table(
        {
            "id": pa.array(range(500), pa.int64()),
            "text": pa.array([None if i % 7 == 0 else f"row {i * 7919 % 500}" for i in range(500)]),
            "score": pa.array([i / 3 for i in range(500)], pa.float64()),
            "tags": pa.array([[f"t{j}" for j in range(i % 4)] for i in range(500)]),
            "day": pa.array([date(2026, 1, 1 + i % 28) for i in range(500)]),
            "point": pa.array([{"x": i, "y": -i} for i in range(500)]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(range(4000), pa.float32()), 8),
        }
    )
    uri = str(tmp_path / "table.lance")
    lance.write_dataset(table, uri, max_rows_per_file=200)
    return uri, table


def bare_environment(folder: Path) -> dict[str, str]:
    """The environment of a process that finds no programs."""
    nothing = folder / "empty-path"
    nothing.mkdir()
    return {"PATH": str(nothing), "HOME": str(folder), "LANG": os.environ.get("LANG", "C.UTF-8")}


def test_wheel_is_one_for_all_pythons(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "-cp311-abi3-" in wheel.name
    assert {"lance_io/py.typed", "lance_io/_kernels.pyi", "lance_io/_kernels.abi3.so"} <= set(names)
    assert zipfile.ZipFile(wheel).read("lance_io/spark/lance_io.jar") == JAR.read_bytes()  # Spark's, built with a JDK
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert all(name.startswith(("lance_io", "pyspark_lance_io")) and "__pycache__" not in name for name in names)


def test_wheel_reads_a_table_where_there_is_no_rust(python: Path, source: tuple[str, pa.Table], tmp_path: Path) -> None:
    uri, expected = source
    found = tmp_path / "found.arrow"
    run(python, "-I", "-c", READ_TABLE, uri, found, env=bare_environment(tmp_path), cwd=tmp_path)

    table = pa.ipc.open_file(found).read_all()
    assert table.slice(0, 500).equals(expected)
    assert table.slice(500).equals(expected.take([2, 499, 2]))


def test_the_block_of_the_readme_runs(python: Path, tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (CHECKOUT / "README.md").read_text(), flags=re.DOTALL)
    run(python, "-I", "-c", block, env=bare_environment(tmp_path), cwd=tmp_path)
    assert lance.dataset(str(tmp_path / "drinks.lance")).count_rows() == 1001
