"""Points in time: values of `asof`, and the version of a time (specification: table, section 3)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOMENT_MIN: Final = datetime(2, 1, 1, tzinfo=UTC)
_MOMENT_MAX: Final = datetime(9998, 1, 1, tzinfo=UTC)


def moment(asof: Any) -> datetime:
    """A time with time zone from a `datetime`, a pandas `Timestamp` or ISO text; without a zone it is local time.

    Text may also end in a space and a zone: "2024-01-31 12:00:00 Europe/Berlin". Fractions of a microsecond are cut
    off, as in the times of versions.

    Raises `ValueError` for text that is no time and `TypeError` for anything else.
    """
    if hasattr(asof, "to_pydatetime"):
        asof = asof.to_pydatetime(warn=False)
    if isinstance(asof, str):
        asof = _parse_moment(asof)
    if not isinstance(asof, datetime):
        raise TypeError(f"asof takes a datetime, a Timestamp or a string, got {type(asof)}")
    if asof != asof:
        raise UsageError(f"asof takes a time, got {asof}")
    if asof.year <= _MOMENT_MIN.year:  # in any zone: conversion could leave the calendar
        return _MOMENT_MIN
    if asof.year >= _MOMENT_MAX.year:
        return _MOMENT_MAX
    return asof.astimezone(UTC)


def _parse_moment(text: str) -> datetime:
    head, _, zone = text.strip().rpartition(" ")
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        problem = error
    try:
        if zone[:1] in ("+", "-"):
            return datetime.fromisoformat(head + zone)
        time = datetime.fromisoformat(head)
        if time.tzinfo is None:
            from zoneinfo import ZoneInfo

            return time.replace(tzinfo=ZoneInfo(zone))
    except (ValueError, OSError, KeyError):  # no time, or an unknown zone
        pass
    raise UsageError(f"Failed to parse timestamp string {text}. Write it as 2024-01-31T12:00:00.") from problem


def parse_time(text: str) -> datetime | None:
    """An RFC 3339 time of any precision, cut to microseconds; None for other text."""
    head, dot, rest = text.partition(".")
    fraction = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(fraction) :]
    try:
        return datetime.fromisoformat(f"{head}.{fraction[:6]:0<6}{zone}" if dot else text)
    except ValueError:
        return None


def local_time(time: datetime) -> datetime:
    """The same moment as naive local time, as in listings of versions.

    In the hour that occurs twice, at the end of summer time, `fold` tells the two apart: `moment` inverts this
    function.
    """
    naive = time.astimezone().replace(tzinfo=None)
    return naive if naive.astimezone(UTC) == time else naive.replace(fold=1)


def latest_at(times: Mapping[int, datetime], asof: datetime) -> int | None:
    """The newest version committed at or before a moment; None if there is none.

    times  commit time by version, cut to microseconds
    """
    return max((version for version, time in times.items() if time <= asof), default=None)
