"""Manifests: one version of a table (spec: table, section 2).

    offset 0   [u32 length][IndexSection]      at Manifest.index_section, if there are indices
               [u32 length][Transaction]       at Manifest.transaction_section
    P          [u32 length L][Manifest, L bytes]
    end-16     i64 P
    end- 8     u16 0, u16 2                    ignored
    end- 4     "LANC"

The manifest message is parsed into frozen values. The message itself is kept: the writer of the next version copies and
edits it, so that fields unknown to this release survive.
"""

from __future__ import annotations

import struct
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from lance_io import _kernels
from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.flat_fields import FIELDS_MIN
from lance_io.format.footer import MAGIC
from lance_io.format.schema_messages import decode_schema, decode_schema_bytes, find_flat_schema, schema_of_manifest
from lance_io.format.version import V0_1, V2_2, FileVersion, version_of_name
from lance_io.format.wire import merge_message, parse_message
from lance_io.lazy_names import lazy_module
from lance_io.proto import table_pb2
from lance_io.records import dataclass
from lance_io.table.manifest.flags import (
    MIXED_FILE_VERSIONS,
    STABLE_ROW_IDS,
    V2_FORMAT,
    check_reader_flags,
)
from lance_io.table.manifest.fragment import Fragments, decode_fragments
from lance_io.table.manifest.stored_fragments import split_fragments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.format.schema import Schema
    from lance_io.format.v0_1 import dictionaries
    from lance_io.format.wire import Buffer
else:
    dictionaries = lazy_module("lance_io.format.v0_1.dictionaries")

_FOOTER = struct.Struct("<qHH4s")
_LENGTH = struct.Struct("<I")
FOOTER_BYTES: Final = _FOOTER.size
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MAX: Final = 253_402_300_799  # the last second of the year 9999, the end of Python's calendar
_SECONDS_MIN: Final = -62_135_596_800
VERSION_MAX: Final = (1 << 64) - 1
LIBRARY: Final = "lance_io"  # this library's name as the writer of a manifest


@dataclass(frozen=True, slots=True)
class BasePath:
    """A location of files outside of the table's own folder (spec: table, section 1.4).

    path             full URI or absolute path
    is_dataset_root  True if it has the folders of a table, False if data files are directly in it
    """

    id: int
    path: str
    is_dataset_root: bool
    name: str | None = None


class StoredMessage:
    """The message of a manifest, whose fields and fragments are parsed on demand: reading does not need these messages.

    rest       the message, maybe without its fields and fragments
    parts      the missing parts, serialized: fields with the metadata of the schema, fragments
    fragments  the messages of the fragments
    """

    __slots__ = ("_parts", "fragments", "rest")

    def __init__(
        self,
        rest: table_pb2.Manifest,
        parts: Sequence[bytes] = (),
        fragments: Sequence[table_pb2.DataFragment] | None = None,
    ) -> None:
        self.rest = rest
        self._parts = parts
        self.fragments = rest.fragments if fragments is None else fragments

    def whole(self) -> table_pb2.Manifest:
        """The complete message, not to be changed."""
        parts = self._parts
        if parts:  # a copy: another thread may be reading this message
            message = table_pb2.Manifest()
            message.CopyFrom(self.rest)
            for part in parts:
                merge_message(message, part, "manifest")
            self.rest, self._parts = message, ()
        return self.rest


@dataclass(frozen=True)
class Manifest:
    """One version of a table.

    version                          number of the version; detached ones have bit 63 set
    schema                           fields and schema metadata
    fragments                        in row order, decoded on demand
    timestamp_ns                     time of the commit, ns since the epoch, UTC
    reader_flags, writer_flags       feature flags, checked
    data_version                     file version of the data
    config, table_metadata           key-value pairs of the table
    base_paths                       by id
    branch                           None on the main branch
    max_fragment_id                  highest id ever allocated, None before the first
    next_row_id                      first unallocated stable row id
    transaction_file                 its name below `_transactions/`, may be empty
    index_offset, transaction_offset offsets of the sections in front of the message, None if absent
    writer                           library and version that wrote it, such as "lance 14.0.2"; empty if unknown
    stored                           the message, which may lack the fields of a wide schema until they are needed
    index_section                    content of the index section; None if the version has none, and if the decoded
                                     bytes did not include it
    has_old_name                     whether it was read under its V1 name; a V2 name may appear later
    """

    version: int
    schema: Schema
    fragments: Fragments
    timestamp_ns: int
    reader_flags: int
    writer_flags: int
    data_version: FileVersion
    config: Mapping[str, str]
    table_metadata: Mapping[str, str]
    base_paths: Mapping[int, BasePath]
    branch: str | None
    max_fragment_id: int | None
    next_row_id: int
    transaction_file: str
    index_offset: int | None
    transaction_offset: int | None
    writer: str
    stored: StoredMessage = field(repr=False, compare=False)
    index_section: bytes | None = field(default=None, repr=False, compare=False)
    has_old_name: bool = field(default=False, repr=False, compare=False)

    @property
    def message(self) -> table_pb2.Manifest:
        """The parsed message, not to be changed."""
        return self.stored.whole()

    @property
    def timestamp(self) -> datetime:
        """Time of the commit in UTC, cut to microseconds."""
        return _EPOCH + timedelta(microseconds=self.timestamp_ns // 1000)

    @property
    def is_ours(self) -> bool:
        """Whether this library wrote the version, and so most likely its files."""
        return self.writer.partition(" ")[0] == LIBRARY

    @cached_property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their ids when they move."""
        return bool(self.reader_flags & STABLE_ROW_IDS)

    @property
    def num_rows(self) -> int | None:
        """Rows that are not deleted, None if a fragment of an old release does not say."""
        counts = self.fragments.num_rows
        return None if None in counts else sum(count for count in counts if count is not None)

    def summary(self) -> dict[str, str]:
        """The summary that `versions()` returns for a version, as decimal texts (spec: table, section 10)."""
        return summarize(self.fragments)


def manifest_position(tail: Buffer, *, file_bytes: int) -> int:
    """The file offset P of the manifest's length prefix; decoding needs all bytes from there on.

    tail  any suffix of the file, at least its last 16 bytes. Raises `FormatError`.
    """
    view = memoryview(tail).cast("B")
    if len(view) < FOOTER_BYTES:
        raise FormatError(
            f"file size is too small: {file_bytes} bytes for a manifest with its {FOOTER_BYTES}-byte footer"
        )
    position, _major, _minor, magic = _FOOTER.unpack_from(view, len(view) - FOOTER_BYTES)
    if magic != MAGIC:
        raise FormatError(f"expected {MAGIC!r} in the last 4 bytes of a manifest, found {magic!r}")
    if not 0 <= position <= file_bytes - FOOTER_BYTES - _LENGTH.size:
        raise FormatError(f"manifest footer points at {position} in a file of {file_bytes} bytes")
    return int(position)


def decode_manifest(data: Buffer, *, data_start: int = 0) -> Manifest:
    """Parse a manifest file, or the part of it from `data_start` (not above its position P) to the end.

    Raises `FormatError` for damage, `UnsupportedError` for unknown flags, types and versions.
    """
    position, content = _message_bytes(data, data_start)
    manifest = _decode_wide(position, content, data_start)
    if manifest is None:
        manifest = _decode_any(data, position, content, data_start)
    offset = manifest.index_offset
    if offset is None or offset < data_start:
        return manifest
    return replace(manifest, index_section=bytes(read_section(data, offset, data_start=data_start, what="index")))


def _decode_wide(position: int, content: memoryview, data_start: int) -> Manifest | None:
    """Fast path for tables with a wide, flat schema: leaves the fields undecoded; None for other tables."""
    parts = _kernels.split_manifest(content, FIELDS_MIN)
    schema = None if parts is None else find_flat_schema(parts[0])
    if parts is None or schema is None:
        return None
    stored, counted = _parse(parts[1], parts[0])
    if data_start == 0 and b"dict:" in parts[0] and _is_of_0_1(stored):
        return None
    return _from_stored(stored, position, schema=schema, content=counted)


def _decode_any(data: Buffer, position: int, content: memoryview, data_start: int) -> Manifest:
    stored, counted = _parse(content)
    message = stored.rest
    schema, is_wide = None, len(message.fields) >= FIELDS_MIN
    if data_start == 0 and not (is_wide and b"dict:" not in bytes(content)) and _holds_values(stored):
        dictionaries.attach_values(message.fields, data)
    elif is_wide:
        schema = decode_schema_bytes(schema_of_manifest(content))
    return _from_stored(stored, position, schema=schema, content=counted)


def _parse(content: Buffer, schema: bytes | None = None) -> tuple[StoredMessage, Buffer | None]:
    """The message of a manifest, and its bytes if a kernel may survey the fragments there.

    schema  the part with the fields, if it has been split off
    """
    parts = () if schema is None else (schema,)
    split = split_fragments(content)
    if split is not None:
        rest, fragments = split
        message = parse_message(table_pb2.Manifest, rest, "manifest")
        if message.HasField("writer_version"):
            return StoredMessage(message, (*parts, fragments.data), fragments), fragments.data
    message = parse_message(table_pb2.Manifest, content, "manifest")
    is_counted = message.HasField("writer_version")
    if not is_counted:
        _clear_row_counts(message)
    return StoredMessage(message, parts), content if is_counted else None


def _message_bytes(data: Buffer, data_start: int) -> tuple[int, memoryview]:
    """The position of the message in the file, and its bytes."""
    view = memoryview(data).cast("B")
    file_bytes = data_start + len(view)
    position = manifest_position(view, file_bytes=file_bytes)
    return position, read_section(view, position, data_start=data_start, end=file_bytes - FOOTER_BYTES, what="manifest")


def _decode_message(data: Buffer, data_start: int) -> tuple[table_pb2.Manifest, int]:
    """The message, and its position in the file."""
    position, content = _message_bytes(data, data_start)
    return parse_message(table_pb2.Manifest, content, "manifest"), position


def read_section(data: Buffer, offset: int, *, data_start: int = 0, end: int | None = None, what: str) -> memoryview:
    """The length-prefixed section at file offset `offset` of a manifest file, without its prefix.

    data  the file's bytes from `data_start` on
    end   file offset that the section must not pass, by default the footer
    what  name of the section, for errors
    Raises `FormatError` if the section is outside of the bytes.
    """
    view = memoryview(data).cast("B")
    end = data_start + len(view) - FOOTER_BYTES if end is None else end
    start = offset - data_start
    if start < 0 or offset + _LENGTH.size > end:
        raise FormatError(f"{what} section at {offset} lies outside of the bytes {data_start} to {end}")
    (length,) = _LENGTH.unpack_from(view, start)
    if offset + _LENGTH.size + length > end:
        raise FormatError(f"{what} section of {length} bytes at {offset} runs past {end}")
    return view[start + _LENGTH.size : start + _LENGTH.size + length]


def from_message(
    message: table_pb2.Manifest,
    position: int,
    index_section: bytes | None = None,
    extended: Manifest | None = None,
) -> Manifest:
    """The values of a manifest message at `position` of its file. Raises like `decode_manifest`.

    extended  a version with the same schema, whose fragments this one begins with; saves decoding them again
    """
    return _from_stored(StoredMessage(message), position, index_section, extended)


def _from_stored(
    stored: StoredMessage,
    position: int,
    index_section: bytes | None = None,
    extended: Manifest | None = None,
    schema: Schema | None = None,
    content: Buffer | None = None,
) -> Manifest:
    """Like `from_message`.

    schema   the message's schema, if it is decoded already
    content  the serialized message, if it has exactly these fragments
    """
    message = stored.rest
    has_id_mark = message.HasField("max_allocated_field_id")
    check_reader_flags(message.reader_feature_flags, message.writer_feature_flags, has_id_mark=has_id_mark)
    _check_has_no_tree(message)
    base_paths = _base_paths(message)
    fragments = decode_fragments(
        stored.fragments, base_paths, None if extended is None else extended.fragments, content
    )
    if extended is not None:
        schema = extended.schema
    elif schema is None:
        schema = decode_schema(message.fields, message.schema_metadata)
    if schema.is_of_file:
        raise FormatError("schema: a field of the table has an id below 0, which only columns of files have")
    data_version = _data_version(message, fragments)
    if data_version == V0_1:
        schema = schema.without_packing()
    manifest = Manifest(
        version=message.version,
        schema=schema,
        fragments=fragments,
        timestamp_ns=_timestamp_ns(message),
        reader_flags=message.reader_feature_flags,
        writer_flags=message.writer_feature_flags,
        data_version=data_version,
        config=dict(message.config),
        table_metadata=dict(message.table_metadata),
        base_paths=base_paths,
        branch=message.branch if message.HasField("branch") else None,
        max_fragment_id=message.max_fragment_id if message.HasField("max_fragment_id") else None,
        next_row_id=message.next_row_id,
        transaction_file=message.transaction_file,
        index_offset=_section_offset(message, "index_section", position),
        transaction_offset=_transaction_offset(message, position),
        writer=_writer(message),
        stored=stored,
        index_section=index_section,
    )
    _check_consistency(manifest)
    return manifest


def _clear_row_counts(message: table_pb2.Manifest) -> None:
    """Clear row counts of fragments that an unnamed release wrote: they may be wrong (section 2.4).

    Some releases counted the rows left after a deletion. The data and deletion files have the right counts.
    """
    for fragment in message.fragments:
        fragment.physical_rows = 0
        if fragment.HasField("deletion_file"):
            fragment.deletion_file.num_deleted_rows = 0


def _holds_values(stored: StoredMessage) -> bool:
    """Whether the manifest file has the values of dictionary columns, as in tables of 0.1."""
    return any(field.logical_type.startswith("dict:") for field in stored.rest.fields[:]) and _is_of_0_1(stored)


def _is_of_0_1(stored: StoredMessage) -> bool:
    return _data_version(stored.rest, decode_fragments(stored.fragments)) == V0_1


class FileNames(NamedTuple):
    """The part of a manifest about the files of its version; fields as in `Manifest`."""

    message: table_pb2.Manifest
    base_paths: dict[int, BasePath]
    index_section: bytes | None

    @property
    def fragments(self) -> Fragments:
        """All fragments, decoded on demand."""
        return decode_fragments(self.message.fragments, self.base_paths)

    @property
    def transaction_file(self) -> str:
        """The file of the transaction that created the version; empty if there is none."""
        return self.message.transaction_file


def decode_file_names(data: Buffer) -> FileNames:
    """The names of a version's files; its schema is not decoded.

    data  the whole file
    Raises `FormatError` for damage, `UnsupportedError` for unknown flags: such versions may have unknown files.
    """
    message, position = _decode_message(data, 0)
    has_id_mark = message.HasField("max_allocated_field_id")
    check_reader_flags(message.reader_feature_flags, message.writer_feature_flags, has_id_mark=has_id_mark)
    _check_has_no_tree(message)
    offset = _section_offset(message, "index_section", position)
    index_section = None if offset is None else bytes(read_section(data, offset, what="index"))
    return FileNames(message, _base_paths(message), index_section)


def _check_has_no_tree(message: table_pb2.Manifest) -> None:
    if message.HasField("fragment_tree"):
        raise UnsupportedError("the manifest keeps its fragments in a fragment tree (field 22)")


class Origin(NamedTuple):
    """The part of a manifest about the transaction that created its version; fields as in `Manifest`."""

    version: int
    transaction_file: str
    transaction_offset: int | None
    writer: str


def decode_origin(data: Buffer) -> Origin:
    """The writer of a version, and where its transaction is stored; nothing else of the manifest is decoded.

    data  the whole file. Raises `FormatError` for damage.
    """
    message, position = _decode_message(data, 0)
    offset = _transaction_offset(message, position)
    return Origin(message.version, message.transaction_file, offset, _writer(message))


def _writer(message: table_pb2.Manifest) -> str:
    return f"{message.writer_version.library} {message.writer_version.version}".strip()


def decode_summary(data: Buffer, *, data_start: int = 0) -> tuple[int, int, dict[str, str]]:
    """Version, timestamp in ns and summary of a manifest, for listing versions.

    The schema is not decoded, so that versions which cannot be opened can be listed. Raises `FormatError` for damage.
    """
    _, content = _message_bytes(data, data_start)
    known = _kernels.sum_manifest(content)
    if known is not None:
        version, seconds, nanos, sums = known
        return version, _nanoseconds(seconds, nanos), _texts(sums)
    message = parse_message(table_pb2.Manifest, content, "manifest")
    fragments = decode_fragments(message.fragments, _base_paths(message))
    return message.version, _timestamp_ns(message), summarize(fragments)


def decode_time(data: Buffer, *, data_start: int = 0) -> int | None:
    """Timestamp in ns of a manifest file, of which `data` is the end from `data_start` on; None if `data` is too short.

    The time comes after all fragments, and little follows it: the last few kilobytes have it, for any number of
    fragments. Raises `FormatError` for damage.
    """
    view = memoryview(data).cast("B")
    if manifest_position(view, file_bytes=data_start + len(view)) >= data_start:
        return decode_summary(view, data_start=data_start)[1]
    time = _kernels.find_manifest_time(view[:-FOOTER_BYTES])
    return None if time is None else _nanoseconds(*time)


_SUMS: Final = (
    "total_fragments",
    "total_data_files",
    "total_files_size",
    "total_deletion_files",
    "total_data_file_rows",
    "total_deletion_file_rows",
    "total_rows",
)


def _texts(sums: Sequence[int]) -> dict[str, str]:
    return {name: str(total) for name, total in zip(_SUMS, sums, strict=True)}


def summarize(fragments: Fragments) -> dict[str, str]:
    """Totals over fragments as decimal texts; unknown counts are 0."""
    files = [file for fragment in fragments for file in fragment.files]
    return _texts(
        [
            len(fragments),
            len(files),
            sum(file.size_bytes or 0 for file in files),
            sum(fragment.deletion_file is not None for fragment in fragments),
            sum(fragment.physical_rows or 0 for fragment in fragments),
            sum(fragment.num_deleted_rows or 0 for fragment in fragments),
            sum(fragment.num_rows or 0 for fragment in fragments),
        ]
    )


def _timestamp_ns(message: table_pb2.Manifest) -> int:
    return _nanoseconds(message.timestamp.seconds, message.timestamp.nanos)


def _nanoseconds(seconds: int, nanos: int) -> int:
    if not (_SECONDS_MIN <= seconds <= _SECONDS_MAX and 0 <= nanos < 1_000_000_000):
        raise FormatError(f"manifest timestamp of {seconds} s and {nanos} ns since 1970")
    return seconds * 1_000_000_000 + nanos


def _data_version(message: table_pb2.Manifest, fragments: Fragments) -> FileVersion:
    """The version that the manifest names; for old manifests the version of the files (section 7).

    Release 0.16 wrote tables of 2.0 whose manifest says 0.1: the files are right, and the next commit corrects the
    manifest. If such a table also has files of 0.1, no version is right: it can be read, and stays as it is.
    """
    named = version_of_name(message.data_format.version) if message.HasField("data_format") else None
    if named is not None and (named != V0_1 or not fragments.version_pairs or V0_1 in fragments.file_versions):
        return named
    for fragment in fragments:
        for file in fragment.files:
            return file.version
    if named is not None:
        return named
    return V2_2 if message.writer_feature_flags & V2_FORMAT else V0_1


def _base_paths(message: table_pb2.Manifest) -> dict[int, BasePath]:
    bases: dict[int, BasePath] = {}
    for each in message.base_paths:
        if each.id in bases or not each.path or "\0" in each.path:
            raise FormatError(f"base path {each.id} is declared twice or has no usable path: {each.path[:200]!r}")
        bases[each.id] = decode_base_path(each)
    return bases


def decode_base_path(message: table_pb2.BasePath) -> BasePath:
    """A base path as a value."""
    name = message.name if message.HasField("name") else None
    return BasePath(message.id, message.path, message.is_dataset_root, name)


def encode_base_path(base: BasePath) -> table_pb2.BasePath:
    """The message of a base path."""
    return table_pb2.BasePath(id=base.id, name=base.name, is_dataset_root=base.is_dataset_root, path=base.path)


def _transaction_offset(message: table_pb2.Manifest, position: int) -> int | None:
    for name in ("transaction_section", "transaction_section_before_v14"):
        offset = _section_offset(message, name, position)
        if offset is not None:
            return offset
    return None


def _section_offset(message: table_pb2.Manifest, name: str, position: int) -> int | None:
    if not message.HasField(name):  # type: ignore[arg-type]  # one of three literal names
        return None
    offset: int = getattr(message, name)
    if offset + _LENGTH.size > position:
        raise FormatError(f"{name} at {offset} does not lie in front of the manifest at {position}")
    return offset


def _was_mixed_by_0_16(manifest: Manifest) -> bool:
    """Whether a manifest names version 0.1 without the flag for others: release 0.16 wrote that for any files."""
    names_0_1 = manifest.data_version == V0_1 and manifest.stored.rest.HasField("data_format")
    return names_0_1 and not manifest.reader_flags & MIXED_FILE_VERSIONS


def _check_consistency(manifest: Manifest) -> None:
    """Raise `FormatError` if the manifest contradicts itself."""
    versions = manifest.fragments.file_versions
    if versions - {manifest.data_version} and not _was_mixed_by_0_16(manifest):
        file_versions = ", ".join(sorted(version.name for version in versions))
        table = manifest.data_version.name
        if V0_1 in versions:
            raise FormatError(
                f"data files of version {file_versions} in a table of version {table}: "
                "V1 and V2 storage versions cannot be mixed"
            )
        if not manifest.reader_flags & MIXED_FILE_VERSIONS:
            raise FormatError(
                f"data files of version {file_versions} in a table of version {table}, but mixed file versions "
                f"(feature flag {MIXED_FILE_VERSIONS}) are not enabled"
            )
    if manifest.has_stable_row_ids:
        ids = manifest.fragments.ids
        if len(set(ids)) < len(ids):  # without row ids such a table is readable: only its addresses are ambiguous
            raise FormatError("two fragments have the same id, so row ids are not unique (flag 2)")
        without = manifest.fragments.first_without_row_ids()
        if without is not None:
            raise FormatError(f"fragment {without} has no row ids, but all fragments must have row ids (flag 2)")
    highest = max(manifest.fragments.ids, default=-1)
    if manifest.max_fragment_id is not None and highest > manifest.max_fragment_id:
        raise FormatError(f"fragment {highest} is above the highest allocated id, {manifest.max_fragment_id}")
