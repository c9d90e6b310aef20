"""Checks that the data files of a prepared operation have the columns which their records name.

    fragments of an operation -> files that its base version does not have -> one file of each distinct layout
        written by this process: known without a request
        by others: opened, in parallel to the first round of the commit

The consistency of the records is checked when the next version is built (`table/transaction/column_records.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.changes.write.written_files import written_columns
from lance_io.errors import NotFound, OperationError
from lance_io.file.open.data_file import OpenedFile
from lance_io.file.open.file_source import DEAD, FileRef, ReadContext
from lance_io.format.version import READABLE, V0_1
from lance_io.levels.path import leaf_paths
from lance_io.plans.plan import Together
from lance_io.reads.checks.validation import open_file
from lance_io.table.manifest.paths import DATA, check_relative
from lance_io.table.transaction import operations as ops
from lance_io.table.transaction.column_records import check_record
from lance_io.table.transaction.effects import effects_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lance_io.changes.write.write_rows import WriteTarget
    from lance_io.levels.path import LeafPath
    from lance_io.plans.plan import Plan
    from lance_io.table.manifest.fragment import DataFile
    from lance_io.table.manifest.manifest import Manifest


def check_columns_of_files(target: WriteTarget, operation: ops.Operation, base: Manifest | None) -> list[Plan[None]]:
    """Plans that check the new files of an operation; empty if there is nothing to check.

    base  the open or newest version, None if the operation creates the table

    These raise `OperationError` for a record that contradicts itself, names a column that its file does not have, or
    names one whose type differs from the schema's field of that id. Not checked are files in base paths, files of
    version 0.1, which store no types, files of unreadable versions, and missing files (of a transaction that is
    committed again).
    """
    schema = operation.new_schema if isinstance(operation, ops.Overwrite) else getattr(operation, "schema", None)
    schema = schema or (None if base is None else base.schema)
    files = {
        (file.version, file.fields, file.column_indices): file
        for file in reversed([*_new_files(operation, base)])
        if file.base_id is None and file.version in READABLE - {V0_1}
    }
    if schema is None or not files:
        return []
    wanted = {path.leaf.id: path for field in schema.fields for path in leaf_paths(field)}
    plans = []
    for file in files.values():
        check_record(file)
        known = written_columns(
            target.location.store, target.location.key(DATA, check_relative(file.path, "data file"))
        )
        if known is not None:
            _check_columns(file, known, wanted)
        else:
            plans.append(_check_file(target, file, wanted))
    return [_all_of(plans)] if plans else []


def _all_of(plans: list[Plan[None]]) -> Plan[None]:
    yield Together(plans)


def _new_files(operation: ops.Operation, base: Manifest | None) -> Iterator[DataFile]:
    """Files that an operation adds."""
    effects = effects_of(operation)
    yield from effects.new_rows
    yield from (replaced.new_file for replaced in effects.replaced)
    changed = [*effects.restated]
    if not changed or base is None:
        return
    ids = {fragment.id for fragment in changed}
    before = {
        file.path
        for index, fragment_id in enumerate(base.fragments.ids)
        if fragment_id in ids
        for file in base.stored.fragments[index].files
    }
    yield from (file for fragment in changed for file in fragment.files if file.path not in before)


def _check_file(target: WriteTarget, file: DataFile, wanted: Mapping[int, LeafPath]) -> Plan[None]:
    context = ReadContext(target.location.store, target.session.cache, shared=target.session.io_scheduler)
    key = target.location.key(DATA, check_relative(file.path, "data file"))
    try:
        opened = yield from open_file(context, FileRef(key, file.size_bytes or 0, (), ()))
    except NotFound:
        return
    assert isinstance(opened, OpenedFile), "files of version 0.1 are not checked"
    _check_columns(file, opened.paths, wanted)


def _check_columns(file: DataFile, paths: Sequence[LeafPath], wanted: Mapping[int, LeafPath]) -> None:
    """Compare a record with the columns of its file."""
    for field_id, column in zip(file.fields, file.column_indices, strict=True):
        if field_id <= DEAD or column == -1:
            continue
        if not 0 <= column < len(paths):
            raise OperationError(
                f"{file.path}: field {field_id} is said to be column {column}, but the file has {len(paths)} columns. "
                "Use the record that its writer returned, or `lance_io.fragment.DataFile.create`"
            )
        declared = wanted.get(field_id)
        if declared is not None and paths[column].as_declared(declared) is None:
            path = paths[column]
            raise OperationError(
                f'{file.path}: column {column} ("{path.leaf.name}") holds {path.skeleton}, but field {field_id} of the '
                f"schema that is committed with it is {declared.skeleton}. Use the schema that the fragments were "
                "written with, with its columns in their order"
            )
