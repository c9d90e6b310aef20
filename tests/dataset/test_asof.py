"""`asof`: the newest version that was committed at or before a time, by the microseconds that `versions()` shows."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import lance
import pandas as pd
import pyarrow as pa
import pytest

import lance_io
from lance_io import AsyncDataset
from lance_io.dataset.distributed import TablePlace, TableVersion
from tests.fuzz.test_found import change_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FALL = datetime(2024, 10, 27, 0, 30, 0, 5, tzinfo=UTC)  # 02:30 in Berlin, an hour later once more
MICROSECOND = timedelta(microseconds=1)
TIMES_NS = [
    0,
    3_600_000_000_000,
    3_600_000_000_999,
    7_200_000_000_001,
]  # after it; the second and third in one microsecond
NEWEST = {1: 1, 2: 3, 3: 3, 4: 4}  # by version: what its time finds


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/New_York"])
def local_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four versions of the main branch, and a branch of the second with two more, at the times of the first two."""
    place = tmp_path_factory.mktemp("asof") / "t"
    for number, after_ns in enumerate(TIMES_NS):
        lance.write_dataset(pa.table({"a": [number]}), place, mode="append" if number else "create")
        commit_at(place, after_ns)
    branch = lance.dataset(place).create_branch("side", 2)
    commit_at(place / "tree" / "side", 0)
    branch.insert(pa.table({"a": [9]}))
    commit_at(place / "tree" / "side", 3_600_000_000_000)
    return str(place)


def commit_at(place: Path, after_ns: int) -> None:
    """Let the newest version be committed that long after the first one."""

    def change(message: Any) -> None:
        seconds, nanos = divmod(
            int(FALL.timestamp()) * 1_000_000_000 + FALL.microsecond * 1000 + after_ns, 1_000_000_000
        )
        message.timestamp.seconds, message.timestamp.nanos = seconds, nanos

    change_manifest(place, change)


def naive(moment: datetime) -> datetime:
    """The same moment in local time, without a zone."""
    local = [moment.astimezone().replace(tzinfo=None, fold=fold) for fold in (0, 1)]
    return next(one for one in local if one.astimezone(UTC) == moment)


FORMS: dict[str, Callable[[datetime], Any]] = {
    "a naive time": naive,
    "a time with a zone": lambda utc: utc.astimezone(ZoneInfo("Asia/Kathmandu")),
    "of pandas": pd.Timestamp,
    "of pandas, of nanoseconds": lambda utc: pd.Timestamp(utc) + pd.Timedelta(999, "ns"),
    "text with an offset": lambda utc: utc.astimezone().isoformat(),
    "text in UTC": lambda utc: f"{utc:%Y-%m-%d %H:%M:%S.%f}Z",
    "an offset behind a space": lambda utc: f"{utc.astimezone():%Y-%m-%d %H:%M:%S.%f %z}",
    "the name of a zone": lambda utc: f"{utc.astimezone(ZoneInfo('Asia/Tokyo')):%Y-%m-%d %H:%M:%S.%f} Asia/Tokyo",
}


@pytest.mark.usefixtures("local_zone")
@pytest.mark.parametrize("form", FORMS)
def test_the_time_of_a_version_finds_it(uri: str, form: str) -> None:
    """Also in the hour that is there twice, for which a naive time says by its `fold` which one is meant."""
    for one in lance_io.dataset(uri).versions():
        assert lance_io.dataset(uri, asof=one["timestamp"]).version == NEWEST[one["version"]]
        asof, older = one["timestamp"].astimezone(UTC), {1: None, 2: 1, 3: 1, 4: 3}[one["version"]]
        assert lance_io.dataset(uri, asof=FORMS[form](asof)).version == NEWEST[one["version"]]
        before = FORMS[form](asof - MICROSECOND)
        if older is None:
            with pytest.raises(ValueError, match="is earlier than the first version of this dataset"):
                lance_io.dataset(uri, asof=before)
        else:
            assert lance_io.dataset(uri, asof=before).version == older


def test_naive_text_is_local(uri: str) -> None:
    for one in lance_io.dataset(uri).versions():
        for asof in (str(one["timestamp"]), one["timestamp"].isoformat(), pd.Timestamp(one["timestamp"])):
            assert lance_io.dataset(uri, asof=asof).version == NEWEST[one["version"]]


@pytest.mark.parametrize("is_named", [False, True])
async def test_branches_and_both_faces(uri: str, is_named: bool) -> None:
    place, ref = (uri, ("side", None)) if is_named else (f"{uri}/tree/side", None)
    versions = lance_io.dataset(place, version=ref).versions()
    assert [one["version"] for one in versions] == [2, 3]
    for one in versions:
        table = lance_io.dataset(place, version=ref, asof=one["timestamp"])
        assert (table.version, table.count_rows()) == (one["version"], one["version"])
        twin = await AsyncDataset.open(place, version=ref, asof=one["timestamp"].astimezone().isoformat())
        assert (twin.version, await twin.count_rows()) == (one["version"], one["version"])
    with pytest.raises(ValueError, match="is earlier than the first version of this dataset"):
        lance_io.dataset(place, version=ref, asof=FALL - MICROSECOND)
    assert lance_io.dataset(uri, version=1, asof="2000-01-01").version == 1, "a number is a number"


def test_engines_mean_the_same(uri: str) -> None:
    for one in lance_io.dataset(uri).versions():
        at = one["timestamp"].astimezone(UTC)
        assert TableVersion.open(TablePlace.of_process(uri, {}), at=at).version == NEWEST[one["version"]]


@pytest.mark.usefixtures("local_zone")
def test_the_ends_of_the_calendar(uri: str) -> None:
    for latest in (
        datetime.max,
        datetime.max.replace(tzinfo=ZoneInfo("America/New_York")),
        "9999-12-31T23:59:59-12:00",
    ):
        assert lance_io.dataset(uri, asof=latest).version == 4
    for first in (datetime.min, datetime.min.replace(tzinfo=ZoneInfo("Asia/Tokyo"))):
        with pytest.raises(ValueError, match="is earlier than the first version of this dataset"):
            lance_io.dataset(uri, asof=first)


@pytest.mark.parametrize(
    "text", ["", " ", "yesterday", "2024-01-31 12:00:00 Mars/Base", "2024-01-31 12:00:00 ../x", "2024-01-31T12:00Z UTC"]
)
def test_text_that_is_no_time(uri: str, text: str) -> None:
    with pytest.raises(ValueError, match="Failed to parse timestamp"):
        lance_io.dataset(uri, asof=text)
    with pytest.raises(ValueError, match="asof takes a time, got NaT"):
        lance_io.dataset(uri, asof=pd.NaT)
    with pytest.raises(TypeError, match="asof takes a datetime"):
        lance_io.dataset(uri, asof=1706700000)
