"""List functions of text filters that give other lists: items added, dropped, replaced, put together.

All work in one way, whatever the items are. The items of all arguments become one pool, and each gets a code that
equal items share, nulls too. A function then says for each row which places of the pool make up its list:

    array_append([7, 8], 7)    pool 7 8 7, codes 0 1 0    the arguments of the row are the places [0, 1] and 2
                                                          the result is [0, 1, 2], taken from the pool
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io.filters.binding.sql_types import is_list
from lance_io.filters.elementwise import broadcast, by_value
from lance_io.filters.functions.function_registry import SqlFunctions
from lance_io.filters.functions.list_columns import in_same_layout
from lance_io.filters.value_order import codes
from lance_io.levels.portable import taken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_io.filters.elementwise import Value

Places: TypeAlias = "range | list[int]"

_DAY: Final = 86_400 * 10**9  # in nanoseconds
ITEMS_MAX = 1 << 26  # of all lists that one call makes: `range` and `repeat` could ask for any number


@dataclass(frozen=True, slots=True)
class _Pool:
    """The items of all arguments, and for each argument the place or places of each row; None for a null list."""

    items: pa.Array
    codes: Sequence[int]
    arguments: list[list[Any]]

    def is_null(self, place: int) -> bool:
        return not self.items[place].is_valid


def _depth(t: pa.DataType) -> int:
    return 1 + _depth(t.value_type) if is_list(t) else 0


def _pool(*values: Value) -> _Pool:
    columns, start = list[pa.Array](), 0
    arguments: list[list[Any]] = []
    deepest = max(_depth(value.type) for value in values)  # those are the lists, the others items of such lists
    for value in broadcast(*values):
        is_item = _depth(value.type) < deepest
        items = value if is_item else pc.list_flatten(value)
        arguments.append(list(range(start, start + len(value))) if is_item else _pool_places(value, start))
        columns.append(items)
        start += len(items)
    items = pa.concat_arrays(columns)
    return _Pool(items, codes(items).tolist(), arguments)


def lists_of(items: pa.Array, rows: Sequence[Places | None]) -> pa.Array:
    """Lists of the items at the given places; a place of -1 is a null item. Raises pa.ArrowInvalid for too many."""
    lengths = [0 if row is None else len(row) for row in rows]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if offsets[-1] > ITEMS_MAX:
        raise pa.ArrowInvalid(f"lists of {offsets[-1]} items in all, at most {ITEMS_MAX}")
    places = np.fromiter((place for row in rows for place in row or ()), np.int64, count=int(offsets[-1]))
    chosen = taken(items, pa.array(places, mask=places < 0))
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), chosen, mask=mask)


def append(lists: Value, item: Value) -> pa.Array:
    """The items and one more; of a null list only that one."""
    pool = _pool(lists, item)
    return lists_of(pool.items, [[*(row or ()), one] for row, one in zip(*pool.arguments, strict=True)])


def prepend(item: Value, lists: Value) -> pa.Array:
    """One item and those of the list behind it."""
    pool = _pool(item, lists)
    return lists_of(pool.items, [[one, *(row or ())] for one, row in zip(*pool.arguments, strict=True)])


def concatenate(*lists: Value) -> pa.Array:
    """The items of all lists; null lists are left out, and null when all are."""
    pool = _pool(*lists)

    def join_rows(rows: tuple[range | None, ...]) -> list[int] | None:
        there = [row for row in rows if row is not None]
        return [place for row in there for place in row] if there else None

    return lists_of(pool.items, [join_rows(rows) for rows in zip(*pool.arguments, strict=True)])


def positions(lists: Value, item: Value) -> pa.Array:
    """Every position of an item, list of u64 from 1; a null item is found where items are null."""
    pool = _pool(lists, item)
    codes, found = pool.codes, []
    for row, one in zip(*pool.arguments, strict=True):
        wanted = codes[one]
        found.append(None if row is None else [i for i, at in enumerate(row, 1) if codes[at] == wanted])
    return pa.array(found, pa.list_(pa.uint64()))


def position(lists: Value, item: Value, start: Value | None = None) -> pa.Array:
    """Where an item occurs first, u64 from 1; null where it does not.

    start  the first position that counts. Raises pa.ArrowInvalid for one outside the list
    """
    all_of_them = positions(lists, item).to_pylist()
    if start is None:
        return pa.array([found[0] if found else None for found in all_of_them], pa.uint64())
    lists, starts = broadcast(lists, start)
    rows = zip(all_of_them, pc.list_value_length(lists).to_pylist(), starts.to_pylist(), strict=True)
    first: list[int | None] = []
    for found, length, begin in rows:
        if found is not None and not 1 <= (1 if begin is None else begin) <= max(length, 1):
            raise pa.ArrowInvalid(f"start_from out of bounds: {begin} in a list of {length}")
        first.append(next((at for at in found or () if at >= (begin or 1)), None))
    return pa.array(first, pa.uint64())


def _without(lists: Value, item: Value, counts: list[int | None]) -> pa.Array:
    pool = _pool(lists, item)
    codes, rows = pool.codes, list[list[int] | None]()
    for row, one, count in zip(*pool.arguments, counts, strict=True):
        if row is None or count is None or pool.is_null(one):
            rows.append(None)
            continue
        dropped = set([at for at in row if codes[at] == codes[one]][: max(count, 0)])
        rows.append([at for at in row if at not in dropped])
    return lists_of(pool.items, rows)


def _counts(count: Value | int, *beside: Value) -> list[int | None]:
    if isinstance(count, int):
        return [count] * len(broadcast(*beside)[0])
    counts: list[int | None] = broadcast(count, *beside)[0].to_pylist()
    return counts


def without_first(lists: Value, item: Value) -> pa.Array:
    """The items without the first that equals `item`; null when `item` is."""
    return _without(lists, item, _counts(1, lists, item))


def without_some(lists: Value, item: Value, count: Value) -> pa.Array:
    """The items without the first `count` that equal `item`."""
    lists, item, count = broadcast(lists, item, count)
    return _without(lists, item, _counts(count, lists))


def without_all(lists: Value, item: Value) -> pa.Array:
    """The items that do not equal `item`."""
    return _without(lists, item, _counts(ITEMS_MAX, lists, item))


def _replace(lists: Value, old: Value, new: Value, counts: list[int | None]) -> pa.Array:
    pool = _pool(lists, old, new)
    codes, rows = pool.codes, list[list[int] | None]()
    for row, before, after, count in zip(*pool.arguments, counts, strict=True):
        hits = set([at for at in row or () if codes[at] == codes[before]][: max(count or 0, 0)])
        rows.append(None if row is None else [after if at in hits else at for at in row])
    return lists_of(pool.items, rows)


def replace_first(lists: Value, old: Value, new: Value) -> pa.Array:
    """The items with `new` in place of the first that equals `old`."""
    return _replace(lists, old, new, _counts(1, lists, old, new))


def replace_all(lists: Value, old: Value, new: Value) -> pa.Array:
    """The items with `new` in place of each that equals `old`."""
    return _replace(lists, old, new, _counts(ITEMS_MAX, lists, old, new))


def replace_some(lists: Value, old: Value, new: Value, count: Value) -> pa.Array:
    """The items with `new` in place of the first `count` that equal `old`."""
    lists, old, new, count = broadcast(lists, old, new, count)
    return _replace(lists, old, new, _counts(count, lists))


def _as_sets(choose: Callable[[bool, bool], bool]) -> Callable[[Value, Value], pa.Array]:
    """A set operation: distinct items in order, of those that `choose(in left, in right)` accepts."""

    def combine(left: Value, right: Value) -> pa.Array:
        pool = _pool(left, right)
        rows: list[list[int] | None] = []
        for ours, theirs in zip(*pool.arguments, strict=True):
            if ours is None or theirs is None:
                rows.append(None)
                continue
            here, there = {pool.codes[at] for at in ours}, {pool.codes[at] for at in theirs}
            first = {pool.codes[at]: at for at in reversed([*ours, *theirs])}
            kept = dict.fromkeys(pool.codes[at] for at in [*ours, *theirs])
            rows.append([first[code] for code in kept if choose(code in here, code in there)])
        return lists_of(pool.items, rows)

    return combine


union = _as_sets(lambda here, there: here or there)
intersection = _as_sets(lambda here, there: here and there)
difference = _as_sets(lambda here, there: here and not there)


def _rearrange(pick: Callable[[range], Places]) -> Callable[[Value], pa.Array]:
    def rearrange(lists: Value) -> pa.Array:
        pool = _pool(lists)
        return lists_of(pool.items, [None if row is None else pick(row) for row in pool.arguments[0]])

    return rearrange


backwards = _rearrange(lambda row: row[::-1])
without_last_item = _rearrange(lambda row: row[:-1])
without_first_item = _rearrange(lambda row: row[1:])


def part(lists: Value, start: Value, stop: Value, step: Value | None = None) -> pa.Array:
    """The items from a position to another, both counted from 1, or from the end when negative."""
    lists, *bounds = broadcast(lists, start, stop, *([] if step is None else [step]))
    pool = _pool(lists)
    rows: list[Places | None] = []
    for row, *ends in zip(pool.arguments[0], *[one.to_pylist() for one in bounds], strict=True):
        rows.append(None if row is None or None in ends else _slice(row, *ends))
    return lists_of(pool.items, rows)


def _slice(row: range, start: int, stop: int, step: int = 1) -> Places:
    if step == 0:
        raise pa.ArrowInvalid("array_slice got invalid stride: 0, it cannot be 0")
    length = len(row)
    first = max(length + start, 0) if start < 0 else max(start - 1, 0)
    last = length + stop if stop < 0 else min(stop - 1, length - 1)
    if step > 0:
        return [row[i] for i in range(first, last + 1, step)]
    return [row[i] for i in range(min(first, length - 1), max(last, 0) - 1, step)] if first < length else []


def resize(lists: Value, size: Value, fill: Value | None = None) -> pa.Array:
    """The items cut, or filled up with nulls or another item, to a number. Raises pa.ArrowInvalid below zero."""
    lists, size, *filling = broadcast(lists, size, *([] if fill is None else [fill]))
    pool = _pool(lists, *filling)
    fills = pool.arguments[1] if filling else [-1] * len(lists)
    rows: list[Places | None] = []
    for row, count, place in zip(pool.arguments[0], size.to_pylist(), fills, strict=True):
        wanted = count or 0
        if not 0 <= wanted <= ITEMS_MAX:
            raise pa.ArrowInvalid(f"array_resize: a list cannot have {wanted} items")
        rows.append(None if row is None else [*row[:wanted], *[place] * (wanted - len(row))])
    return lists_of(pool.items, rows)


def repeat(item: Value, count: Value) -> pa.Array:
    """A list that holds an item several times; null for a null count."""
    items, counts = broadcast(item, count)
    wanted = [None if n is None else max(n, 0) for n in counts.to_pylist()]
    if sum(n or 0 for n in wanted) > ITEMS_MAX:
        raise pa.ArrowInvalid(f"array_repeat: more than {ITEMS_MAX} items")
    return lists_of(items, [None if n is None else [row] * n for row, n in enumerate(wanted)])


def flatten(lists: Value) -> pa.Array:
    """The items of the inner lists, null ones left out; lists of no lists are as they are."""
    (lists,) = broadcast(lists)
    if not is_list(lists.type.value_type):
        return lists
    outer, inner = _pool_places(lists), pc.list_flatten(lists)
    inside = _pool_places(inner)
    rows = [None if row is None else [at for one in row for at in inside[one] or ()] for row in outer]
    return lists_of(pc.list_flatten(inner), rows)


def _pool_places(lists: pa.Array, start: int = 0) -> list[range | None]:
    ends = [start, *(start + np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy())).tolist()]
    present = lists.is_valid().to_pylist()
    return [range(*ab) if there else None for ab, there in zip(pairwise(ends), present, strict=True)]


def zip_lists(*lists: Value) -> pa.Array:
    """Lists of structs with the fields `1`, `2` ... of the items side by side, short lists filled up with nulls."""
    columns = broadcast(*lists)
    places = [_pool_places(one) for one in columns]
    longest = [
        None if all(row is None for row in rows) else max(len(row or ()) for row in rows)
        for rows in zip(*places, strict=True)
    ]
    fields = [
        lists_of(
            pc.list_flatten(column),
            [
                None if size is None else [*(row or ()), *[-1] * (size - len(row or ()))]
                for row, size in zip(rows, longest, strict=True)
            ],
        )
        for column, rows in zip(columns, places, strict=True)
    ]
    items = pa.StructArray.from_arrays([one.flatten() for one in fields], [str(i + 1) for i in range(len(fields))])
    return pa.ListArray.from_arrays(fields[0].offsets, items, mask=fields[0].is_null())


def first_valid(lists: Value) -> pa.Array:
    """The first item that is not null."""
    (lists,) = broadcast(lists)
    items = pc.list_flatten(lists)
    valid = items.is_valid().to_pylist()
    places = [next((at for at in row or () if valid[at]), None) for row in _pool_places(lists)]
    return taken(items, pa.array(places, pa.int64()))


def _dates_between(first: Value, stop: Value, step: Value, *, inclusive: bool, items_max: int) -> pa.Array:
    """Lists of the dates or times from one to another in steps of an interval; null where an argument is.

    Raises pa.ArrowInvalid for an empty step, and for more items than `items_max` in all.
    """
    rows, left = list[list[int] | None](), items_max
    is_date = pt.is_date(first.type)
    kind = pa.date32() if is_date else pa.timestamp("ns", getattr(first.type, "tz", None))
    firsts, stops, steps = broadcast(pc.cast(first, kind), pc.cast(stop, kind), step)
    ticks = [one.cast(pa.int32() if is_date else pa.int64()).to_pylist() for one in (firsts, stops)]
    for begin, end, span in zip(*ticks, steps.to_pylist(), strict=True):
        if begin is None or end is None or span is None:
            rows.append(None)
            continue
        if not any(span):
            raise pa.ArrowInvalid("Interval argument to range must not be 0")
        found, at, times = list[int](), begin, 0
        forward = (span.months * 31 + span.days) * _DAY + span.nanoseconds > 0
        last = end if inclusive or not is_date else _shift(end, span, -1, is_date)  # of dates a whole step is left out
        closed = inclusive or is_date
        while (at < last or (closed and at == last)) if forward else (at > last or (closed and at == last)):
            found.append(at)
            left, times = left - 1, times + 1
            if left < 0:
                raise pa.ArrowInvalid(f"range: more than {items_max} items")
            at = _shift(begin, span, times, is_date)
        rows.append(found)
    return pa.array(rows, pa.list_(pa.int32() if is_date else pa.int64())).cast(pa.list_(kind))


def _shift(begin: int, span: pa.MonthDayNano, times: int, is_date: bool) -> int:
    """A date (days) or time (nanoseconds) moved by a span several times; months end with their last day."""
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
            return _dates_between(first, stop, step, inclusive=inclusive, items_max=ITEMS_MAX)
        if any(one is not None and not pa.types.is_integer(one.type) for one in (first, stop, step)):
            raise pa.ArrowTypeError("range takes integers, or two dates and an interval")
        if stop is None:
            first, stop = pa.scalar(0, pa.int64()), first
        left = ITEMS_MAX

        def one(begin: int, end: int, by: int) -> list[int]:
            nonlocal left
            if by == 0:
                raise pa.ArrowInvalid("step can't be 0 for function range(start [, stop, step])")
            limit = end + ((1 if by > 0 else -1) if inclusive else 0)
            left -= max(-((begin - limit) // by), 0)
            if left < 0:
                raise pa.ArrowInvalid(f"range: more than {ITEMS_MAX} numbers")
            return list(range(begin, limit, by))

        by_one = pa.scalar(1, pa.int64())
        return by_value(one, pa.list_(pa.int64()), first, stop, by_one if step is None else step)

    return series


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
