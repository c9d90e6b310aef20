"""Text functions of text filters. Positions and lengths count characters, from 1 where not said otherwise."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lance_io.filters.elementwise import by_value
from lance_io.filters.functions import text_search
from lance_io.filters.functions.function_registry import SqlFunctions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.filters.elementwise import Value

_TEXT, _BOOL, _I32, _I64, _BYTES = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.binary()
_LIKE_CONTAINS = re.compile(r"%+([^%_\\]+)%+", re.DOTALL)
TEXT_BYTES_MAX = 1 << 30  # of one result: `repeat` and `lpad` could ask for any size


def _literal(value: Value) -> Any:
    """The value of a literal that is not null, else None."""
    return value.as_py() if isinstance(value, pa.Scalar) else None


def num_bytes(value: Value) -> Value:
    """Length in bytes, i32, of a large text i64."""
    return pc.cast(pc.binary_length(value), _as_count(value))


def num_bits(value: Value) -> Value:
    """Length in bits, i32, of a large text i64."""
    return pc.multiply(num_bytes(value), pa.scalar(8, _as_count(value)))


def _as_count(value: Value) -> pa.DataType:
    """Positions and lengths in a text: i64 in a large one."""
    return _I64 if pa.types.is_large_string(value.type) else _I32


def join_texts(*values: Value) -> Value:
    """One after the other; nulls are empty."""
    return pc.binary_join_element_wise(*values, _nothing(values), null_handling="replace", null_replacement="")


def join_strictly(left: Value, right: Value) -> Value:
    """One after the other; null if one of them is."""
    return pc.binary_join_element_wise(left, right, _nothing([left]))


def _nothing(like: Sequence[Value]) -> pa.Scalar:
    return pa.scalar("", like[0].type)


def join_with(separator: Value, *values: Value) -> Value:
    """One after the other with a separator between them; nulls are left out."""
    return pc.binary_join_element_wise(*values, separator, null_handling="skip")


def _like_regex(pattern: str) -> str:
    """LIKE as a regular expression: `%` any text, `_` any character, a backslash makes the next one ordinary."""
    parts = re.findall(r"\\?.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return "".join(wild.get(part) or re.escape(part[1:] if len(part) == 2 else part) for part in parts)


def _matches(value: Value, pattern: Value, ignore_case: bool) -> Value:
    wanted = _literal(pattern)
    if wanted is not None and not ignore_case and (part := _LIKE_CONTAINS.fullmatch(wanted)):
        return text_search.contains(value, part[1])
    if wanted is not None and not wanted.endswith("\\"):
        return pc.match_like(value, wanted, ignore_case=ignore_case)
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)

    def one(text: str, like: str) -> bool:
        return re.fullmatch(_like_regex(like), text, flags) is not None

    return by_value(one, _BOOL, value, pattern)


def matches_like(value: Value, pattern: Value) -> Value:
    """LIKE."""
    return _matches(value, pattern, ignore_case=False)


def matches_like_ignoring_case(value: Value, pattern: Value) -> Value:
    """ILIKE."""
    return _matches(value, pattern, ignore_case=True)


def _part_test(kernel: Callable[..., Value], slow: Callable[[str, str], bool]) -> Callable[[Value, Value], Value]:
    def test(value: Value, wanted: Value) -> Value:
        literal = _literal(wanted)
        return by_value(slow, _BOOL, value, wanted) if literal is None else kernel(value, literal)

    return test


starts_with = _part_test(pc.starts_with, str.startswith)
ends_with = _part_test(pc.ends_with, str.endswith)
contains = _part_test(text_search.contains, lambda text, wanted: wanted in text)


def position(value: Value, wanted: Value) -> pa.Array:
    """Where a text occurs first, i32, in a large text i64; 0 if it does not."""
    return by_value(lambda text, part: text.find(part) + 1, _as_count(value), value, wanted)


def replace(value: Value, old: Value, new: Value) -> Value:
    """Every occurrence of a text by another."""
    before, after = _literal(old), _literal(new)
    if before and after is not None:
        return pc.replace_substring(value, before, after)
    return by_value(str.replace, _TEXT, value, old, new)


def translate(value: Value, old: Value, new: Value) -> pa.Array:
    """Characters by those at the same places of `new`; those without a counterpart are dropped."""

    def one(text: str, before: str, after: str) -> str:
        table: dict[int, str | None] = {}
        for i, character in enumerate(before):
            table.setdefault(ord(character), after[i] if i < len(after) else None)
        return text.translate(table)

    return by_value(one, value.type, value, old, new)


def left(value: Value, count: Value) -> Value:
    """The first characters; with a negative count all but the last."""
    stop = _literal(count)
    if stop is not None and isinstance(value, pa.Array):
        return pc.utf8_slice_codeunits(value, 0, stop)
    return by_value(lambda text, n: text[:n], _TEXT, value, count)


def right(value: Value, count: Value) -> pa.Array:
    """The last characters; with a negative count all but the first."""
    return by_value(lambda text, n: text[-n:] if n else "", _TEXT, value, count)


def substring(value: Value, start: Value, count: Value | None = None) -> pa.Array:
    """From a position on, at most `count` characters. Raises pa.ArrowInvalid for a negative count."""

    def one(text: str, first: int, num: int | None = None) -> str:
        if num is None:
            return text[max(first - 1, 0) :]
        if num < 0:
            raise pa.ArrowInvalid(f"negative substring length not allowed: substr(<str>, {first}, {num})")
        return text[max(first - 1, 0) : max(first - 1 + num, 0)]

    return by_value(one, _TEXT, *([value, start] if count is None else [value, start, count]))


def _check_length(num_characters: int) -> int:
    if num_characters > TEXT_BYTES_MAX:
        raise pa.ArrowInvalid(f"a text of {num_characters} characters is longer than {TEXT_BYTES_MAX} bytes")
    return num_characters


def pad_left(value: Value, width: Value, fill: Value | None = None) -> pa.Array:
    """Filled up on the left to a width, or cut to it."""

    def one(text: str, size: int, filling: str) -> str:
        missing = max(_check_length(size) - len(text), 0)
        return _filling(filling, missing) + text if missing else text[: max(size, 0)]

    return by_value(one, value.type, value, width, pa.scalar(" ") if fill is None else fill)


def pad_right(value: Value, width: Value, fill: Value | None = None) -> pa.Array:
    """Filled up on the right to a width, or cut to it."""

    def one(text: str, size: int, filling: str) -> str:
        missing = max(_check_length(size) - len(text), 0)
        return text + _filling(filling, missing) if missing else text[: max(size, 0)]

    return by_value(one, value.type, value, width, pa.scalar(" ") if fill is None else fill)


def _filling(filling: str, width: int) -> str:
    return (filling * (width // len(filling) + 1))[:width] if filling else ""


def trim(value: Value, characters: Value | None = None) -> pa.Array:
    """Without spaces, or any of the given characters, at both ends."""
    return by_value(str.strip, value.type, value, pa.scalar(" ") if characters is None else characters)


def trim_left(value: Value, characters: Value | None = None) -> pa.Array:
    """Without spaces, or any of the given characters, in front."""
    return by_value(str.lstrip, value.type, value, pa.scalar(" ") if characters is None else characters)


def trim_right(value: Value, characters: Value | None = None) -> pa.Array:
    """Without spaces, or any of the given characters, at the end."""
    return by_value(str.rstrip, value.type, value, pa.scalar(" ") if characters is None else characters)


def repeat(value: Value, count: Value) -> pa.Array:
    """Several times one after the other; empty for a count below 1."""

    def one(text: str, times: int) -> str:
        _check_length(len(text) * max(times, 0))
        return text * max(times, 0)

    return by_value(one, value.type, value, count)


def split_part(value: Value, separator: Value, number: Value) -> pa.Array:
    """The part with a number, counted from the end when negative; empty when there is none."""

    def one(text: str, sep: str, n: int) -> str:
        if n == 0:
            raise pa.ArrowInvalid("field position must not be zero")
        parts = text.split(sep) if sep else [text]
        index = n - 1 if n > 0 else len(parts) + n
        return parts[index] if 0 <= index < len(parts) else ""

    return by_value(one, value.type, value, separator, number)


def parts(value: Value, separator: Value) -> pa.Array:
    """The list of the parts between separators; none for an empty text."""

    def one(text: str, sep: str) -> list[str]:
        if not text:
            return []
        return text.split(sep) if sep else [text]

    return by_value(one, pa.list_(value.type), value, separator)


def substring_index(value: Value, separator: Value, count: Value) -> pa.Array:
    """What stands in front of the n-th separator, or behind the n-th from the end when negative."""

    def one(text: str, sep: str, n: int) -> str:
        if not sep or n == 0:
            return ""
        parts = text.split(sep)
        return sep.join(parts[:n] if n > 0 else parts[n:])

    return by_value(one, _TEXT, value, separator, count)


def find_in_set(value: Value, texts: Value) -> pa.Array:
    """The position in a list of texts joined by commas, i32; 0 if it is not there."""

    def one(text: str, joined_texts: str) -> int:
        parts = joined_texts.split(",")
        return parts.index(text) + 1 if text in parts else 0

    return by_value(one, _I32, value, texts)


def edit_distance(left_text: Value, right_text: Value) -> pa.Array:
    """How many characters to insert, drop or replace to get from one text to the other, i32."""

    def one(before: str, after: str) -> int:
        row = list(range(len(after) + 1))
        for i, old in enumerate(before, 1):
            diagonal, row[0] = row[0], i
            for j, new in enumerate(after, 1):
                diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (old != new))
        return row[-1]

    return by_value(one, _as_count(left_text), left_text, right_text)


def capitalize(value: Value) -> pa.Array:
    """Words, which are runs of letters and digits, with a capital letter in front and small ones behind it."""
    return by_value(lambda text: re.sub(r"[^\W_]+", lambda word: _capital(word[0]), text), value.type, value)


def _capital(word: str) -> str:
    return word[0].upper() + word[1:].lower()


def overlaid(value: Value, new: Value, start: Value, count: Value | None = None) -> pa.Array:
    """With `new` in place of `count` characters from a position on, else of as many as it has."""

    def one(text: str, put: str, first: int, num: int | None = None) -> str:
        begin = max(first - 1, 0)
        return text[:begin] + put + text[max(begin + (len(put) if num is None else num), 0) :]

    return by_value(one, _TEXT, *([value, new, start] if count is None else [value, new, start, count]))


def contains_tokens(value: Value, wanted: Value) -> pa.Array:
    """Whether all words of the second text, which are runs of letters and digits, are words of the first."""

    def one(text: str, tokens: str) -> bool:
        return set(re.findall(r"[^\W_]+", tokens)) <= set(re.findall(r"[^\W_]+", text))

    return by_value(one, _BOOL, value, wanted)


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("upper", "text", pc.utf8_upper)
FUNCTIONS.define("lower", "text", pc.utf8_lower)
FUNCTIONS.define("reverse", "shown", pc.utf8_reverse)
FUNCTIONS.define("initcap", "text", capitalize)
FUNCTIONS.define("length char_length character_length", "shown", pc.utf8_length)
FUNCTIONS.define("octet_length", "bytes", num_bytes)
FUNCTIONS.define("bit_length", "bytes", num_bits)
FUNCTIONS.define("concat", "shown shown*", join_texts)
FUNCTIONS.define("concat_ws", "text shown*", join_with)
FUNCTIONS.define("||", "shown shown", join_strictly)
FUNCTIONS.define("like", "bytes text", matches_like)
FUNCTIONS.define("ilike", "bytes text", matches_like_ignoring_case)
FUNCTIONS.define("starts_with", "text text", starts_with)
FUNCTIONS.define("ends_with", "text text", ends_with)
FUNCTIONS.define("contains", "text text", contains)
FUNCTIONS.define("strpos instr position", "text text", position)
FUNCTIONS.define("replace", "text text text", replace)
FUNCTIONS.define("translate", "shown text text", translate)
FUNCTIONS.define("left", "shown int", left)
FUNCTIONS.define("right", "shown int", right)
FUNCTIONS.define("substr substring", "text int int?", substring)
FUNCTIONS.define("lpad", "shown int text?", pad_left)
FUNCTIONS.define("rpad", "shown int text?", pad_right)
FUNCTIONS.define("ltrim", "text text?", trim_left)
FUNCTIONS.define("rtrim", "text text?", trim_right)
FUNCTIONS.define("btrim trim", "text text?", trim)
FUNCTIONS.define("repeat", "text int", repeat)
FUNCTIONS.define("split_part", "text text int", split_part)
FUNCTIONS.define("substr_index substring_index", "shown text int", substring_index)
FUNCTIONS.define("find_in_set", "shown text", find_in_set)
FUNCTIONS.define("levenshtein", "text text", edit_distance)
FUNCTIONS.define("overlay", "shown text int int?", overlaid)
FUNCTIONS.define("contains_tokens", "text text", contains_tokens)
FUNCTIONS.define("string_to_array string_to_list", "text text", parts)
