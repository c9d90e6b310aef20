"""Whether the data files of an operation that a caller prepared have the columns which their records name.

    fragments of an operation -> files that the version it is applied to does not have -> one of each distinct layout
        written by this process: known without a request
        by others: opened, beside the first round of the commit

What records say among themselves is checked when the next version is built (`table/transaction/column_records.py`).
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
    """Plans that look at the new files of an operation; none where there is nothing to look at.

    base  the version that is at hand, None where the operation creates the table

    Raises `OperationError`, as they do, for a record with a column that its file does not have, or has with another
    type than the schema's field of that id, and for one that contradicts itself. Passed over are files in base paths,
    of version 0.1, which says nothing of types, of versions that are not read, and files that are not there any more
    (of a transaction that is committed again).
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
            plans.append(_look_into(target, file, wanted))
    return [_all_of(plans)] if plans else []


def _all_of(plans: list[Plan[None]]) -> Plan[None]:
    yield Together(plans)


def _new_files(operation: ops.Operation, base: Manifest | None) -> Iterator[DataFile]:
    """Files that an operation adds."""
    effects = effects_of(operation)
    yield from effects.new_rows
    yield from (one.new_file for one in effects.replaced)
    changed = [*effects.restated]
    if not changed or base is None:
        return
    ids = {fragment.id for fragment in changed}
    before = {
        file.path
        for place, one in enumerate(base.fragments.ids)
        if one in ids
        for file in base.stored.fragments[place].files
    }
    yield from (file for fragment in changed for file in fragment.files if file.path not in before)


def _look_into(target: WriteTarget, file: DataFile, wanted: Mapping[int, LeafPath]) -> Plan[None]:
    context = ReadContext(target.location.store, target.session.cache, shared=target.session.io_scheduler)
    key = target.location.key(DATA, check_relative(file.path, "data file"))
    try:
        found = yield from open_file(context, FileRef(key, file.size_bytes or 0, (), ()))
    except NotFound:
        return
    assert isinstance(found, OpenedFile), "those of version 0.1 are passed over"
    _check_columns(file, found.paths, wanted)


def _check_columns(file: DataFile, paths: Sequence[LeafPath], wanted: Mapping[int, LeafPath]) -> None:
    """Compare a record with the columns of its file."""
    for field_id, column in zip(file.fields, file.column_indices, strict=True):
        if field_id <= DEAD or column == -1:
            continue
        if not 0 <= column < len(paths):
            raise OperationError(
                f"{file.path}: field {field_id} is said to be column {column}, but the file has {len(paths)} columns. "
                "Take the record that its writer gave, or `lance_io.fragment.DataFile.create`"
            )
        declared = wanted.get(field_id)
        if declared is not None and paths[column].as_declared(declared) is None:
            path = paths[column]
            raise OperationError(
                f'{file.path}: column {column} ("{path.leaf.name}") holds {path.skeleton}, but field {field_id} of the '
                f"schema that is committed with it is {declared.skeleton}. Take the schema that the fragments were "
                "written with, with its columns in their order"
            )
