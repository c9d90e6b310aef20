"""The shared part of list functions: all items form one pool, and kernels return indices into it for each list.

    array_append([7, 8], 7)    pool 7 8 7, codes 7 8 7    the arguments of the row are the indices [0, 1] and 2
                                                          the result is [0, 1, 2], taken from the pool

Equal items share a code, and so do nulls. Functions that sort use a key for each item instead, with the items' order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lance_io import _kernels
from lance_io.filters.expressions.sql_types import is_list
from lance_io.filters.kernel_calls import column_argument, flags
from lance_io.filters.value_order import BITS, codes, sort_keys, total_order
from lance_io.levels.arrays import booleans, values_of
from lance_io.levels.portable import taken

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lance_io._kernels import Buffer, ListArgument, TextArgument
    from lance_io.filters.elementwise import Value

    Numbers = npt.NDArray[np.int64]

ITEMS_MAX: Final = 1 << 26  # in all lists of one call: `range` and `repeat` could request any number
_NULL_CODE: Final = -(1 << 63)
_TICKS: Final = {32: pa.int32(), 64: pa.int64()}


class Pool:
    """The items of all arguments, and the arguments in the form that kernels take. At least one is an array.

    values  lists, and items of such lists; a literal is an argument of one row
    """

    def __init__(self, *values: Value) -> None:
        deepest = max(_depth(value.type) for value in values)  # values of this depth are lists, others their items
        columns: list[pa.Array] = []
        self.arguments: list[ListArgument] = []
        self.num_rows = next(len(value) for value in values if isinstance(value, pa.Array))
        start = 0
        for value in values:
            is_literal = isinstance(value, pa.Scalar)
            array = pa.repeat(value, 1) if is_literal else value
            if _depth(value.type) < deepest:
                self.arguments.append((start, is_literal))
                items = array
            else:
                self.arguments.append(_list_argument(array, start))
                items = pc.list_flatten(array)
            columns.append(items)
            start += len(items)
        self.items = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)

    def edited(self, function: str, *numbers: Value | int, coded: bool = False) -> pa.Array:
        """The lists from `_kernels.edit_lists`; `numbers`, without nulls, are passed behind the lists."""
        if pt.is_dictionary(self.items.type):  # raised on no rows, so that the binder decodes them
            raise pa.ArrowNotImplementedError(f"lists are not made of {self.items.type}")
        given = [*self.arguments, *map(_numbers, numbers)]
        known = item_codes(self.items) if coded else None
        buffers = call(_kernels.edit_lists, function, self.num_rows, given, len(self.items), known, ITEMS_MAX)
        return self._lists(*buffers)

    def sorted(self, *, down: bool, nulls_first: bool) -> pa.Array:
        """The lists of the first argument, sorted."""
        keys, valid = _order(self.items, down=down, nulls_last=not nulls_first, nulls_below=nulls_first is not down)
        lists, is_down = self.arguments[0], down and not _are_ranks(self.items)
        return self._lists(
            *call(_kernels.sort_lists, self.num_rows, lists, len(self.items), keys, valid, is_down, nulls_first)
        )

    def extremes(self, *, largest: bool) -> pa.Array:
        """The largest or smallest item of each list of the first argument; null if it has none."""
        keys, valid = _order(self.items, down=largest, nulls_last=True, nulls_below=False)
        is_down = largest and not _are_ranks(self.items)
        indices = call(
            _kernels.extremes_of_lists, self.num_rows, self.arguments[0], len(self.items), keys, valid, is_down
        )
        return self.at(np.frombuffer(indices, np.int64))

    def at(self, indices: Numbers) -> pa.Array:
        """The items at `indices`; null at -1."""
        if not len(indices) or indices.min() >= 0:
            return taken(self.items, _int64s(indices))
        return taken(self.items, _int64s(indices, booleans(indices >= 0).buffers()[1]))

    def _lists(self, offsets: Buffer, indices: Buffer, present: Buffer) -> pa.Array:
        is_valid = np.frombuffer(present, np.bool_)
        validity = None if is_valid.all() else booleans(is_valid).buffers()[1]
        items = self.at(np.frombuffer(indices, np.int64))
        kind = pa.list_(items.type)
        return pa.Array.from_buffers(kind, self.num_rows, [validity, pa.py_buffer(offsets)], children=[items])


def call(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Call a kernel; its ValueError becomes pa.ArrowInvalid."""
    try:
        return kernel(*arguments)
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from None


def item_codes(items: pa.Array) -> Numbers:
    """A code for each item. Equal items share a code, and so do nulls; floats are equal if all their bits are."""
    numbers = _as_numbers(items)
    if numbers is None:
        return codes(items)
    if not items.null_count:
        return values_of(numbers)
    filled = values_of(numbers.fill_null(0))
    if (filled == _NULL_CODE).any():
        return codes(items)
    return np.where(flags(items), filled, _NULL_CODE)


def ends_of(lists: pa.Array, start: int = 0) -> Numbers:
    """The offsets of the lists in `pc.list_flatten(lists)`, plus `start`, i64[n + 1]."""
    ends = np.empty(len(lists) + 1, np.int64)
    ends[0] = start
    lengths = pc.list_value_length(lists)
    np.cumsum(values_of(lengths.fill_null(0) if lengths.null_count else lengths), out=ends[1:])
    ends[1:] += start
    return ends


def ends_for(lengths: npt.NDArray[Any], name: str) -> Numbers:
    """The offsets of lists with these lengths, i64[n + 1]. Raises pa.ArrowInvalid for too many items."""
    check_count(lengths.sum(dtype=np.float64), name)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths.astype(np.int64))])


def check_count(num_items: float, name: str) -> None:
    """Raise pa.ArrowInvalid for more items than one call may create."""
    if num_items > ITEMS_MAX:
        raise pa.ArrowInvalid(f"{name}: lists of {num_items:.0f} items in all, at most {ITEMS_MAX}")


def _depth(t: pa.DataType) -> int:
    return 1 + _depth(t.value_type) if is_list(t) else 0


def _list_argument(lists: pa.Array, start: int) -> ListArgument:
    return ends_of(lists, start), flags(lists) if lists.null_count else None


def _int64s(values: Numbers, validity: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [validity, pa.py_buffer(values)])


def _numbers(value: Value | int) -> Numbers:
    if isinstance(value, int):
        return np.array([value], np.int64)
    return values_of(pa.repeat(value, 1) if isinstance(value, pa.Scalar) else value.cast(pa.int64()))


def _as_numbers(items: pa.Array) -> pa.Array | None:
    """Integers with the order of the items; None for types without such integers."""
    t = items.type
    if pt.is_uint64(t):
        return pc.bit_wise_xor(items, pa.scalar(1 << 63, t)).view(pa.int64())
    if pt.is_integer(t):
        return items.cast(pa.int64())
    if pt.is_boolean(t):
        return items.cast(pa.int8()).cast(pa.int64())
    if t in BITS:
        return total_order(items).cast(pa.int64())
    if pt.is_temporal(t) and not pt.is_interval(t):
        return items.view(_TICKS[t.bit_width]).cast(pa.int64())
    return None


def _are_ranks(items: pa.Array) -> bool:
    """Whether the keys are ranks, which have the requested order already."""
    return not (_is_plain_text(items.type) or _as_numbers(items[:0]) is not None)


def _is_plain_text(t: pa.DataType) -> bool:
    return bool(pt.is_string(t) or pt.is_large_string(t) or pt.is_binary(t) or pt.is_large_binary(t))


def _order(
    items: pa.Array, *, down: bool, nulls_last: bool, nulls_below: bool
) -> tuple[TextArgument | Numbers, npt.NDArray[np.bool_] | None]:
    """Keys of the items for `_kernels.sort_lists`, and which items are not null."""
    valid = flags(items) if items.null_count else None
    if _is_plain_text(items.type):
        return column_argument(items), valid
    numbers = _as_numbers(items)
    if numbers is not None:
        return values_of(numbers.fill_null(0) if items.null_count else numbers), valid
    return _ranks(items, down=down, nulls_last=nulls_last, nulls_below=nulls_below), valid


def _ranks(items: pa.Array, *, down: bool, nulls_last: bool, nulls_below: bool) -> Numbers:
    """The rank of each item among all items; `nulls_below` places nulls inside of items."""
    if pt.is_nested(items.type):
        keys = sort_keys(items, nulls_below=nulls_below)
        present = [index for index, key in enumerate(keys) if key is not None]
        present.sort(key=keys.__getitem__, reverse=down)
        absent = [index for index, key in enumerate(keys) if key is None]
        indices = np.array([*present, *absent] if nulls_last else [*absent, *present], dtype=np.int64)
    else:
        order = "descending" if down else "ascending"
        null_placement = "at_end" if nulls_last else "at_start"
        indices = pc.array_sort_indices(items, order=order, null_placement=null_placement).to_numpy()
    ranks = np.empty(len(items), dtype=np.int64)
    ranks[indices] = np.arange(len(items))
    return ranks
