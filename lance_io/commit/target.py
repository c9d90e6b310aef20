"""Where and how to commit (table, handler, clock); a listing of versions; the result of a commit."""

from __future__ import annotations

import random
import time
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol

from lance_io.commit.commit_queue import COMMIT_QUEUES, CommitQueues
from lance_io.commit.put_absent import PutAbsentHandler
from lance_io.records import dataclass
from lance_io.store.offers import offers_sync_writes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.commit.handler import CommitHandler
    from lance_io.commit.latest import VersionFile
    from lance_io.errors import CommitHandlerError
    from lance_io.store.api import Durability
    from lance_io.store.url import Location
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.manifest.paths import NamingScheme
    from lance_io.table.transaction.transaction import Transaction

LISTING_AGE_MAX_S: Final = 30.0  # an older one could hide versions that a cleanup removed since
TIMEOUT_S: Final = 1800.0  # for all attempts, while newer versions appear; pylance's `commit_timeout`
FIRST_PAUSE_S: Final = 0.05  # unit of the pauses between attempts while no newer version appears
PAUSE_MAX_S: Final = 5.0
STALLS_MAX: Final = 10  # lost attempts in a row without a newer version


class Clock(Protocol):
    """Time and randomness, which tests replace."""

    def monotonic(self) -> float:
        """Seconds of a monotonic clock."""

    def time_ns(self) -> int:
        """Nanoseconds since the epoch."""

    def random(self) -> float:
        """A number from 0 to 1."""


class SystemClock:
    """The clock and random numbers of this machine."""

    monotonic = staticmethod(time.monotonic)
    time_ns = staticmethod(time.time_ns)
    random = staticmethod(random.random)


@dataclass(frozen=True)
class CommitTarget:
    """Where to commit and how.

    location    folder of the table or of a branch
    handler     makes versions visible
    scheme      naming scheme for the manifests of a new table; an existing table keeps its scheme
    durability  of the files that the commit writes; None for the store's default
    hint        whether to write the hint file, by which readers of stores without order find the newest version
    queues      queues of the commits of this process
    """

    location: Location
    handler: CommitHandler = field(default_factory=PutAbsentHandler)
    scheme: NamingScheme = "V2"
    hint: bool = True
    durability: Durability | None = None
    clock: Clock = field(default_factory=SystemClock)
    queues: CommitQueues = COMMIT_QUEUES

    @property
    def answers_sync(self) -> bool:
        """Whether a commit can be driven in the caller's thread."""
        return self.handler.answers_sync and offers_sync_writes(self.location.store)

    @property
    def writes_hint(self) -> bool:
        """Whether readers of this store look for a hint: local disk, as pylance has it, and unordered listings."""
        store = self.location.store
        return self.hint and (store.scheme == "file" or not store.capabilities.ordered_list)


@dataclass(frozen=True)
class Listing:
    """A listing of the versions.

    versions  the newest one and all others above `after`, ascending; empty if there is no table
    taken_at  time of the request, by the monotonic clock
    """

    versions: Sequence[VersionFile]
    after: int
    taken_at: float

    @property
    def newest(self) -> VersionFile | None:
        """The newest version."""
        return self.versions[-1] if self.versions else None


@dataclass(frozen=True)
class CommittedVersion:
    """A version that is visible.

    file         its manifest file
    manifest     its content, with the index section
    transaction  as it was committed, after rebasing
    attempts     number of attempts to create it; 0 if an earlier call had committed it
    failure      error that the commit lock raised on release
    """

    file: VersionFile
    manifest: Manifest
    transaction: Transaction
    attempts: int
    failure: CommitHandlerError | None = None
