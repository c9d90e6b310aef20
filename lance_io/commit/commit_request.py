"""What a commit is asked for, and what creating a table and changing one have in common."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
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

    from lance_io.commit.commit_files import CommitFiles
    from lance_io.commit.target import CommitTarget
    from lance_io.plans.plan import Plan
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.manifest.roaring import U32Array
    from lance_io.table.transaction.apply import ConfigMark
    from lance_io.table.transaction.transaction import Transaction


@dataclass(frozen=True)
class CommitRequest:
    """A change to be committed.

    transaction  what changes
    base         the version that the writer holds, which may be stale; None when it holds none
    listing      a listing that is at hand
    affected     offsets of the rows that a Delete or Update deletes now, by fragment; None when nobody knows. With them
                 `base` has to be the version that the transaction was made for
    files        what the change has made for this commit; the deletion files among them are written here. None: nothing
                 that is known here
    alongside    plans that must have ended before the manifest is created, such as uploads of data files that it names
    creation     what only the creation of a table decides, and the data version of an Overwrite
    max_retries  attempts at most; None as many as the time allows. 0 with an Overwrite: the version that was read must
                 still be the newest
    timeout_s    no further attempt after this many seconds
    detached     make a version that is in no sequence
    is_repeated  an earlier call may have committed the same transaction: when this one fails, the file of that name
                 stays, which a version may refer to
    marks        entries of the config that come along, whichever version is built on
    followed_by  what is to be committed next, for the same version: refused where that cannot be
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

    @cached_property
    def is_strict(self) -> bool:
        """Whether nothing may have been committed since the version that was read."""
        return self.max_retries == 0 and isinstance(self.transaction.operation, Overwrite)


def count_version(target: CommitTarget, request: CommitRequest, committed: CommittedVersion) -> None:
    """Count a version that was made, and tell who listens."""
    COMMITS.add(request.transaction.name, versions=1)
    if trace_events.listeners:
        trace_events.tell_commit(
            target.place.uri,
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
    """The manifest file of the version that a transaction makes of `base`.

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
