"""What a version says of the columns of its files, checked before it is committed: what opening would refuse later.

Records only, no file: that a file has the columns which its record names is known to whoever wrote it, and looked at by
whoever commits files of others. Each distinct layout is looked at once.
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
"""A fragment that a transaction adds or changes, and the paths of the files that it had before."""


def check_records(touched: Iterable[Touched], message: table_pb2.Manifest, name: str) -> None:
    """Check the fragments that are new or changed in a version.

    message  the version; name: of the transaction, for messages
    Raises `OperationError` for a column or field that is listed twice, for lists that do not fit together, and for a
    new file with a struct or list of which it has no member, which would be null.
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
            fields = fields or {one.id: one for one in decode_schema(message.fields, {}).walk()}
            _check_parents(fragment, file, [fields[one] for one in alone], fields, name)


def check_record(file: DataFile) -> None:
    """Raise `OperationError` for a file of whose columns the record says what cannot be."""
    _check_files("the record", [file])


def _check_files(what: str, files: Sequence[DataFile]) -> None:
    try:
        check_disjoint([decode_file(encode_file(file)) for file in files])
    except FormatError as error:
        paths = ", ".join(file.path for file in files)
        raise OperationError(f"{what} of {paths} could not be read: {error.message}") from error


def _check_parents(
    fragment: Fragment, file: DataFile, parents: Iterable[Field], fields: Collection[int], name: str
) -> None:
    here = {one for one in file.fields if one >= 0}
    if not here <= set(fields):  # of members that were dropped meanwhile
        return
    for parent in parents:
        if not parent.has_column and here.isdisjoint(one.id for child in parent.children for one in child.walk()):
            raise OperationError(
                f"{name}: {file.path}, a file of fragment {fragment.id}, is said to have field {parent.id} "
                f'("{parent.name}"), a {parent.logical_type}, but none of its members, which would be null. Name the '
                "fields of the members, and their columns"
            )
