"""Committing by conditional creation: exactly one writer can create an object. For memory, local disk, S3.

The answer to the deciding PUT may be lost, and a retry of it may meet the result of the first attempt. So after
anything but a plain success the object is read back:

    our bytes, or our transaction     committed
    another manifest                  the number is taken; its bytes save the loser a read
    nothing                           the PUT did not arrive (yet): retry it a few times
    no answer either                  unknown; nothing is deleted
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, TypeVar

from lance_io.commit.handler import Created, NewVersion, StagedObjects, Taken
from lance_io.commit.latest import find_latest, find_latest_and, find_version, list_after
from lance_io.errors import AlreadyExists, CommitUnknownError, LanceError, NotFound, StoreError
from lance_io.lazy_names import lazy_module
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
    probe = lazy_module("lance_io.store.probe")  # reads do not need it

T = TypeVar("T")

PUTS_MAX: Final = 5
READS_MAX: Final = 3
FIRST_PAUSE_S: Final = 0.1

_logger = get_logger(__name__)


@dataclass(frozen=True)
class PutAbsentHandler:
    """Commits by create-if-absent; see the module."""

    records_versions = False

    @property
    def answers_sync(self) -> bool:
        """True: it makes no requests but those to the store."""
        return True

    @property
    def decides_by_name(self) -> bool:
        """True: each name can be created once."""
        return True

    def check(self, location: Location) -> None:
        """See `CommitHandler`: the store must support conditional creation."""
        probe.refuse_undecided(location.store)

    def prepare(self, location: Location) -> Plan[None]:
        """Test once per bucket whether conditional creation works."""
        if not location.store.capabilities.conditional_create or location.store.capabilities.create_unproven:
            yield ProbeCreate(location.store, location.key(VERSIONS))

    def create(self, location: Location, new: NewVersion) -> Plan[Created | Taken]:
        """Create the manifest file; see `CommitHandler`."""
        created = yield from create_once(location.store, new.key(location), new.data, new.is_in, new.durability)
        return Created(new.file(created)) if isinstance(created, ObjectMeta) else created

    def outcome_of(self, location: Location, new: NewVersion, content: Buffer) -> Plan[Created | Taken]:
        """The outcome if `content` was read under the name of a new version."""
        if not new.is_in(content):
            return Taken(content)
        return Created(new.file((yield from _describe_object(location.store, new.key(location), content))))

    def find_latest(self, location: Location) -> Plan[VersionFile]:
        """See `CommitHandler`; reads the listing (`latest.py`)."""
        return (yield from find_latest(location.store, location.path))

    def find_latest_and(self, location: Location, use: Callable[[VersionFile], Plan[T]]) -> Plan[tuple[VersionFile, T]]:
        """See `CommitHandler`; reads the listing (`latest.py`)."""
        return (yield from find_latest_and(location.store, location.path, use))

    def find_version(self, location: Location, version: int) -> Plan[VersionFile]:
        """See `CommitHandler`; looks for both names."""
        return (yield from find_version(location.store, location.path, version))

    def list_after(self, location: Location, version: int) -> Plan[list[VersionFile]]:
        """See `CommitHandler`; reads the listing."""
        return (yield from list_after(location.store, location.path, version))

    def forget(self, location: Location) -> Plan[int]:
        """Nothing to remove: there are no records beside the store."""
        yield from ()
        return 0

    def classify_staged(self, location: Location, staged: Sequence[tuple[int, str]]) -> Plan[StagedObjects | None]:
        """None: there are no records about staging objects."""
        yield from ()
        return None


def create_once(
    store: ObjectStore,
    key: str,
    data: bytes,
    is_ours: Callable[[Buffer], bool],
    durability: Durability | None = None,
) -> Plan[ObjectMeta | Taken]:
    """Create an object if it does not exist; see the module.

    is_ours  whether content read under the key is this object, or equivalent to it

    Raises `CommitUnknownError` if the object may or may not exist; after any other error it does not.
    """
    unknown = False  # whether an earlier PUT may still take effect
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
        except LanceError as error:  # refused, but an earlier attempt may have taken effect
            if unknown:
                raise unknown_outcome(key, error) from error
            raise
        else:
            return meta
        content = yield from read_back(store, key, failure, unknown=unknown)
        if content is not None:
            return (yield from _describe_object(store, key, content)) if is_ours(content) else Taken(content)
        if isinstance(failure, StoreError) and not failure.retryable and not isinstance(failure, ConflictRetry):
            break
        yield Pause(random.random() * FIRST_PAUSE_S * 2**attempt)
    if unknown:
        raise unknown_outcome(key, failure) from failure
    raise failure


def _describe_object(store: ObjectStore, key: str, content: Buffer) -> Plan[ObjectMeta]:
    """Metadata of an object of ours that was read.

    Does not fail: on an error the caller would take the commit for failed and remove its files.
    """
    try:
        meta: ObjectMeta = yield Head(store, key)
    except LanceError as error:
        _logger.info("%s exists, its etag is unknown: %s", key, error)
        return ObjectMeta(key, memoryview(content).nbytes)
    return meta


def read_back(store: ObjectStore, key: str, failure: LanceError, *, unknown: bool) -> Plan[Buffer | None]:
    """The object at `key` after a PUT that did not plainly succeed; None if there is none."""
    for attempt in range(READS_MAX):
        try:
            return (yield Read(store, key))
        except NotFound:
            return None
        except LanceError as error:  # including access denied: the PUT may have taken effect nevertheless
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
