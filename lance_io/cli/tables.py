"""What people see, as plain values: tables, pairs of names and values, texts, and how they read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names and values, one pair per line; pairs without a value are left out."""

    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells. Names that begin with `>` are those of columns of numbers, set to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str | None = None


Shown: TypeAlias = "str | Pairs | Table | list[Shown]"  # of a list: one below the other

# C0 and C1 controls but for the line feed, what turns the direction of writing, halves of characters
_UNPRINTABLE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text whose control characters are escapes: data must not steer the terminal. Line feeds stay."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def text(value: object) -> str:
    """A cell for people: numbers with thousands separators, yes and no, escapes for control characters."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case _:
            return printable(str(value))


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sits there; a stream that was closed before the program began is None."""
    return stream is not None and stream.isatty()
