"""Opening segments: what they keep in memory, in the session's cache of indices; and reading blocks of their files.

A segment is known by the key of its folder, whose content never changes. All files of all segments that a call needs
are opened in one round; what each reads next is independent of the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import FormatError
from lance_io.file.file_requests import ReadFiles
from lance_io.file.open.batched_file import AloneOfFirstVersion
from lance_io.file.take.side_file import SideFile
from lance_io.index.details import Kind
from lance_io.index.questions import TableFile
from lance_io.index.rows.row_set import Answer, RowSet
from lance_io.index.scalar.kinds import READERS
from lance_io.limits import MIB
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.plan import Together
from lance_io.reads.index.index_counts import record_comparisons, record_opened, record_parts
from lance_io.reads.index.index_files import buffer_number, file_ref, folder_key, run_together
from lance_io.reads.rows.deletions_and_ids import load_cached
from lance_io.reads.version.index_errors import INDEX_ERRORS, in_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.file_source import FileRef
    from lance_io.index.details import IndexDetails, Space
    from lance_io.index.questions import Blocks, FileUse, Question, Search, Segment
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.table_indices import IndexPart, TableIndex
    from lance_io.reads.version.state import DatasetState

_BLOCK_BYTES: Final = 256  # of the entry of a block, besides its memory
_LOADED_TOGETHER: Final = 256  # pages or bitmaps of a round; a page takes about 64 KiB,
_LOADED_FIRST: Final = 8  # and a bitmap any number of bytes: the first ones say how many go together
_LOADED_BYTES: Final = 16 * MIB
_RUNS_OF_BYTE: Final = 4  # of a bitmap, at most

Part = tuple["TableIndex", "IndexPart[IndexDetails]"]


class UnreadSegment:
    """Stands for a segment whose files have version 0.1, as those of the first releases: it answers nothing."""

    nbytes = 0
    num_rows = 0

    def answers(self, question: Question) -> bool | None:
        """See `Segment`."""
        return None

    def blocks(self) -> Blocks | None:
        """See `Segment`."""
        return None

    def search(self, question: Question, *, needs_null: bool) -> Search:
        """See `Segment`; it is not asked."""
        raise NotImplementedError


def open_segments(state: DatasetState, parts: Sequence[Part]) -> Plan[list[Segment]]:
    """The segments, from the cache or opened together. Raises `FormatError` naming index and file."""
    keys = [("segment", *folder_key(state, part)) for _, part in parts]
    cached: list[Any] = state.session.index_cache.get_many(keys)
    missing = [at for at, segment in enumerate(cached) if segment is None]
    if missing:
        record_opened(len(missing))
        cache = state.session.index_cache
        opened: list[Any] = yield Together(
            [load_cached(cache, keys[at], partial(_open, state, *parts[at])) for at in missing]
        )
        for at, segment in zip(missing, opened, strict=True):
            cached[at] = segment
    return cached


def _open(state: DatasetState, index: TableIndex, part: IndexPart[IndexDetails]) -> Plan[tuple[Segment, int]]:
    reader = READERS[part.details.kind]
    refs = [file_ref(state, part, use.name) for use in reader.uses]
    try:
        files = yield ReadFiles(
            state.context,
            run_together([(ref, _open_file(state, ref, use)) for ref, use in zip(refs, reader.uses, strict=True)]),
        )
        dtype = None if part.details.json_path is not None else index.field.arrow_type
        named = {use.name: file for use, file in zip(reader.uses, files, strict=True)}
        segment = reader.open(named, dtype, part.details, part.space)
    except AloneOfFirstVersion:
        return UnreadSegment(), 1024
    except INDEX_ERRORS as error:
        raise in_index(error, index.name, refs[0].key) from error
    return segment, segment.nbytes


def _open_file(state: DatasetState, ref: FileRef, use: FileUse) -> FileSteps[TableFile]:
    file = yield from SideFile.open(state.context, ref.key, ref.size_bytes, is_searched=bool(use.searched))
    columns = yield from file.read_whole(use.columns, [name for name in use.searched if name in file.types])
    buffers = {}
    for key in use.buffers:
        number = buffer_number(file, key)
        if number is not None:
            buffers[key] = yield from file.read_buffer(number)
    return TableFile(file.num_rows, file.types, file.metadata, dict(zip(use.columns, columns, strict=True)), buffers)


def load_blocks(state: DatasetState, part: Part, segment: Segment, bytes_max: int) -> Plan[None]:
    """Read all that searches read of a segment's files into memory, up to this size of the cache of indices.

    Raises as `search_segments`.
    """
    whole, cache = segment.blocks(), state.session.index_cache
    if whole is None:
        return
    start, step = 0, _LOADED_TOGETHER if whole.prepare is not None else _LOADED_FIRST
    while start < len(whole.ranges) and (before := cache.stats.bytes) <= bytes_max:
        group = replace(whole, ranges=whole.ranges[start : start + step])
        yield from search_segments(state, [(part, _load(group, part[1].space))])
        start += step
        bytes_each = max(1, cache.stats.bytes - before) // step
        step = max(1, min(_LOADED_TOGETHER, _LOADED_BYTES // max(1, bytes_each)))


def _load(blocks: Blocks, space: Space) -> Search:
    yield blocks
    return Answer.at_most(RowSet.none(space))


# -- searches --------------------------------------------------------------------------------------------------------


class TooManyRows(Exception):
    """Searches would read more rows of index files, or decode more runs, than the caller allows.

    index  the index of which they would read the most
    """

    def __init__(self, index: TableIndex) -> None:
        super().__init__(index.name)
        self.index = index


def search_segments(
    state: DatasetState, searches: Sequence[tuple[Part, Search]], rows_max: int | None = None
) -> Plan[list[Answer]]:
    """Run searches; the blocks of all of them are read together.

    rows_max  bounds the rows of index files that the answers come from, and the runs that bitmaps decode to; None for
              no bound
    Raises as `open_segments`, and `TooManyRows`: before anything is read, for bitmaps before they are decoded.
    """
    answers: list[Any] = [None] * len(searches)
    sizes: Counter[TableIndex] = Counter()
    steps: list[tuple[FileRef, FileSteps[Any]]] = []
    positions: list[int] = []
    held: list[tuple[int, Search, list[Any]]] = []
    for at, ((index, part), search) in enumerate(searches):
        try:
            blocks = next(search)
            sizes[index] += sum(end - first for first, end in blocks.ranges)
            ref = file_ref(state, part, blocks.file)
            cached = _cached_blocks(state, ref, blocks)
            num_read = cached.count(None)
            record_parts(len(cached) - num_read, num_read)
            is_pages = part.details.kind is Kind.BTREE
            record_comparisons(sum(end - first for first, end in blocks.ranges) if is_pages else len(blocks.ranges))
            if None not in cached:
                _check_runs(index, blocks, cached, rows_max)
                held.append((at, search, cached))
                continue
        except StopIteration as done:
            answers[at] = done.value
            continue
        except FormatError as error:
            file = READERS[part.details.kind].uses[0].name
            raise in_index(error, index.name, file_ref(state, part, file).key) from error
        steps.append((ref, _search_steps(state, ref, index, search, blocks, cached, rows_max)))
        positions.append(at)
    if rows_max is not None and sizes.total() > rows_max:
        raise TooManyRows(max(sizes, key=lambda index: sizes[index]))
    for at, search, cached in held:
        answers[at] = yield from _finish_held(state, searches[at][0], search, cached)
    if steps:
        read: list[Any] = yield ReadFiles(state.context, run_together(steps))
        for at, answer in zip(positions, read, strict=True):
            answers[at] = answer
    return answers


def _check_runs(index: TableIndex, blocks: Blocks, read: list[Any], rows_max: int | None) -> None:
    """Raise `TooManyRows` if what was read decodes to more runs."""
    if rows_max is None or blocks.weigh is None or _RUNS_OF_BYTE * sum(map(_block_bytes, read)) <= rows_max:
        return
    weights = [*map(blocks.weigh, read)]
    if (sum(weights) if blocks.needs_all else min(weights)) > rows_max:
        raise TooManyRows(index)


def _finish_held(state: DatasetState, part: Part, search: Search, blocks: list[Any]) -> Plan[Answer]:
    """The answer by blocks in memory, which may be many: then not on a loop."""
    try:
        answer: Answer = yield Compute(partial(_finish, search, blocks), lambda: sum(map(_block_bytes, blocks)))
    except FormatError as error:
        index, segment = part
        file = READERS[segment.details.kind].uses[0].name
        raise in_index(error, index.name, file_ref(state, segment, file).key) from error
    return answer


def _block_bytes(block: Any) -> int:
    """Memory of a block: its columns, or the value that a search has made of them."""
    num_bytes: int = sum([array.nbytes for array in block]) if isinstance(block, list) else block.nbytes
    return num_bytes


def _finish(search: Search, blocks: list[Any]) -> Answer:
    try:
        search.send(blocks)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    raise AssertionError("a search reads once")


def _block_keys(state: DatasetState, ref: FileRef, blocks: Blocks) -> list[tuple[Any, ...]]:
    identity = state.context.store.identity
    return [("block", identity, ref.key, blocks.columns, first, end) for first, end in blocks.ranges]


def _cached_blocks(state: DatasetState, ref: FileRef, blocks: Blocks) -> list[Any]:
    return state.session.index_cache.get_many(_block_keys(state, ref, blocks))


def _search_steps(
    state: DatasetState,
    ref: FileRef,
    index: TableIndex,
    search: Search,
    blocks: Blocks,
    cached: list[Any],
    rows_max: int | None,
) -> FileSteps[Answer]:
    try:
        missing = [at for at, block in enumerate(cached) if block is None]
        file = yield from SideFile.open(state.context, ref.key, ref.size_bytes)
        read = yield from file.read_ranges(blocks.columns, [blocks.ranges[at] for at in missing])
        keys = _block_keys(state, ref, blocks)
        for at, columns in zip(missing, read, strict=True):
            block: Any = columns if blocks.prepare is None else blocks.prepare(blocks.ranges[at][0], columns)
            cached[at] = block
            state.session.index_cache.put(keys[at], block, _BLOCK_BYTES + _block_bytes(block))
        _check_runs(index, blocks, cached, rows_max)
        return _finish(search, cached)
    except INDEX_ERRORS as error:
        raise in_index(error, index.name, ref.key) from error
