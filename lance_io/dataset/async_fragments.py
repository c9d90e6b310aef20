"""`AsyncFragment`: what `LanceFragment` is, awaitable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io import runtime
from lance_io.dataset.async_scanner import AsyncScanner
from lance_io.dataset.changes.delete_rows import delete_from_fragment, delete_offsets
from lance_io.dataset.not_offered import FragmentNotOffered
from lance_io.dataset.properties import FragmentFacts
from lance_io.dataset.rows.fragment_session import AsyncFragmentSession
from lance_io.dataset.rows.take_rows import take_fragment_positions
from lance_io.dataset.scan.scan_arguments import SCAN_KEYWORDS
from lance_io.dataset.scan.scan_options import scan_options
from lance_io.dataset.version.describe import fragment_metadata
from lance_io.dataset.version.validation import validate
from lance_io.dataset.write.uncommitted_fragments import fragment_of_file
from lance_io.file.row_indices import row_numbers
from lance_io.plans.plan import drive_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pandas as pd
    import pyarrow as pa

    from lance_io.dataset.async_dataset import AsyncDataset
    from lance_io.dataset.version.column_lists import Columns, Selection
    from lance_io.dataset.version.fragment_metadata import FragmentMetadata
    from lance_io.dataset.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment


class AsyncFragment(FragmentFacts, FragmentNotOffered):
    """One fragment of a dataset version. Made by `AsyncDataset.get_fragments`."""

    def __init__(self, state: DatasetState, place: int) -> None:
        self._state = state
        self._place = place

    async def num_deletions(self) -> int:
        """Deleted rows."""
        return self.physical_rows - await self.count_rows()

    async def count_rows(self, filter: Any = None) -> int:
        """Rows that are left, or those of them that pass a filter."""
        return await self.scanner(filter=filter).count_rows()

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
        given: dict[str, Any] = {"columns": columns, "filter": filter, "limit": limit, "offset": offset, **options}
        given["fragments"] = (self.fragment_id,)
        return AsyncScanner(self._state, scan_options(**given).with_defaults(None))

    async def to_table(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> pa.Table:
        """The rows as a table; parameters as for `LanceDataset.scanner`."""
        return await self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **options).to_table()

    def to_batches(self, *, columns: Columns = None, **options: Any) -> AsyncIterator[pa.RecordBatch]:
        """The rows batch by batch, for `async for`; parameters as for `LanceDataset.scanner`."""
        return self.scanner(columns=columns, **options).to_batches()

    async def to_pandas(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        *,
        blob_mode: str = "lazy",
        **options: Any,
    ) -> pd.DataFrame:
        """The rows as a data frame; parameters as for `LanceDataset.to_pandas`."""
        scan = {name: options.pop(name) for name in list(options) if name in SCAN_KEYWORDS}
        return await self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **scan).to_pandas(
            blob_mode=blob_mode, **options
        )

    async def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows."""
        return await self.scanner(**{**options, "limit": num_rows}).to_table()

    async def take(self, indices: Any, columns: Selection = None) -> pa.Table:
        """Rows by position among those that are left; errors as `LanceFragment.take`."""
        positions = row_numbers(indices)
        return await runtime.wrap(drive_async(take_fragment_positions(self._state, self._place, positions, columns)))

    def open_session(self, columns: Selection = None, with_row_address: bool | None = None) -> AsyncFragmentSession:
        """See `LanceFragment.open_session`."""
        return AsyncFragmentSession(self._state, self._place, columns, with_row_address=bool(with_row_address))

    async def validate(self) -> None:
        """Check the fragment's files; see `LanceDataset.validate`."""
        await runtime.wrap(drive_async(validate(self._state, [self._place])))

    async def delete(self, predicate: Any) -> FragmentMetadata | None:
        """The fragment without the rows that pass a filter; see `LanceFragment.delete`."""
        return _public(await runtime.wrap(drive_async(delete_from_fragment(self._state, self._place, predicate))))

    async def delete_rows(self, offsets: Any) -> FragmentMetadata | None:
        """The fragment without rows given by their offsets in it; see `LanceFragment.delete_rows`."""
        plan = delete_offsets(self._state, self._place, row_numbers(offsets))
        return _public(await runtime.wrap(drive_async(plan)))

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
        await runtime.loaded("lance_io.dataset.write.write_dataset")
        from lance_io.dataset.write.write_dataset import write_fragment_async

        return await write_fragment_async(
            dataset_uri, data, fragment_id, schema, mode=mode, progress=progress, **options
        )

    @staticmethod
    async def create_from_file(filename: str, dataset: AsyncDataset, fragment_id: int) -> FragmentMetadata:
        """The fragment of a data file; see `LanceFragment.create_from_file`."""
        plan = fragment_of_file(dataset._state, filename, fragment_id)
        return fragment_metadata(await runtime.wrap(drive_async(plan)))

    def __repr__(self) -> str:
        return f"<AsyncFragment {self.fragment_id} of {self._state.location.uri}>"


def _public(fragment: Fragment | None) -> FragmentMetadata | None:
    return None if fragment is None else fragment_metadata(fragment)
