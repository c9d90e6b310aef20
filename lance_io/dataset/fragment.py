"""The rows that one append, or one file of it, brought: `LanceFragment` and `AsyncFragment`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from lance_io import runtime
from lance_io.dataset import scanner as scanners
from lance_io.errors import UsageError
from lance_io.file.row_indices import row_numbers
from lance_io.lazy_names import later
from lance_io.plans.lazy_module import later_plans, load
from lance_io.reads.properties import FragmentProperties
from lance_io.reads.run_plan import AsyncFace, SyncFace, run, run_awaited
from lance_io.reads.scan.scan_arguments import SCAN_KEYWORDS, named
from lance_io.reads.takes.take_rows import take_fragment_positions
from lance_io.reads.version.column_lists import as_list
from lance_io.reads.version.system_columns import ROW_ADDRESS
from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from os import PathLike
    from typing import Self

    import pandas as pd
    import pyarrow as pa
    from typing_extensions import Unpack

    from lance_io.changes.edits import delete_rows as deletions
    from lance_io.changes.write import write_fragments
    from lance_io.dataset import bases
    from lance_io.dataset import column_methods as row_changes
    from lance_io.dataset.lance_dataset import AsyncDataset, LanceDataset
    from lance_io.dataset.scanner import AsyncScanner, LanceScanner
    from lance_io.plans.plan import Plan
    from lance_io.reads.checks import validation
    from lance_io.reads.metadata import describe
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
    from lance_io.reads.metadata.lance_schema import LanceSchema
    from lance_io.reads.scan.scan_arguments import ScanKeywords
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.column_lists import Columns, Selection
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment as StoredFragment
else:
    bases = later("lance_io.dataset.bases")
    deletions = later_plans("lance_io.changes.edits.delete_rows")
    row_changes = later("lance_io.dataset.column_methods")
    describe = later("lance_io.reads.metadata.describe")
    validation = later_plans("lance_io.reads.checks.validation")
    write_fragments = later("lance_io.changes.write.write_fragments")


class _Fragment(FragmentProperties):
    """What both faces of a fragment have in common: its properties, and plans."""

    def _options(self, **given: Any) -> ScanOptions:
        """Of a scan of this fragment, which `default_scan_options` are not for."""
        return scanners.make_options(None, **{**given, "fragments": (self,)})

    def _take(self, indices: Any, columns: Selection) -> Plan[pa.Table]:
        return take_fragment_positions(self._state, self._place, row_numbers(indices), columns)

    def _validate(self) -> Plan[None]:
        return validation.validate(self._state, [self._place])

    def _delete(self, predicate: Any) -> Plan[FragmentMetadata | None]:
        yield load(describe)
        return _public((yield from deletions.delete_from_fragment(self._state, self._place, predicate)))

    def _delete_rows(self, offsets: Any) -> Plan[FragmentMetadata | None]:
        yield load(describe)
        return _public((yield from deletions.delete_offsets(self._state, self._place, row_numbers(offsets))))


def _public(fragment: StoredFragment | None) -> FragmentMetadata | None:
    return None if fragment is None else describe.fragment_metadata(fragment)


def _create_from_file(state: DatasetState, filename: str, fragment_id: int) -> Plan[FragmentMetadata]:
    yield load(write_fragments, describe)
    found = yield from write_fragments.fragment_of_file(state, filename, fragment_id)
    return describe.fragment_metadata(found)


class SyncFragment(_Fragment, SyncFace):
    """One fragment of a dataset version.

    dataset      the dataset
    fragment_id  id of the fragment; `ValueError` when there is none
    """

    def __init__(self, dataset: LanceDataset, fragment_id: int | None, *, fragment: object = None) -> None:
        # pyarrow's constructor would want a C++ fragment; every inherited method is overridden
        place = None if fragment_id is None else dataset._state.place_of(fragment_id)
        if place is None:
            raise UsageError(f"there is no fragment {fragment_id} in version {dataset.version} of {dataset.uri}")
        super().__init__(dataset._state)
        self._place = place

    @classmethod
    def _of(cls, state: DatasetState, place: int) -> Self:
        fragment: Self = cls.__new__(cls)
        fragment._state = state
        fragment._place = place
        return fragment

    @property
    def num_deletions(self) -> int:
        """Deleted rows."""
        return self.physical_rows - self.count_rows()

    def count_rows(self, filter: Any = None) -> int:
        """Rows that are left, or those of them that pass a filter."""
        return self.scanner(filter=filter).count_rows()

    def __len__(self) -> int:
        return self.count_rows()

    # -- rows --------------------------------------------------------------------------------------------------------

    def scanner(
        self,
        *,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> LanceScanner:
        """A scan of this fragment, without `default_scan_options`; parameters as for `LanceDataset.scanner`."""
        wanted = self._options(columns=columns, filter=filter, limit=limit, offset=offset, **options)
        return scanners.LanceScanner._of(self._state, wanted)

    def to_table(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        **options: Unpack[ScanKeywords],
    ) -> pa.Table:
        """The rows as a table; parameters as for `LanceDataset.scanner`."""
        wanted = named("fragment.to_table", more, options)
        return self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **wanted).to_table()

    def to_batches(self, *, columns: Columns = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch; parameters as for `LanceDataset.scanner`."""
        return self.scanner(columns=columns, **options).to_batches()

    def to_pandas(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        blob_mode: str = "lazy",
        **options: Any,
    ) -> pd.DataFrame:
        """The rows as a data frame; parameters as for `LanceDataset.to_pandas`."""
        options = named("fragment.to_pandas", more, options)
        blob_mode = options.pop("blob_mode", blob_mode)
        scan = {name: options.pop(name) for name in list(options) if name in SCAN_KEYWORDS}
        scanner = self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **scan)
        return scanner.to_pandas(blob_mode=blob_mode, **options)

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows."""
        return self.scanner(**{**options, "limit": num_rows}).to_table()

    def take(self, indices: Any, columns: Selection = None) -> pa.Table:
        """Rows by position among the rows of the fragment that are left.

        Raises `OSError` unless the positions ascend (repetitions are allowed) and lie in the fragment.
        """
        return self._run(self._take(indices, columns))

    def open_session(self, columns: Selection = None, with_row_address: bool | None = None) -> FragmentSession:
        """For many takes of the same columns, with the row address behind them if wanted."""
        return FragmentSession(self, columns, with_row_address=bool(with_row_address))

    def validate(self) -> None:
        """Check the fragment's files; see `LanceDataset.validate`."""
        self._run(self._validate())

    # -- changes, to be committed with `LanceOperation` ---------------------------------------------------------------

    def delete(self, predicate: Any) -> FragmentMetadata | None:
        """The fragment without the rows that pass a filter, None when none would be left; writes the deletion file."""
        return self._run(self._delete(predicate))

    def delete_rows(self, offsets: Any) -> FragmentMetadata | None:
        """The fragment without rows given by their offsets in it, deleted rows counted; as `delete`."""
        return self._run(self._delete_rows(offsets))

    def merge_columns(
        self,
        value_func: Any,
        columns: list[str] | None = None,
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
        *,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """The fragment with new columns, and the table's schema with them, to be committed as a `Merge`.

        value_func     SQL expressions by name, a function or rows, as for `LanceDataset.add_columns`
        columns        what a function gets; all columns by default
        batch_size     rows that are computed at once
        reader_schema  of an iterable of record batches
        memory_limit, progress  as for `LanceDataset.add_columns`
        """
        return row_changes.merge_fragment_columns(
            self._state, self._place, value_func, columns, reader_schema, batch_size, memory_limit, progress
        )

    def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """The fragment with the columns of a table, by a key, and the table's schema with them; for a `Merge`.

        Parameters as for `LanceDataset.merge`.
        """
        return row_changes.merge_fragment(
            self._state, self._place, data_obj, left_on, right_on, schema, memory_limit, progress
        )

    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: bool = False,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[FragmentMetadata, list[int]] | tuple[FragmentMetadata, list[int], bytes]:
        """The fragment with new values of columns that are there, in the rows that have a table's keys.

        data_obj      a table, data frame, reader or iterable of record batches (with `schema`): the key, and columns of
                      this table, structs with all their members
        left_on       the key's column here, also `_rowid` and `_rowaddr`
        right_on      the key's column there, `left_on` by default
        with_offsets  also give which rows have new values, for `updated_fragment_offsets`
        memory_limit, progress  as for `LanceDataset.merge`

        Gives the fragment, the ids of the columns (`fields_modified`) and the offsets, to be committed as an `Update`
        of `update_mode="rewrite_columns"`. The columns are written anew for all rows, whether or not one has a key.
        Raises `ValueError` for columns that do not fit.
        """
        found = row_changes.update_columns(
            self._state, self._place, data_obj, left_on, right_on, schema, memory_limit, progress
        )
        return found if with_offsets else found[:2]

    @staticmethod
    def create(
        dataset_uri: str | PathLike[str] | LanceDataset,
        data: Any,
        fragment_id: int | None = None,
        schema: pa.Schema | None = None,
        max_rows_per_group: int | None = 1024,
        progress: Any = None,
        mode: str = "append",
        *,
        data_storage_version: str | None = None,
        use_legacy_format: bool | None = None,
        storage_options: dict[str, str] | None = None,
        namespace_client: Any = None,
        table_id: list[str] | None = None,
        session: Any = None,
        filesystem: Any = None,
        storage_options_provider: Any = None,
    ) -> FragmentMetadata:
        """Write rows as one fragment that no version refers to yet; keywords as for `write_fragments`.

        fragment_id  its id, 0 ("to be numbered") by default
        """
        return write_fragments.write_fragment(
            dataset_uri,
            data,
            fragment_id,
            schema,
            mode=mode,
            progress=progress,
            data_storage_version=data_storage_version,
            use_legacy_format=use_legacy_format,
            storage_options=storage_options,
            namespace_client=namespace_client,
            table_id=table_id,
            session=session,
            filesystem=filesystem,
            storage_options_provider=storage_options_provider,
        )

    @staticmethod
    def create_from_file(filename: str, dataset: LanceDataset, fragment_id: int) -> FragmentMetadata:
        """The fragment of a data file that lies in the table's `data` folder and has columns of its schema.

        Raises `OSError` for a file with other columns, and when there is no such file.
        """
        return run(dataset._state, _create_from_file(dataset._state, filename, fragment_id))

    # -- interop -----------------------------------------------------------------------------------------------------

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.scanner().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self._state, self._place)

    def __repr__(self) -> str:
        deletion = self.deletion_file()
        shown = "" if deletion is None else f", deletion_file={deletion!r}"
        return (
            f"LanceFileFragment(id={self.fragment_id}, data_files={[file.path for file in self.data_files()]}{shown})"
        )

    # -- inherited from pyarrow and not offered ----------------------------------------------------------------------

    @property
    def partition_expression(self) -> NoReturn:
        """Not offered: tables are not partitioned."""
        raise NotImplementedError("Not implemented yet for LanceFragment")


if TYPE_CHECKING:

    class LanceFragment(SyncFragment, bases.Fragment):  # type: ignore[misc]
        """The public class; see `SyncFragment`."""


def __getattr__(name: str) -> Any:
    if name == "LanceFragment":
        return bases.subclass(SyncFragment, bases.Fragment)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class AsyncFragment(_Fragment, AsyncFace):
    """One fragment of a dataset version. Made by `AsyncDataset.get_fragments`."""

    def __init__(self, state: DatasetState, place: int) -> None:
        super().__init__(state)
        self._place = place

    async def num_deletions(self) -> int:
        """Deleted rows."""
        return self.physical_rows - await self.count_rows()

    async def count_rows(self, filter: Any = None) -> int:
        """Rows that are left, or those of them that pass a filter."""
        return await self.scanner(filter=filter).count_rows()

    # -- rows --------------------------------------------------------------------------------------------------------

    def scanner(
        self,
        *,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> AsyncScanner:
        """A scan of this fragment; see `LanceFragment.scanner`."""
        wanted = self._options(columns=columns, filter=filter, limit=limit, offset=offset, **options)
        return scanners.AsyncScanner(self._state, wanted)

    async def to_table(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        **options: Any,
    ) -> pa.Table:
        """The rows as a table; parameters as for `LanceDataset.scanner`."""
        wanted = named("fragment.to_table", more, options)
        return await self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **wanted).to_table()

    def to_batches(self, *, columns: Columns = None, **options: Any) -> AsyncIterator[pa.RecordBatch]:
        """The rows batch by batch, for `async for`; parameters as for `LanceDataset.scanner`."""
        return self.scanner(columns=columns, **options).to_batches()

    async def to_pandas(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *more: Any,
        blob_mode: str = "lazy",
        **options: Any,
    ) -> pd.DataFrame:
        """The rows as a data frame; parameters as for `LanceDataset.to_pandas`."""
        options = named("fragment.to_pandas", more, options)
        blob_mode = options.pop("blob_mode", blob_mode)
        scan = {name: options.pop(name) for name in list(options) if name in SCAN_KEYWORDS}
        scanner = self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **scan)
        return await scanner.to_pandas(blob_mode=blob_mode, **options)

    async def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows."""
        return await self.scanner(**{**options, "limit": num_rows}).to_table()

    async def take(self, indices: Any, columns: Selection = None) -> pa.Table:
        """Rows by position among those that are left; errors as `LanceFragment.take`."""
        return await self._run(self._take(indices, columns))

    def open_session(self, columns: Selection = None, with_row_address: bool | None = None) -> AsyncFragmentSession:
        """See `LanceFragment.open_session`."""
        return AsyncFragmentSession(self, columns, with_row_address=bool(with_row_address))

    async def validate(self) -> None:
        """Check the fragment's files; see `LanceDataset.validate`."""
        await self._run(self._validate())

    # -- changes, to be committed with `LanceOperation` ---------------------------------------------------------------

    async def delete(self, predicate: Any) -> FragmentMetadata | None:
        """The fragment without the rows that pass a filter; see `LanceFragment.delete`."""
        return await self._run(self._delete(predicate))

    async def delete_rows(self, offsets: Any) -> FragmentMetadata | None:
        """The fragment without rows given by their offsets in it; see `LanceFragment.delete_rows`."""
        return await self._run(self._delete_rows(offsets))

    async def merge_columns(
        self,
        value_func: Any,
        columns: list[str] | None = None,
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
        *,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """The fragment with new columns; see `LanceFragment.merge_columns`."""
        await runtime.load_modules(row_changes.__name__)
        return await row_changes.merge_fragment_columns_async(
            self._state, self._place, value_func, columns, reader_schema, batch_size, memory_limit, progress
        )

    async def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """The fragment with the columns of a table, by a key; see `LanceFragment.merge`."""
        await runtime.load_modules(row_changes.__name__)
        return await row_changes.merge_fragment_async(
            self._state, self._place, data_obj, left_on, right_on, schema, memory_limit, progress
        )

    async def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: bool = False,
        memory_limit: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[FragmentMetadata, list[int]] | tuple[FragmentMetadata, list[int], bytes]:
        """The fragment with new values of columns that are there; see `LanceFragment.update_columns`."""
        await runtime.load_modules(row_changes.__name__)
        found = await row_changes.update_columns_async(
            self._state, self._place, data_obj, left_on, right_on, schema, memory_limit, progress
        )
        return found if with_offsets else found[:2]

    @staticmethod
    async def create(
        dataset_uri: Any,
        data: Any,
        fragment_id: int | None = None,
        schema: pa.Schema | None = None,
        max_rows_per_group: int | None = 1024,
        progress: Any = None,
        mode: str = "append",
        **options: Any,
    ) -> FragmentMetadata:
        """Write rows as one fragment that no version refers to yet; see `LanceFragment.create`."""
        await runtime.load_modules(write_fragments.__name__)
        return await write_fragments.write_fragment_async(
            dataset_uri, data, fragment_id, schema, mode=mode, progress=progress, **options
        )

    @staticmethod
    async def create_from_file(filename: str, dataset: AsyncDataset, fragment_id: int) -> FragmentMetadata:
        """The fragment of a data file; see `LanceFragment.create_from_file`."""
        return await run_awaited(dataset._state, _create_from_file(dataset._state, filename, fragment_id))

    def __repr__(self) -> str:
        return f"<AsyncFragment {self.fragment_id} of {hide_secrets(self._state.location.uri)}>"


# -- takes of the same columns -----------------------------------------------------------------------------------------


class FragmentSession:
    """What `LanceFragment.open_session` gives."""

    def __init__(self, fragment: SyncFragment, columns: Selection, *, with_row_address: bool) -> None:
        self._fragment = fragment
        self._columns = _with_address(fragment._state, columns) if with_row_address else columns

    def take(self, indices: Any) -> pa.Table:
        """Rows by position among the rows of the fragment that are left; errors as `LanceFragment.take`."""
        return self._fragment.take(indices, self._columns)


class AsyncFragmentSession:
    """What `AsyncFragment.open_session` gives."""

    def __init__(self, fragment: AsyncFragment, columns: Selection, *, with_row_address: bool) -> None:
        self._fragment = fragment
        self._columns = _with_address(fragment._state, columns) if with_row_address else columns

    async def take(self, indices: Any) -> pa.Table:
        """See `FragmentSession.take`."""
        return await self._fragment.take(indices, self._columns)


def _with_address(state: DatasetState, columns: Selection) -> Selection:
    """The columns with the row address behind them."""
    if isinstance(columns, dict):
        return {**columns, ROW_ADDRESS: ROW_ADDRESS}
    listed = as_list(columns)
    return [*(state.schema.names if listed is None else (name for name in listed if name != ROW_ADDRESS)), ROW_ADDRESS]
