"""`write_fragments`, synchronous and asynchronous: writes data files that no version refers to yet.

Keywords are pylance's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from lance_io.changes.operations.convert import to_public
from lance_io.changes.operations.schema_fit import DEFAULT_VERSION, check_mixture, fit_schema, of_version
from lance_io.changes.write.data_files import BYTES_PER_FILE, ROWS_PER_FILE
from lance_io.changes.write.run_write import run_write, run_write_async
from lance_io.changes.write.write_arguments import Write, check_known
from lance_io.changes.write.write_progress import FragmentWriteProgress
from lance_io.changes.write.write_rows import check_no_table, given_schema, new_files
from lance_io.errors import NotFound, OperationError
from lance_io.file.open.data_file import FileSchema, OpenedFile
from lance_io.file.open.file_source import FileRef
from lance_io.file.row_indices import checked_count
from lance_io.io import trace_events
from lance_io.plans.plan import RollBackOnError
from lance_io.reads.checks.validation import open_file
from lance_io.reads.metadata.describe import fragment_metadata
from lance_io.reads.version.versions import manifest_in
from lance_io.store.provided_options import gather_provider
from lance_io.store.url import load_client
from lance_io.table.manifest.fragment import FRAGMENT_ROWS_MAX, DataFile, Fragment
from lance_io.table.manifest.paths import DATA, check_relative
from lance_io.table.transaction.operations import Append, Overwrite
from lance_io.table.transaction.transaction import Transaction as StoredTransaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lance_io.changes.operations.lance_operation import Transaction
    from lance_io.changes.write.column_encodings import Encoding
    from lance_io.changes.write.data_files import NewFiles
    from lance_io.changes.write.input_data import AsyncRows, Rows
    from lance_io.changes.write.write_arguments import Destination
    from lance_io.changes.write.write_rows import WriteOptions, WriteTarget
    from lance_io.format.schema import Schema
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
    from lance_io.reads.version.session import Session
    from lance_io.reads.version.state import DatasetState
    from lance_io.store.api import Durability
    from lance_io.table.manifest.manifest import BasePath, Manifest


def write_fragments(
    data: Any,
    dataset_uri: Destination,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: str = "append",
    max_rows_per_file: int = ROWS_PER_FILE,
    max_rows_per_group: int | None = 1024,
    max_bytes_per_file: int = BYTES_PER_FILE,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    max_decoded_bytes: int | None = None,
    progress: FragmentWriteProgress | None = None,
    data_storage_version: str | None = None,
    use_legacy_format: bool | None = None,
    storage_options: Mapping[str, str] | None = None,
    enable_stable_row_ids: bool = False,
    target_bases: Any = None,
    target_all_bases: bool | None = None,
    initial_bases: Any = None,
    base_store_params: Any = None,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    allow_null_loss: bool = True,
    namespace_client: Any = None,
    table_id: list[str] | None = None,
    session: Session | None = None,
    durability: Durability | None = None,
    filesystem: Any = None,
    storage_options_provider: Any = None,
    encodings: Mapping[str, Encoding] | None = None,
) -> list[FragmentMetadata] | Transaction:
    """Write data files that no version refers to yet, as a task of a distributed write.

    Commit the fragments with `LanceOperation.Append` or `LanceOperation.Overwrite`. A failed call removes its files.

    Args:
        data: Rows in any form that `write_dataset` takes.
        dataset_uri: URI of the table, or an open dataset.
        schema: Schema for data that carries none.
        return_transaction: Return the transaction that would commit the fragments instead of the fragments.
        mode: "create", "append" or "overwrite". "append" uses the table's field ids and file version.
        max_rows_per_file: Rows after which the next data file (a fragment) begins.
        max_rows_per_group: Rows of a batch in files of version 0.1.
        max_bytes_per_file: Stored bytes after which, approximately, the next data file begins.
        data_cache_bytes: Bytes of leaf data that may wait for their page.
        max_page_bytes: Bytes of leaf data at which a page closes.
        max_decoded_bytes: Largest size of one value in bytes, 2 GiB by default. Blobs have no limit.
        progress: Receives `begin` and `complete` for each fragment.
        data_storage_version: File version: "0.1" ("legacy"), "2.1" or "2.2" ("stable"). Defaults to the table's.
        use_legacy_format: Deprecated: True stands for `data_storage_version="legacy"`.
        storage_options: Options of the object store.
        enable_stable_row_ids: Accepted as in pylance; fragments do not depend on it.
        target_bases: Names or paths of base paths that receive the files in turn. None uses the table's own folder.
        target_all_bases: Use the table's own folder and all base paths in turn.
        initial_bases: `DatasetBasePath`s that a new table declares.
        base_store_params: Storage options of base paths, by their path.
        external_blob_mode: Only "reference" is supported.
        allow_external_blob_outside_bases: Store blobs that are URIs as references instead of refusing them.
        allow_null_loss: Files of version 0.1 store only the nulls of strings. False refuses other nulls, True warns.
        namespace_client: Not supported.
        table_id: Not supported.
        session: Session whose caches and stores the write uses.
        durability: "full" flushes files on the local disk, "none" does not. None takes the storage option.
        filesystem: An fsspec or pyarrow filesystem, or an obstore store, on which `dataset_uri` is a path.
        storage_options_provider: Has a method `fetch_storage_options()` that returns options which expire.
        encodings: An `Encoding` by column or member of a new schema.

    Returns:
        The fragments, all with id 0, or with `return_transaction` the transaction.

    Raises:
        OSError: The rows do not fit the table, `mode` is "create" and the table exists, or the store failed.
        ValueError: Keywords contradict each other.
        NotImplementedError: A keyword asks for something that this release does not have.
    """
    write = Write.of({**locals(), "uri": dataset_uri})
    written = run_write(write, data, schema, write_new_fragments)
    return written.transaction if return_transaction else fragments_of(written)


async def write_fragments_async(
    data: Any,
    dataset_uri: Destination,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: str = "append",
    **options: Any,
) -> list[FragmentMetadata] | Transaction:
    """See `write_fragments`; `data` may also be an asynchronous iterable of record batches."""
    check_known(options, signature(write_fragments).parameters, "write_fragments")
    options = gather_provider(options)
    await load_client(dataset_uri, options.get("storage_options"))
    write = Write.of({"uri": dataset_uri, "mode": mode, **options})
    written = await run_write_async(write, data, schema, write_new_fragments)
    return written.transaction if return_transaction else fragments_of(written)


def write_fragment(
    dataset_uri: Destination, data: Any, fragment_id: int | None, schema: pa.Schema | None, **options: Any
) -> FragmentMetadata:
    """See `LanceFragment.create`."""
    fragment_number = _fragment_number(fragment_id)
    write = _single_file_write(dataset_uri, fragment_number, options)
    return _single_fragment(run_write(write, data, schema, _write_single_fragment), fragment_number)


async def write_fragment_async(
    dataset_uri: Destination, data: Any, fragment_id: int | None, schema: pa.Schema | None, **options: Any
) -> FragmentMetadata:
    """See `AsyncFragment.create`."""
    options = gather_provider(options)
    await load_client(dataset_uri, options.get("storage_options"))
    fragment_number = _fragment_number(fragment_id)
    write = _single_file_write(dataset_uri, fragment_number, options)
    return _single_fragment(await run_write_async(write, data, schema, _write_single_fragment), fragment_number)


def _single_file_write(dataset_uri: Destination, fragment_id: int, options: dict[str, Any]) -> Write:
    check_known(options, signature(write_fragments).parameters, "write_fragments")
    if options.get("progress") is not None:
        options["progress"] = _NumberedProgress(options["progress"], fragment_id)
    if options.get("mode") == "create":  # creates the fragment: a table of any schema may exist
        options["mode"] = "overwrite"
    unbounded = {"max_rows_per_file": FRAGMENT_ROWS_MAX, "max_bytes_per_file": 1 << 62}
    return Write.of({**options, "uri": dataset_uri, **unbounded})


def _fragment_number(fragment_id: int | None) -> int:
    """The id of a new fragment. Raises `TypeError` and `OverflowError` for an invalid one."""
    number = 0 if fragment_id is None else checked_count(fragment_id)
    if number >= 1 << 64:
        raise OverflowError("int too big to convert")
    return number


class _NumberedProgress(FragmentWriteProgress):
    """Reports a fragment with the id that the caller chose; data file writers number no fragments."""

    def __init__(self, listener: FragmentWriteProgress, fragment_id: int) -> None:
        self._listener = listener
        self._fragment_id = fragment_id

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A fragment is about to be written."""
        self._listener.begin(replace(fragment, id=self._fragment_id), **kwargs)

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A fragment has been written."""
        self._listener.complete(replace(fragment, id=self._fragment_id), **kwargs)


def _write_single_fragment(target: WriteTarget, rows: Rows | AsyncRows, options: WriteOptions) -> Plan[NewFragments]:
    if not len(rows.schema):  # a commit would refuse the file
        raise OperationError("Invalid user input: Cannot write with an empty schema: a fragment has columns")
    return (yield from write_new_fragments(target, rows, options))


def _single_fragment(written: NewFragments, fragment_id: int) -> FragmentMetadata:
    fragments = fragments_of(written)
    if not fragments:
        raise OperationError("Invalid user input: Input data was empty: a fragment has at least one row")
    return replace(fragments[0], id=fragment_id)


@dataclass(frozen=True)
class NewFragments:
    """Fragments of id 0, and the write that they belong to."""

    fragments: tuple[Fragment, ...]
    schema: Schema
    mode: str
    read_version: int
    initial_bases: tuple[BasePath, ...] = ()

    @property
    def transaction(self) -> Transaction:
        """The transaction that commits the fragments."""
        operation: Append | Overwrite = Append(self.fragments)
        if self.mode != "append":
            operation = Overwrite(self.fragments, self.schema, initial_bases=self.initial_bases)
        return to_public(StoredTransaction(self.read_version, operation))


def fragments_of(written: NewFragments) -> list[FragmentMetadata]:
    """The fragments in their public form."""
    return [fragment_metadata(fragment) for fragment in written.fragments]


def write_new_fragments(target: WriteTarget, rows: Rows | AsyncRows, options: WriteOptions) -> Plan[NewFragments]:
    """Write data files; appends use the table's field ids and file version.

    Raises `AlreadyExists` if `mode` is "create" and the table exists, `SchemaError` for rows that do not fit.
    """
    if trace_events.listeners:
        trace_events.emit_dataset("writing", target.location.uri, mode=options.mode.capitalize())
    given = given_schema(rows.schema, options)
    base = None
    if options.mode == "create":
        yield from check_no_table(target)
    else:
        base = yield from _base(target)
    appends = base is not None and options.mode == "append"
    version = options.version or (base.data_version if base is not None else DEFAULT_VERSION)
    if base is not None and appends:
        check_mixture(version, base.data_version)
        schema = fit_schema(given, base.schema, version)
    else:
        schema = of_version(given, version)
    files = new_files(target, schema, version, options, base)
    yield RollBackOnError(_write(files, rows), files.roll_back)
    mode = "append" if appends else "overwrite"
    read_version = 0 if base is None else base.version
    return NewFragments(tuple(files.fragments), files.schema, mode, read_version, options.bases.initial)


def _write(files: NewFiles, rows: Rows | AsyncRows) -> Plan[None]:
    yield from files.write(rows)
    yield from files.publish_last_file()


def _base(target: WriteTarget) -> Plan[Manifest | None]:
    """The newest version, or the one that the caller has open; None if there is no table yet."""
    if target.manifest is not None:
        return target.manifest
    try:
        _, newest = yield from target.handler.find_latest_and(
            target.location, lambda file: manifest_in(target.location, file, target.session.cache)
        )
    except NotFound:
        return None
    return newest


# -- files of other writers --------------------------------------------------------------------------------------------


def fragment_of_file(state: DatasetState, name: str, fragment_id: int) -> Plan[Fragment]:
    """The fragment of a data file in the table's `data` folder; matches its columns to the schema by name.

    Raises `SchemaError` for a file with other columns.
    """
    key = state.location.key(DATA, check_relative(name, "data file"))
    file = yield from open_file(state.context, FileRef(key, 0, (), ()))
    assert isinstance(file, OpenedFile), "one of version 0.1 is not opened without field ids"
    schema = fit_schema(file.descriptor.schema, state.schema)
    ids = tuple(path.leaf.id for path in FileSchema.of(schema, file.version).paths)
    return Fragment(
        id=fragment_id,
        files=(DataFile(name, ids, tuple(range(len(ids))), file.version, file.size_bytes, None),),
        deletion_file=None,
        physical_rows=file.num_rows,
        row_ids=None,
        created_at_versions=None,
        last_updated_at_versions=None,
    )
