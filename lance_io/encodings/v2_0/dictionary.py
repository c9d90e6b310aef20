"""Pages with a dictionary of their own (spec: encodings 2.0, 5.6).

    string field      u8 codes: 0 is null, k is item k - 1. The page becomes plain strings
    dictionary field  indices of the field's key type; a null row has the index of a null item

Reading any value needs all items, so the items are the page's index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.encodings.rounds import together
from lance_io.encodings.v2_0.buffers import Runs
from lance_io.errors import FormatError
from lance_io.levels.chunks import OFFSET_BYTES
from lance_io.levels.row_bytes import offsets_of
from lance_io.limits import MIB
from lance_io.records import dataclass
from lance_io.spans import Fetched

if TYPE_CHECKING:
    from lance_io.encodings.v2_0.array import ArrayEncoding
    from lance_io.spans import IntArray, Ranges, Steps

ITEMS_KEPT_BYTES_MAX: Final = 1 * MIB  # larger dictionaries are read with the rows


@dataclass(frozen=True, slots=True, eq=False)
class ItemsIndex:
    """All items of a page's dictionary."""

    items: pa.Array

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return int(self.items.nbytes) + 256


def _look_up_strings(codes: Any, items: pa.Array) -> pa.Array:
    """Replace codes by strings in one kernel call; code 0 is null."""
    width = OFFSET_BYTES[items.type.id]
    _, offsets, data = items.buffers()
    table = memoryview(offsets)[items.offset * width : (items.offset + len(items) + 1) * width] if len(items) else None
    (new_offsets, new_data, bitmap, null_count) = _kernels.look_up_codes(
        codes, bytes(width) if table is None else table, data or b"", width == 8
    )
    buffers = [None if each is None else pa.py_buffer(each) for each in (bitmap, new_offsets, new_data)]
    return pa.Array.from_buffers(items.type, len(codes), buffers, null_count)


def _index(items: pa.Array) -> ItemsIndex:
    """Copy items into their own memory: fetched buffers are larger and may be reused."""
    return ItemsIndex(pa.concat_arrays([items, items.slice(0, 0)]))


class DictionaryValues:
    """Codes, and the dictionary items that they refer to.

    codes  integers; surrounding nulls are accepted
    items  the dictionary
    """

    def __init__(self, dtype: pa.DataType, codes: ArrayEncoding, items: ArrayEncoding) -> None:
        self.dtype = dtype
        self.codes = codes
        self.items = items
        self.num_values = codes.num_values
        self.row_bits = codes.row_bits

    @property
    def item_width(self) -> int | None:
        """Offset width of the items in bytes, if rows become text."""
        return None if pa.types.is_dictionary(self.dtype) else OFFSET_BYTES.get(self.dtype.id)

    def longest_item(self, data: memoryview, start: int) -> int:
        """Bytes of the longest item; `data` starts at byte `start` of the file and contains the items."""
        scan = self.items.scan()
        wanted = next(scan)
        if int(wanted.starts.min()) < start or int(wanted.ends.max()) > start + len(data):
            raise FormatError("items of a dictionary that are not in its page")
        try:
            scan.send(Fetched(data, wanted.starts - start))
        except StopIteration as done:
            width = np.int64 if OFFSET_BYTES[done.value.type.id] == 8 else np.int32
            return int(np.diff(offsets_of(done.value, width)).max(initial=0))
        raise AssertionError("all items are read in one round")

    def index_ranges(self) -> Ranges | None:
        """Ranges of the items, unless they are too large to cache."""
        ranges = next(self.items.scan(), None)
        if ranges is None or ranges.num_bytes > ITEMS_KEPT_BYTES_MAX:
            return None
        ranges.purpose = "index"
        return ranges

    def load_index(self, fetched: Fetched) -> ItemsIndex:
        """The items."""
        scan = self.items.scan()
        next(scan)
        try:
            scan.send(fetched)
        except StopIteration as done:
            return _index(done.value)
        raise AssertionError("all items are read in one round")

    def read(self, runs: Runs, index: Any = None) -> Steps[pa.Array]:
        """Some values, in the rounds of the codes; without an index, the items are read in parallel."""
        if isinstance(index, ItemsIndex):
            codes = yield from self.codes.read(runs)
            return self._decode(codes, index.items)
        codes, items = yield from together([self.codes.read(runs), self.items.scan()])
        return self._decode(codes, items)

    def read_indexed(self, runs: Runs, was_read: bool) -> Steps[tuple[pa.Array, ItemsIndex | None]]:
        """Some values and all items; no index if the items are too large to cache."""
        codes, items = yield from together([self.codes.read(runs), self.items.scan()])
        return self._decode(codes, items), _index(items) if items.nbytes <= ITEMS_KEPT_BYTES_MAX else None

    def scan(self) -> Steps[pa.Array]:
        """All values: one round."""
        return self.read(Runs.all(self.num_values))

    def _decode(self, codes: pa.Array, items: pa.Array) -> pa.Array:
        is_null = codes.is_null().to_numpy(zero_copy_only=False) if codes.null_count else None
        numbers = codes.fill_null(0).to_numpy() if codes.null_count else codes.to_numpy()
        if pa.types.is_dictionary(self.dtype):
            return self._look_up(numbers, is_null, items)
        return self._strings(numbers, is_null, items)

    def _strings(self, numbers: Any, is_null: Any, items: pa.Array) -> pa.Array:
        if is_null is None and not items.null_count and numbers.dtype == np.uint8 and items.type.id in OFFSET_BYTES:
            return _look_up_strings(numbers, items)
        if len(numbers) and int(numbers.max()) > len(items):
            raise FormatError(f"code {int(numbers.max())} in a page whose dictionary has {len(items)} items")
        nulls = numbers == 0 if is_null is None else (numbers == 0) | is_null
        positions = np.where(nulls, 0, numbers.astype(np.int64) - 1)
        return items.take(pa.array(positions, mask=nulls) if nulls.any() else pa.array(positions))

    def _look_up(self, numbers: Any, is_null: Any, items: pa.Array) -> pa.Array:
        """A dictionary array over the valid items: indices of null items become null rows."""
        if len(numbers):
            low, high = int(numbers.min()), int(numbers.max())
            if low < 0 or high >= len(items):
                raise FormatError(f"index {low if low < 0 else high} in a page whose dictionary has {len(items)} items")
        if items.null_count and len(numbers):
            is_item = items.is_valid().to_numpy(zero_copy_only=False)
            positions: IntArray = np.cumsum(is_item) - 1
            nulls = ~is_item[numbers]
            is_null = nulls if is_null is None else nulls | is_null
            numbers = np.where(is_null, 0, positions[numbers])
        if items.null_count:
            items = items.drop_null()
        key = self.dtype.index_type
        typed = numbers.astype(key.to_pandas_dtype(), copy=False)
        indices = pa.array(typed, key) if is_null is None or not is_null.any() else pa.array(typed, key, mask=is_null)
        return pa.DictionaryArray.from_arrays(indices, items, ordered=self.dtype.ordered)

    def __str__(self) -> str:
        return f"dictionary({self.codes}, {self.items})"
