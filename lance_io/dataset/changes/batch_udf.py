"""Functions that compute new columns batch by batch, and the file in which they keep what they have computed.

    @batch_udf(output_schema=pa.schema([("length", pa.int64())]), checkpoint_file="lengths.sqlite")
    def lengths(batch):
        return pa.record_batch([pc.utf8_length(batch["text"])], ["length"])

A checkpoint is a database of SQLite with the tables that pylance has: results of batches, and whole fragments whose
data files are written. Results are Arrow IPC streams here, where pylance pickles them: what is read from a file must
not run code. Once it is bound to what it was made for, another use of it is refused: pylance commits what it kept
even where rows have been deleted since.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from lance_io.dataset.write.input_data import rows_of
from lance_io.errors import FormatError, OperationError, SchemaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    from lance_io.dataset.fragment import LanceFragment
    from lance_io.dataset.lance_dataset import LanceDataset

_TABLES: Final = """
    CREATE TABLE IF NOT EXISTS batches (
        fragment_id INT, batch_index INT, result BLOB, PRIMARY KEY (fragment_id, batch_index)
    );
    CREATE TABLE IF NOT EXISTS fragments (fragment_id INT PRIMARY KEY, data BLOB);
    CREATE TABLE IF NOT EXISTS made_for (facts TEXT);
"""
_WAIT_S: Final = 30.0  # for others that have the file open


class BatchInfo(NamedTuple):
    """Which batch of a table: the id of its fragment, and its number in there."""

    fragment_id: int
    batch_index: int


class BatchUDFCheckpoint:
    """What a function has computed so far, in a file. Any thread, any process.

    path  of the file, which is made if it is not there
    Raises `ValueError` for a file that is no checkpoint of this library.
    """

    BatchInfo: TypeAlias = BatchInfo

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        try:
            with closing(self._open()) as database:
                known = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if known and "made_for" not in known:
                    raise FormatError("a file of something else, expected a checkpoint of lance_io", path=str(path))
                database.executescript(_TABLES)
        except sqlite3.DatabaseError as error:
            raise FormatError(f"expected a checkpoint, a database of SQLite: {error}", path=str(path)) from error

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=_WAIT_S)

    def _ask(self, text: str, *values: Any) -> Any:
        with closing(self._open()) as database, database:
            found = database.execute(text, values).fetchone()
        return None if found is None else found[0]

    def bind(self, facts: str) -> None:
        """Say what the results are of: the same text when they are used again.

        facts  names the table's version, its files and the columns that are read
        Raises `ValueError` when they are of something else; delete the file to start over.
        """
        with closing(self._open()) as database, database:
            found = database.execute("SELECT facts FROM made_for").fetchone()
            if found is None:
                database.execute("INSERT INTO made_for VALUES (?)", [facts])
        if found is not None and found[0] != facts:
            raise OperationError(
                f"{self.path} holds results of another state of the table, or of other columns: the table has changed "
                "since. Delete the file to compute all batches anew"
            )

    def get_batch(self, info: tuple[int, int]) -> pa.RecordBatch | None:
        """The result of a batch, or None."""
        data = self._ask("SELECT result FROM batches WHERE fragment_id = ? AND batch_index = ?", *info)
        if data is None:
            return None
        try:
            return pa.ipc.open_stream(data).read_next_batch()
        except (pa.ArrowInvalid, StopIteration, OSError) as error:
            raise FormatError(f"expected an Arrow IPC stream as the result of {info}", path=str(self.path)) from error

    def insert_batch(self, info: tuple[int, int], batch: pa.RecordBatch) -> None:
        """Keep the result of a batch; it is on disk then."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        self._ask("INSERT OR REPLACE INTO batches VALUES (?, ?, ?)", *info, sink.getvalue().to_pybytes())

    def get_fragment(self, fragment_id: int) -> str | None:
        """A fragment that is complete, as JSON text, or None."""
        found = self._ask("SELECT data FROM fragments WHERE fragment_id = ?", fragment_id)
        return None if found is None else str(found)

    def insert_fragment(self, fragment_id: int, fragment: str) -> None:
        """Keep a fragment that is complete; the results of its batches are no longer needed."""
        with closing(self._open()) as database, database:
            database.execute("INSERT OR REPLACE INTO fragments VALUES (?, ?)", [fragment_id, fragment])
            database.execute("DELETE FROM batches WHERE fragment_id = ?", [fragment_id])

    def cleanup(self) -> None:
        """Remove the file: the columns are in the table."""
        self.path.unlink(missing_ok=True)


class BatchUDF:
    """A function of record batches, for `LanceDataset.add_columns`; see `batch_udf`.

    func             gives a record batch, or a frame of pandas, with as many rows as it gets
    output_schema    of what it gives; None asks the function, with a row of the table
    checkpoint_file  keeps what it has given
    """

    def __init__(
        self,
        func: Callable[[pa.RecordBatch], Any],
        output_schema: pa.Schema | None = None,
        checkpoint_file: str | PathLike[str] | None = None,
    ) -> None:
        self.func = func
        self.output_schema = output_schema
        self.cache = None if checkpoint_file is None else BatchUDFCheckpoint(checkpoint_file)
        update_wrapper(self, func)

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """What the function gives, as it gives it."""
        return self.func(batch)

    def _call(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What it gives, checked against `output_schema`."""
        if self.output_schema is None:
            raise UsageError("output_schema must be provided when using a function that returns a RecordBatch")
        given = as_record_batch(self.func(batch))
        if given.schema != self.output_schema:
            raise SchemaError(
                "Output schema of function does not match the expected schema. Expected:\n"
                f"{self.output_schema}\nGot:\n{given.schema}"
            )
        return given


def as_record_batch(given: Any) -> pa.RecordBatch:
    """What a function gave, a record batch or a frame of pandas. Raises `TypeError` for anything else."""
    if isinstance(given, pa.RecordBatch):
        return given
    if type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns"):
        return pa.RecordBatch.from_pandas(given, preserve_index=False)
    raise TypeError(f"a function of batches gives a record batch or a pandas DataFrame, not {type(given).__name__}")


def batch_udf(
    output_schema: pa.Schema | None = None, checkpoint_file: str | PathLike[str] | None = None
) -> Callable[[Callable[[pa.RecordBatch], Any]], BatchUDF]:
    """Decorate a function of record batches that computes new columns of a table.

    output_schema    of the new columns; None has the function called once more, with a row of the table
    checkpoint_file  where results are kept, so that a run that was interrupted goes on where it ended
    """

    def decorate(func: Callable[[pa.RecordBatch], Any]) -> BatchUDF:
        return BatchUDF(func, output_schema, checkpoint_file)

    return decorate


def normalize_transform(
    udf_like: Any,
    data_source: LanceDataset | LanceFragment,
    read_columns: Sequence[str] | None = None,
    reader_schema: pa.Schema | None = None,
) -> dict[str, str] | BatchUDF | pa.RecordBatchReader:
    """What `add_columns` takes, in one of three forms: expressions by name, a function with its schema, or a reader.

    data_source    whose rows a function without a schema is asked with
    read_columns   that the function gets; None for all. A table without rows gives it a batch without rows
    reader_schema  of an iterable of record batches

    Raises `TypeError` for anything else, `ValueError` for batches without a schema.
    """
    if isinstance(udf_like, dict) and all(isinstance(name, str) for name in udf_like):
        wrong = next((value for value in udf_like.values() if not isinstance(value, str)), None)
        if wrong is not None:
            raise TypeError(f"Column expressions must be a string. Got {type(wrong)}")
        return udf_like
    if callable(udf_like):
        udf = udf_like if isinstance(udf_like, BatchUDF) else BatchUDF(udf_like)
        if udf.output_schema is None:
            sample = _one_row(data_source, read_columns)
            try:
                udf.output_schema = as_record_batch(udf.func(sample)).schema
            except Exception as error:
                if udf is udf_like:
                    raise
                raise TypeError(
                    "transforms must be a BatchUDF, dict, map function, or ReaderLike value. "
                    f"Received {type(udf_like)}, which failed when it was called with a batch of one row: {error}"
                ) from error
        return udf
    try:
        rows = rows_of(udf_like, reader_schema)
    except TypeError as error:
        raise TypeError(
            "transforms must be a BatchUDF, dict, map function, or ReaderLike value. "
            f"Received {type(udf_like)}. Could not coerce to a reader: {error}"
        ) from error
    return pa.RecordBatchReader.from_batches(rows.schema, rows.batches)


def _one_row(source: LanceDataset | LanceFragment, read_columns: Sequence[str] | None) -> pa.RecordBatch:
    columns = None if read_columns is None else list(read_columns)
    table = source.scanner(columns=columns, limit=1).to_table().combine_chunks()
    batches: Iterator[pa.RecordBatch] = iter(table.to_batches())
    return next(batches, None) or pa.RecordBatch.from_pylist([], schema=table.schema)
