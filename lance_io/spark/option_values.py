"""Parsers of option values: switches, numbers, sizes, times, columns.

Each parser takes the option's name, for errors, and the text. All raise `UsageError` for an invalid text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_WHOLE_MAX: Final = (1 << 63) - 1  # rows, requests and versions are counted in signed 64-bit integers
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def text_value(name: str, text: str) -> str:
    """A text that is not empty."""
    if not text.strip():
        raise UsageError(f"option {name}: expected a text, found nothing")
    return text


def switch_value(name: str, text: str) -> bool:
    """A boolean."""
    lower = text.strip().lower()
    if lower not in ("true", "false", "1", "0"):
        raise UsageError(f"option {name}: expected true or false, found {text!r}")
    return lower in ("true", "1")


def whole_number(least: int) -> Callable[[str, str], int]:
    """A parser of whole numbers of at least `least`."""

    def parse(name: str, text: str) -> int:
        text = text.strip()
        if not (text.isascii() and text.isdecimal()) or len(text) > 20 or int(text) < least:
            raise UsageError(f"option {name}: expected a whole number of at least {least}, found {text!r}")
        if int(text) > _WHOLE_MAX:
            raise UsageError(f"option {name}: expected a whole number of at most {_WHOLE_MAX}, found {text!r}")
        return int(text)

    return parse


def bytes_value(name: str, text: str) -> int:
    """A number of bytes, at least one, with or without a unit."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or len(match[1]) > 18 or int(match[1]) == 0:
        raise UsageError(f"option {name}: expected bytes such as 134217728, 128m or 1g, found {text!r}")
    return int(match[1]) * _FACTORS[match[2].lower()]


def one_of(*choices: str) -> Callable[[str, str], str]:
    """A parser of a choice of words, in any case."""

    def parse(name: str, text: str) -> str:
        if text.strip().lower() not in choices:
            raise UsageError(f"option {name}: expected {' or '.join(choices)}, found {text!r}")
        return text.strip().lower()

    return parse


def moment_value(name: str, text: str) -> datetime:
    """A time in ISO form, with a zone or without."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"option {name}: expected a time such as 2026-01-31T12:00:00Z, found {text!r}") from error


def parse_columns(name: str, text: str) -> tuple[tuple[str, ...], ...]:
    """A comma-separated list of names. Dots lead to members of structs, back-quotes (doubled inside) quote a name.

    Raises `UsageError` for an empty name and an unclosed back-quote.
    """
    paths: list[tuple[str, ...]] = []
    parts: list[str] = []
    position = 0
    while True:
        part, position = _name_at(name, text, position)
        parts.append(part)
        separator = text[position : position + 1]
        if separator != ".":
            paths.append(tuple(parts))
            parts = []
        if not separator:
            return tuple(paths)
        if separator not in ".,":
            raise UsageError(f"option {name}: expected ',' or '.' at {text[position:]!r}")
        position += 1


_BARE = re.compile(r"\s*([^`.,]*)")
_QUOTED = re.compile(r"\s*`((?:[^`]|``)+)`\s*")


def _name_at(name: str, text: str, position: int) -> tuple[str, int]:
    quoted = _QUOTED.match(text, position)
    if quoted is not None:
        return quoted[1].replace("``", "`"), quoted.end()
    bare = _BARE.match(text, position)
    if bare is None or not bare[1].strip():
        raise UsageError(f"option {name}: expected a column name at {text[position:]!r} of {text!r}")
    return bare[1].strip(), bare.end()
