"""Compaction by copying encoded pages: nothing is decoded, only the offsets of buffers change.

    column metadata of a file --> pages, in the order of their bytes --some MiB at a time--> the new file

The new file has the pages of the old ones with their old sizes: scans still read as many pieces, but of fewer files.
A fragment must have a single data file with all columns of the table, in the version of the new files, no deleted rows
and no blobs, whose descriptions contain offsets in their own file. Structs of version 2.0 have one page in a file, with
their number: the writer creates it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.encodings.rounds import fetch
from lance_io.encodings.written import EncodedPage, PageBuffer, Role
from lance_io.errors import FormatError
from lance_io.file.file_requests import ReadFile
from lance_io.file.open.data_file import OpenedFile
from lance_io.file.open.open_file import open_cached
from lance_io.file.write.dictionary_limit import has_narrow_dictionaries
from lance_io.file.write.write_plan import file_plan
from lance_io.format.version import V0_1, V2_0
from lance_io.levels.path import NodeKind
from lance_io.proto import encodings21_pb2
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.changes.compaction.compaction_options import CompactionSettings
    from lance_io.changes.write.data_files import NewFiles
    from lance_io.file.file_steps import Tail
    from lance_io.file.open.file_source import FileRef
    from lance_io.file.write.file_bytes import FileWriter
    from lance_io.format.columns import PageInfo
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState

    PageAt = tuple[int, int, PageInfo]  # column, top-level row of the page's first row in the old file, page

_WIRE_TYPE_BITS: Final = 3
_DATA_BUFFERS: Final = {
    encodings21_pb2.PageLayout.MINI_BLOCK_LAYOUT_FIELD_NUMBER: (1,),
    encodings21_pb2.PageLayout.FULL_ZIP_LAYOUT_FIELD_NUMBER: (0,),
}
"""Buffers with rows, by the number of the layout; its other buffers are indices. In other layouts all have rows."""


def reason_not_to_copy(state: DatasetState, indexes: Sequence[int], version: FileVersion) -> str | None:
    """The reason why pages of some fragments cannot be copied into files of a version; None if they can."""
    if version == V0_1:
        return "files of version 0.1 have no pages"
    if state.schema.has_blobs:
        return "the table has blobs, whose descriptions contain offsets in the file"
    if has_narrow_dictionaries(state.schema):
        return "dictionaries with narrow indices need decoding, as a file must not exceed their number of values"
    field_ids = file_plan(state.schema, version).field_ids
    for index in indexes:
        fragment = state.manifest.fragments[index]
        where = f"fragment {fragment.id}"
        if state.has_deletions[index]:
            return f"{where} has deleted rows"
        if len(fragment.files) != 1:
            return f"{where} has {len(fragment.files)} data files"
        file = fragment.files[0]
        if file.version != version:
            return f"{where} has files of version {file.version.name}, new files have {version.name}"
        if file.fields != field_ids or file.column_indices != tuple(range(len(field_ids))):
            return f"{where} has other columns than the table, or in another order"
        if not file.size_bytes:
            return f"{where} lacks the size of its file"
    return None


def copy_pages_of(
    state: DatasetState, indexes: Sequence[int], files: NewFiles, options: CompactionSettings
) -> Plan[None]:
    """Copy all pages of some fragments, in order; a new file ends only at the end of an old one.

    Raises `FormatError` for a file whose columns have other numbers of rows than in the manifest.
    """
    for index in indexes:
        (ref,) = state.sources[index].files
        num_rows = int(state.physical_rows[index])
        yield from files.copy_pages(partial(_copy, state, ref, num_rows, options.binary_copy_read_batch_bytes))
    yield from files.complete_last_file()


def _copy(state: DatasetState, ref: FileRef, num_rows: int, bytes_at_once: int, writer: FileWriter) -> Plan[None]:
    file, tail = yield ReadFile(
        state.context, ref.key, open_cached(state.context, ref, [], is_whole=True), ref.size_bytes
    )
    if not isinstance(file, OpenedFile) or file.num_rows != num_rows:
        raise FormatError(f"the file has {file.num_rows} rows, the manifest says {num_rows}", path=ref.key)
    first_row = writer.num_rows
    pages = _pages(file)
    if file.version == V2_0:
        pages = _count_structs(file, pages, writer)
    for portion in _portions(pages, bytes_at_once):
        pieces = yield from _read(state, ref, [page for *_, page in portion], tail)
        for column, row, page in portion:
            roles = _roles(page, file.version)
            buffers = tuple([PageBuffer(role, (next(pieces),)) for role in roles])
            yield from writer.add_page(column, first_row + row, EncodedPage(page.num_rows, page.encoding, buffers))
    writer.end_pages(num_rows)


def _read(
    state: DatasetState, ref: FileRef, pages: Sequence[PageInfo], tail: Tail | None
) -> Plan[Iterator[memoryview]]:
    """The buffers of some pages, one after the other.

    tail  the end of the file, if it was just read
    """
    buffers = [each for page in pages for each in zip(page.buffer_offsets, page.buffer_sizes, strict=True)]
    if tail is not None and tail.start <= min((offset for offset, _ in buffers), default=0):
        view = memoryview(tail.buffer)
        return iter([view[offset - tail.start : offset - tail.start + size] for offset, size in buffers])
    starts = np.array([offset for offset, _ in buffers], dtype=np.int64)
    ranges = Ranges(starts, starts + np.array([size for _, size in buffers], dtype=np.int64), keep=True)
    fetched = yield ReadFile(state.context, ref.key, fetch(ranges), ref.size_bytes)
    return (fetched.piece(number, size) for number, (_, size) in enumerate(buffers))


def _pages(file: OpenedFile) -> list[PageAt]:
    """All pages of a file, column by column, in the order of their rows."""
    pages: list[PageAt] = []
    for column, (path, info) in enumerate(zip(file.paths, file.infos(), strict=True)):
        slots = path.slots_per_row
        if file.version != V2_0 and info.num_rows != file.num_rows * slots:
            raise FormatError(
                f"{info.num_rows // slots} rows in its pages; the file has {file.num_rows}",
                path=file.key,
                where=f"column {column}",
            )
        starts = info.row_starts.tolist()
        pages += [(column, start // slots, page) for start, page in zip(starts, info.pages, strict=False)]
    return pages


def _count_structs(file: OpenedFile, pages: list[PageAt], writer: FileWriter) -> list[PageAt]:
    """The pages with values of a file of version 2.0; the writer creates the page of each struct.

    Raises `FormatError` for a struct with another number of rows than the file.
    """
    counts = dict.fromkeys(writer.struct_columns, 0)
    for column, _, page in pages:
        if column in counts:
            counts[column] += page.num_rows
    for column, count in counts.items():
        is_below_list = any(node.kind is NodeKind.LIST for node in file.paths[column].nodes)
        if not is_below_list and count != file.num_rows:
            raise FormatError(
                f"{count} rows in its pages; the file has {file.num_rows}", path=file.key, where=f"column {column}"
            )
        writer.add_structs(column, count)
    return [page for page in pages if page[0] not in counts]


def _portions(pages: list[PageAt], num_bytes: int) -> Iterator[list[PageAt]]:
    """Pages that are read at once: about `num_bytes`, and at least one page."""
    portion: list[PageAt] = []
    held = 0
    for page_at in pages:
        if portion and held + page_at[2].data_bytes > num_bytes:
            yield portion
            portion, held = [], 0
        portion.append(page_at)
        held += page_at[2].data_bytes
    if portion:
        yield portion


def _roles(page: PageInfo, version: FileVersion) -> list[Role]:
    """The role of each buffer of a page. A layout is a field of its message; the number of the field comes first."""
    numbers = range(len(page.buffer_sizes))
    data: Sequence[int] = numbers
    if version != V2_0 and page.encoding:
        data = _DATA_BUFFERS.get(page.encoding[0] >> _WIRE_TYPE_BITS, numbers)
    return [Role.DATA if number in data else Role.INDEX for number in numbers]
