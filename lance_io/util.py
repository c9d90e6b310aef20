"""Small helpers. Module and names are those of pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.reads.version.timestamps import local_time, moment

if TYPE_CHECKING:
    from datetime import datetime, timedelta

__all__ = ["sanitize_ts", "td_to_micros"]


def sanitize_ts(ts: Any) -> datetime:
    """Convert a time to a naive `datetime` in local time.

    Args:
        ts: A `datetime`, a pandas `Timestamp` or ISO text.

    Returns:
        The time as a naive `datetime` in local time.
    """
    return local_time(moment(ts))


def td_to_micros(td: timedelta) -> int:
    """Convert a duration to whole microseconds.

    Args:
        td: The duration.

    Returns:
        The duration in microseconds, rounded.
    """
    return round(td.total_seconds() * 1_000_000)
