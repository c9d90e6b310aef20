"""Committing on stores that let exactly one of many creators of an object win: memory, local disk, S3.

The answer to the deciding PUT may be lost, and a client that sends it again may meet its own success. So whatever is
not a plain success is followed by a look at what is there:

    our bytes, or our transaction     committed
    another manifest                  the number is taken; its bytes spare the loser a read
    nothing                           it did not land, or not yet: the PUT is made again, a few times
    no answer either                  unknown; nothing is deleted
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, TypeVar

from lance_io.commit.handler import Created, NewVersion, StagedObjects, Taken
from lance_io.commit.latest import find_latest, find_latest_and, find_version, list_after
from lance_io.errors import AlreadyExists, CommitUnknownError, LanceError, NotFound, StoreError
from lance_io.lazy_names import later
from lance_io.plans.plan import Pause
from lance_io.plans.store_requests import Head, ProbeCreate, Put, Read
from lance_io.records import dataclass
from lance_io.redaction import get_logger
from lance_io.store.api import ObjectMeta
from lance_io.store.failures import ConflictRetry, OutcomeUnknown, Unsent
from lance_io.table.manifest.paths import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.commit.latest import VersionFile
    from lance_io.plans.plan import Plan
    from lance_io.store import probe
    from lance_io.store.api import Buffer, Durability, ObjectStore
    from lance_io.store.url import Location
else:
    probe = later("lance_io.store.probe")  # which reads do not need

T = TypeVar("T")

PUTS_MAX: Final = 5
READS_MAX: Final = 3
FIRST_PAUSE_S: Final = 0.1

_logger = get_logger(__name__)


@dataclass(frozen=True)
class PutAbsentHandler:
    """Create-if-absent; see the module."""

    records_versions = False

    @property
    def answers_sync(self) -> bool:
        """It asks nobody but the store."""
        return True

    @property
    def decides_by_name(self) -> bool:
        """The name is what can be created once."""
        return True

    def check(self, place: Location) -> None:
        """See `CommitHandler`: the store has to decide."""
        probe.refuse_undecided(place.store)

    def prepare(self, place: Location) -> Plan[None]:
        """Try out once per bucket whether the store keeps its promise."""
        if not place.store.capabilities.conditional_create or place.store.capabilities.create_unproven:
            yield ProbeCreate(place.store, place.key(VERSIONS))

    def create(self, place: Location, new: NewVersion) -> Plan[Created | Taken]:
        """Create the manifest file; see `CommitHandler`."""
        created = yield from create_once(place.store, new.key(place), new.data, new.is_in, new.durability)
        return Created(new.file(created)) if isinstance(created, ObjectMeta) else created

    def found(self, place: Location, new: NewVersion, there: Buffer) -> Plan[Created | Taken]:
        """What it means that `there` was read under the name of a new version."""
        if not new.is_in(there):
            return Taken(there)
        return Created(new.file((yield from _describe_object(place.store, new.key(place), there))))

    def find_latest(self, place: Location) -> Plan[VersionFile]:
        """By the listing; see `latest.py`."""
        return (yield from find_latest(place.store, place.path))

    def find_latest_and(self, place: Location, use: Callable[[VersionFile], Plan[T]]) -> Plan[tuple[VersionFile, T]]:
        """By the listing; see `latest.py`."""
        return (yield from find_latest_and(place.store, place.path, use))

    def find_version(self, place: Location, version: int) -> Plan[VersionFile]:
        """By its names."""
        return (yield from find_version(place.store, place.path, version))

    def list_after(self, place: Location, version: int) -> Plan[list[VersionFile]]:
        """By the listing."""
        return (yield from list_after(place.store, place.path, version))

    def forget(self, place: Location) -> Plan[int]:
        """Nothing is recorded elsewhere."""
        yield from ()
        return 0

    def sort_staged(self, place: Location, staged: Sequence[tuple[int, str]]) -> Plan[StagedObjects | None]:
        """Nothing is known of what commits through a database have left."""
        yield from ()
        return None


def create_once(
    store: ObjectStore,
    key: str,
    data: bytes,
    is_ours: Callable[[Buffer], bool],
    durability: Durability | None = None,
) -> Plan[ObjectMeta | Taken]:
    """Create an object unless there is one; see the module.

    is_ours  whether what was found under the key is this object, or as good as it

    Raises `CommitUnknownError` when there is no telling whether it is there; after any other error it is not.
    """
    unknown = False  # whether an earlier PUT may still land
    for attempt in range(PUTS_MAX):
        try:
            meta: ObjectMeta = yield Put(store, key, data, if_absent=True, durability=durability)
        except AlreadyExists as error:
            failure: LanceError = error
        except (OutcomeUnknown, ConflictRetry, Unsent) as error:
            failure = error
            unknown = unknown or isinstance(error, OutcomeUnknown)
        except StoreError as error:
            unknown = unknown or error.retryable
            failure = error
        except LanceError as error:  # refused, but an earlier attempt may have landed
            if unknown:
                raise unknown_outcome(key, error) from error
            raise
        else:
            return meta
        there = yield from read_back(store, key, failure, unknown=unknown)
        if there is not None:
            return (yield from _describe_object(store, key, there)) if is_ours(there) else Taken(there)
        if isinstance(failure, StoreError) and not failure.retryable and not isinstance(failure, ConflictRetry):
            break
        yield Pause(random.random() * FIRST_PAUSE_S * 2**attempt)
    if unknown:
        raise unknown_outcome(key, failure) from failure
    raise failure


def _describe_object(store: ObjectStore, key: str, there: Buffer) -> Plan[ObjectMeta]:
    """What the store says about an object of ours that was read.

    No failure may hide that it is there: whoever is told that a commit failed removes its files.
    """
    try:
        meta: ObjectMeta = yield Head(store, key)
    except LanceError as error:
        _logger.info("%s is there, its etag is not known: %s", key, error)
        return ObjectMeta(key, memoryview(there).nbytes)
    return meta


def read_back(store: ObjectStore, key: str, failure: LanceError, *, unknown: bool) -> Plan[Buffer | None]:
    """What is at `key` after a PUT that did not plainly succeed; None when there is nothing."""
    for attempt in range(READS_MAX):
        try:
            return (yield Read(store, key))
        except NotFound:
            return None
        except LanceError as error:  # also: not allowed to; the PUT may be there nevertheless
            failure.add_note(f"reading back: {error}")
            if not isinstance(error, StoreError):
                break
            if attempt + 1 < READS_MAX:
                yield Pause(random.random() * FIRST_PAUSE_S * 2**attempt)
    if isinstance(failure, AlreadyExists) or unknown:
        raise unknown_outcome(key, failure) from failure
    raise failure


def unknown_outcome(key: str, failure: LanceError) -> CommitUnknownError:
    """The error of a write that may have been applied."""
    return CommitUnknownError(
        f"the manifest may or may not have been committed: {failure}. Commit the same transaction again to find out: "
        "it is recognised and never applied twice",
        path=key,
    )
