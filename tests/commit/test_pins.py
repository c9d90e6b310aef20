"""Pins and intents: who sees whom, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from lance_io.commit.pins import VALID_S, announce, pin_version, release, while_pinned
from lance_io.errors import CommitConflictError, CommitUnknownError, NotFound
from lance_io.plans.plan import drive_sync
from lance_io.store.memory import MemoryStore
from lance_io.store.url import Location
from tests.commit.test_commit_loop import QuickClock


class Now:
    """The store's time, seconds since the epoch."""

    seconds = 1_800_000_000.0


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def place(now: Now) -> Location:
    return Location(MemoryStore(clock=lambda: now.seconds), "t", "memory://t")


def notes(place: Location) -> list[str]:
    return [meta.name for meta in place.store.list_sync("t/_versions/")]  # type: ignore[attr-defined]


def test_a_cleanup_sees_who_builds_on_a_version(place: Location) -> None:
    pins = [drive_sync(pin_version(place, version, QuickClock())) for version in (3, 1 << 40)]
    intent = drive_sync(announce(place, [1, 2, 3], QuickClock()))
    assert intent.pinned == {3, 1 << 40} and intent.written_ns == 1_800_000_000 * 10**9
    for note in (*pins, intent):
        drive_sync(release(place, note))
    assert notes(place) == []


@pytest.mark.parametrize(("version", "removed"), [(1, True), (2, True), (3, False), (5, True), (6, False)])
def test_who_builds_on_a_version_sees_a_cleanup(place: Location, version: int, removed: bool) -> None:
    drive_sync(announce(place, [5, 1, 2], QuickClock()))
    if removed:
        with pytest.raises(CommitConflictError, match=f"remove version {version}") as caught:
            drive_sync(pin_version(place, version, QuickClock()))
        assert caught.value.retryable and len(notes(place)) == 1
    else:
        drive_sync(pin_version(place, version, QuickClock()))
        assert len(notes(place)) == 2


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"versions": 5}', b'{"versions": [[1]]}', b"\xff"])
def test_an_intent_that_cannot_be_read_may_name_any_version(place: Location, damage: bytes) -> None:
    place.store.put_sync("t/_versions/.cleanup-intent-x", damage)  # type: ignore[attr-defined]
    with pytest.raises(CommitConflictError):
        drive_sync(pin_version(place, 7, QuickClock()))


def test_the_notes_of_the_dead_count_for_ten_minutes(place: Location, now: Now) -> None:
    drive_sync(pin_version(place, 3, QuickClock()))
    drive_sync(announce(place, [4], QuickClock()))
    now.seconds += VALID_S
    assert drive_sync(announce(place, [], QuickClock())).pinned == {3}
    with pytest.raises(CommitConflictError):
        drive_sync(pin_version(place, 4, QuickClock()))
    now.seconds += 1
    assert drive_sync(announce(place, [], QuickClock())).pinned == frozenset()
    drive_sync(pin_version(place, 4, QuickClock()))


def test_notes_are_written_anew_long_before() -> None:
    clock = QuickClock()
    place = Location(MemoryStore(), "t", "memory://t")
    both: list[Any] = [drive_sync(pin_version(place, 1, clock)), drive_sync(announce(place, [2], clock))]
    clock.now_s += 239
    assert all(each.is_fresh(clock) for each in both)
    clock.now_s += 2
    assert not any(each.is_fresh(clock) for each in both)


@pytest.mark.parametrize("error", [None, NotFound("gone"), CommitUnknownError("who knows")])
def test_a_pin_goes_with_the_work_unless_that_may_still_take_effect(place: Location, error: Any) -> None:
    def work() -> Any:
        assert len(notes(place)) == 1
        if error is not None:
            raise error
        return 5
        yield

    if error is None:
        assert drive_sync(while_pinned(place, 1, QuickClock(), work())) == 5
    else:
        with pytest.raises(type(error)):
            drive_sync(while_pinned(place, 1, QuickClock(), work()))
    assert len(notes(place)) == isinstance(error, CommitUnknownError)


def test_detached_versions_need_no_pin(place: Location) -> None:
    def work() -> Any:
        assert notes(place) == []
        yield from ()

    drive_sync(while_pinned(place, 1 << 63 | 5, QuickClock(), work()))
