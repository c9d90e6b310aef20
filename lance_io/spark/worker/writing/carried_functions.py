"""A function of a Python program on its way to the tasks of `add_columns`, as the text of a procedure's argument.

The program serializes it as Spark does its own functions: by reference where its module can be imported by the workers
(`addPyFile` puts files on their path), else by value. Bytecode is that of one minor version of Python.
"""

from __future__ import annotations

import json
import pickle
import sys
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class CarriedFunction:
    """A function of record batches, which is loaded by its first call.

    pickled        the function
    python         version of Python that it needs, as "3.11"
    is_pandas      whether its argument is a pandas frame
    read_columns   columns of its argument; None for all
    output_schema  of its result; None to infer it
    batch_size     rows of its argument; None for the default
    """

    pickled: bytes
    python: str
    is_pandas: bool = False
    read_columns: tuple[str, ...] | None = None
    output_schema: pa.Schema | None = None
    batch_size: int | None = None

    @classmethod
    def of(
        cls,
        function: Callable[[Any], Any],
        *,
        is_pandas: bool,
        read_columns: Sequence[str] | None,
        output_schema: pa.Schema | None,
        batch_size: int | None,
    ) -> CarriedFunction:
        """Serialize a function. Raises `UsageError` for one that cannot be serialized."""
        serialize: Callable[[Any], bytes] = cloudpickle.dumps  # has no type hints
        try:
            pickled = serialize(function)
        except (TypeError, pickle.PicklingError, AttributeError) as error:
            raise UsageError(f"the function cannot be sent to the tasks: {error}") from error
        columns = None if read_columns is None else tuple(read_columns)
        return cls(pickled, python_version(), is_pandas, columns, output_schema, batch_size)

    def to_text(self) -> str:
        """The function as an argument of the procedure."""
        schema = self.output_schema
        return json.dumps(
            {
                "pickled": b64encode(self.pickled).decode(),
                "python": self.python,
                "is_pandas": self.is_pandas,
                "read_columns": self.read_columns,
                "output_schema": None if schema is None else b64encode(schema.serialize().to_pybytes()).decode(),
                "batch_size": self.batch_size,
            }
        )

    @classmethod
    def of_text(cls, text: str) -> CarriedFunction:
        """The inverse of `to_text`. Raises `UsageError` for any other text."""
        try:
            given = json.loads(text)
            columns, schema = given["read_columns"], given["output_schema"]
            return cls(
                b64decode(given["pickled"]),
                given["python"],
                given["is_pandas"],
                None if columns is None else tuple(columns),
                None if schema is None else pa.ipc.read_schema(pa.BufferReader(b64decode(schema))),
                given["batch_size"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError("function: expected a text from lance_io.spark.ops.add_columns") from error

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """Call the function. Raises `UsageError` in another version of Python."""
        if self.python != python_version():
            raise UsageError(
                f"the function was sent by Python {self.python}, the workers run {python_version()}: "
                "let the option python of the catalog name one of the same minor version"
            )
        function = _loaded(self.pickled)
        return function(batch.to_pandas()) if self.is_pandas else function(batch)


@lru_cache(maxsize=8)
def _loaded(pickled: bytes) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = pickle.loads(pickled)
    return function


def python_version() -> str:
    """The minor version of this Python."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"
