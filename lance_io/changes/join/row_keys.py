"""Keys of rows as numbers: numbers are equal if and only if the keys are.

A single column of at most 8 bytes per value is used directly. Other keys are hashed to 16 bytes with a seed of the
process; see `KeyTable` in `_kernels.pyi`. Values are compared by their bits, as in pylance: a NaN equals itself, -0.0
differs from 0.0. Dictionaries, views and extension types are compared by the values that they represent.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lance_io._kernels import KeyTable, SliceFilter, hash_fixed, hash_variable
from lance_io.levels.arrays import numbers
from lance_io.runtime import cpu_count
from lance_io.spans import int64s

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

SEED: Final = (secrets.randbits(64), secrets.randbits(64))
TABLE_BYTES: Final = 28  # upper bound of a `KeyTable`'s bytes per row, without the key itself


def key_width(types: Sequence[pa.DataType]) -> int:
    """Bytes of a key of columns of these types: 8 or 16."""
    return 8 if len(types) == 1 and _is_word(_plain(types[0])) else 16


def row_keys(arrays: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """Keys of rows, u64[n] or u64[n, 2]; keys of rows with a null are undefined."""
    if key_width([array.type for array in arrays]) == 8:
        return _words(_decoded(arrays[0]))
    keys: Any = None
    for array in arrays:
        hashes = _hashes(array)
        keys = hashes if keys is None else hash_fixed(SEED, keys, hashes, 16, len(array))
    return np.frombuffer(keys, np.uint64).reshape(-1, 2)


def has_key(arrays: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
    """Mask of the rows whose key contains no null; None if all have such a key."""
    masks = [_mask(array.is_valid()) for array in arrays if array.null_count]
    return np.logical_and.reduce(masks) if masks else None


def key_table(keys: npt.NDArray[np.uint64]) -> KeyTable:
    """A table of rows by their keys."""
    return KeyTable(SEED, np.ascontiguousarray(keys), 8 * (keys.ndim if keys.ndim == 1 else keys.shape[1]))


def key_filter(arrays: Sequence[pa.Array]) -> SliceFilter | None:
    """A filter that rejects most keys not in `arrays`, faster than hashing them. None for types other than strings and
    binary values.
    """
    if not arrays or not _is_sliced(_plain(arrays[0].type)):
        return None
    decoded = [_decoded(array) for array in arrays]
    whole = decoded[0] if len(decoded) == 1 else pa.concat_arrays(decoded)
    return SliceFilter(SEED, *_slices(whole))


def passing_rows(known: SliceFilter, array: pa.Array) -> pa.Array:
    """Positions of the keys that may be in a filter, including nulls. The array has one of the filter's types."""
    return numbers(int64s(known.passing(*_slices(_decoded(array)), cpu_count())))


def partitions(keys: npt.NDArray[np.uint64], num_partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each key, below `num_partitions`; evenly distributed."""
    words = keys if keys.ndim == 1 else keys[:, 1]
    mixed = (words ^ np.uint64(SEED[0])) * np.uint64(SEED[1] | 1)
    return ((mixed >> np.uint64(32)) % np.uint64(num_partitions)).astype(np.int64)


# -- values ----------------------------------------------------------------------------------------------------------


def _plain(dtype: pa.DataType) -> pa.DataType:
    """The type of the values that `_decoded` returns."""
    if isinstance(dtype, pa.BaseExtensionType):
        return _plain(dtype.storage_type)
    return _plain(dtype.value_type) if pt.is_dictionary(dtype) else dtype


def _is_word(dtype: pa.DataType) -> bool:
    """Whether a value is a number of at most 8 bytes."""
    is_number = pt.is_integer(dtype) or pt.is_floating(dtype) or pt.is_temporal(dtype) or pt.is_boolean(dtype)
    return bool(is_number and not pt.is_interval(dtype))


def _decoded(array: pa.Array) -> pa.Array:
    """The values that dictionaries, extension types, views and bits represent."""
    if isinstance(array.type, pa.BaseExtensionType):
        return _decoded(array.storage)
    if pt.is_dictionary(array.type):
        return _decoded(array.dictionary_decode())
    if pt.is_boolean(array.type):
        return array.cast(pa.uint8())
    if pt.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pt.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


def _words(array: pa.Array) -> npt.NDArray[np.uint64]:
    width = array.type.bit_width // 8
    if not len(array):
        return np.empty(0, np.uint64)
    values = np.frombuffer(array.buffers()[1], f"<u{width}", len(array), array.offset * width)
    return values.astype(np.uint64, copy=False)


def _hashes(array: pa.Array) -> Any:
    """16 bytes for each value, nulls included: the bytes of a null are zero."""
    array = _decoded(array)
    if not len(array):
        return b""
    buffer = _hash_values(array)
    if not array.null_count:
        return buffer
    hashes = np.frombuffer(buffer, np.uint64).reshape(-1, 2).copy()
    hashes[_mask(array.is_null())] = 0
    return hashes


def _hash_values(array: pa.Array) -> Any:
    dtype, num_rows = array.type, len(array)
    if pt.is_null(dtype):
        return np.zeros((num_rows, 2), np.uint64)
    if pt.is_struct(dtype):
        hashes: Any = np.zeros((num_rows, 2), np.uint64)
        for number in range(dtype.num_fields):
            hashes = hash_fixed(SEED, hashes, _hashes(array.field(number)), 16, num_rows)
        return hashes
    if pt.is_fixed_size_list(dtype):
        items = array.values.slice(array.offset * dtype.list_size, num_rows * dtype.list_size)
        return hash_fixed(SEED, None, _hashes(items), 16 * dtype.list_size, num_rows)
    if pt.is_list(dtype) or pt.is_large_list(dtype) or pt.is_map(dtype):
        return _hash_lists(array)
    if _is_sliced(dtype):
        return hash_variable(SEED, None, *_slices(array))
    width = dtype.bit_width // 8
    data = memoryview(array.buffers()[1])[array.offset * width :]
    return hash_fixed(SEED, None, data, width, num_rows)


def _is_sliced(dtype: pa.DataType) -> bool:
    """Whether values are slices of one buffer, by offsets."""
    return bool(_is_wide(dtype) or pt.is_string(dtype) or pt.is_binary(dtype))


def _is_wide(dtype: pa.DataType) -> bool:
    return bool(pt.is_large_string(dtype) or pt.is_large_binary(dtype))


def _slices(array: pa.Array) -> tuple[Any, Any, bool, int]:
    """Offsets, bytes, whether offsets have 64 bits, and number of slices."""
    wide = _is_wide(array.type)
    if not len(array):
        return bytes(8 if wide else 4), b"", wide, 0
    _, offsets, data = array.buffers()
    return memoryview(offsets)[array.offset * (8 if wide else 4) :], data or b"", wide, len(array)


def _hash_lists(array: pa.Array) -> Any:
    wide = pt.is_large_list(array.type)
    raw = np.frombuffer(
        array.buffers()[1], np.int64 if wide else np.int32, len(array) + 1, array.offset * (8 if wide else 4)
    )
    offsets = raw.astype(np.int64)
    items = array.values if not pt.is_map(array.type) else _entries(array)
    hashes = _hashes(items.slice(offsets[0], offsets[-1] - offsets[0]))
    return hash_variable(SEED, None, (offsets - offsets[0]) * 16, hashes, True, len(array))


def _entries(array: pa.MapArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])


def _mask(bits: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = np.frombuffer(bits.cast(pa.uint8()).buffers()[1], np.bool_, len(bits))
    return mask


def rows_in(buffer: Any) -> npt.NDArray[np.int64]:
    """A result of `KeyTable` as an array."""
    return int64s(buffer)
