"""Local files of other formats as rows: `write_dataset("rows.csv", uri)`, or a `pathlib.Path`.

A string needs one of the `ENDINGS` and names a local file; any other string is refused, never opened by guess. A path
may have any name: its first bytes identify the format. pyarrow reads the files, batch by batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lance_io.errors import NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

ENDINGS: Final = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_MAGIC: Final = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_KNOWN: Final = "CSV (.csv, .csv.gz), Parquet (.parquet) or Arrow (.arrow, .feather, .ipc)"


def open_file(
    name: str | PathLike[str], schema: pa.Schema | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch], int | None]:
    """The schema of a file, its batches, and the number of rows if the format stores it.

    name    a string with one of the `ENDINGS`, or a path
    schema  types of the columns of a CSV file, by name

    Raises `UsageError` for any other string and for a file in none of the formats, `NotFound` for a missing file,
    `pyarrow.ArrowInvalid` for a damaged one.
    """
    ending = next((kind for end, kind in ENDINGS.items() if str(name).lower().endswith(end)), None)
    if isinstance(name, str) and (ending is None or "://" in name):
        raise UsageError(
            "expected rows (a table, a data frame, a reader, a dataset, batches ...) or the name of a local file "
            f"in {_KNOWN}, found the text {name[:200]!r}, which is not opened by guess. Give "
            "lance_io.dataset(...) for a table; open anything else with pyarrow or polars"
        )
    path = Path(name)
    if path.is_dir():
        raise UsageError(
            f"expected a file in {_KNOWN}, found the folder {path}. Give lance_io.dataset(...) for a table, "
            "pyarrow.dataset.dataset(...) for a folder of files"
        )
    if not path.exists():
        raise NotFound(f"file not found: {path}", path=str(path))
    kind = ending or _kind_by_content(path)
    if kind == "csv":
        return _open_csv(path, schema)
    return _open_parquet(path) if kind == "parquet" else _open_arrow(path)


def _kind_by_content(path: Path) -> str:
    with path.open("rb") as file:
        first = file.read(6)
    kind = next((kind for magic, kind in _MAGIC.items() if first.startswith(magic)), None)
    if kind is None:
        raise UsageError(f"expected a file in {_KNOWN}, found {path}, whose name and first bytes are of none of these")
    return kind


def _open_csv(path: Path, schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch], None]:
    from pyarrow import csv

    types = {} if schema is None else dict(zip(schema.names, schema.types, strict=True))
    reader = csv.open_csv(path, convert_options=csv.ConvertOptions(column_types=types))
    return reader.schema, iter(reader), None


def _open_parquet(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch], int]:
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    return file.schema_arrow, file.iter_batches(), file.metadata.num_rows


def _open_arrow(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch], None]:
    source: Any = pa.OSFile(str(path))
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    if not is_file:  # a stream has no footer that lists its batches
        reader = pa.ipc.open_stream(source)
        return reader.schema, iter(reader), None
    file = pa.ipc.open_file(source)
    return file.schema, (file.get_batch(number) for number in range(file.num_record_batches)), None
