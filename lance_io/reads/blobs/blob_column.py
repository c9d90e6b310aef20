"""Binary columns whose values are wanted as files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class BlobColumn:
    """A column of bytes in memory, whose values are given one by one as files.

    It is for values of moderate size that a library wants as files. Large ones lie better in a blob column, of which
    `LanceDataset.take_blobs` gives files that read what is asked of them.

    blob_column  array or chunked array of `binary` or `large_binary`; nulls are empty files, as in pylance
    Raises `UsageError` for anything else.
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
