"""`LanceFragment`: the rows that one append, or one file of it, brought; as a `pyarrow.dataset.Fragment`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from lance_io.dataset.bases import Fragment
from lance_io.dataset.changes.delete_rows import delete_from_fragment, delete_offsets
from lance_io.dataset.not_offered import FragmentNotOffered
from lance_io.dataset.properties import FragmentFacts
from lance_io.dataset.rows.fragment_session import FragmentSession
from lance_io.dataset.rows.take_rows import take_fragment_positions
from lance_io.dataset.run_plan import run
from lance_io.dataset.scan.scan_arguments import SCAN_KEYWORDS
from lance_io.dataset.scan.scan_options import scan_options
from lance_io.dataset.scanner import LanceScanner
from lance_io.dataset.version.describe import fragment_metadata
from lance_io.dataset.version.validation import validate
from lance_io.dataset.write.uncommitted_fragments import fragment_of_file
from lance_io.errors import UsageError
from lance_io.file.row_indices import row_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from typing import Self

    import pandas as pd
    import pyarrow as pa
    from typing_extensions import Unpack

    from lance_io.dataset.lance_dataset import LanceDataset
    from lance_io.dataset.scan.scan_arguments import ScanKeywords
    from lance_io.dataset.version.column_lists import Columns, Selection
    from lance_io.dataset.version.fragment_metadata import FragmentMetadata
    from lance_io.dataset.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment as Fragment_


class LanceFragment(FragmentFacts, FragmentNotOffered, Fragment):  # type: ignore[misc]
    """One fragment of a dataset version.

    dataset      the dataset
    fragment_id  id of the fragment; `ValueError` when there is none
    """

    def __init__(self, dataset: LanceDataset, fragment_id: int | None, *, fragment: object = None) -> None:
        # pyarrow's constructor would want a C++ fragment; every inherited method is overridden
        place = None if fragment_id is None else dataset._state.place_of(fragment_id)
        if place is None:
            raise UsageError(f"there is no fragment {fragment_id} in version {dataset.version} of {dataset.uri}")
        self._state = dataset._state
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
        given: dict[str, Any] = {"columns": columns, "filter": filter, "limit": limit, "offset": offset, **options}
        return LanceScanner._of(self._state, scan_options(**{**given, "fragments": (self.fragment_id,)}))

    def to_table(
        self,
        columns: Columns = None,
        filter: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        **options: Unpack[ScanKeywords],
    ) -> pa.Table:
        """The rows as a table; parameters as for `LanceDataset.scanner`."""
        return self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **options).to_table()

    def to_batches(self, *, columns: Columns = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch; parameters as for `LanceDataset.scanner`."""
        return self.scanner(columns=columns, **options).to_batches()

    def to_pandas(
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
        scanner = self.scanner(columns=columns, filter=filter, limit=limit, offset=offset, **scan)
        return scanner.to_pandas(blob_mode=blob_mode, **options)

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows."""
        return self.scanner(**{**options, "limit": num_rows}).to_table()

    def take(self, indices: Any, columns: Selection = None) -> pa.Table:
        """Rows by position among the rows of the fragment that are left.

        Raises `OSError` unless the positions ascend (repetitions are allowed) and lie in the fragment.
        """
        positions = row_numbers(indices)
        return run(self._state, take_fragment_positions(self._state, self._place, positions, columns))

    def open_session(self, columns: Selection = None, with_row_address: bool | None = None) -> FragmentSession:
        """For many takes of the same columns, with the row address behind them if wanted."""
        return FragmentSession(self._state, self._place, columns, with_row_address=bool(with_row_address))

    def validate(self) -> None:
        """Check the fragment's files; see `LanceDataset.validate`."""
        run(self._state, validate(self._state, [self._place]))

    # -- changes, to be committed with `LanceOperation` ---------------------------------------------------------------

    def delete(self, predicate: Any) -> FragmentMetadata | None:
        """The fragment without the rows that pass a filter, None when none would be left; writes the deletion file."""
        return _public(run(self._state, delete_from_fragment(self._state, self._place, predicate)))

    def delete_rows(self, offsets: Any) -> FragmentMetadata | None:
        """The fragment without rows given by their offsets in it, deleted rows counted; as `delete`."""
        return _public(run(self._state, delete_offsets(self._state, self._place, row_numbers(offsets))))

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
    ) -> FragmentMetadata:
        """Write rows as one fragment that no version refers to yet; keywords as for `write_fragments`.

        fragment_id  its id, 0 ("to be numbered") by default
        """
        from lance_io.dataset.write.write_dataset import write_fragment

        return write_fragment(
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
        )

    @staticmethod
    def create_from_file(filename: str, dataset: LanceDataset, fragment_id: int) -> FragmentMetadata:
        """The fragment of a data file that lies in the table's `data` folder and has columns of its schema.

        Raises `OSError` for a file with other columns, and when there is no such file.
        """
        state = dataset._state
        return fragment_metadata(run(state, fragment_of_file(state, filename, fragment_id)))

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


def _public(fragment: Fragment_ | None) -> FragmentMetadata | None:
    return None if fragment is None else fragment_metadata(fragment)
