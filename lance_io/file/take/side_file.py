"""Rows and buffers of a Lance file beside the table's data files, such as an index file; steps of one file.

Unlike a take of fragments, a caller opens the file first and chooses rows afterwards, and the bytes that opening has
read serve the rows as well: a small file is one request.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io._kernels import PieceTooLargeError
from lance_io.encodings.api import ArrayLayout
from lance_io.encodings.decode_room import DecodeRoom
from lance_io.encodings.decoded_size import can_measure, decoded_bound, read_measured, scan_fetched
from lance_io.encodings.rounds import together
from lance_io.errors import FormatError, ResourceLimitError
from lance_io.file.file_steps import serve_from_tail, single_request
from lance_io.file.open.data_file import VIEWS_MAX
from lance_io.file.open.file_source import FileRef
from lance_io.file.open.leaf_projection import FileColumns, Projection
from lance_io.file.open.open_file import load_columns, open_cached
from lance_io.file.take.page_rows import every_page, load_indexes, locate_error, read_column
from lance_io.file.take.rows_ahead import RowsAhead, windows_of
from lance_io.file.take.take_files import FileTake
from lance_io.format.error_context import FILE_ERRORS
from lance_io.levels.join import join_arrays
from lance_io.levels.portable import copy_array
from lance_io.limits import KIB, MIB
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.encodings.api import PageIndex
    from lance_io.file.file_steps import FileSteps, Tail
    from lance_io.file.open.column_pages import Column
    from lance_io.file.open.data_file import OpenedFile
    from lance_io.file.open.file_source import ReadContext
    from lance_io.spans import Fetched, IntArray, Steps

DECODED_BYTES_MAX: Final = 1024 * MIB  # of rows that are read at once
ROW_BYTES_MIN: Final = 8  # of a row in memory, about
INDEX_BYTES_MAX: Final = 256 * KIB  # of a page index that is loaded before it is known that rows of the page are read
INDEXES_MAX: Final = 2  # of these outside the file's end: each is a request


class NamedColumns:
    """The columns of a file by name, and choices of them; kept with the opened file.

    fields  by name
    Raises `FormatError` for two columns with one field id.
    """

    def __init__(self, file: OpenedFile) -> None:
        self.fields = {field.name: field for field in file.descriptor.schema.fields}
        self._leaf_ids = tuple(path.leaf.id for path in file.paths)
        if len(set(self._leaf_ids)) != len(self._leaf_ids):
            raise FormatError("several columns of the file have one field id", path=file.key)
        self._key, self._size_bytes = file.key, file.size_bytes
        self._chosen: dict[tuple[str, ...], tuple[Projection, FileColumns]] = {}

    def choose(self, names: tuple[str, ...]) -> tuple[Projection, FileColumns]:
        """Some columns; the same objects as before, by which the file finds their pages. Raises `FormatError`."""
        chosen = self._chosen.get(names)
        if chosen is None:
            for name in names:
                if name not in self.fields:
                    raise FormatError(f"there is no column {name}", path=self._key)
            projection = Projection([self.fields[name] for name in names])
            ref = FileRef(self._key, self._size_bytes, self._leaf_ids, tuple(range(len(self._leaf_ids))))
            chosen = projection, FileColumns(ref, projection.leaf_columns(ref))
            if len(self._chosen) >= VIEWS_MAX:
                self._chosen.clear()
            self._chosen[names] = chosen
        return chosen


class SideFile:
    """An opened file.

    tail  its end, while the steps that opened it last
    """

    def __init__(self, context: ReadContext, file: OpenedFile, tail: Tail | None) -> None:
        self._context = context
        self._file = file
        self._tail = tail
        if file.named_columns is None:
            file.named_columns = NamedColumns(file)
        self._columns: NamedColumns = file.named_columns

    @classmethod
    def open(cls, context: ReadContext, key: str, size_bytes: int, *, is_searched: bool = False) -> FileSteps[SideFile]:
        """Open a file.

        size_bytes   0 if unknown
        is_searched  few of its rows will be read
        Raises `FormatError` or `UnsupportedError`.
        """
        file, tail = yield from open_cached(context, FileRef(key, size_bytes, (), ()), [], is_searched=is_searched)
        if not hasattr(file, "descriptor"):
            raise FormatError("a file of version 0.1, expected a later one", path=key)
        opened: OpenedFile = file  # type: ignore[assignment]
        return cls(context, opened, tail)

    @property
    def key(self) -> str:
        """Key of the file."""
        return self._file.key

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
        return {name: field.arrow_type for name, field in self._columns.fields.items()}

    def read(self, names: Sequence[str], rows: IntArray) -> FileSteps[list[pa.Array]]:
        """Some columns of some rows.

        rows  i64[n], ascending, each once
        Raises `FormatError` for an unknown column or row, `ResourceLimitError` for rows that decode to too many bytes.
        """
        file, cache = self._file, self._context.cache
        projection, columns = self._columns.choose(tuple(names))
        if missing := file.missing(columns.columns):
            yield from load_columns(file, missing)
        job = FileTake(columns, rows)
        job.begin(file, self._tail)
        job.indexes = cache.get_many([job.view.keys[page] for page in job.pages])
        windows = None
        if None in job.indexes:
            is_round_dear = self._context.store.profile.costs is not None
            windows = yield from job.load_indexes(cache, windows_of if is_round_dear else None)
        room = DecodeRoom(DECODED_BYTES_MAX)
        reads = together(
            [read_column(file, job.rows_of(at), self._tail, cache, room) for at in range(len(columns.columns))]
        )
        try:
            arrays = yield from (reads if windows is None else RowsAhead(*windows).serve(reads))
            return self._assemble(projection, columns, arrays, len(rows))
        except PieceTooLargeError as error:
            raise self._too_large(len(rows)) from error

    def read_ranges(self, names: Sequence[str], ranges: Sequence[tuple[int, int]]) -> FileSteps[list[list[pa.Array]]]:
        """Some columns of ranges of rows, each range in memory of its own, so that a cache may keep it alone.

        ranges  first row and end, ascending, without overlap
        Raises as `read`.
        """
        if any(not 0 <= first <= end <= self.num_rows for first, end in ranges):
            last = max(end for _, end in ranges)
            raise FormatError(f"rows to {last} wanted; the file has {self.num_rows}", path=self._file.key)
        rows = np.concatenate([np.arange(first, end, dtype=np.int64) for first, end in ranges])
        arrays = yield from self.read(names, rows)
        ends = np.cumsum([end - first for first, end in ranges]).tolist()
        return [[_own(array, start, end) for array in arrays] for start, end in pairwise([0, *ends])]

    def read_whole(self, names: Sequence[str], searched: Sequence[str] = ()) -> FileSteps[list[pa.Array]]:
        """All rows of some columns, in one round.

        searched  columns whose page indexes are loaded in the same round, for later reads of some rows
        Raises as `read`.
        """
        file, cache = self._file, self._context.cache
        if file.num_rows * ROW_BYTES_MIN > DECODED_BYTES_MAX:
            raise self._too_large(file.num_rows)
        projection, columns = self._columns.choose(tuple(names))
        _, others = self._columns.choose(tuple(searched))
        if missing := file.missing([*columns.columns, *others.columns]):
            yield from load_columns(file, missing)
        room = DecodeRoom(DECODED_BYTES_MAX)
        whole = [self._scan(column, room) for column in (file.view(columns).columns if names else ())]
        indexes = self._indexes_ahead(file.view(others).columns if searched else ())
        try:
            answers: list[Any] = yield from serve_from_tail(self._tail, together([*whole, *indexes]))
        except PieceTooLargeError as error:
            raise self._too_large(file.num_rows) from error
        for key, index in answers[len(whole) :]:
            cache.put(key, index, index.nbytes)
        return self._assemble(projection, columns, answers[: len(whole)], file.num_rows)

    def load_indexes(self, names: Sequence[str], num_pages_max: int) -> FileSteps[None]:
        """Load the page indexes of some columns, unless they have more pages: then reading rows is one round.

        Raises as `read`.
        """
        _, columns = self._columns.choose(tuple(names))
        if missing := self._file.missing(columns.columns):
            yield from load_columns(self._file, missing)
        wanted = every_page(self._file.view(columns))
        if sum(len(each.numbers) for each in wanted) <= num_pages_max:
            yield from load_indexes(self._context.cache, self._file, wanted, self._tail, is_ahead=True)

    def _assemble(
        self, projection: Projection, columns: FileColumns, arrays: Sequence[pa.Array], num_rows: int
    ) -> list[pa.Array]:
        leaves = dict(zip(columns.leaf_ids, arrays, strict=True))
        try:
            return [projection.assemble_field(number, leaves, num_rows) for number in range(len(projection.fields))]
        except FormatError as error:
            error.path = error.path or self._file.key
            raise

    def _too_large(self, num_rows: int) -> ResourceLimitError:
        text = f"{num_rows} rows decode to more than {DECODED_BYTES_MAX} bytes"
        return ResourceLimitError(text, path=self._file.key)

    def _scan(self, column: Column, room: DecodeRoom) -> Steps[pa.Array]:
        """All rows of a column. room: for these and those of other columns."""
        if not len(column.pages):
            return pa.array([], column.path.nodes[0].arrow_type)
        arrays = yield from together([self._scan_page(column, number, room) for number in range(len(column.pages))])
        return join_arrays(arrays)

    def _scan_page(self, column: Column, number: int, room: DecodeRoom) -> Steps[pa.Array]:
        page = column.pages[number]
        num_rows = int(column.row_starts[number + 1] - column.row_starts[number])
        num_slots = num_rows * column.path.slots_per_row
        try:
            bound = decoded_bound(page, num_slots, column.pages.num_bytes(number), usual=True)
            if bound is None and can_measure(page):
                measured = yield from read_measured(page, None, 0, num_slots, is_whole=True)
                room.use(measured.num_bytes)
                assert measured.whole is not None, "all of its bytes were read"
                array = scan_fetched(page, measured.whole)
            else:
                room.use(bound or 0)
                array = yield from page.scan()
        except FILE_ERRORS as error:
            raise locate_error(error, self._file, column, number) from error.__cause__
        if len(array) != num_rows:
            damage = FormatError(f"{len(array)} rows decoded; the page has {num_rows}")
            raise locate_error(damage, self._file, column, number)
        return array

    def _indexes_ahead(self, columns: Sequence[Column]) -> list[Steps[tuple[Any, PageIndex]]]:
        """Loads of the page indexes that the tail has, and of the others if they are so few that each may be wanted."""
        held: list[Steps[tuple[Any, PageIndex]]] = []
        others: list[Steps[tuple[Any, PageIndex]]] = []
        for column in columns:
            for number, page in enumerate(column.pages):
                ranges = None if isinstance(page, ArrayLayout) else page.index_ranges()
                if ranges is None or not len(ranges) or self._context.cache.get(column.keys[number]) is not None:
                    continue
                is_held = self._tail is not None and int(ranges.starts.min()) >= self._tail.start
                if is_held or ranges.num_bytes <= INDEX_BYTES_MAX:
                    (held if is_held else others).append(self._load_index(column, number, ranges))
        return [*held, *(others if len(others) <= INDEXES_MAX else ())]

    def _load_index(self, column: Column, number: int, ranges: Ranges) -> Steps[tuple[Any, PageIndex]]:
        """Key and index of a page."""
        fetched = yield ranges
        try:
            return column.keys[number], column.pages[number].load_index(fetched)
        except FILE_ERRORS as error:
            raise locate_error(error, self._file, column, number) from error.__cause__

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


def _own(array: pa.Array, start: int, end: int) -> pa.Array:
    return array if end - start == len(array) else copy_array(array.slice(start, end - start))
