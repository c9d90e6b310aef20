"""Output for people, as plain values: tables, pairs of names and values, texts, and their formatting."""

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
    """Names and values, one pair per line; pairs without a value are omitted."""

    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells. A name that begins with `>` is that of a column of numbers, aligned right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str | None = None


Shown: TypeAlias = "str | Pairs | Table | list[Shown]"  # a list is printed from top to bottom

# C0 and C1 controls except the line feed, bidirectional controls, surrogates
_UNPRINTABLE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text with its control characters escaped: data must not control the terminal. Line feeds stay."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


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
    """Whether a stream is a terminal; a stream that was closed before the program began is None."""
    return stream is not None and stream.isatty()
