"""Rows into tables: create, append, overwrite.

What depends on nothing is asked for at once (|| = in the same round):

    create                 LIST || data || transaction file; create the manifest
    append, table open     LIST || data || transaction file; GET of newer versions, if any; create the manifest
    append, by URI         LIST; GET; data || transaction file; create the manifest
    overwrite, by URI      as append; with an explicit file version LIST; GET || data || transaction file; create ...

Data files may be there before the schema has been checked; a write that fails removes them, unless the answer to the
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
from lance_io.commit.commit_queue import TURNS
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.first_version import create_table
from lance_io.commit.loop import commit
from lance_io.commit.target import LISTING_AGE_MAX_S, CommitTarget, Listing
from lance_io.errors import AlreadyExists, NotFound, OperationError, UsageError
from lance_io.io import trace_events
from lance_io.lazy_names import later
from lance_io.plans.lazy_module import later_plans
from lance_io.plans.plan import RollBackOnError, beside
from lance_io.reads.version.object_keys import table_root
from lance_io.reads.version.row_counts import with_row_counts
from lance_io.reads.version.state import DatasetState
from lance_io.reads.version.versions import keep_manifest, manifest_in
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
    cleanups = later_plans("lance_io.changes.upkeep.remove_versions")
    column_encodings = later("lance_io.changes.write.column_encodings")

MODES = ("create", "append", "overwrite")
_logger = get_logger(__name__)


@dataclass(frozen=True)
class WriteTarget:
    """Where rows are written.

    location  folder of the table, or of the branch
    root      folder of the table
    handler   what makes versions visible
    manifest  the version that the caller holds; None when it only knows the place
    base_store_params  storage options of base paths, by their URI
    writes_bases  whether files may go below base paths, whose stores nobody knows yet
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
        """Whether writes and commits there can run in the caller's thread."""
        return not self.writes_bases and self.handler.answers_sync and offers_sync_writes(self.location.store)

    def commit_target(self, scheme: NamingScheme = "V2", durability: Durability | None = None) -> CommitTarget:
        """The same for the commit loop."""
        return CommitTarget(self.location, self.handler, scheme, durability=durability)

    def manifest_in(self, file: VersionFile) -> Plan[Manifest]:
        """What is in the file of a version, read unless another commit of this process has just made it."""
        made = TURNS.manifest_in(self.location, file)
        return made if made is not None else (yield from manifest_in(self.location, file, self.session.cache))

    def state(self, committed: CommittedVersion) -> DatasetState:
        """The version that was committed, open."""
        keep_manifest(self.location, committed.file, committed.manifest, self.session.cache)
        return self.opened(committed.manifest)

    def opened(self, manifest: Manifest) -> DatasetState:
        """A version of the table, open."""
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
    """How rows are written.

    version         of data files; None takes the table's, or the default
    scheme          how manifests of a new table are named
    stable_row_ids  of a new table
    config          entries for the table's config, where a table is created or overwritten
    properties      of the transaction
    group_commit    whether an append may share its version with others, see `group_append.py`
    bases           base paths that a new table declares, and where the files go
    skip_auto_cleanup  whether no cleanup follows, whatever the table's config says
    encodings       of columns, which the fields of a new schema keep as metadata
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
                "bases; LanceDataset.add_bases adds them to a table"
            )
        if self.group_commit and self.bases.are_asked_for:
            raise UsageError("group_commit=True writes into the table's own folder: take target_bases without it")
        if self.group_commit and self.mode != "append":
            raise UsageError(f"group_commit=True is for appends: expected mode='append', found {self.mode!r}")
        if self.mode not in MODES:
            raise UsageError(f"Invalid mode {self.mode}: expected one of {', '.join(MODES)}")
        if self.durability not in (None, "full", "none"):
            raise UsageError(f"durability: expected 'full' or 'none', found {self.durability!r}")


def write_rows(target: WriteTarget, rows: Rows | AsyncRows, options: WriteOptions) -> Plan[DatasetState]:
    """Write rows and commit them; gives the new version.

    Raises `AlreadyExists` for `create` where there is a table, `SchemaError` for rows that do not fit,
    `CommitConflictError` and `CommitUnknownError` as `commit` does.
    """
    if trace_events.listeners:
        trace_events.tell_dataset("writing", target.location.uri, mode=options.mode.capitalize())
    target.handler.check(target.location)
    given = given_schema(rows.schema, options)
    if options.mode == "create":
        return (yield from _create(target, rows, given, options))
    if target.manifest is not None:
        return (yield from _add(target, target.manifest, None, rows, given, options))
    taken_at = target.commit_target().clock.monotonic()
    needs_base = options.mode == "append" or options.version is None or options.bases.are_asked_for

    def find_base(newest: VersionFile) -> Plan[Manifest | None]:
        return (yield from target.manifest_in(newest)) if needs_base else None

    try:
        newest, base = yield from target.handler.find_latest_and(target.location, find_base)
    except NotFound:
        _logger.warning("no table at %s: it is created", target.location.uri)
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
    """The files of a write.

    base  the version that it builds on, for its base paths; None for a new table

    Raises `SchemaError` for a schema that they cannot hold, `OperationError` for a base path that is not declared.
    """
    check_version(schema, version)
    declared = {one.id: one for one in options.bases.initial} if base is None else base.base_paths
    return NewFiles(
        target.location,
        schema,
        version,
        options.limits,
        progress=options.progress,
        durability=options.durability,
        places=options.bases.places(target, declared),
    )


def _create(target: WriteTarget, rows: Rows | AsyncRows, given: Schema, options: WriteOptions) -> Plan[DatasetState]:
    version = options.version or DEFAULT_VERSION
    schema = of_version(given, version)
    files = new_files(target, schema, version, options)
    where = target.commit_target(options.scheme, options.durability)

    def still_empty(listed: Plan[float]) -> Plan[None]:
        if where.clock.monotonic() - (yield from listed) > LISTING_AGE_MAX_S:
            yield from expect_nothing(target)

    def write(listed: Plan[float]) -> Plan[CommittedVersion]:
        yield from files.write(rows)
        operation = Overwrite(tuple(files.fragments), files.schema, dict(options.config), options.bases.initial)
        made = CommitFiles()
        request = CommitRequest(
            Transaction(0, operation, properties=options.properties),
            listing=Listing([], 0, where.clock.monotonic()),  # nothing, as `still_empty` makes sure in the same round
            files=made,
            alongside=[files.publish(made), still_empty(listed)],
            creation=Creation(version, options.stable_row_ids),
        )
        return (yield from create_table(where, request))

    committed: CommittedVersion = yield RollBackOnError(beside(expect_nothing(target), write), files.roll_back)
    return target.state(committed)


def expect_nothing(target: WriteTarget) -> Plan[float]:
    """Make sure that there is no table; gives the time at which that was asked. Raises `AlreadyExists`."""
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
    """Append to a version that is known, or overwrite one of which at least the listing is."""
    if base is not None:
        if 0 in base.fragments.physical_rows:  # of an old release: from here on manifests say it
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
        made = CommitFiles()
        request = CommitRequest(
            Transaction(read_version, operation, properties=options.properties),
            base=base,
            listing=listing,
            files=made,
            alongside=[files.publish(made)],
            creation=Creation(options.version, options.stable_row_ids),
        )
        return (yield from commit(target.commit_target(durability=options.durability), request))

    committed: CommittedVersion = yield RollBackOnError(write(), files.roll_back)
    state = target.state(committed)
    if state.manifest.config and not options.skip_auto_cleanup:
        yield from cleanups.after_commit(state)
    return state
