"""The request of a commit, and code that `first_version` (creates a table) and `commit_loop` (changes one) share."""

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

    transaction  the operation, and the number of the version that the writer read
    base         manifest of a version that the writer has at hand, possibly not the newest; None if it has none
    listing      a listing of the table's versions that the writer has made already; None if it has made none
    affected     offsets of the rows that a Delete or Update newly deletes, by fragment id; None if unknown. If given,
                 `base` must be the version that the transaction was made for
    files        the files that the change writes; the commit itself writes the deletion files among these. None if the
                 change writes no files
    alongside    plans that run during the commit and end before it creates the manifest, such as uploads of data files
    creation     properties that only the creation of a table sets; an Overwrite may set one of them, the file version
    max_retries  maximum number of attempts, including the first; None if only `timeout_s` limits the attempts. 0 means
                 one attempt; an Overwrite then fails unless the version that the writer read is still the newest
    timeout_s    seconds after which no further attempt starts
    detached     whether to create a detached version, which is not part of the table's history
    is_repeated  whether an earlier call may have committed the same transaction. If so, a failed commit leaves the
                 transaction file, because a version may refer to that file
    marks        config entries that every attempt sets in the new version
    followed_by  a second transaction, which the caller commits next from the same read version. The commit is refused
                 if a concurrent change conflicts with this second transaction
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
        """Whether the commit must fail if the version that the writer read is not the newest any more."""
        return self.max_retries == 0 and isinstance(self.transaction.operation, Overwrite)


def report_version(target: CommitTarget, request: CommitRequest, committed: CommittedVersion) -> None:
    """Add a new version to the counts of commits, and report it to trace listeners."""
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


def encode_next_manifest(
    target: CommitTarget,
    base: Manifest | None,
    request: CommitRequest,
    transaction: Transaction,
    *,
    version: int,
    restored: Manifest | None = None,
) -> ManifestFile:
    """Apply a transaction to `base`, and encode the resulting version; returns its manifest file.

    base      the version before; None for the first version of a table
    version   number of the resulting version
    restored  the version whose content a Restore brings back; None for other operations
    """
    manifest = build_manifest(
        base,
        transaction,
        timestamp_ns=target.clock.time_ns(),
        version=version,
        creation=request.creation,
        restored=restored,
        marks=request.marks,
    )
    return encode_manifest_file(manifest)
