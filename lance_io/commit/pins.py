"""Notes in a table's folder that coordinate cleanups with writers that need old versions or rename manifests.

A restore or a new tag builds on an old version, which a concurrent cleanup may be about to remove. So each side first
writes a note of its plan, then looks for notes of the other side:

    _versions/.cleanup-pin-<version>-<uuid>   "I build on this version"   looks for intents
    _versions/.cleanup-names-<first>-<last>-<uuid>
                                              "I rename these manifests"  looks for intents
    _versions/.cleanup-intent-<uuid>          "I remove these versions"   looks for pins, then for tags, newer versions

A renaming pins the versions that it renames, so that it does not write a manifest again after a cleanup removed it. Its
note also warns writers that names of both schemes are about to exist (`other_names.py`); for this it never expires.

At least one of the two sides sees the other. A cleanup keeps pinned versions. A writer that pinned a version in the
intent of a cleanup removes its pin, waits for the cleanup, and then looks for the version.

Notes are files of a few bytes, which other libraries ignore and their writers remove. The notes of a process that died
expire after ten minutes by the store's clock; a live writer renews its pin or intent long before.
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
from lance_io.table.manifest.paths import RENAMING, VERSIONS, is_detached

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from lance_io.commit.target import Clock
    from lance_io.plans.plan import Plan
    from lance_io.store.api import Buffer, ObjectMeta
    from lance_io.store.url import Location

T = TypeVar("T")

VALID_S: Final = 600.0  # by the store's clock, after which a pin or an intent expires
RENEW_S: Final = 240.0  # by the writer's clock, after which the writer renews it before it relies on it
_NOTE: Final = ".cleanup-"
_PIN: Final = f"{_NOTE}pin-"
_INTENT: Final = f"{_NOTE}intent-"
_RANGE: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})-")
_LOOKS_MAX: Final = 12  # attempts to pin a version that is in the intent of a cleanup
_FIRST_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pin:
    """A version that a writer builds on, or versions whose manifests are being renamed.

    taken_at  when the note was written, by the monotonic clock
    """

    key: str
    first: int
    last: int
    taken_at: float

    def is_fresh(self, clock: Clock) -> bool:
        """Whether the pin is valid for a good while longer."""
        return clock.monotonic() - self.taken_at < RENEW_S


@dataclass(frozen=True, slots=True)
class Intent:
    """Versions that a cleanup is about to remove.

    written_ns  when the note was written, by the store's clock, ns since the epoch; None if the store has no times
    pinned      versions that writers build on
    """

    key: str
    taken_at: float
    written_ns: int | None
    pinned: frozenset[int]

    def is_fresh(self, clock: Clock) -> bool:
        """Whether the intent is valid for a good while longer."""
        return clock.monotonic() - self.taken_at < RENEW_S


# -- writers that build on a version ---------------------------------------------------------------------------------


def while_pinned(location: Location, version: int, clock: Clock, work: Plan[T]) -> Plan[T]:
    """Run `work` while a version is pinned. Detached versions need no pin: no cleanup removes them.

    Raises the errors of `pin_version`.
    """
    if is_detached(version):
        return (yield from work)
    pin = yield from pin_version(location, version, clock)
    try:
        result = yield from work
    except CommitUnknownError:
        raise  # the commit may still take effect, so the pin stays until it expires
    except Exception:
        yield from release(location, pin)
        raise
    yield from release(location, pin)
    return result


def pin_version(location: Location, version: int, clock: Clock) -> Plan[Pin]:
    """Pin a version. It may be gone already: look for it afterwards.

    Raises `CommitConflictError` (retryable) if a cleanup is about to remove it.
    """
    return (yield from _pin(location, f"{_PIN}{version}-", version, version, clock))


def pin_names(location: Location, first: int, last: int, clock: Clock) -> Plan[Pin]:
    """Announce a renaming of the manifests from version `first` to `last`, and pin these versions.

    Raises `CommitConflictError` (retryable) if a cleanup is about to remove one of them.
    """
    return (yield from _pin(location, f"{RENAMING}{first}-{last}-", first, last, clock))


def _pin(location: Location, beginning: str, first: int, last: int, clock: Clock) -> Plan[Pin]:
    for look in range(_LOOKS_MAX):
        pin = Pin(location.key(VERSIONS, f"{beginning}{uuid4()}"), first, last, clock.monotonic())
        written = yield Put(location.store, pin.key, b"{}", durability="none")
        try:
            intents = _valid(_INTENT, (yield from _notes(location)), written)
            if not (yield from _removes(location, intents, first, last)):
                return pin
        except Exception:
            yield from release(location, pin)
            raise
        yield from release(location, pin)
        yield Pause(clock.random() * min(_FIRST_PAUSE_S * 2**look, _PAUSE_MAX_S))
    versions = f"version {first}" if first == last else f"versions from {first} to {last}"
    raise CommitConflictError(
        f"a cleanup is about to remove {versions}, and did not end within the waiting time; try again when it has "
        "ended",
        path=location.uri,
        retryable=True,
    )


def release(location: Location, pin: Pin | Intent) -> Plan[None]:
    """Remove a pin or an intent. If that fails, the note expires by itself."""
    try:
        yield Shielded(ask(Remove(location.store, (pin.key,))))
    except Exception as error:  # of any class: the work under the pin is done, or has failed for another reason
        _logger.info("%s stays behind for a later cleanup: %s", pin.key, error)


def release_expired(location: Location) -> Plan[None]:
    """Remove expired notes of renamings, whose writers died."""
    notes = [meta for meta in (yield from _notes(location)) if meta.name.startswith(RENAMING)]
    if not notes:
        return
    clock = Pin(location.key(VERSIONS, f"{_PIN}0-{uuid4()}"), 0, 0, 0.0)  # no version: only for the store's time
    written = yield Put(location.store, clock.key, b"{}", durability="none")
    valid = {meta.key for meta in _valid(RENAMING, (*notes, written), written)}
    keys = (clock.key, *(meta.key for meta in notes if meta.key not in valid))
    try:
        yield Shielded(ask(Remove(location.store, keys)))
    except LanceError as error:
        _logger.info("notes stay behind for a later cleanup: %s", error)


def _removes(location: Location, intents: Iterable[ObjectMeta], first: int, last: int) -> Plan[bool]:
    """Whether one of the intents names a version from `first` to `last`."""
    for meta in intents:
        try:
            if _names_any(first, last, (yield Read(location.store, meta.key))):
                return True
        except NotFound:
            continue  # it has ended
    return False


# -- cleanups --------------------------------------------------------------------------------------------------------


def announce(location: Location, versions: Collection[int], clock: Clock) -> Plan[Intent]:
    """Announce the removal of versions, and look for their pins.

    On a full disk the note is empty, which counts as naming every version. Raises `StoreFull` if not even that can be
    written.
    """
    key, taken_at = location.key(VERSIONS, f"{_INTENT}{uuid4()}"), clock.monotonic()
    try:
        written: ObjectMeta = yield Put(location.store, key, _encode(versions), durability="none")
    except StoreFull as error:
        _logger.info("no room for a note, an empty one is written: %s", error)
        written = yield Put(location.store, key, b"", durability="none")
    notes = yield from _notes(location)
    own = next((meta for meta in notes if meta.key == key), written)
    return Intent(key, taken_at, to_epoch_ns(own.last_modified), _pinned_by(_valid("", notes, own), versions))


def pinned_versions(location: Location, versions: Collection[int]) -> Plan[frozenset[int]]:
    """The versions among `versions` that are pinned or being renamed, including by expired notes.

    Expiry is not checked: without a note of its own the caller does not know the store's time.
    """
    return _pinned_by((yield from _notes(location)), versions)


def _pinned_by(notes: Iterable[ObjectMeta], versions: Collection[int]) -> frozenset[int]:
    """The versions that pins name, and those of `versions` that are being renamed."""
    pinned: set[int] = set()
    for meta in notes:
        if meta.name.startswith(_PIN):
            digits = meta.name.removeprefix(_PIN).partition("-")[0]
            pinned.update({int(digits)} if digits.isascii() and digits.isdecimal() else ())
        elif meta.name.startswith(RENAMING):
            first, last = _renamed(meta.name)
            pinned.update(version for version in versions if first <= version <= last)
    return frozenset(pinned)


def _renamed(name: str) -> tuple[int, int]:
    """The first and last version of a renaming, by the name of its note; all versions if the name has no range."""
    match = _RANGE.match(name.removeprefix(RENAMING))
    return (int(match[1]), int(match[2])) if match else (0, 1 << 64)


def _encode(versions: Collection[int]) -> bytes:
    """The content of an intent: the first and last version of each run."""
    runs = groupby(enumerate(sorted(versions)), lambda entry: entry[1] - entry[0])
    bounds = [[run[0][1], run[-1][1]] for run in (list(entries) for _, entries in runs)]
    return json.dumps({"versions": bounds}).encode()


def _names_any(first: int, last: int, data: Buffer) -> bool:
    """Whether an intent names a version from `first` to `last`; an unreadable one counts as naming all."""
    try:
        return any(low <= last and first <= high for low, high in json.loads(bytes(data))["versions"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return True


# -- both ------------------------------------------------------------------------------------------------------------


def _notes(location: Location) -> Plan[Sequence[ObjectMeta]]:
    """All notes."""
    notes: list[ObjectMeta] = yield List(location.store, location.key(VERSIONS, _NOTE))
    return notes


def _valid(prefix: str, notes: Iterable[ObjectMeta], own: ObjectMeta) -> list[ObjectMeta]:
    """The notes with a prefix that are not expired. `own` was just written and so shows the store's time."""
    own_meta = next((meta for meta in notes if meta.key == own.key), own)
    now_ns = to_epoch_ns(own_meta.last_modified)
    valid = []
    for meta in notes:
        written_ns = to_epoch_ns(meta.last_modified)
        is_known = now_ns is not None and written_ns is not None
        if meta.name.startswith(prefix) and not (is_known and now_ns - written_ns > VALID_S * 1e9):  # type: ignore[operator]
            valid.append(meta)
    return valid


def to_epoch_ns(time: datetime | None) -> int | None:
    """Convert a time to nanoseconds since the epoch."""
    return None if time is None else int(time.timestamp() * 1e9)
