"""Where a commit goes, by which clock, and what it knows and gives back."""

from __future__ import annotations

import random
import time
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

from lance_io.commit.commit_queue import TURNS, Turns
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

LISTING_AGE_MAX_S: Final = 30.0  # an older one could hide versions that cleanup removed meanwhile
TIMEOUT_S: Final = 1800.0  # of an attempt after the other, while newer versions are seen; pylance's `commit_timeout`
FIRST_PAUSE_S: Final = 0.05  # the unit of pauses between attempts while no newer version is seen
PAUSE_MAX_S: Final = 5.0
STALLS_MAX: Final = 10  # lost attempts in a row after which no newer version was seen


class Clock(Protocol):
    """Time and chance, so that tests can decide both."""

    def monotonic(self) -> float:
        """Seconds since some moment, never going back."""

    def time_ns(self) -> int:
        """Nanoseconds since the epoch."""

    def random(self) -> float:
        """A number from 0 to 1."""


class SystemClock:
    """The machine's."""

    monotonic = staticmethod(time.monotonic)
    time_ns = staticmethod(time.time_ns)
    random = staticmethod(random.random)


@dataclass(frozen=True)
class CommitTarget:
    """Where to commit and how.

    place       folder of the table or of a branch
    handler     what makes versions visible
    scheme      how the manifests of a new table are named; an existing table keeps its scheme
    durability  of what the commit writes; None is the store's
    hint        whether to write the file that helps readers to find the newest version in stores without order
    turns       whom to take turns with: other commits of this process
    """

    place: Location
    handler: CommitHandler = field(default_factory=PutAbsentHandler)
    scheme: NamingScheme = "V2"
    hint: bool = True
    durability: Durability | None = None
    clock: Clock = field(default_factory=SystemClock)
    turns: Turns = TURNS

    @property
    def answers_sync(self) -> bool:
        """Whether a commit can be driven in the caller's thread."""
        return self.handler.answers_sync and offers_sync_writes(self.place.store)

    @property
    def writes_hint(self) -> bool:
        """Whether readers of this store look for a hint: local disk, as pylance has it, and unordered listings."""
        store = self.place.store
        return self.hint and (store.scheme == "file" or not store.capabilities.ordered_list)


@dataclass(frozen=True)
class Listing:
    """What a listing of the versions said.

    versions  the newest one and all others above `after`; ascending; empty without a table
    taken_at  by the monotonic clock, when it was asked for
    """

    versions: Sequence[VersionFile]
    after: int
    taken_at: float

    @cached_property
    def newest(self) -> VersionFile | None:
        """The newest version."""
        return self.versions[-1] if self.versions else None


@dataclass(frozen=True)
class CommittedVersion:
    """A version that is visible.

    file         its manifest file
    manifest     its content, with the index section
    transaction  as it was committed, after rebasing
    attempts     how often its creation was tried; 0 when an earlier call had committed it
    failure      what a commit lock raised when it was left
    """

    file: VersionFile
    manifest: Manifest
    transaction: Transaction
    attempts: int
    failure: CommitHandlerError | None = None
