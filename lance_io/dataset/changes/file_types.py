"""Whether data files hold columns of the types that the schema committed with them says.

Fragments name columns by field id, and writers that begin anew give out the same ids: only the files themselves tell
that a schema is another one. One file is opened for all that have the same columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.dataset.version.validation import open_file
from lance_io.errors import NotFound, OperationError
from lance_io.file.open.file_source import FileRef, ReadContext
from lance_io.format.version import READABLE
from lance_io.levels.path import leaf_paths
from lance_io.plans.plan import Together
from lance_io.table.manifest.paths import DATA, check_relative

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.dataset.write.write_rows import WriteTarget
    from lance_io.levels.path import LeafPath
    from lance_io.plans.plan import Plan
    from lance_io.table.manifest.fragment import DataFile
    from lance_io.table.transaction.operations import Overwrite


def check_types(target: WriteTarget, operation: Overwrite) -> Plan[None]:
    """Raise `OperationError` for a file with a column of another type than the schema's field of the same id.

    Files in base paths, of versions that are not read, and files that are not there any more (of a transaction that
    is committed again) are passed over.
    """
    files = {
        (file.version, file.fields, file.column_indices): file
        for fragment in reversed(operation.fragments)
        for file in fragment.files
        if file.base_id is None and file.version in READABLE
    }
    if not files:
        return
    wanted = {path.leaf.id: path for field in operation.new_schema.fields for path in leaf_paths(field)}
    context = ReadContext(target.location.store, target.session.cache, shared=target.session.io_scheduler)
    yield Together([_check_file(target, context, file, wanted) for file in files.values()])


def _check_file(
    target: WriteTarget, context: ReadContext, file: DataFile, wanted: Mapping[int, LeafPath]
) -> Plan[None]:
    key = target.location.key(DATA, check_relative(file.path, "data file"))
    try:
        found = yield from open_file(context, FileRef(key, file.size_bytes or 0, (), ()))
    except NotFound:
        return
    for field_id, column in zip(file.fields, file.column_indices, strict=True):
        if field_id not in wanted or not 0 <= column < len(found.paths):
            continue
        path, declared = found.paths[column], wanted[field_id]
        if path.as_declared(declared) is None:
            raise OperationError(
                f'{file.path}: column {column} ("{path.leaf.name}") holds {path.skeleton}, but field {field_id} of the '
                f"schema that is committed with it is {declared.skeleton}. Take the schema that the fragments were "
                "written with, with its columns in their order"
            )
