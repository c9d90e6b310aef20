"""Statistics of a table: rows, fragments, bytes per field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from lance_io.file.file_requests import ReadFile
from lance_io.file.open.data_file import OpenedFile
from lance_io.file.open.open_file import open_cached
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import Together
from lance_io.reads.rows.deletions_and_ids import load_live_counts
from lance_io.reads.run_plan import AsyncFace, SyncFace

if TYPE_CHECKING:
    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.file_source import FileRef, ReadContext
    from lance_io.format.columns import ColumnInfo
    from lance_io.plans.plan import Plan
    from lance_io.reads.metadata import index_statistics
    from lance_io.reads.version.state import DatasetState
else:
    index_statistics = lazy_plans("lance_io.reads.metadata.index_statistics")


class DatasetStats(TypedDict):
    """Counts of one version.

    Attributes:
        num_deleted_rows: Number of deleted rows.
        num_fragments: Number of fragments.
        num_small_files: Number of small fragments.
    """

    num_deleted_rows: int
    num_fragments: int
    num_small_files: int


@dataclass(frozen=True)
class FieldStatistics:
    """Bytes of one field's pages in the data files.

    Attributes:
        id: Field id.
        bytes_on_disk: Bytes; 0 for structs and lists, whose leaves have the pages.
    """

    id: int
    bytes_on_disk: int


@dataclass(frozen=True)
class DataStatistics:
    """Statistics of the data.

    Attributes:
        fields: Statistics of each field.
    """

    fields: list[FieldStatistics]


class LanceStats(SyncFace):
    """Statistics of a dataset version."""

    def dataset_stats(self, max_rows_per_group: int = 1024) -> DatasetStats:
        """Count rows and fragments.

        Args:
            max_rows_per_group: Fragments with fewer rows count as small.
        """
        return self._run(dataset_stats(self._state, max_rows_per_group))

    def data_stats(self) -> DataStatistics:
        """Count the bytes of each field. Reads the metadata of every data file."""
        return self._run(data_stats(self._state))

    def index_stats(self, index_name: str) -> dict[str, Any]:
        """Describe an index: its segments, and the rows and fragments that they cover.

        Args:
            index_name: Name of the index.

        Returns:
            The statistics, in the form of pylance's.

        Raises:
            KeyError: No index has this name.
        """
        return self._run(index_statistics.index_stats(self._state, index_name))


class AsyncStats(AsyncFace):
    """Statistics of a dataset version, awaitable."""

    async def dataset_stats(self, max_rows_per_group: int = 1024) -> DatasetStats:
        """Count rows and fragments. See `LanceStats.dataset_stats`."""
        return await self._run(dataset_stats(self._state, max_rows_per_group))

    async def data_stats(self) -> DataStatistics:
        """Count the bytes of each field. See `LanceStats.data_stats`."""
        return await self._run(data_stats(self._state))

    async def index_stats(self, index_name: str) -> dict[str, Any]:
        """Describe an index. See `LanceStats.index_stats`."""
        return await self._run(index_statistics.index_stats(self._state, index_name))


def dataset_stats(state: DatasetState, max_rows_per_group: int) -> Plan[DatasetStats]:
    """See `LanceStats.dataset_stats`."""
    live = yield from load_live_counts(state, state.all_fragment_indexes)
    return DatasetStats(
        num_deleted_rows=int(state.physical_rows.sum()) - sum(live),
        num_fragments=len(live),
        num_small_files=int((state.physical_rows < max_rows_per_group).sum()),
    )


def data_stats(state: DatasetState) -> Plan[DataStatistics]:
    """See `LanceStats.data_stats`."""
    refs = [ref for fragment_index in state.all_fragment_indexes for ref in state.sources[fragment_index].files]
    sizes: list[dict[int, int]] = yield Together([_field_bytes(state, ref) for ref in refs])
    total = {field.id: 0 for field in state.schema.walk()}
    for bytes_by_field in sizes:
        for field_id, num_bytes in bytes_by_field.items():
            if field_id in total:
                total[field_id] += num_bytes
    return DataStatistics([FieldStatistics(field_id, num_bytes) for field_id, num_bytes in total.items()])


def _field_bytes(state: DatasetState, ref: FileRef) -> Plan[dict[int, int]]:
    reading = ReadFile(state.context, ref.key, _column_infos(state.context, ref), ref.size_bytes)
    columns: dict[int, ColumnInfo] = yield reading
    return {
        field_id: sum(page.data_bytes for page in columns[index].pages) + sum(columns[index].buffer_sizes)
        for field_id, index in ref.columns.items()
        if index in columns
    }


def _column_infos(context: ReadContext, ref: FileRef) -> FileSteps[dict[int, ColumnInfo]]:
    """The column metadata of a file; empty for version 0.1, which records only where pages begin."""
    file, _ = yield from open_cached(context, ref, sorted(ref.columns.values()))
    if not isinstance(file, OpenedFile):
        return {}
    return {index: file.info(index) for index in ref.columns.values()}
