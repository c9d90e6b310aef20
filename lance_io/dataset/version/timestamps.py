"""Points in time: what `asof` takes, and which version it means (specification: table, section 3)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def moment(asof: Any) -> datetime:
    """A time with time zone from a `datetime`, a pandas `Timestamp` or ISO text; without a zone it is local time.

    Raises `ValueError` for text that is no time and `TypeError` for anything else.
    """
    if hasattr(asof, "to_pydatetime"):
        asof = asof.to_pydatetime(warn=False)
    if isinstance(asof, str):
        try:
            asof = datetime.fromisoformat(asof)
        except ValueError as error:
            raise UsageError(f"Failed to parse timestamp string {asof}. Write it as 2024-01-31T12:00:00.") from error
    if not isinstance(asof, datetime):
        raise TypeError(f"asof takes a datetime, a Timestamp or text, got {type(asof)}")
    return asof.astimezone(UTC)


def parse_time(text: str) -> datetime | None:
    """An RFC 3339 time of any precision, cut to microseconds; None for text that is none."""
    head, dot, rest = text.partition(".")
    fraction = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(fraction) :]
    try:
        return datetime.fromisoformat(f"{head}.{fraction[:6]:0<6}{zone}" if dot else text)
    except ValueError:
        return None


def local_time(time: datetime) -> datetime:
    """The same moment as naive local time, which is how versions are listed."""
    return time.astimezone().replace(tzinfo=None)


def latest_before(times: Mapping[int, datetime], asof: datetime) -> int:
    """The newest version strictly before a moment. Raises `ValueError` when there is none.

    times  commit time by version, cut to microseconds
    """
    before = [version for version, time in times.items() if time < asof]
    if not before:
        raise UsageError(f"{local_time(asof)} is earlier than the first version of this dataset")
    return max(before)
