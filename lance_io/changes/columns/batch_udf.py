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
    """A function that computes new columns of a record batch, for `LanceDataset.add_columns`.

    Args:
        func: Takes a record batch and returns a record batch or a pandas frame with the same number of rows.
        output_schema: Schema of the result. By default it is inferred from the result for a sample of one row.
        checkpoint_file: Path of a local file that stores finished batches and fragments. If the call fails or its
            process ends, another call with the same file resumes from there. The file may become as large as a data
            file and is removed after the commit. None for no file.
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
        """Call the function itself.

        Args:
            batch: Its argument.

        Returns:
            Its result.
        """
        return self.func(batch)

    def new_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Call the function and check its result.

        Args:
            batch: Rows of the table.

        Returns:
            The new columns of the rows.

        Raises:
            OSError: The function failed, or its result is no record batch of `output_schema` with one row for each row
                of `batch`.
        """
        new = self._called(batch)
        if self.output_schema is not None and new.schema != self.output_schema:
            raise OperationError(
                "Output schema of function does not match the expected schema. Expected:\n"
                f"{self.output_schema}\nGot:\n{new.schema}"
            )
        if new.num_rows != batch.num_rows:
            raise OperationError(
                "the new batch has different size with the source batch: the function got "
                f"{batch.num_rows} rows and returned {new.num_rows}"
            )
        return new

    def schema_for(self, sample: pa.RecordBatch) -> pa.Schema:
        """Infer the schema of the result from a sample; the numbers of rows may differ.

        Args:
            sample: Rows of the table.

        Returns:
            The schema of the result.

        Raises:
            OSError: The function failed, or its result is no record batch.
        """
        return self._called(sample).schema

    def _called(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            result = self.func(batch)
        except Exception as error:
            raise OperationError(f"{type(error).__name__}: {error}") from error
        return _as_batch(result, self.output_schema)


def batch_udf(
    output_schema: pa.Schema | None = None, checkpoint_file: str | os.PathLike[str] | None = None
) -> Callable[[Callable[[pa.RecordBatch], Any]], BatchUDF]:
    """A decorator that makes a `BatchUDF` of a function. See `BatchUDF`.

    Args:
        output_schema: Schema of the result, None to infer it.
        checkpoint_file: Path of a local file from which an interrupted call resumes, None for no file.

    Returns:
        The decorator.
    """

    def wrap(func: Callable[[pa.RecordBatch], Any]) -> BatchUDF:
        return BatchUDF(func, output_schema, checkpoint_file)

    return wrap


def _as_batch(result: Any, schema: pa.Schema | None) -> pa.RecordBatch:
    if isinstance(result, pa.RecordBatch):
        return result
    if type(result).__module__.split(".")[0] == "pandas" and hasattr(result, "columns"):
        try:
            return pa.RecordBatch.from_pandas(result, schema=schema, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError) as error:
            raise OperationError(f"cannot convert the pandas frame of the function to Arrow: {error}") from error
    raise OperationError(
        f"the function must return a record batch or a pandas frame of the new columns, got {type(result).__name__}"
    )
