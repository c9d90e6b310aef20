"""Write small tables with earlier releases of pylance, each in an environment of its own.

    python scripts/release_tables.py FOLDER                    the releases of the compatibility page
    python scripts/release_tables.py FOLDER 0.30.0 12.0.0      these

Needs `uv` and a package index. Makes `FOLDER/<release>.zip`: a table for each file version that the release writes,
with two files, an append and a deletion, and beside each the rows that the release itself reads. The repository has
them below `tests/interop/releases/`; `scripts/compatibility.py` reads them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

RELEASES = ("0.30.0", "1.0.1", "4.0.0", "6.0.0", "12.0.0")
VERSIONS = ("legacy", "2.0", "2.1", "2.2")
ZIP_TIME = (2000, 1, 1, 0, 0, 0)  # the same content gives the same file
IN_ENVIRONMENT = "--in-environment"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("releases", nargs="*", default=RELEASES)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for release in arguments.releases:
        with tempfile.TemporaryDirectory() as scratch:
            tables = write_with(release, Path(scratch))
            pack(tables, arguments.folder / f"{release}.zip")


def write_with(release: str, scratch: Path) -> Path:
    """Let a release write its tables; returns their folder."""
    environment, tables = scratch / "environment", scratch / "tables"
    tables.mkdir()
    python = environment / "bin" / "python"
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, environment], check=True)
    subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, f"pylance=={release}"], check=True)
    subprocess.run([python, __file__, IN_ENVIRONMENT, tables], check=True, cwd=scratch, env={"PATH": "/usr/bin:/bin"})
    return tables


def pack(folder: Path, target: Path) -> None:
    """All files below a folder, in the order of their names."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                name = zipfile.ZipInfo(path.relative_to(folder).as_posix(), ZIP_TIME)
                name.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(name, path.read_bytes())
    print(target, target.stat().st_size, "bytes")


# -- in the environment of a release, which has only pylance and its dependencies --------------------------------------


def write_tables(folder: Path) -> None:
    """Tables of all versions, with the columns that the release reads back as it wrote them."""
    import lance

    for version in VERSIONS:
        first = rows(0, 40, version)
        names = [name for name in first.column_names if is_kept(first.select([name]), version)]
        left_out = [name for name in first.column_names if name not in names]
        print(f"pylance {lance.__version__}, {version}: {len(names)} columns, without {left_out}")
        if not names:
            continue
        uri = str(folder / version)
        write(first.select(names), uri, version)
        lance.write_dataset(rows(40, 50, version).select(names), uri, mode="append")
        lance.dataset(uri).delete("id % 7 = 3")
        write_expected(lance.dataset(uri).to_table(), folder / f"{version}.arrow")


def write(table: Any, uri: str, version: str) -> None:
    import lance

    lance.write_dataset(table, uri, max_rows_per_file=30, max_rows_per_group=16, data_storage_version=version)


def is_kept(table: Any, version: str) -> bool:
    """Whether the release reads a column back; early writers of a version end in panics of all kinds."""
    import lance

    with tempfile.TemporaryDirectory() as scratch:
        try:
            write(table, f"{scratch}/t", version)
            return bool(lance.dataset(f"{scratch}/t").to_table().to_pydict() == table.to_pydict())
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            return False


def rows(start: int, end: int, version: str) -> Any:
    """Rows of ordinary types; for files of 0.1 only texts have nulls, the others cannot."""
    import pyarrow as pa

    has_nulls = version != "legacy"
    numbers = range(start, end)
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "small": pa.array([i % 100 for i in numbers], pa.int8()),
        "real": pa.array([None if has_nulls and i % 5 == 2 else i / 4 for i in numbers], pa.float64()),
        "text": pa.array([None if i % 6 == 1 else f"text {i}" for i in numbers], pa.string()),
        "flag": pa.array([i % 3 == 0 for i in numbers], pa.bool_()),
        "at": pa.array([i * 1_000_000 for i in numbers], pa.timestamp("us")),
        "vector": pa.array([[i, i + 0.5, -i, 1] for i in numbers], pa.list_(pa.float32(), 4)),
        "list": pa.array([[i] * (i % 4) for i in numbers], pa.list_(pa.int32())),
        "pair": pa.array([{"x": i, "y": f"y{i}"} for i in numbers], pa.struct([("x", pa.int16()), ("y", pa.string())])),
        "word": pa.array([f"word {i % 5}" for i in numbers]).dictionary_encode(),
    }
    return pa.table(columns)


def write_expected(table: Any, path: Path) -> None:
    """Write the rows that the release reads, with plain values for dictionaries, whose order does not matter."""
    import pyarrow as pa

    if "word" in table.column_names:
        words = pa.array(table["word"].to_pylist(), pa.string())
        table = table.set_column(table.column_names.index("word"), "word", words)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


if __name__ == "__main__":
    if sys.argv[1:2] == [IN_ENVIRONMENT]:
        write_tables(Path(sys.argv[2]))
    else:
        main()
