"""Small helpers under the module name that pylance gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.reads.version.timestamps import local_time, moment

if TYPE_CHECKING:
    from datetime import datetime, timedelta

__all__ = ["sanitize_ts", "td_to_micros"]


def sanitize_ts(ts: Any) -> datetime:
    """A `datetime` (naive, local time) from a `datetime`, a pandas `Timestamp` or ISO text."""
    return local_time(moment(ts))


def td_to_micros(td: timedelta) -> int:
    """A duration in whole microseconds."""
    return round(td.total_seconds() * 1_000_000)
