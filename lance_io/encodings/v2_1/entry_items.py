"""Reads single list items of a full-zip page of fixed width with one level of lists.

Each entry of a row with items is a control word and a value, so item i of a row is at i * stride after the row's first
byte; a row without items is a single control word. Only the selected entries are fetched. Without their repetition
levels they are entries of a page without lists whose rows are the items. Specification: structural encodings 2.1,
section 5.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.codecs import tree
from lance_io.encodings.api import RowSelection
from lance_io.encodings.v2_1.fullzip import control_bytes_of
from lance_io.encodings.v2_1.page import damage_error
from lance_io.errors import FormatError
from lance_io.levels.item_lists import with_nulls
from lance_io.levels.path import DEFINITION_LEVELS
from lance_io.spans import Ranges, distinct, uint8s

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from lance_io.encodings.api import PageIndex
    from lance_io.encodings.item_reads import ItemSelection
    from lance_io.encodings.v2_1.fullzip import FullZipPage
    from lance_io.spans import IntArray, Steps


def read_entry_items(page: FullZipPage, index: PageIndex | None, wanted: ItemSelection) -> Steps[pa.Array]:
    """The selected items, null where a row has no such item: one round, or two if the index is read by entry."""
    rows = distinct(wanted.rows)
    low, high = yield from page.bounds(index, RowSelection.of_rows(rows))
    lengths = _num_items(page, high - low)
    at = rows.searchsorted(wanted.rows)
    exists = (wanted.items >= 0) & (wanted.items < lengths[at])
    items = wanted.items[exists]
    starts = low[at][exists] + items * page.stride_bytes + page.source.buffer_offsets[0]
    if not len(starts):
        return with_nulls(_decode(page, np.empty((0, page.stride_bytes), np.uint8), items), exists)
    fetched = yield Ranges(starts, starts + page.stride_bytes)
    width = np.array([page.stride_bytes], dtype=np.int64)
    entries = uint8s(_kernels.gather_ranges(fetched.buffer, fetched.offsets, width))
    return with_nulls(_decode(page, entries.reshape(-1, page.stride_bytes), items), exists)


def _num_items(page: FullZipPage, sizes: IntArray) -> IntArray:
    """Number of items of rows of these sizes in bytes."""
    lengths, rest = np.divmod(sizes, page.stride_bytes)
    is_empty = sizes == page.control_bytes
    if bool(((rest != 0) & ~is_empty).any() or (sizes == 0).any()):
        raise FormatError(
            f"a row of {sizes.tolist()[:10]} bytes; lists of values of {page.stride_bytes} bytes with their levels are "
            f"a multiple of that, or {page.control_bytes}"
        )
    num_items: IntArray = np.where(is_empty, 0, lengths)
    return num_items


def _decode(page: FullZipPage, entries: npt.NDArray[np.uint8], items: IntArray) -> pa.Array:
    """Decode entries with the kernel, as entries of a page without lists."""
    path = page.source.path.below_list()
    layers = page.layers[: len(path.nodes)]
    max_visible = sum([DEFINITION_LEVELS[layer] for layer in layers])
    definition = _definition(page, entries[:, : page.control_bytes], items, max_visible)
    bits = max_visible.bit_length()
    width = control_bytes_of(0, bits)
    words = definition.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :width]
    plain = np.ascontiguousarray(np.concatenate([words, entries[:, page.control_bytes :]], axis=1))
    head = struct.pack("<BBBI", 0, bits, 0, page.bits)
    program = head + path.compile_layers(layers) + tree.program_of(page.codec, path.value_bytes_max)
    zero, lengths, rows = (np.array([number], dtype=np.int64) for number in (0, plain.size, len(plain)))
    buffer: Any = plain.tobytes()
    try:
        leaf = _kernels.decode_fullzip(program, buffer, zero, lengths, rows)
    except DamagedError as error:
        raise damage_error(error) from None
    return page.nested(path, leaf)


def _definition(
    page: FullZipPage, words: npt.NDArray[np.uint8], items: IntArray, max_visible: int
) -> npt.NDArray[np.uint32]:
    """Definition levels. Raises FormatError unless each entry is an item, and only the first of a row begins it."""
    padded = np.zeros((len(words), 4), dtype=np.uint8)
    padded[:, : page.control_bytes] = words
    numbers = padded.view("<u4").ravel()
    definition: npt.NDArray[np.uint32] = numbers & np.uint32((1 << page.level_bits["definition"]) - 1)
    repetition = numbers >> np.uint32(page.level_bits["definition"])
    if (repetition != (items == 0)).any() or (definition > max_visible).any():
        raise FormatError("control words of a list's items: an entry is not an item, or belongs to another list")
    return definition
