"""Layouts of batches that kernels pass to Arrow in one call, instead of one array at a time."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_io._kernels import Layouts
from lance_io.levels.chunks import OFFSET_BYTES
from lance_io.records import dataclass

if TYPE_CHECKING:
    from lance_io._kernels import ArrowBatch


@dataclass(frozen=True, slots=True, eq=False)
class BatchLayout:
    """A schema and the memory layout of its columns, for the kernels."""

    schema: pa.Schema
    columns: Layouts

    @classmethod
    def of(cls, schema: pa.Schema) -> BatchLayout | None:
        """The layout, or None unless every column has one leaf of plain values, in structs and lists at most."""
        programs = [_program(dtype) for dtype in schema.types]
        supported = [program for program in programs if program is not None]
        return cls(schema, Layouts(supported)) if len(supported) == len(programs) else None

    def batch(self, memory: ArrowBatch) -> pa.RecordBatch:
        """The batch that a kernel has built; the kernel has checked the layout."""
        return pa.RecordBatch._import_from_c(memory.address, self.schema)


def _program(dtype: pa.DataType) -> bytes | None:
    if isinstance(dtype, pa.StructType):
        return _around(b"s", dtype.field(0).type) if dtype.num_fields == 1 else None
    if isinstance(dtype, (pa.ListType, pa.LargeListType)):
        return _around(b"l" if isinstance(dtype, pa.ListType) else b"L", dtype.value_type)
    return _leaf(dtype)


def _around(part: bytes, dtype: pa.DataType) -> bytes | None:
    inner = _program(dtype)
    return None if inner is None else part + inner


def _leaf(dtype: pa.DataType) -> bytes | None:
    if isinstance(dtype, pa.FixedSizeListType):
        items = _leaf(dtype.value_type)
        return None if items is None or items in (b"v", b"V") else struct.pack("<cI", b"i", dtype.list_size) + items
    if dtype.id in OFFSET_BYTES:
        return b"v" if OFFSET_BYTES[dtype.id] == 4 else b"V"
    if isinstance(dtype, (pa.BaseExtensionType, pa.DictionaryType)) or pa.types.is_nested(dtype):
        return None
    try:
        bits = dtype.bit_width
    except ValueError:
        return None
    return struct.pack("<cI", b"f", bits) if bits else None
