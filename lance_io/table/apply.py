"""The next version of a table: what a transaction makes of the current one (spec: commit, section 2.3).

Manifests are edited as messages: the current one is copied, and so is every fragment and field that a transaction
brings, hence what other writers put there and we do not know survives. Nothing is read here but what is handed in.

    start     copy of the current manifest, or an empty one for a table that is created
    operation one function each, below
    finish    fragments sorted, dead files dropped, high-water marks raised, feature flags set anew
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UnsupportedError, UsageError
from lance_io.format.schema_messages import decode_schema
from lance_io.format.version import V0_1, V2_2, FileVersion, version_of_name, version_of_pair
from lance_io.proto import table_pb2
from lance_io.table import coverage
from lance_io.table import operations as ops
from lance_io.table.flags import check_writer_flags, next_flags
from lance_io.table.fragment import FRAGMENT_ID_MAX
from lance_io.table.indices import IndexMetadata, decode_indices, encode_indices
from lance_io.table.lineage import RowIdCounter, stamp_all, stamp_moved, stamp_new, stamp_updated
from lance_io.table.roaring import decode_roaring
from lance_io.table.transaction import Transaction, encode_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lance_io.proto import transaction_pb2
    from lance_io.table.manifest import Manifest

WRITER: Final = ("lance_io", "0.1.0")  # library and version, which must be three numbers
TOMBSTONE: Final = -2  # field id of a dead column
_PRIMARY_KEY: Final = "lance-schema:unenforced-primary-key"


@dataclass(frozen=True)
class Creation:
    """What only the creation of a table decides.

    data_version    file version of the data; None takes that of the files, or the default
    stable_row_ids  whether rows keep their ids as they move
    """

    data_version: FileVersion | None = None
    stable_row_ids: bool = False


@dataclass(frozen=True)
class NextVersion:
    """A version that is to be committed.

    message        the manifest, without the offsets of its sections
    index_section  content of the index section, None without indices
    transaction    message of the transaction that made it
    extended       the version that it is built on, if schema and fragments of that are the beginning of its own
    """

    message: table_pb2.Manifest
    index_section: bytes | None
    transaction: transaction_pb2.Transaction
    extended: Manifest | None = None


def build_manifest(
    current: Manifest | None,
    transaction: Transaction,
    *,
    timestamp_ns: int,
    version: int | None = None,
    creation: Creation = Creation(),
    restored: Manifest | None = None,
) -> NextVersion:
    """The version that a transaction makes of `current`, which has been checked for conflicts.

    current       the version to build on, with its index section; None creates the table
    timestamp_ns  time of the commit, ns since the epoch
    version       number of the new version, by default the next one
    creation      used when a table is created; its data version also when one is overwritten
    restored      the version that a `Restore` names, with its index section

    Raises `UsageError` for a transaction that cannot be, `UnsupportedError` for what this release does not write.
    """
    draft = _Draft(current, transaction, creation, version)
    apply = _APPLY.get(type(transaction.operation))
    if apply is None:
        raise UnsupportedError(f"this release does not commit {transaction.name}")
    if current is None and not isinstance(transaction.operation, ops.Overwrite):
        raise UsageError(f"{transaction.name} needs a table to be applied to; a table is created by Overwrite")
    if isinstance(transaction.operation, ops.Restore):
        if restored is None or restored.version != transaction.operation.version:
            raise UsageError(f"the manifest of version {transaction.operation.version} is needed to restore it")
        draft.replace_by(restored)
    apply(draft, transaction.operation)
    return draft.finish(timestamp_ns)


def carried_section(manifest: Manifest) -> bytes | None:
    """The index section of a manifest that is built on. Raises `UsageError` when it was not read with it."""
    if manifest.index_offset is not None and manifest.index_section is None:
        raise UsageError(f"version {manifest.version} has an index section, which is needed to build on it")
    return manifest.index_section


class _Draft:
    """A manifest under construction.

    message    the manifest; operation: what the transaction's message holds, to copy from
    stable     whether the table has stable row ids
    extends    whether schema and fragments of the current version are untouched so far
    """

    def __init__(
        self, current: Manifest | None, transaction: Transaction, creation: Creation, version: int | None
    ) -> None:
        self.transaction = transaction
        self.transaction_message = encode_transaction(transaction)
        name = self.transaction_message.WhichOneof("operation")
        self.operation: Any = None if name is None else getattr(self.transaction_message, name)
        self.message = table_pb2.Manifest()
        self.creation = creation
        self.current = current
        self.extends = current is not None
        self._new: list[table_pb2.DataFragment] = []
        self._section: bytes | None = None
        self._indices: list[IndexMetadata] | None = None
        if current is not None:
            _check_writable(current)
            self.message.CopyFrom(current.message)
            self._section = carried_section(current)
        self.stable = creation.stable_row_ids if current is None else current.has_stable_row_ids
        self.version = version if version is not None else 1 if current is None else current.version + 1
        self.row_ids = RowIdCounter(self.message.next_row_id)
        self._next_fragment_id = _next_fragment_id(self.message)

    def replace_by(self, restored: Manifest) -> None:
        """Take the content of an earlier version; what was given out stays given out."""
        _check_writable(restored)
        self.extends = False
        next_row_id, next_fragment_id = self.message.next_row_id, self._next_fragment_id
        self.message.CopyFrom(restored.message)
        self._section = carried_section(restored)
        self.row_ids = RowIdCounter(max(next_row_id, self.message.next_row_id))
        if next_fragment_id:
            self.message.max_fragment_id = max(next_fragment_id - 1, _next_fragment_id(self.message) - 1)
        self.stable = restored.has_stable_row_ids

    # -- fragments ---------------------------------------------------------------------------------------------------

    def add(self, fragments: Iterable[table_pb2.DataFragment]) -> list[table_pb2.DataFragment]:
        """Add new fragments, numbered if they are not yet; gives them as they are in the manifest."""
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
                raise UsageError("a new fragment does not say how many rows it has")
            if self.stable:
                self.row_ids.assign(fragment)
                stamp_new(fragment, self.version)

    def remove(self, fragment_ids: Iterable[int]) -> None:
        """Remove fragments. Raises `UsageError` for one that is not there."""
        gone = set(fragment_ids)
        if not gone:
            return
        self.extends = False
        kept = [fragment for fragment in self.message.fragments if fragment.id not in gone]
        if len(kept) > len(self.message.fragments) - len(gone):
            missing = gone - {fragment.id for fragment in self.message.fragments}
            raise UsageError(f"{self.transaction.name} removes fragment {min(missing)}, which the table does not have")
        self._set_fragments(kept)

    def update(self, fragments: Iterable[table_pb2.DataFragment]) -> None:
        """Replace fragments by those of the same id. Raises `UsageError` for one that is not there."""
        new = {fragment.id: fragment for fragment in fragments}
        self.extends = self.extends and not new
        for fragment in self.message.fragments:
            if fragment.id in new:
                fragment.CopyFrom(new.pop(fragment.id))
        if new:
            raise UsageError(f"{self.transaction.name} changes fragment {min(new)}, which the table does not have")

    def _set_fragments(self, fragments: Sequence[table_pb2.DataFragment]) -> None:
        self.extends = False
        copies = table_pb2.Manifest(fragments=fragments)
        self.message.ClearField("fragments")
        self.message.MergeFrom(copies)

    # -- indices -----------------------------------------------------------------------------------------------------

    @property
    def indices(self) -> list[IndexMetadata]:
        """The entries of the index section; setting them marks them as changed."""
        if self._indices is None:
            return decode_indices(self._section) if self._section is not None else []
        return self._indices

    @indices.setter
    def indices(self, entries: list[IndexMetadata]) -> None:
        self._indices = entries

    def keep_indices_of_fields(self) -> None:
        """Drop the entries of fields that the schema no longer has."""
        if self._section is not None or self._indices is not None:
            field_ids = {each.id for each in self.message.fields}
            self.indices = coverage.with_known_fields(self.indices, field_ids)

    def set_schema(self, fields: Iterable[Any]) -> None:
        """Replace the fields, as the transaction has them."""
        self.extends = False
        self.message.ClearField("fields")
        self.message.fields.extend(fields)
        highest = max((each.id for each in self.message.fields), default=0)
        if self.message.max_allocated_field_id:
            self.message.max_allocated_field_id = max(highest, self.message.max_allocated_field_id)

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self, timestamp_ns: int) -> NextVersion:
        """Bring everything into its final form, and check it."""
        message = self.message
        self._settle_fragments()
        section = self._section if self._indices is None else encode_indices(self._indices) or None
        message.version = self.version
        message.timestamp.seconds, message.timestamp.nanos = divmod(timestamp_ns, 1_000_000_000)
        message.transaction_file = self.transaction.file_name
        message.tag = self.transaction.tag
        message.writer_version.Clear()
        message.writer_version.library, message.writer_version.version = WRITER
        if self.stable:
            message.next_row_id = self.row_ids.next_id
        for offset in ("index_section", "transaction_section", "transaction_section_before_v14"):
            message.ClearField(offset)
        covered = section is not None and any(index.covering_fields for index in decode_indices(section))
        self._set_flags(covered=covered)
        return NextVersion(message, section, self.transaction_message, self.current if self.extends else None)

    def _settle_fragments(self) -> None:
        changed = self._new if self.extends else self.message.fragments[:]
        for fragment in changed:
            _drop_dead_files(fragment)
        if any(_is_empty(fragment) for fragment in changed):
            self._set_fragments([fragment for fragment in self.message.fragments if not _is_empty(fragment)])
        ids = [fragment.id for fragment in self.message.fragments[:]]
        if ids != sorted(ids):
            self.extends = False
            self.message.fragments.sort(key=lambda fragment: fragment.id)
        if len(set(ids)) < len(ids):
            twice = next(one for place, one in enumerate(ids) if one in ids[:place])
            raise UsageError(f"{self.transaction.name} would produce two fragments with id {twice}")
        highest = max([*ids, self._next_fragment_id - 1])
        if highest > FRAGMENT_ID_MAX:
            raise UsageError(f"the table ran out of fragment ids: {highest} needs more than 32 bits")
        if highest >= 0:
            self.message.max_fragment_id = max(highest, self.message.max_fragment_id)

    def _set_flags(self, *, covered: bool) -> None:
        message = self.message
        versions = _file_versions(self._new if self.extends else message.fragments[:])
        if self.extends and self.current is not None:
            versions |= {version_of_pair(*pair) for pair in self.current.fragments.version_pairs}
        if not message.HasField("data_format"):
            message.data_format.file_format = "lance"
            message.data_format.version = self._data_version(versions).name
        mixed = bool(versions - {version_of_name(message.data_format.version)})
        if mixed and V0_1 in versions | {version_of_name(message.data_format.version)}:
            raise UsageError("data files of version 0.1 and of 2.x cannot be in one table")
        message.reader_feature_flags, message.writer_feature_flags = next_flags(
            message, stable_row_ids=self.stable, covered_index=covered, mixed_versions=mixed
        )

    def _data_version(self, versions: set[FileVersion]) -> FileVersion:
        if self.current is not None:
            return self.current.data_version
        return self.creation.data_version or max(versions, default=V2_2)


def _check_writable(manifest: Manifest) -> None:
    check_writer_flags(manifest.reader_flags, manifest.writer_flags)
    if manifest.data_version == V0_1 and any(each.HasField("dictionary") for each in manifest.message.fields):
        raise UnsupportedError("dictionary columns of file version 0.1 keep their values in the manifest: not written")


def _next_fragment_id(message: table_pb2.Manifest) -> int:
    highest = max([fragment.id for fragment in message.fragments[:]], default=-1)
    return 1 + max(highest, message.max_fragment_id if message.HasField("max_fragment_id") else -1)


def _file_versions(fragments: Iterable[table_pb2.DataFragment]) -> set[FileVersion]:
    pairs = {(file.file_major_version, file.file_minor_version) for fragment in fragments for file in fragment.files[:]}
    return {version_of_pair(*pair) for pair in pairs}


def _is_empty(fragment: table_pb2.DataFragment) -> bool:
    """Whether all rows of a fragment are deleted."""
    return 0 < fragment.physical_rows == fragment.deletion_file.num_deleted_rows


def _drop_dead_files(fragment: table_pb2.DataFragment) -> None:
    """Drop the data files of which all columns are dead; complain about files without any column."""
    files = fragment.files
    for place in reversed(range(len(files))):
        fields = files[place].fields
        if not fields:
            raise UsageError(f"fragment {fragment.id}: a data file has no field")
        if fields[0] == TOMBSTONE and all(one == TOMBSTONE for one in fields):
            del files[place]


# -- operations ------------------------------------------------------------------------------------------------------


def _append(draft: _Draft, _: ops.Append) -> None:
    draft.add_rows(draft.operation.fragments)


def _delete(draft: _Draft, operation: ops.Delete) -> None:
    draft.update(draft.operation.updated_fragments)
    draft.remove(operation.deleted_fragment_ids)
    draft.keep_indices_of_fields()


def _overwrite(draft: _Draft, operation: ops.Overwrite) -> None:
    message = draft.message
    message.ClearField("fragments")
    draft.extends = False
    draft.indices = []
    draft.set_schema(draft.operation.schema)
    message.schema_metadata.clear()
    message.schema_metadata.update(operation.schema.metadata)
    message.config.update(operation.config_upserts)
    if operation.initial_bases:
        if draft.current is not None:
            raise UsageError("base paths are declared when a table is created, or by UpdateBases")
        _add_bases(message, operation.initial_bases)
    if draft.creation.data_version is not None:
        message.data_format.file_format, message.data_format.version = "lance", draft.creation.data_version.name
    fragments = table_pb2.Manifest(fragments=draft.operation.fragments).fragments
    for fragment in fragments:
        fragment.id = 0  # numbered anew, whatever the writer thought
    draft.add_rows(fragments)


def _create_index(draft: _Draft, operation: ops.CreateIndex) -> None:
    draft.indices = coverage.with_created(draft.indices, operation)


def _rewrite(draft: _Draft, operation: ops.Rewrite) -> None:
    message = draft.operation
    groups = [(group.old_fragments, group.new_fragments) for group in message.groups]
    if message.old_fragments or message.new_fragments:
        groups.append((message.old_fragments, message.new_fragments))
    draft.remove(fragment.id for old, _ in groups for fragment in old)
    new_ids = [frozenset(fragment.id for fragment in draft.add(new)) for _, new in groups]
    draft.indices = coverage.with_rewritten(draft.indices, operation, new_ids, stable=draft.stable)


def _merge(draft: _Draft, operation: ops.Merge) -> None:
    message = draft.message
    before = {fragment.id: fragment.physical_rows for fragment in message.fragments}
    for fragment in operation.fragments:
        if before.get(fragment.id, 0) not in (0, fragment.physical_rows):
            raise UsageError(f"Merge gives fragment {fragment.id} another number of rows")
    missing = before.keys() - {fragment.id for fragment in operation.fragments}
    if missing:
        raise UsageError(f"Merge must list all fragments of the table, but {min(missing)} is missing")
    files = {fragment.id: _paths(fragment) for fragment in message.fragments}
    message.ClearField("fragments")
    message.fragments.extend(draft.operation.fragments)
    if draft.stable:
        for changed in message.fragments:
            if _paths(changed) != files.get(changed.id):  # every row got values
                stamp_all(changed, draft.version)
    draft.set_schema(draft.operation.schema)
    message.schema_metadata.clear()
    message.schema_metadata.update(operation.schema.metadata)
    draft.keep_indices_of_fields()


def _paths(fragment: table_pb2.DataFragment) -> list[str]:
    return [file.path for file in fragment.files]


def _project(draft: _Draft, _: ops.Project) -> None:
    draft.set_schema(draft.operation.schema)
    kept = {each.id for each in draft.message.fields}
    for fragment in draft.message.fragments:
        for place in reversed(range(len(fragment.files))):
            if kept.isdisjoint(fragment.files[place].fields):
                del fragment.files[place]
    draft.keep_indices_of_fields()


def _restore(_draft: _Draft, _: ops.Restore) -> None:
    """Done by `replace_by`."""


def _reserve(draft: _Draft, operation: ops.ReserveFragments) -> None:
    draft.message.max_fragment_id = min(draft.message.max_fragment_id + operation.num_fragments, FRAGMENT_ID_MAX)


def _update(draft: _Draft, operation: ops.Update) -> None:
    touched = {fragment.id for fragment in operation.updated_fragments}.union(operation.removed_fragment_ids)
    sources = [fragment for fragment in draft.message.fragments if fragment.id in touched]
    sources = list(table_pb2.Manifest(fragments=sources).fragments)  # as they are before the update
    draft.update(draft.operation.updated_fragments)
    draft.remove(operation.removed_fragment_ids)
    for fragment in draft.add(draft.operation.new_fragments):
        if draft.stable:
            num_moved = draft.row_ids.assign(fragment)
            stamp_moved(fragment, draft.version, num_moved, sources)
    draft.keep_indices_of_fields()
    if operation.mode == "rewrite_columns":
        draft.indices = coverage.without_fragments(draft.indices, operation.fields_modified, touched)
        _stamp_columns(draft, operation)


def _stamp_columns(draft: _Draft, operation: ops.Update) -> None:
    """Record which rows were rewritten in place."""
    if not draft.stable:
        return
    for fragment in draft.message.fragments:
        bitmap = operation.updated_offsets.get(fragment.id)
        if bitmap is not None:
            stamp_updated(fragment, draft.version, decode_roaring(bitmap, num_values_max=fragment.physical_rows))


def _update_config(draft: _Draft, operation: ops.UpdateConfig) -> None:
    message = draft.message
    draft.extends = draft.extends and not operation.changes_schema
    _apply_map(operation.config, message.config, str)
    _apply_map(operation.table_metadata, message.table_metadata, str)
    _apply_map(operation.schema_metadata, message.schema_metadata, str.encode)
    fields = {each.id: each for each in message.fields}
    for field_id, updates in operation.field_metadata.items():
        if field_id not in fields:
            raise UsageError(f"there is no field with id {field_id} whose metadata could be changed")
        metadata = fields[field_id].metadata
        _apply_map(updates, metadata, str.encode)
        if _PRIMARY_KEY in updates.entries or updates.replace:
            fields[field_id].unenforced_primary_key = metadata.get(_PRIMARY_KEY, b"").lower() == b"true"
    decode_schema(message.fields, message.schema_metadata)  # raises when metadata made a type impossible


def _apply_map(updates: ops.UpdateMap | None, values: Any, encode: Callable[[str], Any]) -> None:
    if updates is None:
        return
    if updates.replace:
        values.clear()
    for key, value in updates.entries.items():
        if value is not None:
            values[key] = encode(value)
        elif key in values:
            del values[key]


def _replace_data(draft: _Draft, operation: ops.DataReplacement) -> None:
    draft.extends = False
    fragments = {fragment.id: fragment for fragment in draft.message.fragments}
    for replacement in draft.operation.replacements:
        fragment = fragments.get(replacement.fragment_id)
        if fragment is None:
            raise UsageError(f"there is no fragment {replacement.fragment_id} whose data could be replaced")
        _replace_file(fragment, replacement.new_file)
        if draft.stable:
            stamp_all(fragment, draft.version)
    for fragment_id, file in operation.replacements:
        draft.indices = coverage.without_fragments(draft.indices, file.fields, {fragment_id})


def _replace_file(fragment: table_pb2.DataFragment, new: table_pb2.DataFile) -> None:
    """Put a file in the place of the one with its fields, or beside files whose columns of them die."""
    for file in fragment.files:
        same_version = (file.file_major_version, file.file_minor_version) == (
            new.file_major_version,
            new.file_minor_version,
        )
        if same_version and file.fields == new.fields:
            file.CopyFrom(new)
            return
        file.fields[:] = [TOMBSTONE if one in new.fields else one for one in file.fields]
    fragment.files.add().CopyFrom(new)


def _update_bases(draft: _Draft, operation: ops.UpdateBases) -> None:
    _add_bases(draft.message, operation.new_bases)


def _add_bases(message: table_pb2.Manifest, bases: Iterable[Any]) -> None:
    for base in bases:
        taken = {(one.name, one.path) for one in message.base_paths}
        if any(base.path == path or (base.name and base.name == name) for name, path in taken):
            raise UsageError(f"base path {base.name or base.path!r} is declared already")
        base_id = base.id or 1 + max((one.id for one in message.base_paths), default=0)
        if any(one.id == base_id for one in message.base_paths):
            raise UsageError(f"base path id {base_id} is declared already")
        message.base_paths.add(id=base_id, name=base.name, is_dataset_root=base.is_dataset_root, path=base.path)


_APPLY: Final[dict[type, Callable[[_Draft, Any], None]]] = {
    ops.Append: _append,
    ops.Delete: _delete,
    ops.Overwrite: _overwrite,
    ops.CreateIndex: _create_index,
    ops.Rewrite: _rewrite,
    ops.Merge: _merge,
    ops.Restore: _restore,
    ops.ReserveFragments: _reserve,
    ops.Update: _update,
    ops.Project: _project,
    ops.UpdateConfig: _update_config,
    ops.DataReplacement: _replace_data,
    ops.UpdateBases: _update_bases,
}
