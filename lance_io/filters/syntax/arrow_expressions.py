"""Rebuilds a `pyarrow.compute.Expression` as our own expression tree.

pyarrow has no API to walk an expression, but pickles it as an Arrow IPC file. The schema metadata is a token stream in
prefix order; the only record batch has one single-row column per literal and per options object.

    token             value     meaning
    call              name      a function call starts; its operands follow
    options           column    the options of the open call, a struct whose `_type_name` names their class
    end               name      that call ends
    field_ref         name      a column
    nested_field_ref  n         the next n `field_ref` tokens are one path into struct columns
    literal           column    a literal

This module accepts only the functions that it lists; any other is an `UnsupportedError`, so that a filter never selects
rows that it does not describe. Overflow-checked arithmetic becomes the wrapping kind, as in the reference reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lance_io.errors import UnsupportedError
from lance_io.filters.expressions.expression_tree import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Or,
)
from lance_io.filters.syntax.ipc_metadata import schema_metadata
from lance_io.levels.plain_types import plain_array, plain_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.filters.expressions.expression_tree import CompareOp, Expr

_DEPTH_MAX = 100  # nesting of calls; binding takes up to four stack frames per level of the interpreter's thousand

_COMPARISONS: dict[str, CompareOp] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}

# name in the expression -> name of the kernel with the reference reader's semantics
_RENAMED = {
    "add_checked": "add",
    "subtract_checked": "subtract",
    "multiply_checked": "multiply",
    "divide_checked": "divide",
    "remainder_checked": "remainder",
    "modulo_checked": "modulo",
    "negate_checked": "negate",
    "power_checked": "power",
    "abs": "abs_checked",  # the absolute value of the smallest integer is an evaluation error
}

_UNCHANGED = frozenset(
    """
    add subtract multiply divide remainder modulo negate power abs_checked sign
    sqrt sqrt_checked exp expm1 ln ln_checked log10 log10_checked log2 log2_checked log1p log1p_checked
    logb logb_checked
    sin sin_checked cos cos_checked tan tan_checked asin asin_checked acos acos_checked atan atan2 sinh cosh tanh
    asinh acosh acosh_checked atanh atanh_checked
    floor ceil trunc round round_to_multiple round_binary
    bit_wise_and bit_wise_or bit_wise_xor bit_wise_not
    shift_left shift_left_checked shift_right shift_right_checked
    is_nan is_finite is_inf
    and or xor and_not and_not_kleene true_unless_null
    if_else coalesce case_when make_struct choose max_element_wise min_element_wise
    starts_with ends_with match_substring match_substring_regex match_like
    find_substring find_substring_regex count_substring count_substring_regex
    replace_substring replace_substring_regex extract_regex split_pattern split_pattern_regex
    binary_length binary_reverse binary_repeat binary_slice binary_replace_slice binary_join binary_join_element_wise
    utf8_length utf8_upper utf8_lower utf8_capitalize utf8_title utf8_swapcase utf8_reverse utf8_normalize
    utf8_trim utf8_ltrim utf8_rtrim utf8_trim_whitespace utf8_ltrim_whitespace utf8_rtrim_whitespace
    utf8_lpad utf8_rpad utf8_center utf8_zero_fill utf8_slice_codeunits utf8_replace_slice utf8_split_whitespace
    utf8_is_alnum utf8_is_alpha utf8_is_decimal utf8_is_digit utf8_is_lower utf8_is_numeric utf8_is_printable
    utf8_is_space utf8_is_title utf8_is_upper
    ascii_upper ascii_lower ascii_capitalize ascii_title ascii_swapcase ascii_reverse
    ascii_trim ascii_ltrim ascii_rtrim ascii_trim_whitespace ascii_ltrim_whitespace ascii_rtrim_whitespace
    ascii_lpad ascii_rpad ascii_center ascii_split_whitespace string_is_ascii
    ascii_is_alnum ascii_is_alpha ascii_is_decimal ascii_is_lower ascii_is_printable ascii_is_space ascii_is_title
    ascii_is_upper
    list_value_length list_element list_slice map_lookup struct_field index_in dictionary_decode
    year month day quarter hour minute second millisecond microsecond nanosecond subsecond
    day_of_week day_of_year week iso_week iso_year us_week us_year iso_calendar year_month_day is_leap_year is_dst
    floor_temporal ceil_temporal round_temporal strftime strptime assume_timezone local_timestamp
    years_between quarters_between weeks_between days_between hours_between minutes_between seconds_between
    milliseconds_between microseconds_between nanoseconds_between
    """.split()
)


@dataclass(slots=True)
class _OpenCall:
    """A call whose operands are being collected; `depth` is the depth of its deepest operand."""

    name: str
    args: list[Expr] = field(default_factory=list)
    options: pa.StructScalar | None = None
    depth: int = 0


def from_arrow(expression: pc.Expression) -> Expr:
    """The expression as an unbound tree.

    Raises UnsupportedError, which names the function, column reference or option without a counterpart here.
    """
    tokens, parts = _tokens(expression)
    outer = _OpenCall("")
    open_calls = [outer]
    path_left, path = 0, list[str | int]()
    for key, value in tokens:
        call = open_calls[-1]
        match key:
            case "call":
                open_calls.append(_OpenCall(value))
            case "literal":
                call.args.append(Literal(_plain(_part(parts, value)), adaptable=True))
            case "options":
                call.options = _part(parts, value)
            case "nested_field_ref":
                path_left, path = int(value), []
            case "field_ref":
                path.append(value)
                path_left = max(path_left - 1, 0)
                if path_left == 0:
                    call.args.append(Column(tuple(path)))
                    path = []
            case "end" if len(open_calls) > 1 and call.name == value:
                open_calls.pop()
                _close(call, open_calls[-1])
            case _:
                raise _unreadable(f"token {key} {value!r}")
    if len(open_calls) != 1 or len(outer.args) != 1:
        raise _unreadable(f"{len(outer.args)} expressions")
    return outer.args[0]


def _tokens(expression: pc.Expression) -> tuple[list[tuple[str, str]], pa.RecordBatch]:
    try:
        pickled = expression.__reduce__()[1][0]
    except pa.ArrowNotImplementedError as error:
        hint = "refer to columns by name" if "non-name" in str(error) else "write it with other functions"
        raise UnsupportedError(f"cannot rebuild the expression {expression}: {error}; {hint}") from error
    try:
        return schema_metadata(bytes(pickled)), pa.ipc.open_file(pickled).get_batch(0)
    except (ValueError, TypeError) as error:
        raise _unreadable(str(error)) from error


def _unreadable(part: str) -> UnsupportedError:
    return UnsupportedError(f"pyarrow {pa.__version__} writes expressions in a form this release cannot read: {part}")


def _part(parts: pa.RecordBatch, number: str) -> Any:
    if not (number.isdigit() and int(number) < parts.num_columns):
        raise _unreadable(f"reference to column {number} of {parts.num_columns}")
    return parts.column(int(number))[0]


def _plain(value: pa.Scalar) -> pa.Scalar:
    """A literal without its dictionary, run or extension type: columns are read without theirs, too."""
    wrapped = pa.DictionaryScalar | pa.ExtensionScalar | pa.RunEndEncodedScalar
    return _plain(value.value) if isinstance(value, wrapped) else value


def _close(call: _OpenCall, outer: _OpenCall) -> None:
    """Add a finished call to the operands of the call around it."""
    built = _build(call)
    chained = isinstance(built, And | Or) and type(built) in map(type, call.args)
    depth = call.depth if chained else call.depth + 1  # `a | b | c | ...` is one level, however long
    if depth > _DEPTH_MAX:
        raise UnsupportedError(f"the expression is nested deeper than {_DEPTH_MAX} calls; write it flatter")
    outer.args.append(built)
    outer.depth = max(outer.depth, depth)


def _build(call: _OpenCall) -> Expr:
    name, args = call.name, call.args
    if name in _COMPARISONS and len(args) == 2:
        return Comparison(_COMPARISONS[name], *args)
    if name in _SPECIAL:
        return _SPECIAL[name](call)
    name = _RENAMED.get(name, name)
    if name in _UNCHANGED:
        return Call(name, tuple(args), _options(call.options))
    raise UnsupportedError(f"filters cannot use the pyarrow.compute function {call.name!r} yet")


def _and(call: _OpenCall) -> Expr:
    return And(tuple(part for arg in call.args for part in (arg.args if isinstance(arg, And) else (arg,))))


def _or(call: _OpenCall) -> Expr:
    return Or(tuple(part for arg in call.args for part in (arg.args if isinstance(arg, Or) else (arg,))))


def _is_in(call: _OpenCall) -> Expr:
    values = _option(call, "value_set").values
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    values = plain_array(values, plain_type(values.type))  # views cannot be filtered
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    # The options for nulls are ignored: membership has SQL's nulls, as in the reference reader.
    return In(call.args[0], values.drop_null(), has_null=values.null_count > 0)


def _cast(call: _OpenCall) -> Expr:
    if call.options is None:
        raise _unreadable("cast without options")
    allowed = {scalar.as_py() for name, scalar in call.options.items() if name.startswith("allow_")}
    if len(allowed) != 1:
        raise UnsupportedError(
            "a cast in a filter is either safe or unsafe as a whole, single allow_* options are not supported"
        )
    return Cast(call.args[0], call.options.type.field("to_type").type, safe=not allowed.pop())


def _struct_field(call: _OpenCall) -> Expr:
    source = call.args[0]
    path = _dot_path(_option(call, "field_ref").as_py())
    if isinstance(source, Column):
        return Column(source.path + path)
    return Call("struct_field", (source,), _options(call.options))


def _dot_path(text: str) -> tuple[str | int, ...]:
    r"""Arrow's text form of a field reference: `.name` with backslash escapes, or `[position]`."""
    parts = re.findall(r"\.((?:\\.|[^.\[\\])*)|\[(\d+)\]", text, re.DOTALL)
    return tuple(int(position) if position else re.sub(r"\\(.)", r"\1", name) for name, position in parts)


def _option(call: _OpenCall, name: str) -> Any:
    if call.options is None or name not in call.options:
        raise _unreadable(f"{call.name} without {name}")
    return call.options[name]


def _is_null(call: _OpenCall) -> Expr:
    nan_is_null = call.options is not None and bool(_option(call, "nan_is_null").as_py())
    return IsNull(call.args[0], nan_is_null)


_SPECIAL: dict[str, Callable[[_OpenCall], Expr]] = {
    "and_kleene": _and,
    "or_kleene": _or,
    "invert": lambda call: Not(call.args[0]),
    "is_null": _is_null,
    "is_valid": lambda call: Not(IsNull(call.args[0])),
    "is_in": _is_in,
    "cast": _cast,
    "struct_field": _struct_field,
}


def _options(stored: pa.StructScalar | None) -> pc.FunctionOptions | None:
    """The options object of a call, read through pyarrow's own file format: one row, one unnamed struct column."""
    if stored is None:
        return None
    column = pa.repeat(stored, 1)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([pa.field("", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], names=[""]))
    return pc.FunctionOptions.deserialize(sink.getvalue())
