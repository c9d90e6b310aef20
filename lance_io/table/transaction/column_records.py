"""Checks the column lists of data files before a commit, so that opening the version does not fail later.

It checks records in the manifest, not files. That a file really has the listed columns is the job of its writer, and
checked by code that commits other writers' files. Each distinct layout is checked once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lance_io.errors import FormatError, OperationError
from lance_io.format.schema_messages import decode_schema
from lance_io.table.manifest.fragment import check_disjoint, decode_file, encode_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lance_io.format.schema import Field
    from lance_io.proto import table_pb2
    from lance_io.table.manifest.fragment import DataFile, Fragment

Touched: TypeAlias = "tuple[Fragment, Collection[str]]"
"""A fragment that a transaction adds or changes, and the paths of its files before."""


def check_records(touched: Iterable[Touched], message: table_pb2.Manifest, name: str) -> None:
    """Check the new and changed fragments of a version.

    message  the version's manifest
    name     of the transaction, for errors
    Raises `OperationError` for a column or field that is listed twice, for lists of different lengths, and for a new
    file with a struct or list but none of its members, which would be null.
    """
    parents = {field.parent_id for field in message.fields if field.parent_id >= 0}
    seen = set[object]()
    fields: dict[int, Field] = {}
    for fragment, before in touched:
        layout = tuple([(file.version, file.fields, file.column_indices) for file in fragment.files])
        if layout not in seen:
            seen.add(layout)
            _check_files(f"{name}: fragment {fragment.id}", fragment.files)
        if not parents:
            continue
        for file, of_file in zip(fragment.files, layout, strict=True):
            if of_file in seen or file.path in before:
                continue
            seen.add(of_file)
            alone = parents.intersection(file.fields)
            fields = fields or {field.id: field for field in decode_schema(message.fields, {}).walk()}
            _check_parents(fragment, file, [fields[field_id] for field_id in alone], fields, name)


def check_record(file: DataFile) -> None:
    """Raise `OperationError` for a file whose record has an invalid list of columns."""
    _check_files("the record", [file])


def _check_files(subject: str, files: Sequence[DataFile]) -> None:
    try:
        check_disjoint([decode_file(encode_file(file)) for file in files])
    except FormatError as error:
        paths = ", ".join(file.path for file in files)
        raise OperationError(f"{subject} of {paths} could not be read: {error.message}") from error


def _check_parents(
    fragment: Fragment, file: DataFile, parents: Iterable[Field], fields: Collection[int], name: str
) -> None:
    here = {field_id for field_id in file.fields if field_id >= 0}
    if not here <= set(fields):  # members that were dropped meanwhile
        return
    for parent in parents:
        members = (member.id for child in parent.children for member in child.walk())
        if not parent.has_column and here.isdisjoint(members):
            raise OperationError(
                f"{name}: {file.path}, a file of fragment {fragment.id}, is said to have field {parent.id} "
                f'("{parent.name}"), a {parent.logical_type}, but none of its members, which would be null. Name the '
                "fields of the members, and their columns"
            )
