"""Stable row ids of one fragment as a value, converted from and to its metadata (spec: table, section 6.1)."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_io.errors import FormatError, UnsupportedError, UsageError
from lance_io.reads.metadata.fragment_metadata import RowIdMeta
from lance_io.table.manifest.row_ids import count_ids_of, decode_row_ids, encode_row_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHOWN: Final = 10
_ROWS_MAX: Final = 1 << 32  # of a fragment: row addresses have 32 bits for its rows


class RowIdSequence:
    """Distinct row ids in the order of the rows of a fragment. Immutable.

    Args:
        row_ids: Integers, or an Arrow array of integers.

    Raises:
        TypeError: `row_ids` is anything else.
        OverflowError: An integer is not an unsigned 64-bit number.
        ValueError: An id is null, negative in an array, or occurs twice.
    """

    __slots__ = ("_ids",)
    __hash__ = None  # type: ignore[assignment]  # as pylance's

    def __init__(self, row_ids: Iterable[int] | pa.Array | pa.ChunkedArray) -> None:
        ids = _ids_of(row_ids)
        distinct, counts = np.unique(ids, return_counts=True)
        if len(distinct) < len(ids):
            twice = int(distinct[counts > 1][0])
            raise UsageError(
                f"Row ids must be unique, but row id {twice} appears more than once in the sequence of {len(ids)} "
                "row ids"
            )
        self._ids = ids

    @staticmethod
    def from_inline_metadata(metadata: RowIdMeta) -> RowIdSequence:
        """Decode the sequence in a fragment's metadata.

        Args:
            metadata: The fragment's `row_id_meta`.

        Raises:
            TypeError: `metadata` is no `RowIdMeta`.
            UnsupportedError: The ids are a column of a data file.
            FormatError: The bytes are no row id sequence.
        """
        if not isinstance(metadata, RowIdMeta):
            raise TypeError(f"expected RowIdMeta, found {type(metadata).__name__}")
        if metadata.data is None:
            raise UnsupportedError("Row ids stored outside the manifest cannot be read into a RowIdSequence")
        num_rows = count_ids_of(metadata.data)
        if num_rows > _ROWS_MAX:
            raise FormatError(f"row id sequence: {num_rows} ids, and a fragment has at most {_ROWS_MAX} rows")
        sequence = RowIdSequence([])
        sequence._ids = decode_row_ids(metadata.data, num_rows)
        return sequence

    def to_inline_metadata(self) -> RowIdMeta:
        """Encode the sequence for a fragment's metadata."""
        return RowIdMeta(encode_row_ids(self._ids))

    def to_pyarrow(self) -> pa.UInt64Array:
        """The ids as an array."""
        return pa.array(self._ids, pa.uint64())

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowIdSequence) and bool(np.array_equal(self._ids, other._ids))

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self._ids[:_SHOWN].tolist()))
        more = f", ...], len={len(self)})" if len(self) > _SHOWN else "])"
        return f"RowIdSequence([{shown}{more}"

    def __reduce__(self) -> tuple[Any, ...]:
        return RowIdSequence, (self.to_pyarrow(),)


def _ids_of(row_ids: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    if isinstance(row_ids, pa.Array | pa.ChunkedArray):
        if not pa.types.is_integer(row_ids.type):
            raise TypeError(f"Row ids must be an array of integers, but got an array of type {row_ids.type}")
        if row_ids.null_count:
            raise UsageError(f"Row ids must not be null, but the array has {row_ids.null_count} null values")
        try:
            values: Any = pc.cast(row_ids, pa.uint64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise UsageError(f"Row ids must fit in a uint64: {error}") from error
        return np.array(values, np.uint64)
    try:
        given = iter(row_ids)
    except TypeError:
        raise TypeError(
            f"Row ids must be an iterable of integers or an Arrow array, but got {type(row_ids).__name__}"
        ) from None
    return np.fromiter((_u64(row_id) for row_id in given), np.uint64)


def _u64(value: Any) -> int:
    number = index(value)
    if not 0 <= number < 1 << 64:
        raise OverflowError("can't convert negative int to unsigned" if number < 0 else "int too big to convert")
    return number
