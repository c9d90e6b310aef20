"""Notes in a table: how those who need an old version, who rename manifests, and who remove them meet.

A restore or a new tag builds on an old version; a cleanup that began before may be about to remove it. So each side
first writes what it is about to do, then looks for what the other side wrote:

    _versions/.cleanup-pin-<version>-<uuid>   "I build on this version"   looks for intents
    _versions/.cleanup-names-<first>-<last>-<uuid>
                                              "I rename these manifests"  looks for intents
    _versions/.cleanup-intent-<uuid>          "I remove these versions"   looks for pins, then for tags, newer versions

A renaming pins the versions that it renames, for what it has read of one must not come back after a cleanup. Its note
also says to writers that names of both kinds are about to be there (`other_names.py`), however old it is.

At least one of the two sees the other. A cleanup spares what is pinned. Who pinned a version that a cleanup is about to
remove lets go of it, waits for the cleanup, and then finds the version or not.

All are files of some bytes that other libraries do not look at, and that their writers remove. What a process leaves
that died counts for ten minutes by the store's clock; a pin or an intent is written anew long before.
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from lance_io.errors import CommitConflictError, CommitUnknownError, LanceError, NotFound
from lance_io.plans.plan import Pause, Shielded, ask
from lance_io.plans.store_requests import List, Put, Read, Remove
from lance_io.records import dataclass
from lance_io.redaction import get_logger
from lance_io.store.failures import StoreFull
from lance_io.table.manifest.paths import VERSIONS, is_detached

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from lance_io.commit.target import Clock
    from lance_io.plans.plan import Plan
    from lance_io.store.api import Buffer, ObjectMeta
    from lance_io.store.url import Location

T = TypeVar("T")

VALID_S: Final = 600.0  # by the store's clock, after which a pin or an intent counts no more
RENEW_S: Final = 240.0  # by the writer's clock, after which it is written anew before anything is done on its strength
_NOTE: Final = ".cleanup-"
_PIN: Final = f"{_NOTE}pin-"
_INTENT: Final = f"{_NOTE}intent-"
RENAMING: Final = f"{_NOTE}names-"
"""How the name of a note begins that says of which versions the manifests are being renamed."""
_RANGE: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})-")
_LOOKS_MAX: Final = 12  # at a cleanup that is about to remove a version
_FIRST_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pin:
    """A version that somebody builds on, or versions whose manifests are being renamed.

    taken_at  when it was written, by the monotonic clock
    """

    key: str
    first: int
    last: int
    taken_at: float

    def is_fresh(self, clock: Clock) -> bool:
        """Whether cleanups are sure to see it for a good while."""
        return clock.monotonic() - self.taken_at < RENEW_S


@dataclass(frozen=True, slots=True)
class Intent:
    """Versions that a cleanup is about to remove.

    written_ns  when it was written, by the store's clock, ns since the epoch; None when the store does not tell
    pinned      versions that others build on
    """

    key: str
    taken_at: float
    written_ns: int | None
    pinned: frozenset[int]

    def is_fresh(self, clock: Clock) -> bool:
        """Whether those who pin a version are sure to see it for a good while."""
        return clock.monotonic() - self.taken_at < RENEW_S


# -- who builds on a version -----------------------------------------------------------------------------------------


def holding(place: Location, version: int, clock: Clock, work: Plan[T]) -> Plan[T]:
    """Do something while a version is pinned; detached versions, which no cleanup removes, need no pin.

    Raises as `pin_version` does.
    """
    if is_detached(version):
        return (yield from work)
    pin = yield from pin_version(place, version, clock)
    try:
        result = yield from work
    except CommitUnknownError:
        raise  # what was sent may still take effect, and until then the pin says so
    except Exception:
        yield from release(place, pin)
        raise
    yield from release(place, pin)
    return result


def pin_version(place: Location, version: int, clock: Clock) -> Plan[Pin]:
    """Pin a version. It still may not be there: look for it afterwards.

    Raises `CommitConflictError` (retryable) while a cleanup is about to remove it.
    """
    return (yield from _pin(place, f"{_PIN}{version}-", version, version, clock))


def pin_names(place: Location, first: int, last: int, clock: Clock) -> Plan[Pin]:
    """Say that the manifests of some versions, from one to another, are about to be renamed, and pin these versions.

    Raises `CommitConflictError` (retryable) while a cleanup is about to remove one of them.
    """
    return (yield from _pin(place, f"{RENAMING}{first}-{last}-", first, last, clock))


def _pin(place: Location, beginning: str, first: int, last: int, clock: Clock) -> Plan[Pin]:
    for look in range(_LOOKS_MAX):
        pin = Pin(place.key(VERSIONS, f"{beginning}{uuid4()}"), first, last, clock.monotonic())
        written = yield Put(place.store, pin.key, b"{}", durability="none")
        try:
            intents = _valid(_INTENT, (yield from _notes(place)), written)
            if not (yield from _removes(place, intents, first, last)):
                return pin
        except Exception:
            yield from release(place, pin)
            raise
        yield from release(place, pin)
        yield Pause(clock.random() * min(_FIRST_PAUSE_S * 2**look, _PAUSE_MAX_S))
    versions = f"version {first}" if first == last else f"versions from {first} to {last}"
    raise CommitConflictError(
        f"a cleanup is about to remove {versions}, and did not end while it was waited for; try again when it has "
        "ended",
        path=place.uri,
        retryable=True,
    )


def release(place: Location, pin: Pin | Intent) -> Plan[None]:
    """Remove a pin or an intent; one that stays behind is garbage after some minutes."""
    try:
        yield Shielded(ask(Remove(place.store, (pin.key,))))
    except Exception as error:  # of any class: what the pin was for is done, or has failed for another reason
        _logger.info("%s stays behind for a later cleanup: %s", pin.key, error)


def release_expired(place: Location) -> Plan[None]:
    """Remove notes of renamings that count no more; their writers died."""
    notes = [meta for meta in (yield from _notes(place)) if meta.name.startswith(RENAMING)]
    if not notes:
        return
    clock = Pin(place.key(VERSIONS, f"{_PIN}0-{uuid4()}"), 0, 0, 0.0)  # no version: only to learn the store's time
    written = yield Put(place.store, clock.key, b"{}", durability="none")
    valid = {meta.key for meta in _valid(RENAMING, (*notes, written), written)}
    keys = (clock.key, *(meta.key for meta in notes if meta.key not in valid))
    try:
        yield Shielded(ask(Remove(place.store, keys)))
    except LanceError as error:
        _logger.info("notes stay behind for a later cleanup: %s", error)


def _removes(place: Location, intents: Iterable[ObjectMeta], first: int, last: int) -> Plan[bool]:
    """Whether one of the cleanups is about to remove one of the versions from `first` to `last`."""
    for meta in intents:
        try:
            if _names_any(first, last, (yield Read(place.store, meta.key))):
                return True
        except NotFound:
            continue  # it has ended
    return False


# -- who removes versions --------------------------------------------------------------------------------------------


def announce(place: Location, versions: Collection[int], clock: Clock) -> Plan[Intent]:
    """Say that versions are about to be removed, and look who builds on them.

    On a disk with no byte free the note is empty, which those who look take for one that names every version. Raises
    `StoreFull` where not even that can be written.
    """
    key, taken_at = place.key(VERSIONS, f"{_INTENT}{uuid4()}"), clock.monotonic()
    try:
        written: ObjectMeta = yield Put(place.store, key, _encode(versions), durability="none")
    except StoreFull as error:
        _logger.info("no room for a note, an empty one is written: %s", error)
        written = yield Put(place.store, key, b"", durability="none")
    notes = yield from _notes(place)
    own = next((meta for meta in notes if meta.key == key), written)
    return Intent(key, taken_at, time_ns(own.last_modified), _held_by(_valid("", notes, own), versions))


def pinned_versions(place: Location, versions: Collection[int]) -> Plan[frozenset[int]]:
    """Which of some versions others build on or rename, by notes that may count no more: without a note of one's own
    nobody knows the time.
    """
    return _held_by((yield from _notes(place)), versions)


def _held_by(notes: Iterable[ObjectMeta], versions: Collection[int]) -> frozenset[int]:
    """The versions that pins name, and those of `versions` that are being renamed."""
    held: set[int] = set()
    for meta in notes:
        if meta.name.startswith(_PIN):
            digits = meta.name.removeprefix(_PIN).partition("-")[0]
            held.update({int(digits)} if digits.isascii() and digits.isdecimal() else ())
        elif meta.name.startswith(RENAMING):
            first, last = _renamed(meta.name)
            held.update(version for version in versions if first <= version <= last)
    return frozenset(held)


def _renamed(name: str) -> tuple[int, int]:
    """The first and last version of a renaming, by the name of its note; all for a name that does not say."""
    found = _RANGE.match(name.removeprefix(RENAMING))
    return (int(found[1]), int(found[2])) if found else (0, 1 << 64)


def _encode(versions: Collection[int]) -> bytes:
    """The content of an intent: the first and last version of each run."""
    runs = groupby(enumerate(sorted(versions)), lambda entry: entry[1] - entry[0])
    bounds = [[run[0][1], run[-1][1]] for run in (list(entries) for _, entries in runs)]
    return json.dumps({"versions": bounds}).encode()


def _names_any(first: int, last: int, data: Buffer) -> bool:
    """Whether an intent names a version from `first` to `last`; one that cannot be read may name any."""
    try:
        return any(low <= last and first <= high for low, high in json.loads(bytes(data))["versions"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return True


# -- both ------------------------------------------------------------------------------------------------------------


def _notes(place: Location) -> Plan[Sequence[ObjectMeta]]:
    """All of them."""
    notes: list[ObjectMeta] = yield List(place.store, place.key(VERSIONS, _NOTE))
    return notes


def _valid(prefix: str, notes: Iterable[ObjectMeta], own: ObjectMeta) -> list[ObjectMeta]:
    """The notes of a kind that still count, by the store's clock, which `own` was written by just now."""
    own_meta = next((meta for meta in notes if meta.key == own.key), own)
    now_ns = time_ns(own_meta.last_modified)
    found = []
    for meta in notes:
        written_ns = time_ns(meta.last_modified)
        is_known = now_ns is not None and written_ns is not None
        if meta.name.startswith(prefix) and not (is_known and now_ns - written_ns > VALID_S * 1e9):  # type: ignore[operator]
            found.append(meta)
    return found


def time_ns(time: datetime | None) -> int | None:
    """A time as ns since the epoch."""
    return None if time is None else int(time.timestamp() * 1e9)
