"""The request of a commit, and code that creating a table and changing one share."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from lance_io.commit.commit_counts import COMMITS
from lance_io.commit.target import TIMEOUT_S, CommittedVersion, Listing
from lance_io.io import trace_events
from lance_io.records import dataclass
from lance_io.table.manifest_file import ManifestFile, encode_manifest_file
from lance_io.table.transaction.apply import Creation, build_manifest
from lance_io.table.transaction.operations import Overwrite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_io.codecs.roaring import U32Array
    from lance_io.commit.commit_files import CommitFiles
    from lance_io.commit.target import CommitTarget
    from lance_io.plans.plan import Plan
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.apply import ConfigMark
    from lance_io.table.transaction.transaction import Transaction


@dataclass(frozen=True)
class CommitRequest:
    """A change to commit.

    transaction  the change
    base         the version that the writer holds, may be stale; None if it holds none
    listing      an existing listing of the versions
    affected     offsets of the rows that a Delete or Update newly deletes, by fragment; None if unknown. If given,
                 `base` must be the version that the transaction was made for
    files        files of the change; the commit writes the deletion files among them. None: there are none
    alongside    plans that must end before the manifest is created, such as uploads of data files that it names
    creation     properties that only the creation of a table sets, and the data version of an Overwrite
    max_retries  maximum number of attempts, of which one is always made; None: `timeout_s` is the only limit. With 0,
                 an Overwrite fails unless the version that was read is still the newest
    timeout_s    no further attempt after this many seconds
    detached     create a detached version, which is not part of the table's history
    is_repeated  an earlier call may have committed the same transaction: on failure the transaction file stays, since a
                 version may refer to it
    marks        config entries that every attempt sets, whatever version it builds on
    followed_by  the transaction that the caller commits next from the same version; the commit is refused if this one
                 would conflict after it
    """

    transaction: Transaction
    base: Manifest | None = None
    listing: Listing | None = None
    affected: Mapping[int, U32Array] | None = None
    files: CommitFiles | None = None
    alongside: Sequence[Plan[Any]] = ()
    creation: Creation = field(default_factory=Creation)
    max_retries: int | None = None
    timeout_s: float = TIMEOUT_S
    detached: bool = False
    is_repeated: bool = False
    marks: Sequence[ConfigMark] = ()
    followed_by: Transaction | None = None

    @property
    def is_strict(self) -> bool:
        """Whether the version that was read must still be the newest."""
        return self.max_retries == 0 and isinstance(self.transaction.operation, Overwrite)


def count_version(target: CommitTarget, request: CommitRequest, committed: CommittedVersion) -> None:
    """Count a new version, and report it to trace listeners."""
    COMMITS.add(request.transaction.name, versions=1)
    if trace_events.listeners:
        trace_events.emit_commit(
            target.location.uri,
            request.transaction.name,
            request.transaction.read_version,
            committed.manifest.version,
            committed.file.key,
            is_detached=request.detached,
        )


def encode_next(
    target: CommitTarget,
    base: Manifest | None,
    request: CommitRequest,
    transaction: Transaction,
    *,
    version: int,
    restored: Manifest | None = None,
) -> ManifestFile:
    """The manifest file of the version that results from `base` and a transaction.

    restored  the version that a Restore names
    """
    following = build_manifest(
        base,
        transaction,
        timestamp_ns=target.clock.time_ns(),
        version=version,
        creation=request.creation,
        restored=restored,
        marks=request.marks,
    )
    return encode_manifest_file(following)
