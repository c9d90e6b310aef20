"""Opening segments of vector indices, and reading their partitions; both are kept in the session's cache of indices."""

from __future__ import annotations

from concurrent.futures import CancelledError
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lance_io.errors import FormatError, LanceError, NotFound, UnsupportedError
from lance_io.file.file_requests import ReadFiles
from lance_io.file.open.batched_file import AloneOfFirstVersion
from lance_io.file.take.side_file import SideFile
from lance_io.index.vector.ivf import (
    INDEX_FILE,
    LAYOUT,
    ROWS_FILE,
    FileHead,
    Ivf,
    codebook_number,
    open_ivf,
)
from lance_io.io.cache import CacheHit, ClaimAbandoned, LoadOwner
from lance_io.limits import MIB
from lance_io.plans.plan import Together, Wait
from lance_io.reads.index.index_files import buffer_number, file_ref, folder_key, run_together
from lance_io.reads.rows.deletions_and_ids import load_cached
from lance_io.reads.version.index_errors import INDEX_ERRORS, in_index
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.file_source import FileRef
    from lance_io.index.vector.ivf import Partition
    from lance_io.index.vector.vector_details import VectorDetails
    from lance_io.io.cache import Key
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.table_indices import IndexPart
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.version.state import DatasetState

GROUP_BYTES: Final = 64 * MIB  # of partitions that are read at once; more is read in groups, so that memory is bounded
INDEXED_PAGES_MAX: Final = 16  # of a file whose indexes are loaded before it is known which are wanted: a request each
WITHOUT: Final = "use_index=False compares all vectors"  # in errors


@dataclass(frozen=True, slots=True)
class Unread:
    """A segment that this release cannot search, why, and the key of the file that says so."""

    reason: str
    path: str


class Piece(NamedTuple):
    """Rows of a partition.

    part       number of the segment
    partition  number of the partition in it
    first, end rows of the partition
    """

    part: int
    partition: int
    first: int
    end: int


def open_vector_segments(
    state: DatasetState, index: VectorIndex, dim: int, item: pa.DataType
) -> Plan[list[Ivf | Unread]]:
    """The segments of an index, from the cache or opened together.

    dim, item  of the column's vectors
    Raises `FormatError` naming index and file.
    """
    cache = state.session.index_cache
    keys = segment_keys(state, index, dim, item)
    opened: list[Ivf | Unread] = yield Together(
        [
            load_cached(cache, key, partial(_open, state, index, part, dim, item))
            for key, part in zip(keys, index.parts, strict=True)
        ]
    )
    return opened


def segment_keys(state: DatasetState, index: VectorIndex, dim: int, item: pa.DataType) -> list[Key]:
    """Keys of the segments of an index in the cache."""
    return [("vectors", *folder_key(state, part), dim, item) for part in index.parts]


def _open(
    state: DatasetState, index: VectorIndex, part: IndexPart[VectorDetails], dim: int, item: pa.DataType
) -> Plan[tuple[Ivf | Unread, int]]:
    refs = [file_ref(state, part, name) for name in (INDEX_FILE, ROWS_FILE)]
    try:
        opening = [(ref, SideFile.open(state.context, ref.key, ref.size_bytes)) for ref in refs]
        files: list[SideFile] = yield ReadFiles(state.context, run_together(opening))
        buffers = [(ref, file, number) for ref, file in zip(refs, files, strict=True) for number in _buffers(file)]
        steps: list[tuple[FileRef, FileSteps[Any]]] = [(ref, file.read_buffer(number)) for ref, file, number in buffers]
        steps.append((refs[1], files[1].load_indexes([*files[1].types], INDEXED_PAGES_MAX)))
        layout, rows_layout, *codebook, _ = yield ReadFiles(state.context, run_together(steps))
        head, rows = (
            FileHead(file.num_rows, file.types, file.metadata, buffer)
            for file, buffer in zip(files, (layout, rows_layout), strict=True)
        )
        segment = open_ivf(head, rows, codebook[0] if codebook else None, part.details, dim, item)
    except UnsupportedError as error:
        return Unread(error.message, error.path or refs[0].key), 256
    except INDEX_ERRORS as error:
        if isinstance(error, NotFound) and (yield from _is_of_first_form(state, refs[0])):
            return Unread("it is one file of version 0.1, as in the first releases: build it again", refs[0].key), 256
        raise in_index(error, index.name, refs[0].key, WITHOUT) from error
    return segment, segment.nbytes


def _is_of_first_form(state: DatasetState, ref: FileRef) -> Plan[bool]:
    """Whether a segment without its second file is one file of version 0.1, as those of the first releases."""
    try:
        yield ReadFiles(state.context, run_together([(ref, SideFile.open(state.context, ref.key, ref.size_bytes))]))
    except AloneOfFirstVersion:
        return True
    except INDEX_ERRORS:
        return False
    return False


def _buffers(file: SideFile) -> list[int]:
    """The global buffers of a file to keep: partitions, and the codebook if it has one."""
    layout = buffer_number(file, LAYOUT)
    if layout is None:
        raise FormatError(f"{LAYOUT}: expected the number of a global buffer, there is none", path=file.key)
    try:
        codebook = codebook_number(file.types, file.metadata)
    except FormatError as error:
        error.path = error.path or file.key
        raise
    return [layout] if codebook is None else [layout, codebook]


# -- partitions ------------------------------------------------------------------------------------------------------


def pieces_of(segment: Ivf, part: int, partitions: Sequence[int], group_bytes: int = GROUP_BYTES) -> list[Piece]:
    """Partitions as pieces that are read by themselves: one each, unless it is large."""
    lengths: list[int] = segment.lengths[[*partitions]].tolist()
    step = max(1, group_bytes // segment.row_bytes)
    if max(lengths, default=0) <= step or not segment.can_cut:
        return [Piece(part, partition, 0, length) for partition, length in zip(partitions, lengths, strict=True)]
    return [
        Piece(part, partition, first, min(first + step, length))
        for partition, length in zip(partitions, lengths, strict=True)
        for first in range(0, length, step)
    ]


def groups_of(segments: Sequence[Ivf], pieces: Sequence[Piece], group_bytes: int = GROUP_BYTES) -> list[list[Piece]]:
    """Pieces in groups that are read at once."""
    row_bytes = [segment.row_bytes for segment in segments]
    sizes = [(piece.end - piece.first) * row_bytes[piece.part] for piece in pieces]
    if sum(sizes) <= group_bytes:
        return [[*pieces]] if pieces else []
    groups: list[list[Piece]] = []
    num_bytes = 0
    for piece, its_bytes in zip(pieces, sizes, strict=True):
        if not groups or num_bytes + its_bytes > group_bytes:
            groups.append([])
            num_bytes = 0
        groups[-1].append(piece)
        num_bytes += its_bytes
    return groups


def read_pieces(
    state: DatasetState, index: VectorIndex, segments: Sequence[Ivf], pieces: Sequence[Piece]
) -> Plan[list[Partition]]:
    """Some pieces, from the cache or in one round; concurrent searches share the reads of those that both want.

    Raises `FormatError` naming index and file.
    """
    cache = state.session.index_cache
    folders = [folder_key(state, part) for part in index.parts]
    keys = [("partition", *folders[piece.part], *piece[1:]) for piece in pieces]
    partitions: list[Any] = [None] * len(pieces)
    wanted: Sequence[int] = range(len(pieces))
    while wanted:
        owned: dict[int, LoadOwner] = {}
        awaited: dict[int, Future[Any]] = {}
        for at, claim in zip(wanted, cache.claim_many([keys[at] for at in wanted]), strict=True):
            if isinstance(claim, CacheHit):
                partitions[at] = claim.value
            elif isinstance(claim, LoadOwner):
                owned[at] = claim
            else:
                awaited[at] = claim.future
        if owned:
            read = yield from _read_owned(state, index, segments, pieces, owned)
            cache.fulfil_many([(owned[at], partition, partition.nbytes) for at, partition in read.items()])
            for at, partition in read.items():
                partitions[at] = partition
        abandoned = []
        for at, future in awaited.items():  # after our own reads, which others may await
            try:
                partitions[at] = yield Wait(future)
            except (ClaimAbandoned, CancelledError):
                abandoned.append(at)  # that search gave up
        wanted = abandoned
    return partitions


def read_apart(state: DatasetState, index: VectorIndex, segment: Ivf, pieces: Sequence[Piece]) -> Plan[list[Partition]]:
    """Pieces of the first segment of an index, ascending by their rows, which the cache neither has nor keeps.

    Raises `FormatError` naming index and file.
    """
    ref = file_ref(state, index.parts[0], ROWS_FILE)
    read: list[list[Partition]] = yield ReadFiles(
        state.context, run_together([(ref, _read(state, index, ref, segment, pieces))])
    )
    return read[0]


def _read_owned(
    state: DatasetState,
    index: VectorIndex,
    segments: Sequence[Ivf],
    pieces: Sequence[Piece],
    owned: Mapping[int, LoadOwner],
) -> Plan[dict[int, Partition]]:
    """The claimed pieces, in one round; a failure gives the claims up."""
    by_part: dict[int, list[int]] = {}
    for at in sorted(owned, key=lambda at: _first_row(segments, pieces[at])):
        by_part.setdefault(pieces[at].part, []).append(at)
    steps = []
    for part, ordered in by_part.items():
        ref = file_ref(state, index.parts[part], ROWS_FILE)
        steps.append((ref, _read(state, index, ref, segments[part], [pieces[at] for at in ordered])))
    try:
        read: list[list[Partition]] = yield ReadFiles(state.context, run_together(steps))
    except BaseException as error:
        for claim in owned.values():
            claim.abandon(error if isinstance(error, LanceError) else None)
        raise
    return {
        at: partition
        for ordered, its in zip(by_part.values(), read, strict=True)
        for at, partition in zip(ordered, its, strict=True)
    }


def _first_row(segments: Sequence[Ivf], piece: Piece) -> int:
    return int(segments[piece.part].offsets[piece.partition]) + piece.first


def _read(
    state: DatasetState, index: VectorIndex, ref: FileRef, segment: Ivf, pieces: Sequence[Piece]
) -> FileSteps[list[Partition]]:
    """Pieces of one file, ascending by their rows."""
    try:
        file = yield from SideFile.open(state.context, ref.key, ref.size_bytes)
        firsts = [int(segment.offsets[piece.partition]) for piece in pieces]
        ranges = [(first + piece.first, first + piece.end) for first, piece in zip(firsts, pieces, strict=True)]
        blocks = yield from file.read_ranges(segment.columns, ranges)
        return [segment.check_partition(*columns) for columns in blocks]
    except INDEX_ERRORS as error:
        raise in_index(error, index.name, ref.key, WITHOUT) from error
