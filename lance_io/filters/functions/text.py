"""Text functions of text filters. Positions and lengths count characters; positions start at 1 by default."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lance_io.filters.elementwise import by_value
from lance_io.filters.functions import text_search
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.kernel_calls import changed_texts, measured_texts, split_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.filters.elementwise import Value

_TEXT, _BOOL, _I32, _I64, _BYTES = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.binary()
_SPACE = pa.scalar(" ")
_LIKE_CONTAINS = re.compile(r"%+([^%_\\]+)%+", re.DOTALL)


def _literal(value: Value) -> Any:
    """The value of a literal, None for null; None for columns."""
    return value.as_py() if isinstance(value, pa.Scalar) else None


def num_bytes(value: Value) -> Value:
    """Length in bytes, i32; i64 for a large text."""
    return pc.cast(pc.binary_length(value), _as_count(value))


def num_bits(value: Value) -> Value:
    """Length in bits, i32; i64 for a large text."""
    return pc.multiply(num_bytes(value), pa.scalar(8, _as_count(value)))


def _as_count(value: Value) -> pa.DataType:
    """The type of positions and lengths: i32, or i64 for a large text."""
    return _I64 if pa.types.is_large_string(value.type) else _I32


def join_texts(*values: Value) -> Value:
    """Concatenate texts; nulls count as empty."""
    return pc.binary_join_element_wise(*values, _nothing(values), null_handling="replace", null_replacement="")


def join_strictly(left: Value, right: Value) -> Value:
    """Concatenate texts; null if one of them is null."""
    return pc.binary_join_element_wise(left, right, _nothing([left]))


def _nothing(like: Sequence[Value]) -> pa.Scalar:
    return pa.scalar("", like[0].type)


def join_with(separator: Value, *values: Value) -> Value:
    """Concatenate texts with a separator; nulls are left out, and only nulls give an empty text."""
    first, *others = values
    if first.null_count if isinstance(first, pa.Array) else not first.is_valid:
        # Arrow's kernel drops rows in which every text is null: the array would be too short.
        none_valid = pc.invert(pc.is_valid(pc.coalesce(*values)))
        first = pc.if_else(none_valid, _nothing(values), first)
    return pc.binary_join_element_wise(first, *others, separator, null_handling="skip")


def _like_regex(pattern: str) -> str:
    """LIKE as a regular expression: `%` any text, `_` any character, a backslash escapes the next character."""
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

    def is_match(text: str, like: str) -> bool:
        return re.fullmatch(_like_regex(like), text, flags) is not None

    return by_value(is_match, _BOOL, value, pattern)


def matches_like(value: Value, pattern: Value) -> Value:
    """LIKE."""
    return _matches(value, pattern, ignore_case=False)


def matches_like_ignoring_case(value: Value, pattern: Value) -> Value:
    """ILIKE."""
    return _matches(value, pattern, ignore_case=True)


def _part_test(kernel: Callable[..., Value], function: str) -> Callable[[Value, Value], Value]:
    def test(value: Value, wanted: Value) -> Value:
        literal = _literal(wanted)
        return measured_texts(function, _BOOL, value, wanted) if literal is None else kernel(value, literal)

    return test


starts_with = _part_test(pc.starts_with, "starts_with")
ends_with = _part_test(pc.ends_with, "ends_with")
contains = _part_test(text_search.contains, "contains")


def position(value: Value, wanted: Value) -> pa.Array:
    """The position of a text's first occurrence, i32 (i64 in a large text); 0 if there is none."""
    return measured_texts("position", _as_count(value), value, wanted)


def replace(value: Value, old: Value, new: Value) -> Value:
    """Replace every occurrence of a text."""
    before, after = _literal(old), _literal(new)
    if before and after is not None:
        return pc.replace_substring(value, before, after)
    return changed_texts("replace", _TEXT, value, old, new)


def translate(value: Value, old: Value, new: Value) -> pa.Array:
    """Replace characters of `old` by those at the same positions of `new`; drops those without a counterpart."""
    return changed_texts("translate", value.type, value, old, new)


def left(value: Value, count: Value) -> Value:
    """The first `count` characters; with a negative count all but the last `-count`."""
    return changed_texts("left", _TEXT, value, count)


def right(value: Value, count: Value) -> pa.Array:
    """The last `count` characters; with a negative count all but the first `-count`."""
    return changed_texts("right", _TEXT, value, count)


def substring(value: Value, start: Value, count: Value | None = None) -> pa.Array:
    """At most `count` characters from a position on. Raises pa.ArrowInvalid for a negative count."""
    return changed_texts("substring", _TEXT, *([value, start] if count is None else [value, start, count]))


def _padded(function: str) -> Callable[..., pa.Array]:
    def pad(value: Value, width: Value, fill: Value | None = None) -> pa.Array:
        return changed_texts(function, value.type, value, width, _SPACE if fill is None else fill)

    return pad


pad_left, pad_right = _padded("pad_left"), _padded("pad_right")  # padded or cut to a width


def _trimmed(function: str) -> Callable[..., pa.Array]:
    def trim(value: Value, characters: Value | None = None) -> pa.Array:
        return changed_texts(function, value.type, value, _SPACE if characters is None else characters)

    return trim


trim, trim_left, trim_right = _trimmed("trim"), _trimmed("trim_left"), _trimmed("trim_right")  # default: spaces


def repeat(value: Value, count: Value) -> pa.Array:
    """The text `count` times; empty for a count below 1."""
    return changed_texts("repeat", value.type, value, count)


def split_part(value: Value, separator: Value, number: Value) -> pa.Array:
    """The part with this number, counted from the end when negative; empty if there is none."""
    return changed_texts("split_part", value.type, value, separator, number)


def parts(value: Value, separator: Value) -> pa.Array:
    """The list of the parts between separators; an empty list for an empty text."""
    return split_texts(value, separator)


def substring_index(value: Value, separator: Value, count: Value) -> pa.Array:
    """The text before the n-th separator, or behind the n-th from the end when negative."""
    return changed_texts("substring_index", _TEXT, value, separator, count)


def find_in_set(value: Value, texts: Value) -> pa.Array:
    """The position in a list of texts joined by commas, i32; 0 if absent."""
    return measured_texts("find_in_set", _I32, value, texts)


def edit_distance(left_text: Value, right_text: Value) -> pa.Array:
    """The Levenshtein distance: characters to insert, drop or replace to turn one text into the other, i32."""
    return measured_texts("edit_distance", _as_count(left_text), left_text, right_text)


def capitalize(value: Value) -> pa.Array:
    """Capitalize each word (a run of letters and digits); its other letters become lower case."""
    return changed_texts("capitalize", value.type, value)


def overlaid(value: Value, new: Value, start: Value, count: Value | None = None) -> pa.Array:
    """The text with `new` in place of `count` characters (default: as many as `new` has) from a position on."""
    return changed_texts("overlay", _TEXT, *([value, new, start] if count is None else [value, new, start, count]))


def contains_tokens(value: Value, wanted: Value) -> pa.Array:
    """Whether all words (runs of letters and digits) of the second text are words of the first."""
    return measured_texts("contains_tokens", _BOOL, value, wanted)


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
