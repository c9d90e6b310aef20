"""Writes pages of one repeated value, file version 2.2: the reverse of `constant.py`.

A value of fixed width and at most 32 bytes is part of the message; others are a scalar buffer:

    u32 number of Arrow buffers, u32 length of each, their bytes
    fixed width     [value]
    variable width  [offsets 0 and length, bytes]

Items may also be null, but levels are not compressed here (pylance would not read them): with many levels, a mini-block
page of the same values is smaller. The value is not compressed either: a very long value that compresses well and
repeats rarely is smaller in a full-zip page. Specification: structural encodings 2.1, section 10.3.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_io import _kernels
from lance_io.codecs.encode import RUN_LENGTH_BITS, SCHEMES
from lance_io.codecs.tree import VariableShape, shape_bits
from lance_io.encodings.leafvalues import leaf_values
from lance_io.encodings.v2_1.write_constant import constant_layout, constant_page, raw_levels
from lance_io.encodings.v2_1.write_fullzip import COMPRESSED_VALUE_BYTES_MIN
from lance_io.encodings.v2_1.write_levels import encode_level_block
from lance_io.encodings.v2_1.write_miniblock import max_visible
from lance_io.encodings.v2_2.constant import INLINE_VALUE_BYTES_MAX
from lance_io.encodings.written import PageBuffer, Role
from lance_io.levels.chunks import OFFSET_BYTES

if TYPE_CHECKING:
    from lance_io.encodings.leafvalues import LeafValues
    from lance_io.encodings.options import ColumnOptions
    from lance_io.encodings.v2_1.page import VersionRules
    from lance_io.encodings.written import EncodedPage
    from lance_io.levels.leafpage import LeafPage

# Share of the plain levels for chunk overhead (headers, metadata, a dictionary) and for the benefit of a simple page.
_CHUNKS_SHARE: Final = 0.1
_PROBE_BYTES: Final = 64  # compared of the first and last value, which rules out most pages
_SAMPLE_BYTES: Final = 64 << 10  # of a very long value, compressed to estimate its size

Flags: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.uint8]


def encode_constant_page(page: LeafPage, options: ColumnOptions, rules: VersionRules) -> EncodedPage | None:
    """Encode a page whose valid items all have the same value; None for other pages, or if others are smaller.

    Also None for types that not every reader supports: fixed-size lists, packed structs, dictionaries. Requires at
    least one valid item (`has_no_values` is False).
    """
    if not rules.constant_values or pa.types.is_nested(page.values.type) or pa.types.is_dictionary(page.values.type):
        return None
    value = _only_value(page)
    if value is None or _is_smaller_in_chunks(page, value, rules) or _is_smaller_zipped(page, value, options):
        return None
    layout = constant_layout(page.layers)
    buffers = []
    if len(value) == 1 and len(value[0]) <= INLINE_VALUE_BYTES_MAX:
        layout.constant_layout.inline_value = value[0]
    else:
        lengths = struct.pack(f"<{1 + len(value)}I", len(value), *map(len, value))
        buffers.append(PageBuffer(Role.DATA, [lengths, *value]))
    if page.repetition is not None or page.definition is not None:
        buffers += raw_levels(page)
    return constant_page(page, layout, buffers)


def _is_smaller_in_chunks(page: LeafPage, value: tuple[bytes, ...], rules: VersionRules) -> bool:
    """Whether compressed levels and packed values are smaller than uncompressed levels.

    Nulls take the same value, so a machine word makes runs. Others are bits, or indices of a dictionary of two values.
    """
    levels = [each for each in (page.repetition, page.definition) if each is not None]
    if not levels:
        return False
    plain_bytes = sum(each.nbytes for each in levels)
    level_bytes = sum(memoryview(encode_level_block(each, rules).data).nbytes for each in levels)
    if value == (b"",):
        return False  # chunks hold values of a byte at least
    num_values, is_bits = len(page.values), pa.types.is_boolean(page.values.type)
    makes_runs = len(value) == 1 and len(value[0]) <= 8 and not is_bits
    value_bytes = ((num_values >> RUN_LENGTH_BITS) + 1) * (len(value[0]) + 1) if makes_runs else num_values // 8
    return level_bytes + value_bytes + _CHUNKS_SHARE * plain_bytes < plain_bytes


def _is_smaller_zipped(page: LeafPage, value: tuple[bytes, ...], options: ColumnOptions) -> bool:
    """Whether all values, each compressed by itself, are smaller than one uncompressed value."""
    if len(value) == 1 or options.compression == "none" or len(value[1]) <= COMPRESSED_VALUE_BYTES_MIN:
        return False
    middle = max(0, len(value[1]) - _SAMPLE_BYTES) // 2
    sample = memoryview(value[1])[middle : middle + _SAMPLE_BYTES]
    compressed = _kernels.compress_block(sample, SCHEMES["zstd"], options.compression_level)
    return memoryview(compressed).nbytes * len(page.values) < len(sample)


def _only_value(page: LeafPage) -> tuple[bytes, ...] | None:
    """The Arrow buffers of the value that all valid items share; None if they differ."""
    array = page.values
    if page.definition is None and _ends_differ(array):
        return None
    is_valid = _valid_items(page)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    values = leaf_values(array)
    if isinstance(values.shape, VariableShape):
        return _only_string(values, is_valid, values.shape.offset_bits // 8)
    width = shape_bits(values.shape) // 8
    if not width:
        return (b"",)
    rows = np.frombuffer(values.data, dtype=np.uint8).reshape(-1, width)
    return _only_row(rows, is_valid)


def _ends_differ(array: pa.Array) -> bool:
    """Whether the first and the last value differ in their first bytes, as they do in most pages."""
    last = array.offset + len(array) - 1
    if last <= array.offset:
        return False
    _, *buffers = array.buffers()
    if any(buffer is None for buffer in buffers):
        return False
    values, *data = [memoryview(buffer) for buffer in buffers]
    width = OFFSET_BYTES.get(array.type.id)
    if width is None:
        width, rest = divmod(array.type.bit_width, 8)
        return not rest and values[array.offset * width :][:width] != values[last * width :][:width]
    bounds = struct.Struct("<2i" if width == 4 else "<2q")
    start, end = bounds.unpack_from(values, array.offset * width)
    last_start, last_end = bounds.unpack_from(values, last * width)
    probe_bytes = min(end - start, _PROBE_BYTES)
    are_alike = data[0][start:][:probe_bytes] == data[0][last_start:][:probe_bytes]
    return end - start != last_end - last_start or not are_alike


def _valid_items(page: LeafPage) -> Flags | None:
    """Mask of the valid items among the visible ones; None if all are valid."""
    if page.definition is None:
        return None
    limit = max_visible(page.layers)
    visible = page.definition
    if limit < visible.max():
        visible = visible[visible <= limit]
    return visible == 0 if visible.any() else None


def _only_row(rows: Rows, is_valid: Flags | None) -> tuple[bytes, ...] | None:
    """The row that equals all valid rows, or None. Probes a few rows first, which rules out most pages cheaply."""
    first = 0 if is_valid is None else int(is_valid.argmax())
    value = rows[first].tobytes()
    if len(rows) == 1:
        return (value,)
    for probe in (len(rows) - 1, len(rows) // 2, len(rows) // 3):
        if (is_valid is None or is_valid[probe]) and rows[probe].tobytes() != value:
            return None
    width = rows.shape[1]
    if width in (1, 2, 4, 8):  # compared as machine words
        words = rows.view(f"<u{width}").reshape(-1)
        same = words == words[first]
    else:
        same = (rows == rows[first]).all(axis=1)
    if is_valid is not None:
        same |= ~is_valid
    return (value,) if same.all() else None


def _only_string(values: LeafValues, is_valid: Flags | None, width: int) -> tuple[bytes, ...] | None:
    """As `_only_value` for variable width. Nulls are empty, so that the valid values are contiguous."""
    offsets = np.frombuffer(values.sources[0][0], dtype=f"<i{width}")
    start, end = int(offsets[0]), int(offsets[-1])
    count = values.num_values if is_valid is None else int(is_valid.sum())
    length, rest = divmod(end - start, count)
    if rest:
        return None
    if values.num_values > 1:
        lengths = np.diff(offsets)
        if not ((lengths == length) if is_valid is None else (lengths == length * is_valid)).all():
            return None
    table = struct.pack("<2I" if width == 4 else "<2Q", 0, length)
    if not length:
        return table, b""
    data = np.frombuffer(values.sources[1][0], dtype=np.uint8)[start:end]
    value = _only_row(data.reshape(-1, length), None)
    return None if value is None else (table, *value)
