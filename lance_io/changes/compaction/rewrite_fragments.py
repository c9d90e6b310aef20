"""One task: writes the rows of some fragments, without deleted rows and dropped columns, to new data files.

    scan of the fragments, in order --batch by batch--> `NewFiles`, cut at the target rows --> fragments of id 0
    row ids and versions of the live rows, joined --> those of the new fragments (spec: table, 6.3)

The table does not change here. Memory holds the prefetch of the scan, the pages that the writer fills, and 24 bytes a
row if rows have stable ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lance_io.changes.compaction.plan_tasks import rows_per_fragment
from lance_io.changes.operations.schema_fit import check_version
from lance_io.changes.write.data_files import BYTES_PER_FILE, FileLimits, NewFiles, data_file_name
from lance_io.file.write.file_bytes import COLUMNS_AT_FULL_SIZE, PAGE_BYTES
from lance_io.limits import IO_BUFFER_BYTES, KIB, MIB, SCAN_PIECE_BYTES
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.streams import EachInPlan
from lance_io.reads.rows.deletions_and_ids import load_live, load_row_columns
from lance_io.reads.scan.execute import projected_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.column_lists import project
from lance_io.reads.version.system_columns import CREATED_AT, ROW_ID, UPDATED_AT
from lance_io.table.manifest.row_ids import encode_row_ids
from lance_io.table.transaction.lineage import encode_row_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_io.changes.compaction.compaction_options import CompactionSettings
    from lance_io.changes.compaction.copy_blobs import BlobCopies
    from lance_io.changes.write.write_progress import FragmentWriteProgress
    from lance_io.plans.plan import Plan
    from lance_io.plans.streams import Stream
    from lance_io.reads.rows.row_arithmetic import LiveRows
    from lance_io.reads.rows.row_columns import Lineage
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment

    U64Array = npt.NDArray[np.uint64]

BATCH_BYTES: Final = 4 * MIB  # of rows in a batch
BATCH_ROWS_MAX: Final = 1 << 16
PAGE_BYTES_MIN: Final = 256 * KIB
OVERLAP_BYTES_MIN: Final = 256 * MIB  # of a memory limit with which pages are encoded while the next rows are read
_LINEAGE: Final = (ROW_ID, CREATED_AT, UPDATED_AT)


@dataclass(frozen=True, slots=True)
class Budget:
    """Shares of a memory limit: half for pages that are filled and encoded, a quarter for prefetch. All in bytes.

    page_bytes   leaf data of a page
    ahead_bytes  prefetch
    batch_bytes  rows of a batch
    """

    page_bytes: int
    ahead_bytes: int
    batch_bytes: int

    @classmethod
    def share(cls, limit_bytes: int, num_columns: int) -> Budget:
        """Divide a limit for a table with `num_columns` leaf columns."""
        columns = min(max(1, num_columns), COLUMNS_AT_FULL_SIZE)
        page_bytes = max(PAGE_BYTES_MIN, min(PAGE_BYTES, limit_bytes // 4 // columns))
        return cls(page_bytes, min(IO_BUFFER_BYTES, limit_bytes // 4), min(BATCH_BYTES, limit_bytes // 16))


def new_files(
    state: DatasetState,
    num_rows: int,
    options: CompactionSettings,
    progress: FragmentWriteProgress | None,
    copies: BlobCopies | None,
    new_name: Callable[[], str] = data_file_name,
) -> NewFiles:
    """A writer of data files for `num_rows` rows.

    copies    reads their blobs, if there are any
    new_name  returns the name of a file

    Raises `SchemaError` for a file version that cannot hold the table's columns.
    """
    version = options.file_version(state.manifest.data_version)
    if version != state.manifest.data_version:
        check_version(state.schema, version)
    limits = FileLimits(
        rows=rows_per_fragment(num_rows, options),
        num_bytes=options.max_bytes_per_file or BYTES_PER_FILE,
        page_bytes=budget_of(state, options).page_bytes,
        group_rows=options.max_rows_per_group,
        blob_references=True,
        overlaps=options.memory_limit_bytes >= OVERLAP_BYTES_MIN,
    )
    return NewFiles(
        state.location,
        state.schema,
        version,
        limits,
        progress=progress,
        new_name=new_name,
        payloads=copies,
        checks_rows=True,
        checks_texts=False,
    )


def budget_of(state: DatasetState, options: CompactionSettings) -> Budget:
    """The shares of a compaction's memory limit."""
    return Budget.share(options.memory_limit_bytes, sum(1 for field in state.schema.walk() if not field.children))


def rewrite_rows_of(
    state: DatasetState,
    indexes: Sequence[int],
    files: NewFiles,
    options: CompactionSettings,
    copies: BlobCopies | None,
) -> Plan[None]:
    """Read all live rows of some fragments, and write them."""

    def add(batch: pa.RecordBatch) -> Plan[None]:
        if copies is not None:
            batch = yield from copies.locate(batch)
        # A small slice of a large buffer would keep the whole buffer in memory until its page is full.
        together_bytes = batch.get_total_buffer_size()
        is_most = together_bytes <= max(SCAN_PIECE_BYTES * batch.num_columns, 2 * batch.nbytes)
        yield from files.add(batch, held=is_most)

    yield EachInPlan(_rows_of(state, indexes, options), add)
    yield from files.complete_last_file()


def _rows_of(state: DatasetState, indexes: Sequence[int], options: CompactionSettings) -> Stream:
    scan = scan_of(state, indexes, options)
    return projected_batches(state, scan, project(state.schema, None, with_row_address=state.schema.has_blobs))


def scan_of(state: DatasetState, indexes: Sequence[int], options: CompactionSettings) -> ScanOptions:
    """Options of the scan of some fragments: all live rows, in order, within the memory limit."""
    budget = budget_of(state, options)
    return scan_options(
        fragments=tuple(state.fragment_ids[index] for index in indexes),
        batch_size=options.batch_size or BATCH_ROWS_MAX,
        batch_size_bytes=budget.batch_bytes,
        io_buffer_size=budget.ahead_bytes if options.io_buffer_size is None else options.io_buffer_size,
        scan_in_order=True,
    )


# -- ids and versions of rows ------------------------------------------------------------------------------------------


def carry_lineage(state: DatasetState, indexes: Sequence[int], fragments: Sequence[Fragment]) -> Plan[list[Fragment]]:
    """Add ids and versions of rows to new fragments; does nothing in a table without stable row ids.

    indexes    indexes of the old fragments, in order
    fragments  new fragments with their live rows, in the same order
    """
    if not state.has_stable_row_ids or not fragments:
        return list(fragments)
    live = yield from load_live(state, indexes)
    columns = yield from load_row_columns(state, indexes, _LINEAGE)
    ids, created, updated = _join([(columns.lineages[index], live[index]) for index in indexes])
    ends = np.cumsum([fragment.physical_rows for fragment in fragments])[:-1]
    parts = np.split(ids, ends)
    sequences = yield Compute(lambda: [encode_row_ids(part) for part in parts], lambda: ids.nbytes)
    return [
        replace(
            fragment,
            row_ids=sequence,
            created_at_versions=encode_row_versions(first),
            last_updated_at_versions=encode_row_versions(last),
        )
        for fragment, sequence, first, last in zip(
            fragments, sequences, np.split(created, ends), np.split(updated, ends), strict=True
        )
    ]


def _join(parts: Sequence[tuple[Lineage, LiveRows]]) -> tuple[U64Array, U64Array, U64Array]:
    """Ids, creation versions and update versions of the live rows."""
    columns: tuple[list[U64Array], list[U64Array], list[U64Array]] = ([], [], [])
    for lineage, live in parts:
        ones = np.ones(live.num_rows, dtype=np.uint64)
        for column, values in zip(columns, (lineage.row_ids, lineage.created_at, lineage.updated_at), strict=True):
            of_all = ones if values is None else values
            column.append(of_all if live.deleted is None else np.delete(of_all, live.deleted))
    ids, created, updated = (np.concatenate(column) for column in columns)
    return ids, created, updated
