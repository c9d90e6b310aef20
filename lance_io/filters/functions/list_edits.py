"""List functions of text filters that return other lists: items added, dropped, replaced, combined (`list_pool`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io import _kernels
from lance_io.filters.elementwise import broadcast
from lance_io.filters.expressions.sql_types import is_list
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.functions.list_columns import in_same_layout
from lance_io.filters.functions.list_pool import Pool, call, check_count, ends_for, ends_of, item_codes
from lance_io.filters.kernel_calls import flags
from lance_io.levels.arrays import booleans, numbers, values_of
from lance_io.levels.portable import taken

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lance_io.filters.elementwise import Value

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

_DAY: Final = 86_400 * 10**9  # in nanoseconds
_ONE: Final = pa.scalar(1, pa.int64())
_ALL: Final = pa.scalar((1 << 63) - 1, pa.int64())
_ZERO: Final = pa.scalar(0, pa.int64())
_U64: Final = pa.uint64()


def _list_array(ends: Numbers, items: pa.Array, present: Flags | None = None) -> pa.Array:
    """Lists of `items` that end at `ends`; null where `present` is false."""
    validity = None if present is None or present.all() else booleans(present).buffers()[1]
    buffers = [validity, pa.py_buffer(ends.astype(np.int32))]
    return pa.Array.from_buffers(pa.list_(items.type), len(ends) - 1, buffers, children=[items])


def _null_where(array: pa.Array, *arguments: Value) -> pa.Array:
    """The array with nulls where an argument is null."""
    for value in arguments:
        if isinstance(value, pa.Scalar):
            if not value.is_valid:
                return pa.nulls(len(array), array.type)
        elif value.null_count:
            array = pc.if_else(value.is_valid(), array, pa.scalar(None, array.type))
    return array


def _filled(value: Value, by: int) -> Value:
    """Integers with `by` in place of nulls."""
    if isinstance(value, pa.Scalar):
        return value if value.is_valid else pa.scalar(by, value.type)
    return value.fill_null(by) if value.null_count else value


def append(lists: Value, item: Value) -> pa.Array:
    """The list with an item behind its own; for a null list just that item."""
    return Pool(lists, item).edited("concatenate")


def prepend(item: Value, lists: Value) -> pa.Array:
    """The list with an item in front of its own."""
    return Pool(item, lists).edited("concatenate")


def concatenate(*lists: Value) -> pa.Array:
    """The items of all lists. Null lists are left out; null if all are."""
    return Pool(*lists).edited("concatenate")


def positions(lists: Value, item: Value) -> pa.Array:
    """Every position of an item, list of u64 from 1; a null item matches null items."""
    pool = Pool(lists, item)
    known = item_codes(pool.items)
    ends, matches = call(_kernels.positions_in_lists, pool.num_rows, pool.arguments, known)
    items = numbers(np.frombuffer(matches, np.uint64))
    validity = lists.is_valid().buffers()[1] if isinstance(lists, pa.Array) and lists.null_count else None
    buffers = [validity, pa.py_buffer(ends)]
    result = pa.Array.from_buffers(pa.list_(_U64), pool.num_rows, buffers, children=[items])
    return _null_where(result, lists) if isinstance(lists, pa.Scalar) else result


def position(lists: Value, item: Value, start: Value | None = None) -> pa.Array:
    """The position of the first equal item, u64 from 1; null if there is none.

    start  the position to start from. Raises pa.ArrowInvalid if it is outside the list
    """
    pool = Pool(lists, item)
    given = [*pool.arguments, *([] if start is None else [_numbers_of(_filled(start, 1))])]
    matches = call(_kernels.find_in_lists, pool.num_rows, given, item_codes(pool.items))
    first_matches = np.frombuffer(matches, np.uint64)
    return numbers(first_matches, first_matches == 0)


def _numbers_of(value: Value) -> Numbers:
    values: Numbers = values_of((pa.repeat(value, 1) if isinstance(value, pa.Scalar) else value).cast(pa.int64()))
    return values


def without_first(lists: Value, item: Value) -> pa.Array:
    """The items without the first that equals `item`; null if `item` is null."""
    return without_some(lists, item, _ONE)


def without_some(lists: Value, item: Value, count: Value) -> pa.Array:
    """The items without the first `count` that equal `item`."""
    result = Pool(lists, item).edited("remove", _filled(count, 0), coded=True)
    return _null_where(result, item, count)


def without_all(lists: Value, item: Value) -> pa.Array:
    """The items that do not equal `item`."""
    return without_some(lists, item, _ALL)


def replace_first(lists: Value, old: Value, new: Value) -> pa.Array:
    """The items with `new` in place of the first that equals `old`."""
    return replace_some(lists, old, new, _ONE)


def replace_all(lists: Value, old: Value, new: Value) -> pa.Array:
    """The items with `new` in place of each that equals `old`."""
    return replace_some(lists, old, new, _ALL)


def replace_some(lists: Value, old: Value, new: Value, count: Value) -> pa.Array:
    """The items with `new` in place of the first `count` that equal `old`."""
    return Pool(lists, old, new).edited("replace", _filled(count, 0), coded=True)


def _as_sets(function: str) -> Callable[[Value, Value], pa.Array]:
    """A set operation, whose result has distinct items in order."""

    def combine(left: Value, right: Value) -> pa.Array:
        return Pool(left, right).edited(function, coded=True)

    return combine


union, intersection, difference = _as_sets("union"), _as_sets("intersect"), _as_sets("except")


def _rearrange(function: str) -> Callable[[Value], pa.Array]:
    def rearrange(lists: Value) -> pa.Array:
        return Pool(lists).edited(function)

    return rearrange


backwards = _rearrange("reverse")
without_last_item, without_first_item = _rearrange("without_last"), _rearrange("without_first")


def part(lists: Value, start: Value, stop: Value, step: Value | None = None) -> pa.Array:
    """The items from one position to another, both counted from 1, or from the end when negative."""
    bounds = [start, stop, *([] if step is None else [step])]
    result = Pool(*broadcast(lists, start)[:1]).edited("part", *[_filled(bound, 1) for bound in bounds])
    return _null_where(result, *bounds)


def resize(lists: Value, size: Value, fill: Value | None = None) -> pa.Array:
    """The list cut, or filled up with nulls or `fill`, to `size` items. Raises pa.ArrowInvalid below zero."""
    (column,) = broadcast(lists, *[value for value in (size, fill) if isinstance(value, pa.Array)])[:1]
    wanted = _filled(size, 0)
    pool = Pool(column) if fill is None else Pool(column, fill)
    pool.arguments.insert(1, _numbers_of(wanted))
    return pool.edited("resize")


def repeat(item: Value, count: Value) -> pa.Array:
    """A list of `count` times the item; null for a null count."""
    items, counts = broadcast(item, count)
    wanted = np.maximum(values_of(_filled(counts, 0).cast(pa.int64())), 0)
    ends = ends_for(wanted, "array_repeat")
    indices = np.repeat(np.arange(len(items)), wanted)
    return _list_array(ends, taken(items, numbers(indices)), flags(counts) if counts.null_count else None)


def flatten(lists: Value) -> pa.Array:
    """The items of the inner lists, without null lists; other lists are returned unchanged."""
    (lists,) = broadcast(lists)
    if not is_list(lists.type.value_type):
        return lists
    inner = pc.list_flatten(lists)
    ends = ends_of(inner)[ends_of(lists)]
    return _list_array(ends, pc.list_flatten(inner), flags(lists) if lists.null_count else None)


def zip_lists(*lists: Value) -> pa.Array:
    """Lists of structs with the fields `1`, `2` ... of the items side by side, short lists filled up with nulls."""
    columns = broadcast(*lists)
    present = np.logical_or.reduce([flags(column) for column in columns])
    ends = [ends_of(column) for column in columns]
    longest = np.maximum.reduce([np.diff(column_ends) for column_ends in ends])
    zipped_ends = ends_for(longest, "arrays_zip")
    row_of = np.repeat(np.arange(len(longest)), longest)
    within = np.arange(len(row_of)) - zipped_ends[row_of]
    fields = []
    for column, at in zip(columns, ends, strict=True):
        indices = at[row_of] + within
        fields.append(taken(pc.list_flatten(column), numbers(indices, indices >= at[row_of + 1])))
    items = pa.StructArray.from_arrays(fields, [str(i + 1) for i in range(len(fields))])
    return _list_array(zipped_ends, items, present)


def first_valid(lists: Value) -> pa.Array:
    """The first item that is not null."""
    pool = Pool(*broadcast(lists))
    indices = call(_kernels.first_valid_items, pool.num_rows, pool.arguments[0], flags(pool.items))
    return pool.at(np.frombuffer(indices, np.int64))


def _dates_between(first: Value, stop: Value, step: Value, *, inclusive: bool) -> pa.Array:
    """Lists of the dates or times from `first` to `stop` in steps of an interval; null where an argument is null.

    Raises pa.ArrowInvalid for an empty step, and for too many items in all.
    """
    rows, num_items = list[list[int] | None](), 0
    is_date = pt.is_date(first.type)
    kind = pa.date32() if is_date else pa.timestamp("ns", getattr(first.type, "tz", None))
    firsts, stops, steps = broadcast(pc.cast(first, kind), pc.cast(stop, kind), step)
    ticks = [times.cast(pa.int32() if is_date else pa.int64()).to_pylist() for times in (firsts, stops)]
    for begin, end, span in zip(*ticks, steps.to_pylist(), strict=True):
        if begin is None or end is None or span is None:
            rows.append(None)
            continue
        if not any(span):
            raise pa.ArrowInvalid("Interval argument to range must not be 0")
        row, at, num_steps = list[int](), begin, 0
        forward = (span.months * 31 + span.days) * _DAY + span.nanoseconds > 0
        last = end if inclusive or not is_date else _shift(end, span, -1, is_date)  # dates end a whole step earlier
        closed = inclusive or is_date
        while (at < last or (closed and at == last)) if forward else (at > last or (closed and at == last)):
            row.append(at)
            num_items, num_steps = num_items + 1, num_steps + 1
            check_count(num_items, "range")
            at = _shift(begin, span, num_steps, is_date)
        rows.append(row)
    return pa.array(rows, pa.list_(pa.int32() if is_date else pa.int64())).cast(pa.list_(kind))


def _shift(begin: int, span: pa.MonthDayNano, times: int, is_date: bool) -> int:
    """A date (days) or time (nanoseconds) shifted `times` spans; a day past a month's end becomes its last day."""
    per_day = 1 if is_date else _DAY
    if span.months:
        day, rest = divmod(begin, per_day)
        date = np.datetime64(day, "D")
        month = date.astype("M8[M]") + span.months * times
        last = (month + 1).astype("M8[D]") - np.timedelta64(1, "D")
        date = min(month.astype("M8[D]") + (date - date.astype("M8[M]").astype("M8[D]")), last)
        begin = int(date.astype(np.int64)) * per_day + rest
    nanoseconds = (span.days * _DAY + span.nanoseconds) * times
    return begin + int(nanoseconds // _DAY if is_date else nanoseconds)


def _series(*, inclusive: bool) -> Callable[..., pa.Array]:
    def series(first: Value, stop: Value | None = None, step: Value | None = None) -> pa.Array:
        if stop is not None and step is not None and pa.types.is_interval(step.type):
            return _dates_between(first, stop, step, inclusive=inclusive)
        if any(value is not None and not pa.types.is_integer(value.type) for value in (first, stop, step)):
            raise pa.ArrowTypeError("range takes integers, or two dates and an interval")
        if stop is None:
            first, stop = _ZERO, first
        return _numbers_between(first, stop, _ONE if step is None else step, inclusive=inclusive)

    return series


def _numbers_between(first: Value, stop: Value, step: Value, *, inclusive: bool) -> pa.Array:
    """Lists of the numbers from `first` to `stop`; null where an argument is null.

    Raises pa.ArrowInvalid for a step of 0, and for too many numbers in all.
    """
    columns = broadcast(first, stop, step)
    present = np.logical_and.reduce([flags(column) for column in columns])
    begin, end, by = (np.where(present, values_of(_filled(column, 1).cast(pa.int64())), 1) for column in columns)
    if (by == 0).any():
        raise pa.ArrowInvalid("step can't be 0 for function range(start [, stop, step])")
    forward = by > 0
    low, high = (np.where(forward, *pair).astype(np.uint64) for pair in ((begin, end), (end, begin)))
    stride = np.where(forward, by, -by).astype(np.uint64)  # right for the smallest i64, too: it is its own negative
    span, signed = high - low, np.where(forward, end > begin, end < begin)
    whole = np.uint64(0 if inclusive else 1)
    runs = (signed | (inclusive & (end == begin))) & present
    lengths = np.where(runs, (span - whole) // stride + np.uint64(1), np.uint64(0))
    ends = ends_for(lengths, "range")
    counts = np.diff(ends)
    indices = np.arange(ends[-1])  # value = begin + (index - index of the row's first item) * by
    if (by == by[:1]).all():
        values = indices * by[:1] + np.repeat(begin - ends[:-1] * by, counts) if len(by) else indices
    else:
        values = indices * np.repeat(by, counts) + np.repeat(begin - ends[:-1] * by, counts)
    return _list_array(ends, numbers(values), present)


numbers_below = _series(inclusive=False)
numbers_up_to = _series(inclusive=True)


FUNCTIONS = SqlFunctions()
FUNCTIONS.define("array_position array_indexof list_position list_indexof", "list item int?", position)
FUNCTIONS.define("array_positions list_positions", "list item", positions)
FUNCTIONS.define("array_append list_append array_push_back list_push_back", "list item", in_same_layout(append))
FUNCTIONS.define("array_prepend list_prepend array_push_front list_push_front", "item list", in_same_layout(prepend))
FUNCTIONS.define("array_concat array_cat list_concat list_cat", "lists lists*", in_same_layout(concatenate))
FUNCTIONS.define("array_remove list_remove", "list item", in_same_layout(without_first))
FUNCTIONS.define("array_remove_n list_remove_n", "list item int", in_same_layout(without_some))
FUNCTIONS.define("array_remove_all list_remove_all", "list item", in_same_layout(without_all))
FUNCTIONS.define("array_replace list_replace", "list item item", in_same_layout(replace_first))
FUNCTIONS.define("array_replace_n list_replace_n", "list item item int", in_same_layout(replace_some))
FUNCTIONS.define("array_replace_all list_replace_all", "list item item", in_same_layout(replace_all))
FUNCTIONS.define("array_union list_union", "lists lists", in_same_layout(union))
FUNCTIONS.define("array_intersect list_intersect", "lists lists", in_same_layout(intersection))
FUNCTIONS.define("array_except list_except", "lists lists", in_same_layout(difference))
FUNCTIONS.define("array_reverse list_reverse", "list", in_same_layout(backwards))
FUNCTIONS.define("array_pop_back list_pop_back", "list", in_same_layout(without_last_item))
FUNCTIONS.define("array_pop_front list_pop_front", "list", in_same_layout(without_first_item))
FUNCTIONS.define("array_slice list_slice", "list int int int?", in_same_layout(part))
FUNCTIONS.define("array_resize list_resize", "list int item?", in_same_layout(resize))
FUNCTIONS.define("array_repeat list_repeat", "any int", repeat)
FUNCTIONS.define("array_any_value list_any_value", "list", first_valid)
FUNCTIONS.define("arrays_zip list_zip", "list list*", zip_lists)
FUNCTIONS.define("flatten", "list", flatten)
FUNCTIONS.define("range", "steps steps? steps?", numbers_below)
FUNCTIONS.define("generate_series", "steps steps? steps?", numbers_up_to)
