"""Rows into tables: create, append, overwrite.

Independent requests are sent at once (|| = in the same round):

    create                 LIST || data || transaction file; create the manifest
    append, table open     LIST || data || transaction file; GET of newer versions, if any; create the manifest
    append, by URI         LIST; GET; data || transaction file; create the manifest
    overwrite, by URI      as append; with an explicit file version LIST; GET || data || transaction file; create ...

Data files may be uploaded before the schema has been checked. A failed write removes them, unless the response to the
deciding write was lost: then a version may refer to them.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from lance_io.changes.operations.schema_fit import (
    DEFAULT_VERSION,
    check_mixture,
    check_version,
    fit_part,
    fit_schema,
    of_version,
    schema_of,
)
from lance_io.changes.write.data_files import FileLimits, NewFiles
from lance_io.changes.write.target_bases import TargetBases
from lance_io.commit.commit_files import CommitFiles
from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_queue import COMMIT_QUEUES
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.first_version import create_table
from lance_io.commit.target import LISTING_AGE_MAX_S, CommitTarget, Listing
from lance_io.errors import AlreadyExists, NotFound, OperationError, UsageError
from lance_io.io import trace_events
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import RollBackOnError, beside
from lance_io.reads.version.object_keys import table_root
from lance_io.reads.version.row_counts import with_row_counts
from lance_io.reads.version.state import DatasetState
from lance_io.reads.version.versions import cache_manifest, manifest_in
from lance_io.records import dataclass
from lance_io.redaction import get_logger
from lance_io.store.offers import offers_sync_writes
from lance_io.table.transaction.apply import Creation
from lance_io.table.transaction.operations import Append, Overwrite
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lance_io.changes.upkeep import remove_versions as cleanups
    from lance_io.changes.write import column_encodings
    from lance_io.changes.write.column_encodings import Encoding
    from lance_io.changes.write.input_data import AsyncRows, Rows
    from lance_io.changes.write.write_progress import FragmentWriteProgress
    from lance_io.commit.handler import CommitHandler
    from lance_io.commit.latest import VersionFile
    from lance_io.commit.target import CommittedVersion
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.session import Session
    from lance_io.store.api import Durability
    from lance_io.store.url import Location
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.manifest.paths import NamingScheme
    from lance_io.table.transaction.operations import Operation
else:
    cleanups = lazy_plans("lance_io.changes.upkeep.remove_versions")
    column_encodings = lazy_module("lance_io.changes.write.column_encodings")

MODES = ("create", "append", "overwrite")
_logger = get_logger(__name__)


@dataclass(frozen=True)
class WriteTarget:
    """Destination of rows.

    location  folder of the table, or of the branch
    root      folder of the table
    handler   makes versions visible
    manifest  the version that the caller has open; None when the caller gave only a URI
    base_store_params  storage options of base paths, by their URI
    writes_bases  whether files may go below base paths, whose stores are not resolved yet
    """

    location: Location
    root: Location
    session: Session
    handler: CommitHandler
    given_uri: str
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    manifest: Manifest | None = None
    base_store_params: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)
    writes_bases: bool = False

    @property
    def answers_sync(self) -> bool:
        """Whether writes and commits to this store can run in the caller's thread."""
        return not self.writes_bases and self.handler.answers_sync and offers_sync_writes(self.location.store)

    def commit_target(self, scheme: NamingScheme = "V2", durability: Durability | None = None) -> CommitTarget:
        """This destination for the commit loop."""
        return CommitTarget(self.location, self.handler, scheme, durability=durability)

    def manifest_in(self, file: VersionFile) -> Plan[Manifest]:
        """The manifest of a version; reads nothing if another commit of this process has just written it."""
        manifest = COMMIT_QUEUES.local_manifest(self.location, file)
        return manifest if manifest is not None else (yield from manifest_in(self.location, file, self.session.cache))

    def state(self, committed: CommittedVersion) -> DatasetState:
        """Open the version that was committed."""
        cache_manifest(self.location, committed.file, committed.manifest, self.session.cache)
        return self.opened(committed.manifest)

    def opened(self, manifest: Manifest) -> DatasetState:
        """Open a version of the table."""
        return DatasetState(
            location=self.location,
            root=table_root(self.location, manifest.branch) if self.location is self.root else self.root,
            manifest=manifest,
            session=self.session,
            given_uri=self.given_uri,
            storage_options=self.storage_options,
            base_store_params=self.base_store_params,
        )


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write.

    version         version of data files; None takes the table's, or the default
    scheme          naming scheme for the manifests of a new table
    stable_row_ids  whether a new table has stable row ids
    config          entries for the config of a table that is created or overwritten
    properties      properties of the transaction
    group_commit    whether an append may share its version with others, see `group_append.py`
    bases           base paths that a new table declares, and the folders of the new files
    skip_auto_cleanup  whether the table's config is ignored and no cleanup follows
    encodings       encodings of columns, kept as metadata of the fields of a new schema
    """

    mode: str = "create"
    version: FileVersion | None = None
    limits: FileLimits = field(default_factory=FileLimits)
    progress: FragmentWriteProgress | None = None
    scheme: NamingScheme = "V2"
    stable_row_ids: bool = False
    config: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    durability: Durability | None = None
    group_commit: bool = False
    bases: TargetBases = field(default_factory=TargetBases)
    skip_auto_cleanup: bool = False
    encodings: Mapping[str, Encoding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.bases.initial and self.mode != "create":
            raise OperationError(
                f"Cannot register new bases in {self.mode.capitalize()} mode. Only CREATE mode can register new "
                "bases; use LanceDataset.add_bases for an existing table"
            )
        if self.group_commit and self.bases.are_given:
            raise UsageError(
                "group_commit=True writes into the table's own folder: do not combine it with target_bases"
            )
        if self.group_commit and self.mode != "append":
            raise UsageError(f"group_commit=True is for appends: expected mode='append', found {self.mode!r}")
        if self.mode not in MODES:
            raise UsageError(f"Invalid mode {self.mode}: expected one of {', '.join(MODES)}")
        if self.durability not in (None, "full", "none"):
            raise UsageError(f"durability: expected 'full' or 'none', found {self.durability!r}")


def write_rows(target: WriteTarget, rows: Rows | AsyncRows, options: WriteOptions) -> Plan[DatasetState]:
    """Write rows and commit them; returns the new version.

    Raises `AlreadyExists` if `mode` is "create" and the table exists, `SchemaError` for rows that do not fit,
    `CommitConflictError` and `CommitUnknownError` as `commit` does.
    """
    if trace_events.listeners:
        trace_events.emit_dataset("writing", target.location.uri, mode=options.mode.capitalize())
    target.handler.check(target.location)
    given = given_schema(rows.schema, options)
    if options.mode == "create":
        return (yield from _create(target, rows, given, options))
    if target.manifest is not None:
        return (yield from _add(target, target.manifest, None, rows, given, options))
    taken_at = target.commit_target().clock.monotonic()
    needs_base = options.mode == "append" or options.version is None or options.bases.are_given

    def find_base(newest: VersionFile) -> Plan[Manifest | None]:
        return (yield from target.manifest_in(newest)) if needs_base else None

    try:
        newest, base = yield from target.handler.find_latest_and(target.location, find_base)
    except NotFound:
        _logger.warning("no table at %s: creating it", target.location.uri)
        return (yield from _create(target, rows, given, options))
    listing = Listing([newest], newest.version, taken_at)
    return (yield from _add(target, base, listing, rows, given, options))


def given_schema(rows: pa.Schema, options: WriteOptions) -> Schema:
    """The schema of rows, with the encodings of the options. Raises as `schema_of` and `with_encodings` do."""
    given = schema_of(rows)
    if not options.encodings:
        return given

    return column_encodings.with_encodings(given, options.encodings)


def new_files(
    target: WriteTarget, schema: Schema, version: FileVersion, options: WriteOptions, base: Manifest | None = None
) -> NewFiles:
    """The writer of a write's data files.

    base  the version that the write builds on, for its base paths; None for a new table

    Raises `SchemaError` for a schema that the file version cannot hold, `OperationError` for an undeclared base path.
    """
    check_version(schema, version)
    declared = {path.id: path for path in options.bases.initial} if base is None else base.base_paths
    return NewFiles(
        target.location,
        schema,
        version,
        options.limits,
        progress=options.progress,
        durability=options.durability,
        folders=options.bases.folders(target, declared),
    )


def _create(target: WriteTarget, rows: Rows | AsyncRows, given: Schema, options: WriteOptions) -> Plan[DatasetState]:
    version = options.version or DEFAULT_VERSION
    schema = of_version(given, version)
    files = new_files(target, schema, version, options)
    where = target.commit_target(options.scheme, options.durability)

    def still_empty(listed: Plan[float]) -> Plan[None]:
        if where.clock.monotonic() - (yield from listed) > LISTING_AGE_MAX_S:
            yield from check_no_table(target)

    def write(listed: Plan[float]) -> Plan[CommittedVersion]:
        yield from files.write(rows)
        operation = Overwrite(tuple(files.fragments), files.schema, dict(options.config), options.bases.initial)
        commit_files = CommitFiles()
        request = CommitRequest(
            Transaction(0, operation, properties=options.properties),
            listing=Listing([], 0, where.clock.monotonic()),  # empty: `still_empty` checks it in the same round
            files=commit_files,
            alongside=[files.publish_for_commit(commit_files), still_empty(listed)],
            creation=Creation(version, options.stable_row_ids),
        )
        return (yield from create_table(where, request))

    committed: CommittedVersion = yield RollBackOnError(beside(check_no_table(target), write), files.roll_back)
    return target.state(committed)


def check_no_table(target: WriteTarget) -> Plan[float]:
    """Check that no table exists; returns the time of the request. Raises `AlreadyExists`."""
    taken_at = target.commit_target().clock.monotonic()
    try:
        yield from target.handler.find_latest(target.location)
    except NotFound:
        return taken_at
    raise AlreadyExists(f"Dataset already exists: {target.given_uri}", path=target.location.uri)


def _add(
    target: WriteTarget,
    base: Manifest | None,
    listing: Listing | None,
    rows: Rows | AsyncRows,
    given: Schema,
    options: WriteOptions,
) -> Plan[DatasetState]:
    """Append to the version `base`, or overwrite a version of which at least the listing is known."""
    if base is not None:
        if 0 in base.fragments.physical_rows:  # an old release wrote no row counts; the new manifest will have them
            counted = yield from with_row_counts(target.opened(base))
            counted.check_files()
            base = counted.manifest
        version, read_version = options.version or base.data_version, base.version
    else:
        assert options.version is not None and listing is not None
        version, read_version = options.version, listing.versions[-1].version
    if base is not None and options.mode == "append":
        check_mixture(version, base.data_version)
        schema = (fit_part if rows.num_rows == 0 else fit_schema)(given, base.schema, version)
    else:
        schema = of_version(given, version)
    files = new_files(target, schema, version, options, base)

    def write() -> Plan[CommittedVersion]:
        yield from files.write(rows)
        fragments = tuple(files.fragments)
        operation: Operation = Append(fragments)
        if options.mode == "overwrite":
            operation = Overwrite(fragments, files.schema, dict(options.config))
        commit_files = CommitFiles()
        request = CommitRequest(
            Transaction(read_version, operation, properties=options.properties),
            base=base,
            listing=listing,
            files=commit_files,
            alongside=[files.publish_for_commit(commit_files)],
            creation=Creation(options.version, options.stable_row_ids),
        )
        return (yield from commit(target.commit_target(durability=options.durability), request))

    committed: CommittedVersion = yield RollBackOnError(write(), files.roll_back)
    state = target.state(committed)
    if state.manifest.config and not options.skip_auto_cleanup:
        yield from cleanups.after_commit(state)
    return state
