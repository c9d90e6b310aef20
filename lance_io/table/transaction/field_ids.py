"""Field ids of a table: the ids ever used, and the rules for operations (spec: table, section 7).

A data file names its columns by field id only. Old files still have the id of a dropped field: reusing it for a new
field would bring the old values back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_io.errors import OperationError
from lance_io.format.keys import (
    CLUSTERING_KEY_POSITION,
    PRIMARY_KEY,
    PRIMARY_KEY_POSITION,
    check_primary_key,
    declared_clustering_key,
    declared_primary_key,
)
from lance_io.format.schema_messages import decode_schema, set_keys, stored_primary_key
from lance_io.format.version import V2_1, VERSION_OF_PAIR
from lance_io.proto import file_pb2
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lance_io.format.schema import Schema
    from lance_io.proto import table_pb2
    from lance_io.table.transaction.operations import UpdateMap

FIELD_ID_MAX: Final = (1 << 31) - 1


def max_field_id(manifest: table_pb2.Manifest) -> int:
    """The largest field id that the table is known to have used, -1 for none."""
    mark = manifest.max_allocated_field_id if manifest.HasField("max_allocated_field_id") else -1
    return max(_max_id_in_use(manifest), mark)


def _max_id_in_use(manifest: table_pb2.Manifest) -> int:
    stored = (field_id for fragment in manifest.fragments for file in fragment.files for field_id in file.fields)
    named = (field.id for field in manifest.fields)
    return max(max(stored, default=-1), max(named, default=-1))


def first_free_id(manifest: table_pb2.Manifest) -> int:
    """The id for the table's next new field. Raises `OperationError` if none is left."""
    highest = max_field_id(manifest)
    if highest >= FIELD_ID_MAX:
        raise OperationError(f"no further field id can be allocated because ids up to {highest} are exhausted")
    return highest + 1


# -- ids that are never reused (feature flag 32768): field 24 of the manifest is the highest allocated id --------------


def check_mark(manifest: table_pb2.Manifest) -> None:
    """Raise `OperationError` if the mark of a version (if it has one) is below the ids that it uses."""
    if not manifest.HasField("max_allocated_field_id"):
        return
    mark, used = manifest.max_allocated_field_id, _max_id_in_use(manifest)
    if not used <= mark <= FIELD_ID_MAX:
        raise OperationError(
            f"non-reusable field-ID high-water mark {mark} is below referenced field ID {used}, or above the highest "
            f"id that there can be, {FIELD_ID_MAX}"
        )


def raise_mark(manifest: table_pb2.Manifest, mark: int, fragments: Iterable[table_pb2.DataFragment]) -> None:
    """Set the mark of a version under construction.

    mark       of the previous version
    fragments  the new and changed fragments
    Raises `OperationError` for a column whose field id is neither in the schema nor was ever allocated.
    """
    named = {field.id for field in manifest.fields}
    for fragment in fragments:
        for file in fragment.files:
            unknown = [field_id for field_id in file.fields if field_id > mark and field_id not in named]
            if unknown:
                raise OperationError(
                    f"data file {file.path} references the new field ID {unknown[0]}, which the schema does not have"
                )
    manifest.max_allocated_field_id = max(mark, max(named, default=0))


def above_mark(
    mark: int, fields: Iterable[file_pb2.Field], fragments: Iterable[table_pb2.DataFragment]
) -> list[file_pb2.Field]:
    """The fields of a schema that replaces another, renumbered in order from above the mark unless all are above it.

    fragments  whose files name the fields by id; these ids are changed likewise
    Raises `OperationError` if not enough ids are left.
    """
    fields = list(fields)
    if all(field.id > mark for field in fields):
        return fields
    if mark + len(fields) > FIELD_ID_MAX:
        raise OperationError(f"no further field id can be allocated because ids up to {mark} are exhausted")
    new_ids = {field.id: number for number, field in enumerate(fields, mark + 1)}
    renumbered = []
    for field in fields:
        copy = file_pb2.Field()
        copy.CopyFrom(field)
        copy.id = new_ids[field.id]
        copy.parent_id = new_ids.get(field.parent_id, field.parent_id)
        renumbered.append(copy)
    for fragment in fragments:
        for file in fragment.files:
            file.fields[:] = [new_ids.get(field_id, field_id) for field_id in file.fields]
    return renumbered


def check_merge(
    manifest: table_pb2.Manifest,
    fragments: Sequence[table_pb2.DataFragment],
    fields: Iterable[file_pb2.Field],
) -> None:
    """Check the schema of a Merge against the version that it is applied to.

    fragments, fields  of the Merge
    Raises `OperationError` for a new field with a used id, for a field that moves to another parent, and for another
    type or nullability of a field whose values stay.
    """
    before = {field.id: field for field in manifest.fields}
    used = max_field_id(manifest)
    kept = _ids_in_old_files(manifest.fragments, fragments)
    for field in fields:
        old = before.get(field.id)
        if old is None:
            if field.id <= used:
                raise OperationError(
                    f'Merge gives id {field.id} to the new field "{field.name}", but ids up to {used} are already used '
                    f"by current or dropped fields. New fields must use ids of at least {used + 1}"
                )
        elif old.parent_id != field.parent_id:
            raise OperationError(
                f'Merge moves field id {field.id} ("{field.name}") to another parent. '
                "Derive the schema from that of the table instead of numbering its fields again"
            )
        elif field.id in kept and (old.logical_type, old.nullable) != (field.logical_type, field.nullable):
            raise OperationError(
                f'Merge changes field id {field.id} ("{field.name}") from {_describe(old)} to {_describe(field)}, '
                "but data files keep its values. Give it a new id, and write it again in every fragment"
            )


def check_project(before: Iterable[file_pb2.Field], after: Iterable[file_pb2.Field]) -> None:
    """Raise `OperationError` for a field of a Project's schema that the table does not have, or has with another type.

    A Project keeps, orders and renames fields and writes no data: such a field would have no values, and fragments
    without any column cannot be read.
    """
    known = {field.id: field for field in before}
    after = list(after)
    if known and not after:
        raise OperationError("Project names no field, and a table without columns cannot be read. Name one to keep")
    for field in after:
        old = known.get(field.id)
        if old is None or old.logical_type != field.logical_type:
            columns = [column for column in known.values() if column.parent_id < 0]
            names = ", ".join(f"{column.name} ({column.logical_type})" for column in columns)
            raise OperationError(
                f'Project names "{field.name}" of type {field.logical_type}, which is no field of the table. '
                f"Its columns are {names}; new ones come by Merge or add_columns, other types by alter_columns"
            )


def check_columns(fragments: Iterable[table_pb2.DataFragment], schema: Schema) -> None:
    """Check the fragments of an operation against its schema.

    Raises `OperationError` for a file with a column that the schema does not have, and for a fragment that lacks a
    column that must not be null; other missing columns are null.
    """
    leaves = {field.id for field in schema.leaves()}
    all_ids = {field.id for field in schema.walk()}
    required = [(top, {field.id for field in top.walk()}) for top in schema.fields if not top.nullable]
    for fragment in fragments:
        here = {field_id for file in fragment.files for field_id in file.fields}
        for top, ids in required:
            if ids.isdisjoint(here):
                raise OperationError(
                    f'a fragment ({", ".join(file.path for file in fragment.files)}) has no column "{top.name}", which '
                    "the schema that is committed with it does not let be null. Write it, or make the field nullable"
                )
        for file in fragment.files:
            version = VERSION_OF_PAIR[file.file_major_version, file.file_minor_version]
            known = leaves if version >= V2_1 else all_ids
            unknown = sorted(field_id for field_id in file.fields if field_id >= 0 and field_id not in known)
            if unknown:
                raise OperationError(
                    f"{file.path} has columns of the field ids {unknown}, which are not in the schema that is "
                    "committed with it. Use the schema that the fragments were written with"
                )


def _ids_in_old_files(old: Iterable[table_pb2.DataFragment], new: Iterable[table_pb2.DataFragment]) -> set[int]:
    """Field ids in data files that a table had and keeps; files do not list parents of their columns."""
    paths = {file.path for fragment in old for file in fragment.files}
    kept = [file for fragment in new for file in fragment.files if file.path in paths]
    return {field_id for file in kept for field_id in file.fields}


def _describe(field: file_pb2.Field) -> str:
    return f"{'nullable' if field.nullable else 'required'} {field.logical_type}"


# -- declared keys under changes of field metadata: once set, they stay (spec: table, section 2.5) ---------------------
#
# A table gets its primary key, and its clustering key, at creation or by one change of metadata. From then on only a
# complete new schema (Overwrite, Merge, Project) can change them, since existing data relies on the first key.


@dataclass(frozen=True)
class _Key:
    """name, hint: for errors. entries: the metadata entries that declare the key."""

    name: str
    entries: frozenset[str]
    hint: str


_PRIMARY: Final = _Key("primary key", frozenset({PRIMARY_KEY, PRIMARY_KEY_POSITION}), "Give a position, or 'true'")
_CLUSTERING: Final = _Key("clustering key", frozenset({CLUSTERING_KEY_POSITION}), "Give a position, from '1' on")


def settle_keys(fields: Sequence[file_pb2.Field], updates: Mapping[int, UpdateMap]) -> None:
    """Store the keys that the new metadata of updated fields declares.

    fields   all fields of the table, with their new metadata but the old keys
    updates  the changes, by field id

    Raises `OperationError` for a change of the table's key, and for entries that declare no key; `PrimaryKeyError` for
    an invalid primary key.
    """
    named = {name for update in updates.values() for name in update.updates}
    changed = [field for field in fields if field.id in updates]
    primary = {field.id: stored_primary_key(field) for field in fields}
    new_primary = primary | {field.id: declared_primary_key(field.metadata) for field in changed}
    _check(_PRIMARY, named, had=_any(primary), has=_any(new_primary), changes=new_primary != primary)
    clustering = {field.id: field.unenforced_clustering_key_position or None for field in fields}
    declared = {field.id: declared_clustering_key(field.metadata) for field in changed}
    new_clustering = clustering | {field_id: position or None for field_id, position in declared.items()}
    # Position 0 may be declared, although nothing is stored for it.
    has_clustering = _any(new_clustering) or _any(declared)
    _check(_CLUSTERING, named, had=_any(clustering), has=has_clustering, changes=new_clustering != clustering)
    for field in changed:
        set_keys(field, new_primary[field.id], new_clustering[field.id])
    if new_primary != primary:
        check_primary_key(decode_schema(fields, {}))


def _any(positions: Mapping[int, int | None]) -> bool:
    return any(position is not None for position in positions.values())


def _check(key: _Key, named: Collection[str], *, had: bool, has: bool, changes: bool) -> None:
    """Raise unless updates of the metadata entries `named` may change a key like this.

    had, has  whether any field was part of the key before, and is now
    changes   whether the key differs
    """
    given = sorted(key.entries.intersection(named))
    if had and (given or changes):
        raise OperationError(
            f"the unenforced {key.name} is a reserved key and cannot be changed once set: leave "
            f"{' and '.join(sorted(key.entries))} out of the updates, and do not replace all metadata of its fields"
        )
    if given and not has:
        raise OperationError(
            f"the unenforced {key.name} is a reserved key and cannot be set to an invalid value: with these "
            f"{' and '.join(given)} no field is part of it. {key.hint}"
        )
