"""A manifest under construction: a copy of the current manifest that a transaction edits (spec: commit, section 2.3).

    start     copy of the current manifest, or an empty one for a new table
    edits     by the operations of `apply.py`
    finish    fragments sorted, dead files dropped, high-water marks raised, feature flags recomputed

Manifests are edited as messages. The current message is copied, and so is every fragment and field of a transaction,
so that fields unknown to this release survive.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import OperationError
from lance_io.format.version import V0_1, V2_2, VERSION_OF_PAIR, FileVersion, version_of_name
from lance_io.proto import table_pb2
from lance_io.records import dataclass
from lance_io.table.manifest.flags import SPILLED_ROW_LINEAGE, check_writer_flags, next_flags
from lance_io.table.manifest.fragment import FRAGMENT_ID_MAX
from lance_io.table.manifest.index_section import IndexMetadata, decode_indices, encode_indices
from lance_io.table.manifest.manifest import LIBRARY
from lance_io.table.transaction import index_coverage as coverage
from lance_io.table.transaction.column_records import check_records
from lance_io.table.transaction.field_ids import check_mark, raise_mark
from lance_io.table.transaction.lineage import RowIdCounter, is_spilled, stamp_new

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.column_records import Touched
    from lance_io.table.transaction.duplicate_names import FileName
    from lance_io.table.transaction.effects import Effects
    from lance_io.table.transaction.transaction import Transaction

WRITER: Final = (LIBRARY, "0.1.0")  # library and version; the version must be three numbers
TOMBSTONE: Final = -2  # field id of a dead column


@dataclass(frozen=True)
class Creation:
    """Properties that are fixed when a table is created.

    data_version    file version of the data; None for the version of the files, or the default if there are none
    stable_row_ids  whether rows keep their ids when they move
    """

    data_version: FileVersion | None = None
    stable_row_ids: bool = False


@dataclass(frozen=True)
class NextVersion:
    """A version to commit.

    message        the manifest; `encode_manifest_file` adds the offsets of its sections
    index_section  content of the index section, None without indices
    transaction    the transaction that creates it
    extended       the current version, if this one keeps its schema and fragments and only adds fragments; else None
    added          the data files that the transaction adds; the version must have each of them once
    """

    message: table_pb2.Manifest
    index_section: bytes | None
    transaction: Transaction
    extended: Manifest | None = None
    added: frozenset[FileName] = frozenset()


def section_to_carry(manifest: Manifest) -> bytes | None:
    """The index section that the next version takes over. Raises `OperationError` if the manifest lacks it."""
    if manifest.index_offset is not None and manifest.index_section is None:
        raise OperationError(f"version {manifest.version} has an index section, which is needed to build on it")
    return manifest.index_section


class Draft:
    """A manifest under construction.

    message            the manifest
    operation_message  the operation as a message; the draft copies its fragments and fields
    has_stable_ids     whether the table has stable row ids
    extends            whether schema and fragments of the current version are unchanged so far
    touched            added and changed fragments, which `finish` checks
    """

    def __init__(
        self, current: Manifest | None, transaction: Transaction, creation: Creation, version: int | None
    ) -> None:
        self.transaction = transaction
        name = transaction.stored_message.WhichOneof("operation")
        self.operation_message: Any = None if name is None else getattr(transaction.stored_message, name)
        self.message = table_pb2.Manifest()
        self.creation = creation
        self.current = current
        self.extends = current is not None
        self.touched: list[Touched] = []
        self._new: list[table_pb2.DataFragment] = []
        self._section: bytes | None = None
        self._indices: list[IndexMetadata] | None = None
        if current is not None:
            _check_writable(current)
            check_mark(current.message)
            self._copy(current)
            self._section = section_to_carry(current)
        self._sticky_flags = 0 if current is None else current.reader_flags
        self.has_stable_ids = creation.stable_row_ids if current is None else current.has_stable_row_ids
        self.version = version if version is not None else 1 if current is None else current.version + 1
        self.row_ids = RowIdCounter(self.message.next_row_id)
        self._next_fragment_id = _next_fragment_id(current)

    def _copy(self, manifest: Manifest) -> None:
        self.message.CopyFrom(manifest.message)
        if self.message.HasField("data_format"):  # the stored text may be wrong, see `Manifest.data_version`
            self.message.data_format.version = manifest.data_version.name

    def replace_by(self, restored: Manifest) -> None:
        """Take the content of an earlier version; allocated ids stay allocated."""
        _check_writable(restored)
        self.extends = False
        next_row_id, next_fragment_id = self.message.next_row_id, self._next_fragment_id
        mark = self.field_id_mark
        self._copy(restored)
        if mark is not None and self.field_id_mark is None:
            raise OperationError(
                f"Cannot restore version {restored.version}: non-reusable field IDs were activated after that version"
            )
        if mark is not None:
            self.message.max_allocated_field_id = max(mark, self.message.max_allocated_field_id)
        self._sticky_flags |= restored.reader_flags
        self._section = section_to_carry(restored)
        self.row_ids = RowIdCounter(max(next_row_id, self.message.next_row_id))
        if next_fragment_id:
            self.message.max_fragment_id = max(next_fragment_id, _next_fragment_id(restored)) - 1
        self.has_stable_ids = restored.has_stable_row_ids

    @property
    def field_id_mark(self) -> int | None:
        """The highest field id ever allocated, if the table does not reuse field ids; else None."""
        has_mark = self.message.HasField("max_allocated_field_id")
        return self.message.max_allocated_field_id if has_mark else None

    # -- fragments ---------------------------------------------------------------------------------------------------

    def add(self, fragments: Iterable[table_pb2.DataFragment]) -> list[table_pb2.DataFragment]:
        """Copy new fragments to the manifest, and assign ids to those without one; returns the copies."""
        added = []
        for fragment in fragments:
            new = self.message.fragments.add()
            new.CopyFrom(fragment)
            if not new.id:
                new.id = self._next_fragment_id
                self._next_fragment_id += 1
            added.append(new)
        self._new += added
        return added

    def add_rows(self, fragments: Iterable[table_pb2.DataFragment]) -> None:
        """Add fragments of new rows."""
        for fragment in self.add(fragments):
            if not fragment.physical_rows:
                raise OperationError("a new fragment does not say how many rows it has")
            if self.has_stable_ids:
                self.row_ids.assign(fragment)
                stamp_new(fragment, self.version)

    def note_touched(self, effects: Effects) -> None:
        """Note the fragments that are about to be added or changed."""
        self.touched += [(fragment, ()) for fragment in effects.added]
        changed = [*effects.restated]
        if not changed:
            return
        ids = {fragment.id for fragment in changed}
        before = {
            fragment.id: [file.path for file in fragment.files]
            for fragment in self.message.fragments
            if fragment.id in ids
        }
        self.touched += [(fragment, before.get(fragment.id, ())) for fragment in changed]

    def remove(self, fragment_ids: Iterable[int]) -> None:
        """Remove fragments. Raises `OperationError` for a fragment that the table does not have."""
        removed_ids = set(fragment_ids)
        if not removed_ids:
            return
        self.extends = False
        kept = [fragment for fragment in self.message.fragments if fragment.id not in removed_ids]
        if len(kept) > len(self.message.fragments) - len(removed_ids):
            missing = removed_ids - {fragment.id for fragment in self.message.fragments}
            name, first = self.transaction.name, min(missing)
            raise OperationError(f"{name} removes fragment {first}, which the table does not have")
        if kept and len(kept) < len(self.message.fragments) - len(removed_ids):
            raise OperationError(f"{self.transaction.name} removes a fragment by an id that two fragments have")
        self._set_fragments(kept)

    def update(self, fragments: Iterable[table_pb2.DataFragment]) -> None:
        """Replace fragments by id. Raises `OperationError` for a fragment that the table does not have."""
        new = {fragment.id: fragment for fragment in fragments}
        self.extends = self.extends and not new
        for fragment in self.message.fragments:
            if fragment.id in new:
                fragment.CopyFrom(new.pop(fragment.id))
        if new:
            raise OperationError(f"{self.transaction.name} changes fragment {min(new)}, which the table does not have")

    def _set_fragments(self, fragments: Sequence[table_pb2.DataFragment]) -> None:
        self.extends = False
        copies = table_pb2.Manifest(fragments=fragments)
        self.message.ClearField("fragments")
        self.message.MergeFrom(copies)

    # -- indices -----------------------------------------------------------------------------------------------------

    @property
    def indices(self) -> list[IndexMetadata]:
        """The entries of the index section, with the fragments they cover now. Setting them marks them as changed."""
        if self._indices is None:
            return coverage.with_current_coverage(decode_indices(self._section)) if self._section is not None else []
        return self._indices

    @indices.setter
    def indices(self, entries: list[IndexMetadata]) -> None:
        self._indices = entries

    def set_schema(self, fields: Iterable[Any]) -> None:
        """Replace the fields by those of the transaction."""
        self.extends = False
        self.message.ClearField("fields")
        self.message.fields.extend(fields)

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self, timestamp_ns: int, added: frozenset[FileName] = frozenset()) -> NextVersion:
        """Complete the manifest, and check it.

        added  see `NextVersion`
        """
        message = self.message
        check_records(self.touched, message, self.transaction.name)
        self._settle_fragments()
        if self.field_id_mark is not None:
            raise_mark(message, self.field_id_mark, self._changed)
        section, covered = self._settle_indices()
        message.version = self.version
        message.timestamp.seconds, message.timestamp.nanos = divmod(timestamp_ns, 1_000_000_000)
        message.transaction_file = self.transaction.file_name
        message.tag = self.transaction.tag
        message.writer_version.Clear()
        message.writer_version.library, message.writer_version.version = WRITER
        if self.has_stable_ids:
            message.next_row_id = self.row_ids.next_id
        for offset in ("index_section", "transaction_section", "transaction_section_before_v14", "version_aux_data"):
            message.ClearField(offset)  # offsets in the file of the previous version
        self._set_flags(covered=covered)
        _check_dictionaries(message)
        return NextVersion(message, section, self.transaction, self._extended, added)

    def _settle_indices(self) -> tuple[bytes | None, bool]:
        """The index section, and whether an index stores values of additional (covering) columns.

        Entries with fields that the schema does not have are dropped: filtered scans of pylance fail on them, and
        pylance leaves some if an index is committed after its column was dropped or cast.
        """
        field_ids = {each.id for each in self.message.fields}
        indices = self.indices
        if coverage.over_unknown_fields(indices, field_ids):
            indices = self.indices = coverage.over_known_fields(indices, field_ids)
        if self._indices is not None:
            indices = self.indices = coverage.with_trimmed_record(indices)
        section = self._section if self._indices is None else encode_indices(self._indices) or None
        return section, any(index.covering_fields for index in indices)

    @property
    def _extended(self) -> Manifest | None:
        """The current version, if this version still begins with its fragments."""
        return self.current if self.extends else None

    @property
    def _changed(self) -> Sequence[table_pb2.DataFragment]:
        """The fragments that are new or differ from the current version."""
        return self._new if self._extended is not None else self.message.fragments[:]

    def _settle_fragments(self) -> None:
        """Drop dead files and empty fragments; sort the others, check their ids, and raise the highest allocated id."""
        changed = self._changed
        for fragment in changed:
            _drop_dead_files(fragment)
        if any(map(_is_empty, changed)):
            self._set_fragments([fragment for fragment in self.message.fragments if not _is_empty(fragment)])
            changed = self._changed
        ids = [] if self._extended is None else [*self._extended.fragments.ids]
        ids += [fragment.id for fragment in changed]
        if ids != sorted(ids):
            self.extends = False
            self.message.fragments.sort(key=lambda fragment: fragment.id)
        if len(set(ids)) < len(ids):
            twin_id = next(fragment_id for fragment_id, count in Counter(ids).items() if count > 1)
            raise OperationError(
                f"Invalid user input: The commit would produce two fragments with id {twin_id}. Fragment ids must be "
                f"unique, also among those that {self.transaction.name} leaves unchanged. Tables of Lance 0.16 and "
                "earlier may have such fragments: write their rows again by an overwrite, or restore an earlier version"
            )
        highest = max([*ids, self._next_fragment_id - 1])
        if highest > FRAGMENT_ID_MAX:
            raise OperationError(f"the table ran out of fragment ids: {highest} needs more than 32 bits")
        if highest >= 0:
            self.message.max_fragment_id = max(highest, self.message.max_fragment_id)

    def _set_flags(self, *, covered: bool) -> None:
        message = self.message
        changed = self._changed
        versions = _file_versions(changed)
        has_deletions = any(fragment.HasField("deletion_file") for fragment in changed)
        has_spilled = any(map(is_spilled, changed))
        if self._extended is not None:
            versions |= self._extended.fragments.file_versions
            has_deletions = has_deletions or bool(self._extended.fragments.deleted_rows)
            flags = self._extended.reader_flags | self._extended.writer_flags
            has_spilled = has_spilled or (
                bool(flags & SPILLED_ROW_LINEAGE) and any(map(is_spilled, self._extended.message.fragments))
            )
        if not message.HasField("data_format"):
            message.data_format.file_format = "lance"
            message.data_format.version = self._data_version(versions).name
        declared_version = version_of_name(message.data_format.version)
        if len(versions | {declared_version}) > 1 and V0_1 in versions | {declared_version}:
            raise OperationError(self._mixture_text(max(versions | {declared_version}).name))
        message.reader_feature_flags, message.writer_feature_flags = next_flags(
            message,
            sticky=self._sticky_flags,
            deletions=has_deletions,
            stable_row_ids=self.has_stable_ids,
            covered_index=covered,
            mixed_versions=bool(versions - {declared_version}),
            spilled_lineage=has_spilled,
        )

    def _mixture_text(self, other: str) -> str:
        """The error for data files of 0.1 beside others. It adds advice if the current version already has both."""
        text = f"{self.transaction.name} would leave data files of versions 0.1 and {other} in one table: "
        text += "V1 and V2 storage versions cannot be mixed. All data files must have the same version, or be of 2.x"
        if self.current is not None and self.current.fragments.file_versions > {V0_1}:
            text += ". The dataset contains a mixture of file versions. You will need to rollback to an earlier version"
        return text

    def _data_version(self, versions: set[FileVersion]) -> FileVersion:
        if self.current is not None:
            return self.current.data_version
        return self.creation.data_version or max(versions, default=V2_2)


def _check_writable(manifest: Manifest) -> None:
    check_writer_flags(manifest.reader_flags, manifest.writer_flags)


def _check_dictionaries(message: table_pb2.Manifest) -> None:
    """Raise `OperationError` if a table of version 0.1 has rows, but a dictionary column has no values."""
    if message.data_format.version != V0_1.name or not message.fragments:
        return
    for field in message.fields:
        if field.logical_type.startswith("dict:") and not field.dictionary.values:
            raise OperationError(
                f"v1 dictionary field '{field.name}' is missing dictionary metadata: the manifest stores its values, "
                "so all rows must be written in one write"
            )


def _next_fragment_id(manifest: Manifest | None) -> int:
    if manifest is None:
        return 0
    allocated_max = -1 if manifest.max_fragment_id is None else manifest.max_fragment_id
    return 1 + max(allocated_max, max(manifest.fragments.ids, default=-1))


def _file_versions(fragments: Iterable[table_pb2.DataFragment]) -> set[FileVersion]:
    pairs = {(file.file_major_version, file.file_minor_version) for fragment in fragments for file in fragment.files[:]}
    return {VERSION_OF_PAIR[pair] for pair in pairs}


def _is_empty(fragment: table_pb2.DataFragment) -> bool:
    """Whether all rows of a fragment are deleted."""
    return 0 < fragment.physical_rows == fragment.deletion_file.num_deleted_rows


def _drop_dead_files(fragment: table_pb2.DataFragment) -> None:
    """Drop data files with only dead columns. Raises `OperationError` for a file without any column."""
    files = fragment.files
    for index in reversed(range(len(files))):
        fields = files[index].fields
        if not fields:
            raise OperationError(f"fragment {fragment.id}: a data file has no field")
        if fields[0] == TOMBSTONE and all(field_id == TOMBSTONE for field_id in fields):
            del files[index]
