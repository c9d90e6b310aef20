"""Opening a data file: footer, schema and column metadata.

    round 1   the end of the file, `first_read_bytes` of it: footer and offset tables, in most files everything
    round 2   the part of schema and column metadata before the tail, in one read; only schema and column table if few
              columns of a very wide file are wanted
    round 3   in a very wide file, the metadata of the projected columns

Our writer puts the page indexes, with which takes locate rows, right before the metadata. On stores with latency,
rounds 1 and 2 read them along if the file likely comes from our writer; otherwise a longer read would be of no use.

The size comes from the manifest, so no HEAD is needed. Specification: file container, section 1.4.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import FormatError
from lance_io.file.file_steps import FetchedSuffix, FileSteps, Suffix, Tail, Wait
from lance_io.file.open.data_file import FileSchema, OpenedFile
from lance_io.file.open.file_source import DEAD
from lance_io.format.columns import decode_column_table
from lance_io.format.ending import decode_ending
from lance_io.format.footer import FOOTER_BYTES, Footer, OffsetTable, decode_footer
from lance_io.format.globals import (
    decode_file_descriptor,
    decode_globals_table,
    schema_of_descriptor,
    split_descriptor,
)
from lance_io.format.recent_values import RecentValues
from lance_io.format.schema_messages import find_flat_schema
from lance_io.format.version import V0_1, check_readable
from lance_io.io.cache import CacheHit, LoadOwner
from lance_io.lazy_names import lazy_module
from lance_io.limits import KIB, MIB, VALUE_BYTES_MAX
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.open import batched_file
    from lance_io.file.open.file_source import FileRef, ReadContext
    from lance_io.file.open.projected_pages import TableFile
    from lance_io.format.v0_1 import batch_table
    from lance_io.format.version import FileVersion
    from lance_io.spans import Fetched
    from lance_io.store.profile import StoreProfile
else:
    batch_table = lazy_module("lance_io.format.v0_1.batch_table")
    batched_file = lazy_module("lance_io.file.open.batched_file")  # imports the readers of 0.1, which few tables need

PROBED_SHARE: Final = 256  # of a large file's size
SEARCHED_TAIL_BYTES: Final = 4 * KIB  # on local disk, of a file of few columns
INDEXES_TO_METADATA: Final = 4  # page indexes take less than a few times the metadata of the same pages
WIDE_METADATA_BYTES: Final = 1 * MIB  # above this, reading only the projected columns' metadata is worth a round

SHARED_SCHEMA_BYTES_MAX: Final = 64 * KIB  # schemas of descriptors up to this size are cached for further files
SHARED_SCHEMAS_MAX: Final = 64
LARGE_SCHEMA_BYTES_MAX: Final = 4 * MIB  # of descriptors up to this size, only the few most recent are cached
LARGE_SCHEMAS_MAX: Final = 4


def known_files(context: ReadContext, refs: Sequence[FileRef]) -> list[TableFile | None]:
    """The cached files, looked up under one lock; None on a cache miss, which `open_cached` resolves."""
    if context.value_bytes_max != VALUE_BYTES_MAX:
        return context.cache.get_many([_cache_key(context, ref) for ref in refs])
    identity = context.store.identity
    return context.cache.get_many(
        [
            ("file", identity, ref.key, ref.size_bytes) if ref.size_bytes else _cache_key(context, ref)  # fast path
            for ref in refs
        ]
    )


def _cache_key(context: ReadContext, ref: FileRef) -> tuple[object, ...]:
    """Cache key of an opened file.

    Reading a file of version 0.1, for which manifests have no size, also depends on which of its columns are dead.
    """
    key: tuple[object, ...] = ("file", context.store.identity, ref.key, ref.size_bytes)
    if context.value_bytes_max != VALUE_BYTES_MAX:
        key = (*key, context.value_bytes_max)
    return (*key, ref.field_ids) if not ref.size_bytes and DEAD in ref.field_ids else key


def open_cached(
    context: ReadContext, ref: FileRef, columns: Sequence[int], *, is_whole: bool = False, is_searched: bool = False
) -> FileSteps[tuple[TableFile, Tail | None]]:
    """The opened file, from the cache or by reading it; with the tail if this call has read it.

    columns      indices of the columns whose metadata is needed
    is_whole     all rows of all columns will be read
    is_searched  the file has few columns, of which few rows will be read
    Raises FormatError or UnsupportedError.
    """
    key = _cache_key(context, ref)
    tail: Tail | None = None
    file: TableFile | None = None
    while file is None:
        claim = context.cache.claim(key)
        if isinstance(claim, CacheHit):
            file = claim.value
        elif isinstance(claim, LoadOwner):
            try:
                file, tail = yield from _open(context, ref, columns, is_whole, is_searched)
            except Exception as error:
                claim.abandon(error)
                raise
            claim.fulfil(file, file.nbytes)
        else:
            yield Wait(claim.future)
    if isinstance(file, OpenedFile) and (missing := file.missing(list(columns))):
        yield from load_columns(file, missing)
    return file, tail


def open_standalone(context: ReadContext, ref: FileRef) -> FileSteps[OpenedFile]:
    """Open a file without a table. Raises as `open_cached`, and `UnsupportedError` for version 0.1."""
    file, _ = yield from open_cached(context, ref, [])
    assert isinstance(file, OpenedFile), "other versions need field ids to open"
    return file


def open_ending(
    identity: tuple[str, str, int], data: Any, start: int, value_bytes_max: int = VALUE_BYTES_MAX
) -> tuple[OpenedFile, bytes] | None:
    """Open a file from its end; returns it with its encoded schema. None if `data` lacks any metadata.

    data             the file from byte `start` on
    value_bytes_max  limit of the decoded bytes of a value
    Raises FormatError or UnsupportedError.
    """
    ending = decode_ending(data, start, identity[2])
    if ending is None:
        return None
    shared = _shared_schema(ending.descriptor, ending.footer.version, value_bytes_max)
    return OpenedFile(identity, ending.footer, shared, ending.num_rows, ending.messages), ending.descriptor


def _open(
    context: ReadContext, ref: FileRef, columns: Sequence[int], is_whole: bool, is_searched: bool
) -> FileSteps[tuple[TableFile, Tail]]:
    try:
        tail, file_bytes = yield from _read_tail(context, ref, is_whole, is_searched)
        identity = context.store.identity, ref.key, file_bytes
        opened = open_ending(identity, tail.buffer, tail.start, context.value_bytes_max)
        if opened is not None:
            return opened[0], tail
        if batch_table.version_at_end(tail.buffer) == V0_1:
            return (yield from batched_file.open_batched(identity, ref, tail))
        return (yield from _parse(context, identity, tail, file_bytes, columns))
    except FormatError as error:
        error.path = ref.key
        raise


def _read_tail(context: ReadContext, ref: FileRef, is_whole: bool, is_searched: bool) -> FileSteps[tuple[Tail, int]]:
    if ref.size_bytes == 0:
        profile = context.store.profile
        reads_whole = is_whole or not _has_latency(profile)
        length = max(profile.tail_bytes, profile.whole_file_bytes) if reads_whole else profile.tail_bytes
        answer: FetchedSuffix = yield Suffix(length)
        view = memoryview(answer.buffer).cast("B")
        return Tail(answer.file_bytes - len(view), view), answer.file_bytes
    size = ref.size_bytes
    length = first_read_bytes(context, size, is_whole=is_whole)
    if is_searched and not _has_latency(context.store.profile):
        length = min(length, SEARCHED_TAIL_BYTES)
    fetched: Fetched = yield Ranges.of((size - length, size), purpose="metadata", keep=True)
    return Tail(size - length, fetched.piece(0, length)), size


def first_read_bytes(context: ReadContext, file_bytes: int, *, is_whole: bool = False) -> int:
    """Length of the first read at the end of a file of this size.

    Page indexes, which our writer puts right before the metadata, grow with the file: at most about a 256th of it.
    """
    profile = context.store.profile
    brings_indexes = _reads_indexes_early(context)
    if file_bytes <= profile.whole_file_bytes and (is_whole or brings_indexes or not _has_latency(profile)):
        return file_bytes
    length = max(profile.tail_bytes, file_bytes // PROBED_SHARE) if brings_indexes else profile.tail_bytes
    return min(length, max(profile.tail_bytes, profile.tail_bytes_max), file_bytes)


def _has_latency(profile: StoreProfile) -> bool:
    """Whether one more request costs more than a longer read."""
    return profile.tail_bytes_max > profile.tail_bytes


def _reads_indexes_early(context: ReadContext) -> bool:
    """Whether to extend reads of the end to the page indexes."""
    return context.has_indexes_at_end and _has_latency(context.store.profile)


def _parse(
    context: ReadContext, identity: tuple[str, str, int], tail: Tail, file_bytes: int, columns: Sequence[int]
) -> FileSteps[tuple[OpenedFile, Tail]]:
    limit = context.value_bytes_max
    footer = decode_footer(tail.buffer, file_bytes=file_bytes)
    check_readable(footer.version)
    if footer.globals_table_at < tail.start:
        tail = yield from _extend_tail(tail, min(footer.column_table_at, footer.columns_at))
    globals_table = decode_globals_table(_slice(tail, footer.globals_table_at, file_bytes), footer)
    schema_at = int(globals_table.positions[0])
    metadata_at = min(schema_at, footer.columns_at)
    is_part = 2 * len(columns) < footer.num_columns
    if is_part and tail.start - metadata_at > WIDE_METADATA_BYTES:
        wide = yield from _open_wide(identity, tail, footer, globals_table, columns, limit)
        if wide is not None:
            return wide, tail
    if metadata_at < tail.start:
        tail = yield from _extend_tail(tail, metadata_at - _index_bytes(context, metadata_at, file_bytes))
    schema, num_rows = _parse_descriptor(
        _slice(tail, schema_at, schema_at + int(globals_table.sizes[0])), footer.version, limit
    )
    table = decode_column_table(_slice(tail, footer.column_table_at, footer.globals_table_at), footer)
    messages = bytes(_slice(tail, footer.columns_at, file_bytes - FOOTER_BYTES))
    return OpenedFile(identity, footer, schema, num_rows, messages, (table, globals_table)), tail


def _index_bytes(context: ReadContext, metadata_at: int, file_bytes: int) -> int:
    """Bytes before the metadata to read along with it: about as many as page indexes may take."""
    if not _reads_indexes_early(context):
        return 0
    return min(INDEXES_TO_METADATA * (file_bytes - metadata_at), context.store.profile.tail_bytes_max, metadata_at)


def _open_wide(
    identity: tuple[str, str, int],
    tail: Tail,
    footer: Footer,
    globals_table: OffsetTable,
    columns: Sequence[int],
    value_bytes_max: int,
) -> FileSteps[OpenedFile | None]:
    """None for a file whose column hierarchy needs all of its metadata."""
    described = int(globals_table.positions[0]), int(globals_table.positions[0] + globals_table.sizes[0])
    table_at, table_end = footer.column_table_at, footer.globals_table_at
    held_at = min(max(table_at, tail.start), table_end)  # the tail holds the column table from here on
    fetched: Fetched = yield Ranges.of(described, (table_at, held_at), purpose="metadata")
    schema, num_rows = _parse_descriptor(fetched.piece(0, described[1] - described[0]), footer.version, value_bytes_max)
    held = _slice(tail, held_at, table_end) if held_at < table_end else b""
    table = decode_column_table(b"".join((fetched.piece(1, held_at - table_at), held)), footer)
    if schema.tree is not None and footer.num_columns != len(schema.paths):
        return None
    file = OpenedFile(identity, footer, schema, num_rows, None, (table, globals_table))
    yield from load_columns(file, list(columns))
    return file


def _parse_descriptor(data: memoryview, version: FileVersion, value_bytes_max: int) -> tuple[FileSchema, int]:
    """Schema and number of rows of a file descriptor. Most files of a table have the same schema, byte by byte."""
    parts = split_descriptor(data)
    if parts is not None:
        return _shared_schema(parts[0], version, value_bytes_max), parts[1]
    descriptor = decode_file_descriptor(data)
    return FileSchema.of(descriptor.schema, version, value_bytes_max), descriptor.num_rows


def _shared_schema(descriptor: bytes, version: FileVersion, value_bytes_max: int) -> FileSchema:
    """The shared state of files whose descriptors differ only in their row counts; this descriptor has none."""
    if len(descriptor) > LARGE_SCHEMA_BYTES_MAX:
        return _decoded_schema(descriptor, version, value_bytes_max)
    cached = _small_schema if len(descriptor) <= SHARED_SCHEMA_BYTES_MAX else _large_schema
    return cached(descriptor, version, value_bytes_max)


def _decoded_schema(descriptor: bytes, version: FileVersion, value_bytes_max: int) -> FileSchema:
    schema = find_flat_schema(schema_of_descriptor(descriptor))
    whole = decode_file_descriptor(descriptor).schema if schema is None else schema
    return FileSchema.of(whole, version, value_bytes_max)


_small_schema = lru_cache(maxsize=SHARED_SCHEMAS_MAX)(_decoded_schema)
_large_schema = RecentValues(_decoded_schema, LARGE_SCHEMAS_MAX)


def load_columns(file: OpenedFile, columns: list[int]) -> FileSteps[None]:
    """Read the metadata messages of columns of a wide file."""
    known = [column for column in dict.fromkeys(file.with_list_columns(columns)) if 0 <= column < len(file.paths)]
    if not known:
        return
    starts = file.column_table.positions[known]
    sizes = file.column_table.sizes[known]
    fetched: Fetched = yield Ranges(starts, starts + sizes, "metadata")
    for i, column in enumerate(known):
        file.blocks[column] = bytes(fetched.piece(i, int(sizes[i])))


def _extend_tail(tail: Tail, start: int) -> FileSteps[Tail]:
    """Extend the tail to an earlier start, reading only the missing bytes."""
    length = tail.start - start
    fetched: Fetched = yield Ranges.of((start, tail.start), purpose="metadata")
    return Tail(start, b"".join((fetched.piece(0, length), memoryview(tail.buffer))))


def _slice(tail: Tail, start: int, end: int) -> memoryview:
    """A byte range of the file, from the tail."""
    if start < tail.start:
        raise FormatError(f"metadata at {start} lies before byte {tail.start}, where the footer says it begins")
    return memoryview(tail.buffer)[start - tail.start : end - tail.start]
