"""Functions that compute new columns batch by batch, for `add_columns` and `merge_columns`."""

from __future__ import annotations

import os
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_io.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Callable


class BatchUDF:
    """A function of a record batch that gives the new columns of its rows, for `LanceDataset.add_columns`.

    func             gets a record batch, and gives a record batch or a pandas frame of as many rows
    output_schema    of what it gives; by default that of what it gives for a sample of one row
    checkpoint_file  where finished batches and fragments are kept, so that a call that failed, or whose process ended,
                     goes on where it was when it is made again; it may become as large as a data file. It is removed
                     when the columns are there. None for no such file
    """

    def __init__(
        self,
        func: Callable[[pa.RecordBatch], Any],
        output_schema: pa.Schema | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self.func = func
        self.output_schema = output_schema
        self.checkpoint_file = None if checkpoint_file is None else os.fspath(checkpoint_file)
        update_wrapper(self, func)

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """What the function itself gives."""
        return self.func(batch)

    def new_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The new columns of some rows, as a record batch.

        Raises `OperationError` for an error of the function, and for what is no record batch of `output_schema` with
        one row for each row of `batch`.
        """
        found = self._called(batch)
        if self.output_schema is not None and found.schema != self.output_schema:
            raise OperationError(
                "Output schema of function does not match the expected schema. Expected:\n"
                f"{self.output_schema}\nGot:\n{found.schema}"
            )
        if found.num_rows != batch.num_rows:
            raise OperationError(
                "the new batch has different size with the source batch: the function was given "
                f"{batch.num_rows} rows and gave {found.num_rows}"
            )
        return found

    def schema_for(self, sample: pa.RecordBatch) -> pa.Schema:
        """The schema of what the function gives for a sample, of however many rows: it may give ready columns.

        Raises `OperationError` for an error of the function, and for what is no record batch.
        """
        return self._called(sample).schema

    def _called(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            found = self.func(batch)
        except Exception as error:
            raise OperationError(f"{type(error).__name__}: {error}") from error
        return _as_batch(found, self.output_schema)


def batch_udf(
    output_schema: pa.Schema | None = None, checkpoint_file: str | os.PathLike[str] | None = None
) -> Callable[[Callable[[pa.RecordBatch], Any]], BatchUDF]:
    """A decorator that makes a `BatchUDF` of a function; parameters as there."""

    def wrap(func: Callable[[pa.RecordBatch], Any]) -> BatchUDF:
        return BatchUDF(func, output_schema, checkpoint_file)

    return wrap


def _as_batch(found: Any, schema: pa.Schema | None) -> pa.RecordBatch:
    if isinstance(found, pa.RecordBatch):
        return found
    if type(found).__module__.split(".")[0] == "pandas" and hasattr(found, "columns"):
        try:
            return pa.RecordBatch.from_pandas(found, schema=schema, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError) as error:
            raise OperationError(f"the frame that the function gave has no Arrow form: {error}") from error
    raise OperationError(
        f"the function has to give a record batch or a pandas frame of the new columns, got {type(found).__name__}"
    )
