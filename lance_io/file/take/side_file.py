"""Rows and buffers of a Lance file beside the table's data files, such as an index file; steps of one file.

Unlike a take of fragments, a caller opens the file first and chooses rows afterwards, and the bytes that opening has
read serve the rows as well: a small file is one request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from lance_io._kernels import PieceTooLargeError
from lance_io.encodings.decode_room import DecodeRoom
from lance_io.encodings.rounds import together
from lance_io.encodings.v2_1.miniblock import MiniBlockPage
from lance_io.errors import FormatError, ResourceLimitError
from lance_io.file.file_steps import serve_from_tail, single_request
from lance_io.file.open.file_source import FileRef
from lance_io.file.open.leaf_projection import FileColumns, Projection
from lance_io.file.open.open_file import load_columns, open_cached
from lance_io.file.take.page_rows import every_page, keep_indexes, read_column
from lance_io.file.take.take_files import FileTake
from lance_io.limits import MIB
from lance_io.spans import Fetched, Ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lance_io.file.file_steps import FileSteps, Tail
    from lance_io.file.open.data_file import OpenedFile
    from lance_io.file.open.file_source import ReadContext
    from lance_io.spans import IntArray

AHEAD_BYTES_MAX = 4 * MIB  # of pages that are read whole, without waiting for their indexes
DECODED_BYTES_MAX = 1024 * MIB  # of rows that are read at once

_PADDING_BYTES = 64  # between buffers
T = TypeVar("T")


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
        side = cls(context, file, tail)  # type: ignore[arg-type]
        if tail is not None:
            yield from side._keep_indexes(tail)
        return side

    def _keep_indexes(self, tail: Tail) -> FileSteps[None]:
        """Keep the page indexes that came with the end: rows are wanted later, when the end is forgotten."""
        columns = self._columns(Projection([*self._fields.values()]))
        if not self._file.missing(columns.columns):
            yield from keep_indexes(self._context.cache, self._file, every_page(self._file.view(columns)), tail)

    def _columns(self, projection: Projection) -> FileColumns:
        """The stored columns of some fields."""
        ref = FileRef(self._file.key, self._file.size_bytes, self._leaf_ids, tuple(range(len(self._leaf_ids))))
        return FileColumns(ref, projection.leaf_columns(ref))

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

    def read(self, names: Sequence[str], rows: IntArray | None = None) -> FileSteps[list[pa.Array]]:
        """Some columns of some rows.

        rows  i64[n], ascending, each once; None for all
        Raises `FormatError` for an unknown column or row.
        """
        file = self._file
        for name in names:
            if name not in self._fields:
                raise FormatError(f"there is no column {name}", path=file.key)
        is_whole = rows is None
        if rows is None:
            rows = np.arange(file.num_rows, dtype=np.int64)
        fields = [self._fields[name] for name in names]
        projection = Projection(fields)
        columns = self._columns(projection)
        if missing := file.missing(columns.columns):
            yield from load_columns(file, missing)
        steps = self._read(columns, rows)
        arrays = yield from (self._read_ahead(columns, steps) if is_whole else steps)
        leaves = dict(zip(columns.leaf_ids, arrays, strict=True))
        return [projection.assemble_field(number, leaves, len(rows)) for number in range(len(fields))]

    def _read(self, columns: FileColumns, rows: IntArray) -> FileSteps[list[pa.Array]]:
        """The rows of each column."""
        file, cache = self._file, self._context.cache
        job = FileTake(columns, rows)
        job.begin(file, self._tail)
        job.indexes = cache.get_many([job.view.keys[page] for page in job.pages])
        if None in job.indexes:
            yield from job.load_indexes(cache)
        room = DecodeRoom(DECODED_BYTES_MAX)
        reads = [read_column(file, job.rows_of(at), self._tail, cache, room) for at in range(len(columns.columns))]
        try:
            return (yield from together(reads))
        except PieceTooLargeError as error:
            raise ResourceLimitError(
                f"{len(rows)} rows decode to more than {DECODED_BYTES_MAX} bytes", path=file.key
            ) from error
        except FormatError as error:
            error.path = error.path or file.key
            raise

    def _read_ahead(self, columns: FileColumns, steps: FileSteps[list[pa.Array]]) -> FileSteps[list[pa.Array]]:
        """The steps with the bytes of all pages at hand, if these are few: then no round waits for a page's index."""
        starts: list[int] = []
        ends: list[int] = []
        for column in self._file.view(columns).columns:
            for page in column.pages:
                if type(page) is MiniBlockPage:
                    starts += page.source.buffer_offsets
                    ends += [
                        start + size
                        for start, size in zip(page.source.buffer_offsets, page.source.buffer_sizes, strict=True)
                    ]
        held = _spans_before(np.array(starts, np.int64), np.array(ends, np.int64), self._tail)
        if not len(held) or held.num_bytes > AHEAD_BYTES_MAX:
            return (yield from steps)
        fetched: Fetched = yield held
        return (yield from _serve_held(held, fetched, steps))

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


def _spans_before(starts: IntArray, ends: IntArray, tail: Tail | None) -> Ranges:
    """The ranges that the tail lacks, neighbours joined."""
    outside = starts < ends if tail is None else (starts < ends) & (starts < tail.start)
    order = np.argsort(starts[outside], kind="stable")
    starts, ends = starts[outside][order], np.maximum.accumulate(ends[outside][order])
    if not len(starts):
        return Ranges(starts, ends)
    apart = np.flatnonzero(starts[1:] > ends[:-1] + _PADDING_BYTES) + 1
    return Ranges(starts[np.r_[0, apart]], ends[np.r_[apart - 1, len(ends) - 1]], keep=True)


def _serve_held(held: Ranges, fetched: Fetched, steps: FileSteps[T]) -> FileSteps[T]:
    """Answer ranges inside those that were fetched from them, and request the others."""
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, Ranges) and len(wanted):
                at = np.maximum(held.starts.searchsorted(wanted.starts, side="right") - 1, 0)
                if ((wanted.starts >= held.starts[at]) & (wanted.ends <= held.ends[at])).all():
                    inside = fetched.offsets[at] + wanted.starts - held.starts[at]
                    wanted = steps.send(Fetched(fetched.buffer, inside))
                    continue
            wanted = steps.send((yield wanted))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()
