"""The source as Spark finds it: in the wheel, by its package's name, and imported quickly."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lance_io.spark.source import LanceDataSource
from tests.spark.sessions import run_driver
from tests.wheels import build_wheel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(1500)  # the first one may build a wheel, see test_wheel.py

QUERY = """
import lance_io
try:
    print("found", lance_io.__file__, spark.read.format("lance_io").load(sys.argv[2]).columns)
except Exception as error:
    print("not found", "DATA_SOURCE_NOT_FOUND" in str(error))
    import lance_io.spark
    lance_io.spark.register(spark)
    print("registered", spark.read.format("lance_io").load(sys.argv[2]).columns)
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installed wheel puts into site-packages."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build_wheel(folder / "dist")) as archive:
        assert "pyspark_lance_io/__init__.py" in archive.namelist()
        assert "lance_io/spark/read/reader.py" in archive.namelist()
        archive.extractall(folder / "site")
    return folder / "site"


def test_found_without_registering_unless_a_sibling_is_broken(unpacked: Path, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": range(5)}), uri)
    package = unpacked / "lance_io" / "__init__.py"
    shown = run_driver(QUERY, tmp_path, uri, path=[unpacked], spark__master="local[1]")
    assert shown == f"found {package} ['a']\n"

    broken = tmp_path / "broken" / "pyspark_of_somebody_else.py"
    broken.parent.mkdir()
    broken.write_text("raise RuntimeError('broken')")
    shown = run_driver(QUERY, tmp_path, uri, path=[unpacked, broken.parent], spark__master="local[1]")
    assert shown.splitlines() == ["not found True", "registered ['a']"]


def test_spark_imports_no_more_than_it_needs() -> None:
    """Several processes a query import these: nothing beyond pyspark, and no kernels, clients or numpy of our own."""
    code = (
        "import sys, pyspark.sql.datasource, pyarrow\nbefore = set(sys.modules)\n"
        "import pyspark_lance_io, lance_io.spark\nprint('\\n'.join(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=100)
    loaded = done.stdout.split()
    assert {name.partition(".")[0] for name in loaded} <= {"lance_io", "pyspark_lance_io", "importlib"}
    assert len(loaded) <= 12, loaded


NEEDLESS = {
    "pandas",
    "aiobotocore",
    "lance_io.dataset.distributed.scan_parts",
    "lance_io.dataset.distributed.table_version",
    "lance_io.reads.version.versions",
    "lance_io.changes.write",
}
FILTERING = {"pyarrow.compute", "lance_io.filters"}
FILTER = "(number < 0.5 OR number > 3 OR number IN (0, 1.5)) AND id IN (1, 2, 3) AND text <> 'x' AND NOT small IS NULL"


@pytest.mark.parametrize(("options", "needless"), [({}, NEEDLESS | FILTERING), ({"filter": FILTER}, NEEDLESS)])
def test_a_task_imports_no_more_than_it_needs(tmp_path: Path, options: dict[str, str], needless: set[str]) -> None:
    """Every worker process does so once: nothing that plans, commits, or speaks to clouds, and never pandas."""
    uri = str(tmp_path / "t.lance")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(20), pa.float32()), 4)
    columns = {"id": range(5), "number": [0.0, 1.0, 0.25, 4.0, 5.0], "text": list("abcde"), "small": [1, 2, 3, 4, None]}
    lance.write_dataset(pa.table({**columns, "v": vectors}), uri)
    source = LanceDataSource({"path": uri, **options})
    reader = source.reader(source.schema())
    (tmp_path / "task").write_bytes(pickle.dumps((reader, reader.partitions()[0])))
    code = (
        "import sys, pickle, pathlib\nreader, part = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "print(sum(batch.num_rows for batch in reader.read(part)))\nprint('\\n'.join(sys.modules))"
    )
    command = [sys.executable, "-c", code, tmp_path / "task"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    num_rows, *loaded = done.stdout.splitlines()
    assert num_rows == ("2" if options else "5")
    assert "lance_io.spark.read.reader" in loaded
    assert not needless & {*loaded}
