"""What `import lance_io` costs: it loads nothing that most programs do not need.

Cloud clients, `pyarrow.dataset` (0.4 s by itself) and data frame libraries load when they are first used. Each case
starts a fresh interpreter, because this one has loaded everything for other tests.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = [
    "aiobotocore",
    "aiohttp",
    "botocore",
    "duckdb",
    "lance",
    "pandas",
    "polars",
    "pyarrow.dataset",
    "pyarrow._dataset",
    "pyspark",
    "sqlglot",
    "typer",
]


def modules_after(statement: str) -> set[str]:
    """The names in `sys.modules` of a fresh interpreter that has run `statement`."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import lance_io",
        "import lance_io.errors",
        "import lance_io.dataset",
        "import lance_io.polars",
        "import lance_io; lance_io.dataset, lance_io.AsyncDataset; dir(lance_io)",
    ],
)
def test_import_loads_nothing_heavy(statement: str) -> None:
    loaded = modules_after(statement)
    assert "lance_io" in loaded
    assert loaded.isdisjoint(HEAVY), sorted(loaded.intersection(HEAVY))


def test_arrow_filters_need_no_parser() -> None:
    loaded = modules_after(
        "import pyarrow as pa, pyarrow.compute as pc\n"
        "from lance_io.filters import compile_filter\n"
        "compile_filter(pc.field('a') > 1, pa.schema([('a', pa.int64())]))"
    )
    assert "lance_io.filters.evaluate" in loaded
    assert "sqlglot" not in loaded


TAKING = """
import asyncio
from lance_io import AsyncDataset

async def main(uri):
    async with AsyncDataset.open(uri) as table:
        await table.warm()
        assert (await table.take([1])).to_pydict() == {"a": [2], "s": ["y"]}
"""


def test_a_first_row_needs_no_functions_of_arrow(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"]}), uri)
    loaded = modules_after(f"{TAKING}\nasyncio.run(main({uri!r}))")
    assert "pyarrow" in loaded
    assert loaded.isdisjoint({*HEAVY, "pyarrow.compute"}), sorted(loaded.intersection({*HEAVY, "pyarrow.compute"}))


FIRST_TAKE_MODULES = 160  # of this package, in a new process; each is a part of a millisecond before the first row


def test_a_first_take_loads_few_modules(tmp_path: Path) -> None:
    """A module that plain rows do not need is loaded on first use, by `lazy_module`. The bound may only fall."""
    uri = str(tmp_path / "t.lance")
    rows = pa.table(
        {"a": range(9), "x": [number / 7 for number in range(9)], "s": [f"word {number}" for number in range(9)]}
    )
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(36), pa.float32()), 4)
    lance.write_dataset(rows.append_column("v", vectors), uri, max_rows_per_file=5)
    loaded = modules_after(f"import lance_io\nassert lance_io.dataset({uri!r}).take([3, 7]).num_rows == 2")
    ours = sorted(name for name in loaded if name.partition(".")[0] == "lance_io")
    others = {
        *("lance_io.codecs.roaring", "lance_io.commit.pins", "lance_io.encodings.v2_2.constant"),
        *("lance_io.format.v0_1", "lance_io.plans.streams", "lance_io.reads.index", "lance_io.reads.keys"),
        *("lance_io.reads.rows.rebatch", "lance_io.table.manifest.row_ids", "lance_io.proto.encodings_pb2"),
    }
    assert loaded.isdisjoint(others), sorted(loaded & others)
    assert len(ours) <= FIRST_TAKE_MODULES, ours


def test_a_first_write_loads_nothing_of_cleanups_and_old_files(tmp_path: Path) -> None:
    write = f"lance_io.write_dataset(pa.table({{'a': [1, 2], 's': ['x', 'y']}}), {str(tmp_path / 't.lance')!r})"
    loaded = modules_after(f"import lance_io, pyarrow as pa\n{write}")
    others = {
        *(
            "lance_io.commit.cleanups.cleanup",
            "lance_io.changes.operations.convert",
            "lance_io.changes.operations.lance_operation",
        ),
        *("lance_io.changes.upkeep.remove_versions", "lance_io.table.transaction.garbage"),
        *("lance_io.encodings.v2_0.write_arrays", "lance_io.file.write.array_queues"),
        *("lance_io.file.write.batched_writer",),
    }
    assert "lance_io.changes.write.write_rows" in loaded
    assert loaded.isdisjoint(others), sorted(loaded & others)


ON_A_THREAD = """
import asyncio, os, sys, threading
import pyarrow as pa
import lance_io
from lance_io import AsyncDataset
from lance_io.file import AsyncFileReader, AsyncFileWriter
from lance_io.store.url import resolve_uri

importers = set()

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("aiobotocore", "aiohttp", "botocore") and name.find(".") > 0:
            importers.add(threading.current_thread().name)

sys.meta_path.insert(0, Watch())
os.environ.update(AWS_CONFIG_FILE="/nowhere", AWS_SHARED_CREDENTIALS_FILE="/nowhere", AWS_EC2_METADATA_DISABLED="true")
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
options = {"aws_endpoint": "http://127.0.0.1:9", "aws_region": "x", "allow_http": "true", "client_max_retries": "0"}

async def main():
    try:
        await OPENING
    except OSError as error:
        print("#", type(error).__name__)

asyncio.run(main())
try:
    lance_io.dataset("s3://bucket/t", storage_options=OPTIONS)
except OSError:
    pass
print("imported by", sorted({name.rpartition("_")[0] for name in importers}))
"""


def importers(opening: str, options: str, credentials: str = "/nowhere") -> str:
    """Who imports the client library in that program.

    credentials  the file of them
    """
    code = ON_A_THREAD.replace("OPENING", opening).replace("OPTIONS", options)
    code = code.replace('CREDENTIALS_FILE="/nowhere"', f"CREDENTIALS_FILE={credentials!r}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.partition("imported by ")[2].strip()


@pytest.mark.parametrize(
    "opening",
    [
        "AsyncDataset.open('s3://bucket/t', storage_options=OPTIONS)",
        "AsyncFileReader('s3://bucket/t', OPTIONS).open()",
    ],
)
def test_reading_from_s3_needs_no_client_library_where_the_keys_are_given(opening: str) -> None:
    assert importers(opening, "{**options, **keys}") == "[]"


@pytest.mark.parametrize("region", ["", "region = eu-west-3\n"])
def test_reading_from_s3_needs_no_client_library_where_a_profile_has_the_keys(tmp_path: Path, region: str) -> None:
    file, keys = tmp_path / "credentials", "aws_access_key_id = a\naws_secret_access_key = b\n"
    file.write_text(f"[default]\n{keys}{region}")
    opening = "AsyncDataset.open('s3://bucket/t', storage_options=OPTIONS)"
    options = "{name: value for name, value in options.items() if name != 'aws_region'}" if region else "options"
    assert importers(opening, options, str(file)) == "[]"
    file.write_text(f"[default]\n{keys}credential_process = false\n")
    assert importers(opening, options, str(file)) == "['lance_io-blocking']"


@pytest.mark.parametrize(
    ("opening", "options"),
    [
        ("AsyncDataset.open('s3://bucket/t', storage_options=OPTIONS)", "options"),
        ("AsyncDataset.open('s3://bucket/t', storage_options=OPTIONS)", "{**options, **keys, 's3_express': 'true'}"),
        ("AsyncFileReader('s3://bucket/t', OPTIONS).open()", "{**options, 's3_express': 'true'}"),
        ("resolve_uri('s3://bucket/t', OPTIONS).store.put('t', b'')", "{**options, **keys}"),
    ],
)
def test_the_client_library_of_s3_is_not_imported_on_a_loop(opening: str, options: str) -> None:
    assert importers(opening, options) == "['lance_io-blocking']"


def test_importing_the_package_loads_of_it_what_defines_its_function_alone() -> None:
    """Its errors and what finds other names are loaded by who needs them: the errors took half of the import."""
    loaded = {name for name in modules_after("import lance_io") if name.split(".")[0] == "lance_io"}
    assert loaded == {"lance_io", "lance_io.dataset", "lance_io.dataset.open_dataset"}
