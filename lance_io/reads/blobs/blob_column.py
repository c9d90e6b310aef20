"""Binary columns whose values are read as files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class BlobColumn:
    """A column of bytes in memory; iterating returns each value as a file (`io.BytesIO`).

    It suits values of moderate size for libraries that want files. Store large values in a blob column: the files of
    `LanceDataset.take_blobs` read only the requested bytes.

    Args:
        blob_column: Array or chunked array of `binary` or `large_binary`; nulls become empty files, as in pylance.

    Raises:
        UsageError: `blob_column` is anything else.
    """

    def __init__(self, blob_column: pa.Array | pa.ChunkedArray) -> None:
        given: Any = blob_column
        if not isinstance(given, pa.Array | pa.ChunkedArray):
            raise UsageError(f"Expected a pyarrow.Array or pyarrow.ChunkedArray, got {type(given)}")
        if not (pa.types.is_binary(given.type) or pa.types.is_large_binary(given.type)):
            raise UsageError(f"Expected a binary array, got {given.type}")
        self.blob_column = blob_column

    def __iter__(self) -> Iterator[io.BytesIO]:
        for value in self.blob_column:
            yield io.BytesIO(value.as_py() or b"")
