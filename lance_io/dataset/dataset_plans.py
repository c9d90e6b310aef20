"""What the methods of datasets do, as plans: once for both faces. Each loads what it needs when it is run.

Takes need no more than an open dataset does; their plans are those of `rows/take_rows.py` as they stand.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from lance_io.dataset.lazy_module import later, load
from lance_io.dataset.rows.deletions_and_ids import load_live_starts
from lance_io.dataset.rows.take_rows import sample_positions, take_positions
from lance_io.errors import UsageError
from lance_io.plans.plan import Call
from lance_io.runtime import cpu_pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa

    from lance_io.commit.cleanup import CleanupStats
    from lance_io.dataset.blobs import blob_file
    from lance_io.dataset.blobs.blob_file import BlobFile
    from lance_io.dataset.changes import change_plans, convert, remove_versions, transaction_history
    from lance_io.dataset.changes.lance_operation import Transaction
    from lance_io.dataset.changes.remove_versions import CleanupExplanation
    from lance_io.dataset.version import describe, file_listing, tags_and_branches, validation
    from lance_io.dataset.version.column_lists import Selection
    from lance_io.dataset.version.describe import Version, VersionRef
    from lance_io.dataset.version.file_listing import Portion
    from lance_io.dataset.version.state import DatasetState
    from lance_io.dataset.version.tags_and_branches import Branch, Tag
    from lance_io.plans.plan import Plan

    Values = Mapping[str, str | None]
else:
    blob_file = later("lance_io.dataset.blobs.blob_file")
    change_plans = later("lance_io.dataset.changes.change_plans")
    convert = later("lance_io.dataset.changes.convert")
    remove_versions = later("lance_io.dataset.changes.remove_versions")
    transaction_history = later("lance_io.dataset.changes.transaction_history")
    describe = later("lance_io.dataset.version.describe")
    file_listing = later("lance_io.dataset.version.file_listing")
    tags_and_branches = later("lance_io.dataset.version.tags_and_branches")
    validation = later("lance_io.dataset.version.validation")


# -- versions ----------------------------------------------------------------------------------------------------------


def versions(state: DatasetState) -> Plan[list[Version]]:
    """See `LanceDataset.versions`."""
    yield load(describe)
    return (yield from describe.describe_versions(state.location))


def version_refs(state: DatasetState) -> Plan[list[VersionRef]]:
    """See `LanceDataset.version_refs`."""
    yield load(describe)
    return (yield from describe.version_refs(state.location))


def tags(state: DatasetState) -> Plan[dict[str, Tag]]:
    """The table's tags by name."""
    yield load(tags_and_branches)
    return (yield from tags_and_branches.list_tags(state))


def branches(state: DatasetState) -> Plan[dict[str, Branch]]:
    """The table's branches by name."""
    yield load(tags_and_branches)
    return (yield from tags_and_branches.list_branches(state))


def all_files(state: DatasetState) -> Plan[pa.RecordBatchReader]:
    """See `LanceDataset.all_files`."""
    yield load(file_listing)
    return file_listing.reader(file_listing.ALL_FILES, [(yield from file_listing.all_files(state))])


def tracked_versions(state: DatasetState, min_version: int | None) -> Plan[list[Portion]]:
    """The parts in which `LanceDataset.tracked_files` reads manifests."""
    yield load(file_listing)
    return (yield from file_listing.tracked_versions(state, min_version))


def tracked_files(state: DatasetState, portion: Portion) -> Plan[pa.RecordBatch]:
    """The files that these versions refer to."""
    return (yield from file_listing.tracked_files(state, portion.files))


def validate(state: DatasetState) -> Plan[None]:
    """See `LanceDataset.validate`."""
    yield load(validation)
    yield from validation.validate(state, state.all_places)


# -- rows and blobs ----------------------------------------------------------------------------------------------------


def row_window(start: int, end: int) -> tuple[int, int]:
    """Offset and limit of a scan of rows by position. Raises `UsageError` unless `0 <= start <= end`."""
    if start < 0:
        raise UsageError(f"start must be non-negative, got {start}")
    if end < start:
        raise UsageError(f"end ({end}) must be >= start ({start})")
    return start, end - start


def sample(state: DatasetState, num_rows: int, columns: Selection, *, randomize_order: bool) -> Plan[pa.Table]:
    """See `LanceDataset.sample`; on a loop a thread draws."""
    starts = yield from load_live_starts(state)
    draw = partial(sample_positions, num_rows, int(starts[-1]), randomize_order=randomize_order)
    positions: Sequence[int] = yield Call(draw, cpu_pool())
    return (yield from take_positions(state, positions, columns))


def take_blobs(
    state: DatasetState, name: str, ids: Any, addresses: Any, indices: Any, buffer_size: int
) -> Plan[list[BlobFile | None]]:
    """See `LanceDataset.take_blobs`."""
    yield load(blob_file)
    return (yield from blob_file.take_blobs(state, name, ids, addresses, indices, buffer_size))


def read_blobs(
    state: DatasetState, name: str, ids: Any, addresses: Any, indices: Any
) -> Plan[list[tuple[int, bytes | None]]]:
    """See `LanceDataset.read_blobs`."""
    yield load(blob_file)
    return (yield from blob_file.read_blobs(state, name, ids, addresses, indices))


def read_blob_ranges(
    state: DatasetState, name: str, requests: Any, selector: str
) -> Plan[list[tuple[int, int, bytes | None]]]:
    """See `LanceDataset.read_blob_ranges`."""
    yield load(blob_file)
    return (yield from blob_file.read_blob_ranges(state, name, requests, selector))


# -- changes -----------------------------------------------------------------------------------------------------------


class DeleteResult(TypedDict):
    """What a delete did."""

    num_deleted_rows: int


def delete(
    state: DatasetState, predicate: Any, conflict_retries: int, retry_timeout: timedelta
) -> Plan[tuple[DatasetState, DeleteResult]]:
    """See `LanceDataset.delete`."""
    yield load(change_plans)
    retry_seconds = retry_timeout.total_seconds()
    after, num_rows = yield from change_plans.delete_rows(state, predicate, conflict_retries, retry_seconds)
    return after, DeleteResult(num_deleted_rows=num_rows)


def truncate(state: DatasetState) -> Plan[DatasetState]:
    """Delete all rows."""
    yield load(change_plans)
    return (yield from change_plans.truncate(state))


def restore(state: DatasetState) -> Plan[DatasetState]:
    """Make the open version the newest one again."""
    yield load(change_plans)
    return (yield from change_plans.restore(state))


def update_config(state: DatasetState, values: Values, *, replace: bool) -> Plan[DatasetState]:
    """See `LanceDataset.update_config`."""
    yield load(change_plans)
    return (yield from change_plans.update_config(state, values, replace_all=replace))


def delete_config_keys(state: DatasetState, keys: list[str]) -> Plan[DatasetState]:
    """See `LanceDataset.delete_config_keys`."""
    yield load(change_plans)
    return (yield from change_plans.delete_config_keys(state, keys))


def update_metadata(state: DatasetState, values: Values, *, replace: bool) -> Plan[DatasetState]:
    """See `LanceDataset.update_metadata`."""
    yield load(change_plans)
    return (yield from change_plans.update_metadata(state, values, replace_all=replace))


def update_schema_metadata(state: DatasetState, values: Values, *, replace: bool) -> Plan[DatasetState]:
    """See `LanceDataset.update_schema_metadata`."""
    yield load(change_plans)
    return (yield from change_plans.update_schema_metadata(state, values, replace_all=replace))


def update_field_metadata(
    state: DatasetState, updates: Mapping[str | int, Values], *, replace: bool
) -> Plan[DatasetState]:
    """See `LanceDataset.update_field_metadata`."""
    yield load(change_plans)
    return (yield from change_plans.update_field_metadata(state, updates, replace_all=replace))


# -- history and cleaning up -------------------------------------------------------------------------------------------


def read_transaction(state: DatasetState, version: int) -> Plan[Transaction | None]:
    """See `LanceDataset.read_transaction`."""
    yield load(transaction_history, convert)
    stored = yield from transaction_history.transaction_of(state, version)
    return None if stored is None else convert.to_public(stored)


def get_transactions(state: DatasetState, count: int) -> Plan[list[Transaction | None]]:
    """See `LanceDataset.get_transactions`."""
    yield load(transaction_history, convert)
    found = yield from transaction_history.recent_transactions(state.location, count)
    return [None if stored is None else convert.to_public(stored) for stored in found]


def clean_up(state: DatasetState, deletes_per_s: int | None, **policy: Any) -> Plan[CleanupStats]:
    """See `LanceDataset.cleanup_old_versions`; policy: keywords of `cleanup_policy`."""
    yield load(remove_versions)
    return (yield from remove_versions.clean_up(state, remove_versions.cleanup_policy(**policy), deletes_per_s))


def explain_cleanup(
    state: DatasetState, include_files: bool, max_files: int, **policy: Any
) -> Plan[CleanupExplanation]:
    """See `LanceDataset.explain_cleanup_old_versions`; policy: keywords of `cleanup_policy`."""
    yield load(remove_versions)
    rules = remove_versions.cleanup_policy(**policy)
    plan = remove_versions.explain_cleanup(state, rules, include_files=include_files, max_files=max_files)
    return (yield from plan)
