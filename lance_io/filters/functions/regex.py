"""Functions of text filters with regular expressions, in RE2's syntax."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lance_io.errors import BindError
from lance_io.filters.elementwise import broadcast
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.functions.list_columns import lists_of_rows

if TYPE_CHECKING:
    from lance_io.filters.elementwise import Value

_TEXT, _BOOL, _I32, _I64, _BYTES = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.binary()


def _pattern(pattern: pa.Scalar, flags: pa.Scalar | None, allowed: str) -> str:
    """The pattern with its flags in front. Raises BindError for null, unknown flags and bad syntax."""
    text, given = pattern.as_py(), "" if flags is None else flags.as_py() or ""
    if set(given) - set(allowed):
        raise BindError(f"the flags {given!r} of a regular expression are unknown; known are {', '.join(allowed)}")
    kept = "".join(flag for flag in given if flag != "g")
    full = f"(?{kept}){text}" if kept else text
    try:
        pc.match_substring_regex(pa.array([""]), full)
    except pa.ArrowInvalid as error:
        raise BindError(f"the regular expression {text!r}: {error}") from None
    return str(full)


def matches_regex(value: Value, pattern: pa.Scalar, flags: pa.Scalar | None = None) -> Value:
    """Whether a regular expression matches a part of the text. Flags: `i`, `m`, `s`."""
    if not pattern.is_valid:
        return pa.nulls(len(value), _BOOL)
    return pc.match_substring_regex(value, _pattern(pattern, flags, "ims"))


def count_regex(value: Value, pattern: pa.Scalar) -> Value:
    """The number of matches of a regular expression, i64; 0 for null."""
    return pc.cast(pc.fill_null(pc.count_substring_regex(value, _pattern(pattern, None, "")), 0), _I64)


def position_of_regex(value: Value, pattern: pa.Scalar) -> pa.Array:
    """The position of a regular expression's first match, i64; 0 if there is none."""
    (texts,) = broadcast(value)
    at = pc.find_substring_regex(texts, _pattern(pattern, None, ""))
    pairs = zip(texts.cast(_BYTES).to_pylist(), at.to_pylist(), strict=True)
    return pa.array([None if n is None else len(text[:n].decode()) + 1 if n >= 0 else 0 for text, n in pairs], _I64)


def regex_groups(value: Value, pattern: pa.Scalar, flags: pa.Scalar | None = None) -> pa.Array:
    """The groups of the first match as a list, the whole match if there are none; null without a match."""
    (texts,) = broadcast(value)
    names, full = _name_groups(_pattern(pattern, flags, "ims"))
    matches = pc.extract_regex(texts.cast(_TEXT), full)
    groups = lists_of_rows(*[pc.struct_field(matches, [i]) for i in range(len(names))])
    return pc.if_else(matches.is_valid(), groups, pa.scalar(None, groups.type))


def _name_groups(pattern: str) -> tuple[list[str], str]:
    """The pattern with all groups named (or itself, without groups): Arrow returns only named groups."""
    out, names, i, in_class = [], list[str](), 0, False
    while i < len(pattern):
        piece = pattern[i : i + 2] if pattern[i] == "\\" else pattern[i]
        if piece == "[":
            in_class = True
        elif piece == "]":
            in_class = False
        elif piece == "(" and not in_class:
            given = re.match(r"\(\?P?<(\w+)>", pattern[i:])
            if given or pattern[i + 1 : i + 2] != "?":
                names.append(f"g{len(names)}")
                piece, i = f"(?P<{names[-1]}>", i + (given.end() - 1 if given else 0)
        out.append(piece)
        i += len(piece) if not piece.startswith("(?P<g") else 1
    return (names, "".join(out)) if names else (["g0"], f"(?P<g0>{pattern})")


def replace_regex(value: Value, pattern: pa.Scalar, new: pa.Scalar, flags: pa.Scalar | None = None) -> Value:
    """Replace the first match, or all with the flag `g`; `\\1` or `$1` in the new text stands for a group."""
    everywhere = flags is not None and "g" in (flags.as_py() or "")
    replacement = re.sub(r"\$\{?(\d)\}?", r"\\\1", new.as_py() or "")
    return pc.replace_substring_regex(
        value, _pattern(pattern, flags, "gims"), replacement, max_replacements=None if everywhere else 1
    )


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("regexp_like", "text word word?", matches_regex)
FUNCTIONS.define("regexp_match", "shown word word?", regex_groups)
FUNCTIONS.define("regexp_instr", "text word", position_of_regex)
FUNCTIONS.define("regexp_count", "shown word", count_regex)
FUNCTIONS.define("regexp_replace", "shown word word word?", replace_regex)
