"""Rows and buffers of a Lance file beside the table's data files, such as an index file; steps of one file.

Unlike a take of fragments, a caller opens the file first and chooses rows afterwards, and the bytes that opening has
read serve the rows as well: a small file is one request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_io._kernels import PieceTooLargeError
from lance_io.encodings.decode_room import DecodeRoom
from lance_io.encodings.rounds import together
from lance_io.errors import FormatError, ResourceLimitError
from lance_io.file.file_steps import serve_from_tail, single_request
from lance_io.file.open.file_source import FileRef
from lance_io.file.open.leaf_projection import FileColumns, Projection
from lance_io.file.open.open_file import load_columns, open_cached
from lance_io.file.take.page_rows import every_page, load_indexes, read_column
from lance_io.file.take.take_files import FileTake
from lance_io.limits import MIB
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lance_io.file.file_steps import FileSteps, Tail
    from lance_io.file.open.data_file import OpenedFile
    from lance_io.file.open.file_source import ReadContext
    from lance_io.spans import Fetched, IntArray

DECODED_BYTES_MAX = 1024 * MIB  # of rows that are read at once


class SideFile:
    """An opened file.

    tail  its end, while the steps that opened it last
    """

    def __init__(self, context: ReadContext, file: OpenedFile, tail: Tail | None) -> None:
        self._context = context
        self._file = file
        self._tail = tail
        self._fields = {field.name: field for field in file.descriptor.schema.fields}
        self._leaf_ids = tuple(path.leaf.id for path in file.paths)
        if len(set(self._leaf_ids)) != len(self._leaf_ids):
            raise FormatError("several columns of the file have one field id", path=file.key)

    @classmethod
    def open(cls, context: ReadContext, key: str, size_bytes: int) -> FileSteps[SideFile]:
        """Open a file. size_bytes: 0 if unknown. Raises `FormatError` or `UnsupportedError`."""
        file, tail = yield from open_cached(context, FileRef(key, size_bytes, (), ()), [])
        if not hasattr(file, "descriptor"):
            raise FormatError("a file of version 0.1, expected a later one", path=key)
        opened: OpenedFile = file  # type: ignore[assignment]
        return cls(context, opened, tail)

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return self._file.num_rows

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of its schema that is text."""
        return {name: value.decode("utf-8", "replace") for name, value in self._file.descriptor.schema.metadata.items()}

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """Types of its columns."""
        return {name: field.arrow_type for name, field in self._fields.items()}

    def forget_tail(self) -> None:
        """Drop the bytes of the file's end."""
        self._tail = None

    def load_indexes(self, names: Sequence[str], num_pages_max: int) -> FileSteps[None]:
        """Load the page indexes of some columns, unless they have more pages: then reading rows is one round.

        Raises as `read`.
        """
        _, columns = yield from self._find(names)
        wanted = every_page(self._file.view(columns, keep=False))
        if sum(len(each.numbers) for each in wanted) > num_pages_max:
            return
        yield from load_indexes(self._context.cache, self._file, wanted, self._tail, is_ahead=True)

    def _find(self, names: Sequence[str]) -> FileSteps[tuple[Projection, FileColumns]]:
        """The stored columns of some columns."""
        file = self._file
        for name in names:
            if name not in self._fields:
                raise FormatError(f"there is no column {name}", path=file.key)
        projection = Projection([self._fields[name] for name in names])
        ref = FileRef(file.key, file.size_bytes, self._leaf_ids, tuple(range(len(self._leaf_ids))))
        columns = FileColumns(ref, projection.leaf_columns(ref))
        if missing := file.missing(columns.columns):
            yield from load_columns(file, missing)
        return projection, columns

    def read(self, names: Sequence[str], rows: IntArray | None = None) -> FileSteps[list[pa.Array]]:
        """Some columns of some rows.

        rows  i64[n], ascending, each once; None for all
        Raises `FormatError` for an unknown column or row.
        """
        file, cache = self._file, self._context.cache
        if rows is None:
            rows = np.arange(file.num_rows, dtype=np.int64)
        projection, columns = yield from self._find(names)
        job = FileTake(columns, rows)
        job.begin(file, self._tail)
        job.indexes = cache.get_many([job.view.keys[page] for page in job.pages])
        if None in job.indexes:
            yield from job.load_indexes(cache)
        room = DecodeRoom(DECODED_BYTES_MAX)
        reads = [read_column(file, job.rows_of(at), self._tail, cache, room) for at in range(len(columns.columns))]
        try:
            arrays = yield from together(reads)
            leaves = dict(zip(columns.leaf_ids, arrays, strict=True))
            return [projection.assemble_field(number, leaves, len(rows)) for number in range(len(names))]
        except PieceTooLargeError as error:
            raise ResourceLimitError(
                f"{len(rows)} rows decode to more than {DECODED_BYTES_MAX} bytes", path=file.key
            ) from error
        except FormatError as error:
            error.path = error.path or file.key
            raise

    def read_buffer(self, number: int) -> FileSteps[bytes]:
        """A global buffer. Raises `FormatError` if there is none with this number."""
        table = self._file.global_buffers
        if not 0 <= number < len(table.positions):
            raise FormatError(
                f"global buffer {number} wanted; the file has {len(table.positions)}", path=self._file.key
            )
        start, size = int(table.positions[number]), int(table.sizes[number])
        request = single_request(Ranges.of((start, start + size), purpose="metadata"))
        fetched: Fetched = yield from serve_from_tail(self._tail, request)  # type: ignore[arg-type]
        return bytes(fetched.piece(0, size))
