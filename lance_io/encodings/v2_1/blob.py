"""Blob pages: the page holds descriptors, the blobs are elsewhere in the file.

The inner layout stores one descriptor per row, a packed struct of position and size (two u64). It encodes nulls, too:
size 0 with position 0 is an empty value, size 0 with position `def << 16 | rep` a null of that definition level.
Reads return descriptors, `struct<position: uint64, size: uint64>`; the payloads are read on request, by range.
Specification: structural encodings 2.1, section 7.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.encodings.api import PageDescription, PageIndex, PageLayout, RowSelection
from lance_io.encodings.v2_1.page import PageSource, damage_error, has_repetition
from lance_io.errors import FormatError, UnsupportedError
from lance_io.levels.assemble import nest

if TYPE_CHECKING:
    from lance_io.spans import Fetched, Ranges, Steps

DESCRIPTOR_TYPE = pa.struct([pa.field("position", pa.uint64()), pa.field("size", pa.uint64())])


class BlobPage:
    """One blob page, which wraps the page of its descriptors."""

    def __init__(self, source: PageSource, layers: tuple[int, ...], inner: PageLayout) -> None:
        if has_repetition(layers):
            raise UnsupportedError("blobs inside lists: their pages do not record which rows they belong to")
        self.source = source
        self.num_rows = source.num_rows
        self.inner = inner
        self.layers = layers
        self.program = source.path.compile_layers(layers)

    def index_ranges(self) -> Ranges | None:
        """The index ranges of the descriptors."""
        return self.inner.index_ranges()

    def load_index(self, fetched: Fetched) -> PageIndex:
        """The index of the descriptors."""
        return self.inner.load_index(fetched)

    def read(self, index: PageIndex | None, selection: RowSelection) -> Steps[pa.Array]:
        """Descriptors of the selected rows."""
        descriptors = yield from self.inner.read(index, selection)
        return self._nest(descriptors)

    def scan(self) -> Steps[pa.Array]:
        """Descriptors of all rows."""
        descriptors = yield from self.inner.scan()
        return self._nest(descriptors)

    def _nest(self, descriptors: pa.Array) -> pa.Array:
        count = len(descriptors)
        position = descriptors.field(0).to_numpy(zero_copy_only=False)
        size = descriptors.field(1).to_numpy(zero_copy_only=False)
        hidden = np.where((size == 0) & (position != 0), position, 0)
        if (hidden >> np.uint64(32)).any() or (hidden & np.uint64(0xFFFF)).any():
            raise FormatError("a blob descriptor of size 0 whose position is not a definition level")
        levels = (hidden >> np.uint64(16)).astype(np.uint16)
        whole = RowSelection.span(0, count)
        try:
            _, layers, _ = _kernels.unravel_rows(
                None, levels if levels.any() else None, self.program, whole.starts, whole.ends, count
            )
        except DamagedError as error:
            raise damage_error(error) from None
        _, validity, nulls, _ = layers[0]
        buffers = [None if validity is None else pa.py_buffer(validity)]
        children = [pa.array(np.where(levels > 0, np.uint64(0), position)), descriptors.field(1)]
        leaf = pa.Array.from_buffers(DESCRIPTOR_TYPE, count, buffers, nulls, children=children)
        return nest(self.source.path, leaf, layers)

    def describe(self) -> PageDescription:
        """The description of the descriptors' page, with the layout `blob`."""
        inner = self.inner.describe()
        return replace(inner, layout="blob", codec=f"descriptors({inner.codec})", num_rows=self.num_rows)
