"""One version with the rows of many appends: files by schema, one commit (`group_append.py` describes the groups).

An append whose rows do not fit the table fails before anything is written. If rows cannot be encoded, the appends are
bisected until the failing one is known.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING, Final

from lance_io.changes.operations.schema_fit import check_mixture, fit_schema, schema_of
from lance_io.changes.write.input_data import Rows
from lance_io.changes.write.write_rows import new_files
from lance_io.commit.commit_files import CommitFiles
from lance_io.commit.commit_loop import commit
from lance_io.commit.commit_request import CommitRequest
from lance_io.commit.target import Listing
from lance_io.errors import LanceError, NotFound, SchemaError, UnsupportedError, UsageError
from lance_io.format.version import V0_1
from lance_io.plans.plan import RollBackOnError
from lance_io.reads.version.row_counts import with_row_counts
from lance_io.records import dataclass
from lance_io.table.transaction.operations import Append
from lance_io.table.transaction.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lance_io.changes.write.append_queues import Group
    from lance_io.changes.write.data_files import NewFiles
    from lance_io.changes.write.write_rows import WriteOptions, WriteTarget
    from lance_io.commit.latest import VersionFile
    from lance_io.commit.target import CommittedVersion
    from lance_io.format.schema import Schema
    from lance_io.format.version import FileVersion
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.manifest import Manifest

VERSIONS_NEAR: Final = 64  # largest distance of open versions in a group: a commit reads all versions since the oldest


@dataclass(eq=False)
class GroupAppend:
    """One append of a group: the rows of one caller.

    schema     schema of the batches
    num_bytes  approximate size of the batches
    done       resolves to the version that holds the rows
    group      the group that has taken the append
    is_cancelled  whether the caller was cancelled
    """

    target: WriteTarget
    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]
    num_bytes: int
    options: WriteOptions
    done: Future[DatasetState] = field(default_factory=Future)
    group: Group | None = None
    is_cancelled: bool = False

    def __post_init__(self) -> None:
        self.given: Schema = schema_of(self.schema)
        self.schema_bytes: bytes = self.schema.serialize().to_pybytes()

    def fail(self, error: Exception, *, is_shared: bool = False) -> None:
        """Fail the append, unless it is done already.

        is_shared  other appends fail with this error too: each raises a copy whose cause is the error
        """
        if self.done.done():
            return
        own = error
        if is_shared:
            with suppress(Exception):  # exceptions of other libraries may not be copyable
                own = copy(error)
                own.__cause__ = error
        self.done.set_exception(own)


@dataclass(frozen=True)
class RecentVersions:
    """Consecutive versions that groups of one queue have committed, without versions of other writers between them.

    An append based on one of them may be rebased on the last without checks: each of them only added rows.

    names  transaction files by version, of these versions and of the one before the first
    """

    last: CommittedVersion
    names: Mapping[int, str]

    @classmethod
    def of(cls, last: CommittedVersion, base: Manifest, before: RecentVersions | None) -> RecentVersions:
        """Add a version, committed on `base`. Starts over if `last` does not directly follow `before`."""
        version = last.manifest.version
        names: dict[int, str] = {}
        if before is not None and before.last.manifest.version + 1 == version:
            names = {each: name for each, name in before.names.items() if each + VERSIONS_NEAR > version}
        elif base.version + 1 == version:
            names = {base.version: base.transaction_file}
        return cls(last, {**names, version: last.manifest.transaction_file})

    def newest_for(self, base: Manifest) -> Manifest:
        """The newest version on which an append based on `base` may be rebased without checks."""
        return self.last.manifest if self.names.get(base.version) == base.transaction_file else base


def count_rows(appends: Sequence[GroupAppend]) -> int:
    """Number of rows of all appends."""
    return sum(batch.num_rows for append in appends for batch in append.batches)


@dataclass(eq=False)
class _Unit:
    """Appends whose rows share data files: one, or more if its limits are reached."""

    schema: Schema
    file_version: FileVersion
    appends: list[GroupAppend]

    def halves(self) -> Iterator[_Unit]:
        """Two units with half of the appends each."""
        middle = len(self.appends) // 2
        for part in (self.appends[:middle], self.appends[middle:]):
            yield _Unit(self.schema, self.file_version, part)


class GroupVersion:
    """The commit of one version with the rows of appends.

    opened   appends by their base version: the one that the caller has open, or the newest
    written  appends whose rows are in files
    absent   appends by URI, if there is no table
    base     the newest base version of the appends
    commit_files  files of the commit, and its outcome
    """

    def __init__(self, appends: Sequence[GroupAppend], recent: RecentVersions | None) -> None:
        self.appends = appends
        self._recent = recent
        self.opened: list[list[GroupAppend]] = []
        self.written: list[GroupAppend] = []
        self.absent: list[GroupAppend] = []
        self.base: Manifest | None = None
        self.commit_files = CommitFiles()
        self._target = appends[0].target
        self._options = appends[0].options
        self._files: list[NewFiles] = []

    def write(self) -> Plan[CommittedVersion | None]:
        """Write the rows and commit them; None if no append is left."""
        listing, newest = yield from self._find_newest()
        bases = self._find_bases(newest)
        for unit in self._units(bases):
            yield from self._write_unit(unit)
        if not self.written:
            return None
        base = max((bases[id(append)] for append in self.written), key=lambda manifest: manifest.version)
        self.base = base
        if 0 in base.fragments.physical_rows:  # an old release wrote no row counts; the new manifest will have them
            base = (yield from with_row_counts(self._target.opened(base))).manifest
        read_version = min(bases[id(append)].version for append in self.written)
        fragments = tuple(fragment for files in self._files for fragment in files.fragments)
        request = CommitRequest(
            Transaction(read_version, Append(fragments), properties=self._options.properties),
            base=base,
            listing=listing,
            files=self.commit_files,
            alongside=[files.publish_for_commit(self.commit_files) for files in self._files],
        )
        return (yield from commit(self._target.commit_target(durability=self._options.durability), request))

    def roll_back(self, cause: BaseException) -> Plan[None]:
        """Remove the files unless a version may refer to them."""
        for files in self._files:
            yield from files.roll_back(cause)

    def _find_newest(self) -> Plan[tuple[Listing | None, Manifest | None]]:
        """The newest version, if an append was given a URI and not an open dataset."""
        if all(append.target.manifest is not None for append in self.appends):
            return None, None
        taken_at = self._target.commit_target().clock.monotonic()
        try:
            newest, manifest = yield from self._target.handler.find_latest_and(self._target.location, self._manifest_in)
        except NotFound:
            self.absent = [append for append in self.appends if append.target.manifest is None]
            return None, None
        return Listing([newest], newest.version, taken_at), manifest

    def _manifest_in(self, newest: VersionFile) -> Plan[Manifest]:
        """The manifest of the newest version; reads nothing if this queue committed it."""
        if self._recent is not None and self._recent.last.file == newest and newest.etag is not None:
            return self._recent.last.manifest
        return (yield from self._target.manifest_in(newest))

    def _find_bases(self, newest: Manifest | None) -> dict[int, Manifest]:
        """The base version of each append, by its `id()`."""
        bases: dict[int, Manifest] = {}
        opened: dict[Hashable, list[GroupAppend]] = {}
        for append in self.appends:
            base = append.target.manifest or newest
            if base is not None:
                base = base if self._recent is None else self._recent.newest_for(base)
                bases[id(append)] = base
                opened.setdefault((base.version, base.transaction_file), []).append(append)
        self.opened = list(opened.values())
        return bases

    def _units(self, bases: dict[int, Manifest]) -> list[_Unit]:
        """Appends by the file that they share; appends that do not fit the table fail here."""
        units: dict[Hashable, list[_Unit]] = {}
        for append in self.appends:
            base = bases.get(id(append))
            if base is None:
                continue
            options = append.options
            version = options.version or base.data_version
            try:
                check_mixture(version, base.data_version)
                schema = fit_schema(append.given, base.schema, version)
            except Exception as error:
                append.fail(error)
                continue
            alone = id(append) if version == V0_1 else None  # its dictionaries and lost nulls belong to one write
            key = (append.schema_bytes, version, options.limits, id(options.progress), alone)
            alike = units.setdefault(key, [])
            for unit in alike:
                if unit.schema is schema or unit.schema == schema:
                    unit.appends.append(append)
                    break
            else:
                alike.append(_Unit(schema, version, [append]))
        return [unit for alike in units.values() for unit in alike]

    def _write_unit(self, unit: _Unit) -> Plan[None]:
        appends = unit.appends
        batches = chain.from_iterable(append.batches for append in appends)
        rows = Rows(appends[0].schema, iter(batches), count_rows(appends), is_held=True)
        try:
            files = new_files(self._target, unit.schema, unit.file_version, appends[0].options)
            yield RollBackOnError(files.write(rows), files.roll_back)
        except Exception as error:
            if _is_store_error(error):
                raise
            if len(appends) == 1:
                appends[0].fail(error)
                return
            for half in unit.halves():
                yield from self._write_unit(half)
        else:
            self._files.append(files)
            self.written += appends


def _is_store_error(error: Exception) -> bool:
    """Whether any write to the store may fail with this error, not only a write of these rows."""
    if isinstance(error, LanceError):
        return not isinstance(error, (SchemaError, UnsupportedError, UsageError))
    return isinstance(error, (OSError, MemoryError))
