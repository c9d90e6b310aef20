"""Leaves of small files of version 0.1, decoded completely from all bytes of a file (spec: legacy 0.1, section 5).

A kernel decodes all such leaves of many files at once. On anything that the kernel refuses, `BatchedLeaf` is the
fallback, which reads it or raises the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_io import _kernels
from lance_io._kernels import KnownBatches
from lance_io.encodings.v0_1.batched_leaf import STRING_BYTES_RATIO_MAX, fixed_shape
from lance_io.encodings.v0_1.field_pages import page_kind
from lance_io.encodings.values import build_values
from lance_io.errors import UnsupportedError
from lance_io.levels.assemble import nest
from lance_io.levels.chunks import OFFSET_BYTES
from lance_io.levels.path import NodeKind
from lance_io.limits import METADATA_BYTES_MAX, PAGE_ROWS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io._kernels import Leaf, OwnedBuffer
    from lance_io.codecs.tree import Shape
    from lance_io.levels.path import LeafPath

    FileBytes = tuple[Any, int, int, Any, bytes]
_PLAIN, _STRINGS, _WIDE_STRINGS = range(3)


class WholeLeaf:
    """A leaf of fixed width or of strings, nested in structs only.

    path  the leaf, as the table declares it
    """

    __slots__ = ("_bits", "_kind", "_nullable", "_num_bitmaps", "_path", "_shape")

    def __init__(self, path: LeafPath, kind: int, bits: int) -> None:
        self._path = path
        self._kind = kind
        self._bits = bits
        self._nullable = path.leaf.nullable
        self._shape: Shape | None = None
        self._num_bitmaps = 0
        if kind == _PLAIN:
            self._shape, self._num_bitmaps = fixed_shape(path.leaf_type)

    @classmethod
    def of(cls, path: LeafPath) -> WholeLeaf | None:
        """The leaf of a path; None for a leaf that this class does not cover."""
        if any(node.kind is not NodeKind.STRUCT for node in path.nodes[:-1]):
            return None
        try:
            kind, bits = page_kind(path.nodes[-1])
        except UnsupportedError:
            return None
        dtype = path.leaf_type
        if kind == "binary":
            return cls(path, _WIDE_STRINGS if OFFSET_BYTES[dtype.id] == 8 else _STRINGS, bits)
        return cls(path, _PLAIN, bits) if kind == "plain" and bits and not pa.types.is_dictionary(dtype) else None

    def described(self, first_id: int) -> tuple[int, int, int, bool]:
        """The leaf as the kernel takes it, for files whose page tables begin with field `first_id`."""
        return self._path.leaf.id - first_id, self._bits, self._kind, self._nullable

    def build(self, num_rows: int, values: Sequence[OwnedBuffer], validity: OwnedBuffer | None, nulls: int) -> pa.Array:
        """Wrap decoded values in an array, nested in their structs."""
        dtype = self._path.leaf_type
        if self._shape is None:
            bitmap = None if validity is None else pa.py_buffer(validity)
            array = pa.Array.from_buffers(dtype, num_rows, [bitmap, *map(pa.py_buffer, values)], nulls)
        else:
            array = build_values(dtype, self._shape, [*[None] * self._num_bitmaps, *values], num_rows, None, 0)
        return nest(self._path, array, [(num_rows, None, 0, None)] * len(self._path.nodes))

    def build_leaf(self, leaf: Leaf) -> pa.Array:
        """Wrap values that `KnownBatches` decoded."""
        num_rows, values, layers = leaf
        _, validity, nulls, _ = layers[0]
        kept: Any = values  # contains no bitmaps
        return self.build(num_rows, kept, validity, nulls)


def known_batches(leaves: Sequence[WholeLeaf], first_id: int, last_id: int) -> KnownBatches:
    """The kernel's decoder for these leaves of small files with these field ids."""
    described = [leaf.described(first_id) for leaf in leaves]
    return KnownBatches(described, last_id - first_id + 1, METADATA_BYTES_MAX, PAGE_ROWS_MAX, STRING_BYTES_RATIO_MAX)


def decode_files(files: Sequence[tuple[FileBytes, int, Sequence[WholeLeaf]]]) -> list[list[pa.Array] | None]:
    """All rows of leaves of some files; None for a file that needs the fallback.

    files  per file: buffer, position and size of its bytes, rows before each batch and page table; the lowest field id
           of that table; the leaves
    """
    wanted = [(*file_bytes, [leaf.described(first_id) for leaf in leaves]) for file_bytes, first_id, leaves in files]
    decoded = _kernels.scan_batches(wanted, PAGE_ROWS_MAX, STRING_BYTES_RATIO_MAX)
    return [
        None if parts is None else [leaf.build(*part) for leaf, part in zip(leaves, parts, strict=True)]
        for (_, _, leaves), parts in zip(files, decoded, strict=True)
    ]
