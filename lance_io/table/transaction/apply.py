"""The next version of a table: applies a transaction to the current version (spec: commit, section 2.3).

One function per operation edits a draft (`draft.py`). No I/O: callers pass in every manifest that is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance_io.codecs.roaring import decode_roaring
from lance_io.errors import CommitConflictError, OperationError, UnsupportedError
from lance_io.format.schema import LINEAGE_NAMES
from lance_io.format.schema_messages import decode_schema
from lance_io.proto import table_pb2
from lance_io.records import dataclass
from lance_io.table.manifest.fragment import FRAGMENT_ID_MAX, decode_fragment
from lance_io.table.transaction import index_coverage as coverage
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.base_ids import refer_to_base, refer_to_own
from lance_io.table.transaction.column_records import check_record
from lance_io.table.transaction.conflicts import touched_fragments
from lance_io.table.transaction.draft import TOMBSTONE, Creation, Draft, NextVersion
from lance_io.table.transaction.duplicate_names import added_files
from lance_io.table.transaction.effects import effects_of
from lance_io.table.transaction.field_ids import above_mark, check_columns, check_merge, check_project, settle_keys
from lance_io.table.transaction.lineage import stamp_all, stamp_moved, stamp_updated
from lance_io.table.transaction.sibling_names import check_sibling_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lance_io.format.schema import Schema
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.transaction import Transaction

__all__ = ["ConfigMark", "Creation", "NextVersion", "build_manifest"]

_DEFAULT_CREATION: Final = Creation()


@dataclass(frozen=True)
class ConfigMark:
    """A config entry that a version sets beside its operation, unless another writer has set it meanwhile.

    It is not part of the transaction, so that an operation of any kind can set an entry in the same version.

    key, value  the entry; a value of None removes it
    seen        the value that the writer expects to replace, None for no value
    """

    key: str
    value: str | None
    seen: str | None = None


def build_manifest(
    current: Manifest | None,
    transaction: Transaction,
    *,
    timestamp_ns: int,
    version: int | None = None,
    creation: Creation = _DEFAULT_CREATION,
    restored: Manifest | None = None,
    marks: Sequence[ConfigMark] = (),
) -> NextVersion:
    """Build the next version from `current` and a transaction that has been checked for conflicts.

    current       the version to build on, with its index section; None creates the table. For a `Clone`, the cloned
                  version of another table or branch
    timestamp_ns  time of the commit, ns since the epoch
    version       number of the new version, by default the next number
    creation      properties of a new table; an overwrite uses only its data version
    restored      the version that a `Restore` names, with its index section
    marks         config entries to set as well

    Raises `OperationError` for an invalid transaction, `UnsupportedError` for operations that this release does not
    write, `CommitConflictError` if another writer has set an entry of `marks`.
    """
    draft = Draft(current, transaction, creation, version)
    apply = _APPLY.get(type(transaction.operation))
    if apply is None:
        raise UnsupportedError(f"this release does not commit {transaction.name}")
    if current is None and not isinstance(transaction.operation, ops.Overwrite):
        raise OperationError(f"{transaction.name} needs a table to be applied to; a table is created by Overwrite")
    if isinstance(transaction.operation, ops.Restore):
        if restored is None or restored.version != transaction.operation.version:
            raise OperationError(f"the manifest of version {transaction.operation.version} is needed to restore it")
        draft.replace_by(restored)
    added = added_files(current, transaction.operation)
    draft.note_touched(effects_of(transaction.operation))
    apply(draft, transaction.operation)
    for mark in marks:
        _set_mark(draft, mark)
    return draft.finish(timestamp_ns, added)


def _set_mark(draft: Draft, mark: ConfigMark) -> None:
    current = None if draft.current is None else draft.current.message.config.get(mark.key)
    if current != mark.seen:
        raise CommitConflictError(
            f"the config entry {mark.key} was expected to be {mark.seen!r} and is {current!r}: another writer set it",
            retryable=True,
        )
    if mark.value is not None:
        draft.message.config[mark.key] = mark.value
    elif current is not None:
        del draft.message.config[mark.key]


# -- operations ------------------------------------------------------------------------------------------------------


def _append(draft: Draft, _: ops.Append) -> None:
    draft.add_rows(draft.operation_message.fragments)


def _delete(draft: Draft, operation: ops.Delete) -> None:
    draft.update(draft.operation_message.updated_fragments)
    draft.remove(operation.deleted_fragment_ids)


def _overwrite(draft: Draft, operation: ops.Overwrite) -> None:
    message = draft.message
    message.ClearField("fragments")
    draft.extends = False
    draft.indices = []
    message.schema_metadata.clear()
    message.schema_metadata.update(operation.new_schema.metadata)
    message.config.update(operation.config_upsert_values)
    if operation.initial_bases:
        if draft.current is not None:
            raise OperationError("base paths are declared when a table is created, or by UpdateBases")
        _add_bases(message, operation.initial_bases)
    if draft.creation.data_version is not None:
        message.data_format.file_format, message.data_format.version = "lance", draft.creation.data_version.name
    fragments = table_pb2.Manifest(fragments=draft.operation_message.fragments).fragments
    for fragment in fragments:
        fragment.id = 0  # the draft assigns new ids and ignores the writer's
    check_columns(fragments, operation.new_schema)
    schema = draft.operation_message.schema
    draft.set_schema(schema if draft.field_id_mark is None else above_mark(draft.field_id_mark, schema, fragments))
    draft.add_rows(fragments)


def _create_index(draft: Draft, operation: ops.CreateIndex) -> None:
    field_ids = {each.id for each in draft.message.fields}
    unknown = coverage.over_unknown_fields(operation.new_indices, field_ids)
    if unknown:
        raise CommitConflictError(
            f"index {unknown[0].name!r} is over fields {list(unknown[0].fields)}, which the table does not have: its "
            "column may have been dropped or cast meanwhile. Build the index again",
            retryable=True,
        )
    draft.indices = coverage.with_created(draft.indices, operation)


def _rewrite(draft: Draft, operation: ops.Rewrite) -> None:
    message = draft.operation_message
    groups = [(group.old_fragments, group.new_fragments) for group in message.groups]
    if message.old_fragments or message.new_fragments:
        groups.append((message.old_fragments, message.new_fragments))
    draft.remove(fragment.id for old, _ in groups for fragment in old)
    new_ids = [frozenset(fragment.id for fragment in draft.add(new)) for _, new in groups]
    previous_version = draft.version - 1
    draft.indices = coverage.with_rewritten(
        draft.indices, operation, new_ids, stable=draft.has_stable_ids, version=previous_version
    )


def _merge(draft: Draft, operation: ops.Merge) -> None:
    message = draft.message
    before = {fragment.id: fragment.physical_rows for fragment in message.fragments}
    for fragment in operation.fragments:
        if before.get(fragment.id, 0) not in (0, fragment.physical_rows):
            raise OperationError(f"Merge gives fragment {fragment.id} another number of rows")
    missing = before.keys() - {fragment.id for fragment in operation.fragments}
    if missing:
        raise OperationError(f"Merge must list all fragments of the table, but {min(missing)} is missing")
    check_merge(message, draft.operation_message.fragments, draft.operation_message.schema)
    _check_names(draft, operation.schema)
    old = table_pb2.Manifest(fragments=message.fragments).fragments if draft.has_stable_ids else []
    message.ClearField("fragments")
    message.fragments.extend(draft.operation_message.fragments)
    _stamp_merged(draft, old)
    draft.set_schema(draft.operation_message.schema)
    message.schema_metadata.clear()
    message.schema_metadata.update(operation.schema.metadata)


def _stamp_merged(draft: Draft, old: Sequence[table_pb2.DataFragment]) -> None:
    """Record ids and versions of the rows of a Merge; `old` are the fragments of a table with stable row ids before."""
    if not draft.has_stable_ids:
        return
    files = {fragment.id: _paths(fragment) for fragment in old}
    for changed in draft.message.fragments:
        if changed.id not in files:  # rows that a statement adds together with columns
            stamp_moved(changed, draft.version, draft.row_ids.assign(changed), old)
        elif _paths(changed) != files[changed.id]:  # every row has new values
            stamp_all(changed, draft.version)


def _check_names(draft: Draft, schema: Schema) -> None:
    if draft.current is not None:
        check_sibling_names(draft.current.schema, schema)


def _paths(fragment: table_pb2.DataFragment) -> list[str]:
    return [file.path for file in fragment.files]


def _project(draft: Draft, operation: ops.Project) -> None:
    check_project(draft.message.fields, draft.operation_message.schema)
    _check_names(draft, operation.schema)
    draft.set_schema(draft.operation_message.schema)
    kept = {each.id for each in draft.message.fields}
    kept.update(LINEAGE_NAMES)
    for fragment in draft.message.fragments:
        for index in reversed(range(len(fragment.files))):
            if kept.isdisjoint(fragment.files[index].fields):
                del fragment.files[index]


def _restore(_draft: Draft, _: ops.Restore) -> None:
    """Nothing remains to do: `build_manifest` calls `Draft.replace_by` first."""


def _reserve(draft: Draft, operation: ops.ReserveFragments) -> None:
    draft.message.max_fragment_id = min(draft.message.max_fragment_id + operation.num_fragments, FRAGMENT_ID_MAX)


def _update(draft: Draft, operation: ops.Update) -> None:
    touched = touched_fragments(operation)
    sources = [fragment for fragment in draft.message.fragments if fragment.id in touched]
    sources = list(table_pb2.Manifest(fragments=sources).fragments)  # copies from before the update
    draft.update(draft.operation_message.updated_fragments)
    draft.remove(operation.removed_fragment_ids)
    moved = []
    for fragment in draft.add(draft.operation_message.new_fragments):
        if draft.has_stable_ids:
            num_moved = draft.row_ids.assign(fragment)
            stamp_moved(fragment, draft.version, num_moved, sources)
            if num_moved == fragment.physical_rows:
                moved.append(fragment.id)
    if operation.update_mode == "rewrite_rows" and moved:
        draft.indices = coverage.with_moved(draft.indices, operation, moved, touched)
    if operation.fields_modified:  # in any mode
        draft.indices = coverage.without_fragments(draft.indices, operation.fields_modified, touched)
    if operation.update_mode == "rewrite_columns":
        _stamp_columns(draft, operation)


def _stamp_columns(draft: Draft, operation: ops.Update) -> None:
    """Record the rows that were rewritten in place."""
    if not draft.has_stable_ids:
        return
    for fragment in draft.message.fragments:
        bitmap = operation.updated_fragment_offsets.get(fragment.id)
        if bitmap is not None:
            stamp_updated(fragment, draft.version, decode_roaring(bitmap, num_values_max=fragment.physical_rows))


def _update_config(draft: Draft, operation: ops.UpdateConfig) -> None:
    message = draft.message
    draft.extends = draft.extends and not operation.changes_schema
    _apply_map(operation.config_updates, message.config, str)
    _apply_map(operation.table_metadata_updates, message.table_metadata, str)
    _apply_map(operation.schema_metadata_updates, message.schema_metadata, str.encode)
    fields = {each.id: each for each in message.fields}
    for field_id, updates in operation.field_metadata_updates.items():
        if field_id not in fields:
            raise OperationError(f"there is no field with id {field_id} whose metadata could be changed")
        _apply_map(updates, fields[field_id].metadata, str.encode)
    if operation.field_metadata_updates:
        settle_keys(message.fields, operation.field_metadata_updates)
    decode_schema(message.fields, message.schema_metadata)  # raises if the new metadata makes a type invalid


def _apply_map(updates: ops.UpdateMap | None, values: Any, encode: Callable[[str], Any]) -> None:
    if updates is None:
        return
    if updates.replace:
        values.clear()
    for key, value in updates.updates.items():
        if value is not None:
            values[key] = encode(value)
        elif key in values:
            del values[key]


def _replace_data(draft: Draft, operation: ops.DataReplacement) -> None:
    draft.extends = False
    fragments = {fragment.id: fragment for fragment in draft.message.fragments}
    for group in operation.replacements:
        check_record(group.new_file)
    for replacement in draft.operation_message.replacements:
        fragment = fragments.get(replacement.fragment_id)
        if fragment is None:
            raise OperationError(f"there is no fragment {replacement.fragment_id} whose data could be replaced")
        before = _paths(fragment)
        _replace_file(fragment, replacement.new_file)
        draft.touched.append((decode_fragment(fragment), before))
        if draft.has_stable_ids:
            stamp_all(fragment, draft.version)
    for group in operation.replacements:
        draft.indices = coverage.without_fragments(draft.indices, group.new_file.fields, {group.fragment_id})


def _replace_file(fragment: table_pb2.DataFragment, new: table_pb2.DataFile) -> None:
    """Replace the file of the same fields and version; if none, add the file, and mark its fields dead elsewhere."""
    for file in fragment.files:
        same_version = (file.file_major_version, file.file_minor_version) == (
            new.file_major_version,
            new.file_minor_version,
        )
        if same_version and file.fields == new.fields:
            file.CopyFrom(new)
            return
        file.fields[:] = [TOMBSTONE if field_id in new.fields else field_id for field_id in file.fields]
    fragment.files.add().CopyFrom(new)


def _update_bases(draft: Draft, operation: ops.UpdateBases) -> None:
    _add_bases(draft.message, operation.new_bases)


def _clone(draft: Draft, operation: ops.Clone) -> None:
    """Turn the draft, a copy of the cloned version, into a clone: shallow (files stay in place) or deep (copied)."""
    message = draft.message
    draft.extends = False
    if operation.is_shallow:
        base_id = 1 + max((known.id for known in message.base_paths), default=-1)
        draft.indices = refer_to_base(message, draft.indices, base_id)
        base = message.base_paths.add(id=base_id, is_dataset_root=True, path=operation.ref_path)
        if operation.ref_name is not None:
            base.name = operation.ref_name
    else:
        assert draft.current is not None
        holds_blobs = any(field.is_blob_v2 for field in draft.current.schema.walk())  # which may name base paths
        draft.indices = refer_to_own(message, draft.indices, keeps_bases=holds_blobs)
    message.ClearField("branch")
    if operation.branch_name is not None:
        message.branch = operation.branch_name


def _add_bases(message: table_pb2.Manifest, bases: Iterable[Any]) -> None:
    for base in bases:
        taken = {(known.name, known.path) for known in message.base_paths}
        if any(base.path == path or (base.name and base.name == name) for name, path in taken):
            raise OperationError(f"base path {base.name or base.path!r} is declared already")
        base_id = base.id or 1 + max((known.id for known in message.base_paths), default=0)
        if any(known.id == base_id for known in message.base_paths):
            raise OperationError(f"base path id {base_id} is declared already")
        message.base_paths.add(id=base_id, name=base.name, is_dataset_root=base.is_dataset_root, path=base.path)


_APPLY: Final[dict[type, Callable[[Draft, Any], None]]] = {
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
    ops.Clone: _clone,
}
