"""Fragments: the horizontal pieces of a table (spec: table, section 2.4).

A fragment is a set of data files with different columns of the same rows, and a file that lists the deleted rows. Row
addresses are `fragment id << 32 | offset`, hence the limits of 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from lance_io import _kernels
from lance_io.errors import FormatError, UnsupportedError
from lance_io.format.schema import LINEAGE_NAMES
from lance_io.format.version import V0_1, V2_0, VERSION_OF_PAIR, FileVersion
from lance_io.format.wire import I64_MAX
from lance_io.proto import table_pb2
from lance_io.records import dataclass
from lance_io.table.manifest.stored_fragments import StoredFragments

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lance_io.format.wire import Buffer

FRAGMENT_ID_MAX: Final = (1 << 32) - 1
FRAGMENT_ROWS_MAX: Final = 1 << 32

DeletionKind = Literal["arrow", "bitmap"]
_DELETION_KINDS: Final[dict[int, DeletionKind]] = {0: "arrow", 1: "bitmap"}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a fragment, as the manifest describes it.

    path            below the data directory of its base, not checked: see `paths.py`
    fields          field ids of its columns; negative ids are not in the schema (-2: a dead column)
    column_indices  parallel to `fields`, the column's number inside the file; empty for version 0.1
    version         file version
    size_bytes      size of the whole file, None if unknown
    base_id         id of the manifest's base path that it is below, None for the table's own folder
    """

    path: str
    fields: tuple[int, ...]
    column_indices: tuple[int, ...]
    version: FileVersion
    size_bytes: int | None
    base_id: int | None


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """The file that lists the deleted rows of a fragment.

    kind              file format
    read_version, id  parts of its name
    num_deleted_rows  length of the list, None if unknown
    base_id           see `DataFile`
    """

    kind: DeletionKind
    read_version: int
    id: int
    num_deleted_rows: int | None
    base_id: int | None


@dataclass(frozen=True, slots=True)
class Fragment:
    """A fragment, as the manifest describes it.

    physical_rows  rows in its data files, deleted ones included; None if unknown (tables of old releases)
    row_ids        serialized row id sequence, None without stable row ids or if it is spilled
    created_at_versions, last_updated_at_versions  serialized version sequences, or None
    spilled        the field ids of those of these three that are columns of a data file instead (6.6)
    message        the message that it was parsed from, not to be changed: it keeps fields unknown to this release when
                   the fragment is changed (`dataclasses.replace`) and written again; None for a new fragment
    """

    id: int
    files: tuple[DataFile, ...]
    deletion_file: DeletionFile | None
    physical_rows: int | None
    row_ids: bytes | None
    created_at_versions: bytes | None
    last_updated_at_versions: bytes | None
    spilled: frozenset[int] = frozenset()
    message: table_pb2.DataFragment | None = field(default=None, repr=False, compare=False)

    @property
    def num_deleted_rows(self) -> int | None:
        """Rows that its deletion file lists, 0 without a file, None if the manifest does not say."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int | None:
        """Rows that are not deleted, None if the manifest does not say."""
        deleted = self.num_deleted_rows
        return None if self.physical_rows is None or deleted is None else self.physical_rows - deleted

    def file_of(self, field_id: int) -> DataFile | None:
        """The data file with a column of the schema; None if the column is null in this fragment."""
        return next((each for each in self.files if field_id in each.fields), None)


class Fragments(Sequence[Fragment]):
    """All fragments of a manifest, in row order. Each is decoded on first access and cached.

    A table may have many thousands of fragments, of which a take needs one. So the values that opening and counting
    need are plain columns over all fragments, already checked:

    ids             fragment ids; pylance allows the same id twice
    physical_rows   rows including deleted ones, 0 where the manifest does not say
    deleted_rows    by index, for fragments with a deletion file: its length, 0 where the manifest does not say
    version_pairs   (major, minor) of every data file's version, without duplicates

    Getting a fragment raises `FormatError` for inconsistent file lists or a base path that is not in `bases`, and
    `UnsupportedError` for overlays and for parts that are stored elsewhere.
    """

    __slots__ = ("_bases", "_decoded", "_messages", "deleted_rows", "ids", "physical_rows", "version_pairs")

    def __init__(
        self,
        messages: Sequence[table_pb2.DataFragment],
        bases: Collection[int] = (),
        known: Fragments | None = None,
        content: Buffer | None = None,
    ) -> None:
        self._messages = messages
        self._bases = bases
        self._decoded: dict[int, Fragment] = {}
        self.ids: list[int] = [] if known is None else [*known.ids]
        self.physical_rows: list[int] = [] if known is None else [*known.physical_rows]
        self.deleted_rows: dict[int, int] = {} if known is None else {**known.deleted_rows}
        self.version_pairs: set[tuple[int, int]] = set() if known is None else {*known.version_pairs}
        summary = None if content is None else _kernels.survey_fragments(content)
        if summary is None:
            self._survey(len(self.ids))
        else:
            self.ids, self.physical_rows, deleted, self.version_pairs = summary
            self.deleted_rows = dict(deleted)
        self._check()

    def _survey(self, start: int) -> None:
        messages = self._messages[start:]  # a list, which iterates many times faster than a repeated field
        self.ids += [message.id for message in messages]
        self.physical_rows += [message.physical_rows for message in messages]
        files = [file for message in messages for file in message.files[:]]
        self.version_pairs.update([(file.file_major_version, file.file_minor_version) for file in files])
        for index, message in enumerate(messages, start):
            if message.HasField("deletion_file"):
                self.deleted_rows[index] = message.deletion_file.num_deleted_rows

    def _check(self) -> None:
        if max(self.ids, default=0) > FRAGMENT_ID_MAX:
            raise FormatError(f"a fragment's id needs more than 32 bits: {max(self.ids)}")
        if max(self.physical_rows, default=0) > FRAGMENT_ROWS_MAX:
            raise FormatError(f"a fragment of {max(self.physical_rows)} rows, at most {FRAGMENT_ROWS_MAX}")
        for index, deleted in self.deleted_rows.items():
            if deleted > (self.physical_rows[index] or FRAGMENT_ROWS_MAX):
                raise FormatError(f"fragment {self.ids[index]}: {deleted} deleted rows of {self.physical_rows[index]}")

    @property
    def file_versions(self) -> set[FileVersion]:
        """The versions of all data files. Raises `UnsupportedError` for an unknown version."""
        return {VERSION_OF_PAIR[pair] for pair in self.version_pairs}

    @property
    def num_rows(self) -> list[int | None]:
        """Undeleted rows of each fragment, None where the manifest does not say."""
        counts: list[int | None] = [rows or None for rows in self.physical_rows]
        for index, deleted in self.deleted_rows.items():
            rows = self.physical_rows[index]
            counts[index] = rows - deleted if rows and deleted else None
        return counts

    def first_without_row_ids(self) -> int | None:
        """Id of the first fragment without a row id sequence, None if there is none."""
        if isinstance(self._messages, StoredFragments):
            missing = self._messages.without_row_ids
            return None if missing is None else self.ids[missing]
        for index, message in enumerate(self._messages):
            if not message.HasField("inline_row_ids") and ROW_IDS_FIELD not in self[index].spilled:
                return message.id
        return None

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Fragment: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Fragment, ...]: ...
    def __getitem__(self, index: int | slice) -> Fragment | tuple[Fragment, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(len(self))[index])
        index = range(len(self))[index]
        fragment = self._decoded.get(index)
        if fragment is None:
            fragment = self._decoded[index] = self._decode(index)
        return fragment

    def get_uncached(self, index: int) -> Fragment:
        """A fragment for brief use, which is not cached: there may be very many. Raises like `[]`."""
        fragment = self._decoded.get(index)
        return self._decode(index) if fragment is None else fragment

    def _decode(self, index: int) -> Fragment:
        fragment = decode_fragment(self._messages[index])
        used = {file.base_id for file in fragment.files}
        if fragment.deletion_file is not None:
            used.add(fragment.deletion_file.base_id)
        undeclared = used.difference(self._bases, (None,))
        if undeclared:
            raise FormatError(
                f"fragment {fragment.id}: files lie below base path {undeclared.pop()}, "
                "which the manifest does not declare"
            )
        return fragment

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fragments) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


def decode_fragments(
    messages: Sequence[table_pb2.DataFragment],
    bases: Collection[int] = (),
    known: Fragments | None = None,
    content: Buffer | None = None,
) -> Fragments:
    """All fragments of a manifest, in its order; `bases` are the ids of its base paths.

    known    the fragments of another manifest that this one begins with: they are not surveyed again
    content  the serialized manifest with exactly these fragments, which a kernel surveys
    Raises `FormatError` for impossible ids and counts right away; `Fragments` checks the rest on access.
    """
    return Fragments(messages, bases, known, content)


# DataFragment fields that we read or can ignore; a fragment with other fields keeps values of rows elsewhere
_ID, _FILES, _DELETION, _ROWS, _ROW_IDS, _UPDATED, _CREATED = 1, 2, 3, 4, 5, 7, 9
_SPILLED_ROW_IDS, _SPILLED_UPDATED, _SPILLED_CREATED = 12, 13, 14
ROW_IDS_FIELD, CREATED_AT_FIELD, UPDATED_AT_FIELD = -3, -4, -5
_SPILLED: Final = {
    _SPILLED_ROW_IDS: (_ROW_IDS, ROW_IDS_FIELD),
    _SPILLED_CREATED: (_CREATED, CREATED_AT_FIELD),
    _SPILLED_UPDATED: (_UPDATED, UPDATED_AT_FIELD),
}
_NOTHING_SPILLED: Final = frozenset[int]()  # shared: an object per fragment would burden the garbage collector
_HARMLESS: Final = frozenset({_ID, _FILES, _DELETION, _ROWS, _ROW_IDS, _UPDATED, _CREATED, *_SPILLED, 15, 16})


def decode_fragment(message: table_pb2.DataFragment) -> Fragment:
    """Decode one fragment. Raises like `Fragments[index]`, but does not check base paths."""
    values: dict[int, Any] = {descriptor.number: value for descriptor, value in message.ListFields()}
    if not values.keys() <= _HARMLESS:
        raise _foreign_parts(message)
    try:
        files = tuple([decode_file(each) for each in values.get(_FILES, ())])
        check_disjoint(files)
        spilled = _decode_spilled(values, files)
        deletion = _decode_deletion(values[_DELETION]) if _DELETION in values else None
    except FormatError as error:
        raise error.within(f"fragment {message.id}") from error.__cause__
    return Fragment(
        id=message.id,
        files=files,
        deletion_file=deletion,
        physical_rows=values.get(_ROWS),
        row_ids=values.get(_ROW_IDS),
        created_at_versions=values.get(_CREATED),
        last_updated_at_versions=values.get(_UPDATED),
        spilled=spilled,
        message=message,
    )


def _decode_spilled(values: Mapping[int, Any], files: Sequence[DataFile]) -> frozenset[int]:
    marked = [_SPILLED[number] for number in _SPILLED.keys() & values.keys()]
    if not marked:
        return _NOTHING_SPILLED
    for inline, field_id in marked:
        if inline in values:
            raise FormatError(f"column {field_id} ({LINEAGE_NAMES[field_id]}) is stored both in the manifest and not")
        num_files = sum(file.fields.count(field_id) for file in files)
        if num_files != 1:
            raise FormatError(
                f"column {field_id} ({LINEAGE_NAMES[field_id]}) is in {num_files} data files, expected one"
            )
    return frozenset(field_id for _, field_id in marked)


def _foreign_parts(message: table_pb2.DataFragment) -> UnsupportedError:
    names = [descriptor.name for descriptor, _ in message.ListFields() if descriptor.number not in _HARMLESS]
    return UnsupportedError(f"fragment {message.id} has {', '.join(names)}, which are not read yet")


def decode_file(message: table_pb2.DataFile) -> DataFile:
    """Decode one data file. Raises `FormatError` for inconsistent lists, `UnsupportedError` for an unknown version."""
    version = VERSION_OF_PAIR[message.file_major_version, message.file_minor_version]
    fields, columns = tuple(message.fields[:]), tuple(message.column_indices[:])  # slices iterate many times faster
    if message.file_size_bytes > I64_MAX:
        raise FormatError(f"data file {message.path!r}: {message.file_size_bytes} bytes")
    if version is not V0_1:
        if len(fields) != len(columns):
            raise FormatError(f"data file {message.path!r}: {len(fields)} field ids, but {len(columns)} columns")
        if columns and min(columns) < 0 and version is not V2_0:
            raise FormatError(f"data file {message.path!r}: column {min(columns)}, expected 0 or more")
        if len(set(columns)) < len(columns):
            raise FormatError(f"data file {message.path!r}: a column is listed twice")
    return DataFile(
        path=message.path,
        fields=fields,
        column_indices=columns,
        version=version,
        size_bytes=message.file_size_bytes or None,
        base_id=message.base_id if message.HasField("base_id") else None,
    )


def check_disjoint(files: Sequence[DataFile]) -> None:
    """Raise `FormatError` if two columns of a 2.x fragment have the same field id. Releases of 0.1 wrote such files."""
    if len(files) == 1 and len(set(files[0].fields)) == len(files[0].fields):
        return
    ids = [each for file in files if file.version is not V0_1 for each in file.fields if each >= 0]
    if len(set(ids)) < len(ids):
        twice = next(each for index, each in enumerate(ids) if each in ids[:index])
        raise FormatError(f"field {twice} is stored in more than one column")


def _decode_deletion(message: table_pb2.DeletionFile) -> DeletionFile:
    kind = _DELETION_KINDS.get(message.file_type)
    if kind is None:
        raise UnsupportedError(f"deletion file of type {message.file_type}; known are {_DELETION_KINDS}")
    return DeletionFile(
        kind=kind,
        read_version=message.read_version,
        id=message.id,
        num_deleted_rows=message.num_deleted_rows or None,
        base_id=message.base_id if message.HasField("base_id") else None,
    )


# -- writing ---------------------------------------------------------------------------------------------------------


def encode_fragment(fragment: Fragment) -> table_pb2.DataFragment:
    """The message of a fragment; unknown fields of its original message are kept."""
    message = table_pb2.DataFragment()
    if fragment.message is not None:
        message.CopyFrom(fragment.message)
    known = {file.path: file for file in (fragment.message.files if fragment.message is not None else ())}
    files = [encode_file(file, known.get(file.path)) for file in fragment.files]
    message.ClearField("files")
    message.files.extend(files)
    message.id = fragment.id
    message.physical_rows = fragment.physical_rows or 0
    _encode_deletion(fragment.deletion_file, message)
    for name, field_id, value in (
        ("row_ids", ROW_IDS_FIELD, fragment.row_ids),
        ("created_at_versions", CREATED_AT_FIELD, fragment.created_at_versions),
        ("last_updated_at_versions", UPDATED_AT_FIELD, fragment.last_updated_at_versions),
    ):
        message.ClearField(f"inline_{name}")  # type: ignore[arg-type]  # one of three names
        message.ClearField(f"spilled_{name}")  # type: ignore[arg-type]
        if field_id in fragment.spilled:
            getattr(message, f"spilled_{name}").SetInParent()
        elif value is not None:
            setattr(message, f"inline_{name}", value)
    return message


def encode_file(file: DataFile, known: table_pb2.DataFile | None = None) -> table_pb2.DataFile:
    """The message of a data file; unknown fields of `known`, an earlier message of it, are kept."""
    message = table_pb2.DataFile()
    if known is not None:
        message.CopyFrom(known)
        message.ClearField("fields")
        message.ClearField("column_indices")
    message.path = file.path
    message.fields.extend(file.fields)
    message.column_indices.extend(file.column_indices)
    message.file_major_version, message.file_minor_version = file.version.major, file.version.minor
    message.file_size_bytes = file.size_bytes or 0
    if file.base_id is None:
        message.ClearField("base_id")
    else:
        message.base_id = file.base_id
    return message


def _encode_deletion(file: DeletionFile | None, fragment: table_pb2.DataFragment) -> None:
    if file is None:
        fragment.ClearField("deletion_file")
        return
    message = fragment.deletion_file
    if message.id != file.id:
        message.Clear()
    message.file_type = table_pb2.DeletionFile.ARROW_ARRAY if file.kind == "arrow" else table_pb2.DeletionFile.BITMAP
    message.read_version, message.id = file.read_version, file.id
    message.num_deleted_rows = file.num_deleted_rows or 0
    if file.base_id is None:
        message.ClearField("base_id")
    else:
        message.base_id = file.base_id
    message.SetInParent()
