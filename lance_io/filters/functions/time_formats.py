"""Parses times by patterns such as `%Y-%m-%d %H:%M:%S%.f`, for `to_timestamp`, `to_date` and `to_time`.

    %Y %C %y %m %d %e %j       year, century, year of the century (70 and above: 19..), month, day, day of the year
    %b %h %B %a %A             names of months and days: %b %h %a short, %B %A short or long; a day must match the date
    %H %k %I %l %p %P %M %S    hour (24), hour (12), am or pm, minute, second
    %f %3f %6f %9f %.f %.3f .. nanoseconds; a fraction of 3, 6, 9 digits; an optional fraction with its dot
    %z %:z %Z                  offset from UTC; the name of a zone, which is skipped
    %s                         seconds since 1970
    %F %D %x %T %X %R %r %v    `%Y-%m-%d`, `%m/%d/%y` (twice), `%H:%M:%S` (twice), `%H:%M`, `%I:%M:%S %p`, `%e-%b-%Y`
    %+                         `%Y-%m-%dT%H:%M:%S%.f%:z`
    %n %t %%                   white space, a percent sign

Numbers may have fewer digits, and white space in front of them. `-`, `_` and `0` behind the percent sign are ignored.
White space in a pattern matches any amount of it.
"""

from __future__ import annotations

import datetime as dt
import re
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SECOND: Final = 10**9
DAY: Final = 86_400 * SECOND
_MONTHS: Final = "january february march april may june july august september october november december".split()
_DAYS: Final = "monday tuesday wednesday thursday friday saturday sunday".split()
_SHORTHANDS: Final = {
    "F": "%Y-%m-%d",
    "D": "%m/%d/%y",
    "x": "%m/%d/%y",
    "T": "%H:%M:%S",
    "X": "%H:%M:%S",
    "R": "%H:%M",
    "r": "%I:%M:%S %p",
    "v": "%e-%b-%Y",
    "+": "%Y-%m-%dT%H:%M:%S%.f%:z",
}


def _names(names: list[str], *, long: bool) -> str:
    every = [*names, *(name[:3] for name in names)] if long else [name[:3] for name in names]
    return "|".join(every)


_TWO: Final = r"\s*(\d{1,2})"
_FIELDS: Final = {
    "Y": ("year", r"\s*([+-]\d{1,9}|\d{1,4})"),
    "C": ("century", _TWO),
    "y": ("short_year", _TWO),
    "m": ("month", _TWO),
    "d": ("day", _TWO),
    "e": ("day", _TWO),
    "j": ("ordinal", r"\s*(\d{1,3})"),
    "b": ("month_name", f"({_names(_MONTHS, long=False)})"),
    "h": ("month_name", f"({_names(_MONTHS, long=False)})"),
    "B": ("month_name", f"({_names(_MONTHS, long=True)})"),
    "a": ("weekday", f"({_names(_DAYS, long=False)})"),
    "A": ("weekday", f"({_names(_DAYS, long=True)})"),
    "H": ("hour", _TWO),
    "k": ("hour", _TWO),
    "I": ("half_hour", _TWO),
    "l": ("half_hour", _TWO),
    "p": ("half", "([ap]m)"),
    "P": ("half", "([ap]m)"),
    "M": ("minute", _TWO),
    "S": ("second", _TWO),
    "f": ("nanosecond", r"\s*(\d{1,9})"),
    "3f": ("fraction", r"(\d{3})"),
    "6f": ("fraction", r"(\d{6})"),
    "9f": ("fraction", r"(\d{9})"),
    ".f": ("fraction", r"(?:\.(\d{1,9}))?"),
    ".3f": ("fraction", r"(?:\.(\d{1,9}))?"),
    ".6f": ("fraction", r"(?:\.(\d{1,9}))?"),
    ".9f": ("fraction", r"(?:\.(\d{1,9}))?"),
    "z": ("offset", r"\s*([+-]\d\d[:\s]*\d\d)"),
    ":z": ("offset", r"\s*([+-]\d\d[:\s]*\d\d)"),
    "Z": ("zone", r"(\S*)"),
    "s": ("timestamp", r"\s*([+-]?\d{1,18})"),
}
_ITEM: Final = re.compile(r"%[-_0]?(\.[369]?f|[369]f|:z|.)|(\s+)|([^%\s]+)", re.DOTALL)


class TimeFormat:
    """A parsed pattern. Raises ValueError for an unknown pattern.

    items  its parts in the form that kernels take: (letters of a field, `text` or `space`; the text)
    """

    def __init__(self, pattern: str) -> None:
        self.items: list[tuple[str, str]] = []
        self._names: list[str] = []
        self._regex = re.compile("".join(self._parts(pattern)), re.IGNORECASE | re.ASCII)

    def _parts(self, pattern: str) -> list[str]:
        parts, at = list[str](), 0
        while at < len(pattern):
            match = _ITEM.match(pattern, at)
            if match is None:
                raise ValueError("bad or unsupported format string")
            at = match.end()
            field, space, text = match.groups()
            if space or field in ("n", "t"):
                self.items.append(("space", ""))
                parts.append(r"\s*+")
            elif text or field == "%":
                self.items.append(("text", text or field))
                parts.append(f"(?-i:{re.escape(text or field)})")
            elif field in _SHORTHANDS:
                parts += self._parts(_SHORTHANDS[field])
            elif field in _FIELDS:
                name, regex = _FIELDS[field]
                self.items.append((field, ""))
                self._names.append(name)
                parts.append(f"(?>{regex})")
            else:
                raise ValueError("bad or unsupported format string")
        return parts

    def fields(self, text: str) -> dict[str, str]:
        """The fields of a text by name. Raises ValueError for a text that does not match the pattern."""
        match = self._regex.match(text)
        if match is None:
            raise ValueError("input contains invalid characters or ends early")
        if match.end() < len(text):
            raise ValueError("trailing input")
        fields: dict[str, str] = {}
        for name, value in zip(self._names, match.groups(), strict=True):
            if value is not None and fields.setdefault(name, value) != value:
                raise ValueError("no possible date and time matching input")
        return fields


@lru_cache(maxsize=64)
def time_format(pattern: str) -> TimeFormat:
    """The parsed pattern, cached. Raises ValueError for an unknown pattern."""
    return TimeFormat(pattern)


def known_items(patterns: Iterable[str]) -> list[list[tuple[str, str]]]:
    """The items of the known patterns; unknown ones are left out."""
    items = list[list[tuple[str, str]]]()
    for pattern in patterns:
        with suppress(ValueError):
            items.append(time_format(pattern).items)
    return items


def read_time(text: str, pattern: str) -> int:
    """Nanoseconds since 1970 in UTC. Raises ValueError for a text that does not match the pattern.

    A date without a time stands for its midnight.
    """
    fields = time_format(pattern).fields(text)
    if "timestamp" in fields:
        return int(fields["timestamp"]) * SECOND + _fraction(fields)
    days = _date(fields).toordinal() - dt.date(1970, 1, 1).toordinal()
    offset = fields.get("offset")
    if offset is None:
        return days * DAY + (_time_of_day(fields) if _has_time(fields) else 0)
    digits = re.sub(r"\D", "", offset)
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return days * DAY + _time_of_day(fields) - (seconds if offset[0] == "+" else -seconds) * SECOND


def read_time_of_day(text: str, pattern: str) -> int:
    """Nanoseconds since midnight. Raises ValueError for a text that does not match the pattern."""
    return _time_of_day(time_format(pattern).fields(text))


def _has_time(fields: dict[str, str]) -> bool:
    return ("hour" in fields or "half_hour" in fields) and "minute" in fields


def _date(fields: dict[str, str]) -> dt.date:
    if "year" in fields:
        year = int(fields["year"])
    elif "short_year" in fields:
        short = int(fields["short_year"])
        year = int(fields["century"]) * 100 + short if "century" in fields else short + (1900 if short >= 70 else 2000)
    else:
        raise ValueError("input is not enough for unique date and time")
    try:
        if "ordinal" in fields:
            date = dt.date(year, 1, 1) + dt.timedelta(int(fields["ordinal"]) - 1)
            if date.year != year:
                raise ValueError("input is out of range")
        else:
            date = dt.date(year, _month(fields), int(fields["day"]))
    except KeyError:
        raise ValueError("input is not enough for unique date and time") from None
    except (OverflowError, ValueError):
        raise ValueError("input is out of range") from None
    if "weekday" in fields and not _DAYS[date.weekday()].startswith(fields["weekday"].lower()):
        raise ValueError("no possible date and time matching input")
    return date


def _month(fields: dict[str, str]) -> int:
    if "month_name" not in fields:
        return int(fields["month"])
    name = fields["month_name"].lower()
    return next(number for number, month in enumerate(_MONTHS, 1) if month.startswith(name))


def _time_of_day(fields: dict[str, str]) -> int:
    if not _has_time(fields) or ("hour" not in fields and "half" not in fields):
        raise ValueError("input is not enough for unique date and time")
    if "hour" in fields:
        hour = int(fields["hour"])
    else:
        half_hour = int(fields["half_hour"])
        if not 1 <= half_hour <= 12:
            raise ValueError("input is out of range")
        hour = half_hour % 12 + (12 if fields["half"].lower() == "pm" else 0)
    minute, second = int(fields["minute"]), int(fields.get("second", 0))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("input is out of range")
    return ((hour * 60 + minute) * 60 + second) * SECOND + _fraction(fields)


def _fraction(fields: dict[str, str]) -> int:
    return int(fields["fraction"].ljust(9, "0")) if "fraction" in fields else int(fields.get("nanosecond", 0))
