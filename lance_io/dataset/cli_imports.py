"""Internal names that the command uses: `cli/` imports these and no other internals. They load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_io.lazy_names import lazy_module, lazy_names

if TYPE_CHECKING:
    from lance_io import runtime
    from lance_io.caller_text import no_unicode
    from lance_io.changes.columns import evolve_schema
    from lance_io.changes.compaction.compact_files import compact_files
    from lance_io.changes.compaction.explain_compaction import explain_compaction
    from lance_io.changes.edits import change_plans
    from lance_io.changes.edits.update_rows import update_rows
    from lance_io.changes.index.build_progress import BuildProgress
    from lance_io.changes.index.create_index import create_index
    from lance_io.changes.index.index_config import IndexConfig
    from lance_io.changes.index.optimize_indices import optimize_indices
    from lance_io.changes.merge.merge_clauses import Matched, MergeClauses, key_columns
    from lance_io.changes.merge.merge_plan import count_merge, merge_rows
    from lance_io.changes.upkeep import change_branches, clone_tables, remove_versions
    from lance_io.changes.upkeep.change_tags import create_tag, delete_tag, update_tag
    from lance_io.changes.write.data_files import ROWS_PER_FILE
    from lance_io.changes.write.input_data import rows_of
    from lance_io.changes.write.run_write import run_change_with_rows
    from lance_io.changes.write.write_progress import FragmentWriteProgress
    from lance_io.commit.latest import VersionFile, list_versions
    from lance_io.commit.manifest_reads import read_manifest, recorded_transaction
    from lance_io.commit.table_location import open_location
    from lance_io.dataset.change_methods import CONFLICT_RETRIES, RETRY_TIMEOUT
    from lance_io.dataset.lance_dataset import new_dataset
    from lance_io.dataset.tags_and_branches import list_branches, list_tags
    from lance_io.dataset.write_table import write_dataset
    from lance_io.encodings.api import PageDescription
    from lance_io.file.file_report import ColumnPages, describe_columns, describe_pages
    from lance_io.file.file_requests import ReadFile
    from lance_io.file.file_steps import FileSteps
    from lance_io.file.open.data_file import OpenedFile
    from lance_io.file.open.file_source import FileRef, ReadContext
    from lance_io.file.open.leaf_projection import FileColumns, Projection
    from lance_io.file.open.open_file import load_columns, open_cached
    from lance_io.file.open.projected_pages import TableFile
    from lance_io.format.schema import Field
    from lance_io.io.cache import SearchCache
    from lance_io.io.scheduler import ReadScheduler
    from lance_io.levels.lists import with_inner
    from lance_io.plans.plan import Plan, Together
    from lance_io.plans.store_requests import List
    from lance_io.reads.memory_limit import ScanBounds, limit_of
    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata
    from lance_io.reads.metadata.index_descriptions import describe_indices
    from lance_io.reads.metadata.index_statistics import index_stats
    from lance_io.reads.open_version import check_out, open_options, open_steps, tag_of
    from lance_io.reads.rows.deletions_and_ids import load_live_counts
    from lance_io.reads.run_plan import run, run_on, run_sync
    from lance_io.reads.scan import execute
    from lance_io.reads.scan.execute import collect, count, stream
    from lance_io.reads.scan.explain import explain_scan, explain_take
    from lance_io.reads.scan.io_plan import IoPlan, cost_report, cost_text, count_of, format_bytes
    from lance_io.reads.scan.scan_options import ScanOptions, scan_options
    from lance_io.reads.scan.scan_plan import scan_projection
    from lance_io.reads.scan.text.full_text_request import words_query
    from lance_io.reads.takes.take_rows import take_positions
    from lance_io.reads.version.session import Session
    from lance_io.reads.version.state import DatasetState
    from lance_io.reads.version.system_columns import CREATED_AT, UPDATED_AT
    from lance_io.reads.version.versions import all_summaries
    from lance_io.spans import Ranges
    from lance_io.store.api import ObjectMeta, ObjectStore, Selection
    from lance_io.store.cloud.client_options import HEADERS, certificates_file, tls_context
    from lance_io.store.cloud.cloud_store import CloudStore
    from lance_io.store.costs import COST_OPTIONS, Cost, RequestCosts, costs_of
    from lance_io.store.counters import StatsSnapshot
    from lance_io.store.offers import SyncReads, offers_sync_writes
    from lance_io.store.profile import CLOUD, StoreProfile
    from lance_io.store.s3 import loop_state
    from lance_io.store.s3 import site as sites
    from lance_io.store.storage_options import normalize, planning, planning_variables
    from lance_io.store.url import Location
    from lance_io.table.manifest.fragment import Fragment
    from lance_io.table.manifest.paths import VERSIONS
    from lance_io.table.transaction.auto_cleanup import duration_s
    from lance_io.table.transaction.transaction import COMMIT_MESSAGE_KEY
else:
    change_branches = lazy_module("lance_io.changes.upkeep.change_branches")
    change_plans = lazy_module("lance_io.changes.edits.change_plans")
    clone_tables = lazy_module("lance_io.changes.upkeep.clone_tables")
    evolve_schema = lazy_module("lance_io.changes.columns.evolve_schema")
    execute = lazy_module("lance_io.reads.scan.execute")
    loop_state = lazy_module("lance_io.store.s3.loop_state")
    remove_versions = lazy_module("lance_io.changes.upkeep.remove_versions")
    runtime = lazy_module("lance_io.runtime")
    sites = lazy_module("lance_io.store.s3.site")

_HOMES = {
    "BuildProgress": "lance_io.changes.index.build_progress",
    "CLOUD": "lance_io.store.profile",
    "COMMIT_MESSAGE_KEY": "lance_io.table.transaction.transaction",
    "CONFLICT_RETRIES": "lance_io.dataset.change_methods",
    "COST_OPTIONS": "lance_io.store.costs",
    "CREATED_AT": "lance_io.reads.version.system_columns",
    "CloudStore": "lance_io.store.cloud.cloud_store",
    "ColumnPages": "lance_io.file.file_report",
    "Cost": "lance_io.store.costs",
    "DatasetState": "lance_io.reads.version.state",
    "Field": "lance_io.format.schema",
    "FileColumns": "lance_io.file.open.leaf_projection",
    "FileRef": "lance_io.file.open.file_source",
    "FileSteps": "lance_io.file.file_steps",
    "Fragment": "lance_io.table.manifest.fragment",
    "FragmentMetadata": "lance_io.reads.metadata.fragment_metadata",
    "FragmentWriteProgress": "lance_io.changes.write.write_progress",
    "HEADERS": "lance_io.store.cloud.client_options",
    "IndexConfig": "lance_io.changes.index.index_config",
    "IoPlan": "lance_io.reads.scan.io_plan",
    "List": "lance_io.plans.store_requests",
    "Location": "lance_io.store.url",
    "Matched": "lance_io.changes.merge.merge_clauses",
    "MergeClauses": "lance_io.changes.merge.merge_clauses",
    "ObjectMeta": "lance_io.store.api",
    "ObjectStore": "lance_io.store.api",
    "OpenedFile": "lance_io.file.open.data_file",
    "PageDescription": "lance_io.encodings.api",
    "Plan": "lance_io.plans.plan",
    "Projection": "lance_io.file.open.leaf_projection",
    "RETRY_TIMEOUT": "lance_io.dataset.change_methods",
    "ROWS_PER_FILE": "lance_io.changes.write.data_files",
    "Ranges": "lance_io.spans",
    "ReadContext": "lance_io.file.open.file_source",
    "ReadFile": "lance_io.file.file_requests",
    "ReadScheduler": "lance_io.io.scheduler",
    "RequestCosts": "lance_io.store.costs",
    "ScanBounds": "lance_io.reads.memory_limit",
    "ScanOptions": "lance_io.reads.scan.scan_options",
    "SearchCache": "lance_io.io.cache",
    "Selection": "lance_io.store.api",
    "Session": "lance_io.reads.version.session",
    "StatsSnapshot": "lance_io.store.counters",
    "StoreProfile": "lance_io.store.profile",
    "SyncReads": "lance_io.store.offers",
    "TableFile": "lance_io.file.open.projected_pages",
    "Together": "lance_io.plans.plan",
    "UPDATED_AT": "lance_io.reads.version.system_columns",
    "VERSIONS": "lance_io.table.manifest.paths",
    "VersionFile": "lance_io.commit.latest",
    "all_summaries": "lance_io.reads.version.versions",
    "certificates_file": "lance_io.store.cloud.client_options",
    "check_out": "lance_io.reads.open_version",
    "collect": "lance_io.reads.scan.execute",
    "compact_files": "lance_io.changes.compaction.compact_files",
    "cost_report": "lance_io.reads.scan.io_plan",
    "cost_text": "lance_io.reads.scan.io_plan",
    "costs_of": "lance_io.store.costs",
    "count": "lance_io.reads.scan.execute",
    "count_merge": "lance_io.changes.merge.merge_plan",
    "count_of": "lance_io.reads.scan.io_plan",
    "create_index": "lance_io.changes.index.create_index",
    "create_tag": "lance_io.changes.upkeep.change_tags",
    "delete_tag": "lance_io.changes.upkeep.change_tags",
    "describe_columns": "lance_io.file.file_report",
    "describe_indices": "lance_io.reads.metadata.index_descriptions",
    "describe_pages": "lance_io.file.file_report",
    "duration_s": "lance_io.table.transaction.auto_cleanup",
    "explain_compaction": "lance_io.changes.compaction.explain_compaction",
    "explain_scan": "lance_io.reads.scan.explain",
    "explain_take": "lance_io.reads.scan.explain",
    "format_bytes": "lance_io.reads.scan.io_plan",
    "index_stats": "lance_io.reads.metadata.index_statistics",
    "key_columns": "lance_io.changes.merge.merge_clauses",
    "limit_of": "lance_io.reads.memory_limit",
    "list_branches": "lance_io.dataset.tags_and_branches",
    "list_tags": "lance_io.dataset.tags_and_branches",
    "list_versions": "lance_io.commit.latest",
    "load_columns": "lance_io.file.open.open_file",
    "load_live_counts": "lance_io.reads.rows.deletions_and_ids",
    "merge_rows": "lance_io.changes.merge.merge_plan",
    "new_dataset": "lance_io.dataset.lance_dataset",
    "no_unicode": "lance_io.caller_text",
    "normalize": "lance_io.store.storage_options",
    "offers_sync_writes": "lance_io.store.offers",
    "open_cached": "lance_io.file.open.open_file",
    "open_location": "lance_io.commit.table_location",
    "open_options": "lance_io.reads.open_version",
    "open_steps": "lance_io.reads.open_version",
    "optimize_indices": "lance_io.changes.index.optimize_indices",
    "planning": "lance_io.store.storage_options",
    "planning_variables": "lance_io.store.storage_options",
    "read_manifest": "lance_io.commit.manifest_reads",
    "recorded_transaction": "lance_io.commit.manifest_reads",
    "rows_of": "lance_io.changes.write.input_data",
    "run": "lance_io.reads.run_plan",
    "run_change_with_rows": "lance_io.changes.write.run_write",
    "run_on": "lance_io.reads.run_plan",
    "run_sync": "lance_io.reads.run_plan",
    "scan_options": "lance_io.reads.scan.scan_options",
    "words_query": "lance_io.reads.scan.text.full_text_request",
    "scan_projection": "lance_io.reads.scan.scan_plan",
    "stream": "lance_io.reads.scan.execute",
    "tag_of": "lance_io.reads.open_version",
    "take_positions": "lance_io.reads.takes.take_rows",
    "tls_context": "lance_io.store.cloud.client_options",
    "update_rows": "lance_io.changes.edits.update_rows",
    "update_tag": "lance_io.changes.upkeep.change_tags",
    "with_inner": "lance_io.levels.lists",
    "write_dataset": "lance_io.dataset.write_table",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "CLOUD",
    "COMMIT_MESSAGE_KEY",
    "CONFLICT_RETRIES",
    "COST_OPTIONS",
    "CREATED_AT",
    "CloudStore",
    "ColumnPages",
    "Cost",
    "DatasetState",
    "Field",
    "FileColumns",
    "FileRef",
    "FileSteps",
    "Fragment",
    "FragmentMetadata",
    "FragmentWriteProgress",
    "HEADERS",
    "IoPlan",
    "List",
    "Location",
    "Matched",
    "MergeClauses",
    "ObjectMeta",
    "ObjectStore",
    "OpenedFile",
    "PageDescription",
    "Plan",
    "Projection",
    "RETRY_TIMEOUT",
    "ROWS_PER_FILE",
    "Ranges",
    "ReadContext",
    "ReadFile",
    "ReadScheduler",
    "RequestCosts",
    "ScanBounds",
    "ScanOptions",
    "SearchCache",
    "Selection",
    "Session",
    "StatsSnapshot",
    "StoreProfile",
    "SyncReads",
    "TableFile",
    "Together",
    "UPDATED_AT",
    "VERSIONS",
    "VersionFile",
    "all_summaries",
    "certificates_file",
    "change_branches",
    "change_plans",
    "check_out",
    "clone_tables",
    "collect",
    "compact_files",
    "cost_report",
    "cost_text",
    "costs_of",
    "count",
    "count_merge",
    "count_of",
    "create_tag",
    "delete_tag",
    "describe_columns",
    "describe_pages",
    "duration_s",
    "evolve_schema",
    "execute",
    "explain_compaction",
    "explain_scan",
    "explain_take",
    "format_bytes",
    "key_columns",
    "limit_of",
    "list_branches",
    "list_tags",
    "list_versions",
    "load_columns",
    "load_live_counts",
    "loop_state",
    "merge_rows",
    "new_dataset",
    "no_unicode",
    "normalize",
    "offers_sync_writes",
    "open_cached",
    "open_options",
    "open_location",
    "open_steps",
    "planning",
    "planning_variables",
    "read_manifest",
    "recorded_transaction",
    "remove_versions",
    "rows_of",
    "run",
    "run_change_with_rows",
    "run_on",
    "run_sync",
    "runtime",
    "scan_options",
    "scan_projection",
    "sites",
    "stream",
    "tag_of",
    "take_positions",
    "tls_context",
    "update_rows",
    "update_tag",
    "with_inner",
    "words_query",
    "write_dataset",
    "BuildProgress",
    "IndexConfig",
    "create_index",
    "describe_indices",
    "index_stats",
    "optimize_indices",
]
