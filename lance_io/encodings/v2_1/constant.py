"""Pages without values: every item null, or no items at all.

    layers [3] and no buffers   every row is null (an empty struct: every row valid)
    otherwise                   buffer 0 repetition levels, buffer 1 definition levels, raw u16; an absent one is empty

The levels are the page's index, so a cached page needs no data round. Version 2.2 adds repeated values and compressed
levels (`v2_2/constant.py`). Specification: structural encodings 2.1, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io._kernels import DamagedError
from lance_io.codecs.tree import Flat
from lance_io.encodings.api import NoIndex, PageDescription, PageIndex, RowSelection
from lance_io.encodings.v2_1.page import PageSource, damage_error
from lance_io.errors import FormatError
from lance_io.levels.assemble import arrow_buffer, nest
from lance_io.levels.path import NodeKind
from lance_io.records import dataclass
from lance_io.spans import Ranges, no_ranges

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io._kernels import Layer
    from lance_io.codecs.tree import Codec
    from lance_io.proto import encodings21_pb2 as pb
    from lance_io.spans import Fetched, Steps

Levels = "npt.NDArray[np.uint16]"


@dataclass(slots=True, eq=False)
class ConstantIndex:
    """Levels of the page (u16, None where absent) and, from 2.2, the repeated value as its raw buffers."""

    rep: npt.NDArray[np.uint16] | None
    def_: npt.NDArray[np.uint16] | None
    value: tuple[bytes, ...] = ()

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        levels = sum(part.nbytes for part in (self.rep, self.def_) if part is not None)
        return levels + sum(map(len, self.value)) + 128


class NullPage:
    """One all-null page. `message` is its `ConstantLayout` (called AllNullLayout in 2.1)."""

    def __init__(self, source: PageSource, message: pb.ConstantLayout) -> None:
        self.source = source
        self.num_rows = source.num_rows
        self.layers = self._layers(message)
        self.program = source.path.compile_layers(self.layers)
        self._check(message)

    def _layers(self, message: pb.ConstantLayout) -> tuple[int, ...]:
        """Layers of the page. Pages of empty structs name one, however deep these are nested in other structs."""
        layers, nodes = tuple(message.layers), self.source.path.nodes
        if layers == (3,) and not self.source.buffer_sizes and is_empty_struct(self.source.path.leaf_type):
            return (3,) + (1,) * (len(nodes) - 1)
        return layers

    def _check(self, message: pb.ConstantLayout) -> None:
        compressed = message.HasField("rep_compression") or message.HasField("def_compression")
        if compressed or message.HasField("inline_value") or message.num_rep_values or message.num_def_values:
            raise FormatError("an all-null page of file version 2.1 that uses fields of 2.2")
        if self.has_levels:
            self.source.expect_buffers(2)
        elif tuple(message.layers) != (3,):
            raise FormatError(f"an all-null page with layers {list(self.layers)} needs its levels")

    @property
    def has_levels(self) -> bool:
        """True when the page stores levels."""
        return bool(self.source.buffer_sizes)

    def _level_buffers(self) -> tuple[int, int]:
        return 0, 1

    # -- reading -----------------------------------------------------------------------------------------------------

    def index_ranges(self) -> Ranges | None:
        """All buffers: the page has only levels."""
        return self.source.ranges(range(len(self.source.buffer_sizes)), "index") if self.source.buffer_sizes else None

    def load_index(self, fetched: Fetched) -> ConstantIndex:
        """Parse the levels."""
        parts = [fetched.piece(i, size) for i, size in enumerate(self.source.buffer_sizes)]
        return self._load(parts)

    def _load(self, parts: list[memoryview]) -> ConstantIndex:
        rep, definition = (self._raw_levels(parts[i]) for i in self._level_buffers())
        return ConstantIndex(rep, definition)

    def _raw_levels(self, part: memoryview) -> npt.NDArray[np.uint16] | None:
        if len(part) % 2:
            raise FormatError(f"level vector of {len(part)} bytes; levels have two each")
        return np.frombuffer(bytes(part), dtype=np.uint16) if len(part) else None

    def read(self, index: PageIndex | None, selection: RowSelection) -> Steps[pa.Array]:
        """The selected rows; no data round, because the index holds everything."""
        index = None if isinstance(index, NoIndex) else index
        assert index is None or isinstance(index, ConstantIndex)
        if not selection.num_rows:
            yield no_ranges()  # never reached by a real read; makes this a generator, as the interface requires
        return self._rows(index, selection)

    def scan(self) -> Steps[pa.Array]:
        """All rows; one round if there are levels, else none."""
        index = None
        if self.source.buffer_sizes:
            fetched = yield self.source.ranges(range(len(self.source.buffer_sizes)), "data")
            index = self.load_index(fetched)
        return self._rows(index, RowSelection.span(0, self.num_rows))

    def _rows(self, index: ConstantIndex | None, rows: RowSelection) -> pa.Array:
        if index is None or (index.rep is None and index.def_ is None):
            simple: list[Layer] = [(rows.num_rows, None, 0, None)] * len(self.layers)
            return self._nest(index, simple, rows.num_rows, known=self.layers[0] == 1)
        try:
            num_items, layers, _ = _kernels.unravel_rows(
                index.rep, index.def_, self.program, rows.starts, rows.ends, self.num_rows
            )
        except DamagedError as error:
            raise damage_error(error) from None
        return self._nest(index, layers, num_items, known=True)

    def _nest(self, index: ConstantIndex | None, layers: list[Layer], num_items: int, *, known: bool) -> pa.Array:
        """Build the leaf and nest it. `known`: layer 0 has the validity of items; otherwise all are null."""
        leaf = self._leaf(index, layers[0], num_items, known=known)
        return nest(self.source.path, leaf, layers)

    def _leaf(self, index: ConstantIndex | None, layer: Layer, num_items: int, *, known: bool) -> pa.Array:
        dtype = self.source.path.leaf_type
        if is_empty_struct(dtype):
            bitmap = arrow_buffer(layer[1])
            return pa.Array.from_buffers(dtype, num_items, [bitmap], layer[2])
        # items of null vectors have no levels of their own: they may be marked valid, which stays hidden
        in_vectors = any(node.kind is NodeKind.FIXED_SIZE_LIST for node in self.source.path.nodes)
        if known and num_items != layer[2] and not pa.types.is_null(dtype) and not in_vectors:
            raise FormatError(f"an all-null page whose levels leave {num_items - layer[2]} items valid")
        return pa.nulls(num_items, dtype)

    def describe(self) -> PageDescription:
        """A readable description: layout and sizes."""
        return PageDescription("all-null", "none", self.num_rows, self.source.num_bytes, levels=self._levels_shown())

    def _levels_shown(self) -> dict[str, str]:
        sizes = self.source.buffer_sizes
        stored = zip(("repetition", "definition"), self._level_buffers(), self._level_codecs(), strict=True)
        return {name: str(codec) for name, index, codec in stored if index < len(sizes) and sizes[index]}

    def _level_codecs(self) -> tuple[Codec, Codec]:
        return Flat(16), Flat(16)


def is_empty_struct(dtype: pa.DataType) -> bool:
    """Whether a type is a struct without members, whose values take no bytes."""
    return bool(pa.types.is_struct(dtype) and dtype.num_fields == 0)
