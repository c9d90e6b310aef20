"""The files of a new index segment as their builders describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

RowArray = npt.NDArray[np.uint64]
"""Row addresses or row ids."""

NO_METADATA: Mapping[str, str | bytes] = {}


@dataclass(frozen=True, slots=True, eq=False)
class NamedBuffer:
    """A global buffer that a text of the metadata names.

    data  of the buffer
    text  returns the text, from the number of the buffer
    """

    data: bytes
    text: Callable[[int], str]


BufferText = str | bytes | NamedBuffer
"""Schema metadata of a new file: text, or a global buffer whose number is the text, or is in it."""


@dataclass(frozen=True, slots=True, eq=False)
class NewIndexFile:
    """One file of a segment. Its batches are made while they are written, so that none waits in memory.

    name      file name in the folder of the segment
    schema    of its rows
    batches   its rows; the caller consumes them before it asks for `metadata`
    metadata  returns the schema metadata
    """

    name: str
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    metadata: Callable[[], Mapping[str, BufferText]]


class IndexBuilder(Protocol):
    """Builds one segment. Its functions compute and may spill to disk, so plans run them in a pool."""

    def add(self, values: pa.Array, rows: RowArray) -> None:
        """Take rows, in the order of the scan."""

    def files(self) -> Iterator[NewIndexFile]:
        """The files, one after the other: the caller consumes the batches of one before it takes the next."""

    def close(self) -> None:
        """Free memory and local disk."""


class RunStore(Protocol):
    """Keeps batches outside of memory; `lance_io.changes.join.spilled_batches` does."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""

    def get(self, number: int) -> pa.RecordBatch:
        """A batch, by its number."""

    def __len__(self) -> int: ...

    def close(self) -> None:
        """Free the space."""


def no_metadata() -> Mapping[str, Any]:
    """No schema metadata."""
    return NO_METADATA
