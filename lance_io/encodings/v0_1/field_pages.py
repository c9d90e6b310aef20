"""The pages of one field of a file of version 0.1, one per batch, and runs of their values.

plain    fixed width: values back to back                                 (spec: legacy 0.1, section 5.1)
binary   bytes of all values, then i64[rows + 1] positions in the file    (5.2; the page begins at the positions)
blob     as binary, but only the positions are read: they locate the bytes
list     i32 or i64[rows + 1] offsets into the item page of the batch     (5.5)
none     of type null: no bytes                                           (5.3)
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa

from lance_io.encodings.v2_1.blob import DESCRIPTOR_TYPE
from lance_io.errors import FormatError, UnsupportedError
from lance_io.levels.chunks import OFFSET_BYTES
from lance_io.levels.path import NodeKind
from lance_io.limits import PAGE_ROWS_MAX
from lance_io.records import dataclass
from lance_io.spans import Ranges

if TYPE_CHECKING:
    from lance_io.format.v0_1.batch_table import PageTable
    from lance_io.levels.path import PathNode
    from lance_io.spans import IntArray

PageKind = Literal["plain", "binary", "blob", "list", "none"]
ONE_MORE: Final = ("binary", "blob", "list")  # kinds of pages with n + 1 numbers for n values
POSITION_BYTES: Final = 8  # of the offsets of strings


@dataclass(frozen=True, eq=False)
class Runs:
    """Values of a field that are contiguous in their batch.

    batches       i64[n], ascending
    starts, ends  i64[n], positions in the page of that batch, `starts < ends`
    """

    batches: IntArray
    starts: IntArray
    ends: IntArray

    @cached_property
    def counts(self) -> IntArray:
        """i64[n], number of values of each run."""
        counts: IntArray = self.ends - self.starts
        return counts

    @cached_property
    def num_values(self) -> int:
        """Number of values of all runs."""
        return int(self.counts.sum())

    def where(self, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Runs:
        """The runs that a mask selects."""
        return Runs(self.batches[mask], self.starts[mask], self.ends[mask])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and all(
            np.array_equal(mine, its)
            for mine, its in ((self.batches, other.batches), (self.starts, other.starts), (self.ends, other.ends))
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class FieldPages:
    """The pages of one field.

    node       the field, as the table declares it
    positions  i64[batches], file offsets
    counts     i64[batches], values of each page; of lists, the number of lists
    kind       see the module docstring
    bits       per value, or per offset
    """

    node: PathNode
    positions: IntArray
    counts: IntArray
    kind: PageKind
    bits: int

    @classmethod
    def of(cls, node: PathNode, table: PageTable, file_bytes: int) -> FieldPages:
        """Locate the pages of a field, and check that the file contains their bytes."""
        kind, bits = page_kind(node)
        row = node.field.id - table.first_id
        positions, lengths = table.positions[row], table.lengths[row]
        counts = np.maximum(lengths - 1, 0) if kind == "list" else lengths  # a batch without lists may have no offset
        is_bad = (lengths < 0) | (lengths > PAGE_ROWS_MAX)
        if kind != "none":
            stored = lengths + 1 if kind in ("binary", "blob") else lengths
            # floats, because integers could overflow
            is_bad |= (positions < 0) | (positions + stored * (bits / 8) > file_bytes)
        if is_bad.any():
            batch = int(np.flatnonzero(is_bad)[0])
            text = f"a page of {int(lengths[batch])} values at {int(positions[batch])} in a file of {file_bytes} bytes"
            raise FormatError(text, where=f"batch {batch}")
        return cls(node, positions, counts, kind, bits)

    @cached_property
    def ends(self) -> IntArray:
        """i64[batches], file offsets of the ends of the pages."""
        counts = self.counts + 1 if self.kind in ONE_MORE else self.counts
        ends: IntArray = self.positions + np.where(self.counts > 0, (counts * self.bits + 7) // 8, 0)
        return ends

    @cached_property
    def ends_of_batch_before(self) -> IntArray:
        """i64[batches], end of the previous batch's page; 0 for the first batch."""
        before: IntArray = np.append(0, self.ends)[:-1]
        return before

    def ranges(self, runs: Runs) -> Ranges:
        """Ranges of the bytes of some values, or of their offsets, which are kept while bytes of strings are read."""
        base = self.positions[runs.batches]
        ends = runs.ends + 1 if self.kind in ONE_MORE else runs.ends
        is_kept = self.kind == "binary"
        if not self.bits % 8:
            width = self.bits // 8
            return Ranges(base + runs.starts * width, base + ends * width, keep=is_kept)
        return Ranges(base + runs.starts * self.bits // 8, base + (ends * self.bits + 7) // 8, keep=is_kept)


def page_kind(node: PathNode) -> tuple[PageKind, int]:
    """The layout of a field's pages, and the bits of a value. Raises `UnsupportedError` for types without pages."""
    field, dtype = node.field, node.arrow_type
    if node.kind is NodeKind.LIST:
        return "list", 64 if pa.types.is_large_list(dtype) else 32
    if node.kind is NodeKind.LEAF and field.holds_blobs and dtype == DESCRIPTOR_TYPE:
        return "blob", 8 * POSITION_BYTES
    if node.kind is not NodeKind.LEAF or field.holds_blobs:
        raise UnsupportedError(f"field {field.name!r}: files of version 0.1 have no {field.logical_type}")
    if dtype.id in OFFSET_BYTES:
        return "binary", 8 * POSITION_BYTES
    if pa.types.is_null(dtype):
        return "none", 0
    return "plain", plain_bits(dtype)


def plain_bits(dtype: pa.DataType) -> int:
    """Bits of a value of fixed width. Raises `UnsupportedError` for other types."""
    if pa.types.is_fixed_size_list(dtype):
        return int(dtype.list_size) * plain_bits(dtype.value_type)
    if pa.types.is_dictionary(dtype):
        dtype = dtype.index_type
    try:
        return int(dtype.bit_width)
    except ValueError:
        raise UnsupportedError(f"files of version 0.1 have no {dtype}") from None
