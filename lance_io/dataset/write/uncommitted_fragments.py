"""Fragments that no version refers to yet, and the transactions that would commit them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_io.dataset.changes.convert import to_public
from lance_io.dataset.version.describe import fragment_metadata
from lance_io.dataset.version.validation import open_file
from lance_io.dataset.version.versions import manifest_in
from lance_io.dataset.write.schema_fit import DEFAULT_VERSION, fitted, of_version, schema_of
from lance_io.dataset.write.write_rows import expect_nothing, new_files
from lance_io.errors import NotFound
from lance_io.file.open.file_source import FileRef
from lance_io.levels.path import leaf_paths
from lance_io.plans.plan import RollBackOnError
from lance_io.table.manifest.fragment import DataFile, Fragment
from lance_io.table.manifest.paths import DATA, check_relative
from lance_io.table.transaction.operations import Append, Overwrite
from lance_io.table.transaction.transaction import Transaction as StoredTransaction

if TYPE_CHECKING:
    from lance_io.dataset.changes.lance_operation import Transaction
    from lance_io.dataset.version.fragment_metadata import FragmentMetadata
    from lance_io.dataset.version.state import DatasetState
    from lance_io.dataset.write.data_files import NewFiles
    from lance_io.dataset.write.input_data import AsyncRows, Rows
    from lance_io.dataset.write.write_rows import WriteOptions, WriteTarget
    from lance_io.format.schema import Schema
    from lance_io.plans.plan import Plan
    from lance_io.table.manifest.manifest import Manifest


@dataclass(frozen=True)
class NewFragments:
    """Fragments of id 0, with what they were written for."""

    fragments: tuple[Fragment, ...]
    schema: Schema
    mode: str
    read_version: int

    @property
    def transaction(self) -> Transaction:
        """What would commit them."""
        operation = Append(self.fragments) if self.mode == "append" else Overwrite(self.fragments, self.schema)
        return to_public(StoredTransaction(self.read_version, operation))


def fragments_of(written: NewFragments) -> list[FragmentMetadata]:
    """The fragments as users see them."""
    return [fragment_metadata(one) for one in written.fragments]


def write_new_fragments(target: WriteTarget, rows: Rows | AsyncRows, options: WriteOptions) -> Plan[NewFragments]:
    """Write data files; for a table that is there with its field ids and in its file version.

    Raises `AlreadyExists` for `create` where there is a table, `SchemaError` for rows that do not fit.
    """
    given = schema_of(rows.schema)
    base = None
    if options.mode == "create":
        yield from expect_nothing(target)
    else:
        base = yield from _base(target)
    appends = base is not None and options.mode == "append"
    version = options.version or (base.data_version if base is not None else DEFAULT_VERSION)
    schema = fitted(given, base.schema, version) if base is not None and appends else of_version(given, version)
    files = new_files(target, schema, version, options)
    yield RollBackOnError(_write(files, rows), files.roll_back)
    mode = "append" if appends else "overwrite"
    return NewFragments(tuple(files.fragments), schema, mode, 0 if base is None else base.version)


def _write(files: NewFiles, rows: Rows | AsyncRows) -> Plan[None]:
    yield from files.write(rows)
    yield from files.publish()


def _base(target: WriteTarget) -> Plan[Manifest | None]:
    """The version that the fragments are for, None where there is no table yet."""
    if target.manifest is not None:
        return target.manifest
    try:
        newest = yield from target.handler.find_latest(target.location)
    except NotFound:
        return None
    return (yield from manifest_in(target.location, newest, target.session.cache))


# -- files that somebody else wrote ------------------------------------------------------------------------------------


def fragment_of_file(state: DatasetState, name: str, fragment_id: int) -> Plan[Fragment]:
    """The fragment of a data file in the table's `data` folder, whose columns are the schema's of the same names.

    Raises `SchemaError` for a file with other columns.
    """
    key = state.location.key(DATA, check_relative(name, "data file"))
    file = yield from open_file(state.context, FileRef(key, 0, (), ()))
    schema = fitted(file.descriptor.schema, state.schema)
    ids = tuple(path.leaf.id for field in schema.fields for path in leaf_paths(field))
    return Fragment(
        id=fragment_id,
        files=(DataFile(name, ids, tuple(range(len(ids))), file.version, file.size_bytes, None),),
        deletion_file=None,
        physical_rows=file.num_rows,
        row_ids=None,
        created_at_versions=None,
        last_updated_at_versions=None,
    )
