"""The manifest entry of a data file of another writer, matched by column names: `DataFile.create`."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UnsupportedError, UsageError
from lance_io.file.file_requests import ReadFile
from lance_io.file.open.data_file import FileSchema, OpenedFile
from lance_io.file.open.file_source import FileRef
from lance_io.file.open.open_file import open_cached
from lance_io.format.version import V2_0
from lance_io.table.manifest.fragment import DataFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.file.open.projected_pages import TableFile
    from lance_io.format.schema import Field
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState

_BASE_ID_MAX: Final = (1 << 32) - 1


def describe_file(state: DatasetState, path: Any, base_id: Any = None) -> Plan[DataFile]:
    """The entry of the data file at `path` below the data folder of the table, or of one of its base paths.

    Its columns get the ids of the table's columns with the same names, and keep the file's order. Types are not
    compared, as in pylance; the committer is responsible for them.

    Raises `UsageError` for a column or member that the table lacks, for structs with other members, and for an unknown
    base path; `UnsupportedError` for a file of version 0.1; `NotFound` and `FormatError` if no Lance file is there;
    `TypeError` and `OverflowError` for an invalid path or base id.
    """
    if not isinstance(path, str):
        raise TypeError(f"path: expected a text, found {path!r}")
    base = None if base_id is None else _checked_base(state, base_id)
    wanted = DataFile(path, (), (), V2_0, None, base)  # replaced by the file's own version below
    key = state.object_keys.data_key(wanted)
    opening: tuple[TableFile, Any] = yield ReadFile(
        state.context, key, open_cached(state.context, FileRef(key, 0, (), ()), [])
    )
    file = opening[0]
    if not isinstance(file, OpenedFile):
        raise UnsupportedError("files of version 0.1 do not describe their columns", path=key)
    own = file.descriptor.schema
    schema = replace(own, fields=_with_ids(own.fields, state.schema.fields, ""))
    leaves = [path.leaf.id for path in FileSchema.of(schema, file.version).paths]
    if len(leaves) != len(file.paths):
        raise UsageError(f"the schema of the file has {len(leaves)} columns, the file has {len(file.paths)}")
    return replace(
        wanted,
        fields=tuple(leaves),
        column_indices=tuple(range(len(leaves))),
        version=file.version,
        size_bytes=file.size_bytes,
    )


def _checked_base(state: DatasetState, base_id: Any) -> int:
    number = operator.index(base_id)
    if not 0 <= number <= _BASE_ID_MAX:
        raise OverflowError(f"base_id: expected 0 to {_BASE_ID_MAX}, found {number}")
    if number not in state.manifest.base_paths:
        raise UsageError(f"base_path id {number} not found")
    return number


def _with_ids(given: Sequence[Field], table: Sequence[Field], prefix: str) -> tuple[Field, ...]:
    """Columns with the ids of the table's columns of the same names."""
    known = {field.name: field for field in table}
    fields = []
    for field in given:
        wanted = known.get(field.name)
        if wanted is None:
            raise UsageError(f"Schema mismatch: file has extra field '{prefix}{field.name}'")
        fields.append(_with_id(field, wanted, prefix + field.name))
    return tuple(fields)


def _with_id(given: Field, wanted: Field, path: str) -> Field:
    if len(given.children) != len(wanted.children):
        raise UsageError(
            f"Schema mismatch: field '{path}' has {len(wanted.children)} children in dataset schema "
            f"but {len(given.children)} children in file schema"
        )
    children = []
    for own, other in zip(given.children, wanted.children, strict=True):
        if own.name != other.name:
            raise UsageError(f"Schema mismatch: expected field '{path}.{other.name}' but file has '{own.name}'")
        children.append(_with_id(own, other, f"{path}.{own.name}"))
    return replace(given, id=wanted.id, children=tuple(children))
