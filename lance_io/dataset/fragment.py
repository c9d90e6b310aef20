"""One fragment of a table, a set of data files with the same rows: `LanceFragment` and `AsyncFragment`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from lance_io import runtime
from lance_io.dataset import scanner as scanners
from lance_io.dataset.fragment_session import AsyncFragmentSession, FragmentSession
from lance_io.errors import UsageError
from lance_io.file.row_indices import row_numbers
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans, load
from lance_io.reads.properties import FragmentProperties
from lance_io.reads.run_plan import AsyncFace, SyncFace, run, run_awaited
from lance_io.reads.scan.scan_arguments import SCAN_KEYWORDS, named
from lance_io.reads.takes.take_rows import take_fragment_positions
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
    bases = lazy_module("lance_io.dataset.bases")
    deletions = lazy_plans("lance_io.changes.edits.delete_rows")
    row_changes = lazy_module("lance_io.dataset.column_methods")
    describe = lazy_module("lance_io.reads.metadata.describe")
    validation = lazy_plans("lance_io.reads.checks.validation")
    write_fragments = lazy_module("lance_io.changes.write.write_fragments")


class _Fragment(FragmentProperties):
    """Properties and plans of a fragment, for both faces."""

    def _options(self, **given: Any) -> ScanOptions:
        """Options of a scan of this fragment. `default_scan_options` do not apply."""
        return scanners.make_options(None, **{**given, "fragments": (self,)})

    def _take(self, indices: Any, columns: Selection) -> Plan[pa.Table]:
        return take_fragment_positions(self._state, self._fragment_index, row_numbers(indices), columns)

    def _validate(self) -> Plan[None]:
        return validation.validate(self._state, [self._fragment_index])

    def _delete(self, predicate: Any) -> Plan[FragmentMetadata | None]:
        yield load(describe)
        return _public((yield from deletions.delete_from_fragment(self._state, self._fragment_index, predicate)))

    def _delete_rows(self, offsets: Any) -> Plan[FragmentMetadata | None]:
        yield load(describe)
        return _public((yield from deletions.delete_offsets(self._state, self._fragment_index, row_numbers(offsets))))


def _public(fragment: StoredFragment | None) -> FragmentMetadata | None:
    return None if fragment is None else describe.fragment_metadata(fragment)


def _create_from_file(state: DatasetState, filename: str, fragment_id: int) -> Plan[FragmentMetadata]:
    yield load(write_fragments, describe)
    fragment = yield from write_fragments.fragment_of_file(state, filename, fragment_id)
    return describe.fragment_metadata(fragment)


class SyncFragment(_Fragment, SyncFace):
    """One fragment of a dataset version.

    Args:
        dataset: The dataset.
        fragment_id: Id of the fragment.
        fragment: Accepted and ignored.

    Raises:
        ValueError: No fragment has this id.
    """

    def __init__(self, dataset: LanceDataset, fragment_id: int | None, *, fragment: object = None) -> None:
        # pyarrow's constructor expects a C++ fragment; this class overrides every inherited method
        fragment_index = None if fragment_id is None else dataset._state.fragment_index_of(fragment_id)
        if fragment_index is None:
            raise UsageError(f"there is no fragment {fragment_id} in version {dataset.version} of {dataset.uri}")
        super().__init__(dataset._state)
        self._fragment_index = fragment_index

    @classmethod
    def _of(cls, state: DatasetState, fragment_index: int) -> Self:
        fragment: Self = cls.__new__(cls)
        fragment._state = state
        fragment._fragment_index = fragment_index
        return fragment

    @property
    def num_deletions(self) -> int:
        """Number of deleted rows."""
        return self.physical_rows - self.count_rows()

    def count_rows(self, filter: Any = None) -> int:
        """Count the rows that are not deleted.

        Args:
            filter: Counts only the rows that pass; see `LanceDataset.scanner`.
        """
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
        """Build a scan of this fragment. `default_scan_options` do not apply. See `LanceDataset.scanner`."""
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
        """Read the rows as a table. See `LanceDataset.scanner`."""
        wanted = named("fragment.to_table", more, options)
        return self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **wanted).to_table()

    def to_batches(self, *, columns: Columns = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """Read the rows batch by batch. See `LanceDataset.scanner`."""
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
        """Read the rows as a data frame. See `LanceDataset.to_pandas`."""
        options = named("fragment.to_pandas", more, options)
        blob_mode = options.pop("blob_mode", blob_mode)
        scan = {name: options.pop(name) for name in list(options) if name in SCAN_KEYWORDS}
        scanner = self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **scan)
        return scanner.to_pandas(blob_mode=blob_mode, **options)

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Read the first rows. See `LanceDataset.head`."""
        return self.scanner(**{**options, "limit": num_rows}).to_table()

    def take(self, indices: Any, columns: Selection = None) -> pa.Table:
        """Read rows by position among the rows of the fragment that are not deleted.

        Args:
            indices: Ascending positions; repetitions are allowed.
            columns: Names, or a dict of new names and SQL expressions; None for all columns.

        Raises:
            OSError: The positions do not ascend, or one is too large.
        """
        return self._run(self._take(indices, columns))

    def open_session(self, columns: Selection = None, with_row_address: bool | None = None) -> FragmentSession:
        """Prepare many takes of the same columns.

        Args:
            columns: See `LanceFragment.take`.
            with_row_address: True appends `_rowaddr`.

        Returns:
            A session with a method `take`.
        """
        return FragmentSession(self, columns, with_row_address=bool(with_row_address))

    def validate(self) -> None:
        """Check the fragment's files. See `LanceDataset.validate`."""
        self._run(self._validate())

    # -- changes, to be committed with `LanceOperation` ---------------------------------------------------------------

    def delete(self, predicate: Any) -> FragmentMetadata | None:
        """Write a deletion file for the rows that pass a filter. Commit the result with `LanceOperation`.

        Args:
            predicate: SQL text or a boolean `pyarrow.compute` expression.

        Returns:
            The fragment without these rows; None if no row would be left.

        Raises:
            OSError: The predicate does not fit the table.
        """
        return self._run(self._delete(predicate))

    def delete_rows(self, offsets: Any) -> FragmentMetadata | None:
        """Write a deletion file for rows given by offset. Commit the result with `LanceOperation`.

        Args:
            offsets: Offsets in the fragment, counting deleted rows.

        Returns:
            The fragment without these rows; None if no row would be left.
        """
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
        """Write new columns of this fragment. Commit the result as a `Merge`.

        Args:
            value_func: SQL expressions by name, a function or rows; see `LanceDataset.add_columns`.
            columns: Columns for a function; None for all.
            batch_size: Rows computed at once.
            reader_schema: Schema of an iterable of record batches.
            memory_limit: See `LanceDataset.add_columns`.
            progress: See `LanceDataset.add_columns`.

        Returns:
            The fragment and the table's schema, both with the new columns.

        Raises:
            ValueError: A column exists, an expression or the rows do not fit, or a `batch_udf` has a checkpoint file.
        """
        return row_changes.merge_fragment_columns(
            self._state, self._fragment_index, value_func, columns, reader_schema, batch_size, memory_limit, progress
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
        """Write the columns of another table for this fragment, to be committed as a `Merge`. See `LanceDataset.merge`.

        Returns:
            The fragment and the table's schema, both with the new columns.

        Raises:
            ValueError: The columns or keys do not fit.
        """
        return row_changes.merge_fragment(
            self._state, self._fragment_index, data_obj, left_on, right_on, schema, memory_limit, progress
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
        """Write new values of existing columns in the rows that have a table's keys. Writes the columns for all rows of
        the fragment.

        Commit the result as an `Update` with `update_mode="rewrite_columns"`.

        Args:
            data_obj: A table, data frame, reader or iterable of record batches: the key, and columns of this table;
                structs with all their members.
            left_on: Key column of this table, also `_rowid` and `_rowaddr`.
            right_on: Key column of `data_obj`; None for `left_on`.
            schema: Schema of an iterable of record batches.
            with_offsets: True also returns which rows have new values, for `updated_fragment_offsets`.
            memory_limit: See `LanceDataset.merge`.
            progress: See `LanceDataset.merge`.

        Returns:
            The fragment, the ids of the columns (`fields_modified`) and, if requested, the offsets.

        Raises:
            ValueError: The columns do not fit.
        """
        updated = row_changes.update_columns(
            self._state, self._fragment_index, data_obj, left_on, right_on, schema, memory_limit, progress
        )
        return updated if with_offsets else updated[:2]

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
        """Write rows as one fragment that no version refers to yet. See `lance_io.fragment.write_fragments`.

        Args:
            fragment_id: Id of the fragment; by default 0, which stands for "not numbered yet".
            max_rows_per_group: Accepted and ignored.

        Raises:
            OSError: The rows do not fit the table.
            ValueError: A keyword has an invalid value.
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
        """Describe a data file that another writer put into the table's `data` folder.

        Args:
            filename: Name of the file below `data`; its columns belong to the table's schema.
            dataset: The open table.
            fragment_id: Id of the new fragment.

        Returns:
            A fragment with this file.

        Raises:
            OSError: The file does not exist, or has other columns.
        """
        return run(dataset._state, _create_from_file(dataset._state, filename, fragment_id))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.scanner().__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self._state, self._fragment_index)

    def __repr__(self) -> str:
        deletion = self.deletion_file()
        shown = "" if deletion is None else f", deletion_file={deletion!r}"
        return (
            f"LanceFileFragment(id={self.fragment_id}, data_files={[file.path for file in self.data_files()]}{shown})"
        )

    # -- inherited from pyarrow and not offered ----------------------------------------------------------------------

    @property
    def partition_expression(self) -> NoReturn:
        """Not offered: tables are not partitioned.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("Not implemented yet for LanceFragment")


if TYPE_CHECKING:

    class LanceFragment(SyncFragment, bases.Fragment):  # type: ignore[misc]
        """The public class; see `SyncFragment`."""


def __getattr__(name: str) -> Any:
    if name == "LanceFragment":
        return bases.subclass(SyncFragment, bases.Fragment)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class AsyncFragment(_Fragment, AsyncFace):
    """One fragment of a dataset version, awaitable. `AsyncDataset.get_fragments` creates it.

    Args:
        state: State of the dataset.
        fragment_index: Index of the fragment in the manifest.
    """

    def __init__(self, state: DatasetState, fragment_index: int) -> None:
        super().__init__(state)
        self._fragment_index = fragment_index

    async def num_deletions(self) -> int:
        """Number of deleted rows. See `LanceFragment.num_deletions`."""
        return self.physical_rows - await self.count_rows()

    async def count_rows(self, filter: Any = None) -> int:
        """Count the rows that are not deleted. See `LanceFragment.count_rows`."""
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
        """Build a scan of this fragment. See `LanceFragment.scanner`."""
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
        """Read the rows as a table. See `LanceDataset.scanner`."""
        wanted = named("fragment.to_table", more, options)
        return await self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **wanted).to_table()

    def to_batches(self, *, columns: Columns = None, **options: Any) -> AsyncIterator[pa.RecordBatch]:
        """Read the rows batch by batch, with `async for`. See `LanceDataset.scanner`."""
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
        """Read the rows as a data frame. See `LanceDataset.to_pandas`."""
        options = named("fragment.to_pandas", more, options)
        blob_mode = options.pop("blob_mode", blob_mode)
        scan = {name: options.pop(name) for name in list(options) if name in SCAN_KEYWORDS}
        scanner = self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **scan)
        return await scanner.to_pandas(blob_mode=blob_mode, **options)

    async def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Read the first rows. See `LanceDataset.head`."""
        return await self.scanner(**{**options, "limit": num_rows}).to_table()

    async def take(self, indices: Any, columns: Selection = None) -> pa.Table:
        """Read rows by position. See `LanceFragment.take`."""
        return await self._run(self._take(indices, columns))

    def open_session(self, columns: Selection = None, with_row_address: bool | None = None) -> AsyncFragmentSession:
        """Prepare many takes of the same columns. See `LanceFragment.open_session`."""
        return AsyncFragmentSession(self, columns, with_row_address=bool(with_row_address))

    async def validate(self) -> None:
        """Check the fragment's files. See `LanceDataset.validate`."""
        await self._run(self._validate())

    # -- changes, to be committed with `LanceOperation` ---------------------------------------------------------------

    async def delete(self, predicate: Any) -> FragmentMetadata | None:
        """Write a deletion file for the rows that pass a filter. See `LanceFragment.delete`."""
        return await self._run(self._delete(predicate))

    async def delete_rows(self, offsets: Any) -> FragmentMetadata | None:
        """Write a deletion file for rows given by offset. See `LanceFragment.delete_rows`."""
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
        """Write new columns of this fragment. See `LanceFragment.merge_columns`."""
        await runtime.load_modules(row_changes.__name__)
        return await row_changes.merge_fragment_columns_async(
            self._state, self._fragment_index, value_func, columns, reader_schema, batch_size, memory_limit, progress
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
        """Write the columns of another table, by key. See `LanceFragment.merge`."""
        await runtime.load_modules(row_changes.__name__)
        return await row_changes.merge_fragment_async(
            self._state, self._fragment_index, data_obj, left_on, right_on, schema, memory_limit, progress
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
        """Write new values of existing columns. See `LanceFragment.update_columns`."""
        await runtime.load_modules(row_changes.__name__)
        updated = await row_changes.update_columns_async(
            self._state, self._fragment_index, data_obj, left_on, right_on, schema, memory_limit, progress
        )
        return updated if with_offsets else updated[:2]

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
        """Write rows as one fragment that no version refers to yet. See `LanceFragment.create`."""
        await runtime.load_modules(write_fragments.__name__)
        return await write_fragments.write_fragment_async(
            dataset_uri, data, fragment_id, schema, mode=mode, progress=progress, **options
        )

    @staticmethod
    async def create_from_file(filename: str, dataset: AsyncDataset, fragment_id: int) -> FragmentMetadata:
        """Describe a data file of another writer. See `LanceFragment.create_from_file`."""
        return await run_awaited(dataset._state, _create_from_file(dataset._state, filename, fragment_id))

    def __setstate__(self, state: dict[str, Any]) -> None:
        index = state.pop("_place", None)  # the name in objects that earlier releases pickled
        self.__dict__.update(state if index is None else {**state, "_fragment_index": index})

    def __repr__(self) -> str:
        return f"<AsyncFragment {self.fragment_id} of {hide_secrets(self._state.location.uri)}>"
