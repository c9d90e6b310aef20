"""Cleanups after commits, as the table's config requests them (spec: commit, section 9; table, 11).

lance.auto_cleanup.interval         clean up every this many versions
lance.auto_cleanup.older_than       remove versions older than this, such as `14days` or `1h 30m`
lance.auto_cleanup.retain_versions  keep this many versions, remove older ones
lance.auto_cleanup.delete_rate_limit  remove at most this many files a second
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lance_io.errors import UsageError
from lance_io.table.transaction.garbage import CleanupPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

INTERVAL_KEY: Final = "lance.auto_cleanup.interval"
OLDER_THAN_KEY: Final = "lance.auto_cleanup.older_than"
RETAIN_KEY: Final = "lance.auto_cleanup.retain_versions"
RATE_KEY: Final = "lance.auto_cleanup.delete_rate_limit"

_PART: Final = re.compile(r"\s*(\d+)\s*([A-Za-zµ]+)\s*")
_DAY_S: Final = 86_400.0
_UNITS_S: Final = {
    **dict.fromkeys(("nanos", "nsec", "ns"), 1e-9),
    **dict.fromkeys(("usec", "us", "µs"), 1e-6),
    **dict.fromkeys(("millis", "msec", "ms"), 1e-3),
    **dict.fromkeys(("seconds", "second", "secs", "sec", "s"), 1.0),
    **dict.fromkeys(("minutes", "minute", "mins", "min", "m"), 60.0),
    **dict.fromkeys(("hours", "hour", "hrs", "hr", "h"), 3600.0),
    **dict.fromkeys(("days", "day", "d"), _DAY_S),
    **dict.fromkeys(("weeks", "week", "wks", "wk", "w"), 7 * _DAY_S),
    **dict.fromkeys(("months", "month", "M"), 30.44 * _DAY_S),
    **dict.fromkeys(("years", "year", "yrs", "yr", "y"), 365.25 * _DAY_S),
}


def auto_cleanup_policy(config: Mapping[str, str], version: int) -> CleanupPolicy | None:
    """The cleanup to run after the commit of `version`, None for none. Raises `UsageError` for invalid values.

    It silently keeps tagged versions, and young versions unless `older_than` is zero. An interval of zero means every
    version, as in pylance.
    """
    if INTERVAL_KEY not in config:
        return None
    interval = _number(config, INTERVAL_KEY)
    if interval and version % interval:
        return None
    older_than = config.get(OLDER_THAN_KEY)
    return CleanupPolicy(
        older_than_s=None if older_than is None else duration_s(older_than),
        retain_versions=_number(config, RETAIN_KEY) if RETAIN_KEY in config else None,
        error_if_tagged=False,
    )


def auto_cleanup_rate(config: Mapping[str, str]) -> int | None:
    """The most files a second that such a cleanup removes, None for no limit. Raises `UsageError`."""
    return _number(config, RATE_KEY) or None if RATE_KEY in config else None


def duration_s(text: str) -> float:
    """Seconds of a duration such as `14days` or `1h 30m`. Raises `UsageError`."""
    total, at = 0.0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in _UNITS_S:
            break
        total += int(part[1]) * _UNITS_S[part[2]]
        at = part.end()
    if not text or at < len(text):
        raise UsageError(f"expected a duration with units such as '14days' or '1h 30m', found {text[:100]!r}")
    return total


def _number(config: Mapping[str, str], key: str) -> int:
    text = config[key]
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"config {key}: expected a whole number, found {text[:100]!r}")
    return int(text)
