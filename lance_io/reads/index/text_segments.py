"""Opening segments of full-text indices, and reading posting lists; both are kept in the session's cache of indices.

round 1   the tails of all files of all segments, as the index section names them
round 2   settings, token maps, documents; page indexes of the posting lists
round 3   posting lists of the query's tokens, of all partitions
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lance_io.errors import FormatError, NotFound, UnsupportedError
from lance_io.file.file_requests import ReadFiles
from lance_io.file.take.side_file import SideFile
from lance_io.index.text.scoring import CorpusStatistics
from lance_io.index.text.text_files import METADATA_FILE
from lance_io.index.text.text_parameters import UnknownTokenizer, parameters_of_json
from lance_io.index.text.text_partition import (
    DOCUMENT_COLUMNS,
    DOCUMENTS,
    FIRST_PARAMETERS,
    FIRST_TOKENS_FILE,
    LISTED_TOKENS,
    MAP,
    NUM_DOCUMENTS,
    POSTINGS,
    TOKENS,
    TextPartition,
    element_columns,
    partition_file,
    posting_form,
    read_counts,
    read_documents,
    read_elements,
    read_postings,
    read_settings,
    read_tokens,
)
from lance_io.limits import MIB
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.plan import Together
from lance_io.reads.index.index_counts import record_opened, record_parts
from lance_io.reads.index.index_files import file_ref, folder_key, run_together
from lance_io.reads.rows.deletions_and_ids import load_cached
from lance_io.reads.version.index_errors import INDEX_ERRORS, in_index
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io._kernels import TermPostings
    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.file_source import FileRef
    from lance_io.index.text.text_parameters import TextParameters
    from lance_io.index.text.text_partition import TextSettings
    from lance_io.io.cache import Key
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.table_indices import IndexPart
    from lance_io.reads.index.text_indices import TextIndex
    from lance_io.reads.version.state import DatasetState

INDEXED_PAGES_MAX: Final = 16  # of posting lists whose indexes are loaded before it is known which are wanted
WITHOUT: Final = "a search of a column without an index compares all texts"  # in errors
LOADED_BYTES: Final = 16 * MIB  # of posting lists that are read at once before an index is asked, about
_DOCUMENT_BYTES: Final = 8  # of a document in a posting list, at most: its number and its frequency
LOADED_TOKENS: Final = 4096  # whose posting lists are read at once before an index is asked
_FILLED_SHARE: Final = 0.75  # of the cache, then no more lists are loaded in advance
_COUNTS: Final = "counts"  # of the file of posting lists
_READ: Final = ((TOKENS, TOKENS), (DOCUMENTS, DOCUMENTS), (POSTINGS, POSTINGS), (POSTINGS, _COUNTS))
"""The files of a partition, and what is read of them when it is opened."""


@dataclass(frozen=True, slots=True, eq=False)
class TextSegment:
    """An opened segment: its settings and partitions."""

    settings: TextSettings
    partitions: tuple[TextPartition, ...]

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return 2048 + sum(partition.nbytes for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class UnreadText:
    """A segment that this release cannot search, and why.

    parameters  of its tokenizer; None if they are not known
    """

    reason: str
    parameters: TextParameters | None


def open_text_segments(state: DatasetState, index: TextIndex) -> Plan[list[TextSegment | UnreadText]]:
    """The segments of an index, from the cache or opened together. Raises `FormatError` naming index and file."""
    cache = state.session.index_cache
    keys = segment_keys([folder_key(state, part) for part in index.parts])
    opened: list[Any] = cache.get_many(keys)
    missing = [at for at, segment in enumerate(opened) if segment is None]
    record_opened(len(missing))
    if missing:
        loaded = yield Together[Any](
            [load_cached(cache, keys[at], partial(_open, state, index, index.parts[at])) for at in missing]
        )
        for at, segment in zip(missing, loaded, strict=True):
            opened[at] = segment
    return opened


def segment_keys(folders: Sequence[tuple[Any, ...]]) -> list[Key]:
    """Identify segments in the cache. folders: of them, as `folder_key` names them"""
    return [("texts", *folder) for folder in folders]


def _open(state: DatasetState, index: TextIndex, part: IndexPart[bytes]) -> Plan[tuple[TextSegment | UnreadText, int]]:
    ref = file_ref(state, part, METADATA_FILE)
    settings: TextSettings | None = None
    try:
        names = [name for name in part.sizes if name != METADATA_FILE]
        refs = {name: file_ref(state, part, name) for name in (METADATA_FILE, *names)}
        files = yield from _open_files(state, [*refs.values()])
        if files is None:
            return (yield from _open_first_form(state, part)), 1024
        settings = read_settings(files[0].metadata)
        steps = []
        for number, (kind, what) in product(settings.partitions, _READ):
            name = partition_file(number, kind)
            if names and name not in refs:
                raise FormatError(f"partition {number} has no file {name} in the index section", path=ref.key)
            its_ref = refs.setdefault(name, file_ref(state, part, name))
            steps.append((its_ref, _read_part(state, its_ref, what)))
        read: list[Any] = (yield ReadFiles(state.context, run_together(steps))) if steps else []
        firsts = range(0, len(read), len(_READ))
        partitions = [
            _partition(number, *read[first : first + len(_READ)])
            for number, first in zip(settings.partitions, firsts, strict=True)
        ]
        if any((partition.elements is None) == index.of_elements for partition in partitions):
            raise FormatError(f"documents are {'elements' if index.of_elements else 'rows'}, their files say otherwise")
    except UnknownTokenizer as error:  # other tokens would find other rows
        raise in_index(error, index.name, ref.key, WITHOUT) from error
    except UnsupportedError as error:
        return UnreadText(error.message, None if settings is None else settings.parameters), 1024
    except INDEX_ERRORS as error:
        raise in_index(error, index.name, ref.key, WITHOUT) from error
    segment = TextSegment(settings, tuple(partitions))
    return segment, segment.nbytes


def _open_files(state: DatasetState, refs: Sequence[FileRef]) -> Plan[list[SideFile] | None]:
    """Open files; None if the entry does not name them, and the only one is missing."""
    steps = [(ref, SideFile.open(state.context, ref.key, ref.size_bytes)) for ref in refs]
    try:
        return (yield ReadFiles[list[SideFile]](state.context, run_together(steps)))  # type: ignore[no-any-return]
    except NotFound:
        if len(refs) > 1 or refs[0].size_bytes:
            raise
        return None


def _open_first_form(state: DatasetState, part: IndexPart[bytes]) -> Plan[UnreadText]:
    """A segment of the first releases. Raises `NotFound` if it has no such file either, `FormatError`."""
    ref = file_ref(state, part, FIRST_TOKENS_FILE)
    files = yield from _open_files(state, [ref])
    if files is None:
        raise NotFound(f"{METADATA_FILE} is not there, nor is {FIRST_TOKENS_FILE}", path=ref.key)
    parameters = parameters_of_json(files[0].metadata.get(FIRST_PARAMETERS, "{}"), FIRST_TOKENS_FILE)
    return UnreadText("its files have no partitions, as those of the first releases", parameters)


def _read_part(state: DatasetState, ref: FileRef, what: str) -> FileSteps[Any]:
    """A part that a partition keeps of one of its files."""
    file = yield from SideFile.open(state.context, ref.key, ref.size_bytes)
    try:
        if what == TOKENS:
            names = [MAP] if MAP in file.types else [*LISTED_TOKENS]
            columns = yield from file.read_whole(names)
            return read_tokens(dict(zip(names, columns, strict=True)))
        if what == DOCUMENTS:
            more = element_columns(file.types)
            rows, lengths, *elements = yield from file.read_whole([*DOCUMENT_COLUMNS, *more])
            return *read_documents(rows, lengths), read_elements(elements)
        form = posting_form(file.types, file.metadata)
        if what == _COUNTS:
            return read_counts((yield from file.read_whole([NUM_DOCUMENTS]))[0])
        yield from file.load_indexes([*form.columns, *form.positions], INDEXED_PAGES_MAX)
        return form
    except (FormatError, UnsupportedError) as error:
        error.path = error.path or ref.key
        raise


def _partition(number: int, tokens: Any, documents: Any, form: Any, counts: Any) -> TextPartition:
    rows, lengths, elements = documents
    total = int(lengths.sum(dtype=np.uint64))
    return TextPartition(number, tokens, counts, rows, lengths, total, form, elements)


# -- opened indices ---------------------------------------------------------------------------------------------------


class PlacedPartition(NamedTuple):
    """A partition of an index.

    part       number of its segment
    number     among the partitions of the segment
    partition  without its posting lists
    """

    part: int
    number: int
    partition: TextPartition


@dataclass(frozen=True, slots=True, eq=False)
class OpenedText:
    """A full-text index that a search has opened.

    folders     of the segments, as `folder_key` names them
    partitions  of all segments
    statistics  of all documents, deleted ones included
    """

    index: TextIndex
    segments: tuple[TextSegment, ...]
    folders: tuple[tuple[Any, ...], ...]
    partitions: tuple[PlacedPartition, ...]
    statistics: CorpusStatistics

    @classmethod
    def of(
        cls, state: DatasetState, index: TextIndex, segments: Sequence[TextSegment], folders: Any = None
    ) -> OpenedText:
        """An index and its segments. folders: if they are known"""
        partitions = tuple(
            [
                PlacedPartition(part, number, partition)
                for part, segment in enumerate(segments)
                for number, partition in enumerate(segment.partitions)
            ]
        )
        statistics = CorpusStatistics(
            sum([len(each.partition.lengths) for each in partitions]),
            sum([each.partition.total for each in partitions]),
        )
        folders = tuple(folder_key(state, part) for part in index.parts) if folders is None else folders
        return cls(index, tuple(segments), folders, partitions, statistics)

    @property
    def has_positions(self) -> bool:
        """Whether all partitions know where tokens stand."""
        return all(each.partition.form.positions for each in self.partitions)

    def damage(self, state: DatasetState, at: int, error: Exception) -> Exception:
        """The error for damaged posting lists, naming index and file. at: number of the partition"""
        part, _, partition = self.partitions[at]
        ref = file_ref(state, self.index.parts[part], partition_file(partition.number, POSTINGS))
        damage: Exception = in_index(FormatError(str(error)), self.index.name, ref.key, WITHOUT)
        return damage


# -- posting lists ---------------------------------------------------------------------------------------------------


class TokenKey(NamedTuple):
    """A token of an index.

    at     number of the partition among those of the index
    token  number of the token in it
    """

    at: int
    token: int


def load_postings(
    state: DatasetState, opened: OpenedText, wanted: Sequence[TokenKey], *, has_positions: bool
) -> Plan[dict[TokenKey, TermPostings]]:
    """The posting lists of tokens, from the cache or in one round. Raises `FormatError` naming index and file."""
    cache = state.session.index_cache
    keys: dict[TokenKey, Any] = {}
    for each in wanted:
        part, _, partition = opened.partitions[each.at]
        keys[each] = ("postings", *opened.folders[part], partition.number, each.token, has_positions)
    known: dict[TokenKey, Any] = dict(zip(keys, cache.get_many([*keys.values()]), strict=True))
    missing: dict[int, list[TokenKey]] = {}
    if None in known.values():
        for each, postings in known.items():
            if postings is None:
                missing.setdefault(each.at, []).append(each)
    num_missing = sum(map(len, missing.values()))
    record_parts(len(known) - num_missing, num_missing)
    if missing:
        yield from _read_missing(state, opened, missing, known, has_positions=has_positions)
        for its in missing.values():
            for each in its:
                cache.put(keys[each], known[each], known[each].nbytes)
    return known


def load_all_postings(
    state: DatasetState, index: TextIndex, segments: Sequence[TextSegment | UnreadText]
) -> Plan[None]:
    """The posting lists of all tokens into the cache, without positions, as far as it has room."""
    cache = state.session.index_cache
    readable = [segment for segment in segments if isinstance(segment, TextSegment)]
    if len(readable) < len(segments):
        return
    opened = OpenedText.of(state, index, readable)
    for at, each in enumerate(opened.partitions):
        for first, end in _token_ranges(each.partition):
            if cache.stats.bytes > cache.capacity_bytes * _FILLED_SHARE:
                return
            tokens = [TokenKey(at, token) for token in range(first, end)]
            yield from load_postings(state, opened, tokens, has_positions=False)


def _token_ranges(partition: TextPartition) -> list[tuple[int, int]]:
    """The tokens of a partition in groups to read at once: first token and end of each."""
    ends = np.cumsum(partition.counts, dtype=np.int64) * _DOCUMENT_BYTES
    ranges, first, before = [], 0, 0
    while first < len(ends):
        end = int(np.searchsorted(ends, before + LOADED_BYTES, side="right"))
        end = min(max(end, first + 1), first + LOADED_TOKENS)
        ranges.append((first, end))
        first, before = end, int(ends[end - 1])
    return ranges


def _read_missing(
    state: DatasetState,
    opened: OpenedText,
    missing: Mapping[int, list[TokenKey]],
    known: dict[TokenKey, Any],
    *,
    has_positions: bool,
) -> Plan[None]:
    steps: list[tuple[FileRef, FileSteps[list[Any]]]] = []
    for at, its in missing.items():
        its.sort(key=lambda each: each.token)
        part, _, partition = opened.partitions[at]
        ref = file_ref(state, opened.index.parts[part], partition_file(partition.number, POSTINGS))
        form = partition.form
        names = (*form.columns, *(form.positions if has_positions else ()))
        rows = np.array([each.token for each in its], np.int64)
        steps.append((ref, _read_rows(state, opened.index, ref, names, rows)))
    read: list[Any] = yield ReadFiles(state.context, run_together(steps))
    for (at, its), columns in zip(missing.items(), read, strict=True):
        partition = opened.partitions[at].partition
        tokens = [each.token for each in its]
        decode = partial(read_postings, partition, tokens, columns, has_positions=has_positions)
        try:
            lists = yield Compute(decode, partial(_num_bytes, columns))
        except FormatError as error:
            raise opened.damage(state, at, error) from error
        known.update(zip(its, lists, strict=True))


def _num_bytes(columns: Sequence[Any]) -> int:
    return sum(column.nbytes for column in columns)


def _read_rows(
    state: DatasetState, index: TextIndex, ref: FileRef, names: Sequence[str], rows: Any
) -> FileSteps[list[Any]]:
    try:
        file = yield from SideFile.open(state.context, ref.key, ref.size_bytes)
        return (yield from file.read(names, rows))
    except INDEX_ERRORS as error:
        raise in_index(error, index.name, ref.key, WITHOUT) from error
